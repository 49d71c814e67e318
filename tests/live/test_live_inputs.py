"""What may come in, what is refused without a trace, and samples far from all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from live_tools import (
    STABLE,
    digits,
    engine_of,
    feed,
    live_learner,
    small_network,
    state_of,
    vectors,
)
from run_tools import complaint
from same_state import same

import driftwise
from driftwise import rng
from driftwise.live import Event, Observation
from driftwise.live.input_reader import InputReader, InputStatistics, labels_from


def on_vectors(**settings: Any) -> driftwise.LiveLearner:
    with rng.as_global(rng.fork(0, "linear")):
        return live_learner(torch.nn.Linear(6, 3), **settings)


# Refusals

X, WRAPS = np.zeros((3, 6)), np.full(3, 2**64 - 1, np.uint64)
WRONG: list[tuple[Any, Any, str]] = [
    (X, [0, 1], "a label for each of 3 samples"),
    (np.zeros((3, 7)), [0, 1, 2], "floats of shape (6,) at first; got floats of shape (7,)"),
    (np.zeros((3, 8, 8, 1), np.uint8), None, "got bytes of shape (8, 8, 1)"),
    (np.zeros((3, 6, 1), np.uint8), None, "(samples, height, width, channels)"),
    (3.0, None, "expected samples of numbers"),
    (np.zeros((3, 0)), None, "expected samples of numbers"),
    (["cat"], None, "an array or a tensor of numbers; got list"),
    ([object()], None, "an array or a tensor of numbers"),
    ([[1, 2], [3]], None, "an array or a tensor of numbers"),
    (np.zeros((3, 6), complex), None, "an array or a tensor of numbers"),
    (torch.zeros(3, 6, dtype=torch.complex64), None, "an array or a tensor of numbers"),
    (np.zeros((3, 6), np.longdouble), None, "an array or a tensor of numbers"),
    (np.zeros((3, 8, 8, 1), int), None, "uint8"),
    (np.ma.masked_greater(np.ones((3, 6)), 0), None, "a masked array hides values"),
    ([np.ma.masked_equal(np.ones(6), 1)] * 3, None, "a masked array hides"),
    (torch.empty(3, 6, device="meta"), None, "which has no values"),
    (torch.ones(2, 6).to_sparse(), None, "to_dense()"),
    (X, ["a", "b", "c"], "number the classes, or use LiveClassifier, which takes texts"),
    (X, [0.5, 1, 2], "labels are whole numbers"),
    (X, [np.inf, 1, 2], "labels are at most"),
    (X, WRAPS, "is too large"),
    (X, torch.from_numpy(WRAPS), "is too large"),
    (X, WRAPS.tolist(), "is too large"),
    (X, np.ma.masked_equal([0, 1, 2], 1), "a masked array hides"),
    (X, np.array([True, False, True]), "booleans"),
    (X, [True, 0, 2], "booleans"),
    (X, np.zeros(3, complex), "labels are whole numbers"),
    (X, [-2, 1, 2], "labels are 0 or more; got -2"),
    (X, [[0], [1], [2]], "got the shape (3, 1)"),
]
CALLS: list[tuple[Callable[[Any], object], str]] = [
    *((lambda mine, x=x, y=y: mine.observe(x, y), text) for x, y, text in WRONG),
    (lambda mine: mine.rehearse(2.5), "steps must be a whole number; got 2.5"),
    (lambda mine: mine.answer([-1], [1]), "see Observation.ids; got -1"),
    (lambda mine: mine.answer([None], [1]), "see Observation.ids"),
    (lambda mine: mine.answer([1.5], [1]), "see Observation.ids"),
    (lambda mine: mine.answer(3, 1), "see Observation.ids; got torch.int64 of shape ()"),
    (lambda mine: mine.answer([1, 2], [0]), "2 samples"),
    (lambda mine: mine.answer([40], [0]), "sample 40 has not come yet"),
    (lambda mine: mine.answer([1], [-2]), "labels are 0 or more"),
    (lambda mine: mine.predict(np.full((1, 6), np.nan)), "sample 0 holds values that are not fini"),
    (lambda mine: mine.predict(np.zeros((2, 7))), "at first; got floats of shape (7,)"),
    (lambda mine: mine.on("drift", print), "did you mean 'drifted'?"),
    (lambda mine: mine.on("drifted", 3), "a function to call"),
    (lambda mine: mine.save(), "make the live learner with a folder"),
]


def test_what_cannot_be_used_is_refused_in_one_line_and_changes_nothing() -> None:
    mine = on_vectors()
    mine.observe(*vectors())
    before = state_of(mine)
    for call, text in CALLS:
        message = complaint(lambda call=call: call(mine))  # type: ignore[misc]
        assert text in message
        assert same(state_of(mine), before), text
    mine.observe(*vectors())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"checkrows": 3}, "did you mean 'check_rows'?"),
        ({"epochs": 3}, "unknown setting of a live learner 'epochs'"),
        ({"check_rows": 0}, "check_rows must be at least 1"),
        ({"check_rows": "many"}, "check_rows"),
        ({"catch_up_steps": 2.5}, "catch_up_steps"),
        ({"label_seconds": 0}, "label_seconds must lie above 0"),
        ({"save_seconds": -1}, "save_seconds must be at least 0, or None"),
        ({"learning_share": 1.0}, "learning_share must lie from 0 to 0.9; got 1.0"),
        ({"max_gradient": 0}, "max_gradient must be above 0"),
        ({"method": "joint"}, "method joint trains on all samples so far"),
        ({"detector": "oracle"}, "detector oracle reads the schedule"),
        ({"method": "err"}, "did you mean 'er'?"),
        ({"labels": 3}, "labels must be a function"),
        ({"network": 3}, "a torch module or a backbone's name; got int"),
        ({"network": "mpl"}, "did you mean 'mlp'?"),
        ({"options": {"detector": {"levle": 0.1}}}, "level"),
    ],
)
def test_settings_that_mean_nothing_are_refused_at_once(
    settings: dict[str, Any], text: str
) -> None:
    network = settings.pop("network", "mlp")
    assert text in complaint(lambda: live_learner(network, **settings))


class NoLogits(torch.nn.Module):
    """Gives more than logits, or logits of another shape."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(6, 3)
        self.kind = kind

    def forward(self, x: torch.Tensor) -> object:
        logits = self.inner(x)
        return {"logits": logits} if self.kind == "mapping" else logits[:, None]


