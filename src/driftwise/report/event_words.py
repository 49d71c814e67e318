"""The true drift events of a stream in words, and whether a verdict was right."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from driftwise.report.saved_run import DriftEvent, Run, few

MOST = 20
"""Events, or groups of classes, that a sentence names; more are counted."""


class Outcome(enum.Enum):
    """What a verdict turned out to be."""

    FOUND = "drift, found"
    MISSED = "drift, missed"
    FALSE_ALARM = "false alarm"
    BESIDE = "flagged beside drift"
    """itself unchanged, but its samples were mixed with those of a class that has drifted"""
    QUIET = "no drift, none claimed"
    UNTESTABLE = "not testable"

    __hash__ = object.__hash__  # that of an Enum is Python code, and verdicts are many


@lru_cache(maxsize=64)
def outcomes_of(run: Run) -> tuple[Outcome, ...]:
    """Judge each verdict of a run: a claim is right while a class is stale."""
    stale = _stale_checks(run)
    # Samples that are not sorted by their true class carry one class's drift into another's group.
    mixed = drifted_checks(run) if run.monitor_labels != "given" else frozenset()
    outcomes = []
    for verdict in run.verdicts:
        if verdict.drifted is None:
            outcome = Outcome.UNTESTABLE
        elif (verdict.task, verdict.label) in stale:
            outcome = Outcome.FOUND if verdict.drifted else Outcome.MISSED
        elif not verdict.drifted:
            outcome = Outcome.QUIET
        else:
            outcome = Outcome.BESIDE if verdict.task in mixed else Outcome.FALSE_ALARM
        outcomes.append(outcome)
    return tuple(outcomes)


def drifted_checks(run: Run) -> frozenset[int]:
    """The tasks at whose check some class was stale."""
    return frozenset(task for task, _ in _stale_checks(run))


def _stale_checks(run: Run) -> frozenset[tuple[int, int]]:
    """(task, class) of each check of a class that was stale.

    A class is stale from its last drift until fresh samples of it have been learned. That
    happens after a task's check, so it counts from the next task on.
    """
    last_change: dict[int, int] = {}
    last_renewal: dict[int, int] = {}
    stale = set()
    changed = changes(run)
    by_task: defaultdict[int, list[int]] = defaultdict(list)
    for verdict in run.verdicts:
        by_task[verdict.task].append(verdict.label)
    renewed: defaultdict[int, list[int]] = defaultdict(list)
    for task, label in run.renewals:
        renewed[task].append(label)
    for task in sorted({*changed, *by_task, *renewed}):
        last_change |= dict.fromkeys(changed.get(task, ()), task)
        for label in by_task[task]:
            if last_renewal.get(label, 0) < last_change.get(label, 0):
                stale.add((task, label))
        last_renewal |= dict.fromkeys(renewed[task], task)
    return frozenset(stale)


@lru_cache(maxsize=64)
def changes(run: Run) -> Mapping[int, tuple[int, ...]]:
    """The tasks at which the concept of some class changes, with those classes.

    A gradual event counts at every task at which it goes on, one that changes nothing at none.
    """
    events: defaultdict[int, list[DriftEvent]] = defaultdict(list)
    for event in run.events:
        for label in event.classes:
            events[label].append(event)
    found: dict[int, list[int]] = {}
    for label in sorted(events):
        for task in _tasks_of_change(events[label], run.num_tasks):
            found.setdefault(task, []).append(label)
    return {task: tuple(found[task]) for task in sorted(found)}


def _tasks_of_change(events: Sequence[DriftEvent], num_tasks: int) -> list[int]:
    """At which tasks a class with these events changes."""
    concepts = _concepts_taken_on(events)
    possible = {
        task
        for event in events
        for task in range(event.task, min(event.task + event.over_tasks - 1, num_tasks) + 1)
    }
    return [
        task
        for task in sorted(possible)
        if _mixture(events, concepts, task - 1) != _mixture(events, concepts, task)
    ]


_ORIGINAL = 0


def _concepts_taken_on(events: Sequence[DriftEvent]) -> list[int]:
    """A number for the concept that a class takes on at each of its events."""
    concepts: list[int] = []
    current, steps = _ORIGINAL, [""]
    for number, event in enumerate(events, start=1):
        before, steps = steps, event.transform.split("+")
        if steps == ["original"]:
            current, steps = _ORIGINAL, [""]
        elif steps[-1] == "identity" and steps[:-1] in ([], before):
            steps = before  # an event lists all that was done before it: nothing is new
        else:
            current = number
        concepts.append(current)
    return concepts


def _mixture(
    events: Sequence[DriftEvent], concepts: Sequence[int], task: int
) -> Mapping[int, float]:
    """The concepts of a class during a task, with the fraction of each."""
    shares = {_ORIGINAL: 1.0}
    for event, concept in zip(events, concepts, strict=True):
        drifted = event.share * min(1.0, max(0, task - event.task + 1) / event.over_tasks)
        # A class that has that concept already stays as it is, free of rounding.
        if drifted > 0 and shares.keys() != {concept}:
            shares = {old: share * (1 - drifted) for old, share in shares.items() if drifted < 1}
            shares[concept] = shares.get(concept, 0.0) + drifted
    return shares


def range_words(numbers: Iterable[int]) -> str:
    """Class numbers, neighbours drawn together.

    >>> range_words([0, 1, 2, 5, 7, 8])
    'classes 0–2, 5, 7–8'
    """
    found = spans(numbers)
    words = [f"{first}" if first == last else f"{first}–{last}" for first, last in found]
    is_one = len(found) == 1 and found[0][0] == found[0][1]
    return f"class{'' if is_one else 'es'} {', '.join(few(words, MOST))}"


def spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each sequence of neighbours.

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
    head = "Drift events" if changes(run) else "Nothing drifts in this stream; its events"
    described = [_describe(event) for event in run.events]
    return f"{head}: {'; '.join(few(described, MOST))}."


def _describe(event: DriftEvent) -> str:
    words = [_concept_words(event)]
    if event.transform == "identity":
        pass  # how fast, and how much of nothing, does not matter
    elif event.over_tasks > 1:
        words.append(f"gradual over {event.over_tasks} tasks")
    elif event.kind == "gradual":
        words.append("gradual within the task")
    if event.share < 1 and event.transform != "identity":
        amount = "half" if event.share == 0.5 else f"{100 * event.share:.3g}%"
        words.append(f"{amount} of each class")
    return f"task {event.task}: {range_words(event.classes)} ({', '.join(words)})"


def _concept_words(event: DriftEvent) -> str:
    domains = " and ".join(event.domains)
    if event.transform == "identity":
        return "identity: nothing changes"
    if event.transform == "original":
        return "back to the original concept"
    if event.transform == "natural":
        return f"natural: {domains}" if domains else "natural"
    severity = ""
    if event.severity:
        most = "up to " if "+" in event.transform else ""
        severity = f", severity {most}{event.severity:g}"
    return f"{event.transform}{severity}" + (f", in {domains}" if domains else "")
