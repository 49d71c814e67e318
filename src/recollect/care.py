"""Watch, mend, teach: what a benchmark's loop and a live model have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from recollect.shapes import Adaptation, FollowsUp, Learner, Ledger, Monitor, Watched, Workbench
from recollect.types import Repair, Rows, StepReport, Verdict


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
            return self.adaptation.repair(drifted, bench)

    def teach(self, batch: Rows) -> StepReport:
        """One step."""
        report = self.learner.observe(batch)
        self.ledger.add_step()
        return report

    def follow_up(self, bench: Workbench) -> tuple[str, ...]:
        """Go on with repairs that take longer, between what was taught and what comes next."""
        if not isinstance(self.adaptation, FollowsUp):
            return ()
        with self.ledger.phase("adapt"):
            return self.adaptation.follow_up(bench)

    def settle(self, watched: Watched, labels: Sequence[int], learned: Rows) -> None:
        """These classes have been learned as they look now: from here on they are watched so."""
        with self.ledger.phase("detect"):
            self.monitor.renew(watched, labels, learned)
