"""Runs as Ray tasks, on an existing cluster or on one started here.

Results go to a folder that all machines share. A run lost with its machine is given to another,
which resumes it from its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import tempfile
import threading
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from driftwise.config.speed import num_processors
from driftwise.errors import UserError
from driftwise.files import reason
from driftwise.runs.saving import Terminated, deferred_signals
from driftwise.sweeps.executors import Engine
from driftwise.sweeps.job import Job, Outcome, perform

REACH = 5.0
"""seconds in which a cluster must answer"""
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""the start of an HTTP/2 connection, which Ray uses: the preface and an empty settings frame"""
SETTINGS = 4
"""the type of the frame that HTTP/2 answers with"""
REACHABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""the variable by which Ray, as it is imported, listens on every address or on loopback alone"""
STORE = 100 * 2**20
"""bytes of Ray's object store; jobs and outcomes are a page of text"""


class OnRay(Engine):
    """Runs as Ray tasks."""

    def __init__(
        self,
        address: str = "local",
        *,
        cpus_per_run: float = 1.0,
        gpus_per_run: float = 0.0,
        retries: int = 1,
    ) -> None:
        """`address`: host:port or ray://host:port of a cluster, auto, or local to start one here.

        `retries`: how often a run is given to another machine after its own was lost.
        """
        if address == "local":
            os.environ.setdefault(REACHABLE, "0")
        try:
            import ray
        except ImportError as error:
            raise UserError(
                "the engine ray needs Ray: pip install 'driftwise[ray]', or use --engine pool"
            ) from error
        self._ray: Any = ray
        if min(cpus_per_run, gpus_per_run) < 0 or not cpus_per_run + gpus_per_run:
            raise UserError(
                "a run needs CPUs or GPUs, so that Ray knows how many fit: --cpus-per-run 1; got "
                f"{cpus_per_run:g} CPUs and {gpus_per_run:g} GPUs"
            )
        _refuse_unreachable(address)
        self._home = str(Path.cwd())
        self._nowhere = tempfile.TemporaryDirectory(prefix="driftwise-ray-")
        self._connect(address)
        self._per_run = {"CPU": cpus_per_run, "GPU": gpus_per_run}
        self.slots = self._fitting()
        if self.slots < 1:
            resources: dict[str, float] = self._ray.cluster_resources()
            self.close()
            raise UserError(
                f"no run fits on the cluster: it has {resources.get('CPU', 0):g} CPUs and "
                f"{resources.get('GPU', 0):g} GPUs, a run asks for {cpus_per_run:g} and "
                f"{gpus_per_run:g}"
            )
        self._perform = ray.remote(_perform).options(
            num_cpus=cpus_per_run,
            num_gpus=gpus_per_run,
            max_retries=retries,
        )
        self._jobs: dict[Any, Job] = {}

    # An exception that a signal raises within Ray's own code comes out as a SystemError, or not at
    # all: signals wait until Ray is done, which takes a second at most.

    def submit(self, job: Job) -> None:
        """Start a job."""
        with deferred_signals():
            self._jobs[self._perform.remote(job.to_json(), self._home)] = job

    def wait(self, seconds: float) -> Outcome | None:
        """The next outcome; meanwhile machines may have come or gone."""
        with deferred_signals():
            return self._wait(seconds)

    def _wait(self, seconds: float) -> Outcome | None:
        self.slots = max(1, self._fitting())  # with no machine left, Ray still has to queue jobs
        if not self._jobs:
            time.sleep(seconds)
            return None
        ready, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=seconds)
        if not ready:
            return None
        job = self._jobs.pop(ready[0])
        try:
            return Outcome(**self._ray.get(ready[0]))
        except self._ray.exceptions.RayError as error:
            line = str(error).strip().splitlines()[0]
            return Outcome(id=job.id, state="failed", error=f"lost by Ray: {line}")

    def close(self) -> None:
        """Disconnect from the cluster; one that was started here ends."""
        with deferred_signals():
            for reference in self.__dict__.get("_jobs", {}):
                self._ray.cancel(reference, force=True)
            self._ray.shutdown()
        self._nowhere.cleanup()

    def _fitting(self) -> int:
        """Runs that the cluster, as it is now, has room for."""
        resources: dict[str, float] = self._ray.cluster_resources()
        return int(
            min(resources.get(kind, 0) // asked for kind, asked in self._per_run.items() if asked)
        )

    def _connect(self, address: str) -> None:
        settings: dict[str, Any] = {"address": address, "log_to_driver": False}
        if address == "local":
            settings |= {
                "num_cpus": num_processors(),
                "include_dashboard": False,
                "object_store_memory": STORE,
            }
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
        on_loopback = address == "local" and os.environ.get(REACHABLE) == "0"
        terminate = signal.getsignal(signal.SIGTERM)
        try:
            if on_loopback:
                self._ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # if imported before
            # Ray puts the working folder first on its workers' sys.path, before Python's own
            # modules: files there could shadow them. It gets an empty folder.
            with deferred_signals(), contextlib.chdir(self._nowhere.name):
                self._ray.init(**settings, configure_logging=False)
        except SystemExit as error:  # by Ray's own handler of SIGTERM
            raise Terminated from error
        except (ConnectionError, RuntimeError, ValueError) as error:
            line = str(error).strip().splitlines()[0]
            raise UserError(f"cannot use the Ray cluster at {address}: {line}") from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, terminate)  # Ray replaces it by its own
        if on_loopback and not ip_address(self._ray.util.get_node_ip_address()).is_loopback:
            self.close()
            raise UserError(
                "Ray was imported before and would listen on every address of this machine; set "
                f"{REACHABLE}=0 in the environment before Python starts"
            )


def _perform(job: dict[str, Any], home: str) -> dict[str, Any]:
    """On a machine of the cluster; custom parts and data are named as seen from `home`."""
    with contextlib.suppress(OSError):  # a machine that does not have it
        os.chdir(home)
    return perform(Job(**job)).to_json()


def _refuse_unreachable(address: str) -> None:
    """Ray itself would try for a long time."""
    if address in ("local", "auto"):
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit() or not host:
        raise UserError(f"a Ray cluster's address is host:port, auto or local; got {address!r}")
    try:
        with socket.create_connection((host, int(port)), timeout=REACH) as connection:
            is_ray = os.environ.get("RAY_USE_TLS") == "1" or _answers_http2(connection)
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at {address} ({reason(error)}); is it running, and can its "
            "port be reached from here?"
        ) from error
    if not is_ray:
        raise UserError(
            f"what listens at {address} is not a Ray cluster; expected the address that "
            "`ray start --head` prints (port 6379), or ray://host:10001"
        )


def _answers_http2(connection: socket.socket) -> bool:
    """Whether the other side answers as Ray would; silence counts as no."""
    connection.sendall(GREETING)
    try:
        header = connection.recv(9, socket.MSG_WAITALL)
    except (TimeoutError, ConnectionResetError):
        return False
    return len(header) == 9 and header[3] == SETTINGS
