"""What the published detector finds, by encoder, beside this project's default.

    python benchmarks/published_detector.py --cache FOLDER [--data fmnist cifar10 cifar100]
        [--encoder resnet18-imagenet efficientnet random learner] [--seeds 10] [--quarters 4]
        [--csv results/published_detector.csv]

The published detector is a Kolmogorov-Smirnov test on predictive entropy at level .05 without a
correction. At each drift event it compares the buffer's samples of every class that has just
drifted with all drifted test samples of the class. Here this is done at the events of Tables 1 to 3
with the smaller number of drifts: Fashion-MNIST with rows of pixels permuted (4 classes), CIFAR-10
(4) and CIFAR-100 (60) with all pixels permuted, by the published draw. The buffer holds original
training samples, of every class known by then the same number. A seed draws the buffer, and the
weights of the encoder `random`. False alarms are those of the same test on undrifted test samples.
P-values are asymptotic (`published`) or exact (`published, exact`).

`learner` is this project's default: the learner's own network, 1/12 of the training samples held
out as a reference and 1/12 monitored, all known classes checked at every task, Holm's correction; by
`ks`, the default, and by `combined`, which `driftwise reproduce` takes. It is measured in whole
runs, but short ones: a small convolutional network, one epoch a task, no adaptation, a buffer of
500 (which is not what it compares with). Its false alarms are those of classes that never drifted.

What the slow encoders make of each image is kept in the cache.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from detect_common import LEVEL, by_class, drawn, encoder_named, images_of, load_data, say, say_load
from scipy import stats
from torch import Tensor

import driftwise
from driftwise import RunConfig, rng
from driftwise.config.presets import resolve, settled
from driftwise.encoders.base import Encodes
from driftwise.stats.ks import asymptotic_kolmogorov_smirnov, kolmogorov_smirnov
from driftwise.stats.multiplicity import CORRECTIONS
from driftwise.stats.scores import entropy
from driftwise.streams.drift_events import make_schedule, split_classes
from driftwise.streams.transforms import apply
from driftwise.types import Dataset

DRIFTS = {"fmnist": 1, "cifar10": 1, "cifar100": 2}
"""events in a stream: the smaller number of Tables 1 to 3"""
BUFFERS = (500, 5000)
ENCODERS = ("resnet18-imagenet", "efficientnet", "random", "learner")
QUARTERS = 4
TESTS = {"published": asymptotic_kolmogorov_smirnov, "published, exact": kolmogorov_smirnov}


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one detector said in one stream."""

    data: str
    encoder: str
    detector: str
    buffer_size: int
    num_drifts: int
    seed: int
    drifted: int
    """checks of classes that had just drifted"""
    found: int
    undrifted: int
    """checks of classes that had not"""
    alarms: int
    missed: str
    """the drifted classes that were not found"""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One drift event of a published stream."""

    known: int
    """classes learned before it"""
    drifted: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Entropies of one class."""

    train: np.ndarray
    """what buffers are drawn from"""
    undrifted: np.ndarray
    drifted: np.ndarray


def events_of(data: str, num_classes: int) -> Iterator[Event]:
    """The events of the published stream."""
    config = resolve(RunConfig(benchmark=f"{data}-cd", num_drifts=DRIFTS[data], preset="published"))
    schedule = make_schedule(
        split_classes(tuple(range(num_classes)), settled(config.num_tasks)),
        num_drifts=settled(config.num_drifts),
        transform=config.transform or "identity",
        severity=config.severity or 1,
        scope=settled(config.scope),
        seed=config.seed,
    )
    for event in schedule.events:
        known = sum(map(len, schedule.tasks[: event.task - 1]))
        yield Event(known=known, drifted=tuple(sorted(event.concepts)))


def drifted_images(data: str, images: Tensor) -> Tensor:
    """The published concept: severity 5, the draw of seed 42, rows of pixels on Fashion-MNIST."""
    unit = "row" if data == "fmnist" else "pixel"
    return apply(images, "permutation", 5, seed=42, unit=unit)


