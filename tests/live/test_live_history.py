"""A reference from history: classes are watched from the first batch on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import small_network
from run_tools import complaint
from same_state import same
from scipy import stats
from test_live_saving import state_of

import driftwise
from driftwise.datasets.readers.digits import load_digits


def parts(seed: int, *, classes: int = 10) -> tuple[Any, Any, Any, Any]:
    """Digits of the past and digits to come, by the seed."""
    data = load_digits()
    some = np.flatnonzero(data.labels < classes)
    order = np.random.default_rng(seed).permutation(some)
    x, y = data.images[order], data.labels[order]
    half = len(y) // 2
    return x[:half], y[:half], x[half:], y[half:]


def turned(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x[:, ::-1])


def watch(mine: driftwise.LiveLearner, x: Any, y: Any, *, samples: int = 200) -> set[int]:
    found: set[int] = set()
    for start in range(0, samples, 20):
        some = slice(start, start + 20)
        found.update(mine.observe(x[some], None if y is None else y[some]).drifted)
    return found


def test_a_drift_in_the_first_two_hundred_samples_is_found_at_the_defaults() -> None:
    past, labels, x, y = parts(0, classes=3)
    mine = driftwise.LiveLearner("mlp")
    mine.fit_reference(past, labels)
    assert watch(mine, np.where((y == 1)[:, None, None, None], turned(x), x), y) == {1}


def trained(x: np.ndarray, y: np.ndarray) -> torch.nn.Module:
    network = small_network(outputs=10)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    inputs, labels = torch.from_numpy(x).permute(0, 3, 1, 2) / 255, torch.from_numpy(y)
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return network


def test_a_trained_network_is_watched_without_any_label() -> None:
    past, labels, x, _ = parts(1)
    mine = driftwise.LiveLearner(trained(past[:450], labels[:450]))
    mine.fit_reference(past[450:], labels[450:])
    quiet = watch(mine, x, None, samples=400)
    assert not quiet
    assert watch(mine, turned(x[400:]), None, samples=400)


def test_quiet_streams_keep_the_level() -> None:
    streams, alarms, checks = 20, 0, 0
    for seed in range(streams):
        draw = np.random.default_rng(seed)
        y = draw.integers(2, size=600)
        x = (draw.normal(size=(600, 6)) + y[:, None]).astype(np.float32)
        mine = driftwise.LiveLearner("mlp", seed=seed, replay_steps=2)
        mine.fit_reference(x[:300], y[:300])
        alarms += bool(watch(mine, x[300:], y[300:], samples=300))
        checks += "driftwise_checks_total 0" not in mine.counters
    assert checks == streams
    assert alarms <= stats.binom.ppf(0.999, streams, 0.05)


def test_history_is_neither_learned_nor_counted_and_bounded() -> None:
    past, labels, x, y = parts(2)
    mine = driftwise.LiveLearner("mlp", reference_size=20)
    mine.fit_reference(past, labels)
    assert mine.num_samples == 0
    assert mine.classes == ()
    assert "nothing has been learned" in complaint(lambda: mine.predict(x[:1]))
    engine = mine._engine
    assert engine is not None
    assert len(engine.learner.buffer) == 0
    kept = engine.window.labelled._reference_ids
    assert {label: len(ids) for label, ids in kept.items()} == dict.fromkeys(range(10), 20)
    mine.observe(x[:20], y[:20])
    assert mine.num_samples == 20


@pytest.mark.parametrize("after", [0, 40])
def test_pauses_change_no_bit(after: int, tmp_path: Path) -> None:
    past, labels, x, y = parts(3, classes=4)

    def until(mine: driftwise.LiveLearner, last: int) -> driftwise.LiveLearner:
        for start in range(mine.num_samples, last, 20):
            if start == after:
                mine.fit_reference(past, labels)
            mine.observe(x[start : start + 20], y[start : start + 20])
        return mine

    whole = until(driftwise.LiveLearner("mlp"), 240)
    with until(driftwise.LiveLearner("mlp", folder=tmp_path / "kept"), 120):
        pass
    with until(driftwise.LiveLearner.load(tmp_path / "kept"), 240) as second:
        assert same(state_of(second), state_of(whole))


def test_history_without_labels_is_refused_and_leaves_no_trace() -> None:
    past, labels, *_ = parts(4)
    mine = driftwise.LiveLearner("mlp")
    some: list[Any] = labels[:20].tolist()
    some[3] = None
    assert "a label for each" in complaint(lambda: mine.fit_reference(past[:20], some))
    assert "a label for each" in complaint(lambda: mine.fit_reference(past[:0], []))
    assert mine._engine is None
    assert mine.num_samples == 0
