"""Labels by expected gain: a first request of every class, then more of those that gain most."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from adapt_builders import OLD, Shop, annotate, memory_with
from bench_tools import context, verdicts

from driftwise.adapt import SpendByGain, by_gain
from driftwise.errors import UserError

HELD = {0: 20, 1: 20}


def spent(shop: Shop) -> dict[int, int]:
    return {c: sum(n or 0 for who, n in shop.asked if who == c) for c in (0, 1)}


def with_slopes(monkeypatch: pytest.MonkeyPatch, slopes: Mapping[int, float]) -> None:
    monkeypatch.setattr(
        by_gain, "label_slopes", lambda _, labels, __: {c: slopes[c] for c in set(labels.tolist())}
    )


def test_the_labels_that_every_class_gets_first_are_a_part_of_a_realignment_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_slopes(monkeypatch, {0: 0.0, 1: 0.0})
    memory, shop = memory_with(HELD), Shop(60)
    result = SpendByGain(first=0.4).adapt(verdicts([0, 1]), context(memory, shop, annotate))
    assert spent(shop) == {0: 8, 1: 8}
    assert result.renewed == (0, 1)
    assert int((memory.samples_of(0).concepts != OLD).sum()) == 8


def test_the_others_go_where_the_next_one_gains_most_and_there_are_no_more_than_a_realignment_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_slopes(monkeypatch, {0: 3.0, 1: 1.0})
    shop = Shop(60)
    SpendByGain().adapt(verdicts([0, 1]), context(memory_with(HELD), shop, annotate))
    assert spent(shop)[0] > spent(shop)[1] >= 10
    assert sum(spent(shop).values()) == 40


def test_what_gains_nothing_today_is_spent_on_a_later_drift(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule, shop = SpendByGain(), Shop(60)
    around = context(memory_with(HELD), shop, annotate)
    with_slopes(monkeypatch, {0: 0.0, 1: 1.0})
    rule.adapt(verdicts([0]), around)
    assert spent(shop) == {0: 10, 1: 0}
    again = SpendByGain()
    again.load_state_dict(rule.state_dict())
    again.adapt(verdicts([1]), around)
    assert spent(shop) == {0: 10, 1: 30}


def test_a_class_gets_at_most_so_many_times_a_realignment_s_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_slopes(monkeypatch, {0: 0.0, 1: 1.0})
    shop = Shop(60)
    SpendByGain(most=1).adapt(verdicts([0, 1]), context(memory_with(HELD), shop, annotate))
    assert spent(shop) == {0: 10, 1: 20}


def test_a_class_without_fresh_samples_keeps_its_old_ones_and_it_is_reported() -> None:
    memory, shop = memory_with(HELD), Shop(0)
    result = SpendByGain().adapt(verdicts([0]), context(memory, shop, annotate))
    assert torch.equal(memory.samples_of(0).concepts, torch.full((20,), OLD))
    assert result.renewed == ()
    assert "its old ones stay" in result.notes[0]


def test_without_a_drift_nothing_is_asked_for() -> None:
    shop = Shop(60)
    assert SpendByGain().adapt([], context(memory_with(HELD), shop, annotate)).renewed == ()
    assert shop.asked == []


@pytest.mark.parametrize(("first", "most"), [(0.0, 3.0), (1.5, 3.0), (0.5, 0.5)])
def test_settings_outside_their_range_are_refused(first: float, most: float) -> None:
    with pytest.raises(UserError, match="must"):
        SpendByGain(first=first, most=most)
