"""What becomes of old samples at a drift: dropped, kept, or kept as far as the fresh labels support.

    DRIFTWISE_DATA=... python benchmarks/keep_or_replace.py [STREAM ...] [--seeds 0 1 2 3 4]
    python benchmarks/keep_or_replace.py --table    # of results/keep_or_replace.csv, paired intervals

Streams, statistics (SLDA) and detection without labels of `natural.py`; every way asks for the same labels:

    nothing     no labels
    amr         the statistics of a drifted class are replaced
    added       fresh samples join them
    weighed     `amr-weighed`: leave-one-out comparison on the fresh labels (`stats.old_weight`)

With `--spending`, how labels are spread over classes and tasks; never more of them than `amr` asked for:

    evenly      over all known classes and tasks, without detection; old samples weighed
    oracle      where drift is found; by the true gain on the test samples, which no one has

The rule was written on electricity, outdoor and gas sensors with seeds 100 to 104; nothing in it is set by
hand for a stream. Yearbook, iWildCam and PACS were not looked at.
"""

from __future__ import annotations

import argparse
import copy
import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import natural
import numpy as np
import torch
from natural_page import CLASS_INCREMENTAL, interval

import driftwise as dw
from driftwise.adapt import Realign
from driftwise.adapt.base import Adaptation
from driftwise.adapt.weighing import weighed
from driftwise.protocols import AdaptationContext
from driftwise.streams import Task
from driftwise.streams.label_source import TaskLabels
from driftwise.types import AdaptationResult, Samples, Verdict

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "keep_or_replace.csv"
COLUMNS = ("stream", "fresh", "way", "seed", "labels", "accuracy")
STREAMS = {
    "yearbook-frozen-cd": (10, 30),
    "gas-sensor": (4,),
    "outdoor": (10,),
    "electricity": (20,),
    "pacs-frozen-cd": (12,),
    "iwildcam-cd": (17,),
}
WAYS = {"nothing": "nothing", "amr": "realigned", "added": "added", "weighed": "realigned"}
SPENDING = {"evenly": "window", "oracle": "realigned"}


class Evenly(Adaptation):
    """Every class gets as many labels at every task; fractions of a label are carried over."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._owed: dict[int, float] = {}

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Ask for what is owed, and weigh old samples."""
        fresh = {}
        for label in (each.label for each in drifted):
            self._owed[label] = self._owed.get(label, 0.0) + self._rate
            count = int(self._owed[label] + 1e-9)
            self._owed[label] -= count
            if count and len(samples := context.labels.ask(label, count)):
                fresh[label] = samples
        return put(fresh, context)


