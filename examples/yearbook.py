"""Portraits of American students, year by year: how accurate does a model of the 1930s stay?

    DRIFTWISE_DATA=... python examples/yearbook.py [--short] [--seeds 2] [--figure FILE]

The portraits of the 1930s come with their labels. From 1940 to 2013 they come without, and a live
learner asks for labels where a class has drifted. Beside it: no labels, and as many
labels spread evenly over the years.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from showing import Stream, draw, run_all, table

from driftwise.datasets import library
from driftwise.datasets.catalogue import YEARBOOK_CLASSES
from driftwise.datasets.readers.npz import read_npz
from driftwise.errors import UserError

LABELLED = range(1930, 1940)
UNLABELLED = range(1940, 2014)
SOME = range(1970, 1977)
"""unlabelled years of the short form: hair has grown"""
ONE_IN = 3
"""of so many portraits one is taken"""
SETTINGS = {
    "optimiser": "sgd",
    "lr": 0.05,
    "batch_size": 32,
    "replay_steps": 0,  # all ways take the same number of steps
    "max_gradient": None,
    "normalise": True,
    "detector": "ks",
    "watch_every": 4,
    "reference_size": 50,
    "check_rows": 100,
    "options": {"backbone": {"width": 8}},
}


def portraits(unlabelled: range) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, labels and years: those that come with labels, and some later ones."""
    file = library.find("yearbook")
    if file is None:
        raise UserError("Yearbook was not found: see `driftwise data list`, and set DRIFTWISE_DATA")
    data = read_npz(file, class_names=YEARBOOK_CLASSES, group_years=1)
    assert data.domains is not None
    years = np.array([int(name) for name in data.domain_names])[data.domains]
    samples = np.flatnonzero(np.isin(years, [*LABELLED, *unlabelled]))
    samples = np.random.default_rng(0).permutation(samples)[: len(samples) // ONE_IN]
    return data.images[samples], data.labels[samples], years[samples]


def main(words: list[str] | None = None) -> None:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="some years only, one seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=1000, help="labels that may be asked for")
    parser.add_argument("--figure", type=Path, default=Path("example-yearbook.png"))
    asked = parser.parse_args(words)
    torch.set_num_threads(1)
    images, labels, years = portraits(SOME if asked.short else UNLABELLED)

    def stream_of(seed: int) -> Stream:
        """In the order of the years, and at random within a year."""
        order = np.lexsort((np.random.default_rng(seed).random(len(years)), years))
        decades = years[order] // 10 * 10
        starts = [
            (int(np.argmax(decades == decade)), f"{decade}s") for decade in np.unique(decades)
        ]
        return Stream(
            images=images[order],
            labels=labels[order],
            given=np.isin(years[order], LABELLED),
            parts=tuple(starts),
        )

    start = time.process_time()
    seeds = [0] if asked.short else list(range(asked.seeds))
    stream, outcomes = run_all(
        stream_of,
        seeds,
        network="cnn",
        settings=SETTINGS,
        budget=asked.budget,
        first_steps=100 if asked.short else 300,
    )
    print(table(stream, outcomes))
    title = f"Yearbook, year by year ({len(labels):,} portraits; seeds: {len(seeds)})"
    draw(stream, outcomes, asked.figure, title=title, over=200 if asked.short else 400)
    print(f"{asked.figure} ({time.process_time() - start:.0f} s)")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
