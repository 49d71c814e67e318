"""`kill -9` of a service at random moments under load: nothing that was acknowledged is lost.

    python benchmarks/serve_kill.py --kills 50
    python benchmarks/serve_kill.py --kills 50 --workers 2        # the learner's process is killed

Several clients send batches, some without labels, and late labels. The server is killed and started
again. In the end its state is compared, bit for bit, with that of a service in one process that was
fed the same requests in the same order and never disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import driftwise
from driftwise.datasets.readers.digits import load_digits
from driftwise.errors import RunFailure
from driftwise.serve.request_log import RequestLog
from driftwise.serve.server import Learning, open_service
from driftwise.serve.service import Service
from driftwise.serve.settings import ServeSettings

SAVED = Path(__file__).resolve().parents[1] / "results" / "serve.json"
SETTINGS = {"check_rows": 20, "reference_size": 30, "watch_every": 3, "detector": "mmd"}
CLASSES = 5


@dataclass
class Sent:
    """What a client has sent and what was acknowledged."""

    keys: set[str] = field(default_factory=set)
    samples: dict[int, int] = field(default_factory=dict)
    """label by id"""
    failures: list[str] = field(default_factory=list)


def send(client: driftwise.Client, name: int, stop: threading.Event, sent: Sent) -> None:
    """Batches and late labels, one after the other, until told to stop."""
    digits = load_digits()
    kept = np.flatnonzero(digits.labels < CLASSES)
    draw = random.Random(name)
    number = 0
    open_ids: list[int] = []
    while not stop.is_set():
        chosen = kept[[draw.randrange(len(kept)) for _ in range(10)]]
        x, y = digits.images[chosen], digits.labels[chosen]
        if number > 40:
            x = 255 - x  # all classes drift
        key = f"{name}-{number}"
        try:
            if open_ids and draw.random() < 0.3:
                ids = [open_ids.pop() for _ in range(min(3, len(open_ids)))]
                client.label(ids, [sent.samples[each] for each in ids], key=key)
            else:
                labels = y.tolist() if draw.random() < 0.6 or number < 5 else None
                seen = client.observe(x, labels, key=key)
                sent.samples.update(zip(seen.ids, y.tolist(), strict=True))
                open_ids += seen.ids if labels is None else []
            sent.keys.add(key)
        except RunFailure as error:
            sent.failures.append(str(error))
        number += 1
    client.close()


def start(folder: Path, port: int, workers: int) -> subprocess.Popen[str]:
    flags = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    flags += ["--workers", str(workers)]
    command = [sys.executable, "-m", "driftwise", "serve", "--network", "mlp"]
    return subprocess.Popen(
        [*command, "--folder", str(folder), "--port", str(port), *flags],
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def collect(folder: Path, records: dict[int, dict[str, Any]]) -> None:
    """Add what the log of a killed server holds, from a copy of it."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "log"
        shutil.copytree(folder / "log", copy)
        log = RequestLog(copy, max_bytes=10**12)
        for record in log.records(log._firsts[0] - 1):
            assert records.setdefault(record["n"], record) == record, "a record has changed"


def state_of(service: Service) -> dict[str, Any]:
    """All that may change, but for times of day and counts of failures."""
    state = service.live.state_dict()
    state["parts"]["ledger"].pop("seconds")
    state.pop("extra")
    history = service.history.state_dict()
    parts = (
        history["events"],
        history["verdicts"],
        history["answers"],
        history["series"]["buckets"],
    )
    for each in (line for part in parts for line in part):
        each.pop("time")
    return {**state, "history": history}


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Where two states differ."""
    if isinstance(first, Tensor):
        same = isinstance(second, Tensor) and torch.equal(first, second)
        return [] if same else [path]
    if isinstance(first, dict) and isinstance(second, dict) and list(first) == list(second):
        return [d for key in first for d in differences(first[key], second[key], f"{path}/{key}")]
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        if len(first) != len(second):
            return [path]
        pairs = zip(first, second, strict=True)
        return [d for n, (a, b) in enumerate(pairs) for d in differences(a, b, f"{path}[{n}]")]
    return [] if first == second else [path]


def kill_and_compare(
    folder: Path,
    *,
    kills: int,
    seconds: float = 2.0,
    clients: int = 3,
    workers: int = 0,
    seed: int = 0,
) -> dict[str, Any]:
    """Kill a server under load so often; what was found. AssertionError if anything was lost."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    draw, stop = random.Random(seed), threading.Event()
    sent = [Sent() for _ in range(clients)]
    url = f"http://127.0.0.1:{port}"
    records: dict[int, dict[str, Any]] = {}
    process = start(folder / "killed", port, workers)
    threads = [
        threading.Thread(
            target=send, args=(driftwise.Client(url, retries=10**6), name, stop, sent[name])
        )
        for name in range(clients)
    ]
    probe = driftwise.Client(url)
    probe.wait_until_ready(120)
    for each in threads:
        each.start()
    try:
        for _ in range(kills):
            time.sleep(draw.uniform(0, seconds))
            process.kill()
            process.wait()
            collect(folder / "killed", records)
            process = start(folder / "killed", port, workers)
            probe.wait_until_ready(120)
        time.sleep(seconds)
    finally:
        stop.set()
        for each in threads:
            each.join()
        process.kill()
        process.wait()
        probe.close()
    collect(folder / "killed", records)

    failures = [each for one in sent for each in one.failures]
    assert not failures, failures[:3]
    logged = [record["key"] for record in records.values()]
    acknowledged = set().union(*(each.keys for each in sent))
    assert sorted(records) == list(range(1, len(records) + 1)), "a record is missing"
    assert len(logged) == len(set(logged)), "a request was applied twice"
    assert acknowledged == set(logged), "acknowledged and logged requests differ"

    learning = Learning(network="mlp", settings=SETTINGS)
    limits = ServeSettings(max_waiting=10**6)
    with open_service(folder / "undisturbed", learning, limits) as undisturbed:
        for _, record in sorted(records.items()):
            payload = {
                name: value
                for name, value in record.items()
                if name not in ("n", "time", "kind", "by", "key")
            }
            undisturbed.submit(record["kind"], key=record["key"], **payload)
        while undisturbed.view["applied"] < len(records):
            time.sleep(0.05)
        expected = state_of(undisturbed)
    with open_service(folder / "killed", learning, limits) as survivor:
        assert survivor.view["applied"] == len(records)
        found = differences(state_of(survivor), expected)
    assert not found, found[:5]
    kinds = [record["kind"] for record in records.values()]
    return {
        "kills": kills,
        "prediction workers": workers,
        "requests": len(records),
        "batches": kinds.count("observe"),
        "late labels": kinds.count("label"),
        "lost": 0,
        "applied twice": 0,
        "differences in the state": len(found),
    }


def save(name: str, found: object) -> None:
    """Put a finding into the file of results about the service."""
    saved = json.loads(SAVED.read_text()) if SAVED.exists() else {}
    SAVED.write_text(json.dumps({**saved, name: found}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=2.0, help="longest life, after the start")
    parser.add_argument("--workers", type=int, default=0, help="prediction workers of the server")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="put it into results/serve.json")
    arguments = vars(parser.parse_args())
    saves = arguments.pop("save")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = kill_and_compare(Path(folder), **arguments)
    if saves:
        save(f"kills, {arguments['workers']} prediction workers", found)
    print(", ".join(f"{name}: {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
