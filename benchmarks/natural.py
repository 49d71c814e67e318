"""Accuracy against labels where drift is natural: class statistics, realigned or not.

    python benchmarks/natural.py [STREAM ...] [--arms realigned nothing ...] [--seeds 0 1 ...]
    python benchmarks/natural.py --export FOLDER     # what other libraries learn from (natural_others.py)
    python benchmarks/natural_page.py                # tables and figure of docs/explanations/natural.md

Streaming LDA (`SLDA(shrinkage=None)`) on vectors, or on the features of a frozen encoder. What is done
about drift is the arm of a run:

    nothing      learns the first domain, and the first samples of classes that come later
    realigned    drift is detected without labels (`monitor_labels="unknown"`), statistics are replaced
    by-class     the same, detected class by class with the labels of monitored samples, which count
    known        the same, drift is known: an upper bound of detection
    added        as realigned, but fresh samples are added to the old statistics
    window       no detection: every task, fresh samples of each known class; those of two tasks count
    all          detected as in realigned, all samples of a drifted class are labelled
    diverse      as realigned, labels on diverse samples, the old statistics weighed by them, 200 labels

Other classifiers in the arms `nothing`, `realigned`, `added` and `all`, such as `ncm-realigned`:

    shrunk       streaming LDA with the library's default shrinkage of 0.1
    ncm          nearest class mean
    ridge        ridge regression on random features
    hybrid       streaming LDA beside a network with a replay buffer of feature vectors

A network learned from scratch by experience replay (buffer of 500), on images, vectors, or counts of the
words of texts, detection as above; the settings are those of PACS in `beyond_trials.py`:

    replay-nothing, replay-realigned    without and with realignment of the buffer (`amr-plus`)
    replay-all                          relearning and rehearsal with all labels (`beyond_control.py`)
    replay-fr, replay-flush             the paper's relearning with all labels (`fr`, `fr-flush`)

Settings were chosen on other data and seeds (docs/log.md). The labels of a drifted class are a budget
over the classes that can be realigned at all, one by one at each task: 200 over 42 on gas sensors, 150
and 1,000 over 12 on PACS, 300 and 1,000 over 17 on iWildCam. Data sets are searched as always
(DRIFTWISE_DATA). A finished run is a line of `results/natural.csv` and is not made again.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import HashingVectorizer

import driftwise as dw
from driftwise import encoders
from driftwise.adapt import Realign, Relearn, Vanilla
from driftwise.adapt.base import Adaptation
from driftwise.adapt.compose import ComposeOptions, compose
from driftwise.config.build import assemble
from driftwise.config.presets import BENCHMARKS, resolve
from driftwise.datasets import library
from driftwise.learner import TrainSettings
from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Dataset, Samples, Verdict

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "natural.csv"
SEEDS = tuple(range(10))
WORDS = 1000
"""features that the words of texts are counted in, by their hash"""
STREAM_KEYS = ("tasks", "num_tasks", "num_drifts", "scope", "domains", "first_domain")


@dataclass(frozen=True, kw_only=True)
class Course:
    """A benchmark, and how many labels a drifted class gets."""

    benchmark: str
    compared: tuple[int, ...]
    """labels of a drifted class at which all arms are compared"""
    more: tuple[int, ...] = ()
    """further points of the curve of accuracy against labels"""
    encoder: str | None = None
    scaling: str = "standard"
    groups: bool = True
    """whether bursts of frames stay together"""
    simulated: bool = False
    """whether drift changes images, before the encoder sees them"""
    max_per_class: int | None = None
    every: int = 1
    """of how many samples, in the order of the data, one is taken"""


EFFICIENTNET, MINILM = "efficientnet", "sentence-transformers:all-MiniLM-L6-v2"
COURSES: dict[str, Course] = {
    "gas-sensor": Course(
        benchmark="gas-sensor", compared=(4, 5), more=(1, 2, 10, 20), scaling="signed-log"
    ),
    "pacs-frozen-cd": Course(
        benchmark="pacs-frozen-cd", compared=(12, 83), more=(3, 6, 25, 50), encoder=EFFICIENTNET
    ),
    "iwildcam-cd": Course(
        benchmark="iwildcam-cd", compared=(17, 58), more=(4, 8, 30), encoder=EFFICIENTNET
    ),
    "iwildcam-random-split": Course(
        benchmark="iwildcam-cd", compared=(17, 58), encoder=EFFICIENTNET, groups=False
    ),
    "yearbook-frozen-cd": Course(
        benchmark="yearbook-frozen-cd", compared=(10,), more=(3, 30, 100), encoder=EFFICIENTNET
    ),
    "electricity": Course(benchmark="electricity", compared=(20,), more=(5, 50, 200)),
    "outdoor": Course(benchmark="outdoor", compared=(10,), more=(2, 5, 20)),
    # To encode a mail takes about 0.1 s.
    "spam": Course(benchmark="spam", compared=(20,), more=(5, 50), encoder=MINILM, every=8),
    # Every seed has images of its own to encode: 20 of the 500 of a class are affordable.
    "cifar100-frozen-cd": Course(
        benchmark="cifar100-frozen-cd",
        compared=(5,),
        encoder=EFFICIENTNET,
        simulated=True,
        max_per_class=20,
    ),
}
ARMS = ("nothing", "realigned", "by-class", "known", "added", "window", "all")
MORE_ARMS = ("diverse",)
"""arms that are measured only if they are named"""
OTHERS = tuple(
    f"{name}-{way}"
    for name in ("shrunk", "ncm", "ridge", "hybrid")
    for way in ("nothing", "realigned", "added", "all")
)
"""Arms of other classifiers than streaming LDA with an estimated shrinkage."""
HYBRID_EPOCHS = 10
SCRATCH = {
    "replay-nothing": "vanilla",
    "replay-realigned": "amr-plus",
    "replay-all": "beyond_control:relearn_and_rehearse",
    "replay-fr": "fr",
    "replay-flush": "fr-flush",
}
"""Arms that learn a network from scratch, and their adaptation."""
WITHOUT_LEVELS = ("nothing", "all", *SCRATCH)
"""arms whose number of labels is what it is"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One finished run: a line of the file."""

    stream: str
    arm: str
    fresh: int
    """labels of a drifted class; 0: none; -1: all"""
    seed: int
    faa: float
    """accuracy after the last task, the mean over the tasks that brought classes"""
    accuracy: float
    """of single samples, the mean over all tasks but the first, each after its adaptation"""
    adaptation: int
    """labels for adaptation"""
    monitoring: int
    """labels of monitored samples"""
    found: int
    """drifts of classes that were found, at the task at which they set in"""
    missed: int
    """that were tested and not found"""
    untestable: int
    alarms: int
    """classes that had not drifted and were flagged"""
    seconds: float
    commit: str