@pytest.mark.parametrize(
    ("network", "x", "y", "text"),
    [
        ("mlp", STABLE.images[:5], None, "give its labels"),
        ("cnn", X, [0, 1, 2], "takes images; these samples have the shape (6,): use the backbone"),
        ("mlp", np.zeros((4, 3, 32, 32), np.uint8), [0, 1, 0, 1], "give x.permute(0, 2, 3, 1)"),
        (torch.nn.Linear(6, 3), STABLE.images[:3], [0, 1, 2], "cannot take images"),
        (NoLogits("mapping"), X, None, "a tensor of logits, (2, classes) for 2 images; it ret"),
        (NoLogits("deep"), X, None, "give a sample of logits, one per class of the stream"),
    ],
)
def test_a_first_batch_that_does_not_fit_is_refused_and_another_may_come(
    network: Any, x: Any, y: Any, text: str
) -> None:
    mine = live_learner(network)
    assert text in complaint(lambda: mine.observe(x, y))
    assert mine.num_samples == 0
    empty = np.zeros((0, 8, 8, 1), np.uint8)
    assert mine.observe(empty).predicted.shape == (0,), "an empty batch is no mistake"


def test_nothing_is_observed_after_closing_and_predictions_still_work() -> None:
    with live_learner() as mine:
        mine.observe(STABLE.images[:10], STABLE.labels[:10])
    calls: list[Callable[[], object]] = [
        lambda: mine.observe(STABLE.images[:10]),
        lambda: mine.answer([0], [0]),
        lambda: mine.fit_reference(STABLE.images[:10], STABLE.labels[:10]),
        mine.rehearse,
        mine.save,
    ]
    for call in calls:
        assert "has been closed" in complaint(call)
    assert len(mine.predict(STABLE.images[:10])) == 10
    mine.close()  # once more does no harm


# Samples that can be used


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e300, 3e38])
def test_samples_that_are_not_finite_or_cannot_be_squared_are_left_out(value: float) -> None:
    x, y = vectors()
    x[[3, 17], 2] = value
    events: list[Event] = []
    mine = on_vectors()
    mine.on("refused", events.append)
    seen = mine.observe(x, y)
    assert (seen.refused, seen.labelled) == ((3, 17), 38)
    assert seen.predicted[[3, 17]].tolist() == [-1, -1]
    assert (np.delete(seen.predicted, [3, 17]) >= 0).all()
    assert "2 samples were refused: not finite, or too large" in seen.notes
    assert "driftwise_samples_refused_total 2\n" in mine.counters
    assert events[0].details == {"rows": [3, 17]}
    assert {3, 17}.isdisjoint(engine_of(mine).window.learned.samples().ids.tolist())
    before = mine.predict_proba(vectors()[0])
    seen = mine.observe(np.full((5, 6), value), [0] * 5)
    assert (seen.refused, seen.loss) == ((0, 1, 2, 3, 4), None)
    assert np.array_equal(mine.predict_proba(vectors()[0]), before)


