"""Checks that cannot be made, known from the sizes before a run begins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scipy.stats import binom

from driftwise.config.presets import settled
from driftwise.config.schema import RunConfig
from driftwise.detect.base import Detector, ReportsObstacles
from driftwise.streams import Stream

WORTH_A_WARNING = 0.1
"""The fraction of checks from which on the user is warned."""

SELDOM = 0.05
"""The chance that a class cannot be tested with a buffer that is recommended."""

LARGEST_BUFFER = 10**7


class _Check(NamedTuple):
    """A class at a task that is to be checked."""

    task: int
    reference: float
    """samples to expect"""
    current: int
    chance: float
    """of not being testable"""


def untestable_checks(
    config: RunConfig, stream: Stream, detector: Detector, *, rehearses: bool = True
) -> str:
    """A warning about checks that cannot be made for want of samples; empty where few are.

    Of a stream with drift, the tasks at which classes drift count; of any other, the last one.
    `rehearses`: whether the method fills the buffer.
    """
    if not isinstance(detector, ReportsObstacles):
        return ""
    tasks = sorted({event.task for event in stream.schedule.events}) or [len(stream)]
    checks = [
        check
        for task in tasks
        for check in _checks(config, stream, detector, task, rehearses=rehearses)
    ]
    many = sum(check.chance for check in checks)
    if not checks or many < max(0.5, WORTH_A_WARNING * len(checks)):
        return ""
    worst = max(checks, key=lambda check: check.chance)
    about = "" if all(check.chance in (0, 1) for check in checks) else "about "
    checked = "1 check" if len(checks) == 1 else f"{len(checks)} checks"
    where = "tasks with drift" if stream.schedule.events else "the last task"
    return (
        f"of {checked} at {where} {about}{many:.0f} will be untestable: "
        f"{_why(config, stream, detector, worst)}"
    )


def _checked(config: RunConfig, stream: Stream, task: int) -> tuple[int, ...]:
    just_drifted = config.checked == "just-drifted"
    return tuple(stream.schedule.drifting(task) if just_drifted else stream.schedule.known(task))


def _checks(
    config: RunConfig, stream: Stream, detector: ReportsObstacles, task: int, *, rehearses: bool
) -> Iterator[_Check]:
    classes = _checked(config, stream, task)
    if not classes:
        return
    now = stream.counts("monitored", classes, task)
    kept = _expected_reference(config, stream, task, classes, rehearses=rehearses)
    if config.reference == "memory" and rehearses and config.monitor_labels != "unknown":
        needed = _needed(detector, task, now, most=settled(config.buffer_size))
        for label in classes:
            chance = _chance_below(config, needed[label], kept[label])
            yield _Check(task, kept[label], now[label], chance)
        return
    sizes = {label: (round(kept[label]), now[label]) for label in classes}
    obstacles = detector.obstacles(task, sizes)
    for label, (reference, current) in sizes.items():
        yield _Check(task, reference, current, float(label in obstacles))


def _expected_reference(
    config: RunConfig, stream: Stream, task: int, classes: Sequence[int], *, rehearses: bool
) -> Mapping[int, float]:
    """Distinct reference samples of each class, on average, when a task begins."""
    if config.reference == "held-out":
        return stream.counts("reference", classes, task - 1)
    if config.reference == "fingerprint":
        learned = stream.counts("train", classes, task - 1)
        return {label: min(config.fingerprint_size, count) for label, count in learned.items()}
    if not rehearses:
        return dict.fromkeys(classes, 0)
    learned = stream.counts("train", stream.schedule.known(task), task - 1)
    size, epochs = settled(config.buffer_size), settled(config.epochs)
    if config.buffer_policy == "balanced":
        return {label: min(own, size / len(learned)) for label, own in learned.items()}
    offered = sum(learned.values())
    if epochs * offered <= size:
        return learned
    slots = {label: size * own / offered for label, own in learned.items()}
    if epochs == 1:
        return slots
    # Over several epochs a sample may come into the buffer more than once.
    return {
        label: own * -math.expm1(slots[label] * math.log1p(-1 / max(2, own)))
        for label, own in learned.items()
    }


def _chance_below(config: RunConfig, needed: int, mean: float) -> float:
    """How likely it is that the buffer holds fewer samples of a class than are needed."""
    if config.buffer_policy == "balanced":  # one more or less is all that varies
        return min(1.0, max(0.0, needed - mean))
    size = settled(config.buffer_size)
    return float(binom.cdf(needed - 1, size, min(1.0, mean / size)))


def _needed(
    detector: ReportsObstacles, task: int, now: Mapping[int, int], *, most: int
) -> Mapping[int, int]:
    """The fewest reference samples by which each class can be tested; `most` + 1: none.

    A bisection of all classes at once, since their number decides what each needs.
    """
    low, high = dict.fromkeys(now, 0), dict.fromkeys(now, most + 1)
    while any(high[label] - low[label] > 1 for label in now):
        middle = {label: (low[label] + high[label]) // 2 for label in now}
        sizes = {label: (max(1, middle[label]), count) for label, count in now.items()}
        obstacles = detector.obstacles(task, sizes)
        for label in now:
            (low if label in obstacles else high)[label] = middle[label]
    return high


def _why(config: RunConfig, stream: Stream, detector: ReportsObstacles, check: _Check) -> str:
    """What is short at a check, and what to do about it."""
    classes = _checked(config, stream, check.task)
    # Where the average would do, single classes fall below it.
    sizes = dict.fromkeys(classes, (max(0, math.ceil(check.reference) - 1), check.current))
    reason = next(iter(detector.obstacles(check.task, sizes).values()), "too few in some classes")
    more = "more samples per class"
    if config.reference == "memory":
        known = len(stream.schedule.known(check.task))
        short = (
            f"the buffer of {config.buffer_size} holds {check.reference:.1f} samples of each of "
            f"{known} classes on average"
        )
        advice = _buffer_advice(config, detector, check, len(classes)) or more
    else:
        held_out = config.reference == "held-out"
        name = "held-out samples" if held_out else "samples in the print"
        short = f"a class has {check.reference:.0f} {name} and {check.current} to compare with them"
        advice = more if held_out else f"a larger fingerprint_size or {more}"
    return f"at task {check.task} {short} ({reason}); use {advice}"


def _buffer_advice(
    config: RunConfig, detector: ReportsObstacles, check: _Check, checked: int
) -> str:
    """The buffer, or the reference, by which a class could be tested; empty: none could."""
    now = dict.fromkeys(range(checked), check.current)
    advice = []
    needed = _needed(detector, check.task, now, most=LARGEST_BUFFER)[0]
    if needed <= LARGEST_BUFFER and check.reference > 0:
        fraction = check.reference / settled(config.buffer_size)
        size = math.ceil(needed / fraction)
        if config.buffer_policy != "balanced":
            while binom.cdf(needed - 1, size, fraction) > SELDOM:
                size = math.ceil(1.1 * size)
        unit = 10 ** max(0, len(str(size)) - 2)  # two digits will do
        advice.append(f"a buffer_size of {-(-size // unit) * unit} or more")
    half = check.current // 2
    if half and not detector.obstacles(check.task, dict.fromkeys(now, (half, half))):
        advice.append("the reference held-out")
    return " or ".join(advice)