class Oracle(Adaptation):
    """A realignment's labels, but for halves without which the test samples are predicted as well.

    What is saved is spent by halves where they are predicted better.
    """

    def __init__(self, loop: dw.DriftLoop) -> None:
        self._loop = loop
        self._saved = 0

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Spend by true gain."""
        task = Task(self._loop.stream, len(self._loop.records) + 1)
        slots = {v.label: n for v in drifted if (n := context.buffer.slots_of(v.label))}
        pool = {c: self._to_come(task, c) for c in slots}
        taken = {c: min(n, len(pool[c])) for c, n in slots.items()}
        self._saved += sum(slots.values()) - sum(taken.values())

        def accuracy(tried: dict[int, int]) -> float:
            return self._accuracy({c: pool[c][:n] for c, n in tried.items() if n}, task, context)

        now = accuracy(taken)
        for sign in (-1, -1, 1, 1, 1):
            for label, count in slots.items():
                step = sign * max(1, round(count / 2))
                tried = {**taken, label: taken[label] + step}
                if not 0 <= tried[label] <= len(pool[label]) or step > self._saved:
                    continue
                after = accuracy(tried)
                if after > now or (sign < 0 and after == now):
                    taken, now = tried, after
                    self._saved -= step
        fresh = {c: context.labels.ask(c, count) for c, count in taken.items() if count}
        return put(fresh, context)

    def _to_come(self, task: Task, label: int) -> Samples:
        """The samples of a class in the order in which requests get them."""
        source = TaskLabels(task, allowance=int, book=lambda _: None, seed=self._loop.seed)
        return source.ask(label, None)

    def _accuracy(self, fresh: dict[int, Samples], task: Task, context: AdaptationContext) -> float:
        """Of a copy of the learner, with these samples, on the test samples."""
        learner = copy.deepcopy(self._loop.learner)
        put(
            fresh,
            replace(
                context, buffer=learner.buffer, annotate=learner.annotate, encode=learner.encode
            ),
        )
        tests = task.tests()
        predicted = learner.encode(tests.images).logits.argmax(dim=1)
        return float((predicted == tests.labels).double().mean())


def put(fresh: dict[int, Samples], context: AdaptationContext) -> AdaptationResult:
    """Fresh samples beside as many old ones as they support."""
    mixtures = weighed(fresh, context)
    for label, mixture in mixtures.items():
        context.buffer.drop(label, mixture.going)
        context.buffer.put(mixture.coming, context.annotate(mixture.coming))
    if not mixtures:
        return AdaptationResult()
    coming = Samples.concat([each.coming for each in mixtures.values()])
    return AdaptationResult(refilled=coming, renewed=tuple(mixtures))


def measure(stream: str, fresh: int, way: str, seed: int) -> tuple[int, float]:
    """Labels for adaptation, and accuracy in percent."""
    made = natural.stream_of(stream, seed)
    loop: dw.DriftLoop = natural.loop_of(made, {**WAYS, **SPENDING}[way], fresh, seed)
    if way == "weighed":
        loop.adaptation = Realign(weigh=True)
    elif way == "oracle":
        loop.adaptation = Oracle(loop)
    elif way == "evenly":
        labels, _ = measure(stream, fresh, "amr", seed)
        tasks = [each for each in made.tasks() if each.number > 1]
        loop.adaptation = Evenly(labels / sum(len(each.known_classes) for each in tasks))
    loop.bind(made)
    records = list(loop.run(loop.stream))
    points = [each for each in records[-1].scores.accuracy if each is not None]
    if stream not in CLASS_INCREMENTAL:
        points = [natural.accuracy_of_samples(each) for each in records[1:]]
    return records[-1].labels["adaptation"], round(float(np.mean(points)), 2)


def saved() -> list[dict[str, str]]:
    """Finished runs."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as lines:
        return list(csv.DictReader(lines))


def table(mine: str, others: Sequence[str]) -> Iterator[str]:
    """Accuracies, and what one way is above others, paired by seed, with 95 % intervals."""
    lines = {tuple(line[name] for name in COLUMNS[:4]): line for line in saved()}
    found = {key: float(line["accuracy"]) for key, line in lines.items()}
    for stream, levels in STREAMS.items():
        for fresh in levels:
            key = (stream, str(fresh))
            seeds = [
                seed
                for seed in sorted({each[3] for each in found if each[:2] == key}, key=int)
                if all((*key, way, seed) in found for way in (mine, *others))
            ]
            if len(seeds) < 2:
                continue
            ours = np.array([found[*key, mine, seed] for seed in seeds])
            cells = [f"{stream}, {fresh} labels a class", f"{ours.mean():.1f}"]
            for way in others:
                theirs = np.array([found[*key, way, seed] for seed in seeds])
                above, half = interval(list(ours - theirs))
                labels = np.mean([int(lines[*key, way, seed]["labels"]) for seed in seeds])
                cells.append(
                    f"{theirs.mean():.1f} ({above:+.1f} ± {half:.1f}; {labels:.0f} labels)"
                )
            yield "| " + " | ".join([*cells, str(len(seeds))]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("streams", nargs="*", default=list(STREAMS), metavar="STREAM")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--spending", action="store_true", help="only the ways of spreading labels")
    parser.add_argument("--table", action="store_true", help="print what has been measured")
    asked = parser.parse_args()
    if asked.table:
        print("\n".join(table("weighed", [each for each in WAYS if each != "weighed"])))
        print("\n".join(table("weighed", list(SPENDING))))
        return
    torch.set_num_threads(1)
    done = {tuple(line[name] for name in COLUMNS[:4]) for line in saved()}
    trials = [
        (stream, fresh, way, seed)
        for seed in asked.seeds
        for stream in asked.streams
        for fresh in STREAMS[stream]
        for way in (SPENDING if asked.spending else WAYS)
    ]
    for trial in trials:
        if tuple(map(str, trial)) in done:
            continue
        line = (*trial, *measure(*trial))
        is_new = not RESULTS.exists()
        with RESULTS.open("a", newline="") as to:
            writer = csv.writer(to, lineterminator="\n")
            if is_new:
                writer.writerow(COLUMNS)
            writer.writerow(line)
        print(*line, flush=True)


if __name__ == "__main__":
    main()
