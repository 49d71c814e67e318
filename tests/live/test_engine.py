"""A batch from prediction to learning: drift is found, adapted to, and the learner recovers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import (
    CHANGING,
    SOON,
    STABLE,
    Digits,
    Oracle,
    accuracy,
    before_drift,
    digits,
    engine_of,
    feed,
    live_learner,
    small_network,
    state_of,
    unlabelled,
)
from run_tools import complaint
from same_state import same
from scipy import stats

import driftwise
from driftwise.config.registry import CATALOGUE
from driftwise.live import Event
from driftwise.live.components import monitor_of
from driftwise.live.engine import BatchOutcome
from driftwise.live.settings import settings_from
from driftwise.loop import DriftHandler
from driftwise.protocols import AdaptationContext
from driftwise.types import Verdict

# Drift in labelled streams


def test_drift_is_found_and_realigned_accuracy_recovers_and_events_have_the_evidence(
    tmp_path: Path,
) -> None:
    stream, events, before = digits(0), list[Event](), datetime.now(UTC)
    with live_learner(detector="combined", folder=tmp_path / "kept") as mine:
        mine.on("*", events.append)
        seen = feed(mine, stream)
    turn = stream.turn // 10
    assert not any(each.drifted for each in seen[:turn]), "nothing had changed yet"
    assert {label for each in seen[turn:] for label in each.drifted} == set(range(10))
    assert len({label for each in seen[turn:] for label in each.adapted}) >= 9
    assert accuracy(seen[turn - 20 : turn]) > 0.7
    assert accuracy(seen[turn : turn + 15]) < 0.5
    assert accuracy(seen[-30:]) > 0.8

    times = [datetime.fromisoformat(event.time) for event in events]
    assert before.replace(microsecond=0) <= times[0] <= times[-1] <= datetime.now(UTC)
    details: dict[str, list[Any]] = {}
    for event in events:
        details.setdefault(event.kind, []).append(event.details)
    for each in (verdict for drift in details["drifted"] for verdict in drift["verdicts"]):
        assert each["p_value"] <= each["threshold"]
        assert 0 < each["share"] <= 1
    for check in details["checked"]:
        assert set(check["p_values"]) == set(map(str, check["classes"]))
    lines = (tmp_path / "kept" / "events.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines]
    assert all(line["time"].endswith("+00:00") for line in logged)
    kinds = [line["event"] for line in logged]
    assert (kinds[0], kinds[-1]) == ("classes", "closed")
    assert kinds.count("checked") == sum(bool(each.verdicts) for each in seen)
    realigned = [n for line in logged if line["event"] == "realigned" for n in line["classes"]]
    assert realigned == [label for each in seen for label in each.adapted]
    steps = [line["step"] for line in logged]
    assert steps == sorted(steps)


def test_realignment_leaves_only_samples_that_came_since_the_last_check_without_drift() -> None:
    stream, mine = digits(1), live_learner(seed=1)
    unchanged = dict.fromkeys(range(10), 0)
    for start, images, labels in stream.batches():
        seen = mine.observe(images, labels)
        unchanged |= {each.label: start + 10 for each in seen.verdicts if each.drifted is False}
        if start >= stream.turn and seen.adapted:
            break
    buffer = engine_of(mine).learner.buffer
    oldest = {label: int(buffer.samples_of(label).ids.min()) for label in buffer.counts()}
    for label in seen.adapted:
        assert oldest[label] >= unchanged[label] > 0
    assert min(oldest[label] for label in oldest if label not in seen.adapted) < 300


def test_samples_from_before_those_of_the_first_check_realign_nothing() -> None:
    stream = digits(1, classes=3, turn=200)
    mine = live_learner(seed=1, check_rows=25, buffer_size=400)
    for start, images, labels in stream.batches():
        window = engine_of(mine).window if start else None
        began = {c: window and window.labelled.first_current(c) for c in range(3)}
        seen = mine.observe(images, labels)
        if seen.verdicts:
            break
    assert seen.adapted
    for label in seen.adapted:
        oldest = int(engine_of(mine).learner.buffer.samples_of(label).ids.min())
        assert oldest >= (began[label] or 0) > 100


def test_a_class_that_the_labels_of_its_batch_realign_does_not_wait() -> None:
    mine = live_learner(detector="combined")
    feed(mine, CHANGING, samples=450)
    events: list[Event] = []
    mine.on("*", events.append)
    report = mine.observe(CHANGING.images[450:], CHANGING.labels[450:])
    assert report.adapted
    assert not set(report.adapted) & {e.details["label"] for e in events if e.kind == "waiting"}
    for label in report.adapted:
        assert f"class {label} has drifted, no labels to realign with" not in report.notes


def test_only_the_class_that_drifted_is_flagged() -> None:
    seen = feed(live_learner(detector="combined"), digits(3, drifting=4))
    assert {label for each in seen for label in each.drifted} == {4}


def test_partly_labelled_streams_are_monitored_in_both_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What follows an adaptation waits for samples with labels, which can measure it."""
    mine = live_learner(adaptation="amr-recovery")
    follow_ups: list[tuple[bool, bool]] = []

    def follow_up(handler: DriftHandler, context: AdaptationContext) -> tuple[str, ...]:
        engine = engine_of(mine)
        follow_ups.append((handler is engine.handlers[0], engine.window.labelled.has_current))
        return ()

    monkeypatch.setattr(DriftHandler, "follow_up", follow_up)
    seen = feed(mine, CHANGING, known=0.6)
    assert any(each.drifted for each in seen)
    assert any(each.adapted for each in seen)
    assert (True, True) in follow_ups
    assert (False, True) not in follow_ups