def pool_of(dataset: Dataset, label: int) -> list[np.ndarray]:
    """The training samples of a class in four quarters, each a random one."""
    assert dataset.is_test is not None
    rows = np.flatnonzero((dataset.labels == label) & ~dataset.is_test)
    return np.array_split(drawn(rows, len(rows), rng.fork(0, "pool", label)), QUARTERS)


def entropies(encoder: Encodes, images: Tensor) -> np.ndarray:
    """Predictive entropy of every image, (n,)."""
    parts = [entropy(encoder.encode(part).logits) for part in torch.split(images, 512)]
    return torch.cat(parts).numpy()


def kept_entropies(file: Path, encoder: Encodes, images: Tensor) -> np.ndarray:
    """The same, from the cache where it has them."""
    if not file.exists():
        unfinished = file.with_name(f".{file.name}")
        np.save(unfinished, entropies(encoder, images))
        unfinished.rename(file)
        say(f"encoded {file.name}: {len(images)} images")
    found: np.ndarray = np.load(file)
    assert len(found) == len(images), f"{file} belongs to other images: remove it"
    return found


def scores_by_class(
    data: str, dataset: Dataset, name: str, seed: int, cache: Path, quarters: int
) -> dict[int, Scores]:
    """Entropies of every class that drifts in a published stream."""
    encoder = encoder_named(name, None, dataset.images.shape[1:], seed)
    for network in encoder.networks:
        # a fifth faster
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    folder = cache / f"{data}-{name}{f'-{seed}' if name == 'random' else ''}"
    folder.mkdir(parents=True, exist_ok=True)
    assert dataset.is_test is not None
    tests = by_class(dataset.labels, np.flatnonzero(dataset.is_test), len(dataset.class_names))
    labels = sorted({c for each in events_of(data, len(tests)) for c in each.drifted})
    test_rows = np.concatenate([tests[label] for label in labels])
    test_labels = dataset.labels[test_rows]
    images = images_of(dataset, test_rows)
    undrifted = kept_entropies(folder / "test.npy", encoder, images)
    drifted = kept_entropies(folder / "drifted.npy", encoder, drifted_images(data, images))
    train: dict[int, list[np.ndarray]] = {label: [] for label in labels}
    for quarter in range(quarters):
        rows = np.concatenate([pool_of(dataset, label)[quarter] for label in labels])
        found = kept_entropies(folder / f"train-{quarter}.npy", encoder, images_of(dataset, rows))
        for label in labels:
            train[label].append(found[dataset.labels[rows] == label])
    return {
        label: Scores(
            train=np.concatenate(train[label]),
            undrifted=undrifted[test_labels == label],
            drifted=drifted[test_labels == label],
        )
        for label in labels
    }


def by_fixed_encoder(
    data: str, name: str, seeds: Sequence[int], cache: Path, quarters: int
) -> Iterator[Line]:
    """The published detector in the published streams."""
    dataset = load_data(data)
    scores: dict[int, Scores] = {}
    for seed in seeds:
        if not scores or name == "random":
            scores = scores_by_class(data, dataset, name, seed, cache, quarters)
        events = list(events_of(data, len(dataset.class_names)))
        for buffer_size in BUFFERS:
            yield from _checked(data, name, seed, events, buffer_size, scores)


def _checked(
    data: str,
    name: str,
    seed: int,
    events: Sequence[Event],
    buffer_size: int,
    scores: dict[int, Scores],
) -> Iterator[Line]:
    for detector, test in TESTS.items():
        missed: list[int] = []
        checks = alarms = 0
        for event in events:
            size = buffer_size // event.known
            kept = [
                torch.from_numpy(drawn(scores[c].train, size, rng.fork(seed, "buffer", c)))
                for c in event.drifted
            ]
            drifted = [torch.from_numpy(scores[c].drifted) for c in event.drifted]
            undrifted = [torch.from_numpy(scores[c].undrifted) for c in event.drifted]
            found = test(list(zip(kept, drifted, strict=True)))
            missed += [c for c, e in zip(event.drifted, found, strict=True) if e.p_value > LEVEL]
            calm = test(list(zip(kept, undrifted, strict=True)))
            alarms += sum(evidence.p_value <= LEVEL for evidence in calm)
            checks += len(event.drifted)
        yield Line(
            data=data,
            encoder=name,
            detector=detector,
            buffer_size=buffer_size,
            num_drifts=len(events),
            seed=seed,
            drifted=checks,
            found=checks - len(missed),
            undrifted=checks,
            alarms=alarms,
            missed=" ".join(map(str, missed)),
        )


