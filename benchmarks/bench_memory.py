"""How long the memory's operations take, beside a plain Python reservoir's and Avalanche's.

    python benchmarks/bench_memory.py [--turns 60] [--environment FOLDER]

Batches of 32 images of 32x32x3. Adding is timed in three stretches of the stream: while the memory
fills up (every sample is kept), just after (nearly every sample), and from ten times its capacity on (at
most one row in ten: a plain loop then has little left to do but to draw numbers, and no goal is
set). The plain reservoir keeps the same four fields of a row, draws with Python's `random`,
balances and checks nothing, and cannot be saved.

Avalanche stores floats that are ready for a network and we store bytes, so drawing is also timed up
to the floats. It has no operation for dropping the samples of a class, nor for putting some: they are
written with what it offers. A drop and a put are one class of ten, there and back.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Protocol

import torch
from avalanche_side import Avalanche, Missing, add_environment
from ratios import Finding, arguments, begin, compare, finish, head, now, show
from torch import Tensor

from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.models.inputs import to_input
from driftwise.types import Samples

BATCH = 32
CAPACITIES = (500, 5_000)
STRETCHES = {"filling": 0, "just full": 1, "10x seen": 10}
"""what has been seen when timing starts, in capacities"""
REPEATS = 7
"""in a turn: half a capacity of the smaller memory is then added, and its stretch begins anew"""
NUM_CLASSES = 10
FASTER_THAN_A_LOOP = 10.0
FASTER_THAN_AVALANCHE = 20.0


class Side(Protocol):
    """One memory, whoever keeps it."""

    def calls(self, *names: str) -> list[float]:
        """Carry out operations by name (`add`, `sample`, `drop`, `put`); the seconds of each."""
        ...


class Timed:
    """Operations that are methods of the object itself."""

    def calls(self, *names: str) -> list[float]:
        """Carry them out; the seconds each took."""
        seconds = []
        for name in names:
            call = getattr(self, name)
            start = now()
            call()
            seconds.append(now() - start)
        return seconds


class Ours(Timed):
    """The package's memory, after `seen` samples."""

    def __init__(self, capacity: int, seen: int, policy: str) -> None:
        self.memory = ReplayBuffer(capacity, policy=POLICIES[policy](), seed=0)
        chunk = rows_of(min(2_500, capacity))
        for _ in range(seen // len(chunk)):
            self.memory.offer(chunk)
        self.batch = rows_of(BATCH)
        self.label = 0
        self.dropped = self.memory.samples_of(self.label)

    def add(self) -> None:
        """A batch."""
        self.memory.offer(self.batch)

    def sample(self) -> None:
        """A batch with its labels, ids and concepts."""
        self.memory.sample(BATCH)

    def sample_floats(self) -> None:
        """A batch, as a network wants it."""
        to_input(self.memory.sample(BATCH).samples.images)

    def drop(self) -> None:
        """One class."""
        self.memory.drop(self.label)

    def put(self) -> None:
        """The same samples again."""
        self.memory.put(self.dropped)


class Plain(Timed):
    """Algorithm R, sample by sample."""

    def __init__(self, capacity: int, seen: int) -> None:
        self.capacity = capacity
        self.seen = seen
        self.images = torch.empty(capacity, 32, 32, 3, dtype=torch.uint8)
        self.images[:seen] = (
            0  # memory is only lent at the first touch: what was filled was touched
        )
        self.labels, self.ids, self.concepts = torch.zeros(3, capacity, dtype=torch.int64)
        self.labels[:] = torch.arange(capacity) % NUM_CLASSES
        self.free: list[int] = []
        self.random = random.Random(0)
        self.batch = rows_of(BATCH)
        self.refill = rows_of(capacity // NUM_CLASSES)

    def add(self) -> None:
        """Keep each sample with probability capacity / seen."""
        rows = self.batch
        for i in range(len(rows)):
            slot = self.seen
            if slot >= self.capacity:
                slot = self.random.randint(0, self.seen)
            self.seen += 1
            if slot < self.capacity:
                self.write(slot, rows, i)

    def write(self, slot: int, rows: Samples, i: int) -> None:
        """One sample."""
        self.images[slot] = rows.images[i]
        self.labels[slot] = rows.labels[i]
        self.ids[slot] = rows.ids[i]
        self.concepts[slot] = rows.concepts[i]

    def sample(self) -> tuple[Tensor, ...]:
        """Shuffle all samples, take the first."""
        picks = torch.randperm(min(self.seen, self.capacity))[:BATCH]
        return self.images[picks], self.labels[picks], self.ids[picks], self.concepts[picks]

    def drop(self) -> None:
        """Note which slots hold the class."""
        self.free = [slot for slot in range(self.capacity) if self.labels[slot] == 0]
        self.labels[self.free] = -1

    def put(self) -> None:
        """Fill what was freed."""
        for i, slot in enumerate(self.free):
            self.write(slot, self.refill, i)
            self.labels[slot] = 0


def rows_of(count: int) -> Samples:
    generator = torch.Generator().manual_seed(count)
    return Samples(
        images=torch.randint(256, (count, 32, 32, 3), dtype=torch.uint8, generator=generator),
        labels=torch.arange(count) % NUM_CLASSES,
        ids=torch.arange(count),
        concepts=torch.zeros(count, dtype=torch.int64),
    )


def in_turns(
    sides: dict[str, Side], turns: int, names: dict[str, Sequence[str]]
) -> dict[str, list[list[float]]]:
    """For each side the mean seconds of its operations in each turn.

    A turn repeats them, and leaves out the first time: it finds everything where another side left
    it, and whoever has the shortest turn would pay most for that.
    """
    times: dict[str, list[list[float]]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            operations = names[name]
            seconds = side.calls(*(list(operations) * REPEATS))
            by_operation = [
                seconds[place :: len(operations)][1:] for place in range(len(operations))
            ]
            times[name].append([statistics.fmean(each) for each in by_operation])
    return times


class Bench:
    """All sides at work, and what was found."""

    def __init__(self, avalanche: Avalanche | None, turns: int) -> None:
        self.avalanche = avalanche
        self.turns = turns
        self.findings: list[Finding] = []

    def sides(self, capacity: int, seen: int, policies: Sequence[str]) -> dict[str, Side]:
        """Everybody after `seen` samples."""
        sides: dict[str, Side] = {policy: Ours(capacity, seen, policy) for policy in policies}
        sides["a plain loop"] = Plain(capacity, seen)
        if self.avalanche is not None:
            self.avalanche.open(
                "memory", capacity=capacity, seen=seen, batch_size=BATCH, shape=(3, 32, 32)
            )
            sides[f"Avalanche {self.avalanche.version}"] = self.avalanche
        return sides

    def close(self) -> None:
        """Avalanche is opened once at a time."""
        if self.avalanche is not None:
            self.avalanche.close()

    def book(
        self,
        group: str,
        case: str,
        ours: Sequence[float],
        others: dict[str, Sequence[float]],
        goals: dict[str, float],
    ) -> None:
        """One line for each of the others."""
        for name, theirs in others.items():
            goal = goals.get(name.split()[0])
            self.findings.append(
                compare(group, case, name, ours=ours, other=theirs, measure="speedup", goal=goal)
            )
            show(self.findings[-1])

    def add(self, capacity: int, stretch: str) -> None:
        """Adding, by policy; the stretch begins anew before it is left."""
        seen = capacity * STRETCHES[stretch]
        seconds: dict[str, list[float]] = {}
        while len(next(iter(seconds.values()), [])) < self.turns:
            sides = self.sides(capacity, seen, list(POLICIES))
            add: dict[str, Sequence[str]] = dict.fromkeys(sides, ("add",))
            for name, times in in_turns(sides, 1, add).items():
                seconds.setdefault(name, []).extend(time for (time,) in times)
            self.close()
        ours = {policy: seconds.pop(policy) for policy in POLICIES}
        for policy, mine in ours.items():
            # The balanced policy looks for the largest class sample by sample: it is only reported.
            is_meant = policy == "reservoir" and stretch != "10x seen"
            goals = {"a": FASTER_THAN_A_LOOP} if is_meant else {}
            self.book("add", f"{policy}, {stretch}, {capacity:,}", mine, dict(seconds), goals)

    def sample(self, capacity: int) -> None:
        """Drawing whole samples, and up to floats."""
        ours = {"whole samples": "sample", "up to floats": "sample_floats"}
        sides = self.sides(capacity, capacity, ["reservoir"])
        memory = sides.pop("reservoir")
        sides.update(dict.fromkeys(ours, memory))
        names: dict[str, Sequence[str]] = {name: (ours.get(name, "sample"),) for name in sides}
        times = in_turns(sides, self.turns, names)
        self.close()
        seconds = {name: [time for (time,) in theirs] for name, theirs in times.items()}
        others = {name: theirs for name, theirs in seconds.items() if name not in ours}
        for what in ours:
            # The goal is about the draw; turning bytes into floats is the step's business.
            goals = {} if what == "up to floats" else {"Avalanche": FASTER_THAN_AVALANCHE}
            beside: dict[str, Sequence[float]] = dict(others)
            if what == "up to floats":
                del beside["a plain loop"]  # it gives bytes
            self.book("sample", f"{what}, {capacity:,}", seconds[what], beside, goals)

    def drop_and_put(self, capacity: int) -> None:
        """One class of ten, there and back."""
        sides = self.sides(capacity, capacity, ["reservoir"])
        names: dict[str, Sequence[str]] = dict.fromkeys(sides, ("drop", "put"))
        times = in_turns(sides, max(5, self.turns // 4), names)
        self.close()
        for place, what in enumerate(("drop", "put")):
            of_each = {name: [both[place] for both in theirs] for name, theirs in times.items()}
            ours = of_each.pop("reservoir")
            self.book(what, f"a class, {capacity:,}", ours, dict(of_each), {})


def measure(context: Bench) -> None:
    head("other")
    for capacity in CAPACITIES:
        for stretch in STRETCHES:
            context.add(capacity, stretch)
    for capacity in CAPACITIES:
        context.sample(capacity)
        context.drop_and_put(capacity)


def main() -> None:
    parser = arguments(__doc__, turns=60)
    add_environment(parser)
    options = parser.parse_args()
    begin(options)
    try:
        with Avalanche(options.environment, options) as avalanche:
            context = Bench(avalanche, options.turns)
            measure(context)
    except Missing as missing:
        print(f"without Avalanche, which cannot be had here: {missing}")
        context = Bench(None, options.turns)
        measure(context)
    finish("memory", context.findings, options)


if __name__ == "__main__":
    main()