def test_monitored_samples_are_never_trained_on_and_never_in_the_buffer() -> None:
    mine = live_learner(watch_every=6, buffer_size=2000)
    feed(mine, STABLE, samples=600)
    buffer = engine_of(mine).learner.buffer
    ids = {int(number) for label in range(10) for number in buffer.samples_of(label).ids}
    expected = set()
    counts = dict.fromkeys(range(10), 0)
    for number, label in enumerate(STABLE.labels[:600].tolist()):  # the rule, sample by sample
        counts[label] += 1
        if counts[label] % 6:
            expected.add(number)
    assert ids == expected


def test_checks_spend_their_level_over_the_whole_stream() -> None:
    seen = feed(live_learner(), STABLE)
    checks = [each.verdicts for each in seen if each.verdicts]
    assert [verdicts[0].task for verdicts in checks] == list(range(2, 2 + len(checks)))
    assert not any(each.drifted for each in seen)
    thresholds = [max(v.threshold or 0 for v in verdicts) for verdicts in checks[:3]]
    assert thresholds == sorted(thresholds, reverse=True)
    each_check = {"options": {"detector": {"spending": "none"}}}
    assert live_learner(**each_check)._config.options["detector"]["spending"] == "none"


@pytest.mark.parametrize(
    "detector", sorted(set(CATALOGUE["detector"]) - {"ks", "oracle", "sequential"})
)
def test_any_detector_monitors_a_live_stream(detector: str) -> None:
    seen = feed(live_learner(detector=detector), digits(2, classes=3, turn=270))
    assert any(each.verdicts for each in seen)
    assert any(each.drifted for each in seen) == (detector != "never")


def test_any_adaptation_adapts_and_puts_no_sample_into_the_buffer_twice() -> None:
    for adaptation in CATALOGUE["adaptation"]:
        mine = live_learner(adaptation=adaptation, lr=0.05)
        seen = feed(mine, digits(2, classes=3, turn=270), samples=400)
        assert any(each.drifted for each in seen), adaptation
        assert any(each.adapted for each in seen) == (adaptation != "vanilla"), adaptation
        buffer = engine_of(mine).learner.buffer
        ids = [n for label in buffer.counts() for n in buffer.samples_of(label).ids.tolist()]
        assert len(set(ids)) == len(ids)


def test_drift_that_costs_too_little_is_reported_and_left_alone() -> None:
    stream = digits(2, classes=4, turn=400)
    spared = feed(live_learner(min_harm=100), stream)
    assert any(each.drifted for each in spared)
    assert not any(each.adapted for each in spared)
    assert any(each.adapted for each in feed(live_learner(min_harm=5), stream))


