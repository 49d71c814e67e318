"""A stream of real handwritten digits whose classes drift while you watch."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path

import numpy as np

from driftwise.datasets.readers.digits import load_digits
from driftwise.errors import RunFailure, UserError
from driftwise.serve.server import Learning, open_service
from driftwise.serve.service import Service
from driftwise.serve.settings import ServeSettings

CLASSES = 5
BATCH = 10
LABELLED = 40
"""batches that come with labels, as fast as they are learned"""
QUIET = 16
"""batches after them, without labels, before the first drift"""
BETWEEN = 480
"""batches between one drift and the next: about two minutes, to label twenty samples in"""
PROBE_EVERY, PROBE = 4, 100
"""batches between two probes, and samples of one"""
SECONDS = 0.25
"""between two batches without labels"""
DRIFTS = (3, 1, 4)
"""the classes that drift, one after the other: their images are inverted"""

LEARNING = Learning(
    network="mlp",
    settings={
        "label_budget": 200,
        "check_rows": 20,
        "reference_size": 30,
        "watch_every": 3,
        "buffer_size": 200,
        "detector": "mmd",
    },
)


class Demo:
    """Feeds a service from a thread of its own."""

    def __init__(self, *, seconds: float = SECONDS, seed: int = 0) -> None:
        """`seconds`: between two batches without labels."""
        digits = load_digits()
        kept = np.flatnonzero(digits.labels < CLASSES)
        order = np.random.default_rng(seed).permutation(kept)
        images, labels = digits.images[order], digits.labels[order]
        held_out = len(order) // 4
        self._held_out = images[:held_out], labels[:held_out]
        self._images, self._labels = images[held_out:], labels[held_out:]
        self._seconds = seconds
        self._stop = threading.Event()
        self.truth: list[int] = []
        """the label of every sample sent, by id"""

    def open(self, folder: Path, *, mode: str | None = None) -> Service:
        """A service for this stream."""
        settings = ServeSettings(class_names=tuple(map(str, range(CLASSES))), save_seconds=20)
        return open_service(folder, LEARNING, settings, mode=mode)

    def start(self, service: Service) -> None:
        """Feed a service until it stops."""
        threading.Thread(target=self._run, args=(service,), name="demo", daemon=True).start()

    def stop(self) -> None:
        """Send nothing more."""
        self._stop.set()

    def drifted(self, number: int) -> tuple[int, ...]:
        """The classes that have drifted when a batch is sent."""
        since = number - LABELLED - QUIET
        return () if since < 0 else DRIFTS[: 1 + since // BETWEEN]

    def batch(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The samples of a batch, and their labels."""
        draw = np.random.default_rng([number, 1])
        chosen = draw.integers(0, len(self._labels), BATCH)
        return self._concept(self._images[chosen], self._labels[chosen], number)

    def probe(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Held-out samples as they look when a batch is sent, and their labels."""
        draw = np.random.default_rng([number, 2])
        chosen = draw.permutation(len(self._held_out[1]))[:PROBE]
        return self._concept(self._held_out[0][chosen], self._held_out[1][chosen], number)

    def _concept(
        self, images: np.ndarray, labels: np.ndarray, number: int
    ) -> tuple[np.ndarray, np.ndarray]:
        images = images.copy()
        inverted = np.isin(labels, self.drifted(number))
        images[inverted] = 255 - images[inverted]
        return images, labels

    def send(self, service: Service, number: int) -> None:
        """One batch, and a probe where one is due."""
        x, y = self.batch(number)
        is_labelled = number < LABELLED
        service.observe(x, y.tolist() if is_labelled else None, by="demo").result(60)
        self.truth += y.tolist()
        if number and number % PROBE_EVERY == 0:
            x, y = self.probe(number)
            service.probe(x, y.tolist(), by="demo").result(60)

    def _run(self, service: Service) -> None:
        number = service.live.num_samples // BATCH
        while service.ready and not self._stop.is_set():
            with contextlib.suppress(RunFailure, UserError, FutureTimeout):
                self.send(service, number)
            number += 1
            self._stop.wait(0.0 if number < LABELLED else self._seconds)
