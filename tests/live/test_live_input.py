"""What may come in, and what is refused: in one line, and without a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from live_tools import digits, live_learner, play, small_network
from run_tools import complaint
from same_state import same
from test_live_drift import engine_of
from test_live_saving import state_of

import driftwise
from driftwise import rng
from driftwise.live.events import Event
from driftwise.live.inputs import InputReader, labels_from


def vectors(samples: int = 40, width: int = 6) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    labels = np.arange(samples) % 3
    return draw.normal(size=(samples, width)) + labels[:, None], labels


def on_vectors() -> driftwise.LiveLearner:
    with rng.as_global(rng.fork(0, "linear")):
        return live_learner(torch.nn.Linear(6, 3))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_samples_that_are_not_finite_are_refused_counted_and_told(value: float) -> None:
    x, y = vectors()
    x[[3, 17], 2] = value
    heard: list[Event] = []
    mine = on_vectors()
    mine.on("refused", heard.append)
    seen = mine.observe(x, y)
    assert seen.refused == (3, 17)
    assert seen.labelled == 38
    assert seen.predicted[[3, 17]].tolist() == [-1, -1]
    assert (np.delete(seen.predicted, [3, 17]) >= 0).all()
    assert "2 samples were refused: not finite, or too large" in seen.notes
    assert "driftwise_samples_refused_total 2\n" in mine.counters
    assert heard[0].details == {"rows": [3, 17]}
    assert np.isfinite(mine.predict_proba(np.delete(x, [3, 17], axis=0))).all()
    assert {3, 17}.isdisjoint(engine_of(mine).window.learned.samples().ids.tolist())


def test_a_batch_of_which_no_sample_can_be_used_changes_nothing_but_the_counts() -> None:
    x, y = vectors()
    mine = on_vectors()
    mine.observe(x, y)
    before = mine.predict_proba(x)
    seen = mine.observe(np.full((5, 6), np.nan), [0] * 5)
    assert seen.refused == (0, 1, 2, 3, 4)
    assert seen.loss is None
    assert np.array_equal(mine.predict_proba(x), before)


WRONG: dict[str, tuple[Any, Any, str]] = {
    "lengths differ": (np.zeros((3, 6)), [0, 1], "a label for each of 3 samples"),
    "another size": (np.zeros((3, 7)), [0, 1, 2], "floats of shape (6,) at first; got floats"),
    "another type": (np.zeros((3, 8, 8, 1), np.uint8), None, "got bytes of shape (8, 8, 1)"),
    "bytes of no image": (np.zeros((3, 6), np.uint8), None, "(samples, height, width, channels)"),
    "one number": (3.0, None, "expected samples of numbers"),
    "no numbers in samples": (np.zeros((3, 0)), None, "expected samples of numbers"),
    "words": (["cat"], None, "an array or a tensor of numbers; got list"),
    "objects": ([object()], None, "an array or a tensor of numbers"),
    "ragged": ([[1, 2], [3]], None, "an array or a tensor of numbers"),
    "complex": (np.zeros((3, 6), complex), None, "an array or a tensor of numbers"),
    "whole numbers as images": (np.zeros((3, 8, 8, 1), int), None, "uint8"),
    "labels are words": (np.zeros((3, 6)), ["a", "b", "c"], "labels are whole numbers"),
    "labels are fractions": (np.zeros((3, 6)), [0.5, 1, 2], "labels are whole numbers"),
    "labels are infinite": (np.zeros((3, 6)), [np.inf, 1, 2], "labels are at most"),
    "masked": (np.ma.masked_greater(np.ones((3, 6)), 0), None, "a masked array hides values"),
    "masked in a list": ([np.ma.masked_equal(np.ones(6), 1)] * 3, None, "a masked array hides"),
    "no values": (torch.empty(3, 6, device="meta"), None, "which has no values"),
    "labels that wrap": (np.zeros((3, 6)), np.full(3, 2**64 - 1, np.uint64), "is too large"),
    "tensor labels that wrap": (
        np.zeros((3, 6)),
        torch.from_numpy(np.full(3, 2**64 - 1, np.uint64)),
        "is too large",
    ),
    "labels in a list that wrap": (np.zeros((3, 6)), [2**64 - 1] * 3, "is too large"),
    "masked labels": (np.zeros((3, 6)), np.ma.masked_equal([0, 1, 2], 1), "a masked array hides"),
    "truth values as labels": (np.zeros((3, 6)), np.array([True, False, True]), "booleans"),
    "some truth values": (np.zeros((3, 6)), [True, 0, 2], "booleans"),
    "complex labels": (np.zeros((3, 6)), np.zeros(3, complex), "labels are whole numbers"),
    "labels below zero": (np.zeros((3, 6)), [-2, 1, 2], "labels are 0 or more; got -2"),
    "labels in a column": (np.zeros((3, 6)), [[0], [1], [2]], "got the shape (3, 1)"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_what_cannot_be_used_is_refused_and_leaves_no_trace(mistake: str) -> None:
    x, y, text = WRONG[mistake]
    mine = on_vectors()
    mine.observe(*vectors())
    before = state_of(mine)
    assert text in complaint(lambda: mine.observe(x, y))
    assert same(state_of(mine), before)


def test_images_with_channels_first_are_refused_before_anything_is_made_for_them() -> None:
    mine = live_learner()
    text = complaint(lambda: mine.observe(np.zeros((4, 3, 32, 32), np.uint8), [0, 1, 0, 1]))
    assert "got the shape (4, 3, 32, 32), with channels first: give x.permute(0, 2, 3, 1)" in text
    assert mine.num_samples == 0
    mine.observe(np.zeros((4, 32, 32, 3), np.uint8), [0, 1, 0, 1])


class _Several(torch.nn.Module):
    """Gives more than logits, or logits of another shape."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(6, 3)
        self.kind = kind

    def forward(self, x: torch.Tensor) -> object:
        logits = self.inner(x)
        return {"logits": logits} if self.kind == "mapping" else logits[:, None]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("mapping", "a tensor of logits, (2, classes) for 2 images; it returned a dict"),
        ("deep", "give a sample of logits, one per class of the stream; for 2 images it gave the"),
    ],
)
def test_a_network_that_gives_no_logits_is_told_what_it_should_give(kind: str, text: str) -> None:
    assert text in complaint(lambda: live_learner(_Several(kind)).observe(*vectors()))


