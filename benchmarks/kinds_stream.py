"""Adaptation by the kind of change (`auto`) beside plain realignment (`amr`), on streams that mix kinds.

    DRIFTWISE_DATA=... python benchmarks/kinds_stream.py [--seeds 0 1 2 ...]
    python benchmarks/kinds_stream.py --table    # of results/kinds_stream.csv, paired intervals

Six classes of CIFAR-100 (superclasses of the half `reported`, see `kinds_data.py`), features of a frozen
EfficientNet-Lite0, statistics of classes (SLDA). After a first labelled task come six without labels, 140
samples of each class in each (monitored, to be labelled and tested ones apart):

    2  two classes drift                              5  another class drifts, a fifth of all samples is black
    3  a third gets a new mode, the mix changes       6  the second earlier concept returns; a new mode
    4  an earlier concept of the first returns        7  one drifts, one concept returns, one new mode

Drift: noise, blur or rotation. New mode: half of the samples of a class are of subclasses not seen before.
Ten labels for each class that is realigned, within a budget for the whole stream. Kinds are named with the
labels of monitored samples, or without any. A finished run is a line of the file.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import natural
import numpy as np
import torch
from kinds_data import CONCEPTS, KNOWN, SEEN
from natural_page import interval

import driftwise as dw
from driftwise import encoders
from driftwise.adapt import Realign, Vanilla
from driftwise.adapt.base import Adaptation
from driftwise.adapt.by_kind import ByKind
from driftwise.encoders.embedding_cache import EmbeddingCache
from driftwise.encoders.pretrained import EfficientNetEncoder
from driftwise.paths import VARIABLE, environment
from driftwise.streams.faults import break_sensor
from driftwise.streams.transforms import apply
from driftwise.types import Dataset

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "kinds_stream.csv"
COLUMNS = ("labels", "budget", "way", "seed", "adaptation", "accuracy", "kinds")
SEGMENTS, SIZE, FRESH = 7, 140, 10
BUDGETS = (40, 0)
"""labels for adaptation in the whole stream; 0: no limit"""
WAYS = ("nothing", "amr", "auto")


def plan(seed: int) -> tuple[list[list[str]], list[np.ndarray], list[float]]:
    """By segment: the concept of each class, how often each class comes, the fraction that is black."""
    draw = np.random.default_rng([seed, 1])
    a, b, c, d, e, f = draw.permutation(KNOWN).tolist()
    one, two, three = draw.permutation(list(CONCEPTS)).tolist()
    states, mixes, black = [["clean"] * KNOWN], [np.ones(KNOWN)], [0.0]
    changes = (
        {a: one, b: two},
        {c: "new mode"},
        {a: "clean"},
        {d: three},
        {b: "clean", e: "new mode"},
        {f: one, d: "clean", a: "new mode"},
    )
    for number, change in enumerate(changes, 1):
        now = list(states[-1])
        for label, concept in change.items():
            now[label] = concept
        states.append(now)
        mixes.append(
            np.linspace(0.4, 1, KNOWN)[draw.permutation(KNOWN)] if number == 2 else mixes[0]
        )
        black.append(0.2 if number == 4 else 0.0)
    return states, mixes, black


def stream_data(seed: int, cache: Path | None) -> Dataset:
    """Features, each segment a domain."""
    raw = np.fromfile(
        Path(environment(VARIABLE)) / "cifar-100-binary" / "train.bin", dtype=np.uint8
    ).reshape(-1, 3074)
    superclass, fine = raw[:, 0], raw[:, 1]
    images = torch.from_numpy(raw[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy())
    order = np.random.default_rng(0).permutation(20).reshape(2, 10)[1]
    draw = np.random.default_rng([seed, 2])
    left = {}
    for label, parent in enumerate(order[:KNOWN]):
        subclasses = np.unique(fine[superclass == parent])
        for kind, these in (("known", subclasses[:SEEN]), ("new", subclasses[SEEN : 2 * SEEN])):
            left[label, kind] = draw.permutation(np.flatnonzero(np.isin(fine, these))).tolist()
    states, mixes, black = plan(seed)
    taken, labels, domains = [], [], []
    for segment in range(SEGMENTS):
        for label, concept in enumerate(states[segment]):
            count = round(SIZE * mixes[segment][label])
            novel = count // 2 if concept == "new mode" else 0
            rows = [left[label, "known"].pop() for _ in range(count - novel)]
            rows += [left[label, "new"].pop() for _ in range(novel)]
            some: torch.Tensor = images[rows]
            if concept in CONCEPTS:
                some = apply(some, *CONCEPTS[concept], seed=0)
            hit = torch.from_numpy(draw.random(count) < black[segment])
            some[hit] = break_sensor(some[hit], "black", seed=0)
            taken.append(some)
            labels += [label] * count
            domains += [segment] * count
    encoder = EmbeddingCache(EfficientNetEncoder(), cache)
    return Dataset(
        images=np.array(encoder.features(torch.cat(taken)).numpy()),
        labels=np.array(labels, dtype=np.int64),
        class_names=tuple(f"class {label}" for label in range(KNOWN)),
        domains=np.array(domains, dtype=np.int64),
        domain_names=tuple(f"segment {segment}" for segment in range(SEGMENTS)),
    )


def measure(
    data: Dataset, labels: Literal["given", "unknown"], budget: int, way: str, seed: int
) -> tuple[int, float, str]:
    """Labels for adaptation, accuracy in percent after the first task, and kinds that were named."""
    stream = dw.streams.class_incremental(
        data,
        tasks=(tuple(range(KNOWN)), *[()] * (SEGMENTS - 1)),
        num_drifts=SEGMENTS - 1,
        scope="all-seen",
        first_domain="segment 0",
        domains=data.domain_names[1:],
        reference="fingerprint",
        batch_size=256,
        seed=seed,
    )
    adaptations: dict[str, Adaptation] = {"nothing": Vanilla(), "amr": Realign(), "auto": ByKind()}
    loop = dw.DriftLoop(
        dw.AnalyticLearner(dw.methods.SLDA(shrinkage=None), fresh_samples=FRESH),
        adaptation=adaptations[way],
        detector=dw.detect.Combined(),
        encoder=encoders.IdentityEncoder,
        reference="fingerprint",
        fingerprint_size=100,
        monitor_labels=labels,
        label_budget=budget or None,
        seed=seed,
    )
    records = list(loop.run(stream))
    found = Counter(v.kind or "?" for each in records for v in each.verdicts if v.drifted)
    accuracy = float(np.mean([natural.accuracy_of_samples(each) for each in records[1:]]))
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(found.items()))
    return records[-1].labels["adaptation"], round(accuracy, 2), kinds


def saved() -> list[dict[str, str]]:
    """Finished runs."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as lines:
        return list(csv.DictReader(lines))


