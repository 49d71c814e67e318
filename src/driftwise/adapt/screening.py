"""Answers to label requests that are probably wrong are set aside before anything is learned from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from driftwise.adapt.base import class_means, features_of
from driftwise.errors import UserError
from driftwise.protocols import AdaptationContext, AsksAgain
from driftwise.stats.wrong_labels import wrong_label_odds
from driftwise.types import Samples

CLEAR = 5.0
"""log odds of a wrong label beyond which asking again is no use"""


@dataclass(frozen=True, kw_only=True)
class Screen:
    """Sets aside fresh samples that lie nearer to another class than to the one they came as.

    Compared are the fresh samples of all drifted classes with one another, and with the classes in
    memory that have not drifted, in the learner's features. Of each class at most as many go as the
    stated share of wrong answers explains, the most doubtful first.

    >>> import driftwise as dw
    >>> adaptation = dw.adapt.Realign(screen=dw.adapt.Screen(share=0.1))
    """

    share: float = 0.2
    """of answers that may be wrong"""
    again: float = 0.0
    """labels for second answers on the most doubtful samples, as a fraction of the first ones; both
    together are as many as without"""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 0.5:
            raise UserError(
                f"the share of wrong answers must lie above 0, up to 0.5; got {self.share}"
            )
        if not 0 <= self.again <= 1:
            raise UserError(f"ask_again must lie from 0 to 1; got {self.again}")

    def first_answers(self, count: int | None) -> int | None:
        """Of so many labels, those for first answers."""
        return count if count is None else math.ceil(count / (1 + self.again))

    def trusted(
        self, fresh: Mapping[int, Samples], context: AdaptationContext, notes: list[str]
    ) -> dict[int, Samples]:
        """The fresh samples of each class without those that are set aside; notes name these."""
        came = [samples for samples in fresh.values() if len(samples)]
        if not came:
            return dict(fresh)
        together = Samples.concat(came)
        features = features_of(together.images, context)
        odds = wrong_label_odds(
            features, together.labels, class_means(context, fresh.keys()), wrong=self.share
        )
        kept = {}
        for label, samples in fresh.items():
            aside = self._aside(label, samples, odds[together.labels == label], context)
            kept[label] = samples[~aside]
            if count := int(aside.sum()):
                notes.append(
                    f"class {label}: {count} of {len(samples)} answers are probably wrong and were "
                    f"set aside (samples {', '.join(map(str, samples.ids[aside].tolist()[:10]))})"
                )
        return kept

    def _aside(
        self, label: int, samples: Samples, odds: Tensor, context: AdaptationContext
    ) -> Tensor:
        """Which samples of a class go, bool (samples,)."""
        aside = odds > 0
        doubtful = odds.argsort(descending=True, stable=True)
        expected = self.share * len(samples)
        most = math.ceil(expected + 2 * math.sqrt(expected * (1 - self.share)))
        aside[doubtful[most:]] = False
        second = math.floor(self.again * len(samples))
        if second and isinstance(context.labels, AsksAgain):
            unclear = doubtful[odds[doubtful] < CLEAR][:second].sort().values
            aside[unclear] = ~context.labels.ask_again(label, samples[unclear])
        return aside
