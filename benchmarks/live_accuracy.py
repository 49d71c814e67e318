"""How right a live learner's predictions are at its defaults, beside other learners of streams.

    pip install "driftwise[bench]"
    DRIFTWISE_STREAMS=... python benchmarks/live_accuracy.py [--only digits] [--seeds 0-4]

Every learner is fed the same batches of 20: it predicts a batch, then gets its labels. Counted are
all predictions but those of the first batch, before which nobody knows a class. No setting is
chosen per data set. The others see values scaled by mean and deviation of what came before, as one
would feed them. "no change" predicts the label that came last.

- digits: all 1,797 in an order of the seed's (live learner: `mlp`).
- fashion-mnist: 10,000 of the second half of the training part, by the seed (live learner: `cnn`). The
  first half is for choosing settings (`--development`).
- gas: 6,697 readings of a sensor array over 36 months, in order of the eight parts; the seed
  shuffles each part, in which readings came by class (live learner: `mlp`).
- electricity: 45,312 half hours, in order; the seed is that of the learners (live learner: `mlp`).

Gas and electricity are read from gas-sensor.npz and electricity.npz (features, labels, batch) in
the folder DRIFTWISE_STREAMS. Results are added to results/live_accuracy.csv. Instead of it all,
`--quiet-streams N` counts false alarms over N streams of digits without any drift, and `--readme`
plays the README's example with ten seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

import driftwise
from driftwise.datasets.library import load
from driftwise.datasets.readers.digits import load_digits

RESULTS = Path(__file__).resolve().parents[1] / "results" / "live_accuracy.csv"
COLUMNS = ("stream", "learner", "seed", "samples", "accuracy", "alarms", "seconds")
BATCH = 20
IMAGES = 10_000


@dataclass(frozen=True)
class Stream:
    """Samples as a live learner takes them, and labels, in their order."""

    x: np.ndarray
    y: np.ndarray
    network: str

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All samples, 20 at a time."""
        for start in range(0, len(self.y), BATCH):
            yield self.x[start : start + BATCH], self.y[start : start + BATCH]


