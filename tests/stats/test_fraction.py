"""The drifted fraction: against its definition, on mixtures of known share, at the edges."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from driftwise.errors import UserError
from driftwise.stats.fraction import Share, _mixed_in, estimate_shares


def mixture(
    sizes: tuple[int, int], share: float, draw: torch.Generator, *, apart: float = 6.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Reference samples, current samples, and which of these have drifted along one direction out of 8."""
    reference = torch.randn(sizes[0], 8, generator=draw)
    current = torch.randn(sizes[1], 8, generator=draw)
    has_drifted = torch.randperm(sizes[1], generator=draw) < round(share * sizes[1])
    current[has_drifted] += apart / math.sqrt(8)
    return reference, current, has_drifted


def shares_of(sizes: tuple[int, int], share: float, num: int, **options: Any) -> list[Share]:
    draw = torch.Generator().manual_seed(0)
    return estimate_shares([mixture(sizes, share, draw, **options)[:2] for _ in range(num)])


@pytest.mark.parametrize(
    ("sizes", "share"), [((50, 100), 0.25), ((100, 40), 0.5), ((50, 100), 0.75), ((100, 40), 1.0)]
)
def test_the_share_of_a_clear_drift_is_found_to_within_a_tenth(
    sizes: tuple[int, int], share: float
) -> None:
    errors = [each.share - share for each in shares_of(sizes, share, 30)]
    assert abs(statistics.fmean(errors)) < 0.1
    assert math.sqrt(statistics.fmean(e * e for e in errors)) < 0.15


def test_more_samples_bring_the_share_nearer_to_the_truth() -> None:
    few, more = (
        statistics.fmean(abs(each.share - 0.25) for each in shares_of(sizes, 0.25, 20))
        for sizes in ((30, 30), (300, 300))
    )
    assert more < few / 1.5
    assert more < 0.06


def test_where_nothing_drifted_the_share_is_small() -> None:
    found = [each.share for each in shares_of((50, 100), 0.0, 60)]
    assert statistics.fmean(found) < 0.2
    assert statistics.median(found) < 0.15


def test_the_share_grows_with_the_truth_however_faint_the_drift() -> None:
    means = [
        statistics.fmean(each.share for each in shares_of((50, 100), share, 40, apart=2.0))
        for share in (0.0, 0.5, 1.0)
    ]
    assert means[0] < means[1] < means[2]


def test_two_standard_errors_hold_the_truth_of_a_clear_drift() -> None:
    found = shares_of((100, 100), 0.5, 60, apart=8.0)
    assert statistics.fmean(abs(each.share - 0.5) <= 2 * each.error for each in found) > 0.9


def test_the_ratio_is_least_at_its_worst_where_the_definition_says() -> None:
    draw = torch.Generator().manual_seed(3)
    reference = torch.randint(12, (5, 20), generator=draw).double()  # with ties
    current = torch.randint(12, (5, 30), generator=draw).double() + torch.arange(5)[:, None]
    found, _ = _mixed_in(reference, current)
    slack = math.sqrt(math.log(40) / 40) + math.sqrt(math.log(40) / 60)
    for place in range(5):
        worst, ratio = math.inf, math.nan
        for score in reference[place].sort().values:
            kept = (reference[place] <= score).double().mean().item()
            stayed = (current[place] <= score).double().mean().item()
            if (stayed + slack) / kept < worst:
                worst, ratio = (stayed + slack) / kept, stayed / kept
        assert found[place].item() == pytest.approx(min(max(1 - ratio, 0), 1))


def test_the_standard_error_is_that_of_a_ratio_of_two_shares() -> None:
    reference = torch.arange(8.0).double()[None]
    current = torch.tensor([[0.5] * 3 + [99.0] * 9], dtype=torch.float64)
    (share,), (error,) = _mixed_in(reference, current)
    assert share.item() == pytest.approx(0.75)  # all of the reference, three of twelve
    kept, stayed = 9 / 10, 4 / 14
    relative = (1 - kept) / (kept * 10) + (1 - stayed) / (stayed * 14)
    assert error.item() == pytest.approx(stayed / kept * math.sqrt(relative))


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_the_evidence_is_a_probability_that_holds_on_average(share: float) -> None:
    found = shares_of((50, 100), share, 30, apart=4.0)
    evidence = torch.stack([each.evidence for each in found])
    assert evidence.min() >= 0
    assert evidence.max() <= 1
    assert evidence.mean().item() == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize("rhythm", [2, 10])
def test_samples_that_drifted_in_a_rhythm_are_found_as_any_others(rhythm: int) -> None:
    draw = torch.Generator().manual_seed(8)
    reference, current = torch.randn(50, 8, generator=draw), torch.randn(100, 8, generator=draw)
    has_drifted = torch.arange(100) % rhythm == 0
    current[has_drifted] += 3.0
    (found,) = estimate_shares([(reference, current)])
    assert roc_auc_score(has_drifted, found.evidence) > 0.95


def test_equal_arguments_give_equal_answers_and_inputs_stay_as_they_are() -> None:
    reference, current, _ = mixture((20, 30), 0.5, torch.Generator().manual_seed(5))
    copies = reference.clone(), current.clone()
    (first,) = estimate_shares([(reference, current)])
    (again,) = estimate_shares([(reference.requires_grad_(), current)])
    assert first.share == again.share
    assert torch.equal(first.evidence, again.evidence)
    assert not again.evidence.requires_grad
    assert torch.equal(reference, copies[0])
    assert torch.equal(current, copies[1])


def test_classes_of_different_sizes_come_back_in_their_order() -> None:
    draw = torch.Generator().manual_seed(6)
    settings = [((50, 60), 1.0), ((30, 60), 0.0), ((50, 60), 0.5)]
    pairs = [mixture(sizes, share, draw)[:2] for sizes, share in settings]
    together = [each.share for each in estimate_shares(pairs)]
    assert together == pytest.approx([estimate_shares([pair])[0].share for pair in pairs])
    assert together[0] > together[2] > together[1]
    assert estimate_shares([]) == []


def test_samples_that_leave_a_constant_have_the_evidence() -> None:
    reference, current = torch.zeros(9, 2), torch.zeros(12, 2)
    current[:6] = 1.0
    (found,) = estimate_shares([(reference, current)])
    assert found.share == pytest.approx(0.5, abs=0.1)
    assert found.evidence[:6].min() > 0.9
    assert found.evidence[6:].max() < 0.1
    for value in (0.0, 0.1, 1e8):
        constant = torch.full((7, 3), value)
        (found,) = estimate_shares([(constant, constant)])
        assert found.share == 0
        assert found.evidence.max() < 0.1


@pytest.mark.parametrize(
    ("sizes", "share"), [((2, 2), 0.5), ((5, 5), 0.0), ((5, 200), 1.0), ((200, 5), 0.5)]
)
def test_the_smallest_samples_give_numbers(sizes: tuple[int, int], share: float) -> None:
    for found in shares_of(sizes, share, 5):
        assert 0 <= found.share <= 1
        assert 0 < found.error < 1
        assert found.evidence.isfinite().all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_features_that_are_no_numbers_are_refused(bad: float) -> None:
    current = torch.randn(6, 3, generator=torch.Generator().manual_seed(7))
    current[1, 2] = bad
    with pytest.raises(UserError, match="NaN"):
        estimate_shares([(current[2:], current)])
    for options in ({"folds": 1}, {"ridge": 0.0}):
        with pytest.raises(UserError, match="at least 2 folds and a positive ridge"):
            estimate_shares([], **options)
