"""How good the verdicts were, by the truth that no detector sees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from driftwise.types import Verdict


@dataclass(frozen=True, kw_only=True)
class DetectionQuality:
    """Rates are None where there is nothing to divide by.

    num_drifts - num_detected - num_missed class-events were found, but late.
    """

    tpr: float | None
    """share of the class-events that were flagged at the very task of the event"""
    fpr: float | None
    """share of the stable checks that were flagged"""
    delay: float | None
    """tasks from an event to its first flag, averaged over the class-events that were found"""
    num_drifts: int
    """class-events: each class counts once for each event that changes it"""
    num_detected: int
    """class-events flagged at the event's own task"""
    num_missed: int
    """class-events that were never found"""
    num_stable_checks: int
    """testable checks of a class whose concept was known"""
    num_false_alarms: int
    """stable checks that were flagged"""
    num_stable_rounds: int
    """tasks at which some stable class was testable: what a promise for all classes of a check
    together is about"""
    num_alarmed_rounds: int
    """those of them with a false alarm"""
    num_untestable: int
    """verdicts that are neither yes nor no, drifted or not"""


def detection_quality(
    verdicts: Iterable[Verdict],
    drifts: Mapping[int, Sequence[int]],
    renewals: Iterable[tuple[int, int]],
) -> DetectionQuality:
    """Compare verdicts with the truth.

    `drifts` maps a task (counted from 1) to the classes that drift there. `renewals` are (task,
    class) pairs: in that task's adaptation the class got fresh samples. It happens after
    the task's check, so it takes effect from the next task on.

    - A class is *stale* at a check if it has drifted at that task or before and has not been
      renewed since. A flag is right while the class is stale, however long ago it drifted.
    - Every other check is *stable*; a flag there is a false alarm. FPR is their share.
    - A class-event is *found* at the first flag from its task on, as long as the class stays stale
      and does not drift again. Found at once counts for TPR; the delay averages over all found.
    - A verdict of None is neither a flag nor a stable check, so at an event it is a miss for TPR.
    """
    drift_tasks = _tasks_by_class(
        (task, label) for task, classes in drifts.items() for label in classes
    )
    renewal_tasks = _tasks_by_class(renewals)
    num_stable_checks = num_false_alarms = num_untestable = 0
    rounds: dict[int, bool] = {}  # task -> whether a stable class was flagged
    first_flag: dict[tuple[int, int], int] = {}  # (class, task of its event) -> task
    for verdict in verdicts:
        if verdict.drifted is None:
            num_untestable += 1
            continue
        event = _stale_since(verdict.task, drift_tasks[verdict.label], renewal_tasks[verdict.label])
        if event is None:
            num_stable_checks += 1
            num_false_alarms += verdict.drifted
            rounds[verdict.task] = rounds.get(verdict.task, False) or verdict.drifted
        elif verdict.drifted:
            key = verdict.label, event
            first_flag[key] = min(verdict.task, first_flag.get(key, verdict.task))

    delays = [flag - event for (_, event), flag in first_flag.items()]
    num_drifts = sum(len(tasks) for tasks in drift_tasks.values())
    num_detected = delays.count(0)
    return DetectionQuality(
        tpr=_share(num_detected, num_drifts),
        fpr=_share(num_false_alarms, num_stable_checks),
        delay=_share(sum(delays), len(delays)),
        num_drifts=num_drifts,
        num_detected=num_detected,
        num_missed=num_drifts - len(delays),
        num_stable_checks=num_stable_checks,
        num_false_alarms=num_false_alarms,
        num_stable_rounds=len(rounds),
        num_alarmed_rounds=sum(rounds.values()),
        num_untestable=num_untestable,
    )


def _tasks_by_class(pairs: Iterable[tuple[int, int]]) -> defaultdict[int, set[int]]:
    tasks: defaultdict[int, set[int]] = defaultdict(set)
    for task, label in pairs:
        tasks[label].add(task)
    return tasks


def _stale_since(check: int, drift_tasks: set[int], renewal_tasks: set[int]) -> int | None:
    """The task of the last drift not followed by a renewal before the check; None: not stale."""
    # A renewal after the last drift covers all earlier ones, so the last one decides.
    last = max((task for task in drift_tasks if task <= check), default=None)
    if last is None or any(last <= task < check for task in renewal_tasks):
        return None
    return last


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
