"""A live learner at work in a process of its own, made or loaded, until its stream is over."""

from __future__ import annotations

import json
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import driftwise
from driftwise.datasets.readers.digits import load_digits
from driftwise.live import events
from driftwise.runs import store

BATCH = 10
SOON: dict[str, Any] = {
    "buffer_size": 80,
    "lr": 0.05,
    "optimiser": "sgd",
    "minibatch_size": 20,
    "watch_every": 3,
    "reference_size": 15,
    "check_rows": 10,
    "catch_up_steps": 10,
    "replay_steps": 1,
}
"""Settings for streams that are over after a few hundred samples."""


class Stream:
    """Digits in an order of the seed's, of which all change from the middle on.

    What comes with a batch depends on its number only, so that it can be taken up anywhere.
    """

    def __init__(self, work: dict[str, Any]) -> None:
        data, draw = load_digits(), np.random.default_rng(work["seed"])
        order = draw.permutation(np.flatnonzero(data.labels < 5))
        self.labels = data.labels[order]
        images = data.images[order].copy()
        drifted = np.arange(len(order)) >= work["samples"] // 2
        images[drifted] = (
            images[drifted].reshape(-1, 64)[:, draw.permutation(64)].reshape(-1, 8, 8, 1)
        )
        self.history = data.images[order[-200:]], self.labels[-200:]
        self.known = draw.random(len(order)) < work["known"]
        self.images: np.ndarray = images
        if work["as_floats"]:
            self.images = images.astype(np.float32) / 255
            self.images[draw.integers(100, len(order), 3)] = 1000.0
            self.history = self.history[0].astype(np.float32) / 255, self.history[1]

    def given(self, batch: slice) -> list[int | None]:
        """The labels that come with a batch."""
        pairs = zip(self.labels[batch].tolist(), self.known[batch].tolist(), strict=True)
        return [label if known else None for label, known in pairs]


def feed(work: dict[str, Any], folder: Path) -> None:
    """From wherever the folder stands to the end."""
    torch.set_num_threads(1)
    events.LOG_BYTES = work["log_bytes"]
    stream = Stream(work)
    answers = (lambda request: stream.labels[request.ids]) if work["asks"] else None
    own = _network() if work["network"] == "own" else None
    if store.is_run(folder):
        live_learner = driftwise.LiveLearner.load(folder, own, labels=answers)
    else:
        settings = {**SOON, **work["settings"]}
        live_learner = driftwise.LiveLearner(
            own or work["network"], folder=folder, labels=answers, **settings
        )
    if work["history"] and not live_learner.num_samples:
        live_learner.fit_reference(*stream.history)
    for number in range(live_learner.num_samples // BATCH, work["samples"] // BATCH):
        late = slice((number - work["late"]) * BATCH, (number - work["late"] + 1) * BATCH)
        if late.start >= 0:
            ids = np.arange(late.start, late.stop)[~stream.known[late]]
            live_learner.answer(ids, stream.labels[ids])
        if number % 7 == 3:
            live_learner.rehearse(2)
        batch = slice(number * BATCH, (number + 1) * BATCH)
        live_learner.observe(stream.images[batch], stream.given(batch))
        if work["saves"] and number % work["saves"] == 0:
            live_learner.save()
    live_learner.close()


def _network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = (torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    return torch.nn.Sequential(torch.nn.Flatten(), *layers)


def main(words: list[str]) -> int:
    """Like a command: 0, or 1 with what went wrong on the error stream."""
    warnings.simplefilter("ignore")
    try:
        feed(json.loads(words[0]), Path(words[1]))
    except Exception:
        traceback.print_exc()
        return 1
    return 0
