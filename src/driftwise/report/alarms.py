"""False alarms, counted in the unit in which their rate was promised."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from driftwise.report.cells import Cell
from driftwise.report.events import Outcome, drifted_checks, outcomes_of
from driftwise.report.run import Run

UNCHANGED = (Outcome.QUIET, Outcome.FALSE_ALARM)
"""What a check of an unchanged class may come to."""


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a detector promises about false alarms."""

    level: float | None
    """None: nothing is promised"""
    correction: str
    """for what: none for each class alone, benjamini-hochberg for the share of all alarms that are
    false, any other for all classes of a check together"""
    whole_stream: bool
    """for all checks of a run together, not for each"""
    monitor_labels: str
    """unless given, samples of drifted classes are among those of others: the promise is for checks at
    which all classes are unchanged"""

    @property
    def each_class(self) -> bool:
        """Whether a class, not a check, is what may raise a false alarm."""
        return self.correction == "none" and self.monitor_labels != "unknown"

    @property
    def all_unchanged(self) -> bool:
        """Whether it is for checks only at which nothing is drifted."""
        return self.monitor_labels != "given"

    @property
    def share_of_alarms(self) -> bool:
        """Whether a share of the alarms is promised; where nothing drifts, all of them are false,
        and the promise is one about checks."""
        return self.correction == "benjamini-hochberg" and not self.all_unchanged


@dataclass(frozen=True, kw_only=True)
class FalseAlarms:
    """What happened."""

    alarmed: float
    """trials with a false alarm; or the shares of false alarms, added over trials"""
    trials: int
    """at least one"""


def promise_of(run: Run) -> Promise:
    """What the detector of a run promises, by the run's configuration."""
    options = run.config.get("options")
    detector = options.get("detector") if isinstance(options, Mapping) else None
    choices = detector if isinstance(detector, Mapping) else {}
    level = choices.get("level")
    # A gap chosen by hand promises nothing.
    is_promised = isinstance(level, float) and choices.get("max_statistic") is None
    return Promise(
        level=level if is_promised else None,
        correction=str(choices.get("correction", "none")) if is_promised else "none",
        whole_stream=is_promised and choices.get("spending", "none") != "none",
        monitor_labels=run.monitor_labels,
    )


def false_alarms_of(cell: Cell) -> FalseAlarms | None:
    """Over all runs, in the unit of what the first promises; None: there was nothing to count."""
    promise = promise_of(cell.first)
    count = _false_shares if promise.share_of_alarms else _trials
    found = [each for run in cell.runs for each in count(run, promise)]
    return FalseAlarms(alarmed=sum(found), trials=len(found)) if found else None


def _trials(run: Run, promise: Promise) -> list[float]:
    """For each trial, 1 if it raised a false alarm."""
    left_out = drifted_checks(run) if promise.all_unchanged else frozenset()
    alarmed: dict[tuple[int | None, int | None], float] = {}
    for verdict, outcome in zip(run.verdicts, outcomes_of(run), strict=True):
        if verdict.task not in left_out and outcome in UNCHANGED:
            when = None if promise.whole_stream else verdict.task
            whom = verdict.label if promise.each_class else None
            is_false = float(outcome is Outcome.FALSE_ALARM)
            alarmed[when, whom] = max(is_false, alarmed.get((when, whom), 0.0))
    return list(alarmed.values())


def _false_shares(run: Run, promise: Promise) -> list[float]:
    """For each check of unchanged classes, the share of its alarms that are false; 0: no alarm."""
    by_task: defaultdict[int, Counter[Outcome]] = defaultdict(Counter)
    for verdict, outcome in zip(run.verdicts, outcomes_of(run), strict=True):
        by_task[verdict.task][outcome] += 1
    shares = [
        met[Outcome.FALSE_ALARM] / max(1, met[Outcome.FALSE_ALARM] + met[Outcome.FOUND])
        for met in by_task.values()
        if any(met[outcome] for outcome in UNCHANGED)
    ]
    return [sum(shares)] if shares and promise.whole_stream else shares
