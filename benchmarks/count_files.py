"""Counts the files of the package whose code works during a run, an `observe` and a `detect`.

python benchmarks/count_files.py [--list]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch  # noqa: F401  # imported before counting, as is everything below

import driftwise
from driftwise.datasets.readers.digits import load_digits
from driftwise.loop import DriftHandler

PACKAGE = Path(driftwise.__file__).parent


@contextlib.contextmanager
def counting(files: dict[str, None]) -> Iterator[None]:
    """Meanwhile, files in which a function is called are added, in the order of their first call."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # Bodies of modules and classes run when they are imported.
        is_function = bool(code.co_flags & 0x2)
        if event == "call" and is_function and code.co_filename.startswith(str(PACKAGE)):
            files.setdefault(str(Path(code.co_filename).relative_to(PACKAGE)))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def of_a_run(folder: Path) -> tuple[list[str], list[str]]:
    """The files of a whole run (digits-cd, ER, KS, AMR, one drift), and of its 50th train step."""
    whole: dict[str, None] = {}
    step: dict[str, None] = {}
    train_step, steps = DriftHandler.train_step, 0

    def counted(self: DriftHandler, batch: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps != 50:
            return train_step(self, batch)
        with counting(step):
            return train_step(self, batch)

    config = driftwise.RunConfig(adaptation="amr", num_drifts=1, epochs=1)
    driftwise.run(config, folder / "warm-up")  # what is imported late is imported now
    with counting(whole):
        driftwise.run(config, folder / "whole")
    DriftHandler.train_step = counted  # type: ignore[method-assign]
    try:
        driftwise.run(config, folder / "step")
    finally:
        DriftHandler.train_step = train_step  # type: ignore[method-assign]
    return list(whole), list(step)


def of_a_live_learner() -> list[str]:
    """The files of 80 batches of labelled digits."""
    files: dict[str, None] = {}
    data = load_digits()
    live = driftwise.LiveLearner("mlp", seed=0)
    live.observe(data.images[:20], data.labels[:20])
    with counting(files):
        for start in range(20, 1620, 20):
            live.observe(data.images[start : start + 20], data.labels[start : start + 20])
    return list(files)


def of_a_detector() -> list[str]:
    """The files of `DriftDetector`, from two arrays to a report."""
    files: dict[str, None] = {}
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.labels))
    images, labels = data.images[order], data.labels[order]
    driftwise.DriftDetector(encoder="random")
    with counting(files):
        detector = driftwise.DriftDetector(encoder="random").fit((images[:900], labels[:900]))
        detector.check((images[900:], labels[900:]))
    return list(files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name the files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole, step = of_a_run(Path(folder))
    found = {
        "a run": whole,
        "one of its train steps": step,
        "LiveLearner.observe, 80 batches": of_a_live_learner(),
        "DriftDetector.fit and check": of_a_detector(),
    }
    for what, files in found.items():
        print(f"{len(files):3} files: {what}")
        if options.list:
            print(*(f"      {file}" for file in files), sep="\n")


if __name__ == "__main__":
    main()
