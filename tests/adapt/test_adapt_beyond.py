"""What each part beyond realignment promises, on concepts that are easily told apart."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from adapt_builders import adaptation_named
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

from driftwise.adapt import Adaptation
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


def follow_up(adaptation: Adaptation, context: AdaptationContext) -> tuple[str, ...]:
    return adaptation.follow_up(context)


def of_new_concept(pupil: Pupil, label: int = 0) -> int:
    return int((pupil.memory.samples_of(label).concepts == NEW).sum())


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_partial_realignment_makes_the_memory_as_mixed_as_the_class(share: float) -> None:
    world = setting(share=share)
    adaptation_named("amr-partial").adapt(verdicts([0]), world.context)
    assert len(world.pupil.memory.samples_of(0)) == 40
    assert abs(of_new_concept(world.pupil) - share * 40) <= 6
    ((_, asked),) = world.source.asked
    assert asked == of_new_concept(world.pupil), "every label went into a sample of the new concept"


def test_of_a_whole_drift_partial_realignment_is_plain_realignment() -> None:
    world = setting(share=1.0)
    adaptation_named("amr-partial").adapt(verdicts([0]), world.context)
    assert of_new_concept(world.pupil) == 40
    assert world.source.asked == [(0, 40)]


def test_partial_realignment_throws_out_what_fits_least() -> None:
    world = setting(share=1.0)
    world.pupil.memory.drop(0, torch.arange(40) < 20)
    world.pupil.memory.put(concept_samples(0, 20, NEW, seed=5))
    adaptation_named("amr-partial").adapt(verdicts([0], share=0.5), world.context)
    assert of_new_concept(world.pupil) == 40
    assert world.source.asked == [(0, 20)]


def test_the_detectors_share_is_taken_for_granted() -> None:
    world = setting(share=1.0)
    adaptation_named("amr-partial").adapt(verdicts([0], share=0.1), world.context)
    assert world.source.asked == [(0, 4)]


def test_nothing_is_asked_for_a_class_whose_samples_all_fit() -> None:
    world = setting(share=1.0)
    result = adaptation_named("amr-partial").adapt(verdicts([0], share=0.0), world.context)
    assert (world.source.asked, result.renewed) == ([], ())
    assert result.notes == ("class 0: its 40 samples still fit",)


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


@pytest.mark.parametrize("name", ["amr-chosen", "amr-partial", "amr-plus"])
def test_no_sample_is_chosen_twice(name: str) -> None:
    world = setting(share=0.5)
    adaptation_named(name).adapt(verdicts([0]), world.context)
    ids = world.pupil.memory.samples_of(0).ids.tolist()
    assert len(set(ids)) == len(ids) == 40


def test_recovery_goes_on_until_the_class_is_back_and_no_further() -> None:
    world = setting(needs=30)
    options = ComposeOptions(steps_per_class=500)
    result = compose(options, parts=("recovery",)).adapt(verdicts([0]), world.context)
    assert world.pupil.rehearsals == 30 + 2 * 10, "three rounds to come back, two without a gain"
    assert result.notes[-1] == (
        "class 0: from 0.0 to 100.0 percent in 50 steps of recovery, 3,000 points of accuracy "
        "lost on the way, summed over steps"
    )


def test_recovery_ends_with_its_budget() -> None:
    world = setting(needs=10**9)
    options = ComposeOptions(steps_per_class=50, patience=99)
    compose(options, parts=("recovery",)).adapt(verdicts([0]), world.context)
    assert world.pupil.rehearsals == 50


def test_recovery_goes_on_after_the_tasks_that_follow_at_a_falling_rate() -> None:
    world = setting(needs=10)
    options = ComposeOptions(steps_per_class=0, follow_ups=2, follow_up_share=0.5)
    adaptation = compose(options, parts=("recovery",))
    assert follow_up(adaptation, world.context) == (), "nothing has been adapted"
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.taught += 8
    (note,) = follow_up(adaptation, world.context)
    assert note.startswith("4 steps of recovery after the task: known classes from")
    assert world.pupil.rates == [1.0, 0.75, 0.5, 0.25]
    again = compose(options, parts=("recovery",))
    again.load_state_dict(adaptation.state_dict())
    assert again.state_dict() == adaptation.state_dict()
    assert follow_up(again, world.context) == (), "no step has been made since"
    world.pupil.taught += 8
    assert len(follow_up(again, world.context)) == 1
    world.pupil.taught += 8
    assert follow_up(again, world.context) == (), "there were to be two"
    assert world.pupil.rehearsals == 8


def test_no_phase_after_a_task_keeps_a_live_model_waiting_for_long() -> None:
    world = setting(needs=10)
    adaptation = compose(ComposeOptions(steps_per_class=0), parts=("recovery",))
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.taught += 10**6
    follow_up(adaptation, world.context)
    assert world.pupil.rehearsals == MOST


def test_what_memory_keeps_beside_fresh_samples_is_said_anew_once_they_are_known() -> None:
    world = setting(needs=10)
    spoken: list[int] = []

    def annotate(samples: Samples) -> dict[str, torch.Tensor]:
        spoken.append(world.pupil.rehearsals)
        return {"logits": torch.full((len(samples), 2), float(world.pupil.rehearsals))}

    memory = ReplayBuffer(80, policy=Reservoir(), seed=0)
    both = Samples.concat([concept_samples(0, 40, OLD), concept_samples(1, 40, OLD)])
    memory.offer(both, {"logits": torch.zeros(80, 2)})
    context = dataclasses.replace(world.context, buffer=memory, annotate=annotate)
    options = ComposeOptions(steps_per_class=20, follow_ups=1)
    adaptation = compose(options, parts=("recovery",))
    adaptation.adapt(verdicts([0]), context)
    assert spoken == [0, 20]
    world.pupil.taught += 10
    follow_up(adaptation, context)
    assert spoken == [0, 20, 25]
    kept = memory.sample(80)
    assert set(kept.extras["logits"][kept.samples.labels == 0].flatten().tolist()) == {25.0}
    assert set(kept.extras["logits"][kept.samples.labels == 1].flatten().tolist()) == {0.0}


def test_without_an_adaptation_nothing_is_rehearsed() -> None:
    world = setting()
    world.source.stock.clear()
    adaptation = adaptation_named("amr-plus")
    result = adaptation.adapt(verdicts([0]), world.context)
    assert follow_up(adaptation, world.context) == ()
    assert (world.pupil.rehearsals, result.renewed, result.extra) == (0, (), None)


def test_pseudo_labels_are_rehearsed_after_the_task_and_only_those_at_renewed_classes() -> None:
    loose = Samples.concat(
        [concept_samples(0, 100, NEW, seed=7), concept_samples(1, 50, OLD, seed=7)]
    )
    world = setting(needs=10, loose=loose)
    adaptation = adaptation_named("amr-free-labels")
    result = adaptation.adapt(verdicts([0]), world.context)
    world.pupil.rehearsed.clear()
    world.pupil.taught += 200
    notes = follow_up(adaptation, world.context)
    assert "pseudo-labels, 100.0 % right on monitored samples" in notes[0]
    assert all(batch.labels.tolist() == [0] for batch in world.pupil.rehearsed), "one of each"
    rehearsed = {int(batch.ids) for batch in world.pupil.rehearsed}
    assert len(rehearsed) > 30
    assert rehearsed <= set(concept_samples(0, 100, NEW, seed=7).ids.tolist())
    assert result.extra is None, "nothing that is guessed gets into memory"


def test_pseudo_labels_that_would_be_wrong_are_not_used() -> None:
    world = setting(needs=10**9, loose=concept_samples(0, 100, NEW, seed=7))
    adaptation = adaptation_named("amr-free-labels")
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.taught += 20
    assert follow_up(adaptation, world.context)[0] == (
        "no pseudo-labels: fewer than 90 % of them would be right"
    )


def test_without_labelled_samples_there_are_no_pseudo_labels() -> None:
    world = setting(labels=False, loose=concept_samples(0, 100, NEW, seed=7))
    adaptation = adaptation_named("amr-free-labels")
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.taught += 20
    assert follow_up(adaptation, world.context) == (
        "no pseudo-labels: there are no labelled samples to measure their precision",
    )


def test_pseudo_labels_that_do_harm_are_not_used_again() -> None:
    world = setting(needs=10, loose=concept_samples(0, 100, NEW, seed=7))
    adaptation = adaptation_named("amr-free-labels")
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.forgets_at = world.pupil.rehearsals + 50
    world.pupil.taught += 200
    told = follow_up(adaptation, world.context)
    assert told[-1] == "with pseudo-labels, accuracy fell: they are not used any more"
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.taught += 200
    assert not any("pseudo-labels" in note for note in follow_up(adaptation, world.context))


def test_samples_in_the_buffer_get_no_pseudo_label() -> None:
    loose = concept_samples(0, 100, NEW, seed=7)
    world = setting(needs=10, loose=loose)
    adaptation = adaptation_named("amr-free-labels")
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.memory.drop(0)
    world.pupil.memory.put(loose[:40], {})
    world.pupil.rehearsed.clear()
    world.pupil.taught += 200
    follow_up(adaptation, world.context)
    rehearsed = {int(batch.ids) for batch in world.pupil.rehearsed}
    assert len(rehearsed) > 30
    assert rehearsed <= set(loose.ids[40:].tolist())


def test_no_more_samples_are_predicted_than_the_steps_can_use() -> None:
    world = setting(needs=10, loose=concept_samples(0, 10_000, NEW, seed=7))
    adaptation = adaptation_named("amr-free-labels")
    adaptation.adapt(verdicts([0]), world.context)
    world.pupil.taught += 100
    guessed = follow_up(adaptation, world.context)[0]
    assert guessed.startswith("200 pseudo-labels"), "two for each of 50 steps and 2 known classes"


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


def test_a_new_concept_is_not_taken_for_an_old_one() -> None:
    world = setting()
    adaptation = adaptation_named("amr-remembered")
    adaptation.adapt(verdicts([0]), world.context)
    world.source.asked.clear()
    third = concept_samples(0, 60, NEW, seed=4)
    third.images[:] = 255 - third.images
    adaptation.adapt(verdicts([0]), dataclasses.replace(world.context, monitored=lambda: third))
    assert world.source.asked == [(0, 40)]


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
    assert [
        [samples["ids"].tolist() for samples in concepts]
        for concepts in again.state_dict()["archive"].values()
    ] == [
        [samples["ids"].tolist() for samples in concepts] for concepts in state["archive"].values()
    ]


def test_a_detector_that_always_fires_does_not_make_a_class_flap() -> None:
    world = setting(share=0.0)
    adaptation = adaptation_named("amr-gradual")
    for _ in range(5):
        adaptation.adapt(verdicts([0], share=0.1), world.context)
    assert world.source.asked == []


def test_gradual_drift_is_followed_from_the_first_clear_share_to_the_last_small_one() -> None:
    world = setting()
    adaptation = compose(ComposeOptions(begin=0.3, end=0.15), parts=("partial", "gradual"))
    asked = []
    for share in (0.2, 0.4, 0.2, 0.1, 0.2):
        world.source.asked.clear()
        adaptation.adapt(verdicts([0], share=share), world.context)
        asked.append([count for _, count in world.source.asked])
    assert asked == [[], [16], [8], [], []]


def test_a_class_that_is_quiet_for_once_has_to_begin_anew() -> None:
    world = setting()
    adaptation = adaptation_named("amr-gradual")
    adaptation.adapt(verdicts([0], share=0.4), world.context)
    adaptation.adapt([], dataclasses.replace(world.context, tested=frozenset({0, 1})))
    world.source.asked.clear()
    adaptation.adapt(verdicts([0], share=0.2), world.context)
    assert world.source.asked == []
    again = adaptation_named("amr-gradual")
    again.load_state_dict(adaptation.state_dict())
    assert again.state_dict() == adaptation.state_dict()


def test_a_class_that_nobody_tested_goes_on_drifting() -> None:
    """A live learner checks classes one by one, each when enough samples of it have come in."""
    world = setting()
    adaptation = adaptation_named("amr-gradual")
    adaptation.adapt(verdicts([0], share=0.4), world.context)
    adaptation.adapt([], dataclasses.replace(world.context, tested=frozenset({1})))
    world.source.asked.clear()
    adaptation.adapt(verdicts([0], share=0.2), world.context)
    assert [label for label, _ in world.source.asked] == [0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"choice": "best"}, "choice must be one of random, diverse, uncertain; got 'best'"),
        ({"precision": 1.2}, "precision must lie between 0 and 1; got 1.2"),
        ({"begin": 0.1, "end": 0.2}, "end must not exceed begin; got 0.2 and 0.1"),
        ({"looks": 0}, "looks must be at least 1; got 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any], words: str) -> None:
    assert complaint(lambda: ComposeOptions(**wrong)) == words
