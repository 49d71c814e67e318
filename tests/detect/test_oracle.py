"""Detectors that use no samples: what they flag, and that they read nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from driftwise.detect import Always, DetectorContext, Encoder, Never, Oracle
from driftwise.errors import UserError
from driftwise.streams import make_schedule
from driftwise.types import Verdict

SCHEDULE = make_schedule(
    [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)],
    num_drifts=2,
    transform="rotation",
    severity=1,
    seed=0,
    scope="all-seen",
)


def no_encoder() -> Encoder:
    raise AssertionError("a fixed detector needs no encoder")


class Unreadable:
    """Stands for samples and reference; whoever reads them fails."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a fixed detector read {name}")


CONTEXT = DetectorContext(encoder=no_encoder, drifting=SCHEDULE.drifting)


def verdicts(options: Any, task: int, classes: Sequence[int]) -> list[Verdict]:
    nothing: Any = Unreadable()
    detector = options.bind(CONTEXT)
    assert detector.reads_monitored is False
    found: list[Verdict] = detector.check(task, classes, nothing, nothing)
    assert [v.label for v in found] == list(classes)
    assert all(v == Verdict(task=task, label=v.label, drifted=v.drifted) for v in found)
    return found


@pytest.mark.parametrize("task", range(2, 6))
def test_the_oracle_flags_exactly_what_drifts_at_the_task(task: int) -> None:
    classes = SCHEDULE.known(task)
    flagged = {v.label for v in verdicts(Oracle(), task, classes) if v.drifted}
    changed = {
        label
        for label in classes
        if SCHEDULE.mixture(label, task) != SCHEDULE.mixture(label, task - 1)
    }
    assert flagged == changed
    assert bool(changed) == (task in (2, 4))


@pytest.mark.parametrize(("options", "answer"), [(Always(), True), (Never(), False)])
def test_always_and_never_give_one_verdict_on_every_class(options: Any, answer: bool) -> None:
    assert [v.drifted for v in verdicts(options, 3, [3, 0, 1])] == [answer] * 3


def flagged(seed: int, *, tpr: float, fpr: float) -> list[bool]:
    context = DetectorContext(encoder=no_encoder, drifting=lambda _: range(500), seed=seed)
    oracle = Oracle(tpr=tpr, fpr=fpr).bind(context)
    nothing: Any = Unreadable()
    return [bool(verdict.drifted) for verdict in oracle.check(2, range(1000), nothing, nothing)]


def test_an_oracle_errs_as_often_as_it_is_set_to() -> None:
    found = flagged(0, tpr=0.8, fpr=0.1)
    assert sum(found[:500]) / 500 == pytest.approx(0.8, abs=0.06)
    assert sum(found[500:]) / 500 == pytest.approx(0.1, abs=0.04)
    assert found == flagged(0, tpr=0.8, fpr=0.1) != flagged(1, tpr=0.8, fpr=0.1)
    better = flagged(0, tpr=0.9, fpr=0.1)
    assert all(after for before, after in zip(found, better, strict=True) if before)


@pytest.mark.parametrize("rates", [{"tpr": 1.2}, {"fpr": -0.1}])
def test_rates_of_the_oracle_are_shares(rates: dict[str, float]) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        Oracle(**rates)
