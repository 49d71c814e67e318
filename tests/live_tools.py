"""Streams of digits that drift in the middle, and live learners that detect it soon."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import driftwise
from driftwise import rng
from driftwise.datasets.readers.digits import load_digits
from driftwise.live import Observation, Request
from driftwise.live.engine import LiveEngine

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
    seed: int = 0, *, turn: int | None = 900, classes: int = 10, drifting: int | None = None
) -> Digits:
    """`drifting`: only this class changes; None: all of them."""
    data, draw = load_digits(), np.random.default_rng(seed)
    some = np.flatnonzero(data.labels < classes)
    order = draw.permutation(some)
    images, labels = data.images[order].copy(), data.labels[order]
    pixels = draw.permutation(64)
    turn = len(labels) if turn is None else turn
    changes = (np.arange(len(labels)) >= turn) & ((labels == drifting) | (drifting is None))
    images[changes] = images[changes].reshape(-1, 64)[:, pixels].reshape(-1, 8, 8, 1)
    return Digits(images, labels, turn)


STABLE = digits(0, turn=None)
CHANGING = digits(0, classes=5, turn=450)


def vectors(samples: int = 40, width: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Points of three classes."""
    labels = np.arange(samples) % 3
    return np.random.default_rng(0).normal(size=(samples, width)) + labels[:, None], labels


def live_learner(network: Any = "mlp", **settings: Any) -> driftwise.LiveLearner:
    return driftwise.LiveLearner(network, **{**SOON, "detector": "ks", **settings})


def small_network(outputs: int = 3, seed: int = 0) -> torch.nn.Module:
    """A network of one's own for 8 x 8 images."""
    with rng.as_global(rng.fork(seed, "small")):
        return torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(64, 32),
            torch.nn.ReLU(),
            torch.nn.Linear(32, outputs),
        )


def feed(
    mine: driftwise.LiveLearner,
    stream: Digits,
    *,
    known: float = 1.0,
    samples: int = 10**9,
) -> list[Observation]:
    """The stream from where the learner is, or its first samples; a fraction of labels is known."""
    draw = np.random.default_rng([0, 77])
    seen = []
    for start, images, labels in stream.batches():
        given = [int(y) if draw.random() < known else None for y in labels]
        if mine.num_samples <= start < samples:
            seen.append(mine.observe(images, given))
    return seen


def accuracy(seen: list[Observation]) -> float:
    """Of predictions made before learning."""
    return sum(each.correct for each in seen) / sum(each.labelled for each in seen)


def state_of(mine: driftwise.LiveLearner) -> dict[str, Any]:
    """All that may change, but for seconds on a clock."""
    state = mine._state()
    if state["parts"] is not None:
        del state["parts"]["ledger"]["seconds"]
    return state


def engine_of(mine: driftwise.LiveLearner) -> LiveEngine:
    assert mine._engine is not None
    return mine._engine


class Oracle:
    """Knows every label of a stream, and what was requested."""

    def __init__(self, stream: Digits = CHANGING) -> None:
        self.stream = stream
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        return self.stream.labels[request.ids]


def before_drift(**settings: Any) -> driftwise.LiveLearner:
    """A live learner shortly before `CHANGING` drifts; the last 100 samples had no labels."""
    mine = live_learner(**{"detector": "mmd", "check_rows": 20, **settings})
    mine._load_state(copy.deepcopy(_state_before_drift()))
    return mine


@functools.cache
def _state_before_drift() -> dict[str, Any]:
    mine = live_learner(detector="mmd", check_rows=20)
    for start in range(0, CHANGING.turn, 10):
        labels = CHANGING.labels[start : start + 10] if start < CHANGING.turn - 100 else None
        assert not mine.observe(CHANGING.images[start : start + 10], labels).drifted
    return copy.deepcopy(mine._state())


def unlabelled(mine: driftwise.LiveLearner, *, alarms: int = 10**9) -> list[Observation]:
    """The rest of `CHANGING` without labels, up to so many batches with drifted classes."""
    seen: list[Observation] = []
    for start, images, _ in CHANGING.batches():
        if mine.num_samples <= start and sum(bool(each.drifted) for each in seen) < alarms:
            seen.append(mine.observe(images))
    return seen
