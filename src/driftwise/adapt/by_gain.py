"""Labels where they bring most: a class gets as many as its expected gain in accuracy is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from driftwise.adapt.base import Adaptation, class_means, features_of
from driftwise.adapt.weighing import weighed
from driftwise.errors import UserError
from driftwise.protocols import AdaptationContext
from driftwise.stats.label_gain import labels_by_gain, label_slopes
from driftwise.types import AdaptationResult, Samples, Verdict

FEWEST = 5
"""labels of the first request: fewer do not show what more would bring"""


class SpendByGain(Adaptation):
    """Asks for a part of the labels, and for the rest where they are expected to bring most.

    Each drifted class gets `first` of the labels that a realignment would ask for. They show how fast
    its error falls with the number of labels (`stats.label_gain`). The others are spent one by one on the
    class where the next one gains most, and not at all where none gains anything; what is left is kept
    for a later drift. So there are never more labels than realignment would have asked for by then.

    The fresh labels also decide how much the old samples of a class still count
    (`stats.old_weight`): they all stay where the labels show no use in dropping them, and all go where
    they are in the way.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> loop = dw.DriftLoop(learner, detector=dw.detect.KS(), adaptation=dw.adapt.SpendByGain(first=0.4))
    """

    def __init__(self, *, first: float = 0.5, most: float = 3.0) -> None:
        """The rule's two settings.

        Args:
            first: fraction of a realignment's labels that every drifted class gets.
            most: labels that a class gets at most at a time, as a multiple of a realignment's.
        """
        if not 0 < first <= 1:
            raise UserError(f"first must lie above 0, up to 1; got {first}")
        if not most >= 1:
            raise UserError(f"most must be at least 1; got {most}")
        self._first = first
        self._most = most
        self._saved = 0

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Spend labels over the drifted classes by expected gain."""
        notes: list[str] = []
        slots = {}
        for verdict in drifted:
            if count := context.buffer.slots_of(verdict.label):
                slots[verdict.label] = count
            else:
                notes.append(f"class {verdict.label} has no samples in memory: nothing to realign")
        first = {c: min(n, max(FEWEST, math.ceil(self._first * n))) for c, n in slots.items()}
        fresh = _ask(first, context)
        notes += [
            f"class {label}: no fresh samples were granted, its old ones stay"
            for label in slots
            if label not in fresh
        ]
        self._saved += sum(slots[label] - len(samples) for label, samples in fresh.items())
        if not fresh:
            return AdaptationResult(notes=tuple(notes))
        together = Samples.concat(list(fresh.values()))
        features = features_of(together.images, context)
        more = labels_by_gain(
            label_slopes(features, together.labels, class_means(context, fresh)),
            {label: len(samples) for label, samples in fresh.items()},
            self._saved,
            most={label: int(self._most * slots[label]) for label in fresh},
        )
        for label, samples in _ask({c: n for c, n in more.items() if n}, context).items():
            self._saved -= len(samples)
            fresh[label] = Samples.concat([fresh[label], samples])
        mixtures = weighed(fresh, context)
        for label, mixture in mixtures.items():
            notes.append(f"class {label}: {len(fresh[label])} labels of {slots[label]}")
            context.buffer.drop(label, mixture.going)
            context.buffer.put(mixture.coming, context.annotate(mixture.coming))
        over = Samples.concat([each.over for each in mixtures.values()])
        return AdaptationResult(
            extra=over if len(over) else None,
            refilled=Samples.concat([each.coming for each in mixtures.values()]),
            renewed=tuple(fresh),
            notes=tuple(notes),
        )

    def state_dict(self) -> dict[str, Any]:
        """The labels that are left for a later drift."""
        return {"saved": self._saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._saved = int(state["saved"])


def _ask(wanted: Mapping[int, int], context: AdaptationContext) -> dict[int, Samples]:
    """Fresh samples of each class that any are granted for."""
    granted = context.labels.spread(dict(wanted)) if wanted else {}
    asked = {c: context.labels.ask(c, count) for c, count in granted.items() if count != 0}
    return {label: samples for label, samples in asked.items() if len(samples)}