def table() -> Iterator[str]:
    """A line for each kind of labels and budget: accuracies, labels, and the gain, paired by seed."""
    found = {tuple(line[name] for name in COLUMNS[:4]): line for line in saved()}
    for labels, budget in dict.fromkeys(key[:2] for key in found):
        seeds = [
            s
            for s in sorted({key[3] for key in found}, key=int)
            if all((labels, budget, way, s) in found for way in WAYS)
        ]
        if len(seeds) < 2:
            continue

        def of(way: str, column: str) -> np.ndarray:
            lines = [found[labels, budget, way, s] for s in seeds]  # noqa: B023
            return np.array([float(each[column]) for each in lines])

        cells = [labels, budget]
        for way in WAYS:
            cells.append(f"{of(way, 'accuracy').mean():.1f} ({of(way, 'adaptation').mean():.0f})")
        for other in ("amr", "nothing"):
            gain, half = interval(list(of("auto", "accuracy") - of(other, "accuracy")))
            cells.append(f"{gain:+.1f} ± {half:.1f}")
        yield "| " + " | ".join([*cells, str(len(seeds))]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--cache", type=Path, help="folder for features")
    parser.add_argument("--table", action="store_true", help="print what has been measured")
    asked = parser.parse_args()
    if asked.table:
        print("\n".join(table()))
        return
    torch.set_num_threads(1)
    done = {tuple(line[name] for name in COLUMNS[:4]) for line in saved()}
    for seed in asked.seeds:
        trials: list[Any] = [
            (labels, budget, way, seed)
            for labels in ("given", "unknown")
            for budget in BUDGETS
            for way in asked.ways
        ]
        trials = [trial for trial in trials if tuple(map(str, trial)) not in done]
        data = stream_data(seed, asked.cache) if trials else None
        for trial in trials:
            assert data is not None
            line = (*trial, *measure(data, *trial))
            is_new = not RESULTS.exists()
            with RESULTS.open("a", newline="") as to:
                writer = csv.writer(to, lineterminator="\n")
                if is_new:
                    writer.writerow(COLUMNS)
                writer.writerow(line)
            print(*line, flush=True)


if __name__ == "__main__":
    main()
