"""Full relearning in its three variants, and the adaptation that does nothing."""

from __future__ import annotations

import pytest
import torch
from adapt_builders import HELD, NOW, Shop, adaptation_named, annotate, assert_same, memory_with
from bench_tools import context, verdicts

from driftwise.adapt import Vanilla
from driftwise.protocols import Choose, LabelSource
from driftwise.types import AdaptationResult, Samples

VARIANTS = ("fr", "fr-flush", "fr-scratch")

every_variant = pytest.mark.parametrize("name", VARIANTS)


@every_variant
def test_relearning_asks_for_everything_and_trains_on_all_of_it(name: str) -> None:
    shop = Shop(stock=11)
    result = adaptation_named(name).adapt(verdicts([2, 0]), context(memory_with(), shop, annotate))
    assert shop.asked == [(2, None), (0, None)]
    assert result.extra is not None
    assert_same(vars(result.extra), vars(Samples.concat(shop.given)))
    assert result.renewed == (2, 0)
    assert result.notes == ()


@every_variant
def test_relearning_does_not_need_the_class_in_memory(name: str) -> None:
    result = adaptation_named(name).adapt(verdicts([9]), context(memory_with(), Shop(), annotate))
    assert result.extra is not None
    assert set(result.extra.labels.tolist()) == {9}
    assert set(result.extra.concepts.tolist()) == {NOW}


@pytest.mark.parametrize("name", ["fr", "fr-scratch"])
def test_relearning_as_published_leaves_the_stale_samples_in_memory(name: str) -> None:
    memory = memory_with()
    before = memory.state_dict()
    adaptation_named(name).adapt(verdicts([0, 2]), context(memory, Shop(), annotate))
    assert_same(memory.state_dict(), before)


def test_flushing_frees_the_slots_of_the_drifted_classes() -> None:
    memory = memory_with()
    adaptation_named("fr-flush").adapt(verdicts([0, 2]), context(memory, Shop(), annotate))
    assert memory.counts() == {1: HELD[1]}
    assert memory.free == HELD[0] + HELD[2]


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


@pytest.mark.parametrize(
    ("name", "stock", "from_scratch"),
    [
        ("fr", 5, False),
        ("fr-flush", 5, False),
        ("fr-scratch", 5, True),
        ("fr-scratch", 0, False),  # weights are not forgotten for nothing
    ],
)
def test_weights_are_forgotten_only_from_scratch_and_only_for_something(
    name: str, stock: int, from_scratch: bool
) -> None:
    result = adaptation_named(name).adapt(
        verdicts([1]), context(memory_with(), Shop(stock), annotate)
    )
    assert result.from_scratch is from_scratch


def test_vanilla_does_nothing_about_any_drift() -> None:
    memory, shop = memory_with(), Shop()
    before, generator = memory.state_dict(), torch.get_rng_state()
    assert (
        Vanilla().adapt(verdicts([0, 1, 2]), context(memory, shop, annotate)) == AdaptationResult()
    )
    assert_same(memory.state_dict(), before)
    assert shop.asked == []
    assert torch.equal(torch.get_rng_state(), generator)
