"""Samples grouped by predictions are compared under the class mix of the stream."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize

from driftwise.stats.class_mix import in_that_mix, shares_in_stream


def stream(shares: list[float], confusion: np.ndarray, samples: int, seed: int) -> torch.Tensor:
    """What samples are taken for that come in these shares."""
    draw = np.random.default_rng(seed)
    labels = draw.choice(len(shares), samples, p=shares)
    return torch.tensor([draw.choice(confusion.shape[1], p=confusion[c]) for c in labels])


def reference(confusion: np.ndarray, each: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As many samples of every class, taken for others as often as they are."""
    labels = torch.arange(len(confusion)).repeat_interleave(each)
    groups = [np.repeat(np.arange(3), np.round(sample * each).astype(int)) for sample in confusion]
    return labels, torch.from_numpy(np.concatenate(groups))


CONFUSION = np.array([[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.1, 0.2, 0.7]])


@pytest.mark.parametrize("shares", [[0.9, 0.05, 0.05], [0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
def test_the_shares_of_a_stream_are_found_from_predictions(
    shares: list[float],
) -> None:
    labels, groups = reference(CONFUSION, 100)
    found = shares_in_stream(labels, groups, stream(shares, CONFUSION, 20_000, 0))
    assert [found[c] for c in range(3)] == pytest.approx(shares, abs=0.03)


def test_they_are_the_likeliest_ones_after_ten_samples_of_what_is_usual() -> None:
    labels, groups = reference(CONFUSION, 100)
    now = stream([0.6, 0.1, 0.3], CONFUSION, 60, 1)
    counts = np.bincount(now.numpy(), minlength=3)
    taken_for = (100 * CONFUSION + 1 / 3) / 101
    before = np.array([8, 1, 1]) / 10

    def unlikely(logits: np.ndarray) -> float:
        shares = np.exp(logits) / np.exp(logits).sum()
        return -float(counts @ np.log(shares @ taken_for) + 10 * before @ np.log(shares))

    best = optimize.minimize(unlikely, np.zeros(3), method="Nelder-Mead", tol=1e-10).x
    found = shares_in_stream(labels, groups, now, lambda label: 79 if label == 0 else 9)
    likeliest = np.exp(best) / np.exp(best).sum()
    assert [found[c] for c in range(3)] == pytest.approx(likeliest, abs=0.02)


def test_every_group_of_the_reference_gets_the_mix_of_the_stream() -> None:
    labels, groups = reference(CONFUSION, 100)
    assert in_that_mix(labels, groups, dict.fromkeys(range(3), 1 / 3)).all(), "as they are"
    stays = in_that_mix(labels, groups, {0: 0.6, 1: 0.3, 2: 0.1})
    for group in range(3):
        there = groups == group
        left = labels[stays & there].bincount(minlength=3)
        wanted = np.array([0.6, 0.3, 0.1]) * CONFUSION[:, group]
        assert left.sum() > 10
        assert (left / left.sum()).numpy() == pytest.approx(wanted / wanted.sum(), abs=0.06)
        fullest = labels[there].bincount(minlength=3)
        assert (left == fullest).any(), "no more samples than must be are left out"


def test_a_group_into_which_a_frequent_class_may_have_got_unseen_is_left_out() -> None:
    """One in a hundred samples of the frequent class would be a third of those taken for the rare."""
    labels, groups = reference(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]), 50)
    stays = in_that_mix(labels, groups, {0: 0.94, 1: 0.01, 2: 0.05})
    assert not bool(stays[groups == 1].any())
    assert int(stays[groups == 0].sum()) == 50
    assert bool(in_that_mix(labels, groups, {0: 0.3, 1: 0.3, 2: 0.4})[groups == 1].all())


def test_without_reference_samples_or_current_ones_the_prior_is_all() -> None:
    none = torch.empty(0, dtype=torch.int64)
    assert shares_in_stream(none, none, torch.tensor([0, 1])) == {}
    labels, groups = reference(CONFUSION, 10)
    assert shares_in_stream(labels, groups, none) == pytest.approx(dict.fromkeys(range(3), 1 / 3))
