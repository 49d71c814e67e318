"""What several processes cost: a step with one replay buffer against plain DDP without a buffer.

    python benchmarks/bench_distributed.py [--turns 12] [--only mlp resnet resnet64 scaling] [--save]

Both sides train the same network with the same SGD, in the same processes, and take turns. Of a step
each process forwards the same number of samples on both sides: ours half from the stream and half
drawn from the buffer of all processes, DDP all from a batch in memory. Both sides convert bytes to
floats. Ratios are medians of the turns' own ratios, without turns in which other programs used more
than a tenth of the machine (unless there are few others), by wall time (a process that waits for another
uses no processor time) and by processor time (for a machine that does other things, too).

`buffer` is the fraction of our step that is spent in `offer` and `sample`, messages included: of its wall
time, in which a process also waits there for one that is behind, and of its processor time; medians
of the turns, too.
`scaling` is samples a second over 1, 2 and 4 processes of one thread each; beyond the number of cores
it can only fall. `--save` puts the cases into results/distributed.json; `--figure` draws what is there.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ratios import around_the_median, calm, machine_seconds, processor
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from driftwise.distributed import Group, joined
from driftwise.learner import Learner, TrainSettings
from driftwise.memory import ReplayBuffer, ReplicatedBuffer, ShardedBuffer
from driftwise.methods import ER
from driftwise.models import MLP, ResNet18, seeded
from driftwise.models.inputs import to_input
from driftwise.types import Samples

ROOT = Path(__file__).resolve().parents[1]
SAVED = ROOT / "results" / "distributed.json"
FIGURE = ROOT / "docs" / "images" / "distributed-scaling.png"
CASES: dict[str, tuple[type[nn.Module], dict[str, Any], int, int]] = {
    "mlp": (MLP, {}, 64, 60),
    "resnet": (ResNet18, {"width": 20}, 32, 3),
    "resnet64": (ResNet18, {}, 32, 1),
}
"""network, its options, samples of a process in a step, steps in a turn"""
CAPACITY = 500


class Clock:
    """Wall and processor seconds spent in some calls."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.processor = 0.0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, timed."""

        def timed(*given: Any, **named: Any) -> Any:
            start, cpu = time.perf_counter(), time.process_time()
            try:
                return call(*given, **named)
            finally:
                self.seconds += time.perf_counter() - start
                self.processor += time.process_time() - cpu

        return timed


def samples_of(count: int, start: int) -> Samples:
    made = torch.Generator().manual_seed(start)
    return Samples(
        images=torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8, generator=made),
        labels=torch.randint(0, 10, (count,), generator=made),
        ids=torch.arange(start, start + count),
        concepts=torch.zeros(count, dtype=torch.int64),
    )


