"""Streams of real digits that change in the middle, and a live learner that sees it soon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import driftwise
from driftwise.datasets.readers.digits import load_digits
from driftwise.live.reporter import Observation

SOON: dict[str, Any] = {
    "buffer_size": 100,
    "batch_size": None,
    "optimiser": "sgd",
    "lr": 0.3,
    "normalise": False,
    "replay_steps": 0,
    "max_gradient": None,
    "minibatch_size": 30,
    "watch_every": 3,
    "reference_size": 15,
    "check_rows": 10,
}
"""Settings for streams that are over after 1,797 samples."""


@dataclass(frozen=True)
class Digits:
    """All digits once, in an order of the seed's; from `turn` on their pixels change places."""

    images: np.ndarray
    labels: np.ndarray
    turn: int

    def batches(self, size: int = 10) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The first sample's number, images and labels, batch by batch."""
        for start in range(0, len(self.labels), size):
            yield start, self.images[start : start + size], self.labels[start : start + size]


def digits(
    seed: int = 0, *, turn: int | None = 900, classes: int = 10, moving: int | None = None
) -> Digits:
    """`moving`: only this class changes; None: all of them."""
    data, draw = load_digits(), np.random.default_rng(seed)
    some = np.flatnonzero(data.labels < classes)
    order = draw.permutation(some)
    images, labels = data.images[order].copy(), data.labels[order]
    pixels = draw.permutation(64)
    turn = len(labels) if turn is None else turn
    moves = (np.arange(len(labels)) >= turn) & ((labels == moving) | (moving is None))
    images[moves] = images[moves].reshape(-1, 64)[:, pixels].reshape(-1, 8, 8, 1)
    return Digits(images, labels, turn)


def live_learner(network: Any = "mlp", **settings: Any) -> driftwise.LiveLearner:
    return driftwise.LiveLearner(network, **{**SOON, "detector": "ks", **settings})


def small_network(outputs: int = 3, seed: int = 0) -> torch.nn.Module:
    """A network of one's own for 8 x 8 images."""
    from driftwise import rng

    with rng.as_global(rng.fork(seed, "small")):
        return torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(64, 32),
            torch.nn.ReLU(),
            torch.nn.Linear(32, outputs),
        )


def play(
    mine: driftwise.LiveLearner,
    stream: Digits,
    *,
    known: float = 1.0,
    seed: int = 0,
    samples: int = 10**9,
) -> list[Observation]:
    """The whole stream, or its first samples; of a share of them the labels are known."""
    draw = np.random.default_rng([seed, 77])
    seen = []
    for start, images, labels in stream.batches():
        if start >= samples:
            break
        given = [int(y) if draw.random() < known else None for y in labels]
        seen.append(mine.observe(images, given))
    return seen


def accuracy(seen: list[Observation]) -> float:
    """Of predictions made before learning."""
    return sum(each.correct for each in seen) / sum(each.labelled for each in seen)