def test_what_is_kept_of_a_long_stream_and_checked_of_a_large_batch_is_bounded() -> None:
    mine = live_learner(recent_rows=50, detector="never")
    sizes = []
    for start in (0, 600, 1200):
        feed(mine, STABLE, known=0.5, samples=start + 600)
        window = engine_of(mine).window.state_dict()
        queues = [window[name] for name in ("learned", "unlabelled", "asked")]
        for monitored in (window["given"], window["guessed"]):
            queues += [monitored["collected"], monitored["current"]]
        sizes.append(sum(len(queue["ids"]) for queue in queues))
    assert max(sizes) <= 3 * 50 + 2 * 10 * (15 + 10 + 10)

    draw, labels = np.random.default_rng(0), np.arange(600) % 2
    mine = driftwise.LiveLearner("mlp", recent_rows=100, buffer_size=50, batch_size=512)
    mine.observe(draw.normal(size=(600, 8)) + 4 * labels[:, None], labels)
    mine.observe(draw.normal(size=(700, 8)) + 4 * labels[:1], None)
    seen = mine.observe(draw.normal(size=(20_000, 8)) + 4 * (np.arange(20_000) % 2)[:, None])
    assert seen.verdicts
    assert max(verdict.num_current for verdict in seen.verdicts) <= 1000
    assert len(engine_of(mine).window.unlabelled) == 100


def test_classes_that_no_check_can_test_are_reported_once() -> None:
    """A level that is spent on many checks may be too small for the samples of one of them."""
    mine = live_learner(detector="mmd", options={"detector": {"level": 1e-9}})
    seen = feed(mine, digits(0, classes=3), samples=400)
    notes = [note for each in seen for note in each.notes if "cannot be tested" in note]
    assert len(notes) == len(set(notes)) > 0
    assert "distinct samples cannot reach the level" in notes[0]
    assert not any(each.drifted for each in seen)
    assert f"driftwise_classes_untestable {len(engine_of(mine).untestable)}\n" in mine.counters
    outcome = BatchOutcome()
    for label, drifted in ((3, True), (3, None), (4, None)):  # one check could test class 3
        outcome.verdicts.append(
            Verdict(task=2, label=label, drifted=drifted, num_current=50, reason="too few")
        )
    engine_of(mine)._report_untestable(outcome)
    assert [details["classes"] for _, details in outcome.events] == [[4]]


# Evidence that adds up sample by sample

SEQUENTIAL = {**SOON, "detector": "sequential", "reference_size": 6, "check_rows": 1}


