"""Single predictions over HTTP while the learner learns, beside a bare FastAPI handler.

    apt install wrk
    python benchmarks/bench_serve.py                # an MLP and a ResNet-18, with and without learning
    python benchmarks/bench_serve.py --workers      # two prediction workers beside one, nothing learned

`--save` puts what was measured into results/serve.json, and `--page` writes it into the how-to guide.

Both servers hold the same network in one process, on one thread of torch, and learn from the same
batches in a thread of their own. The bare one reads JSON into a tensor and answers the class and the
probabilities: no checks of shape or size, no roles, no counters. They are loaded in turns, and the
ratio of each pair is taken; the median of the pairs is printed. "Learning" is the processor time of
the thread that learns: a batch of a ResNet-18 takes longer than a measurement.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SAVED, PAGE = ROOT / "results" / "serve.json", ROOT / "docs" / "how-to" / "serve.md"
BEGIN, END = "<!-- bench_serve: begin -->", "<!-- bench_serve: end -->"
NAMES = {"mlp": "MLP", "resnet18": "ResNet-18"}
CASES = {"mlp": (8, 8, 1), "resnet18": (32, 32, 3)}
BATCH, CLASSES = 20, 10


def samples(network: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labelled images of noise around a brightness of their class."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, CLASSES, BATCH)
    noise = draw.integers(0, 60, (BATCH, *CASES[network]))
    return (noise + 18 * labels[:, None, None, None]).astype(np.uint8), labels


def learner(network: str, **where: Any) -> Any:
    import torch

    from driftwise.live import LiveLearner
    from driftwise.serve.service import no_labels_yet

    torch.set_num_threads(1)
    return LiveLearner(network, labels=no_labels_yet, **where)


def serve(kind: str, network: str, learns: bool) -> None:
    """A server process; prints its port. /batches: batches learned, and seconds of that thread."""
    import socket

    import torch
    import uvicorn

    torch.set_num_threads(1)
    learned = [0]
    http: Any = "auto"
    learning = threading.main_thread()
    if kind == "driftwise":
        from driftwise.serve.api import make_app
        from driftwise.serve.connections import Connection
        from driftwise.serve.service import Service
        from driftwise.serve.settings import ServeSettings

        http = Connection

        def make(path: Path) -> Any:
            return learner(network, folder=path)

        settings = ServeSettings(rate=1e9, save_seconds=1e6)
        service = Service(Path(tempfile.mkdtemp()), make, make, settings)
        learning = service._thread

        def learn(number: int) -> None:
            x, y = samples(network, number)
            service.observe(x, y.tolist()).result()

        learn(0)
        app: Any = make_app(service)
    else:
        from fastapi import FastAPI

        live = learner(network)

        def learn(number: int) -> None:
            live.observe(*samples(network, number))

        learn(0)
        model = copy.deepcopy(live._snapshots.newest).eval()

        app = FastAPI()

        def predict(body: dict[str, Any]) -> dict[str, Any]:
            with torch.no_grad():
                x = torch.tensor(body["x"], dtype=torch.uint8).permute(0, 3, 1, 2).float() / 255
                probabilities = model(x).softmax(dim=1)
            best = probabilities.max(dim=1)
            return {
                "predicted": best.indices.tolist(),
                "confidence": best.values.tolist(),
                "probabilities": probabilities.tolist(),
            }

        app.post("/v1/predict")(predict)

    def work() -> None:
        number = 1
        while True:
            learn(number)
            number += 1
            learned[0] = number

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == "/batches":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            used = time.clock_gettime(time.pthread_getcpuclockid(learning.ident or 0))
            body = json.dumps([learned[0], used]).encode()
            await send({"type": "http.response.body", "body": body})
        else:
            await app(scope, receive, send)

    if learns:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        learning = thread if kind == "bare" else learning
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # or answers wait for 40 ms
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        counting, http=http, log_level="error", lifespan="off", access_log=False
    )
    uvicorn.Server(config).run(sockets=[listener])


@dataclass
class Load:
    """One measurement."""

    per_second: float
    p50: float
    p99: float
    """ms"""
    batches: float
    """learned in a second"""
    learning: float
    """seconds of processor time of the learning thread, a second"""
    generator: float
    """seconds of processor time of the load generator, a second"""


def load(port: int, script: Path, seconds: float, connections: int) -> Load:
    url = f"http://127.0.0.1:{port}"

    def batches() -> np.ndarray:
        try:
            with urllib.request.urlopen(f"{url}/batches") as answer:
                return np.array(json.loads(answer.read()))
        except urllib.error.HTTPError:
            return np.zeros(2)  # the command itself: it does not learn here

    before, first, began = resource.getrusage(resource.RUSAGE_CHILDREN), batches(), time.monotonic()
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script)]
    text = subprocess.run(
        [*command, f"{url}/v1/predict"], capture_output=True, text=True, check=True
    ).stdout
    took, last = time.monotonic() - began, batches()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = json.loads(text.splitlines()[-1])
    assert found["errors"] == 0, found
    return Load(
        per_second=found["requests"] / found["seconds"],
        p50=found["p50"],
        p99=found["p99"],
        batches=(last - first)[0] / took,
        learning=(last - first)[1] / took,
        generator=used / took,
    )


SCRIPT = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.body = '{body}'
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format('{{"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "errors": %d}}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3, errors.status + errors.read + errors.write + errors.timeout))
end
"""