def test_samples_are_copied_and_numbered_refused_ones_included() -> None:
    reader, x = InputReader(), np.zeros((3, 2))
    x[1] = np.nan
    first = reader.read(x, None, max_label=9)
    x[:] = 5  # as the ring buffer of a camera would
    assert first.samples.ids.tolist() == [0, 2]
    assert not first.samples.images.any()
    assert reader.read(np.zeros((2, 2)), None, max_label=9).samples.ids.tolist() == [3, 4]


def test_arrays_of_any_make_mean_the_same() -> None:
    x, y = vectors()
    probabilities = []
    for samples, labels in (
        (x, y),
        (x.astype(">f8"), y.astype(np.uint8)),
        (torch.from_numpy(x).requires_grad_(), torch.from_numpy(y)),
        (x.tolist(), y.tolist()),
        (np.asfortranarray(x), y.astype(float)),
        (x[::-1].copy()[::-1], y.astype(object)),
    ):
        mine = on_vectors()
        mine.observe(samples, labels)
        probabilities.append(mine.predict_proba(samples))
    assert all(np.array_equal(probabilities[0], each) for each in probabilities)
    assert np.array_equal(mine.predict(np.eye(6, dtype=np.uint8)), mine.predict(np.eye(6)))
    for some in ([1, None, 0], [1, np.nan, 0], [1, -1, 0], np.array([1, None, 0], object)):
        assert labels_from(some, 3, max_label=9).tolist() == [1, -1, 0]


def test_batches_of_any_size_even_for_a_batch_norm() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), small_network(10))
    mine = live_learner(network, watch_every=100, batch_size=8)
    for start in range(3):
        assert mine.observe(STABLE.images[start : start + 1], STABLE.labels[start : start + 1]).loss
    seen = mine.observe(STABLE.images[:0], [])
    assert (seen.labelled, seen.loss, seen.accuracy) == (0, None, None)
    mine.observe(STABLE.images[:50], STABLE.labels[:50])
    assert "driftwise_steps_total 10\n" in mine.counters, "3 of one sample, 7 of up to 8"
    assert mine.predict(STABLE.images[:0]).shape == (0,)


def test_predictions_come_before_learning_and_change_nothing() -> None:
    one, other = (live_learner(small_network(10)) for _ in range(2))
    for _, images, labels in list(STABLE.batches())[:20]:
        predicted = one.predict(images)
        assert np.array_equal(one.observe(images, labels).predicted, predicted)
        other.observe(images, labels)
    assert same(state_of(one), state_of(other))


@pytest.mark.parametrize("shape", [(1, 8, 8, 1), (1, 12, 12, 1)])
def test_a_prediction_before_the_first_samples_decides_nothing(shape: tuple[int, ...]) -> None:
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).append(torch.nn.Linear(4, 10))
    one, other = (live_learner(network, normalise=True) for _ in range(2))
    for _ in range(2):
        probabilities = one.predict_proba(np.zeros(shape, np.uint8))
    assert "nothing has been learned" in complaint(lambda: one.predict(np.zeros((0, 8, 8, 1))))
    for weights in network.parameters():
        torch.nn.init.zeros_(weights)  # the live learner has its own copy
    assert np.array_equal(one.predict_proba(np.zeros(shape, np.uint8)), probabilities)
    for each in (one, other):
        feed(each, STABLE, samples=50)
    assert same(state_of(one), state_of(other))


def test_a_stream_of_one_class_is_monitored_until_there_are_more() -> None:
    draw, mine = np.random.default_rng(0), live_learner(detector="combined")
    for _ in range(20):
        seen = mine.observe(draw.integers(0, 256, (10, 8, 8, 1), dtype=np.uint8), np.zeros(10, int))
        assert not seen.drifted
    assert engine_of(mine).checks > 1
    seen = mine.observe(draw.integers(0, 256, (10, 8, 8, 1), dtype=np.uint8), np.ones(10, int))
    assert seen.new_classes == (1,)


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8), (64,)])
def test_a_fixed_encoder_encodes_floats_of_any_shape(shape: tuple[int, ...]) -> None:
    mine = live_learner(small_network(3), encoder="random")
    for _, images, labels in digits(0, classes=3, turn=270).batches(30):
        mine.observe(images.reshape(-1, *shape).astype(np.float32) / 255, labels)
    assert engine_of(mine).checks > 1