class Learner(Protocol):
    """What every learner of the comparison does."""

    alarms: int

    def predict_then_learn(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Labels for a batch, before its own are known; -1: none yet."""
        ...


class Kept:
    """A live learner, at its defaults."""

    def __init__(self, stream: Stream, seed: int, **settings: Any) -> None:
        self._keeper = driftwise.LiveLearner(stream.network, seed=seed, **settings)
        self.alarms = 0

    def predict_then_learn(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """What `observe` predicts."""
        report = self._keeper.observe(x, y)
        self.alarms += len(report.drifted)
        return report.predicted


class Sklearn:
    """An estimator of scikit-learn behind a running scaler."""

    def __init__(self, estimator: Any, stream: Stream) -> None:
        self._estimator = estimator
        self._scaler = StandardScaler()
        self._classes = np.unique(stream.y)
        self._begun = False
        self.alarms = 0

    def predict_then_learn(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Scaled by what came before; then the scaler learns, then the estimator."""
        x = x.reshape(len(x), -1).astype(np.float64)
        predicted = np.full(len(y), -1)
        if self._begun:
            predicted = self._estimator.predict(self._scaler.transform(x))
        self._begun = True
        self._scaler.partial_fit(x)
        self._estimator.partial_fit(self._scaler.transform(x), y, classes=self._classes)
        return predicted


class River:
    """A learner of river, which takes one sample after the other."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.alarms = 0

    def predict_then_learn(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """All of them predicted, then learned one by one."""
        rows = [dict(enumerate(row)) for row in x.reshape(len(x), -1).astype(np.float64).tolist()]
        said = [self._model.predict_one(row) for row in rows]
        for row, label in zip(rows, y.tolist(), strict=True):
            self._model.learn_one(row, label)
        return np.array([-1 if label is None else label for label in said])


class NoChange:
    """The label that came last comes again; it needs no batch, and sees the one just before."""

    alarms = 0

    def __init__(self) -> None:
        self._last = -1

    def predict_then_learn(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """The label before each."""
        predicted = np.concatenate([[self._last], y[:-1]])
        self._last = int(y[-1])
        return predicted


def softmax(_: Stream, __: int) -> Learner:
    from river import linear_model, preprocessing

    return River(preprocessing.StandardScaler() | linear_model.SoftmaxRegression())


def forest(_: Stream, seed: int) -> Learner:
    from river import forest

    return River(forest.ARFClassifier(seed=seed))


LEARNERS: dict[str, Callable[[Stream, int], Learner]] = {
    "keeper": Kept,
    "sgd": lambda stream, seed: Sklearn(SGDClassifier(loss="log_loss", random_state=seed), stream),
    "mlp": lambda stream, seed: Sklearn(MLPClassifier(random_state=seed), stream),
    "softmax": softmax,
    "arf": forest,
    "no change": lambda _, __: NoChange(),
}


def digits(seed: int, *, development: bool = False) -> Stream:  # noqa: ARG001
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.labels))
    return Stream(data.images[order], data.labels[order], "mlp")


def fashion(seed: int, *, development: bool) -> Stream:
    data = load("fashion-mnist")
    assert data.is_test is not None
    train = np.flatnonzero(~data.is_test)
    half = len(train) // 2
    part = train[:half] if development else train[half:]
    some = np.random.default_rng(seed).permutation(part)[:IMAGES]
    return Stream(data.images[some], data.labels[some], "cnn")


def gas(seed: int, *, development: bool) -> Stream:  # noqa: ARG001
    data = _read("gas-sensor.npz")
    draw = np.random.default_rng(seed)
    order = np.lexsort([draw.random(len(data["labels"])), data["batch"]])
    return Stream(data["features"][order], data["labels"][order], "mlp")


def electricity(seed: int, *, development: bool) -> Stream:  # noqa: ARG001
    data = _read("electricity.npz")
    return Stream(data["features"], data["labels"], "mlp")


def _read(name: str) -> Any:
    return np.load(Path(os.environ.get("DRIFTWISE_STREAMS", ".")) / name)


STREAMS: dict[str, Callable[..., Stream]] = {
    "digits": digits,
    "fashion-mnist": fashion,
    "gas": gas,
    "electricity": electricity,
}


def feed(learner: Learner, stream: Stream) -> dict[str, Any]:
    start, right, counted = time.process_time(), 0, 0
    for number, (x, y) in enumerate(stream.batches()):
        predicted = learner.predict_then_learn(x, y)
        if number:
            right += int((predicted == y).sum())
            counted += len(y)
    seconds = time.process_time() - start
    return {
        "samples": counted,
        "accuracy": round(100 * right / counted, 2),
        "alarms": learner.alarms,
        "seconds": round(seconds, 1),
    }


def add(line: dict[str, Any], file: Path) -> None:
    is_new = not file.exists()
    with file.open("a", newline="") as to:
        writer = csv.DictWriter(to, COLUMNS)
        if is_new:
            writer.writeheader()
        writer.writerow(line)


def play_readme() -> None:
    """The README's live example, seed by seed: accuracy on held-out samples, and alarms."""
    text = RESULTS.parents[1].joinpath("README.md").read_text()
    code = next(
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "ask(" in block
    )
    for seed in range(10):
        found: dict[str, Any] = {}
        quiet = contextlib.redirect_stdout(io.StringIO())
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), quiet:
            exec(code.replace("load_digits(), 0\n", f"load_digits(), {seed}\n"), found)
        alarms = found["live"].counters.split("driftwise_drifts_total ")[-1].split()[0]
        print(f"seed {seed}: {100 * found['held_out']:.1f} % held-out, {alarms} alarms", flush=True)


def count_false_alarms(streams: int, first_seed: int) -> None:
    """Of digits in random order, which are over before classes are checked at the defaults."""
    alarmed = 0
    for seed in range(first_seed, first_seed + streams):
        stream = digits(seed, development=False)
        found = feed(Kept(stream, seed, **SOONER), stream)
        alarmed += found["alarms"] > 0
        print(f"seed {seed}: {found['alarms']} alarms, {found['accuracy']} %", flush=True)
    print(f"{alarmed} of {streams} quiet streams with a false alarm")


SOONER: dict[str, Any] = {"reference_size": 15, "check_rows": 10}
"""digits are over before the defaults would check any class"""


def numbers(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=STREAMS, action="append")
    parser.add_argument("--learners", help="some of them, by commas")
    parser.add_argument("--seeds", type=numbers, default=range(5))
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--quiet-streams", type=int)
    parser.add_argument("--readme", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", message=".*[Cc]onverge.*")
    if options.readme:
        play_readme()
        return
    if options.quiet_streams is not None:
        count_false_alarms(options.quiet_streams, options.seeds.start)
        return
    some = options.learners.split(",") if options.learners else list(LEARNERS)
    for name in options.only or STREAMS:
        for seed in options.seeds:
            stream = STREAMS[name](seed, development=options.development)
            for learner in some:
                if learner == "arf" and name != "electricity":
                    continue
                found = feed(LEARNERS[learner](stream, seed), stream)
                print(f"{name:14} {learner:10} {seed:5} {found}", flush=True)
                add({"stream": name, "learner": learner, "seed": seed, **found}, options.out)


if __name__ == "__main__":
    main()
