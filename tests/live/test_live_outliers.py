"""One sample, however far off, does not ruin a model; many that agree are drift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from live_tools import small_network
from same_state import same
from test_live_saving import state_of

import driftwise
from driftwise.datasets.readers.digits import load_digits
from driftwise.live.inputs import InputStatistics
from driftwise.live.reporter import Observation


def vectors(seed: int = 0, *, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Digits as 64 numbers from 0 to 1."""
    data = load_digits()
    some = np.random.default_rng(seed).permutation(np.flatnonzero(data.labels < classes))
    return data.images[some].reshape(-1, 64).astype(np.float32) / 255, data.labels[some]


def play(mine: driftwise.LiveLearner, x: np.ndarray, y: np.ndarray) -> list[Observation]:
    return [
        mine.observe(x[start : start + 20], y[start : start + 20])
        for start in range(mine.num_samples, len(y), 20)
    ]


def right(mine: driftwise.LiveLearner, x: np.ndarray, y: np.ndarray) -> float:
    return float((mine.predict(x) == y).mean())


@pytest.mark.parametrize(
    ("size", "when", "own"),
    [(1e3, 3, True), (1e3, 205, False), (-1e9, 3, False), (9e18, 205, True)],
)
def test_one_outlier_changes_next_to_nothing(size: float, when: int, own: bool) -> None:
    x, y = vectors()
    x[when] = size
    mine = driftwise.LiveLearner(small_network(outputs=4) if own else "mlp")
    seen = play(mine, x[:400], y[:400])
    report = seen[when // 20]
    assert report.quarantined == (when % 20,)
    assert report.notes == ("samples quarantined, far outside what has been seen: 1",)
    assert sum(len(each.quarantined) for each in seen) == 1
    assert "driftwise_samples_quarantined_total 1\n" in mine.counters
    assert right(mine, x[400:], y[400:]) > 0.9


def test_samples_one_by_one_are_judged_as_soon_as_there_are_some() -> None:
    x, y = vectors()
    x[7] = 1e6
    mine = driftwise.LiveLearner("mlp")
    seen = [mine.observe(x[n : n + 1], y[n : n + 1]) for n in range(60)]
    assert [n for n, each in enumerate(seen) if each.quarantined] == [7]


def test_a_class_that_goes_on_far_outside_has_drifted() -> None:
    x, y = vectors(classes=3)
    x[200:][y[200:] == 1] += 1000
    mine = driftwise.LiveLearner("mlp", reference_size=10, check_rows=10, watch_every=3)
    seen = play(mine, x, y)
    assert sum(len(each.quarantined) for each in seen) == 4, "and then they agree"
    assert 1 in {label for each in seen for label in each.drifted}
    assert right(mine, x[-100:], y[-100:]) > 0.9


def test_another_unit_for_everything_is_followed() -> None:
    x, y = vectors()
    x[400:] *= 10_000
    mine = driftwise.LiveLearner("mlp")
    play(mine, x, y)
    assert right(mine, x[-200:], y[-200:]) > 0.9


@given(st.integers(0, 2**31), st.sampled_from([1e-6, 1.0, 1e6]))
@settings(max_examples=10, deadline=None)
def test_features_of_any_scale_constant_and_rare_ones_have_no_outliers(
    seed: int, scale: float
) -> None:
    draw = np.random.default_rng(seed)
    x = np.stack(
        [
            draw.normal(size=400) * scale,
            draw.lognormal(size=400),
            np.full(400, 3.0),
            (draw.random(400) < 0.01) * 1.0,
            draw.normal(size=400) + 1e4,
        ],
        axis=1,
    )
    seen = InputStatistics((5,), torch.float32, factor=50.0)
    for part in torch.split(torch.from_numpy(x).float(), 20):
        assert not seen.outliers(part).any()
        seen.add(part)
    mean, std = seen.statistics
    varies = [0, 1, 4]
    assert np.allclose(mean, x.astype(np.float32).mean(axis=0), rtol=1e-4, atol=1e-5 * scale)
    assert np.allclose(std[varies], x.astype(np.float32).std(axis=0)[varies], rtol=1e-3)
    assert std[2] == 1.0


def test_a_gradient_out_of_proportion_is_shortened() -> None:
    x, y = vectors()
    x[100] = 1e6
    settings: dict[str, Any] = {"optimiser": "sgd", "lr": 0.1, "outlier_factor": None}
    mine = driftwise.LiveLearner(small_network(outputs=4), **settings)
    play(mine, x[:80], y[:80])
    before = [weight.clone() for weight in _weights(mine)]
    mine.observe(x[100:101], y[100:101])
    moved = torch.stack(
        [(now - old).norm() for now, old in zip(_weights(mine), before, strict=True)]
    )
    steps = 2  # its own, and one of replay
    assert 0 < moved.norm() <= steps * 0.1 * 10.0 * 1.001


def _weights(mine: driftwise.LiveLearner) -> list[torch.Tensor]:
    assert mine._engine is not None
    return [each.detach() for each in mine._engine.learner.network.parameters()]


def test_a_model_that_has_broken_goes_back_and_goes_on() -> None:
    x, y = vectors()
    free: dict[str, Any] = {"outlier_factor": None, "max_gradient": None, "optimiser": "sgd"}
    mine = driftwise.LiveLearner(small_network(outputs=4), lr=0.1, **free)
    play(mine, x[:400], y[:400])
    before = mine.predict_proba(x[:50])
    told: list[object] = []
    mine.on("restored", told.append)
    report = mine.observe(np.full((20, 64), 9e18, dtype=np.float32), y[:20])
    assert any("went back to its last good snapshot" in note for note in report.notes)
    assert told
    assert np.array_equal(mine.predict_proba(x[:50]), before)
    assert f"driftwise_restored_total {len(told)}\n" in mine.counters


def test_a_model_that_breaks_with_the_first_batch_begins_with_fresh_weights() -> None:
    x, y = vectors()
    mine = driftwise.LiveLearner("mlp", optimiser="sgd", lr=10.0**6, max_gradient=None)
    assert any("fresh weights" in note for note in mine.observe(x[:20], y[:20]).notes)
    assert np.isfinite(mine.predict_proba(x[:20])).all()


def test_pauses_change_no_bit_between_outliers(tmp_path: Path) -> None:
    x, y = vectors(classes=2)
    x[40:300][y[40:300] == 1] += 1000
    whole = driftwise.LiveLearner("mlp")
    play(whole, x[:300], y[:300])
    with driftwise.LiveLearner("mlp", folder=tmp_path / "kept") as mine:
        play(mine, x[:60], y[:60])
        assert mine._state()["parts"]["seen"]["flags"], "some outliers, and no agreement yet"
    with driftwise.LiveLearner.load(tmp_path / "kept") as last:
        play(last, x[:300], y[:300])
        assert same(state_of(last), state_of(whole))