def test_a_changed_image_size_in_mid_stream_is_refused_and_the_stream_goes_on() -> None:
    stream = digits(0)
    mine = live_learner()
    play(mine, stream, samples=50)
    text = complaint(lambda: mine.observe(np.zeros((2, 9, 9, 1), np.uint8), [0, 1]))
    assert "bytes of shape (8, 8, 1) at first; got bytes of shape (9, 9, 1)" in text
    assert "(9, 9, 1)" in complaint(lambda: mine.predict(np.zeros((2, 9, 9, 1), np.uint8)))
    mine.observe(stream.images[50:60], stream.labels[50:60])
    assert mine.num_samples == 60


def test_nothing_is_observed_after_closing_and_predictions_still_work() -> None:
    stream = digits(0)
    with live_learner() as mine:
        mine.observe(stream.images[:10], stream.labels[:10])
    assert "has been closed" in complaint(lambda: mine.observe(stream.images[:10]))
    assert "has been closed" in complaint(lambda: mine.answer([0], [0]))
    assert "has been closed" in complaint(mine.save)
    assert len(mine.predict(stream.images[:10])) == 10
    mine.close()  # once more does no harm


def test_a_network_by_name_needs_labels_first_and_says_so() -> None:
    mine = live_learner("mlp")
    images = digits(0).images
    assert "give its labels" in complaint(lambda: mine.observe(images[:5]))
    assert "observe labelled samples first" in complaint(lambda: mine.predict(images[:5]))
    assert mine.num_samples == 0
    mine.observe(images[:3], [4, None, 0])
    assert mine.predict_proba(images[:2]).shape == (2, 5)


def test_a_network_that_cannot_take_the_samples_is_refused_and_another_try_is_free() -> None:
    mine = on_vectors()
    assert "cannot take images" in complaint(lambda: mine.observe(digits(0).images[:3], [0, 1, 2]))
    assert mine.num_samples == 0
    mine.observe(*vectors())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"checkrows": 3}, "did you mean 'check_rows'?"),
        ({"epochs": 3}, "unknown setting of a live learner 'epochs'"),
        ({"check_rows": 0}, "check_rows must be at least 1"),
        ({"check_rows": "many"}, "check_rows"),
        ({"label_seconds": 0}, "label_seconds must lie above 0"),
        ({"learning_share": 1.0}, "learning_share must lie from 0 to 0.9; got 1.0"),
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


