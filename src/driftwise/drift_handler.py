"""Check for drift, adapt, train: what a benchmark's loop and a live learner share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from driftwise.errors import UserError
from driftwise.protocols import (
    Adaptation,
    AdaptationContext,
    AdaptsLater,
    Learner,
    Ledger,
    Monitor,
    MonitoredTask,
)
from driftwise.types import AdaptationResult, Samples, StepReport, Verdict


def _checked(result: object, adaptation: Adaptation) -> AdaptationResult:
    """What an adaptation has returned; UserError where it breaks the contract."""
    name = f"{type(adaptation).__name__}.adapt"
    if not isinstance(result, AdaptationResult):
        came = "None" if result is None else f"a {type(result).__name__}"
        raise UserError(f"{name} must return an AdaptationResult; it returned {came}")
    for field in ("extra", "refilled"):
        if not isinstance(samples := getattr(result, field), Samples | None):
            raise UserError(
                f"{name}: {field} must be Samples or None; got a {type(samples).__name__}"
            )
    if not isinstance(result.renewed, tuple) or not all(
        isinstance(label, int) for label in result.renewed
    ):
        raise UserError(f"{name}: renewed must be a tuple of class numbers; got {result.renewed!r}")
    _check_notes(result.notes, f"{name}: notes")
    return result


def _check_notes(notes: object, name: str) -> None:
    if not isinstance(notes, tuple) or not all(isinstance(note, str) for note in notes):
        raise UserError(f"{name} must be a tuple of texts; got {notes!r}")


@dataclass(frozen=True, kw_only=True)
class DriftHandler:
    """Monitor, adaptation and learner of one loop, with the ledger of their costs."""

    monitor: Monitor
    adaptation: Adaptation
    learner: Learner
    ledger: Ledger

    def check_and_adapt(
        self, monitored: MonitoredTask, context: AdaptationContext
    ) -> tuple[tuple[Verdict, ...], AdaptationResult]:
        """Check the known classes, and adapt to what has drifted."""
        with self.ledger.phase("detect"):
            verdicts = tuple(self.monitor.check(monitored))
        drifted = [verdict for verdict in verdicts if verdict.needs_adaptation]
        tested = frozenset(each.label for each in verdicts if each.drifted is not None)
        return verdicts, self.adapt(drifted, replace(context, tested=tested))

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Adapt to what is known to have drifted."""
        with self.ledger.phase("adapt"):
            return _checked(self.adaptation.adapt(drifted, context), self.adaptation)

    def train_step(self, batch: Samples) -> StepReport:
        """One train step."""
        report = self.learner.observe(batch)
        self.ledger.add_step()
        return report

    def follow_up(self, context: AdaptationContext) -> tuple[str, ...]:
        """Go on with adaptations that take longer, between a task and the next."""
        if not isinstance(self.adaptation, AdaptsLater):
            return ()
        with self.ledger.phase("adapt"):
            notes = self.adaptation.follow_up(context)
        _check_notes(notes, f"what {type(self.adaptation).__name__}.follow_up returns")
        return notes

    def renew_reference(
        self, monitored: MonitoredTask, labels: Sequence[int], learned: Samples
    ) -> None:
        """These classes were learned in their current concept, which is their reference from now on."""
        with self.ledger.phase("detect"):
            self.monitor.renew(monitored, labels, learned)