def by_learner(data: str, seeds: Sequence[int]) -> Iterator[Line]:
    """This project's default in the same streams, run for real."""
    for seed in seeds:
        config = RunConfig(
            benchmark=f"{data}-cd",
            backbone="cnn",
            epochs=1,
            scheduler="constant",
            lr=0.1,
            batch_size=32,
            minibatch_size=32,
            buffer_size=BUFFERS[0],
            detector="combined",
            adaptation="vanilla",
            num_drifts=DRIFTS[data],
            drift_seed=42,
            permutation_unit="row" if data == "fmnist" else "pixel",
            threads=1,
            seed=seed,
        )
        with tempfile.TemporaryDirectory() as folder:
            result = driftwise.run(config, Path(folder) / "run")
        for detector in ("ks", "combined"):
            yield _said(data, detector, seed, result)


def _said(data: str, detector: str, seed: int, result: dict[str, Any]) -> Line:
    """What a run's verdicts come to, by the combination or by its first test alone."""
    drift_task = {
        label: event["task"] for event in result["drift_events"] for label in event["classes"]
    }
    missed: list[int] = []
    drifted = undrifted = alarms = 0
    by_task: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for verdict in result["verdicts"]:
        by_task[verdict["task"]].append(verdict)
    for task, verdicts in by_task.items():
        p_values = {
            v["class"]: v["p_value"] if detector == "combined" else v["p_values"]["ks-entropy"]
            for v in verdicts
            if v["drifted"] is not None
        }
        threshold = CORRECTIONS["holm"](list(p_values.values()), LEVEL)
        for label in (verdict["class"] for verdict in verdicts):
            p_value = p_values.get(label, 1.0)  # what cannot be tested is not found
            if task == drift_task.get(label):
                drifted += 1
                missed += [label] if p_value > threshold else []
            elif task < drift_task.get(label, task + 1):
                undrifted += 1
                alarms += p_value <= threshold
    return Line(
        data=data,
        encoder="learner",
        detector=detector,
        buffer_size=BUFFERS[0],
        num_drifts=len(result["drift_events"]),
        seed=seed,
        drifted=drifted,
        found=drifted - len(missed),
        undrifted=undrifted,
        alarms=alarms,
        missed=" ".join(map(str, missed)),
    )


# What is said about it


def read(file: Path) -> list[Line]:
    """The lines of a file of results."""
    numbers = {field.name for field in fields(Line) if field.type == "int"}

    def line_of(entry: dict[str, str]) -> Line:
        typed: dict[str, Any] = {**entry, **{name: int(entry[name]) for name in numbers}}
        return Line(**typed)

    with file.open(newline="") as stream:
        return [line_of(entry) for entry in csv.DictReader(stream)]


def write(file: Path, lines: Iterable[Line]) -> None:
    """Every line, sorted."""
    plain = sorted(map(asdict, lines), key=lambda line: tuple(line.values()))
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Line)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(plain)


def share(lines: Sequence[Line], of: str, among: str) -> str:
    """Mean share over seeds with its 95 % interval (Student's t over seeds), in percent."""
    by_seed: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for line in lines:
        by_seed[line.seed][0] += getattr(line, of)
        by_seed[line.seed][1] += getattr(line, among)
    shares = 100 * np.array([some / every for some, every in by_seed.values()])
    half = 0.0
    if len(shares) > 1:
        half = stats.t.ppf(0.975, len(shares) - 1) * shares.std(ddof=1) / len(shares) ** 0.5
    return f"{shares.mean():.0f} ± {half:.0f}" if half else f"{shares.mean():.0f}"


