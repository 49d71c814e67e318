"""A real Ray of two nodes on this machine, one of which is killed."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import own_parts
import pytest
from run_tools import complaint, events_of, lasting, lasting_checkpoint
from sweep_tools import Notes, is_dead, job_of, tiny_plan, undisturbed, until

from driftwise import ray_cluster
from driftwise.runs.saving import Terminated
from driftwise.runs.store import CHECKPOINT, LOCK, is_busy
from driftwise.sweeps.perform import Summary, carry_out
from driftwise.sweeps.plan import FAILURES, RUNS, SHARED
from driftwise.sweeps.ray_executor import OnRay
from driftwise.sweeps.shared import tree_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own, while it is imported
    ray: Any = pytest.importorskip("ray")

pytestmark = [
    # Ray leaves pipes and processes of its cluster to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ONE_CPU = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
QUICK = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 5,
}
"""How soon a lost machine is noticed; as a rule Ray takes half a minute."""


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("orders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(own_parts.FOLDER, str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # on a busy machine a nice worker waits for long
        yield folder


@pytest.fixture(scope="module")
def cluster(orders: Path) -> Iterator[Any]:
    """Two nodes with a processor each."""
    from ray.cluster_utils import Cluster

    head = {**ONE_CPU, "include_dashboard": False, "_system_config": QUICK}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        yield cluster
        cluster.shutdown()
        del cluster
        gc.collect()


def children_of(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(folder.name))
    return found


def test_a_cluster_that_nothing_fits_on_is_refused_and_stays(cluster: Any) -> None:
    crowded = complaint(lambda: OnRay(cluster.address, cpus_per_run=5))
    assert "no run fits on the cluster: it has 1 CPUs and 0 GPUs" in crowded
    assert "no run fits" in complaint(lambda: OnRay(cluster.address, gpus_per_run=1))
    with OnRay(cluster.address, cpus_per_run=0.5) as engine:
        assert engine.slots == 2


def test_runs_that_share_tasks_are_bit_equal_on_a_cluster(cluster: Any, tmp_path: Path) -> None:
    plan = tiny_plan(axes={"adaptation": ["vanilla", "amr"]}, num_drifts=1)
    plain = undisturbed(plan, tmp_path / "plain")
    assert tree_of(plan.runs).num_tasks == (3, 4)
    with OnRay(cluster.address) as engine:
        assert carry_out(plan.runs, tmp_path / "out", engine, Notes()).done == 2
    for run in plan.runs:
        ours, theirs = (folder / RUNS / run.id for folder in (tmp_path / "out", plain))
        assert lasting(ours) == lasting(theirs)
        assert lasting_checkpoint(ours) == lasting_checkpoint(theirs)
        assert events_of(ours) == events_of(theirs)
    assert list((tmp_path / "out" / SHARED).iterdir()) == []


def test_a_signal_while_ray_works_ends_the_sweep_as_itself(
    cluster: Any, orders: Path, tmp_path: Path
) -> None:
    (run,) = tiny_plan(axes={"seed": [0]}, adaptation="own_parts:Counting").runs
    (orders / "gate").touch()  # the run waits before its second task
    errors = {signal.SIGTERM: Terminated, signal.SIGINT: KeyboardInterrupt}

    def handle(number: int, _: object) -> None:
        raise errors[signal.Signals(number)]

    before = {number: signal.signal(number, handle) for number in errors}
    try:
        with OnRay(cluster.address) as engine:
            engine.submit(job_of(run, tmp_path))
            until(lambda: (tmp_path / RUNS / run.id / CHECKPOINT).exists(), seconds=180)
            for number, error in errors.items():
                threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
                with pytest.raises(error):
                    engine.wait(1.0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        (orders / "gate").unlink()


def test_a_sweep_loses_nothing_with_a_machine(cluster: Any, orders: Path, tmp_path: Path) -> None:
    plan = tiny_plan(axes={"seed": list(range(4))}, adaptation="own_parts:Counting")
    node = cluster.add_node(**ONE_CPU)
    raylet = node.all_processes["raylet"][0].process.pid
    killed: list[int] = []
    (orders / "begun").unlink(missing_ok=True)  # of other tests
    (orders / "gate").touch()

    def learned_on_it() -> list[Path]:
        """The runs on the second machine that have learned their first task."""
        workers = set(children_of(raylet))
        return [
            folder
            for folder in (tmp_path / RUNS).glob("*")
            if (folder / CHECKPOINT).exists()
            and is_busy(folder)
            and int((folder / LOCK).read_text() or 0) in workers
        ]

    def lose_it() -> None:
        try:
            until(lambda: bool(learned_on_it()), seconds=180)
            until(lambda: own_parts.tasks_begun().count(2) == 2)  # a run on each machine
            # The raylet first: it must not report that its workers have died.
            killed.extend([raylet, *children_of(raylet)])
            for pid in killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        finally:
            (orders / "gate").unlink()

    thread = threading.Thread(target=lose_it, daemon=True)
    handler = signal.getsignal(signal.SIGTERM)
    notes = Notes()
    with OnRay(cluster.address) as engine:
        assert signal.getsignal(signal.SIGTERM) is handler
        assert engine.slots == 2
        began = time.monotonic()
        assert engine.wait(0.2) is None
        assert time.monotonic() - began >= 0.2
        thread.start()
        summary = carry_out(plan.runs, tmp_path, engine, notes)
        thread.join()
    assert len(killed) > 1
    assert all(map(is_dead, killed))
    assert summary == Summary(total=4, done=4)
    assert not (tmp_path / FAILURES).exists()
    done = Counter(outcome.id for outcome, _ in notes.ends if outcome.state == "done")
    assert done == Counter(run.id for run in plan.runs)
    # Every task was learned once, but for the one that was lost in the middle.
    assert Counter(own_parts.tasks_begun()) == {0: 4, 2: 5}
    plain = undisturbed(plan, tmp_path / "plain")
    for run in plan.runs:
        assert lasting(tmp_path / RUNS / run.id) == lasting(plain / RUNS / run.id)


def test_machines_that_join_a_cluster_are_used_and_those_that_leave_are_not(cluster: Any) -> None:
    def slots() -> int:
        assert engine.wait(0.05) is None
        return engine.slots

    with OnRay(cluster.address) as engine:
        until(lambda: slots() == 1)  # a machine killed before may still count
        node = cluster.add_node(**ONE_CPU)
        until(lambda: slots() == 2)
        cluster.remove_node(node)
        until(lambda: slots() == 1)


STARTED_HERE = """
import json, os, pathlib, sys
import ray  # before driftwise could limit it
from driftwise.sweeps.job import Job
from driftwise.sweeps.ray_executor import OnRay
from driftwise.sweeps.shared import tree_of