class Added(Adaptation):
    """Fresh samples join the old statistics."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Ask for as many labels as a realignment would."""
        fresh = [
            context.labels.ask(each.label, context.buffer.slots_of(each.label)) for each in drifted
        ]
        for samples in fresh:
            context.buffer.put(samples, {})
        return _refilled(fresh)


class Window(Adaptation):
    """The samples of the present and the last request are all that is kept of a class."""

    def __init__(self) -> None:
        self._last: dict[int, Samples] = {}

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Ask for as many labels as a realignment would."""
        fresh = []
        for label in (each.label for each in drifted):
            samples = context.labels.ask(label, context.buffer.slots_of(label))
            if not len(samples):
                continue
            context.buffer.drop(label)
            context.buffer.put(Samples.concat([*self._of(label), samples]), {})
            self._last[label] = samples
            fresh.append(samples)
        return _refilled(fresh)

    def _of(self, label: int) -> list[Samples]:
        return [self._last[label]] if label in self._last else []


def _refilled(fresh: Sequence[Samples]) -> AdaptationResult:
    fresh = [samples for samples in fresh if len(samples)]
    return AdaptationResult(
        refilled=Samples.concat(fresh) if fresh else None,
        renewed=tuple(int(samples.labels[0]) for samples in fresh),
    )


@cache
def data_of(name: str, *, raw: bool = False) -> Dataset:
    """The data of a stream as vectors; a frozen encoder's features are kept on disk.

    `raw`: images stay images, and of texts words are counted.
    """
    course = COURSES[name]
    data = library.load(course.benchmark)
    if course.every > 1:
        step, domains = course.every, data.domains
        data = dataclasses.replace(
            data,
            images=data.images[::step],
            labels=data.labels[::step],
            domains=None if domains is None else domains[::step],
        )
    if raw and data.images.ndim == 1:
        words = HashingVectorizer(n_features=WORDS, stop_words="english", alternate_sign=False)
        counts = words.transform(data.images.tolist()).toarray()
        data = dataclasses.replace(data, images=counts.astype(np.float32))
    if course.encoder is not None and not raw and not course.simulated:
        encoder = encoders.load(course.encoder)
        samples = data.images if data.images.ndim == 1 else torch.from_numpy(data.images)
        features = encoders.EmbeddingCache(encoder).features(samples).numpy()
        data = dataclasses.replace(data, images=np.array(features))
    return data if course.groups else dataclasses.replace(data, groups=None)


def preset_of(name: str) -> dict[str, Any]:
    """The tasks and drift of a benchmark."""
    preset = BENCHMARKS[COURSES[name].benchmark]
    return {key: value for key, value in preset.items() if key in STREAM_KEYS}


def stream_of(name: str, seed: int) -> dw.streams.Stream:
    """The stream of a benchmark as its preset describes it."""
    course = COURSES[name]
    return dw.streams.class_incremental(
        data_of(name),
        seed=seed,
        reference="fingerprint",
        batch_size=256,
        scaling=course.scaling,  # type: ignore[arg-type]
        encoder=course.encoder if course.simulated else None,
        max_per_class=course.max_per_class,
        **preset_of(name),
    )


def loop_of(stream: dw.streams.Stream, arm: str, fresh: int, seed: int) -> dw.DriftLoop:
    """The loop of an arm that learns from vectors."""
    by_arm: dict[str, dict[str, Any]] = {
        "nothing": {"detector": dw.detect.Never(), "adaptation": Vanilla()},
        "realigned": {},
        "by-class": {"monitor_labels": "given"},
        "known": {"detector": dw.detect.Oracle()},
        "added": {"adaptation": Added() if fresh > 0 else Relearn()},
        "window": {"detector": dw.detect.Always(), "adaptation": Window()},
        "all": {"adaptation": Relearn(flush=True)},
        "diverse": {
            "adaptation": compose(ComposeOptions(choice="diverse"), parts={"chosen", "weighed"}),
            "label_budget": 200,
        },
    }
    classifier, _, way = arm.rpartition("-") if arm in OTHERS else ("slda", "", arm)
    options = {"monitor_labels": "unknown", "adaptation": Realign(), **by_arm[way]}
    learner = learner_of(classifier, stream, max(1, fresh), seed)
    return dw.DriftLoop(
        learner,
        encoder=encoders.IdentityEncoder,
        reference="fingerprint",
        fingerprint_size=100,
        seed=seed,
        **options,
    )


def learner_of(
    classifier: str, stream: dw.streams.Stream, fresh: int, seed: int
) -> dw.AnalyticLearner | dw.HybridLearner:
    """A learner of vectors, which asks for `fresh` labels when it realigns a class.

    A hybrid learner asks for as many as the class has slots in a buffer of `fresh` for each class.
    """
    methods = {
        "ncm": dw.methods.NearestMean(),
        "ridge": dw.methods.Ridge(),
        "slda": dw.methods.SLDA(shrinkage=None),
        "shrunk": dw.methods.SLDA(shrinkage=0.1),
    }
    method = methods["slda" if classifier == "hybrid" else classifier]
    analytic = dw.AnalyticLearner(method, fresh_samples=fresh)
    if classifier != "hybrid":
        return analytic
    num_features, classes = stream.image_shape[-1], stream.num_classes
    network = dw.models.seeded(
        dw.models.MLP, input_shape=(num_features, 1, 1), num_classes=classes, seed=seed
    )
    trained = dw.Learner(
        network,
        dw.methods.DERpp(),
        buffer=dw.ReplayBuffer(fresh * classes, seed=seed),
        lr=0.05,
        settings=TrainSettings(max_gradient=10.0),
        seed=seed,
    )
    return dw.HybridLearner(analytic, trained)


def scratch_of(name: str, arm: str, seed: int) -> dw.DriftLoop:
    """The loop of an arm that learns a network from scratch."""
    data = data_of(name, raw=True)
    are_vectors = data.images.ndim == 2
    config = dw.RunConfig(
        benchmark="own",
        method="er",
        adaptation=SCRATCH[arm],
        detector="combined",
        encoder="identity" if are_vectors else "random",
        reference="fingerprint",
        fingerprint_size=100,
        # The control measures how far a class has recovered, and needs labels for it.
        monitor_labels="given" if arm == "replay-all" else "unknown",
        buffer_size=500,
        backbone="mlp" if are_vectors else "cnn",
        epochs=10,
        batch_size=10,
        minibatch_size=10,
        lr=0.03,
        scaling=COURSES[name].scaling if are_vectors else None,  # type: ignore[arg-type]
        threads=1,
        seed=seed,
        **preset_of(name),
    )
    return assemble(resolve(config), data)


def measure(name: str, arm: str, fresh: int, seed: int, *, commit: str) -> Outcome:
    """One run."""
    began = time.perf_counter()
    if arm in SCRATCH:
        loop = scratch_of(name, arm, seed)
        stream = loop.stream
        records = list(loop.run(stream, epochs=loop.config.epochs or 1))
    else:
        stream = stream_of(name, seed)
        loop = loop_of(stream, arm, fresh, seed)
        records = list(loop.run(stream, epochs=HYBRID_EPOCHS if arm.startswith("hybrid") else 1))
    counts = {"found": 0, "missed": 0, "untestable": 0, "alarms": 0}
    for record in records:
        drifting = stream.schedule.drifting(record.task)
        for verdict in record.verdicts:
            if verdict.label not in drifting:
                counts["alarms"] += bool(verdict.drifted)
            else:
                kind = {True: "found", False: "missed", None: "untestable"}[verdict.drifted]
                counts[kind] += 1
    by_task = [each for each in records[-1].scores.accuracy if each is not None]
    return Outcome(
        stream=name,
        arm=arm,
        fresh=fresh,
        seed=seed,
        faa=round(float(np.mean(by_task)), 3),
        accuracy=round(float(np.mean([accuracy_of_samples(each) for each in records[1:]])), 3),
        adaptation=records[-1].labels["adaptation"],
        monitoring=records[-1].labels["monitoring"],
        seconds=round(time.perf_counter() - began, 2),
        commit=commit,
        **counts,
    )


def accuracy_of_samples(record: Any) -> float:
    """Of all test samples of a task's record, in percent."""
    entries = record.scores.confusion
    right = sum(count for true, predicted, count in entries if true == predicted)
    return float(100 * right / sum(count for _, _, count in entries))