def table(lines: Sequence[Line]) -> list[str]:
    """Share of drifted classes found, and of undrifted ones flagged, in Markdown."""
    columns = [(data, size) for data in DRIFTS for size in BUFFERS]
    titles = [f"{data}, {size:,}" for data, size in columns]
    rows = [f"| encoder | detector | {' | '.join(titles)} |", "|---" * (len(columns) + 2) + "|"]
    for encoder in ENCODERS:
        for detector in ("published", "ks", "combined"):
            cells = [
                [
                    line
                    for line in lines
                    if (line.encoder, line.detector) == (encoder, detector)
                    and (line.data, line.buffer_size) == column
                ]
                for column in columns
            ]
            if any(cells):
                said = " | ".join(
                    f"{share(cell, 'found', 'drifted')} ({share(cell, 'alarms', 'undrifted')})"
                    if cell
                    else ""
                    for cell in cells
                )
                rows.append(f"| `{encoder}` | {detector} | {said} |")
    return rows


def turned(lines: Sequence[Line]) -> tuple[int, int]:
    """Of how many checks of drifted classes the exact p-value says the opposite; of how many."""
    pairs: dict[tuple[object, ...], list[Line]] = defaultdict(list)
    for line in lines:
        if line.detector.startswith("published"):
            pairs[line.data, line.encoder, line.buffer_size, line.seed].append(line)
    differing = sum(
        len({*one.missed.split()} ^ {*other.missed.split()}) for one, other in pairs.values()
    )
    return differing, sum(one.drifted for one, _ in pairs.values())


def misses(lines: Sequence[Line]) -> Iterator[str]:
    """How often each class was missed, the first ten."""
    for data in DRIFTS:
        for encoder in dict.fromkeys(line.encoder for line in lines):
            for size in BUFFERS:
                some = [
                    line
                    for line in lines
                    if (line.data, line.encoder, line.buffer_size) == (data, encoder, size)
                    and line.detector in ("published", "combined")
                ]
                count: dict[str, int] = defaultdict(int)
                for line in some:
                    for label in line.missed.split():
                        count[label] += 1
                worst = sorted(count.items(), key=lambda each: -each[1])[:10]
                if some:
                    words = ", ".join(f"{label}: {times}" for label, times in worst) or "none"
                    yield f"{data}, {encoder}, {size}: missed in {len(some)} streams: {words}"


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, required=True, help="where encodings are kept")
    parser.add_argument("--data", nargs="+", default=list(DRIFTS), choices=list(DRIFTS))
    parser.add_argument("--encoder", nargs="+", default=list(ENCODERS), choices=ENCODERS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--quarters",
        type=int,
        default=QUARTERS,
        choices=range(1, QUARTERS + 1),
        help="of the training samples, from which buffers are drawn",
    )
    parser.add_argument("--csv", type=Path, help="write the numbers there; others in it stay")
    args = parser.parse_args()
    torch.set_num_threads(1)
    say_load()
    lines: list[Line] = []
    for name in args.encoder:
        for data in args.data:
            seeds = range(args.seeds)
            made = by_learner(data, seeds) if name == "learner" else None
            for line in made or by_fixed_encoder(data, name, seeds, args.cache, args.quarters):
                lines.append(line)
                say(f"{line}")
    if args.csv is not None:
        new = {(line.data, line.encoder) for line in lines}
        before = read(args.csv) if args.csv.exists() else []
        write(args.csv, [*lines, *(it for it in before if (it.data, it.encoder) not in new)])
        lines = read(args.csv)
        say(f"wrote {args.csv}")
    say("\n".join([*table(lines), "", *misses(lines)]))
    if {line.detector for line in lines} >= TESTS.keys():
        say(
            "exact p-values decide {} of {} checks of drifted classes otherwise".format(
                *turned(lines)
            )
        )


if __name__ == "__main__":
    main()
