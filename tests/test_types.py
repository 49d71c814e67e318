"""The laws of samples, whoever carries them."""

from __future__ import annotations

from dataclasses import fields

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwise.types import Samples

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12)
"""(id, concept) of each sample"""


def samples(id_and_concept: list[tuple[int, int]]) -> Samples:
    """Samples whose only pixel is their position, so that each is known by it."""
    key = torch.tensor(id_and_concept, dtype=torch.int64).view(-1, 2)
    return Samples(
        images=torch.arange(len(key), dtype=torch.uint8).view(-1, 1, 1, 1),
        labels=key[:, 0] % 2,
        ids=key[:, 0],
        concepts=key[:, 1],
    )


def positions(some: Samples) -> list[int]:
    return some.images.flatten().tolist()


@settings(deadline=None)
@given(pairs)
def test_distinct_keeps_the_first_sample_of_every_id_and_concept_in_order(
    id_and_concept: list[tuple[int, int]],
) -> None:
    first = [i for i, key in enumerate(id_and_concept) if key not in id_and_concept[:i]]
    assert positions(samples(id_and_concept).distinct()) == first


@settings(deadline=None)
@given(pairs, st.integers(0, 1))
def test_of_class_gives_the_samples_of_that_class_in_order(
    id_and_concept: list[tuple[int, int]], label: int
) -> None:
    some = samples(id_and_concept)
    wanted = [i for i, (id_, _) in enumerate(id_and_concept) if id_ % 2 == label]
    assert positions(some.of_class(label)) == wanted


def test_a_slice_a_mask_and_positions_pick_the_same_samples_of_every_column() -> None:
    some = samples([(0, 0), (1, 1), (2, 2), (3, 0)])
    picks = (
        some[1:3],
        some[torch.tensor([False, True, True, False])],
        some[torch.tensor([1, 2])],
    )
    for pick in picks:
        assert len(pick) == 2
        for field in fields(Samples):
            assert torch.equal(getattr(pick, field.name), getattr(some, field.name)[1:3])


@settings(deadline=None)
@given(st.lists(pairs, min_size=1, max_size=4))
def test_concat_is_one_set_after_the_other_in_every_column(
    sets: list[list[tuple[int, int]]],
) -> None:
    parts = [samples(part) for part in sets]
    whole = Samples.concat(parts)
    assert len(whole) == sum(map(len, parts))
    for field in fields(Samples):
        one_by_one = [entry for part in parts for entry in getattr(part, field.name)]
        assert all(map(torch.equal, getattr(whole, field.name), one_by_one))