def noisy_images(samples: int, *, turn: int) -> Digits:
    """Noise around an image of each of two classes; from `turn` on the first is upside down."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, samples)
    faces = draw.integers(60, 200, (2, 8, 8, 1))
    images = np.where((np.arange(samples) >= turn)[:, None, None, None], faces[labels, ::-1], 0)
    images = np.where((labels == 1)[:, None, None, None] | (images == 0), faces[labels], images)
    noise = draw.normal(0, 20, images.shape)
    return Digits((images + noise).clip(0, 255).astype(np.uint8), labels, turn)


def test_sequential_detection_checks_every_sample_by_a_fixed_encoder_by_default() -> None:
    for settings, expected in (
        ({"detector": "sequential"}, ("random", 10, 1)),
        ({"detector": "sequential", "check_rows": 7}, ("random", 10, 7)),
        ({"detector": "ks"}, ("learner", 100, 50)),
    ):
        config, live = settings_from(settings, backbone="mlp")
        assert (config.encoder, live.reference_size, live.check_rows) == expected


def test_a_drift_is_dated_and_realigned_with_samples_since_and_the_class_monitored_soon() -> None:
    stream, mine = noisy_images(700, turn=400), driftwise.LiveLearner("mlp", **SEQUENTIAL)
    for start, images, labels in stream.batches():
        seen = mine.observe(images, labels)
        if start > stream.turn and seen.drifted:
            break
    assert seen.drifted == seen.adapted == (0,)
    assert start > stream.turn + 20
    onset = monitor_of(engine_of(mine).handlers[0]).onset(0)
    ids = engine_of(mine).learner.buffer.samples_of(0).ids
    assert onset is not None
    assert int(ids.min()) >= onset, "none from before the drift as it was dated"
    assert int(ids.min()) < start - 15, "and not only those since the last monitored sample"
    labelled = 0
    for first, images, labels in stream.batches():
        if first > start:
            labelled += int((labels == 0).sum())
            if any(verdict.label == 0 for verdict in mine.observe(images, labels).verdicts):
                break
    # Every third sample is monitored: six of them, one to check, and the rest of a batch.
    assert 3 * 6 < labelled <= 3 * (6 + 2) + 10


# Catching up after a realignment


def test_steps_on_the_buffer_follow_a_realignment_where_no_labels_come() -> None:
    def right(mine: driftwise.LiveLearner) -> float:
        predicted = np.concatenate([each.predicted for each in unlabelled(mine)])
        return float((predicted == CHANGING.labels[-len(predicted) :])[-150:].mean())

    assert right(before_drift(labels=Oracle(), catch_up_steps=0)) < 0.6
    assert right(before_drift(labels=Oracle())) > 0.8


def test_so_many_steps_are_made_after_the_last_realignment_and_no_more() -> None:
    seen = unlabelled(before_drift(labels=Oracle(), catch_up_steps=7))
    adapts = [number for number, each in enumerate(seen) if each.adapted]
    steps = [number for number, each in enumerate(seen) if each.loss is not None]
    assert adapts[-1] + 7 < len(seen), "the stream goes on for longer"
    # Labels that an adaptation has not used are learned from, and count like any other step.
    assert {first + k for first in adapts for k in range(7)} <= set(steps)
    assert max(steps) == adapts[-1] + 6
    without_buffer = live_learner(method="finetune", labels=Oracle())
    feed(without_buffer, CHANGING, samples=350)
    assert all(each.loss is None for each in unlabelled(without_buffer) if not each.verdicts)


def test_labelled_samples_take_the_place_of_these_steps() -> None:
    mine, never = (live_learner(catch_up_steps=steps) for steps in (100, 0))
    seen, expected = (feed(each, CHANGING, samples=890) for each in (mine, never))
    assert [each.loss for each in seen] == [each.loss for each in expected]
    assert any(each.adapted for each in seen)


# Defaults


def test_digits_are_learned_in_one_pass() -> None:
    assert accuracy(feed(driftwise.LiveLearner("mlp"), STABLE, samples=900)) > 0.8


@pytest.mark.parametrize(
    ("network", "given", "samples", "steps"),
    [
        ("mlp", None, 32, 1 + 8),
        ("mlp", None, 20, 1 + 5),
        ("mlp", None, 2, 1 + 1),
        ("mlp", None, 64, 2 * (1 + 8)),
        ("mlp", 3, 32, 1 + 3),
        ("wide", None, 32, 1 + 2),
        ("wide", 0, 32, 1),
    ],
)
def test_replay_steps_follow_each_step_in_proportion(
    network: Any, given: int | None, samples: int, steps: int
) -> None:
    if network == "wide":
        network = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 1000), torch.nn.Linear(1000, 1000)
        )
    mine = driftwise.LiveLearner(network, watch_every=10_000, replay_steps=given)
    mine.observe(STABLE.images[:samples], STABLE.labels[:samples])
    assert engine_of(mine).ledger.steps == steps


def weights(network: torch.nn.Module) -> list[torch.Tensor]:
    return [each.detach().double().clone() for each in network.parameters()]


def newest(mine: driftwise.LiveLearner) -> torch.nn.Module:
    assert mine._snapshots is not None
    return mine._snapshots.newest


def test_predictions_come_from_an_average_of_the_weights_saved_or_not(tmp_path: Path) -> None:
    """Each batch counts for its steps, and fades over `average_steps` of those that follow."""
    mine = driftwise.LiveLearner("mlp", folder=tmp_path / "kept", average_steps=12)
    expected: list[torch.Tensor] = []
    steps = 0
    for start in range(0, 400, 20):
        mine.observe(STABLE.images[start : start + 20], STABLE.labels[start : start + 20])
        learner = engine_of(mine).learner
        now, taken = weights(learner.network), learner.steps - steps
        steps = learner.steps
        if not expected or now[-1].shape != expected[-1].shape:
            expected = now
            continue
        old = math.exp(-taken / min(12, 1 + steps / 10))
        expected = [old * kept + (1 - old) * new for kept, new in zip(expected, now, strict=True)]
    for kept, right, last in zip(weights(newest(mine)), expected, now, strict=True):
        assert torch.allclose(kept, right, rtol=1e-4, atol=1e-6)
        assert not torch.allclose(kept, last, rtol=1e-2, atol=1e-4)
    probabilities = mine.predict_proba(STABLE.images)
    predicted = mine.observe(STABLE.images[400:]).predicted
    assert np.array_equal(predicted, probabilities[400:].argmax(axis=1))
    probabilities = mine.predict_proba(STABLE.images)  # by inputs scaled by all that has come
    mine.close()
    with driftwise.LiveLearner.load(tmp_path / "kept") as again:
        assert np.array_equal(again.predict_proba(STABLE.images), probabilities)
    loaded = driftwise.load(tmp_path / "kept")
    assert np.allclose(loaded.predict_proba(STABLE.images), probabilities, atol=1e-6)


@pytest.mark.parametrize("settings", [{"average_steps": 0}, {"method": "cls-er"}])
def test_weights_are_used_as_they_are_where_no_average_is_wanted(settings: dict[str, Any]) -> None:
    mine = driftwise.LiveLearner("mlp", **settings)
    feed(mine, STABLE, samples=100)
    learner = engine_of(mine).learner
    own = learner.method.predictor(learner.network)
    assert all(map(torch.equal, weights(newest(mine)), weights(own)))


def test_an_average_learns_a_stream_better_than_single_weights() -> None:
    right = dict.fromkeys((0, 30), 0)
    for steps in right:
        mine = driftwise.LiveLearner("mlp", average_steps=steps)
        for start in range(0, 1797, 20):
            y = STABLE.labels[start : start + 20]
            right[steps] += int(
                (mine.observe(STABLE.images[start : start + 20], y).predicted == y).sum()
            )
    assert right[30] > right[0] + 9, "half a point of accuracy"


# References from the past


def past_and_future(seed: int, *, classes: int = 10) -> tuple[Any, Any, Any, Any]:
    """Digits of the past and digits to come, with their labels."""
    stream = digits(seed, turn=None, classes=classes)
    x, y, half = stream.images, stream.labels, len(stream.labels) // 2
    return x[:half], y[:half], x[half:], y[half:]


def upside_down(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x[:, ::-1])


def drifted_in(mine: driftwise.LiveLearner, x: Any, y: Any, *, samples: int) -> set[int]:
    found: set[int] = set()
    for start in range(0, samples, 20):
        some = slice(start, start + 20)
        found.update(mine.observe(x[some], None if y is None else y[some]).drifted)
    return found


def test_a_reference_of_the_past_is_bounded_not_learned_and_finds_an_early_drift() -> None:
    past, labels, x, y = past_and_future(0, classes=3)
    mine = driftwise.LiveLearner("mlp", reference_size=60)
    mine.fit_reference(past, labels)
    assert (mine.num_samples, mine.classes) == (0, ())
    assert "nothing has been learned" in complaint(lambda: mine.predict(x[:1]))
    assert len(engine_of(mine).learner.buffer) == 0
    kept = engine_of(mine).window.labelled._reference_ids
    assert {label: len(ids) for label, ids in kept.items()} == dict.fromkeys(range(3), 60)
    changed = np.where((y == 1)[:, None, None, None], upside_down(x), x)
    assert drifted_in(mine, changed, y, samples=200) == {1}
    assert mine.num_samples == 200


def test_a_trained_network_is_monitored_without_any_label() -> None:
    past, labels, x, _ = past_and_future(1)
    network = small_network(outputs=10)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    inputs = torch.from_numpy(past[:450]).permute(0, 3, 1, 2) / 255
    for _ in range(60):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(inputs), torch.from_numpy(labels[:450]))
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    mine = driftwise.LiveLearner(network)
    mine.fit_reference(past[450:], labels[450:])
    assert not drifted_in(mine, x, None, samples=400)
    assert drifted_in(mine, upside_down(x[400:]), None, samples=400)


@pytest.mark.parametrize("after", [0, 40])
def test_a_restart_with_a_reference_of_the_past_changes_no_bit(after: int, tmp_path: Path) -> None:
    past, labels, x, y = past_and_future(3, classes=4)

    def until(mine: driftwise.LiveLearner, last: int) -> driftwise.LiveLearner:
        for start in range(mine.num_samples, last, 20):
            if start == after:
                mine.fit_reference(past, labels)
            mine.observe(x[start : start + 20], y[start : start + 20])
        return mine

    whole = until(driftwise.LiveLearner("mlp"), 160)
    with until(driftwise.LiveLearner("mlp", folder=tmp_path / "kept"), 80):
        pass
    with until(driftwise.LiveLearner.load(tmp_path / "kept"), 160) as second:
        assert same(state_of(second), state_of(whole))


def test_a_reference_without_labels_is_refused_and_changes_nothing() -> None:
    past, labels, *_ = past_and_future(4)
    mine = driftwise.LiveLearner("mlp")
    some: list[Any] = labels[:20].tolist()
    some[3] = None
    assert "a label for each" in complaint(lambda: mine.fit_reference(past[:20], some))
    assert "a label for each" in complaint(lambda: mine.fit_reference(past[:0], []))
    assert mine._engine is None
    assert mine.num_samples == 0


# False alarms


def points(draw: np.random.Generator, count: int, rare: float) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that overlap, one of them rare."""
    labels = (draw.random(count) < rare).astype(int)
    x = draw.normal(size=(count, 8))
    x[:, 0] += 2 * labels - 1
    return x.astype(np.float32), labels


