"""What every adaptation of the catalogue promises, whatever it does about drift."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from adapt_builders import (
    HELD,
    NOW,
    Shop,
    adaptation_named,
    annotate,
    assert_same,
    contents,
    memory_with,
)
from bench_tools import context, verdicts

from driftwise.adapt import Adaptation, Hysteresis, Realign, RecurringConcepts, Vanilla
from driftwise.config.registry import CATALOGUE
from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult

every_adaptation = pytest.mark.parametrize("name", sorted(CATALOGUE["adaptation"]))
some_drifts = pytest.mark.parametrize("drifted", [[0], [2, 0], [0, 1, 2], [1, 9]])


@every_adaptation
@some_drifts
def test_the_samples_of_stable_classes_are_never_touched(name: str, drifted: list[int]) -> None:
    memory = memory_with()
    stable = set(HELD) - set(drifted)
    before = {label: contents(memory, label) for label in stable}
    adaptation_named(name).adapt(verdicts(drifted), context(memory, Shop(), annotate))
    for label in stable:
        assert_same(contents(memory, label), before[label])


@every_adaptation
@some_drifts
def test_labels_are_asked_for_drifted_classes_only_and_once_each(
    name: str, drifted: list[int]
) -> None:
    shop = Shop()
    adaptation_named(name).adapt(verdicts(drifted), context(memory_with(), shop, annotate))
    asked = [label for label, _ in shop.asked]
    assert set(asked) <= set(drifted)
    assert len(asked) == len(set(asked))


@every_adaptation
def test_without_drift_nothing_is_done_and_nothing_asked(name: str) -> None:
    memory, shop = memory_with(), Shop()
    before = memory.state_dict()
    assert (
        adaptation_named(name).adapt(verdicts([]), context(memory, shop, annotate))
        == AdaptationResult()
    )
    assert_same(memory.state_dict(), before)
    assert shop.asked == []


@every_adaptation
@pytest.mark.parametrize(
    ("drifted", "stock"), [([0], 0), ([0], 2), ([2, 0], 20), ([0, 1, 2], 2), ([1, 9], 20)]
)
def test_every_label_that_was_paid_for_reaches_memory_or_training(
    name: str, drifted: list[int], stock: int
) -> None:
    memory, shop = memory_with(), Shop(stock)
    result = adaptation_named(name).adapt(verdicts(drifted), context(memory, shop, annotate))
    kept = {sample for c in memory.counts() for sample in contents(memory, c)["ids"].tolist()}
    trained = set() if result.extra is None else set(result.extra.ids.tolist())
    assert set(shop.ids()) <= kept | trained


@every_adaptation
@some_drifts
def test_what_is_renewed_was_drifted_and_really_met_with_samples_of_the_new_concept(
    name: str, drifted: list[int]
) -> None:
    memory, shop = memory_with(), Shop()
    result = adaptation_named(name).adapt(verdicts(drifted), context(memory, shop, annotate))
    given = [int(answer.labels[0]) for answer in shop.given if len(answer)]
    assert list(result.renewed) == given
    assert set(given) <= set(drifted)
    if result.extra is not None:
        assert set(result.extra.labels.tolist()) <= set(drifted)
        assert set(result.extra.concepts.tolist()) == {NOW}


@every_adaptation
@some_drifts
def test_when_no_label_is_granted_nothing_changes_and_a_note_says_so(
    name: str, drifted: list[int]
) -> None:
    memory = memory_with()
    before = memory.state_dict()
    result = adaptation_named(name).adapt(
        verdicts(drifted), context(memory, Shop(budget=0), annotate)
    )
    assert_same(memory.state_dict(), before)
    assert (result.extra, result.from_scratch, result.renewed) == (None, False, ())
    assert len(result.notes) == (0 if name == "vanilla" else len(drifted))
    assert all("\n" not in note for note in result.notes)


@every_adaptation
def test_adapting_draws_no_randomness_and_counts_nothing_as_seen(name: str) -> None:
    memory = memory_with()
    before, generator = memory.state_dict(), torch.get_rng_state()
    adaptation_named(name).adapt(verdicts([0, 2]), context(memory, Shop(), annotate))
    after = memory.state_dict()
    assert_same(after["generators"], before["generators"])
    assert after["seen"] == before["seen"]
    assert torch.equal(torch.get_rng_state(), generator)


@every_adaptation
def test_an_adaptation_is_a_subclass_of_the_base_and_its_state_round_trips(name: str) -> None:
    adaptation, twin = adaptation_named(name), adaptation_named(name)
    assert isinstance(adaptation, Adaptation)
    adaptation.adapt(verdicts([0, 2]), context(memory_with(), Shop(), annotate))
    state = adaptation.state_dict()
    twin.load_state_dict(state)
    assert_same(twin.state_dict(), state)


def test_a_state_for_an_adaptation_without_state_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^expected no state for Realign; got \['left'\]$"):
        Realign().load_state_dict({"left": 1})


@pytest.mark.parametrize("wrapper", [Hysteresis, RecurringConcepts])
def test_a_wrapper_lets_the_inner_adaptation_follow_up(
    wrapper: Callable[[Adaptation], Adaptation],
) -> None:
    class Continues(Vanilla):
        def follow_up(self, context: AdaptationContext) -> tuple[str, ...]:
            return ("continued",)

    around = wrapper(Continues())
    assert around.follow_up(context(memory_with(), Shop(), annotate)) == ("continued",)
