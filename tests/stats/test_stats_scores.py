"""Scores against their definitions, written out in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from driftwise.stats.scores import SCORES, energy, entropy, margin, max_probability

logit_samples = st.lists(
    st.lists(st.floats(-30, 30, width=32), min_size=4, max_size=4), min_size=1, max_size=5
)


def probabilities(logits: list[float]) -> list[float]:
    weights = [math.exp(z) for z in logits]
    return [w / sum(weights) for w in weights]


def literal_entropy(logits: list[float]) -> float:
    return -math.fsum(q * math.log(q) for q in probabilities(logits) if q)


def literal_margin(logits: list[float]) -> float:
    second, first = sorted(probabilities(logits))[-2:]
    return first - second


def literal_energy(logits: list[float]) -> float:
    return -math.log(math.fsum(math.exp(z) for z in logits))


LITERAL: list[tuple[Callable[[Tensor], Tensor], Callable[[list[float]], float]]] = [
    (entropy, literal_entropy),
    (margin, literal_margin),
    (energy, literal_energy),
    (max_probability, lambda logits: max(probabilities(logits))),
]


def test_every_score_of_the_table_is_checked_here() -> None:
    assert {score for score, _ in LITERAL} == set(SCORES.values())


@pytest.mark.parametrize(("score", "literal"), LITERAL)
def test_a_score_is_its_definition_sample_by_sample(
    score: Callable[[Tensor], Tensor], literal: Callable[[list[float]], float]
) -> None:
    @settings(deadline=None, max_examples=25)
    @given(logit_samples)
    def check(samples: list[list[float]]) -> None:
        found = score(torch.tensor(samples))
        assert found.dtype == torch.float64
        assert found.tolist() == pytest.approx([literal(sample) for sample in samples], abs=1e-9)

    check()


def test_scores_meet_their_bounds_and_keep_a_hopeless_class_finite() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0], [1e4, -1e4, 0.0]])
    assert entropy(logits).tolist() == pytest.approx([math.log(3), 0])
    assert margin(logits).tolist() == pytest.approx([0, 1])
    assert max_probability(logits).tolist() == pytest.approx([1 / 3, 1])
    assert energy(logits).tolist() == pytest.approx([-math.log(3), -1e4])


def test_scores_differ_where_single_precision_would_tie() -> None:
    # an untrained network's logits, a hair from uniform
    logits = torch.tensor([[0.0, 1e-4], [0.0, 2e-4]])
    single = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
    assert single[0] == single[1]
    assert entropy(logits)[0] > entropy(logits)[1]
    nearer = 1e-4 * logits
    assert torch.equal(*nearer.softmax(1))
    assert torch.equal(*nearer.logsumexp(1))
    for score in (margin, max_probability):
        assert score(nearer)[0] < score(nearer)[1]
    assert energy(nearer)[0] > energy(nearer)[1]