def trained(draw: np.random.Generator, rare: float, seed: int) -> driftwise.LiveLearner:
    settings: dict[str, Any] = {"detector": "ks", "adaptation": "vanilla", "batch_size": None}
    mine = driftwise.LiveLearner("mlp", seed=seed, reference_size=50, replay_steps=2, **settings)
    for _ in range(12):
        mine.observe(*points(draw, 200, rare))
    return mine


def reference_of_the_past(draw: np.random.Generator, seed: int) -> list[Any]:
    y = draw.integers(2, size=500)
    x = (draw.normal(size=(500, 6)) + y[:, None]).astype(np.float32)
    mine = driftwise.LiveLearner("mlp", seed=seed, replay_steps=2)
    mine.fit_reference(x[:300], y[:300])
    return [mine.observe(x[n : n + 20], y[n : n + 20]) for n in range(300, 500, 20)]


def rare_class(draw: np.random.Generator, seed: int) -> list[Any]:
    """Unlabelled samples are grouped by predictions, of which some are wrong."""
    mine = trained(draw, 0.1, seed)
    return [mine.observe(points(draw, 200, 0.1)[0]) for _ in range(3)]


def other_proportions(draw: np.random.Generator, seed: int) -> list[Any]:
    mine = trained(draw, 0.5, seed)
    return [mine.observe(points(draw, 200, 0.15)[0]) for _ in range(3)]


@pytest.mark.parametrize("stream", [reference_of_the_past, rare_class, other_proportions])
def test_false_alarms_stay_at_their_level(
    stream: Callable[[np.random.Generator, int], list[Any]],
) -> None:
    streams, alarms = 10, 0
    for seed in range(streams):
        seen = stream(np.random.default_rng(seed), seed)
        assert any(each.verdicts for each in seen)
        alarms += any(each.drifted for each in seen)
    assert alarms <= stats.binom.ppf(0.999, streams, 0.05)


def test_a_rare_class_does_not_hide_a_drift() -> None:
    draw = np.random.default_rng(0)
    mine = trained(draw, 0.1, 0)
    seen = [mine.observe(points(draw, 200, 0.1)[0] * [1, *[4] * 7]) for _ in range(3)]
    assert any(each.drifted for each in seen)