def work(case: str, layout: str, turns: int) -> dict[str, Any] | None:
    """What each process does; the findings in process 0."""
    kind, options, per_process, steps = CASES[case]
    make = seeded(kind, input_shape=(3, 32, 32), num_classes=10, seed=0, **options)
    with joined() as group:
        from_each = group.size * per_process // 2
        kinds = {"sharded": ShardedBuffer, "replicated": ReplicatedBuffer}
        buffer: Any = ReplayBuffer(CAPACITY) if group.size == 1 else kinds[layout](CAPACITY)
        settings = TrainSettings(minibatch_size=from_each)
        learner = Learner(make, ER(), buffer=buffer, lr=0.03, settings=settings)
        batches = [samples_of(from_each, start * from_each) for start in range(8)]
        learner.begin_task(range(10))
        for number in range(CAPACITY // from_each + 2):
            learner.observe(batches[number % 8])
        clock = Clock()
        buffer.offer, buffer.sample = clock.around(buffer.offer), clock.around(buffer.sample)
        plain = make(0).train()
        wrapped = DistributedDataParallel(plain) if group.size > 1 else plain
        optimiser = torch.optim.SGD(plain.parameters(), lr=0.03)
        whole = [samples_of(per_process, 10_000 + 99 * group.rank + each) for each in range(8)]

        def ours(number: int) -> None:
            learner.observe(batches[number % 8])

        def ddp(number: int) -> None:
            batch = whole[number % 8]
            loss = cross_entropy(wrapped(to_input(batch.images)), batch.labels)
            loss.item()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

        taken = take_turns({"ours": ours, "ddp": ddp}, group, turns, steps, clock)
    if group.rank:
        return None
    used = calm(taken, at_least=turns // 2 + 1)
    pairs = [(turn["ours"], turn["ddp"]) for turn in used]
    wall = around_the_median([mine[0] / theirs[0] - 1 for mine, theirs in pairs])
    cpu = around_the_median([mine[1] / theirs[1] - 1 for mine, theirs in pairs])
    part = around_the_median([mine[2] / mine[0] for mine, _ in pairs])
    part_cpu = around_the_median([mine[3] / mine[1] for mine, _ in pairs])
    return {
        "turns": len(used),
        "left_out": len(taken) - len(used),
        "others": round(statistics.mean(turn["others"] for turn in used), 3),
        "slower_wall": [round(each, 4) for each in wall],
        "slower_processor": [round(each, 4) for each in cpu],
        "buffer": [round(each, 4) for each in part],
        "buffer_processor": [round(each, 4) for each in part_cpu],
        "samples_per_processor_second": round(
            per_process / statistics.median(mine[1] for mine, _ in pairs), 1
        ),
        "step_ms": round(1e3 * min(mine[0] for mine, _ in pairs), 2),
        "ddp_ms": round(1e3 * min(theirs[0] for _, theirs in pairs), 2),
        "samples_per_second": round(group.size * per_process / min(mine[0] for mine, _ in pairs)),
    }


def take_turns(
    sides: dict[str, Callable[[int], None]], group: Group, turns: int, steps: int, clock: Clock
) -> list[dict[str, Any]]:
    """Of a step, by turn and side: wall and processor seconds, and both in the buffer.

    `others`: which part of all cores other programs used. So many turns in which they used little are
    waited for, up to four times as many turns in all.
    """

    def now() -> tuple[float, ...]:
        return time.perf_counter(), time.process_time(), clock.seconds, clock.processor

    taken: list[dict[str, Any]] = []
    for turn in range(-1, 4 * turns):
        order = list(sides) if turn % 2 else list(reversed(sides))
        found: dict[str, Any] = {}
        start = machine_seconds() or 0.0, time.perf_counter(), time.process_time()
        for name in order:
            if group.size > 1:
                dist.barrier()
            before = now()
            for number in range(steps):
                sides[name](number)
            after = now()
            found[name] = tuple((b - a) / steps for a, b in zip(before, after, strict=True))
        end = machine_seconds() or 0.0, time.perf_counter(), time.process_time()
        spent = torch.tensor([[b - a for a, b in zip(start, end, strict=True)]])
        everybody = group.gather(spent.double())
        machine, wall = everybody[0, :2].tolist()
        own = float(everybody[:, 2].sum())
        found["others"] = max(0.0, machine - own) / wall / (os.cpu_count() or 1)
        if turn >= 0:  # the first one warms up
            taken.append(found)
        if len(calm(taken)) == turns:
            break
    return taken


def measure(case: str, processes: int, layout: str, turns: int) -> dict[str, Any]:
    """One case in so many processes of one thread each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(processes)}
    words = [sys.executable, __file__, "--work", case, "--layout", layout, "--turns", str(turns)]
    started = [
        subprocess.Popen(
            words,
            env={**os.environ, **place, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    answers = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit(f"{case} failed in {processes} processes")
    return {"case": case, "processes": processes, "layout": layout, **json.loads(answers[0])}


def draw() -> None:
    """Samples a second over processes, as saved: measured, and with a core for each process."""
    import matplotlib.pyplot as plt

    saved = json.loads(SAVED.read_text())["findings"]
    points = [each for each in saved if each["case"] == "resnet" and each["layout"] == "sharded"]
    points.sort(key=lambda each: int(each["processes"]))
    processes = [each["processes"] for each in points]
    ours = [each["processes"] * each["samples_per_processor_second"] for each in points]
    ddp = [
        each * (1 + point["slower_processor"][1]) for each, point in zip(ours, points, strict=True)
    ]
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.plot(processes, [ours[0] * each for each in processes], ":", color="0.6", label="linear")
    axes.plot(processes, ddp, "s--", color="tab:orange", label="plain DDP, no buffer")
    axes.plot(processes, ours, "o-", color="tab:blue", label="ER, one sharded buffer")
    axes.set(
        xticks=processes,
        xlabel="processes, one thread each",
        ylabel="samples per second of processor time,\nall processes",
        ylim=(0, None),
    )
    axes.legend(frameon=False)
    figure.savefig(FIGURE, dpi=150)


def save(found: dict[str, Any]) -> None:
    """In the place of an earlier finding of the same case."""
    kept = json.loads(SAVED.read_text())["findings"] if SAVED.exists() else []
    key = operator.itemgetter("case", "processes", "layout")
    everything = {key(each): each for each in (*kept, found)}
    about = {"processor": processor(), "torch": torch.__version__}
    saved = {"about": about, "findings": list(everything.values())}
    SAVED.write_text(json.dumps(saved, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--only", nargs="+", default=[*CASES, "scaling"])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--figure", action="store_true", help="draw what is saved, and no more")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--layout", default="sharded", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.figure:
        draw()
        return
    if options.work:
        torch.set_num_threads(1)
        found = work(options.work, options.layout, options.turns)
        print(json.dumps(found), flush=True)
        return
    points = [
        (case, 2, layout)
        for case in CASES
        for layout in ("sharded", "replicated")
        if case in options.only
    ]
    if "scaling" in options.only:
        points += [("resnet", 1, "sharded"), ("resnet", 4, "sharded")]
    for case, processes, layout in points:
        found = measure(case, processes, layout, options.turns)
        if options.save:
            save(found)
        low, middle, high = found["slower_wall"]
        print(
            f"{case:8} {processes} processes, {layout:10}: {100 * middle:+.1f} % "
            f"({100 * low:+.1f} to {100 * high:+.1f}) wall, "
            f"{100 * found['slower_processor'][1]:+.1f} % processor time against DDP, "
            f"buffer {100 * found['buffer'][1]:.1f} % of wall and "
            f"{100 * found['buffer_processor'][1]:.1f} % of processor time, "
            f"{found['samples_per_second']} samples/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
