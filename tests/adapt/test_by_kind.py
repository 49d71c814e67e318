"""The adaptation `auto`: what it does follows from the kind of change."""

from __future__ import annotations

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
)

from driftwise.adapt.by_kind import LEFT_ALONE
from driftwise.protocols import AdaptationContext
from driftwise.stats.kind_names import Kind
from driftwise.types import Samples, Verdict


def world(share: float) -> tuple[Pupil, Source, AdaptationContext]:
    """Class 0 has drifted by so much; 40 samples of it are in the buffer, all of them old."""
    pupil = Pupil(memory_of(concept_samples(0, 40, OLD), concept_samples(1, 20, OLD)), needs=0)
    source = Source(stock={0: mixed(0, 200, share, seed=1)})
    monitored = Samples.concat([mixed(0, 60, share, seed=2), concept_samples(1, 60, OLD, seed=2)])
    return pupil, source, context_of(pupil, source, monitored)


def verdict(kind: Kind | None, share: float) -> Verdict:
    return Verdict(task=2, label=0, drifted=True, share=share, kind=kind)


@pytest.mark.parametrize("kind", ["drift", None])
def test_drift_and_a_kind_that_nobody_named_are_realigned_completely(kind: Kind | None) -> None:
    pupil, source, context = world(1.0)
    result = adaptation_named("auto").adapt([verdict(kind, 0.5)], context)
    assert source.asked == [(0, 40)]
    assert result.renewed == (0,)
    assert set(pupil.memory.samples_of(0).concepts.tolist()) == {NEW}


def test_a_new_mode_costs_labels_for_its_fraction_and_the_old_samples_stay() -> None:
    pupil, source, context = world(0.5)
    adaptation_named("auto").adapt([verdict("new mode", 0.5)], context)
    assert source.asked == [(0, 20)]
    concepts = pupil.memory.samples_of(0).concepts
    assert torch.bincount(concepts).tolist() == [20, 20]


def test_an_earlier_concept_is_restored_without_labels() -> None:
    adaptation = adaptation_named("auto")
    pupil, source, context = world(1.0)
    adaptation.adapt([verdict("drift", 1.0)], context)
    source.asked.clear()
    back = Samples.concat([concept_samples(0, 60, OLD, seed=3), concept_samples(1, 60, OLD)])
    result = adaptation.adapt([verdict("recurring", 1.0)], context_of(pupil, source, back))
    assert source.asked == []
    assert result.renewed == (0,)
    assert set(pupil.memory.samples_of(0).concepts.tolist()) == {OLD}


@pytest.mark.parametrize("kind", LEFT_ALONE)
def test_what_fresh_samples_do_not_cure_costs_no_label_and_is_reported(kind: Kind) -> None:
    _, source, context = world(1.0)
    found = verdict(kind, 1.0)
    result = adaptation_named("auto").adapt([found], context)
    assert source.asked == []
    assert result.renewed == ()
    assert result.notes == (f"class 0: {kind}; {found.action}",)
