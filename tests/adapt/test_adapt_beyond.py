"""The extensions of realignment, on concepts that are easily separated."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from adapt_builders import adaptation_named, assert_same
from adapt_concepts import (
    NEW,
    OLD,
    Pupil,
    Source,
    concept_samples,
    context_of,
    memory_of,
    mixed,
    without_labels,
)
from bench_tools import verdicts
from run_tools import complaint

from driftwise.adapt.compose import ComposeOptions, compose
from driftwise.adapt.rehearsal import MOST
from driftwise.memory import ReplayBuffer, Reservoir
from driftwise.protocols import AdaptationContext
from driftwise.types import Samples


class World(NamedTuple):
    """A learner, where its labels come from, and all that an adaptation has at hand."""

    pupil: Pupil
    source: Source
    context: AdaptationContext


def setting(
    *,
    share: float = 1.0,
    needs: int = 0,
    held: int = 40,
    labels: bool = True,
    loose: Samples | None = None,
) -> World:
    """Class 0 has drifted by so much, class 1 has not."""
    pupil = Pupil(
        memory_of(concept_samples(0, held, OLD), concept_samples(1, 20, OLD)), needs=needs
    )
    source = Source(stock={0: mixed(0, 200, share, seed=1)}, loose=loose)
    monitored = Samples.concat([mixed(0, 60, share, seed=2), concept_samples(1, 60, OLD, seed=2)])
    context = context_of(pupil, source, monitored if labels else without_labels(monitored))
    return World(pupil, source, context)


def of_new_concept(pupil: Pupil, label: int = 0) -> int:
    return int((pupil.memory.samples_of(label).concepts == NEW).sum())


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_partial_realignment_makes_the_buffer_as_mixed_as_the_class(share: float) -> None:
    world = setting(share=share)
    adaptation_named("amr-partial").adapt(verdicts([0]), world.context)
    assert len(world.pupil.memory.samples_of(0)) == 40
    assert abs(of_new_concept(world.pupil) - share * 40) <= 6
    ((_, asked),) = world.source.asked
    assert asked == of_new_concept(world.pupil), "every label went into a sample of the new concept"
    ids = world.pupil.memory.samples_of(0).ids.tolist()
    assert len(set(ids)) == len(ids), "no sample is chosen twice"


@pytest.mark.parametrize(("share", "asked"), [(0.1, [(0, 4)]), (0.0, []), (0.9, [(0, 40)])])
def test_the_detectors_fraction_decides_how_much_is_asked(share: float, asked: list[Any]) -> None:
    for held in (40, 4):  # below five samples, everything goes
        world = setting(held=held)
        adaptation = adaptation_named("amr-partial")
        result = adaptation.adapt(verdicts([0], share=share), world.context)
        assert world.source.asked == (asked if held == 40 else [(0, 4)])
        if not world.source.asked:
            assert (result.renewed, result.notes) == ((), ("class 0: its 40 samples still fit",))


def test_partial_realignment_replaces_what_fits_least() -> None:
    world = setting(share=1.0)
    world.pupil.memory.drop(0, torch.arange(40) < 20)
    world.pupil.memory.put(concept_samples(0, 20, NEW, seed=5))
    adaptation_named("amr-partial").adapt(verdicts([0], share=0.5), world.context)
    assert of_new_concept(world.pupil) == 40
    assert world.source.asked == [(0, 20)]


def test_diverse_samples_cover_every_cluster_where_random_ones_miss_some() -> None:
    crowds = [concept_samples(0, 90, OLD), concept_samples(0, 5, NEW), concept_samples(2, 5, OLD)]
    images = torch.cat([samples.images for samples in crowds])
    world = setting(held=3)
    world.source.stock[0] = dataclasses.replace(
        Samples.concat(crowds), labels=torch.zeros(100, dtype=torch.int64)
    )
    adaptation_named("amr-chosen").adapt(verdicts([0]), world.context)
    taken = {tuple(sample.flatten().tolist()) for sample in world.pupil.memory.samples_of(0).images}
    groups = [range(90), range(90, 95), range(95, 100)]
    found = [sum(tuple(images[i].flatten().tolist()) in taken for i in group) for group in groups]
    assert found == [1, 1, 1]


def test_uncertain_samples_are_those_with_the_flattest_predictions() -> None:
    world = setting(held=5)
    flat = concept_samples(0, 5, NEW, seed=9)
    flat.images[:] = 100
    world.source.stock[0] = Samples.concat([concept_samples(0, 50, NEW), flat])
    compose(ComposeOptions(choice="uncertain"), parts=("chosen",)).adapt(
        verdicts([0]), world.context
    )
    assert (world.pupil.memory.samples_of(0).images == 100).all()


def test_recovery_lasts_until_the_class_is_back_or_the_budget_ends() -> None:
    world = setting(needs=30)
    options = ComposeOptions(steps_per_class=500)
    result = compose(options, parts=("recovery",)).adapt(verdicts([0]), world.context)
    assert world.pupil.rehearsals == 30 + 2 * 10, "three rounds to come back, two without a gain"
    assert result.notes[-1] == (
        "class 0: from 0.0 to 100.0 percent in 50 steps of recovery, 3,000 points of accuracy "
        "lost on the way, summed over steps"
    )
    hopeless = setting(needs=10**9)
    options = ComposeOptions(steps_per_class=50, patience=99)
    compose(options, parts=("recovery",)).adapt(verdicts([0]), hopeless.context)
    assert hopeless.pupil.rehearsals == 50, "the budget"


def test_recovery_goes_on_after_the_tasks_that_follow_at_a_falling_rate() -> None:
    world = setting(needs=10)
    options = ComposeOptions(steps_per_class=0, follow_ups=2, follow_up_share=0.5)
    adaptation = compose(options, parts=("recovery",))
    assert adaptation.follow_up(world.context) == (), "nothing has been adapted"
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.train_steps += 8
    (note,) = adaptation.follow_up(world.context)
    assert note.startswith("4 steps of recovery after the task: known classes from")
    assert world.pupil.rates == [1.0, 0.75, 0.5, 0.25]
    again = compose(options, parts=("recovery",))
    again.load_state_dict(adaptation.state_dict())
    assert again.state_dict() == adaptation.state_dict()
    assert again.follow_up(world.context) == (), "no step has been made since"
    world.pupil.train_steps += 8
    assert len(again.follow_up(world.context)) == 1
    world.pupil.train_steps += 8
    assert again.follow_up(world.context) == (), "there were to be two"
    assert world.pupil.rehearsals == 8
    again.adapt(verdicts([0]), world.context)
    world.pupil.train_steps += 10**6
    again.follow_up(world.context)
    assert world.pupil.rehearsals == 8 + MOST, "a live model does not wait for longer"


def test_logits_stored_with_fresh_samples_are_renewed_after_rehearsal() -> None:
    world = setting(needs=10)
    computed: list[int] = []

    def annotate(samples: Samples) -> dict[str, torch.Tensor]:
        computed.append(world.pupil.rehearsals)
        return {"logits": torch.full((len(samples), 2), float(world.pupil.rehearsals))}

    memory = ReplayBuffer(80, policy=Reservoir(), seed=0)
    both = Samples.concat([concept_samples(0, 40, OLD), concept_samples(1, 40, OLD)])
    memory.offer(both, {"logits": torch.zeros(80, 2)})
    context = dataclasses.replace(world.context, buffer=memory, annotate=annotate)
    options = ComposeOptions(steps_per_class=20, follow_ups=1)
    adaptation = compose(options, parts=("recovery",))
    adaptation.adapt(verdicts([0]), context)
    assert computed == [0, 20]
    world.pupil.train_steps += 10
    adaptation.follow_up(context)
    assert computed == [0, 20, 25]
    kept = memory.sample(80)
    assert set(kept.extras["logits"][kept.samples.labels == 0].flatten().tolist()) == {25.0}
    assert set(kept.extras["logits"][kept.samples.labels == 1].flatten().tolist()) == {0.0}


def test_without_an_adaptation_nothing_is_rehearsed() -> None:
    world = setting()
    world.source.stock.clear()
    adaptation = adaptation_named("amr-plus")
    result = adaptation.adapt(verdicts([0]), world.context)
    assert adaptation.follow_up(world.context) == ()
    assert (world.pupil.rehearsals, result.renewed, result.extra) == (0, (), None)


def test_pseudo_labels_are_rehearsed_after_the_task_for_renewed_classes_only() -> None:
    loose = concept_samples(0, 100, NEW, seed=7)
    world = setting(needs=10, loose=Samples.concat([loose, concept_samples(1, 50, OLD, seed=7)]))
    adaptation = adaptation_named("amr-free-labels")
    result = adaptation.adapt(verdicts([0]), world.context)
    assert result.extra is None, "no pseudo-label gets into the buffer"
    world.pupil.memory.drop(0)
    world.pupil.memory.put(loose[:40], {})
    world.pupil.rehearsed.clear()
    world.pupil.train_steps += 200
    notes = adaptation.follow_up(world.context)
    assert "pseudo-labels, 100.0 % right on monitored samples" in notes[0]
    assert all(batch.labels.tolist() == [0] for batch in world.pupil.rehearsed), "one of each"
    rehearsed = {int(batch.ids) for batch in world.pupil.rehearsed}
    assert len(rehearsed) > 30
    assert rehearsed <= set(loose.ids[40:].tolist()), "samples in the buffer get none"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"needs": 10**9}, "no pseudo-labels: fewer than 90 % of them would be right"),
        ({"labels": False}, "no pseudo-labels: there are no labelled samples to measure their"),
        ({"needs": 10, "loose": None}, "no pseudo-labels: no sample is predicted to be of the"),
        # two for each of 50 steps and 2 known classes: no more than the steps can use
        ({"needs": 10, "loose": concept_samples(0, 10_000, NEW, seed=7)}, "200 pseudo-labels"),
    ],
)
def test_pseudo_labels_are_noted_or_why_there_are_none(given: dict[str, Any], words: str) -> None:
    world = setting(**{"loose": concept_samples(0, 100, NEW, seed=7), **given})
    adaptation = adaptation_named("amr-free-labels")
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.train_steps += 100
    assert adaptation.follow_up(world.context)[0].startswith(words)


def test_pseudo_labels_that_do_harm_are_not_used_again() -> None:
    world = setting(needs=10, loose=concept_samples(0, 100, NEW, seed=7))
    adaptation = adaptation_named("amr-free-labels")
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.forgets_at = world.pupil.rehearsals + 50
    world.pupil.train_steps += 200
    notes = adaptation.follow_up(world.context)
    assert notes[-1] == "with pseudo-labels, accuracy fell: they are not used any more"
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.train_steps += 200
    assert not any("pseudo-labels" in note for note in adaptation.follow_up(world.context))


def test_a_concept_that_returns_costs_no_labels() -> None:
    world = setting()
    adaptation = adaptation_named("amr-remembered")
    before = world.pupil.memory.samples_of(0)
    adaptation.adapt(verdicts([0]), world.context)
    assert of_new_concept(world.pupil) == 40
    world.source.asked.clear()
    back = Samples.concat(
        [concept_samples(0, 60, OLD, seed=3), concept_samples(1, 60, OLD, seed=3)]
    )
    result = adaptation.adapt(
        verdicts([0]), dataclasses.replace(world.context, monitored=lambda: back)
    )
    assert world.source.asked == []
    assert sorted(world.pupil.memory.samples_of(0).ids.tolist()) == sorted(before.ids.tolist())
    assert result.renewed == (0,)
    assert result.notes == (
        "class 0: an earlier concept has returned, 40 samples restored without labels",
    )
    third = concept_samples(0, 60, NEW, seed=4)
    third.images[:] = 255 - third.images
    adaptation.adapt(verdicts([0]), dataclasses.replace(world.context, monitored=lambda: third))
    assert world.source.asked == [(0, 40)], "a new concept is not taken for an old one"


def test_the_archive_is_bounded_and_survives_saving() -> None:
    world = setting()
    adaptation = compose(ComposeOptions(looks=2), parts=("remembered",))
    for seed in range(4):  # always something else
        strange = concept_samples(0, 60, NEW, seed=seed)
        strange.images[:] = (strange.images.int() * (seed + 1) % 256).to(torch.uint8)
        world.source.stock[0] = strange
        now = partial(Samples.concat, [strange])
        adaptation.adapt(verdicts([0]), dataclasses.replace(world.context, monitored=now))
    state = adaptation.state_dict()
    assert [len(concepts) for concepts in state["archive"].values()] == [2]
    again = compose(ComposeOptions(looks=2), parts=("remembered",))
    again.load_state_dict(state)
    assert_same(again.state_dict()["archive"]["0"][1], state["archive"]["0"][1])


def test_gradual_drift_is_followed_from_the_first_clear_share_to_the_last_small_one() -> None:
    world = setting()
    adaptation = compose(ComposeOptions(begin=0.3, end=0.15), parts=("partial", "gradual"))
    asked = []
    for share in (0.2, 0.4, 0.2, 0.1, 0.2):
        world.source.asked.clear()
        adaptation.adapt(verdicts([0], share=share), world.context)
        asked.append([count for _, count in world.source.asked])
    assert asked == [[], [16], [8], [], []]
    again = compose(ComposeOptions(begin=0.3, end=0.15), parts=("partial", "gradual"))
    again.load_state_dict(adaptation.state_dict())
    assert again.state_dict() == adaptation.state_dict()


@pytest.mark.parametrize(("tested", "asked"), [({0, 1}, []), ({1}, [0])])
def test_a_class_tested_without_drift_has_to_begin_anew(tested: set[int], asked: list[int]) -> None:
    """A live learner checks classes one by one: one that was not tested stays in drift."""
    world = setting(share=0.6)
    adaptation = adaptation_named("amr-gradual")
    adaptation.adapt(verdicts([0]), world.context)  # the fraction is estimated
    adaptation.adapt([], dataclasses.replace(world.context, tested=frozenset(tested)))
    world.source.asked.clear()
    adaptation.adapt(verdicts([0], share=0.2), world.context)
    assert [label for label, _ in world.source.asked] == asked


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"choice": "best"}, "choice must be one of random, diverse, uncertain; got 'best'"),
        ({"precision": 1.2}, "precision must lie between 0 and 1; got 1.2"),
        ({"begin": 0.1, "end": 0.2}, "end must not exceed begin; got 0.2 and 0.1"),
        ({"looks": 0}, "looks must be at least 1; got 0"),
    ],
)
def test_impossible_options_are_refused(wrong: dict[str, Any], words: str) -> None:
    assert complaint(lambda: ComposeOptions(**wrong)) == words