def descendants(pid):
    for child in map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        yield child
        yield from descendants(child)

with OnRay() as engine:
    engine.submit(Job(**json.loads(sys.argv[1])))
    print("state", engine.wait(90).state)
    held = set()
    for pid in [os.getpid(), *descendants(os.getpid())]:
        for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                held.add(os.readlink(file))
            except OSError:
                pass
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in held:
                print("listens at", local.split(":")[0])
print("left", ray.is_initialized())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_without_an_address_ray_is_started_here_on_loopback_only_and_ended(
    orders: Path, tmp_path: Path
) -> None:
    plan = tiny_plan(axes={"seed": [0]})
    (run,) = plan.runs
    words = [sys.executable, "-c", STARTED_HERE, json.dumps(job_of(run, tmp_path).to_json())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    printed = done.stdout.splitlines()
    assert "state done" in printed, done.stderr
    assert "left False" in printed
    loopback = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
    addresses = {line.removeprefix("listens at ") for line in printed if "listens" in line}
    assert addresses
    assert addresses <= loopback
    worker = int((tmp_path / RUNS / run.id / LOCK).read_text())
    until(partial(is_dead, worker), seconds=20)
    plain = undisturbed(plan, tmp_path / "plain")
    assert lasting(tmp_path / RUNS / run.id) == lasting(plain / RUNS / run.id)


def test_a_ray_of_its_own_that_is_not_on_loopback_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []
    monkeypatch.setenv(ray_cluster.REACHABLE, "0")
    monkeypatch.setattr(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", True)
    monkeypatch.setattr(ray, "init", lambda **settings: None)
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "192.0.2.2")
    assert "would listen on every address" in complaint(OnRay)
    assert ended == [True]


def test_an_address_where_nobody_answers_is_refused_soon() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        assert "no Ray cluster answers" in complaint(partial(OnRay, address))
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_is_not_rays_is_refused_soon(
    says: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "REACH", 0.5)

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(ConnectionResetError):
            connection.sendall(says)
            while connection.recv(100):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        begun = time.monotonic()
        assert complaint(partial(OnRay, address)) == (
            f"what listens at {address} is not a Ray cluster; expected the address that "
            "`ray start --head` prints (port 6379), or ray://host:10001"
        )
        assert time.monotonic() - begun < 10
        thread.join()


def test_a_wrong_address_no_resources_and_no_ray_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for address in ("here", ":6379", "host:", "host:port", ""):
        assert "host:port, auto or local" in complaint(partial(OnRay, address))
    for cpus, gpus in ((0, 0), (-1, 0), (1, -1)):
        line = complaint(partial(OnRay, cpus_per_run=cpus, gpus_per_run=gpus))
        assert "needs CPUs or GPUs" in line
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'driftwise[ray]'" in complaint(OnRay)
