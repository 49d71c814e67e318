"""Learners of river and CapyMOA on the natural streams, with the labels of the arm `window`.

    python benchmarks/natural.py STREAM ... --export FOLDER        # in the project's environment
    python benchmarks/natural_others.py FOLDER --out results/natural.csv   # in one with river and capymoa

An environment of its own: `pip install river==0.26.1 capymoa==0.15.1 torch==2.13.0`, and
`pip install --no-deps torchvision==0.28.0`; CapyMOA needs Java. All learn sample by sample: the
whole first task, then the fresh labels of each, in a random order within a task. They are asked about
the same tests at the same times. A finished run is a line of the file and is not made again.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

HEADER = (
    "stream,arm,fresh,seed,faa,accuracy,adaptation,monitoring,found,missed,untestable,alarms,"
    "seconds,commit"
)


class OnlineLearner(Protocol):
    """What all of them can do."""

    def learn(self, x: np.ndarray, y: np.ndarray) -> None:
        """(samples, features) and (samples,), one after the other."""
        ...

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(samples, features) -> (samples,)."""
        ...


class RiverForest:
    """river's adaptive random forest: ten trees, ADWIN for warnings and drifts."""

    def __init__(self, features: int, classes: int, seed: int) -> None:
        del features, classes
        from river import forest

        self._model: Any = forest.ARFClassifier(seed=seed)

    def learn(self, x: np.ndarray, y: np.ndarray) -> None:
        """One after the other."""
        for row, label in zip(x.tolist(), y.tolist(), strict=True):
            self._model.learn_one(dict(enumerate(row)), label)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """One after the other; 0 where it knows nothing."""
        found = [self._model.predict_one(dict(enumerate(row))) for row in x.tolist()]
        return np.array([0 if label is None else label for label in found])


class MoaForest:
    """CapyMOA's adaptive random forest as it comes, with ten trees."""

    def __init__(self, features: int, classes: int, seed: int) -> None:
        self._schema = _schema(features, classes)
        self._model: Any = _capymoa("classifier").AdaptiveRandomForestClassifier(
            self._schema, random_seed=seed + 1, ensemble_size=10
        )

    def learn(self, x: np.ndarray, y: np.ndarray) -> None:
        """One after the other."""
        make = _capymoa("core").LabeledInstance.from_array
        for row, label in zip(x.astype(np.float64), y.tolist(), strict=True):
            self._model.train(make(self._schema, row, label))

    def predict(self, x: np.ndarray) -> np.ndarray:
        """One after the other."""
        make = _capymoa("core").Instance.from_array
        rows = [make(self._schema, row) for row in x.astype(np.float64)]
        found = [self._model.predict(row) for row in rows]
        return np.array([0 if label is None else label for label in found])


class MoaSlda:
    """CapyMOA's streaming LDA."""

    def __init__(self, features: int, classes: int, seed: int) -> None:
        del seed
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        with contextlib.suppress(RuntimeError):  # a torch for processors only lacks both
            for name in ("nms", "qnms"):
                schema = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                library.define(schema)  # type: ignore[no-untyped-call]
        self._keep = library
        self._model: Any = _capymoa("ocl.strategy").SLDA(_schema(features, classes))

    def learn(self, x: np.ndarray, y: np.ndarray) -> None:
        """All at once: its answer does not depend on the order."""
        self._model.batch_train(torch.from_numpy(x), torch.from_numpy(y))

    def predict(self, x: np.ndarray) -> np.ndarray:
        """All at once."""
        found: np.ndarray = self._model.batch_predict_proba(torch.from_numpy(x)).argmax(1).numpy()
        return found


def _capymoa(module: str) -> Any:
    return importlib.import_module(f"capymoa.{module}")


def _schema(features: int, classes: int) -> Any:
    names = [f"f{number}" for number in range(features)]
    return _capymoa("stream").Schema.from_custom(
        features=[*names, "class"],
        target="class",
        categories={"class": [str(number) for number in range(classes)]},
    )


ARMS: dict[str, Any] = {
    "river-arf": RiverForest,
    "capymoa-arf": MoaForest,
    "capymoa-slda": MoaSlda,
}


def measure(file: Path, arm: str) -> list[object]:
    """One run: the values of a line."""
    began = time.perf_counter()
    stream, fresh, seed = file.stem.rsplit("-", 2)
    with np.load(file, allow_pickle=False) as saved:
        arrays = {name: saved[name] for name in saved.files}
    tasks = [[int(n) for n in words.split(",") if n] for words in arrays["new_classes"].tolist()]
    classes = 1 + max(max(task, default=0) for task in tasks)
    learner: OnlineLearner = ARMS[arm](arrays["learn_x_1"].shape[1], classes, int(seed))
    accuracies, by_task = [], []
    for number in range(1, len(tasks) + 1):
        x, y = arrays[f"learn_x_{number}"], arrays[f"learn_y_{number}"]
        # Fresh labels come class by class: detectors inside of a forest would take a class for drift.
        order = np.random.default_rng([int(seed), number]).permutation(len(y))
        learner.learn(x[order], y[order])
        if number == 1:
            continue
        truth = arrays[f"test_y_{number}"]
        right = learner.predict(arrays[f"test_x_{number}"]) == truth
        accuracies.append(100 * right.mean())
        by_task = [
            100 * right[np.isin(truth, task)].mean()
            for task in tasks[:number]
            if np.isin(truth, task).any()
        ]
    faa, accuracy = round(float(np.mean(by_task)), 3), round(float(np.mean(accuracies)), 3)
    seconds = round(time.perf_counter() - began, 2)
    labels = int(arrays["adaptation"])
    return [stream, arm, fresh, seed, faa, accuracy, labels, 0, 0, 0, 0, 0, seconds, "others"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    done = {tuple(line.split(",")[:4]) for line in lines}
    with options.out.open("a", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        if not lines:
            writer.writerow(HEADER.split(","))
        for file in sorted(options.folder.glob("*.npz"), key=lambda f: f.stem.rsplit("-", 1)[1]):
            for arm in options.arms:
                stream, fresh, seed = file.stem.rsplit("-", 2)
                if (stream, arm, fresh, seed) not in done:
                    writer.writerow(line := measure(file, arm))
                    out.flush()
                    print(*line, flush=True)


if __name__ == "__main__":
    main()
