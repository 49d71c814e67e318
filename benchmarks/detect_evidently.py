"""`driftwise detect` beside Evidently on the same tables: pages, and alarms where nothing has drifted.

    python benchmarks/detect_evidently.py --gas gas-sensor.npz [--pages FOLDER]

Batch 3 of the gas sensors is cut at random into two halves, ten times. "same": nothing differs.
"mixture": the current half lost seven in ten samples of two classes, so that only the frequencies of
classes differ. Evidently needs an environment of its own (pip install evidently 'pandas<3').
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

import driftwise

BATCH, SEEDS, RARE, KEPT = 3, 10, 2, 0.3
EVERY = 8
"""one sensor reading in so many is a column: 16 of 128"""

Side = tuple[np.ndarray, np.ndarray]
"""vectors and labels"""


def halves(side: Side, seed: int, *, mixture: bool) -> tuple[Side, Side]:
    """A random half as the reference, the other as the current side."""
    values, labels = side
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(labels))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    if mixture:
        second = second[(labels[second] >= RARE) | (draw.random(len(second)) < KEPT)]
    return (values[first], labels[first]), (values[second], labels[second])


def ours(reference: Side, current: Side) -> tuple[int, bool]:
    """Classes called drifted, and whether the frequencies of classes are called different."""
    report = driftwise.DriftDetector(encoder="identity").fit(reference).check(current)
    found = report.frequencies
    return len(report.names("drifted")), found is not None and found.p_value <= report.level


def evidently(reference: Side, current: Side, page: Path | None = None) -> int:
    """Columns called drifted, the column of classes among them, by its preset for drift."""
    package, pandas = importlib.import_module("evidently"), importlib.import_module("pandas")
    presets = importlib.import_module("evidently.presets")
    frames: list[Any] = []
    for values, labels in (current, reference):
        columns = {f"s{number}": column for number, column in enumerate(values.T)}
        frame = pandas.DataFrame({**columns, "gas": labels.astype(str)})
        definition = package.DataDefinition(
            numerical_columns=list(columns), categorical_columns=["gas"]
        )
        frames.append(package.Dataset.from_pandas(frame, data_definition=definition))
    found = package.Report([presets.DataDriftPreset()]).run(*frames)
    if page is not None:
        found.save_html(str(page))
    return int(found.dict()["metrics"][0]["value"]["count"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gas", type=Path, required=True, metavar="PATH", help="gas-sensor.npz")
    parser.add_argument(
        "--pages", type=Path, metavar="FOLDER", help="Evidently's page, batch 1 and 3"
    )
    arguments = parser.parse_args()
    data = np.load(arguments.gas)
    of_batch = {
        batch: (data["features"][chosen][:, ::EVERY].astype(np.float32), data["labels"][chosen])
        for batch in (1, BATCH)
        for chosen in [data["batch"] == batch]
    }
    is_there = importlib.util.find_spec("evidently") is not None
    for name, mixture in (("same", False), ("mixture", True)):
        pairs = [halves(of_batch[BATCH], seed, mixture=mixture) for seed in range(SEEDS)]
        classes, different = zip(*(ours(*pair) for pair in pairs), strict=True)
        print(
            f"{name}: driftwise, classes called drifted: {classes}; frequencies: {sum(different)}"
        )
        if is_there:
            columns = [evidently(*pair) for pair in pairs]
            print(f"{name}: Evidently, columns of {16 + 1} called drifted: {columns}")
    if arguments.pages is not None and is_there:
        evidently(of_batch[1], of_batch[BATCH], arguments.pages / "evidently.html")


if __name__ == "__main__":
    main()