def test_a_detector_keeps_the_level_of_each_check_where_that_is_asked_for() -> None:
    told = {"options": {"detector": {"spending": "none"}}}
    assert live_learner(**told)._config.options["detector"]["spending"] == "none"
    assert live_learner()._config.options["detector"]["spending"] == "inverse-square"


def test_samples_belong_to_the_live_learner_once_they_have_come() -> None:
    stream = digits(0)
    buffer = stream.images[:10].copy()
    mine = live_learner(buffer_size=50)
    mine.observe(buffer, stream.labels[:10])
    taken = InputReader().read(buffer, None, max_label=9)
    buffer[:] = 0  # as a camera's ring would
    assert np.array_equal(taken.samples.images.numpy(), stream.images[:10])
    memory = engine_of(mine).learner.buffer
    for label in memory.counts():
        samples = memory.samples_of(label)
        assert np.array_equal(samples.images.numpy(), stream.images[samples.ids.numpy()])


def test_arrays_of_any_make_mean_the_same() -> None:
    x, y = vectors()
    answers = []
    for kind in (
        (x, y),
        (x.astype(">f8"), y.astype(np.uint8)),
        (torch.from_numpy(x).requires_grad_(), torch.from_numpy(y)),
        (x.tolist(), y.tolist()),
        (np.asfortranarray(x), y.astype(float)),
        (x[::-1][::-1], [int(label) for label in y]),
    ):
        mine = on_vectors()
        mine.observe(*kind)
        answers.append(mine.predict_proba(x))
    assert all(np.array_equal(answers[0], answer) for answer in answers)


def test_missing_labels_may_be_none_nan_or_minus_one() -> None:
    expected = [1, -1, 0]
    for y in ([1, None, 0], [1, np.nan, 0], [1, -1, 0], np.array([1, None, 0], object)):
        assert labels_from(y, 3, max_label=9).tolist() == expected
    assert labels_from(None, 2, max_label=9).tolist() == [-1, -1]


def test_an_empty_batch_is_no_mistake() -> None:
    mine = live_learner()
    assert mine.observe(np.zeros((0, 8, 8, 1), np.uint8)).predicted.shape == (0,)
    stream = digits(0)
    play(mine, stream, samples=30)
    seen = mine.observe(stream.images[:0], [])
    assert (seen.labelled, seen.loss, seen.accuracy) == (0, None, None)
    assert mine.predict(stream.images[:0]).shape == (0,)


def test_a_single_sample_is_a_batch_even_for_a_batch_norm() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), small_network(10))
    mine = live_learner(network, watch_every=100)
    stream = digits(0)
    for number in range(5):
        seen = mine.observe(stream.images[number : number + 1], stream.labels[number : number + 1])
        assert seen.loss is not None


def test_predictions_for_samples_that_are_not_finite_are_refused() -> None:
    mine = on_vectors()
    x, y = vectors()
    mine.observe(x, y)
    x[4, 0] = np.nan
    assert "sample 4 holds values that are not finite" in complaint(lambda: mine.predict(x))


def test_large_batches_are_learned_in_steps_of_a_size() -> None:
    stream = digits(0)
    mine = live_learner(batch_size=8, watch_every=10**6)
    mine.observe(stream.images[:50], stream.labels[:50])
    assert "driftwise_steps_total 7\n" in mine.counters


def test_each_sample_has_a_number_of_its_own_refused_ones_included() -> None:
    reader = InputReader()
    x = np.zeros((3, 2))
    x[1] = np.nan
    first = reader.read(x, None, max_label=9)
    second = reader.read(np.zeros((2, 2)), None, max_label=9)
    assert first.samples.ids.tolist() == [0, 2]
    assert second.samples.ids.tolist() == [3, 4]


def test_callbacks_hear_what_they_asked_for_and_their_mistakes_stop_nothing() -> None:
    stream = digits(0)
    mine = live_learner()
    heard: list[str] = []
    mine.on("*", lambda event: heard.append(event.kind))

    def broken(event: Event) -> None:
        raise RuntimeError(f"cannot stand {event.kind}\nat all")

    mine.on("observed", broken)
    seen = mine.observe(stream.images[:10], stream.labels[:10])
    assert "a callback on observed failed: RuntimeError: cannot stand observed" in seen.notes
    assert heard == ["classes", "observed"]
    assert "driftwise_callback_failures_total 1\n" in mine.counters
    assert "did you mean 'drifted'?" in complaint(lambda: mine.on("drift", print))
    assert "a function to call" in complaint(lambda: mine.on("drifted", 3))  # type: ignore[arg-type]