def compare(
    network: str, learns: bool, *, pairs: int, seconds: float, connections: int, saves: bool
) -> None:
    flags = [network, *(["--learns"] if learns else [])]
    servers = {
        kind: subprocess.Popen(
            [sys.executable, __file__, "--serve", kind, *flags],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for kind in ("driftwise", "bare")
    }
    found: dict[str, list[Load]] = {kind: [] for kind in servers}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "post.lua"
        body = json.dumps({"x": samples(network)[0][:1].tolist()})
        script.write_text(SCRIPT.format(body=body))
        ports = {kind: int(each.stdout.readline()) for kind, each in servers.items() if each.stdout}
        try:
            for kind, each in servers.items():
                pause(servers, kind)
                time.sleep(1)
                load(ports[kind], script, 2, connections)
                del each
            for _ in range(pairs):
                for kind in servers:
                    pause(servers, kind)
                    found[kind].append(load(ports[kind], script, seconds, connections))
        finally:
            for each in servers.values():
                each.kill()
                each.wait()
    name = f"{network}{', learning' if learns else ''}"
    for kind, loads in found.items():
        middle = {
            field: statistics.median(getattr(each, field) for each in loads)
            for field in ("per_second", "p50", "p99", "batches", "learning", "generator")
        }
        print(
            f"{name}: {kind}: {middle['per_second']:.0f} a second, p50 {middle['p50']:.1f} ms, "
            f"p99 {middle['p99']:.1f} ms, {middle['batches']:.1f} batches learned a second, "
            f"learning {middle['learning'] * learns:.2f} of a core; "
            f"load generator {middle['generator']:.2f} of a core",
            flush=True,
        )
    both = list(zip(found["driftwise"], found["bare"], strict=True))
    throughput = statistics.median(mine.per_second / theirs.per_second for mine, theirs in both)
    p99 = statistics.median(mine.p99 / theirs.p99 for mine, theirs in both)
    print(f"{name}: throughput {throughput:.2f} of the bare handler's, p99 {p99:.2f}", flush=True)
    if saves:
        save(name, found)


def save(name: str, found: Mapping[Any, Sequence[Load]]) -> None:
    """Put the loads of each server into the file of results."""
    saved = json.loads(SAVED.read_text()) if SAVED.exists() else {}
    saved[name] = {
        str(kind): [
            {field: round(value, 4) for field, value in asdict(each).items()} for each in loads
        ]
        for kind, loads in found.items()
    }
    SAVED.write_text(json.dumps(saved, indent=1) + "\n")


def on_page(saved: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> str:
    """The part of the guide that shows what was measured."""

    def middle(loads: Sequence[Mapping[str, float]], field: str) -> float:
        return statistics.median(each[field] for each in loads)

    def ratios(mine: Any, other: Any, field: str) -> list[float]:
        return sorted(a[field] / b[field] for a, b in zip(mine, other, strict=True))

    lines = [
        "| medians of pairs in turns: service, bare | predictions a second | p99, ms "
        "| learning, of a core | ratios of throughput and p99 (medians of pairs) |",
        "|---|---|---|---|---|",
    ]
    goals, pairs_of_workers, generator = [], [], 0.0
    for key, found in saved.items():
        network, _, rest = key.partition(", ")
        if network not in NAMES:
            continue  # another benchmark's
        generator = max([generator, *(middle(each, "generator") for each in found.values())])
        if "bare" in found:
            mine, bare = found["driftwise"], found["bare"]
            throughput, p99 = (
                statistics.median(ratios(mine, bare, each)) for each in ("per_second", "p99")
            )
            learning = ", ".join(f"{middle(each, 'learning'):.2f}" for each in (mine, bare))
            lines.append(
                f"| {NAMES[network]}, {rest or 'nothing learned'} ({len(mine)} pairs) "
                f"| {middle(mine, 'per_second'):.0f}, {middle(bare, 'per_second'):.0f} "
                f"| {middle(mine, 'p99'):.1f}, {middle(bare, 'p99'):.1f} "
                f"| {learning if rest else ''} | {throughput:.2f}, {p99:.2f} |"
            )
            if rest:
                verdict = "reached" if throughput >= 0.9 and p99 <= 1.5 else "missed"
                goals.append(f"{verdict} with the {NAMES[network]}")
        else:
            times = ratios(found["2"], found["1"], "per_second")
            verdict = "reached" if statistics.median(times) >= 1.6 else "missed"
            pairs_of_workers.append(
                f"{statistics.median(times):.2f} times as many with the {NAMES[network]} "
                f"({times[0]:.2f} to {times[-1]:.2f}, {len(times)} pairs; goal of 1.6: {verdict})"
            )
    text = [
        "",
        "The goal beside learning (at least 0.9 of the throughput, at most 1.5 times the p99) is "
        f"{' and '.join(goals)}.",
        "Two prediction workers answered, beside one, with eight connections and nothing learned:",
        f"{', and '.join(pairs_of_workers)}.",
        f"The load generator used {generator:.2f} of a core at most.",
    ]
    return "\n".join([*lines, *text])


def write_page() -> None:
    before, rest = PAGE.read_text().split(BEGIN)
    shown = on_page(json.loads(SAVED.read_text()))
    PAGE.write_text(f"{before}{BEGIN}\n\n{shown}\n\n{END}{rest.partition(END)[2]}")


def compare_workers(
    network: str, *, pairs: int, seconds: float, connections: int, saves: bool
) -> None:
    """Two prediction workers beside one, in turns, nothing learned."""
    found: dict[int, list[Load]] = {1: [], 2: []}
    folder = tempfile.TemporaryDirectory()
    servers: dict[str, subprocess.Popen[str]] = {}
    urls = {}
    for workers in found:
        command = [sys.executable, __file__, "--serve", "workers", network]
        servers[str(workers)] = subprocess.Popen(
            [*command, "--count", str(workers)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        output = servers[str(workers)].stdout
        assert output is not None
        urls[workers] = int(output.readline())
    script = Path(folder.name) / "post.lua"
    script.write_text(SCRIPT.format(body=json.dumps({"x": samples(network)[0][:1].tolist()})))
    try:
        for port in urls.values():
            load(port, script, 2, connections)
        for _ in range(pairs):
            for workers, port in urls.items():
                found[workers].append(load(port, script, seconds, connections))
    finally:
        for each in servers.values():
            each.terminate()
            each.wait(30)
        folder.cleanup()
    for workers, loads in found.items():
        rate = statistics.median(each.per_second for each in loads)
        p99 = statistics.median(each.p99 for each in loads)
        generator = statistics.median(each.generator for each in loads)
        print(
            f"{network}: {workers} workers: {rate:.0f} a second, p99 {p99:.1f} ms; load generator "
            f"{generator:.2f} of a core"
        )
    both = zip(found[2], found[1], strict=True)
    ratios = sorted(two.per_second / one.per_second for two, one in both)
    print(
        f"{network}: two workers {statistics.median(ratios):.2f} of one "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f})",
        flush=True,
    )
    if saves:
        save(f"{network}, prediction workers", found)


def serve_workers(network: str, count: int) -> None:
    """The service with prediction workers, after one batch."""
    import torch

    from driftwise.serve.server import Address, run_server
    from driftwise.serve.service import Service
    from driftwise.serve.settings import ServeSettings

    torch.set_num_threads(1)

    def make(path: Path) -> Any:
        return learner(network, folder=path)

    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder), make, make, ServeSettings(rate=1e9))
        x, y = samples(network)
        service.observe(x, y.tolist()).result()

        def started(url: str) -> None:
            print(url.rpartition(":")[2], flush=True)

        run_server(service, Address(port=0), workers=count, started=started)


