"""Watch, mend, teach: what a benchmark's loop and a live model have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from driftwise.errors import UserError
from driftwise.protocols import Adaptation, FollowsUp, Learner, Ledger, Monitor, Watched, Workbench
from driftwise.types import Repair, Samples, StepReport, Verdict


def _checked(repair: object, adaptation: Adaptation) -> Repair:
    """What an adaptation has returned, if it is what it must be."""
    name = f"{type(adaptation).__name__}.repair"
    if not isinstance(repair, Repair):
        came = "None" if repair is None else f"a {type(repair).__name__}"
        raise UserError(f"{name} must return a Repair; it returned {came}")
    for field in ("extra", "refilled"):
        if not isinstance(samples := getattr(repair, field), Samples | None):
            raise UserError(
                f"{name}: {field} must be Samples or None; got a {type(samples).__name__}"
            )
    if not isinstance(repair.renewed, tuple) or not all(
        isinstance(label, int) for label in repair.renewed
    ):
        raise UserError(f"{name}: renewed must be a tuple of class numbers; got {repair.renewed!r}")
    _check_notes(repair.notes, f"{name}: notes")
    return repair


def _check_notes(notes: object, name: str) -> None:
    if not isinstance(notes, tuple) or not all(isinstance(note, str) for note in notes):
        raise UserError(f"{name} must be a tuple of texts; got {notes!r}")


@dataclass(frozen=True, kw_only=True)
class Care:
    """The parts that look after one learner, and what their work costs."""

    monitor: Monitor
    adaptation: Adaptation
    learner: Learner
    ledger: Ledger

    def attend(self, watched: Watched, bench: Workbench) -> tuple[tuple[Verdict, ...], Repair]:
        """Check the known classes, and repair what has drifted."""
        with self.ledger.phase("detect"):
            verdicts = tuple(self.monitor.check(watched))
        drifted = [verdict for verdict in verdicts if verdict.calls_for_repair]
        tested = frozenset(each.label for each in verdicts if each.drifted is not None)
        return verdicts, self.mend(drifted, replace(bench, tested=tested))

    def mend(self, drifted: Sequence[Verdict], bench: Workbench) -> Repair:
        """Repair what is known to have drifted."""
        with self.ledger.phase("adapt"):
            return _checked(self.adaptation.repair(drifted, bench), self.adaptation)

    def teach(self, batch: Samples) -> StepReport:
        """One step."""
        report = self.learner.observe(batch)
        self.ledger.add_step()
        return report

    def follow_up(self, bench: Workbench) -> tuple[str, ...]:
        """Go on with repairs that take longer, between what was taught and what comes next."""
        if not isinstance(self.adaptation, FollowsUp):
            return ()
        with self.ledger.phase("adapt"):
            notes = self.adaptation.follow_up(bench)
        _check_notes(notes, f"what {type(self.adaptation).__name__}.follow_up returns")
        return notes

    def settle(self, watched: Watched, labels: Sequence[int], learned: Samples) -> None:
        """These classes have been learned as they look now: from here on they are watched so."""
        with self.ledger.phase("detect"):
            self.monitor.renew(watched, labels, learned)
