"""Labels by expected gain: more of them where more can be won, none where nothing can."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from adapt_builders import OLD, Shop, annotate, memory_with, samples
from bench_tools import context, verdicts

from driftwise.adapt import SpendByGain
from driftwise.errors import UserError
from driftwise.types import Encoding

HELD = {0: 20, 1: 20}


def labels_for(**known: float) -> int:
    """Labels that a drifted class of 20 samples gets."""
    shop = Shop(40)
    SpendByGain().adapt(verdicts([0], **known), context(memory_with(HELD), shop, annotate))
    return len(shop.ids())


def test_a_class_gets_labels_in_proportion_to_harm_and_fraction_drifted() -> None:
    assert labels_for(harm=100.0, share=1.0) == 20
    assert labels_for(harm=50.0, share=1.0) == 10
    assert labels_for(harm=50.0, share=0.5) == 5


def test_a_harmless_drift_costs_no_label_and_is_reported() -> None:
    memory, shop = memory_with(HELD), Shop(40)
    before = memory.counts()
    result = SpendByGain().adapt(
        verdicts([0], harm=0.0, share=1.0), context(memory, shop, annotate)
    )
    assert shop.asked == []
    assert memory.counts() == before
    assert "not adapted" in result.notes[0]


def test_all_fresh_samples_are_put_in_and_old_ones_stay_beside_them() -> None:
    memory, shop = memory_with(HELD), Shop(40)
    SpendByGain().adapt(verdicts([0], harm=50.0, share=1.0), context(memory, shop, annotate))
    held = memory.samples_of(0)
    assert len(held) <= 20
    assert int((held.concepts != OLD).sum()) == 10
    assert int((held.concepts == OLD).sum()) > 0


def test_checked_classes_without_an_alarm_get_few_labels_all_the_time() -> None:
    memory, shop = memory_with(HELD), Shop(40)
    rule = SpendByGain(unnoticed=0.1)
    around = replace(context(memory, shop, annotate), tested=frozenset({0}))
    for _ in range(10):
        assert rule.adapt([], around).renewed == ()
    assert {label for label, _ in shop.asked} == {0}
    # At most error 1 x fraction 0.1 x 20 slots at each of 10 checks.
    assert 5 <= sum(count or 0 for _, count in shop.asked) <= 20


def test_a_class_that_the_learner_gets_right_gets_less_than_one_that_it_gets_wrong() -> None:
    monitored = [samples(0, 20, OLD), samples(1, 20, OLD)]
    around = context(memory_with(HELD), shop := Shop(40), annotate)
    from driftwise.types import Samples

    both = Samples.concat(monitored)
    always_0 = Encoding(
        logits=torch.tensor([[1.0, 0.0]]).repeat(40, 1), features=torch.zeros(40, 1)
    )
    around = replace(
        around,
        monitored=lambda: both,
        encode=lambda images: always_0[: len(images)],
        tested=frozenset({0, 1}),
    )
    rule = SpendByGain()
    for _ in range(4):
        rule.adapt([], around)
    spent = {label: sum(c or 0 for who, c in shop.asked if who == label) for label in (0, 1)}
    assert spent[1] > spent[0]


def test_settings_outside_their_range_are_refused() -> None:
    with pytest.raises(UserError, match="unnoticed must lie between 0 and 1; got 2"):
        SpendByGain(unnoticed=2)
