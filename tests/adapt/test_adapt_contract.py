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


@every_adaptation
@pytest.mark.parametrize(
    ("drifted", "stock"), [([0], 20), ([0, 1, 2], 2), ([1, 9], 20), ([2, 0], 20), ([0], 0)]
)
def test_the_contract_of_every_adaptation(name: str, drifted: list[int], stock: int) -> None:
    memory, shop = memory_with(), Shop(stock)
    stable = set(HELD) - set(drifted)
    before = {label: contents(memory, label) for label in stable}
    state, generator = memory.state_dict(), torch.get_rng_state()
    adaptation, twin = adaptation_named(name), adaptation_named(name)
    assert isinstance(adaptation, Adaptation)
    result = adaptation.adapt(verdicts(drifted), context(memory, shop, annotate))

    # No randomness is drawn, and nothing counts as seen.
    after = memory.state_dict()
    assert_same(after["generators"], state["generators"])
    assert after["seen"] == state["seen"]
    assert torch.equal(torch.get_rng_state(), generator)
    for label in stable:
        assert_same(contents(memory, label), before[label])

    # Labels are asked for drifted classes only, once each; every one reaches buffer or training.
    asked = [label for label, _ in shop.asked]
    assert set(asked) <= set(drifted)
    assert len(asked) == len(set(asked))
    kept = {sample for c in memory.counts() for sample in contents(memory, c)["ids"].tolist()}
    trained = set() if result.extra is None else set(result.extra.ids.tolist())
    assert set(shop.ids()) <= kept | trained

    # What is renewed has got samples of the new concept.
    assert list(result.renewed) == [int(got.labels[0]) for got in shop.given if len(got)]
    if result.extra is not None:
        assert set(result.extra.labels.tolist()) <= set(drifted)
        assert set(result.extra.concepts.tolist()) == {NOW}
    twin.load_state_dict(adaptation.state_dict())
    assert_same(twin.state_dict(), adaptation.state_dict())


@every_adaptation
def test_without_drift_nothing_is_done_and_nothing_asked(name: str) -> None:
    memory, shop = memory_with(), Shop()
    before, around = memory.state_dict(), context(memory, shop, annotate)
    assert adaptation_named(name).adapt(verdicts([]), around) == AdaptationResult()
    assert adaptation_named(name).follow_up(around) == ()
    assert_same(memory.state_dict(), before)
    assert shop.asked == []


@every_adaptation
def test_when_no_label_is_granted_nothing_changes_and_a_note_reports_it(name: str) -> None:
    memory, drifted = memory_with(), [1, 9]
    before = memory.state_dict()
    result = adaptation_named(name).adapt(
        verdicts(drifted), context(memory, Shop(budget=0), annotate)
    )
    assert_same(memory.state_dict(), before)
    assert (result.extra, result.from_scratch, result.renewed) == (None, False, ())
    assert len(result.notes) == (0 if name == "vanilla" else len(drifted))
    assert all("\n" not in note for note in result.notes)


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
