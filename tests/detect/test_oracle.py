"""Detectors that look at nothing: what they flag, and that they really do not look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from driftwise.detect import AlwaysDetector, Encoder, NeverDetector, OracleDetector, Setting
from driftwise.detect.oracle import Oracle
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


SETTING = Setting(encoder=no_encoder, drifting=SCHEDULE.drifting)


def verdicts(kind: type[Any], task: int, classes: Sequence[int]) -> list[Verdict]:
    found: list[Verdict] = kind(SETTING).check(task, classes, Unreadable(), Unreadable())
    return found


@pytest.mark.parametrize("task", range(2, 6))
def test_the_oracle_flags_exactly_what_drifts_at_the_task(task: int) -> None:
    classes = SCHEDULE.known(task)
    flagged = {v.label for v in verdicts(OracleDetector, task, classes) if v.drifted}
    changed = {
        label
        for label in classes
        if SCHEDULE.mixture(label, task) != SCHEDULE.mixture(label, task - 1)
    }
    assert flagged == changed
    assert bool(changed) == (task in (2, 4))


def test_the_oracle_says_nothing_of_classes_it_is_not_asked_about() -> None:
    assert [v.label for v in verdicts(OracleDetector, 4, [5, 3])] == [5, 3]


@pytest.mark.parametrize(("kind", "answer"), [(AlwaysDetector, True), (NeverDetector, False)])
def test_always_and_never_say_the_same_of_every_class_at_every_task(
    kind: type[Any], answer: bool
) -> None:
    for task in range(2, 6):
        said = verdicts(kind, task, SCHEDULE.known(task))
        assert [v.drifted for v in said] == [answer] * len(SCHEDULE.known(task))
        assert [v.label for v in said] == list(SCHEDULE.known(task))


@pytest.mark.parametrize("kind", [OracleDetector, AlwaysDetector, NeverDetector])
def test_fixed_detectors_claim_no_evidence_and_watch_nothing(kind: type[Any]) -> None:
    for verdict in verdicts(kind, 2, [0, 1]):
        assert verdict == Verdict(task=2, label=verdict.label, drifted=verdict.drifted)
    assert kind(SETTING).watches is False


def flagged(seed: int, *, tpr: float, fpr: float) -> list[bool]:
    setting = Setting(encoder=no_encoder, drifting=lambda _: range(500), seed=seed)
    oracle = OracleDetector(setting, Oracle(tpr=tpr, fpr=fpr))
    nothing: Any = Unreadable()
    return [bool(verdict.drifted) for verdict in oracle.check(2, range(1000), nothing, nothing)]


def test_an_oracle_errs_as_often_as_it_is_told_to() -> None:
    found = flagged(0, tpr=0.8, fpr=0.1)
    assert sum(found[:500]) / 500 == pytest.approx(0.8, abs=0.06)
    assert sum(found[500:]) / 500 == pytest.approx(0.1, abs=0.04)
    assert found == flagged(0, tpr=0.8, fpr=0.1) != flagged(1, tpr=0.8, fpr=0.1)


def test_a_better_oracle_finds_whatever_a_worse_one_finds() -> None:
    worse, better = flagged(0, tpr=0.5, fpr=0.0), flagged(0, tpr=0.9, fpr=0.0)
    assert all(after for before, after in zip(worse, better, strict=True) if before)


@pytest.mark.parametrize("rates", [{"tpr": 1.2}, {"fpr": -0.1}])
def test_rates_of_the_oracle_are_shares(rates: dict[str, float]) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        Oracle(**rates)