def export(name: str, fresh: int, seed: int, folder: Path) -> None:
    """What a learner of another library sees: labelled samples and tests of each task, in order.

    It gets fresh labels of every known class at every task, as the arm `window` does.
    """
    stream = stream_of(name, seed)
    loop = loop_of(stream, "window", fresh, seed)
    arrays: dict[str, np.ndarray] = {}
    for record in loop.run(stream):
        task = stream.task(record.task)
        labelled = [task.train()] if len(task.train()) else []
        for label in task.known_classes:
            asked = loop.labels.of(task).state_dict()["asked"].get(str(label))
            labelled += [] if asked is None else [task.incoming(label)[asked]]
        for part, samples in (("learn", Samples.concat(labelled)), ("test", task.tests())):
            arrays[f"{part}_x_{record.task}"] = samples.images.numpy().astype(np.float32)
            arrays[f"{part}_y_{record.task}"] = samples.labels.numpy()
    arrays["new_classes"] = np.array(
        [",".join(map(str, task.new_classes)) for task in stream.tasks()]
    )
    arrays["adaptation"] = np.array(loop.ledger.labels["adaptation"])
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}-{fresh}-{seed}.npz", allow_pickle=False, **arrays)


def saved(file: Path = RESULTS) -> list[Outcome]:
    """What has been measured."""
    if not file.exists():
        return []
    kinds = {"str": str, "int": int, "float": float}
    types = {each.name: kinds[str(each.type)] for each in fields(Outcome)}
    with file.open(newline="") as lines:
        return [
            Outcome(**{name: types[name](text) for name, text in line.items()})
            for line in csv.DictReader(lines)
        ]


