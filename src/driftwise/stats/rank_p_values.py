"""How unusual a sample is among those before it: p-values that are exactly independent and uniform.

Two scores are fitted to every third sample of a class; the other samples are ranked by them: by the
distance from the centre, with directions weighted by how much they usually vary, and by how far a
sample lies in the direction in which the latest fitted samples have drifted. The p-value of a ranked
sample is its rank by a score among the samples kept from before, ties broken at random.

Why this is exact. Given the fitted samples, the scores are a fixed sequence of functions, and the
ranked samples are exchangeable. The newcomer and the kept samples form a set, from which, once it is
full, one is removed at random, the newcomer as likely as any other. So the set that is left does not
depend on which one the newcomer was: given it and all that follows, each member is equally likely to
be it, and its rank is uniform. Hence every p-value is independent of all later ones, although few
samples are kept and the scores are fitted all the time. (If the newcomer had a smaller probability to
be kept, as in a reservoir, the set would depend on it.)

Each score has p-values of its own. They are not to be used as pairs: a rank by one score depends on
earlier ranks by the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

SCORES = ("direction", "distance")

TEACH_EVERY = 3
"""one in so many samples is fitted to"""
HALF_LIFE = 15
"""fitted samples, after which one weighs half as much for the direction"""
RIDGE = 0.01
"""fraction of the mean variance that is added to that of every direction"""
GROWTH = 1.1
"""centre and variances are computed anew when so many times as many samples have been fitted to"""

_SMALLEST = 2.0**-53
_ROUNDING = 1e-12

Floats = npt.NDArray[np.float64]


class Ranker:
    """Ranks the samples of one class."""

    def __init__(self, width: int, *, kept_rows: int) -> None:
        """For features (width,); at most so many samples are kept to rank others among."""
        self._max_kept = kept_rows
        # The names of the states' keys are those of saved runs.
        self._counts = {"came": 0, "taught": 0, "summed_up": 0}
        self._arrays: dict[str, npt.NDArray[Any]] = {
            "kept": np.empty((0, width), dtype=np.float32),
            "sum": np.zeros(width),
            "squares": np.zeros((width, width)),
            "moved": np.zeros(width),
            "centre": np.zeros(width),
            "whiten": np.eye(width),
            "white": np.empty((0, width), dtype=np.float32),
        }

    def __len__(self) -> int:
        """Samples that others are ranked among."""
        return len(self._arrays["kept"])

    def take(self, sample: Floats, draw: torch.Generator) -> tuple[float, ...] | None:
        """The next sample, (width,): its p-values, one per score, or None: it is fitted to."""
        self._counts["came"] += 1
        single = sample.astype(np.float32)  # as it is kept: else it would differ from itself
        if self._counts["came"] % TEACH_EVERY == 1:
            self.train_step(single.astype(np.float64))
            return None
        of = self._arrays
        white = ((single.astype(np.float64) - of["centre"]) @ of["whiten"]).astype(np.float32)
        of["kept"] = np.concatenate([of["kept"], single[None]])
        of["white"] = np.concatenate([of["white"], white[None]])
        chance = torch.rand(1 + len(SCORES), generator=draw, dtype=torch.float64).tolist()
        p_values = tuple(map(_p_value, self._scores(), chance[1:]))
        if len(self) > self._max_kept:
            removed = int(chance[0] * len(self))
            of["kept"] = np.delete(of["kept"], removed, axis=0)
            of["white"] = np.delete(of["white"], removed, axis=0)
        return p_values

    def _scores(self) -> tuple[npt.NDArray[np.float32], ...]:
        """Of all kept samples, (samples,) each, larger for unusual ones.

        In single precision: equal samples tie, in whatever order their numbers were summed.
        """
        white = self._arrays["white"].astype(np.float64)
        direction = white @ (self._arrays["moved"] @ self._arrays["whiten"])
        distance = np.square(white).sum(axis=1)
        return direction.astype(np.float32), distance.astype(np.float32)

    def train_step(self, sample: Floats) -> None:
        """Fit the scores to a sample, (width,), that is never ranked nor ranked among."""
        of, count = self._arrays, self._counts["taught"]
        if count:
            of["moved"] = 0.5 ** (1 / HALF_LIFE) * of["moved"] + sample - of["sum"] / count
        self._counts["taught"] += 1
        of["sum"] = of["sum"] + sample
        of["squares"] = of["squares"] + np.outer(sample, sample)
        if count + 1 >= max(2.0, GROWTH * self._counts["summed_up"]):
            self._fit()

    def _fit(self) -> None:
        """Centre and variances, from all samples that have been fitted to so far."""
        of, count = self._arrays, self._counts["taught"]
        self._counts["summed_up"] = count
        of["centre"] = of["sum"] / count
        variances = of["squares"] / count - np.outer(of["centre"], of["centre"])
        width = len(variances)
        mean = np.trace(variances) / width
        if mean > _ROUNDING * np.trace(of["squares"]):  # else all samples are equal so far
            variances[np.diag_indices(width)] += RIDGE * mean
            values, vectors = np.linalg.eigh(variances)
            of["whiten"] = vectors / np.sqrt(values.clip(min=RIDGE * mean / 2))
        of["white"] = ((of["kept"] - of["centre"]) @ of["whiten"]).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        arrays = {name: torch.from_numpy(each.copy()) for name, each in self._arrays.items()}
        return {**self._counts, **arrays}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._counts = {name: state[name] for name in self._counts}
        self._arrays = {name: state[name].numpy().copy() for name in self._arrays}


def _p_value(scores: npt.NDArray[np.float32], chance: float) -> float:
    """The last one's rank from the top among all, ties broken by chance, over their number."""
    newest = scores[-1]
    larger = int((scores > newest).sum())
    ties = int((scores == newest).sum())
    p_value = (larger + ties * chance) / len(scores)
    return min(max(p_value, _SMALLEST), 1 - _SMALLEST)
