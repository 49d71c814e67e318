"""The laws of cutting: disjoint, complete, stratified, reproducible."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwise import rng
from driftwise.datasets.readers.digits import load_digits
from driftwise.streams.split import cut

THIRDS = (0.6, 0.2, 0.2)


def digits_cut(seed: int) -> tuple[np.ndarray, ...]:
    return cut(load_digits().labels, THIRDS, rng.fork(seed, "parts"))


def test_digits_are_cut_60_20_20_into_disjoint_parts_that_hold_everything() -> None:
    parts = digits_cut(0)
    assert [round(len(part) / 1797, 2) for part in parts] == [0.6, 0.2, 0.2]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(1797))
    assert all(np.array_equal(part, np.sort(part)) for part in parts)


@pytest.mark.parametrize("seed", range(5))
def test_every_class_of_the_digits_is_within_one_sample_of_its_share(seed: int) -> None:
    labels = load_digits().labels
    for part, fraction in zip(digits_cut(seed), THIRDS, strict=True):
        off = np.bincount(labels[part]) - fraction * np.bincount(labels)
        assert np.abs(off).max() <= 1


def test_the_same_seed_gives_the_same_parts_and_another_seed_others() -> None:
    one, same, other = digits_cut(0), digits_cut(0), digits_cut(1)
    for a, b, c in zip(one, same, other, strict=True):
        assert np.array_equal(a, b)
        assert not np.array_equal(a, c)


def test_cutting_leaves_the_global_generators_alone() -> None:
    before = torch.get_rng_state()
    digits_cut(0)
    assert torch.equal(torch.get_rng_state(), before)


@settings(deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), max_size=40),
    weights=st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any),
    seed=st.integers(0, 3),
)
def test_any_cut_puts_every_sample_in_one_part_and_no_class_off_by_more_than_one(
    labels: list[int], weights: list[int], seed: int
) -> None:
    label_of = np.array(labels, dtype=np.int64)
    fractions = [weight / sum(weights) for weight in weights]
    parts = cut(label_of, fractions, rng.fork(seed, "cut"))
    assert sorted(sample for part in parts for sample in part) == list(range(len(labels)))
    for part, fraction in zip(parts, fractions, strict=True):
        for label in set(labels):
            share = fraction * labels.count(label)
            assert abs((label_of[part] == label).sum() - share) <= 1 + 1e-9


def test_every_sample_is_equally_likely_to_land_in_each_part() -> None:
    generator = rng.fork(0, "often")
    times = np.zeros(10)
    for _ in range(1000):
        times[cut(np.zeros(10, dtype=np.int64), (0.3, 0.7), generator)[0]] += 1
    # binomial(1000, 0.3): mean 300, five standard deviations are 72
    assert np.abs(times - 300).max() < 72


@pytest.mark.parametrize("fractions", [(0.5, 0.4), (1.2, -0.2), ()])
def test_fractions_that_are_no_shares_of_one_are_refused(fractions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        cut(np.zeros(4, dtype=np.int64), fractions, rng.fork(0))