# Scales


def table(samples: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Columns of very different sizes, one of them constant; the smallest one shows the class."""
    draw = np.random.default_rng(0)
    y = draw.integers(2, size=samples)
    columns = [draw.normal(size=samples) * 1e5, np.full(samples, 7.0)]
    columns.append((draw.normal(size=samples) / 3 + y) * 1e-3)
    return np.stack(columns, axis=1).astype(np.float32), y


def test_tables_are_normalised_by_the_samples_so_far_also_after_a_restart(tmp_path: Any) -> None:
    x, y = table()
    with driftwise.LiveLearner("mlp", folder=tmp_path / "kept") as mine:
        for start in range(0, 300, 20):
            mine.observe(x[start : start + 20], y[start : start + 20])
        mine.observe(2 * x[:50])  # samples without labels count, too
        probabilities = mine.predict_proba(x)
        assert (probabilities.argmax(axis=1) == y)[300:].mean() > 0.85
    with driftwise.LiveLearner.load(tmp_path / "kept") as again:
        assert np.array_equal(again.predict_proba(x), probabilities)


@pytest.mark.parametrize(
    ("size", "settings", "warned"),
    [(1.0, {}, False), (1000.0, {}, True), (1000.0, {"normalise": True}, False)],
)
def test_large_inputs_of_a_given_network_are_reported_once(
    size: float, settings: dict[str, Any], warned: bool
) -> None:
    mine = driftwise.LiveLearner(torch.nn.Linear(64, 10), **settings)
    values = STABLE.images.reshape(-1, 64) / 255 * size
    notes = [
        note
        for start in range(0, 60, 10)
        for note in mine.observe(
            values[start : start + 10], STABLE.labels[start : start + 10]
        ).notes
    ]
    assert ["inputs are not scaled" in note for note in notes] == [True] * warned


def test_a_given_network_gets_samples_as_they_are() -> None:
    inputs = []
    mine = driftwise.LiveLearner(small_network(outputs=10))
    x = STABLE.images[:20].reshape(20, 64).astype(np.float32)
    mine.observe(x, STABLE.labels[:20])
    network = mine._snapshots.newest  # type: ignore[union-attr]
    network.register_forward_pre_hook(lambda _, given: inputs.append(given[0].clone()))
    mine.predict(x)
    assert torch.equal(inputs[0], torch.from_numpy(x))


# Outliers


def digit_vectors(*, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Digits as 64 numbers from 0 to 1."""
    stream = digits(0, turn=None, classes=classes)
    return stream.images.reshape(-1, 64).astype(np.float32) / 255, stream.labels


def observe_all(mine: driftwise.LiveLearner, x: np.ndarray, y: np.ndarray) -> list[Observation]:
    return [
        mine.observe(x[start : start + 20], y[start : start + 20])
        for start in range(mine.num_samples, len(y), 20)
    ]


@pytest.mark.parametrize(
    ("size", "when", "own"), [(1e3, 205, False), (-1e9, 3, False), (9e18, 205, True)]
)
def test_one_outlier_changes_next_to_nothing(size: float, when: int, own: bool) -> None:
    x, y = digit_vectors()
    x[when] = size
    mine = driftwise.LiveLearner(small_network(outputs=4) if own else "mlp")
    seen = observe_all(mine, x[:300], y[:300])
    assert seen[when // 20].quarantined == (when % 20,)
    assert seen[when // 20].notes == ("samples quarantined, far outside what has been seen: 1",)
    assert sum(len(each.quarantined) for each in seen) == 1
    assert "driftwise_samples_quarantined_total 1\n" in mine.counters
    assert (mine.predict(x[300:]) == y[300:]).mean() > 0.9


def test_single_samples_are_compared_as_soon_as_there_are_some() -> None:
    x, y = digit_vectors()
    x[7] = 1e6
    mine = driftwise.LiveLearner("mlp", replay_steps=0)
    seen = [mine.observe(x[n : n + 1], y[n : n + 1]) for n in range(40)]
    assert [n for n, each in enumerate(seen) if each.quarantined] == [7]


def test_a_class_that_stays_far_outside_has_drifted_and_a_restart_changes_no_bit(
    tmp_path: Any,
) -> None:
    x, y = digit_vectors(classes=3)
    x[200:][y[200:] == 1] += 1000
    settings: dict[str, Any] = {"reference_size": 10, "check_rows": 10, "watch_every": 3}
    whole = driftwise.LiveLearner("mlp", **settings)
    seen = observe_all(whole, x, y)
    assert sum(len(each.quarantined) for each in seen) == 4, "and then they agree"
    assert 1 in {label for each in seen for label in each.drifted}
    assert (whole.predict(x[-100:]) == y[-100:]).mean() > 0.9
    quarantines = [number for number, each in enumerate(seen, 1) if each.quarantined]
    with driftwise.LiveLearner("mlp", folder=tmp_path / "kept", **settings) as mine:
        observe_all(mine, x[: 20 * quarantines[0]], y[: 20 * quarantines[0]])
        assert mine._state()["parts"]["seen"]["flags"], "some outliers, and no agreement yet"
    with driftwise.LiveLearner.load(tmp_path / "kept") as again:
        observe_all(again, x, y)
        assert same(state_of(again), state_of(whole))


def test_another_unit_for_everything_is_followed() -> None:
    x, y = digit_vectors()
    x[300:] *= 10_000
    mine = driftwise.LiveLearner("mlp")
    observe_all(mine, x[:600], y[:600])
    assert (mine.predict(x[-100:]) == y[-100:]).mean() > 0.9


@given(st.integers(0, 2**31), st.sampled_from([1e-6, 1.0, 1e6]))
@settings(max_examples=10, deadline=None)
def test_features_of_any_scale_constant_and_rare_ones_have_no_outliers(
    seed: int, scale: float
) -> None:
    draw = np.random.default_rng(seed)
    columns = [
        draw.normal(size=400) * scale,
        draw.lognormal(size=400),
        np.full(400, 3.0),
        (draw.random(400) < 0.01) * 1.0,
        draw.normal(size=400) + 1e4,
    ]
    x = np.stack(columns, axis=1).astype(np.float32)
    statistics = InputStatistics((5,), torch.float32, factor=50.0)
    for part in torch.split(torch.from_numpy(x), 20):
        assert not statistics.outliers(part).any()
        statistics.add(part)
    mean, std = statistics.statistics
    varies = [0, 1, 4]
    assert np.allclose(mean, x.mean(axis=0), rtol=1e-4, atol=1e-5 * scale)
    assert np.allclose(std[varies], x.std(axis=0)[varies], rtol=1e-3)
    assert std[2] == 1.0


# Divergence


def test_a_large_gradient_is_clipped() -> None:
    def weights() -> torch.Tensor:
        parameters = engine_of(mine).learner.network.parameters()
        return torch.cat([each.detach().clone().flatten() for each in parameters])

    x, y = digit_vectors()
    options: dict[str, Any] = {"optimiser": "sgd", "lr": 0.1, "outlier_factor": None}
    mine = driftwise.LiveLearner(small_network(outputs=4), **options)
    observe_all(mine, x[:80], y[:80])
    before = weights()
    mine.observe(np.full((1, 64), 1e6, np.float32), y[100:101])
    steps = 2  # its own, and one of replay
    assert 0 < (weights() - before).norm() <= steps * 0.1 * 10.0 * 1.001


def test_a_network_that_diverged_goes_back_and_neither_predicts_nor_saves_diverged_weights(
    tmp_path: Any,
) -> None:
    x, y = digit_vectors()
    free: dict[str, Any] = {"outlier_factor": None, "max_gradient": None, "optimiser": "sgd"}
    mine = driftwise.LiveLearner("mlp", lr=0.1, normalise=False, folder=tmp_path / "it", **free)
    observe_all(mine, x[:200], y[:200])
    before, events = mine.predict_proba(x[:50]), list[Event]()
    mine.on("restored", events.append)
    burst = np.full((20, 64), 9e18, dtype=np.float32)
    report = mine.observe(burst, y[:20])
    assert any("went back to its last good snapshot" in note for note in report.notes)
    assert np.array_equal(mine.predict_proba(x[:50]), before)
    assert f"driftwise_restored_total {len(events)}\n" in mine.counters
    mine.close()
    with driftwise.LiveLearner.load(tmp_path / "it") as again:
        assert np.array_equal(again.predict_proba(x[:50]), before)
    mine = driftwise.LiveLearner("mlp", optimiser="sgd", lr=10.0**6, max_gradient=None)
    assert any("fresh weights" in note for note in mine.observe(x[:20], y[:20]).notes)
    assert np.isfinite(mine.predict_proba(x[:20])).all()
