"""What a live learner does where nobody says otherwise, and what it says about it."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import accuracy, digits, live_learner, play, small_network
from run_tools import complaint
from same_state import same
from test_live_saving import state_of

import driftwise
from driftwise.learner import Learner
from driftwise.live.engine import BatchOutcome
from driftwise.live.events import Event
from driftwise.types import Verdict

QUIET = digits(0, turn=None)


def steps_of(mine: driftwise.LiveLearner) -> int:
    assert mine._engine is not None
    return mine._engine.ledger.steps


def test_digits_are_learned_in_one_pass() -> None:
    seen = play(driftwise.LiveLearner("mlp"), QUIET, samples=900)
    assert accuracy(seen) > 0.8


@pytest.mark.parametrize(("samples", "steps"), [(32, 1 + 8), (20, 1 + 5), (2, 1 + 1), (64, 18)])
def test_replay_steps_follow_each_step_in_proportion(samples: int, steps: int) -> None:
    mine = driftwise.LiveLearner("mlp", watch_every=10_000)
    mine.observe(QUIET.images[:samples], QUIET.labels[:samples])
    assert steps_of(mine) == steps


def test_large_networks_take_fewer_replay_steps_and_none_where_none_are_wanted() -> None:
    wide = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 1000), torch.nn.Linear(1000, 1000)
    )
    for network, given, steps in ((wide, None, 1 + 2), (wide, 0, 1), ("mlp", 3, 1 + 3)):
        mine = driftwise.LiveLearner(network, watch_every=10_000, replay_steps=given)
        mine.observe(QUIET.images[:32], QUIET.labels[:32])
        assert steps_of(mine) == steps


def table(samples: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Columns of very different sizes, one of them constant; the smallest one tells the classes."""
    draw = np.random.default_rng(0)
    y = draw.integers(2, size=samples)
    columns = [draw.normal(size=samples) * 1e5, np.full(samples, 7.0)]
    columns.append((draw.normal(size=samples) / 3 + y) * 1e-3)
    return np.stack(columns, axis=1).astype(np.float32), y


@pytest.mark.parametrize("settings", [{}, {"normalise": True}])
def test_tables_are_scaled_by_what_was_seen(settings: dict[str, Any], tmp_path: Path) -> None:
    x, y = table()
    with driftwise.LiveLearner("mlp", folder=tmp_path / "kept", **settings) as mine:
        for start in range(0, 300, 20):
            mine.observe(x[start : start + 20], y[start : start + 20])
        said = mine.predict_proba(x)
        assert (said.argmax(axis=1) == y)[300:].mean() > 0.85
    with driftwise.LiveLearner.load(tmp_path / "kept") as again:
        assert np.array_equal(again.predict_proba(x), said)


def test_a_network_of_ones_own_gets_samples_as_they_are() -> None:
    given = []
    network = small_network(outputs=10)
    mine = driftwise.LiveLearner(network)
    x = QUIET.images[:20].reshape(20, 64).astype(np.float32)
    mine.observe(x, QUIET.labels[:20])
    inner = mine._snapshots.newest  # type: ignore[union-attr]
    inner.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].clone()))
    mine._engine.predict(torch.from_numpy(x))  # type: ignore[union-attr]
    assert torch.equal(given[0], torch.from_numpy(x))


@pytest.mark.parametrize("name", ["cnn", "resnet18", "vit-tiny"])
def test_a_backbone_for_images_says_that_vectors_are_none(name: str) -> None:
    x, y = table(20)
    said = complaint(lambda: driftwise.LiveLearner(name).observe(x, y))
    assert "takes images; these samples have the shape (3,): use the backbone mlp" in said


def test_events_say_when_how_sure_and_how_much(tmp_path: Path) -> None:
    events: list[Event] = []
    before = datetime.now(UTC)
    with live_learner(detector="combined", folder=tmp_path / "kept") as mine:
        mine.on("*", events.append)
        play(mine, digits(0))
    times = [datetime.fromisoformat(event.time) for event in events]
    assert before.replace(microsecond=0) <= times[0] <= times[-1] <= datetime.now(UTC)
    assert times[0].tzinfo == UTC
    told: list[tuple[str, Any]] = [(event.kind, event.details) for event in events]
    drifted: list[Any] = [
        each for kind, details in told if kind == "drifted" for each in details["verdicts"]
    ]
    assert drifted
    for each in drifted:
        assert each["p_value"] <= each["threshold"]
        assert 0 < each["share"] <= 1
    checked = next(details for kind, details in told if kind == "checked")
    assert set(checked["p_values"]) == set(map(str, checked["classes"]))
    lines = map(json.loads, (tmp_path / "kept" / "events.jsonl").read_text().splitlines())
    assert all(line["time"].endswith("+00:00") for line in lines)


def test_a_class_that_one_check_could_test_is_not_called_untestable() -> None:
    mine = live_learner()
    play(mine, QUIET, samples=50)
    engine = mine._engine
    assert engine is not None
    done = BatchOutcome(predicted=torch.empty(0))
    for label, drifted in ((3, True), (3, None), (4, None)):
        done.verdicts.append(
            Verdict(task=2, label=label, drifted=drifted, num_current=50, reason="too few")
        )
    engine._report_untestable(done)
    assert [details["classes"] for kind, details in done.events] == [[4]]


