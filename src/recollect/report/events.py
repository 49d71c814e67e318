"""The truth about drift, in words, and what a verdict was worth in its light."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from recollect.report.run import DriftEvent, Run, Verdict


class Outcome(enum.Enum):
    """What a verdict turned out to be."""

    FOUND = "drift, found"
    MISSED = "drift, missed"
    FALSE_ALARM = "false alarm"
    QUIET = "no drift, none claimed"
    UNTESTABLE = "not testable"


def outcome_of(verdict: Verdict, run: Run) -> Outcome:
    """Judge a verdict: a claim is right while a class is stale.

    A class is stale from its drift until it has been met with fresh samples. That happens after a
    task's check, so it counts from the next task on.
    """
    if verdict.drifted is None:
        return Outcome.UNTESTABLE
    drifts = [e.task for e in run.events if verdict.label in e.classes and e.task <= verdict.task]
    last = max(drifts, default=None)
    is_stale = last is not None and not any(
        (task, verdict.label) in run.renewals for task in range(last, verdict.task)
    )
    if is_stale:
        return Outcome.FOUND if verdict.drifted else Outcome.MISSED
    return Outcome.FALSE_ALARM if verdict.drifted else Outcome.QUIET


def range_words(numbers: Iterable[int]) -> str:
    """Class numbers, neighbours drawn together.

    >>> range_words([0, 1, 2, 5, 7, 8])
    'classes 0–2, 5, 7–8'
    """
    found = spans(numbers)
    words = [f"{first}" if first == last else f"{first}–{last}" for first, last in found]
    is_one = len(found) == 1 and found[0][0] == found[0][1]
    return f"class{'' if is_one else 'es'} {', '.join(words)}"


def spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each row of neighbours.

    >>> spans([5, 0, 1, 2])
    [(0, 2), (5, 5)]
    """
    known = set(numbers)
    firsts = sorted(number for number in known if number - 1 not in known)
    lasts = sorted(number for number in known if number + 1 not in known)
    return list(zip(firsts, lasts, strict=True))


def describe_events(run: Run) -> str:
    """One sentence about all drift events of a stream."""
    if not run.events:
        return "Nothing drifts in this stream."
    return "Drift events: " + "; ".join(_describe(event) for event in run.events) + "."


def _describe(event: DriftEvent) -> str:
    severity = "" if event.severity is None else f", severity {event.severity:g}"
    return f"task {event.task}: {range_words(event.classes)} ({event.transform}{severity})"
