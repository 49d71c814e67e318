"""Labels where they bring most: a class gets as many as its expected gain in accuracy is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from driftwise.adapt.base import Adaptation, has_labels
from driftwise.adapt.weighing import weighed
from driftwise.errors import UserError
from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Samples, Verdict

PRIOR = 2.0
"""labels that the record of a class counts for at its next alarm, and those of the prior"""
FADING = 0.8
"""weight of the record after each further check: a class may change unnoticed"""


class SpendByGain(Adaptation):
    """Asks for `slots x harm x fraction drifted x recoverability` labels of each class.

    - harm: the error on the labels that came lately, those of monitored samples or the requested ones
      (a sample requested as this class that is another counts as an error), a posterior mean;
    - fraction drifted: the detector's, halved at every check without an alarm, never below `unnoticed`;
    - recoverability: the part of the error that earlier labels of the class have removed, a posterior mean.

    Every checked class takes part, drifted or not, so that slow changes which no test notices get a
    few labels all the time, and a drifted class that costs nothing gets hardly any. Fractions of a label
    are carried over.

    The fresh labels also decide how much the old samples of a class still count
    (`stats.old_weight`): they all stay where the labels show no use in dropping them, and all go where
    they are in the way.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> loop = dw.DriftLoop(learner, detector=dw.detect.KS(), adaptation=dw.adapt.SpendByGain(unnoticed=0.05))
    """

    def __init__(self, *, unnoticed: float = 0.1, adapt_from: float = 0.02) -> None:
        """The rule's two settings.

        Args:
            unnoticed: fraction that may have drifted where the detector finds nothing.
            adapt_from: expected gain, as a fraction of a class's slots, below which a drifted class is
                not adapted to.
        """
        for name, value in (("unnoticed", unnoticed), ("adapt_from", adapt_from)):
            if not 0 <= value <= 1:
                raise UserError(f"{name} must lie between 0 and 1; got {value}")
        self._unnoticed = unnoticed
        self._adapt_from = adapt_from
        self._classes: dict[int, _Record] = {}

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Spend labels over the checked classes by expected gain."""
        alarms = {verdict.label: verdict for verdict in drifted}
        counts = context.buffer.counts()
        labels = sorted(alarms.keys() | (context.tested & counts.keys()))
        self._count_monitored(labels, context)
        notes: list[str] = []
        wanted: dict[int, int] = {}
        for label in labels:
            record = self._classes.setdefault(label, _Record())
            slots = context.buffer.slots_of(label)
            if not slots:
                notes.append(f"class {label} has no samples in memory: nothing to realign")
                continue
            gain = record.gain(alarms.get(label), self._unnoticed)
            if label in alarms and gain < self._adapt_from:
                notes.append(
                    f"class {label}: an expected gain of {100 * gain:.1f} points, not adapted"
                )
                continue
            record.owed += gain * slots
            if (count := min(slots, int(record.owed))) >= 1:
                wanted[label] = count
                record.owed -= count
        granted = context.labels.spread(dict(wanted)) if wanted else {}
        asked = {}
        for label in wanted:
            if not (count := granted[label] or 0):
                notes.append(f"class {label}: no labels are left in the budget")
                continue
            fresh = context.labels.ask(label, count)
            self._classes[label].count_requested(fresh, label, count, context)
            if not len(fresh):
                notes.append(f"class {label}: no fresh samples were granted, its old ones stay")
                continue
            asked[label] = fresh
        if not asked:
            return AdaptationResult(notes=tuple(notes))
        mixtures = weighed(asked, context)
        for label, mixture in mixtures.items():
            context.buffer.drop(label, mixture.going)
            context.buffer.put(mixture.coming, context.annotate(mixture.coming))
        over = Samples.concat([each.over for each in mixtures.values()])
        return AdaptationResult(
            extra=over if len(over) else None,
            refilled=Samples.concat([each.coming for each in mixtures.values()]),
            renewed=tuple(label for label in asked if label in alarms),
            notes=tuple(notes),
        )

    def _count_monitored(self, labels: Sequence[int], context: AdaptationContext) -> None:
        """Errors on labelled monitored samples, which cost no further label."""
        monitored = context.monitored() if labels else None
        if monitored is None or not has_labels(monitored):
            return
        right = context.encode(monitored.images).logits.argmax(dim=1) == monitored.labels
        for label in labels:
            mine = monitored.labels == label
            record = self._classes.setdefault(label, _Record())
            record.count(int(mine.sum()), int((mine & ~right).sum()))

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {str(label): dict(vars(record)) for label, record in self._classes.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._classes = {}
        for label, kept in state.items():
            vars(self._classes.setdefault(int(label), _Record())).update(kept)


class _Record:
    """What is known of one class: errors on recent labels, and what labels have brought before."""

    def __init__(self) -> None:
        self.labels = 0.0
        self.wrong = 0.0
        self.share = 0.0
        self.owed = 0.0
        self.removed = PRIOR
        """points of error that labels have removed, of `tried`; at first all are taken to be removable"""
        self.tried = PRIOR
        self.error_before = -1.0
        """the error when labels were last spent; below 0: none were since"""

    @property
    def error(self) -> float:
        """Posterior mean, from a uniform prior."""
        return (self.wrong + 1) / (self.labels + 2)

    def gain(self, alarm: Verdict | None, unnoticed: float) -> float:
        """Expected gain, 0 to 1: harm x fraction drifted x recoverability."""
        self.share = max(unnoticed, self.share / 2)
        harm = self.error
        if alarm is not None:
            self.share = max(self.share, 1.0 if alarm.share is None else alarm.share)
            if alarm.harm is not None:
                harm = max(0.0, alarm.harm / 100)
            else:  # what was known of the class is of an earlier concept
                self._weigh(min(1.0, PRIOR / max(self.labels, 1e-9)))
                harm = self.error
        return harm * self.share * self.removed / self.tried

    def count(self, labels: int, wrong: int) -> None:
        """So many labels came, of so many wrongly predicted samples."""
        if labels and self.error_before >= 0:
            removed = self.error_before - wrong / labels
            self.removed += min(max(0.0, removed), self.error_before)
            self.tried += self.error_before
            self.error_before = -1.0
        self._weigh(FADING)
        self.labels += labels
        self.wrong += wrong

    def count_requested(
        self, fresh: Samples, label: int, count: int, context: AdaptationContext
    ) -> None:
        """Labels were requested for this class; those that are missing belong to other classes."""
        right = 0
        if len(fresh):
            predicted = context.encode(fresh.images).logits.argmax(dim=1)
            right = int((predicted == label).sum())
        asked = max(count, len(fresh))
        self.count(asked, asked - right)
        self.error_before = self.error

    def _weigh(self, factor: float) -> None:
        self.labels *= factor
        self.wrong *= factor
