"""One point of `bench_growth.py`, in a process of its own: what is done at one size, and its time.

    python benchmarks/growth_cases.py memory 1000000

Prints one line of JSON. The time is the median of turns; where a case is compared with the same at
100 samples, both take turns in this process, and the ratio is the median of the turns' ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import bench_index
import torch
from step_cases import make_images
from torch import nn

from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.detect.class_tests import ClassTests, ComparisonOptions
from driftwise.detect.two_sample import all_three, ks_on, merging
from driftwise.learner import Learner, TrainSettings
from driftwise.memory import ReplayBuffer, Reservoir
from driftwise.methods import ER
from driftwise.models import MLP
from driftwise.report.index_page import write_index
from driftwise.report.sweeps import read_sweep
from driftwise.runs import checkpoint as state_file
from driftwise.types import Encoding, Samples

SMALLEST = 100
"""samples of the memory that others are compared with"""
SHAPE = (32, 32, 3)
BATCH = 32
CHUNK = 5_000
NUM_CLASSES = 10
FEATURES = 64

Point = dict[str, float]


def median_of(work: Callable[[], object], turns: int) -> Point:
    """Processor seconds: as many by the clock on a machine that is not busy."""
    seconds = []
    for _ in range(turns):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return {"seconds": statistics.median(seconds)}


# The memory, and the step that uses it


def rows_of(count: int, start: int = 0, label: int | None = None) -> Samples:
    ids = torch.arange(start, start + count)
    draw = torch.Generator().manual_seed(start)
    return Samples(
        images=torch.randint(256, (count, *SHAPE), dtype=torch.uint8, generator=draw),
        labels=ids % NUM_CLASSES if label is None else torch.full_like(ids, label),
        ids=ids,
        concepts=torch.zeros_like(ids),
    )


def filled(capacity: int) -> ReplayBuffer:
    """A memory that is just full: nearly every sample that comes is written."""
    memory = ReplayBuffer(capacity, policy=Reservoir(), seed=0)
    for start in range(0, capacity, CHUNK):
        memory.offer(rows_of(min(CHUNK, capacity - start), start))
    return memory


def against_the_smallest(
    memories: Sequence[ReplayBuffer], work: Mapping[str, Callable[[], object]], turns: int = 400
) -> Point:
    """Work on the smallest memory and on the one in question, in turns.

    They forget before each turn how much they have seen: a small one would soon have seen a hundred
    times its capacity and write next to nothing, while a large one goes on writing.
    """
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(-20, turns):
        for memory in memories:
            memory._seen = memory.capacity
        for name in ("small", "large") if turn % 2 else ("large", "small"):
            call = work[name]
            start = time.process_time()
            call()
            if turn >= 0:
                seconds[name].append(time.process_time() - start)
    ratios = [large / few for large, few in zip(seconds["large"], seconds["small"], strict=True)]
    return {
        "seconds": statistics.median(seconds["large"]),
        "ratio": statistics.median(ratios),
    }


def memory_point(capacity: int) -> Point:
    """Adding a batch and drawing one."""
    small, large, batch = filled(SMALLEST), filled(capacity), rows_of(BATCH)

    def work(memory: ReplayBuffer) -> Callable[[], None]:
        def add_and_draw() -> None:
            memory.offer(batch)
            memory.sample(BATCH)

        return add_and_draw

    return against_the_smallest([small, large], {"small": work(small), "large": work(large)})


def make_network(_: int) -> nn.Module:
    height, width, channels = SHAPE
    return MLP(input_shape=(channels, height, width), num_classes=NUM_CLASSES)


def step_point(capacity: int) -> Point:
    """A whole training step of a small MLP."""

    def learner(capacity: int) -> Learner:
        return Learner(
            make_network,
            ER(),
            buffer=filled(capacity),
            optimiser=lambda network: torch.optim.SGD(network.parameters(), lr=0.01),
            settings=TrainSettings(minibatch_size=BATCH),
            seed=0,
        )

    small, large, batch = learner(SMALLEST), learner(capacity), rows_of(BATCH)
    work = {"small": lambda: small.observe(batch), "large": lambda: large.observe(batch)}
    buffers = [each.buffer for each in (small, large) if isinstance(each.buffer, ReplayBuffer)]
    return against_the_smallest(buffers, work)


def whole_point(capacity: int) -> Point:
    """A memory's life: filled, drawn from, a class dropped and put anew, saved and restored."""
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        seconds[name] = time.perf_counter() - start

    def put() -> None:
        while memory.free:
            memory.put(rows_of(min(CHUNK, memory.free), label=0))

    def draw() -> None:
        for _ in range(1000):
            memory.sample(BATCH)

    start = time.perf_counter()
    memory = filled(capacity)
    seconds["fill"] = time.perf_counter() - start
    timed("draw 1,000 batches", draw)
    timed("drop a class", lambda: memory.drop(0))
    timed("put a class", put)
    other = ReplayBuffer(capacity, policy=Reservoir(), seed=1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint"
        timed("save", lambda: state_file.write(file, memory.state_dict(), format=4))
        expected = memory.sample(BATCH)
        timed("restore", lambda: other.load_state_dict(state_file.read(file, format=4)))
    found = other.sample(BATCH)
    if not torch.equal(found.samples.images, expected.samples.images):
        raise SystemExit("the restored memory draws other samples")
    return {"seconds": sum(seconds.values()), **seconds}


# Everything else


def evaluation_point(tasks: int) -> Point:
    """All tests after the last of so many tasks, two classes each, 50 tests a class."""
    dataset = make_images((28, 28, 1), [300] * (2 * tasks))
    config = RunConfig(
        adaptation="vanilla",
        detector="never",
        tasks=tuple((2 * task, 2 * task + 1) for task in range(tasks)),
        num_drifts=0,
        backbone="mlp",
        buffer_size=100,
        device="cpu",
    )
    assembly = assemble(resolve(config), dataset)
    last = assembly.stream.task(tasks)

    def evaluate() -> None:
        with assembly.ledger.phase("evaluate"):
            assembly.evaluate(last)

    return median_of(evaluate, turns=7)


def check(detector: str, classes: int, samples: int) -> Point:
    """All classes, so many reference and so many current samples of each, a tenth drifted."""
    draw = torch.Generator().manual_seed(0)

    def encoding(shift: float) -> Encoding:
        features = torch.randn(samples, FEATURES, generator=draw) + shift
        return Encoding(logits=features[:, :NUM_CLASSES], features=features)

    sides = {label: (encoding(0.0), encoding(0.5 * (label % 10 == 0))) for label in range(classes)}
    if detector == "ks":
        tests = ClassTests([ks_on("entropy")], ComparisonOptions())
    else:
        tests = ClassTests(all_three(1000), ComparisonOptions(), merge=merging("cauchy"))
    return median_of(lambda: tests.verdicts(2, sides), turns=3)


def report_point(runs: int) -> Point:
    """Read, tabulate and write the index page of so many runs."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        file = bench_index.fill(out, "table1-smoke", num=runs, classes=10, tasks=5)
        return median_of(lambda: write_index(out, [read_sweep(file)]), turns=1)


CASES: dict[str, Callable[[int], Point]] = {
    "memory": memory_point,
    "step": step_point,
    "whole": whole_point,
    "evaluation": evaluation_point,
    "ks by classes": lambda classes: check("ks", classes, 50),
    "ks by samples": lambda samples: check("ks", NUM_CLASSES, samples),
    "combined by classes": lambda classes: check("combined", classes, 50),
    "combined by samples": lambda samples: check("combined", NUM_CLASSES, samples),
    "report": report_point,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("size", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(CASES[given.case](given.size)))


if __name__ == "__main__":
    main()
