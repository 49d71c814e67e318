"""How odd a sample is among those before it: p-values that are exactly independent and uniform.

Every third sample of a class teaches, the others are ranked. What has been taught are two scores:
how far a sample lies from the centre, with directions weighed by how much they usually vary, and how
far it lies in the direction in which the samples taught last have moved away. A ranked sample's p-value
is its rank by a score among the samples kept from before, ties broken at random.

Why this is exact. Take the samples that teach as given: then the scores are a fixed sequence of
functions, and the ranked samples are as exchangeable as ever. The newcomer and the kept samples make a
bag, out of which, once it is full, one goes at random, the newcomer as likely as any other. So what
is left does not tell which one the newcomer was: given it and all that follows, each of the bag is
equally likely to be it, and its rank is uniform. Hence every p-value is independent of all later
ones, although only so many samples are kept and the scores learn all the time. (Had the newcomer a
smaller chance to be kept, as in a reservoir, what is left would tell.)

Each score has p-values of its own. They must not be looked at as pairs: what one score has ranked
tells something of the next rank by the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

SCORES = ("direction", "distance")

TEACH_EVERY = 3
HALF_LIFE = 15
"""samples that teach, after which one weighs half as much for the direction"""
RIDGE = 0.01
"""part of the mean variance that is added to that of every direction"""
GROWTH = 1.1
"""what was taught is summed up anew when so many times as many samples have taught"""

Floats = npt.NDArray[np.float64]


class Ranker:
    """Ranks the samples of one class."""

    def __init__(self, width: int, *, kept_rows: int) -> None:
        """For features (width,); at most so many samples are kept to rank others among."""
        self._max_kept = kept_rows
        self._came = 0
        self._kept = np.empty((0, width), dtype=np.float32)
        self._taught = 0
        self._sum = np.zeros(width)
        self._squares = np.zeros((width, width))
        self._moved = np.zeros(width)
        self._summed_up = 0
        self._centre = np.zeros(width)
        self._whiten = np.eye(width)
        self._white = np.empty((0, width), dtype=np.float32)

    def __len__(self) -> int:
        """Samples that others are ranked among."""
        return len(self._kept)

    def take(self, sample: Floats, draw: torch.Generator) -> tuple[float, ...] | None:
        """The next sample, (width,): its p-values, one per score, or None: it has taught."""
        self._came += 1
        sample = sample.astype(np.float32).astype(
            np.float64
        )  # as it is kept: or it would differ from it
        if self._came % TEACH_EVERY == 1:
            self.train_step(sample)
            return None
        white = ((sample - self._centre) @ self._whiten).astype(np.float32)
        self._kept = np.concatenate([self._kept, sample[None].astype(np.float32)])
        self._white = np.concatenate([self._white, white[None]])
        chance = torch.rand(1 + len(SCORES), generator=draw, dtype=torch.float64).tolist()
        p_values = tuple(map(_p_value, self._scores(), chance[1:]))
        if len(self._kept) > self._max_kept:
            goes = int(chance[0] * len(self._kept))
            self._kept = np.delete(self._kept, goes, axis=0)
            self._white = np.delete(self._white, goes, axis=0)
        return p_values

    def _scores(self) -> tuple[npt.NDArray[np.float32], ...]:
        """Of all kept samples, (samples,) each, the odder the larger.

        In single precision: equal samples tie, in whatever order their numbers were summed.
        """
        white = self._white.astype(np.float64)
        direction = white @ (self._moved @ self._whiten)
        distance = np.square(white).sum(axis=1)
        return direction.astype(np.float32), distance.astype(np.float32)

    def train_step(self, sample: Floats) -> None:
        """Learn from a sample, (width,), that is never ranked nor ranked among."""
        if self._taught:
            self._moved = 0.5 ** (1 / HALF_LIFE) * self._moved + sample - self._sum / self._taught
        self._taught += 1
        self._sum = self._sum + sample
        self._squares = self._squares + np.outer(sample, sample)
        if self._taught >= max(2.0, GROWTH * self._summed_up):
            self._sum_up()

    def _sum_up(self) -> None:
        """Centre and variances, from all samples that have taught so far."""
        self._summed_up = self._taught
        self._centre = self._sum / self._taught
        variances = self._squares / self._taught - np.outer(self._centre, self._centre)
        width = len(variances)
        mean = np.trace(variances) / width
        if mean > _ROUNDING * np.trace(self._squares):  # else all samples are alike so far
            variances[np.diag_indices(width)] += RIDGE * mean
            values, vectors = np.linalg.eigh(variances)
            self._whiten = vectors / np.sqrt(values.clip(min=RIDGE * mean / 2))
        self._white = ((self._kept - self._centre) @ self._whiten).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        counts = {name: getattr(self, f"_{name}") for name in _COUNTS}
        arrays = {name: torch.from_numpy(getattr(self, f"_{name}").copy()) for name in _ARRAYS}
        return {**counts, **arrays}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        for name in _COUNTS:
            setattr(self, f"_{name}", state[name])
        for name in _ARRAYS:
            setattr(self, f"_{name}", state[name].numpy().copy())


_COUNTS = ("came", "taught", "summed_up")
_ARRAYS = ("kept", "sum", "squares", "moved", "centre", "whiten", "white")


def _p_value(scores: npt.NDArray[np.float32], chance: float) -> float:
    """The last one's rank from the top among all, ties broken by chance, over their number."""
    newest = scores[-1]
    odder = int((scores > newest).sum())
    ties = int((scores == newest).sum())
    p_value = (odder + ties * chance) / len(scores)
    return min(max(p_value, _SMALLEST), 1 - _SMALLEST)


_SMALLEST = 2.0**-53
_ROUNDING = 1e-12