def test_a_stream_of_one_class_is_watched_until_there_are_more() -> None:
    draw, mine = np.random.default_rng(0), live_learner(detector="combined")
    for _ in range(30):
        seen = mine.observe(draw.integers(0, 256, (10, 8, 8, 1), dtype=np.uint8), np.zeros(10, int))
        assert not seen.drifted
    assert engine_of(mine).checks > 1
    seen = mine.observe(draw.integers(0, 256, (10, 8, 8, 1), dtype=np.uint8), np.ones(10, int))
    assert seen.new_classes == (1,)


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8), (64,)])
def test_a_fixed_encoder_looks_at_floats_of_any_shape(shape: tuple[int, ...]) -> None:
    stream = digits(0, classes=3, turn=270)
    mine = live_learner(small_network(3), encoder="random")
    for _, images, labels in stream.batches():
        mine.observe(images.reshape(-1, *shape).astype(np.float32) / 255, labels)
    assert engine_of(mine).checks > 1


def test_what_cannot_be_squared_is_refused_like_what_is_not_finite() -> None:
    x, y = vectors()
    x[3] = 3e38
    mine = on_vectors()
    assert mine.observe(x, y).refused == (3,)
    x[3] = 1e6
    assert mine.observe(x, y).refused == ()


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (lambda mine: mine.rehearse(2.5), "steps must be a whole number; got 2.5"),
        (lambda mine: mine.observe(torch.ones(2, 6).to_sparse()), "to_dense()"),
        (lambda mine: mine.answer([-1], [1]), "see Observation.ids; got -1"),
        (lambda mine: mine.answer([None], [1]), "see Observation.ids"),
        (lambda mine: mine.answer([1.5], [1]), "see Observation.ids"),
        (lambda mine: mine.answer(3, 1), "see Observation.ids; got torch.int64 of shape ()"),
    ],
)
def test_a_mistake_leaves_a_live_learner_that_goes_on(mistake: Any, text: str) -> None:
    x, y = vectors()
    mine = on_vectors()
    mine.observe(x, y)
    before = state_of(mine)
    assert text in complaint(lambda: mistake(mine))
    assert same(state_of(mine), before)
    mine.observe(x, y)


def test_answers_may_be_tensors_or_none_at_all() -> None:
    x, y = vectors()
    mine = on_vectors()
    ids = mine.observe(x).ids
    mine.answer([], [])
    mine.answer(torch.from_numpy(ids), torch.from_numpy(y))
    mine.observe(x[:0])
    assert mine.classes == (0, 1, 2)


@pytest.mark.parametrize("asked", [(1, 8, 8, 1), (1, 12, 12, 1)])
def test_a_question_before_the_first_samples_decides_nothing(asked: tuple[int, ...]) -> None:
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).append(torch.nn.Linear(4, 10))
    one, other = (live_learner(network, normalise=True) for _ in range(2))
    stream = digits(0)
    one.predict(np.zeros(asked, np.uint8))
    play(one, stream, samples=100)
    play(other, stream, samples=100)
    assert same(state_of(one), state_of(other))


def test_a_network_is_copied_when_the_live_learner_is_made() -> None:
    network, x = small_network(10), digits(0).images[:5]
    mine = live_learner(network)
    before = mine.predict_proba(x)
    again = live_learner(network)
    for weights in network.parameters():
        torch.nn.init.zeros_(weights)
    assert (mine.predict_proba(x) == before).all()
    assert (again.predict_proba(x) == before).all()


def test_a_table_of_any_scale_can_be_normalised() -> None:
    numbers = np.random.default_rng(0)
    labels = np.arange(200) % 2
    table = (numbers.normal(size=(200, 3)) + 3 * labels[:, None]) * [1e-3, 1.0, 1e5]
    mine = live_learner("mlp", normalise=True, lr=0.1)
    for start in range(0, 200, 20):
        mine.observe(table[start : start + 20], labels[start : start + 20])
    assert (mine.predict(table) == labels).mean() > 0.9
