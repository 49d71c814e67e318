"""Wrong answers are set aside: strangers go, never more than stated, and no further labels are spent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from bench_tools import context, verdicts

from driftwise.adapt import Realign, Screen
from driftwise.analytic_learner import AnalyticLearner
from driftwise.errors import UserError
from driftwise.methods import SLDA
from driftwise.protocols import Choose
from driftwise.types import AdaptationResult, Samples

SLOTS = 20


def samples(label: int, count: int, *, start: int = 0) -> Samples:
    """Vectors of a class around 6 on its own axis."""
    ids = 1000 * label + start + torch.arange(count)
    draw = torch.Generator().manual_seed(10 * label + start)
    vectors = torch.randn(count, 6, generator=draw)
    vectors[:, label] += 6
    return Samples(images=vectors, labels=torch.full((count,), label), ids=ids, concepts=0 * ids)


class Annotator:
    """Answers for a class with its samples and, at the end, with so many of the next class."""

    def __init__(self, strangers: int) -> None:
        self.strangers = strangers
        self.asked = 0
        self.doubted: list[int] = []

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        del choose
        assert count is not None
        self.asked += count
        others = replace(
            samples(label + 1, self.strangers, start=500),
            labels=torch.full((self.strangers,), label),
        )
        return Samples.concat([samples(label, count - self.strangers, start=200), others])

    def ask_again(self, label: int, doubtful: Samples) -> torch.Tensor:
        self.asked += len(doubtful)
        self.doubted += doubtful.ids.tolist()
        return doubtful.ids // 1000 == label

    def spread(self, wanted: Any) -> dict[int, int | None]:
        return dict(wanted)

    def unlabelled(self) -> Samples:
        return samples(0, 0)


def realigned(screen: Screen | None, source: Annotator) -> tuple[AnalyticLearner, AdaptationResult]:
    learner = AnalyticLearner(SLDA(), fresh_samples=SLOTS)
    for label in range(3):
        learner.observe(samples(label, 50))
    around = replace(context(learner.buffer, source, learner.annotate), encode=learner.encode)
    return learner, Realign(screen=screen).adapt(verdicts([0, 1]), around)


def test_strangers_are_set_aside_and_named_and_the_others_are_learned() -> None:
    learner, result = realigned(Screen(share=0.2), source := Annotator(strangers=4))
    assert source.asked == 2 * SLOTS
    assert learner.buffer.counts() == {0: 16, 1: 16, 2: 50}
    assert result.refilled is not None
    assert torch.equal(result.refilled.ids // 1000, result.refilled.labels)
    assert "class 0: 4 of 20 answers are probably wrong" in result.notes[0]
    assert "1500" in result.notes[0]
    plain, _ = realigned(None, Annotator(strangers=4))
    assert plain.buffer.counts() == {0: 20, 1: 20, 2: 50}


def test_right_answers_are_all_learned() -> None:
    learner, result = realigned(Screen(), Annotator(strangers=0))
    assert learner.buffer.counts() == {0: 20, 1: 20, 2: 50}
    assert result.notes == ()


def test_no_more_are_set_aside_than_the_stated_share_explains() -> None:
    learner, _ = realigned(Screen(share=0.05), Annotator(strangers=6))
    assert learner.buffer.counts()[0] == SLOTS - 3  # 1 expected, 2 deviations more


def test_second_answers_decide_on_doubtful_samples_within_the_same_number_of_labels() -> None:
    source = Annotator(strangers=4)
    learner, _ = realigned(Screen(share=0.2, again=0.25), source)
    assert source.asked <= 2 * SLOTS
    assert len(source.doubted) == 2 * 4
    assert learner.buffer.counts()[0] == 12


@pytest.mark.parametrize(
    ("options", "message"),
    [({"share": 0.0}, "share of wrong answers"), ({"again": 2.0}, "ask_again must lie")],
)
def test_settings_outside_their_range_are_refused(options: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Screen(**options)
