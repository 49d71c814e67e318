"""Full relearning in its three variants, and the adaptation that does nothing."""

from __future__ import annotations

import pytest
from adapt_builders import HELD, Shop, adaptation_named, annotate, assert_same, memory_with
from bench_tools import context, verdicts

from driftwise.adapt import Vanilla
from driftwise.protocols import Choose, LabelSource
from driftwise.types import AdaptationResult, Samples


@pytest.mark.parametrize("name", ["fr", "fr-flush", "fr-scratch"])
def test_relearning_asks_for_everything_and_trains_on_all_of_it(name: str) -> None:
    """As published, outdated samples stay in the buffer and the weights are kept."""
    memory, shop = memory_with(), Shop(stock=11)
    result = adaptation_named(name).adapt(verdicts([2, 0, 9]), context(memory, shop, annotate))
    assert shop.asked == [(2, None), (0, None), (9, None)]
    assert result.extra is not None
    assert_same(vars(result.extra), vars(Samples.concat(shop.given)))
    assert (result.renewed, result.notes) == ((2, 0, 9), ())
    assert memory.counts() == ({1: HELD[1]} if name == "fr-flush" else HELD)
    assert result.from_scratch is (name == "fr-scratch")
    nothing = adaptation_named(name).adapt(verdicts([1]), context(memory, Shop(0), annotate))
    assert not nothing.from_scratch, "weights are not forgotten for nothing"


def test_vanilla_does_nothing_and_a_budget_limits_relearning() -> None:
    memory, shop = memory_with(), Shop()
    before = memory.state_dict()
    around = context(memory, shop, annotate)
    assert Vanilla().adapt(verdicts([0, 1, 2]), around) == AdaptationResult()
    assert_same(memory.state_dict(), before)
    assert shop.asked == []
    result = adaptation_named("fr").adapt(
        verdicts([0, 1]), context(memory, Shop(budget=6), annotate)
    )
    assert result.notes == tuple(
        f"class {label}: the budget allows 3 fresh samples, not all" for label in (0, 1)
    )


def test_flushing_spares_the_class_that_there_is_nothing_to_relearn_of() -> None:
    class SoldOut(Shop):
        def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
            answer = super().ask(label, count, choose=choose)
            return answer[:0] if label == 0 else answer

    memory = memory_with()
    shop: LabelSource = SoldOut()
    result = adaptation_named("fr-flush").adapt(verdicts([0, 2]), context(memory, shop, annotate))
    assert memory.counts() == {0: HELD[0], 1: HELD[1]}
    assert result.renewed == (2,)
    assert result.notes == ("class 0: no fresh samples were granted, nothing to relearn",)