def pause(servers: dict[str, subprocess.Popen[str]], but: str) -> None:
    """Stop all servers but one, so that only one of them learns."""
    import signal

    for kind, each in servers.items():
        each.send_signal(signal.SIGCONT if kind == but else signal.SIGSTOP)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(CASES))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--workers", action="store_true", help="two workers beside one")
    parser.add_argument("--save", action="store_true", help="put it into results/serve.json")
    parser.add_argument("--page", action="store_true", help="write what is saved into the guide")
    parser.add_argument("--learning", action="store_true", help="only while the learner learns")
    parser.add_argument("--serve", choices=["driftwise", "bare", "workers"])
    parser.add_argument("--learns", action="store_true")
    parser.add_argument("--count", type=int)
    arguments = parser.parse_args()
    if arguments.page:
        write_page()
        return
    if arguments.serve == "workers":
        serve_workers(arguments.networks[0], arguments.count)
        return
    if arguments.serve:
        serve(arguments.serve, arguments.networks[0], arguments.learns)
        return
    measured = {name: getattr(arguments, name) for name in ("pairs", "seconds", "connections")}
    measured["saves"] = arguments.save
    for network in arguments.networks:
        if arguments.workers:
            compare_workers(network, **measured)
            continue
        for learns in (True,) if arguments.learning else (False, True):
            compare(network, learns, **measured)


if __name__ == "__main__":
    main()
