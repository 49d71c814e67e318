"""A service on Ray Serve whose replicas, and whose learner, are killed under load.

    pip install 'driftwise[serve,ray-serve]'
    python benchmarks/serve_ray.py --kills 5 --learner-kills 2
    python benchmarks/serve_ray.py --autoscaling         # replicas over time, under load and after it

`--save` puts what was found into results/serve.json.

Clients predict without a pause while one sends batches to learn. Every answer names the last change that
it knows. It is compared with what a service in one process predicts after that change, which is fed
the same batches in the same order; and in the end the states of both are compared, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from serve_kill import differences, save, state_of

import driftwise
from driftwise.datasets.readers.digits import load_digits
from driftwise.errors import RunFailure
from driftwise.serve.ray_serve import RayService, RaySettings
from driftwise.serve.server import Address, Learning, open_service

LEARNING = Learning(
    network="mlp",
    settings={"check_rows": 20, "reference_size": 30, "watch_every": 3, "detector": "mmd"},
)
BATCH, ASKED = 10, 8
REPLICA, LEARNER = "ray::ServeReplica:driftwise", "LearnerActor"
"""in the titles of processes"""
TOLERANCE = 2e-5
"""of a probability: answers have six digits, and samples are predicted together with others"""


@dataclass
class Asked:
    """What a client has got."""

    answers: list[tuple[int, np.ndarray]] = field(default_factory=list)
    """last change that was known, probabilities"""
    slowest: float = 0.0
    lost: list[str] = field(default_factory=list)


def predict(url: str, images: np.ndarray, stop: threading.Event, asked: Asked) -> None:
    with driftwise.Client(url, retries=100) as client:
        while not stop.is_set():
            began = time.monotonic()
            try:
                found = client.predict(images)
            except RunFailure as error:
                asked.lost.append(str(error))
            else:
                asked.answers.append((found.applied, found.probabilities))
            asked.slowest = max(asked.slowest, time.monotonic() - began)


def observe(url: str, stop: threading.Event, sent: list[tuple[int, int]], lost: list[str]) -> None:
    """Batches one after the other; `sent`: the change and the number of the batch."""
    with driftwise.Client(url, retries=100) as client:
        number = 0
        while not stop.is_set():
            try:
                sent.append((client.observe(*batch(number), key=f"batch-{number}").number, number))
            except RunFailure as error:
                lost.append(str(error))
            number += 1
            time.sleep(0.02)


def batch(number: int) -> tuple[np.ndarray, list[int]]:
    digits = load_digits()
    chosen = np.random.default_rng(number).integers(0, len(digits.labels), BATCH)
    return digits.images[chosen], digits.labels[chosen].tolist()


def processes(title: str) -> list[int]:
    """Processes below this one by a part of their title."""
    parents, found = {}, []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            if title.encode() in (each / "cmdline").read_bytes():
                found.append(int(each.name))
        except OSError:
            continue  # it has ended

    def is_below(process: int) -> bool:
        return process == os.getpid() or (process in parents and is_below(parents[process]))

    return [each for each in found if is_below(each)]


def running_replicas() -> int:
    from ray import serve

    status: Any = serve.status()
    deployment = status.applications["driftwise"].deployments["predictions"]
    return int(deployment.replica_states.get("RUNNING", 0))


def kill_one(title: str, replicas: int, draw: random.Random) -> None:
    """Kill one of some processes, and wait until there is another one."""
    killed = draw.choice(processes(title))
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: set(processes(title)) - {killed}, f"{title} was not replaced")
    wait_for(lambda: killed not in processes(title), f"{title} was not killed")
    wait_for(lambda: running_replicas() == replicas, "not all replicas are running")


def wait_for(condition: Callable[[], object], message: str, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.1)


def kill_and_compare(
    folder: Path,
    *,
    kills: int,
    learner_kills: int = 0,
    clients: int = 3,
    seconds: float = 2.0,
    seed: int = 0,
) -> dict[str, Any]:
    """Kill replicas and the learner under load; what was found. AssertionError: something is wrong."""
    draw, stop = random.Random(seed), threading.Event()
    images = load_digits().images[:ASKED]
    asked = [Asked() for _ in range(clients)]
    sent: list[tuple[int, int]] = []
    unsent: list[str] = []
    replicas = 2
    with RayService(
        folder / "ray",
        LEARNING,
        address=Address(port=0),
        ray_settings=RaySettings(min_replicas=replicas, max_replicas=replicas),
    ) as service:
        threads = [
            threading.Thread(target=observe, args=(service.url, stop, sent, unsent), daemon=True)
        ]
        threads[0].start()
        while len(sent) < 3:
            time.sleep(0.05)
        for each in asked:
            arguments = (service.url, images, stop, each)
            threads.append(threading.Thread(target=predict, args=arguments, daemon=True))
            threads[-1].start()
        titles = [REPLICA] * kills + [LEARNER] * learner_kills
        for title in titles:
            time.sleep(draw.uniform(0.2, seconds))
            before = len(sent)
            kill_one(title, replicas, draw)
            print(f"{title} killed and replaced", flush=True)
            wait_for(lambda: len(sent) >= before + 5, "the learner does not go on")  # noqa: B023
        time.sleep(seconds)
        stop.set()
        for thread in threads:
            thread.join()
    assert not unsent, unsent[0]
    answers = [each for one in asked for each in one.answers]
    lost = [each for one in asked for each in one.lost]
    assert not lost, lost[0]
    assert [number for _, number in sent] == list(range(len(sent)))
    torch.set_num_threads(1)  # as Ray does for its processes: sums in another order differ
    expected: dict[int, np.ndarray] = {}
    with open_service(folder / "plain", LEARNING) as plain:
        for change, number in sent:
            seen = plain.observe(*batch(number), key=f"batch-{number}").result()
            assert seen["number"] == change, "a batch was applied twice, or not at all"
            expected[change] = plain.predict(images)
        with open_service(folder / "ray", LEARNING) as again:
            different = differences(state_of(plain), state_of(again))
    assert not different, different[:5]
    worst = max(np.abs(found - expected[applied]).max() for applied, found in answers)
    assert worst < TOLERANCE, f"an answer is off by {worst}"
    return {
        "replicas_killed": kills,
        "learners_killed": learner_kills,
        "predictions": len(answers),
        "snapshots": len({applied for applied, _ in answers}),
        "batches": len(sent),
        "lost": len(lost),
        "largest_difference": float(worst),
        "slowest_seconds": max(each.slowest for each in asked),
    }


def watch_autoscaling(folder: Path, *, most: int = 3, clients: int = 8) -> dict[str, Any]:
    """Load until all replicas run, then none until one is left; what was found.

    Ray decides by its own measurements over 30 seconds; only the pauses before it acts are shortened.
    """
    stop, asked = threading.Event(), [Asked() for _ in range(clients)]
    images = load_digits().images[:ASKED]
    settings = RaySettings(
        min_replicas=1, max_replicas=most, ongoing=1.0, up_seconds=3.0, down_seconds=5.0
    )
    began, changes = time.monotonic(), list[tuple[float, int]]()

    def follow() -> int:
        replicas = running_replicas()
        if not changes or changes[-1][1] != replicas:
            changes.append((round(time.monotonic() - began, 1), replicas))
            print(f"{changes[-1][0]} s: {replicas} replicas", flush=True)
        return replicas

    with RayService(
        folder / "ray",
        LEARNING,
        address=Address(port=0),
        ray_settings=settings,
    ) as service:
        with driftwise.Client(service.url, retries=100) as client:
            client.observe(*batch(0))
        wait_for(lambda: follow() == 1, "one replica runs before there is load")
        began = time.monotonic()
        changes.clear()
        threads = [
            threading.Thread(target=predict, args=(service.url, images, stop, each), daemon=True)
            for each in asked
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: follow() == most, "no replicas were started under load")
        time.sleep(5)
        stop.set()
        for thread in threads:
            thread.join()
        load_ended = time.monotonic() - began
        wait_for(lambda: follow() == 1, "no replicas were ended without load")
        with driftwise.Client(service.url, retries=100) as client:
            client.predict(images)  # the one that is left answers
    lost = [each for one in asked for each in one.lost]
    assert not lost, lost[0]
    return {
        "clients": clients,
        "at_most": most,
        "up_seconds": settings.up_seconds,
        "down_seconds": settings.down_seconds,
        "replicas_from_second": [list(each) for each in changes],
        "load_ended_after_seconds": round(load_ended, 1),
        "predictions": sum(len(each.answers) for each in asked),
        "lost": len(lost),
        "slowest_seconds": max(each.slowest for each in asked),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--learner-kills", type=int, default=2)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--autoscaling", action="store_true", help="watch it; nothing is killed")
    parser.add_argument("--save", action="store_true", help="put it into results/serve.json")
    arguments = vars(parser.parse_args())
    saves, scales = arguments.pop("save"), arguments.pop("autoscaling")
    with tempfile.TemporaryDirectory() as folder:
        if scales:
            name, found = "ray, autoscaling", watch_autoscaling(Path(folder))
        else:
            name, found = "ray, kills", kill_and_compare(Path(folder), **arguments)
    for key, value in found.items():
        print(f"{key}: {value:.3g}" if isinstance(value, float) else f"{key}: {value}")
    if saves:
        save(name, found)


if __name__ == "__main__":
    main()
