"""Unlabelled streams of a rare class: false alarms stay at their level, and drift is found."""

from __future__ import annotations

import numpy as np
from scipy import stats

import driftwise


def samples(draw: np.random.Generator, count: int, rare: float) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that overlap, one of them rare."""
    labels = (draw.random(count) < rare).astype(int)
    x = draw.normal(size=(count, 8))
    x[:, 0] += 2 * labels - 1
    return x.astype(np.float32), labels


def learned(draw: np.random.Generator, rare: float, seed: int) -> driftwise.LiveLearner:
    mine = driftwise.LiveLearner(
        "mlp",
        detector="ks",
        adaptation="vanilla",
        seed=seed,
        reference_size=50,
        batch_size=None,
        replay_steps=2,
    )
    for _ in range(16):
        mine.observe(*samples(draw, 200, rare))
    return mine


def test_a_rare_class_is_no_drift_of_the_others() -> None:
    """Unlabelled samples are grouped by predictions, of which some are wrong."""
    rare, streams, alarms = 0.1, 12, 0
    for seed in range(streams):
        draw = np.random.default_rng(seed)
        mine = learned(draw, rare, seed)
        checks = [mine.observe(samples(draw, 200, rare)[0]) for _ in range(4)]
        assert any(each.verdicts for each in checks)
        alarms += any(each.drifted for each in checks)
    assert alarms <= stats.binom.ppf(0.999, streams, 0.05)


def test_classes_in_other_proportions_have_not_drifted() -> None:
    streams, alarms = 12, 0
    for seed in range(streams):
        draw = np.random.default_rng(seed)
        mine = learned(draw, 0.5, seed)
        alarms += any(mine.observe(samples(draw, 200, 0.15)[0]).drifted for _ in range(4))
    assert alarms <= stats.binom.ppf(0.999, streams, 0.05)


def test_a_rare_class_does_not_hide_a_drift() -> None:
    draw = np.random.default_rng(0)
    mine = learned(draw, 0.1, 0)
    seen = [mine.observe(samples(draw, 200, 0.1)[0] * [1, 4, 4, 4, 4, 4, 4, 4]) for _ in range(4)]
    assert any(each.drifted for each in seen)