def test_a_class_that_was_realigned_is_not_said_to_wait() -> None:
    """Found before its batch is learned, realigned with the labels of that batch."""
    stream = digits(0, classes=5, turn=450)
    mine = live_learner(detector="combined")
    for start in range(0, 450, 10):
        mine.observe(stream.images[start : start + 10], stream.labels[start : start + 10])
    events: list[Event] = []
    mine.on("*", events.append)
    report = mine.observe(stream.images[450:], stream.labels[450:])
    assert report.adapted
    assert not set(report.adapted) & {e.details["label"] for e in events if e.kind == "waiting"}
    for label in report.adapted:
        assert f"class {label} has drifted, no labels to realign with" not in report.notes


def test_pauses_change_no_bit_at_the_defaults(tmp_path: Path) -> None:
    whole = driftwise.LiveLearner("mlp")
    play(whole, QUIET, samples=200)
    with driftwise.LiveLearner("mlp", folder=tmp_path / "kept") as first:
        play(first, QUIET, samples=100)
    with driftwise.LiveLearner.load(tmp_path / "kept") as second:
        for start in range(100, 200, 10):
            second.observe(QUIET.images[start : start + 10], QUIET.labels[start : start + 10])
        assert same(state_of(second), state_of(whole))


@pytest.mark.parametrize(
    ("size", "settings", "warned"),
    [(1.0, {}, False), (1000.0, {}, True), (1000.0, {"normalise": True}, False)],
)
def test_a_network_of_ones_own_that_gets_large_numbers_is_reported_once(
    size: float, settings: dict[str, Any], warned: bool
) -> None:
    mine = driftwise.LiveLearner(torch.nn.Linear(64, 10), **settings)
    values = QUIET.images.reshape(-1, 64) / 255 * size
    notes = [
        note
        for start in range(0, 60, 10)
        for note in mine.observe(values[start : start + 10], QUIET.labels[start : start + 10]).notes
    ]
    assert ["inputs are not scaled" in note for note in notes] == [True] * warned


def weights(network: torch.nn.Module) -> list[torch.Tensor]:
    return [each.detach().double().clone() for each in network.parameters()]


def learner_of(mine: driftwise.LiveLearner) -> Learner:
    return mine._engine.learner  # type: ignore[union-attr]


def test_predictions_come_from_an_average_of_the_weights(tmp_path: Path) -> None:
    """Each batch counts for its steps, and fades over `average_steps` of those that follow."""
    mine = driftwise.LiveLearner("mlp", folder=tmp_path / "kept", average_steps=12)
    expected: list[torch.Tensor] | None = None
    steps = 0
    for start in range(0, 600, 20):
        mine.observe(QUIET.images[start : start + 20], QUIET.labels[start : start + 20])
        learner = learner_of(mine)
        now, taken = weights(learner.network), learner.steps - steps
        steps = learner.steps
        if expected is None or now[-1].shape != expected[-1].shape:
            expected = now
            continue
        old = math.exp(-taken / min(12, 1 + steps / 10))
        expected = [old * kept + (1 - old) * new for kept, new in zip(expected, now, strict=True)]
    averaged = weights(mine._snapshots.newest)  # type: ignore[union-attr]
    for kept, right, last in zip(averaged, expected or [], now, strict=True):
        assert torch.allclose(kept, right, rtol=1e-4, atol=1e-6)
        assert not torch.allclose(kept, last, rtol=1e-2, atol=1e-4)
    said = mine.predict_proba(QUIET.images)
    assert np.array_equal(mine.observe(QUIET.images[600:]).predicted, said[600:].argmax(axis=1))
    said = mine.predict_proba(QUIET.images)  # by inputs scaled by all that has come
    mine.close()
    with driftwise.LiveLearner.load(tmp_path / "kept") as again:
        assert np.array_equal(again.predict_proba(QUIET.images), said)
    loaded = driftwise.load(tmp_path / "kept")
    assert np.allclose(loaded.predict_proba(QUIET.images), said, atol=1e-6)


@pytest.mark.parametrize("settings", [{"average_steps": 0}, {"method": "cls-er"}])
def test_weights_are_taken_as_they_are_where_no_average_is_wanted(settings: dict[str, Any]) -> None:
    mine = driftwise.LiveLearner("mlp", **settings)
    for start in range(0, 200, 20):
        mine.observe(QUIET.images[start : start + 20], QUIET.labels[start : start + 20])
    learner = learner_of(mine)
    own = learner.method.predictor(learner.network)
    for kept, last in zip(
        weights(mine._snapshots.newest),  # type: ignore[union-attr]
        weights(own),
        strict=True,
    ):
        assert torch.equal(kept, last)


def test_an_average_learns_a_stream_better_than_single_weights() -> None:
    right = dict.fromkeys((0, 30), 0)
    for steps in right:
        mine = driftwise.LiveLearner("mlp", average_steps=steps)
        for start in range(0, 1797, 20):
            y = QUIET.labels[start : start + 20]
            right[steps] += int(
                (mine.observe(QUIET.images[start : start + 20], y).predicted == y).sum()
            )
    assert right[30] > right[0] + 9, "half a point of accuracy"