def append(outcome: Outcome, file: Path = RESULTS) -> None:
    """Add a line."""
    is_new = not file.exists()
    with file.open("a", newline="") as lines:
        names = [each.name for each in fields(Outcome)]
        writer = csv.DictWriter(lines, names, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(dataclasses.asdict(outcome))


def trials(
    streams: Sequence[str], arms: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[str, str, int, int]]:
    """Stream, arm, fresh labels and seed of every run, a seed of everything first."""
    for seed in seeds:
        for name in streams:
            for arm in arms:
                levels = COURSES[name].compared
                if arm in ("realigned", "added"):
                    levels += COURSES[name].more
                if arm == "added":
                    levels += (-1,)
                if arm in WITHOUT_LEVELS or arm.endswith(("-nothing", "-all")):
                    levels = (0,) if arm.endswith("nothing") else (-1,)
                for fresh in levels:
                    yield name, arm, fresh, seed


def commit_of(root: Path = ROOT) -> str:
    """The commit of the code, a plus where it was changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "benchmarks")
    return git("rev-parse", "HEAD")[:10] + ("+" if changed else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("streams", nargs="*", default=list(COURSES), metavar="STREAM")
    parser.add_argument(
        "--arms", nargs="+", default=ARMS, choices=(*ARMS, *MORE_ARMS, *OTHERS, *SCRATCH)
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--export", type=Path, metavar="FOLDER", help="for natural_others.py")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.export is not None:
        for name in options.streams:
            for fresh in COURSES[name].compared:
                for seed in options.seeds:
                    export(name, fresh, seed, options.export)
        return
    commit = commit_of()
    done = {(each.stream, each.arm, each.fresh, each.seed) for each in saved(options.out)}
    for trial in trials(options.streams, options.arms, options.seeds):
        if trial in done:
            continue
        outcome = measure(*trial, commit=commit)
        append(outcome, options.out)
        print(*dataclasses.asdict(outcome).values(), flush=True)


if __name__ == "__main__":
    main()
