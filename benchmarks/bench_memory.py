"""How long offering and sampling take, against the per-row reservoir one would otherwise write.

    python benchmarks/bench_memory.py

Medians over calls with 32 images of 32x32x3; the sides take turns, so that whatever else the
machine does meets all of them. Offering is timed in three stretches of the stream: while the memory
fills up (every row is kept), just after (nearly every row), and from ten times its capacity on (at
most one row in ten, so a plain loop has little left to do). The plain reservoir keeps the same four
fields of a row, draws with Python's `random`, balances and checks nothing, and cannot be saved.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from recollect.memory import POLICIES, Memory
from recollect.types import Rows

BATCH = 32
CAPACITIES = (500, 5_000, 100_000)
STRETCHES = {"filling": 0, "just full": 1, "10x seen": 10}
"""what has been seen when timing starts, in capacities"""
MIN_CALLS = 150
NUM_CLASSES = 10


class Offers(Protocol):
    """Both sides."""

    def offer(self, rows: Rows) -> None:
        """Take what is to be kept of a batch."""
        ...

    def sample(self, count: int) -> object:
        """Draw rows without replacement."""
        ...


class PlainReservoir:
    """Algorithm R, row by row."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.seen = 0
        self.images = torch.empty(capacity, 32, 32, 3, dtype=torch.uint8)
        self.labels, self.ids, self.concepts = torch.empty(3, capacity, dtype=torch.int64)
        self.random = random.Random(0)

    def offer(self, rows: Rows) -> None:
        """Keep each row with probability capacity / seen."""
        for i in range(len(rows)):
            slot = self.seen
            if slot >= self.capacity:
                slot = self.random.randint(0, self.seen)
            self.seen += 1
            if slot < self.capacity:
                self.images[slot] = rows.images[i]
                self.labels[slot] = rows.labels[i]
                self.ids[slot] = rows.ids[i]
                self.concepts[slot] = rows.concepts[i]

    def sample(self, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Shuffle all rows, take the first."""
        picks = torch.randperm(min(self.seen, self.capacity))[:count]
        return self.images[picks], self.labels[picks], self.ids[picks], self.concepts[picks]


def rows_of(count: int) -> Rows:
    generator = torch.Generator().manual_seed(count)
    return Rows(
        images=torch.randint(256, (count, 32, 32, 3), dtype=torch.uint8, generator=generator),
        labels=torch.randint(NUM_CLASSES, (count,), generator=generator),
        ids=torch.arange(count),
        concepts=torch.zeros(count, dtype=torch.int64),
    )


def sides(capacity: int, seen: int) -> list[Offers]:
    """The plain reservoir and one memory per policy, as they are after `seen` rows."""
    plain = PlainReservoir(capacity)
    plain.seen = seen
    plain.images[:seen] = 0  # memory is only lent at the first touch: what was filled was touched
    memories = [Memory(capacity, policy=make(), seed=0) for make in POLICIES.values()]
    chunk = rows_of(min(2_500, capacity))
    for memory in memories:
        for _ in range(seen // len(chunk)):
            memory.offer(chunk)
    return [plain, *memories]


def take_turns(
    parties: list[Offers], call: Callable[[Offers], object], turns: int
) -> list[list[float]]:
    """Microseconds of every call, per party."""
    times: list[list[float]] = [[] for _ in parties]
    for _ in range(turns):
        for party, own in zip(parties, times, strict=True):
            start = time.perf_counter()
            call(party)
            own.append((time.perf_counter() - start) * 1e6)
    return times


def offer_times(capacity: int, seen: int, batch: Rows) -> list[list[float]]:
    """Repeated from the start of the stretch before it is left: half a capacity of rows."""
    turns = min(MIN_CALLS, capacity // (2 * BATCH))
    times: list[list[float]] = [[], [], []]
    while len(times[0]) < MIN_CALLS:
        for own, more in zip(
            times,
            take_turns(sides(capacity, seen), lambda side: side.offer(batch), turns),
            strict=True,
        ):
            own.extend(more)
    return times


def print_line(what: str, capacity: int, times: list[list[float]]) -> None:
    plain, *ours = (statistics.median(own) for own in times)
    columns = "".join(f"{own:12.1f}{plain / own:8.1f}x" for own in ours)
    print(f"{what:16}{capacity:>9,}{plain:10.1f}{columns}", flush=True)


def main() -> None:
    torch.set_num_threads(
        1
    )  # batches this small gain nothing from a second, and wait if it is taken
    batch = rows_of(BATCH)
    heads = "".join(f"{name:>12}{'faster':>9}" for name in POLICIES)
    print(f"{'median us':16}{'capacity':>9}{'plain':>10}{heads}")
    for what, times_seen in STRETCHES.items():
        for capacity in CAPACITIES:
            seen = capacity * times_seen
            print_line(f"offer, {what}", capacity, offer_times(capacity, seen, batch))
    for capacity in CAPACITIES:
        full = sides(capacity, capacity)
        print_line("sample", capacity, take_turns(full, lambda side: side.sample(BATCH), MIN_CALLS))


if __name__ == "__main__":
    main()
