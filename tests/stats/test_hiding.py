"""The bound on hiding: against the e-process itself, and where none exists."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from driftwise import rng
from driftwise.errors import UserError
from driftwise.stats.e_values import EProcess, share_of
from driftwise.stats.hiding import longest_hidden
from driftwise.stats.rank_p_values import Ranker


def alarm_after(seed: int, fraction: float, reference: int, level: float) -> int | None:
    """Samples until the real ranker and e-process find drifted samples that lie far out."""
    draw = np.random.default_rng(seed)
    ranker, evidence = Ranker(2, kept_rows=300), EProcess(both_ends=True)
    for number in range(reference):
        ranker.take(draw.normal(size=2), rng.fork(seed, number))
    for sample in range(1, 400):
        value = draw.normal(size=2)
        if draw.random() < fraction:
            value = value + 1000 * np.sign(value)
        p_values = ranker.take(value, rng.fork(seed, "stream", sample))
        if p_values is None:
            continue
        evidence.update(p_values[1], sample)
        if evidence.log_most >= np.log(2 / (level * share_of(1))):
            return sample
    return None


def test_the_bound_holds_for_the_real_detector() -> None:
    torch.manual_seed(0)
    bound = longest_hidden(0.5, num_reference=150)
    assert bound is not None
    delays = [alarm_after(seed, 0.5, 150, 0.05) for seed in range(20)]
    assert all(delay is not None and delay <= bound for delay in delays)
    # And is no idle one: the slowest of twenty comes near.
    assert max(delay for delay in delays if delay is not None) >= bound / 6


def test_more_drift_is_hidden_for_a_shorter_time() -> None:
    bounds = [longest_hidden(f, num_reference=300) for f in (0.3, 0.5, 0.8, 1.0)]
    assert None not in bounds
    assert bounds == sorted(bounds, reverse=True)  # type: ignore[type-var]


def test_a_tiny_fraction_is_absorbed_and_has_no_bound() -> None:
    assert longest_hidden(0.01, most=300, paths=50) is None


def test_a_fraction_of_nothing_is_refused() -> None:
    with pytest.raises(UserError, match=r"expected a fraction in \(0, 1\]"):
        longest_hidden(0)
