"""A connection to a Ray cluster, or to one that is started here."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import tempfile
import threading
from ipaddress import ip_address
from typing import Any

from driftwise.errors import UserError
from driftwise.files import reason
from driftwise.runs.saving import Terminated, deferred_signals

REACH = 5.0
"""seconds in which a cluster must answer"""
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""the start of an HTTP/2 connection, which Ray uses: the preface and an empty settings frame"""
SETTINGS = 4
"""the type of the frame that HTTP/2 answers with"""
REACHABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""the variable by which Ray, as it is imported, listens on every address or on loopback alone"""


class RayCluster:
    """Connected until it is closed."""

    def __init__(self, address: str, *, num_cpus: float, store_bytes: int, needed_by: str) -> None:
        """Connect, or start a Ray here that listens on loopback alone.

        Args:
            address: host:port or ray://host:port of a cluster, auto, or local to start one here.
            num_cpus: Of one that is started here.
            store_bytes: Of its object store.
            needed_by: Who needs Ray, for the message where it is not installed.
        """
        if address == "local":
            os.environ.setdefault(REACHABLE, "0")
        try:
            import ray
        except ImportError as error:
            raise UserError(f"{needed_by} needs Ray: pip install 'driftwise[ray]'") from error
        self.ray: Any = ray
        _refuse_unreachable(address)
        self._nowhere = tempfile.TemporaryDirectory(prefix="driftwise-ray-")
        settings: dict[str, Any] = {"address": address, "log_to_driver": False}
        if address == "local":
            settings |= {
                "num_cpus": num_cpus,
                "include_dashboard": False,
                "object_store_memory": store_bytes,
            }
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
        self._connect(address, settings)

    def close(self) -> None:
        """Disconnect from the cluster; one that was started here ends."""
        with deferred_signals():
            self.ray.shutdown()
        self._nowhere.cleanup()

    def _connect(self, address: str, settings: dict[str, Any]) -> None:
        on_loopback = address == "local" and os.environ.get(REACHABLE) == "0"
        terminate = signal.getsignal(signal.SIGTERM)
        try:
            if on_loopback:
                self.ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # if imported before
            # Ray puts the working folder first on its workers' sys.path, before Python's own
            # modules: files there could shadow them. It gets an empty folder.
            with deferred_signals(), contextlib.chdir(self._nowhere.name):
                self.ray.init(**settings, configure_logging=False)
        except SystemExit as error:  # by Ray's own handler of SIGTERM
            raise Terminated from error
        except Exception as error:  # Ray raises anything, a bare Exception where it took too long
            line = str(error).strip().splitlines()[0]
            raise UserError(f"cannot use the Ray cluster at {address}: {line}") from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, terminate)  # Ray replaces it by its own
        if on_loopback and not ip_address(self.ray.util.get_node_ip_address()).is_loopback:
            self.close()
            raise UserError(
                "Ray was imported before and would listen on every address of this machine; set "
                f"{REACHABLE}=0 in the environment before Python starts"
            )


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
