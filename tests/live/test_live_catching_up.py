"""After a realignment the network follows the memory, also where no labelled samples come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_tools import Digits, digits, live_learner
from run_tools import complaint
from same_state import same
from test_live_labels import Oracle

import driftwise
from driftwise.live.reporter import Observation

STREAM = digits(0, classes=5, turn=450)


def asking_keeper(**settings: Any) -> driftwise.LiveLearner:
    return live_learner(detector="combined", check_rows=20, labels=Oracle(STREAM), **settings)


def silent_from(mine: driftwise.LiveLearner, stream: Digits, *, until: int) -> list[Observation]:
    """Labels until shortly before the turn, and none from there on but those asked for."""
    return [
        mine.observe(images, labels if start < stream.turn - 100 else None)
        for start, images, labels in stream.batches()
        if mine.num_samples <= start < until
    ]


def right_at_the_end(seen: list[Observation]) -> float:
    predicted = np.concatenate([each.predicted for each in seen])
    return float((predicted == STREAM.labels[: len(predicted)])[-150:].mean())


def test_labels_that_were_asked_for_help_although_no_others_come() -> None:
    left_alone = silent_from(asking_keeper(catch_up_steps=0), STREAM, until=10**9)
    followed = silent_from(asking_keeper(), STREAM, until=10**9)
    assert any(each.adapted for each in left_alone)
    assert right_at_the_end(left_alone) < 0.6
    assert right_at_the_end(followed) > 0.8


def test_so_many_steps_are_made_after_the_last_realignment_and_no_more() -> None:
    mine = asking_keeper(catch_up_steps=7)
    seen = silent_from(mine, STREAM, until=10**9)
    adapts = [number for number, each in enumerate(seen) if each.adapted]
    silent = [number for number in range(45, len(seen)) if seen[number].loss is not None]
    assert adapts[-1] + 7 < len(seen), "the stream goes on for longer"
    # Labels that a repair has no use for are learned from, and count like any other step.
    owed = {first + k for first in adapts for k in range(7)}
    assert owed <= set(silent)
    assert max(silent) == adapts[-1] + 6


def test_labelled_samples_take_the_place_of_these_steps() -> None:
    mine, never = (live_learner(catch_up_steps=steps) for steps in (100, 0))
    adapted = 0
    for start, images, labels in STREAM.batches():
        if start == 900:  # a single sample, which is watched and not learned from
            break
        one, other = (each.observe(images, labels) for each in (mine, never))
        assert one.loss == other.loss
        adapted += len(one.adapted)
    assert adapted > 0


def test_a_restart_in_between_changes_nothing(tmp_path: Path) -> None:
    whole = asking_keeper(catch_up_steps=30)
    seen = silent_from(whole, STREAM, until=10**9)
    pause = 10 * (next(n for n, each in enumerate(seen) if each.adapted) + 3)
    with asking_keeper(catch_up_steps=30, folder=tmp_path / "kept") as first:
        silent_from(first, STREAM, until=pause)
    with driftwise.LiveLearner.load(tmp_path / "kept", labels=Oracle(STREAM)) as second:
        rest = silent_from(second, STREAM, until=10**9)
    assert [each.loss for each in rest] == [each.loss for each in seen[pause // 10 :]]
    assert same(second._state()["upkeep"], whole._state()["upkeep"])


def test_a_method_without_a_memory_has_nothing_to_follow() -> None:
    seen = silent_from(asking_keeper(method="finetune"), STREAM, until=10**9)
    assert all(each.loss is None for each in seen[45:] if not each.verdicts)


@pytest.mark.parametrize("steps", [-1, 2.5])
def test_steps_are_a_number_from_0_on(steps: float) -> None:
    assert "catch_up_steps" in complaint(lambda: live_learner(catch_up_steps=steps))
