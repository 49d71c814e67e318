"""The Kolmogorov-Smirnov test and the entropy it is run on, against their definitions."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from recollect.detect.ks import kolmogorov_smirnov
from recollect.detect.scores import entropy

samples = st.lists(st.integers(-4, 4) | st.floats(-4, 4), min_size=2, max_size=15).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)
"""ties included"""


def largest_gap(first: Tensor, second: Tensor) -> float:
    """The statistic by its definition, one threshold after the other."""
    return max(
        abs(float((first <= t).double().mean()) - float((second <= t).double().mean()))
        for t in torch.cat([first, second])
    )


def scipys_p_value(first: Tensor, second: Tensor) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(stats.ks_2samp(first.numpy(), second.numpy()).pvalue)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(samples, samples), max_size=3))
def test_ks_is_the_largest_gap_with_scipys_p_value_pair_by_pair(
    pairs: list[tuple[Tensor, Tensor]],
) -> None:
    evidence = kolmogorov_smirnov(pairs)
    assert len(evidence) == len(pairs)
    for (statistic, p_value), (first, second) in zip(evidence, pairs, strict=True):
        assert statistic == pytest.approx(largest_gap(first, second), abs=1e-12)
        assert p_value == scipys_p_value(first, second)
        assert type(statistic) is type(p_value) is float


def test_ks_of_separated_samples_has_the_hand_worked_p_value() -> None:
    # 2 of the choose(6, 3) = 20 equally likely orders separate three and three completely
    (found,) = kolmogorov_smirnov([(torch.tensor([1.0, 2, 3]), torch.tensor([4.0, 5, 6]))])
    assert found.statistic == 1
    assert found.p_value == pytest.approx(2 / 20)


def test_samples_of_one_size_that_hardly_differ_have_p_value_one_without_a_warning() -> None:
    for rows in range(2, 40):  # rounding pushes some of the exact p-values past one
        first = torch.arange(rows).double()
        ((statistic, p_value),) = kolmogorov_smirnov([(first, first + 0.5)])
        assert statistic == pytest.approx(1 / rows)
        assert p_value == pytest.approx(1, abs=1e-4)
        assert p_value <= 1


@settings(deadline=None)
@given(samples)
def test_ks_of_a_sample_with_itself_finds_nothing(sample: Tensor) -> None:
    assert kolmogorov_smirnov([(sample, sample)]) == [(0.0, 1.0)]


logit_rows = st.lists(
    st.lists(st.floats(-30, 30, width=32), min_size=4, max_size=4), min_size=1, max_size=5
)


@settings(deadline=None)
@given(logit_rows)
def test_entropy_is_minus_the_sum_of_p_log_p_and_lies_between_0_and_log_k(
    rows: list[list[float]],
) -> None:
    found = entropy(torch.tensor(rows))
    for value, logits in zip(found.tolist(), rows, strict=True):
        weights = [math.exp(z) for z in logits]
        p = [w / sum(weights) for w in weights]
        assert value == pytest.approx(-math.fsum(q * math.log(q) for q in p if q), abs=1e-9)
        assert -1e-12 <= value <= math.log(4) + 1e-12


def test_entropy_meets_its_bounds_and_keeps_a_hopeless_class_finite() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0], [1e4, -1e4, 0.0]])
    assert entropy(logits).tolist() == pytest.approx([math.log(3), 0.0])


def test_entropy_tells_apart_what_single_precision_would_tie() -> None:
    # an untrained network's logits, a hair from uniform
    logits = torch.tensor([[0.0, 1e-4], [0.0, 2e-4]])
    single = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
    assert single[0] == single[1]
    assert entropy(logits)[0] > entropy(logits)[1]
