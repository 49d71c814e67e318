"""The live learner as a scikit-learn classifier."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import digits, state_of
from run_tools import complaint
from same_state import same
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_classifiers_classes, parametrize_with_checks

import driftwise
from driftwise import LiveClassifier


def _beyond_convention(estimator: Any) -> dict[str, str]:
    """-1 marks samples without a label, as for scikit-learn's own semi-supervised estimators."""
    if estimator.unlabelled is None:
        return {}
    return {"check_classifiers_classes": "takes -1 for a label"}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [LiveClassifier()], expected_failed_checks=_beyond_convention
)
def test_scikit_learn_finds_nothing_wrong(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def clusters(samples: int = 120, *, seed: int = 0, names: Any = (0, 1, 2)) -> tuple[Any, Any]:
    """Points around three centres far from one another."""
    draw = np.random.default_rng(seed)
    numbers = draw.integers(3, size=samples)
    centres = np.array([[0, 0, 4, 0], [4, 0, 0, 0], [0, 4, 0, 4]])
    return draw.normal(size=(samples, 4)) / 2 + centres[numbers], np.array(names)[numbers]


def test_digits_are_classified_in_a_pipeline_and_across_folds() -> None:
    x, y = load_digits(return_X_y=True)
    scores = cross_val_score(make_pipeline(StandardScaler(), LiveClassifier()), x, y, cv=3)
    assert scores.min() > 0.88


@pytest.mark.parametrize("names", [("c", "a", "b"), (30, -2, 7), (2.0, 0.0, 1.0)])
def test_labels_of_any_kind_come_back_as_they_went_in(names: tuple[Any, ...]) -> None:
    x, y = clusters(names=names)
    mine = LiveClassifier().fit(x, y)
    assert mine.classes_.tolist() == sorted(names)
    assert mine.score(x, y) > 0.97
    assert mine.predict(x).dtype == y.dtype
    assert np.allclose(mine.predict_proba(x).sum(axis=1), 1, atol=1e-6)


def test_classes_may_appear_at_any_time_and_columns_stay_sorted() -> None:
    x, y = clusters(300, names=("m", "z", "a"))
    mine = LiveClassifier()
    first = np.isin(y, ["m", "z"])
    mine.partial_fit(x[first][:50], y[first][:50])
    assert mine.classes_.tolist() == ["m", "z"]
    for start in range(0, 300, 20):
        mine.partial_fit(x[start : start + 20], y[start : start + 20])
    assert mine.classes_.tolist() == ["a", "m", "z"]
    assert mine.score(x, y) > 0.97
    assert np.array_equal(mine.classes_[mine.predict_proba(x).argmax(axis=1)], mine.predict(x))


def test_announced_classes_have_a_column_from_the_first_and_no_other_may_come() -> None:
    x, y = clusters(names=("m", "z", "a"))
    only = y == "m"
    mine = LiveClassifier().partial_fit(x[only], y[only], classes=["a", "m", "z"])
    assert mine.predict_proba(x).shape == (120, 3)
    assert mine.predict_proba(x)[:, 1].tolist() == [1.0] * 120
    before = copy.deepcopy(mine.live_learner_)
    assert "expected one of ['a', 'm', 'z']" in complaint(lambda: mine.partial_fit(x[:1], ["new"]))
    assert "classes were ['a', 'm', 'z'] at first" in complaint(
        lambda: mine.partial_fit(x, y, classes=["a", "m"])
    )
    assert same(state_of(mine.live_learner_), state_of(before))
    for _ in range(5):
        mine.partial_fit(x, y, classes=["z", "m", "a"])
    assert mine.score(x, y) > 0.97


@pytest.mark.parametrize(
    ("mark", "settings"), [(None, {}), (np.nan, {}), (-1, {}), (9, {"unlabelled": 9})]
)
def test_samples_without_a_label_are_monitored_and_not_learned(
    mark: Any, settings: dict[str, Any]
) -> None:
    x, y = clusters(200)
    some: Any = y.astype(object)
    some[100:] = mark
    if mark is not None:
        some = some.astype(type(mark))
    mine = LiveClassifier(**settings).fit(x, some)
    assert mine.classes_.tolist() == [0, 1, 2]
    assert "driftwise_samples_total 200\n" in mine.live_learner_.counters
    assert "driftwise_samples_labelled_total 100\n" in mine.live_learner_.counters
    mine.partial_fit(x[:10])
    assert mine.observation_.labelled == 0
    assert mine.score(x, y) > 0.97


def test_minus_one_marks_samples_without_a_label_and_is_no_class_of_a_binary_coding() -> None:
    x, y = clusters(names=(-1, 1, 3))
    assert LiveClassifier().fit(x, y).classes_.tolist() == [1, 3]
    assert LiveClassifier(unlabelled=None).fit(x, y).classes_.tolist() == [-1, 1, 3]
    assert driftwise.LiveLearner("mlp").observe(x, y).new_classes == (1, 3)
    check_classifiers_classes("LiveClassifier", LiveClassifier(unlabelled=None))
    x, y = clusters(names=(-1, 1, 1))
    for call in (
        lambda: LiveClassifier().fit(x, y),
        lambda: LiveClassifier().partial_fit(x, y, classes=[-1, 1]),
    ):
        assert "if it is a label, give unlabelled=None" in complaint(call)


@pytest.mark.parametrize(
    ("y", "text"),
    [
        ([None] * 3, "y has no label"),
        (["a", 1, "b"], "all texts; got int, str"),
        ([(1, 2), None, (3, 4)], "all texts; got tuple"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(y: list[Any], text: str) -> None:
    labels = np.empty(3, dtype=object)
    labels[:] = y
    assert text in complaint(lambda: LiveClassifier().fit(np.eye(3), labels))


def test_images_may_be_floats_or_bytes_with_channels_or_without() -> None:
    data = load_digits()
    grey, y = data.images[:60], data.target[:60]
    whole = (grey * 15).astype(np.uint8)
    probabilities = {
        name: LiveClassifier("cnn", epochs=2).fit(x, y).predict_proba(x)
        for name, x in {
            "floats": grey / 16,
            "floats, channels": grey[:, None] / 16,
            "bytes": whole,
            "bytes, channels": whole[..., None],
        }.items()
    }
    assert np.array_equal(probabilities["floats"], probabilities["floats, channels"])
    assert np.array_equal(probabilities["bytes"], probabilities["bytes, channels"])
    # 15/16 of a byte's scale apart: as good as the same image
    assert np.abs(probabilities["floats"] - probabilities["bytes"]).mean() < 0.05


def test_a_given_network_is_cloned_and_left_as_it_is() -> None:
    torch.manual_seed(0)
    x, y = clusters()
    network = torch.nn.Linear(4, 3)
    network.aside = torch.nn.Linear(4, 2)  # listed last, and no head
    before = copy.deepcopy(network.state_dict())
    attributes = [set(vars(each)) for each in network.modules()]
    for mine in (LiveClassifier(network), clone(LiveClassifier(network))):
        assert mine.fit(x, y).score(x, y) > 0.97
    assert same(network.state_dict(), before)
    assert [set(vars(each)) for each in network.modules()] == attributes


def trained(outputs: int, *, sure: float = 10.0) -> torch.nn.Linear:
    """A network that knows ten classes of points, or the first of them."""
    network = torch.nn.Linear(10, outputs)
    with torch.no_grad():
        network.weight.copy_(sure * torch.eye(10)[:outputs])
        network.bias.zero_()
    return network


def corners(labels: Any, *, each: int = 8) -> tuple[Any, Any]:
    """Points around a corner of their own for each label from 0 to 9."""
    y = np.tile(np.array(labels), each)
    noise = np.random.default_rng(0).normal(size=(len(y), 10)) / 10
    return np.eye(10)[y.astype(int)] + noise, y


def assert_sums_to_one(mine: LiveClassifier, x: Any) -> None:
    """The probabilities of a sample sum to 1, and the largest is predicted."""
    probabilities = mine.predict_proba(x)
    assert probabilities.shape == (len(x), len(mine.classes_))
    assert np.allclose(probabilities.sum(axis=1), 1, rtol=0, atol=1e-9)
    assert np.array_equal(mine.classes_[probabilities.argmax(axis=1)], mine.predict(x))


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32])
def test_a_trained_network_knows_its_outputs_whichever_labels_come_first(kind: Any) -> None:
    x, y = corners(np.arange(10, dtype=kind))
    mine = LiveClassifier(trained(10))
    late = y >= 5
    mine.partial_fit(x[late], y[late])
    assert mine.classes_.tolist() == list(range(10))
    assert mine.score(x, y) == 1
    assert mine.predict(x).dtype == kind
    assert np.array_equal(mine.predict(x), mine.live_learner_.predict(x))
    assert_sums_to_one(mine, x)


def test_labels_that_come_later_are_outputs_of_their_own_number() -> None:
    mine = LiveClassifier(trained(5), lr=0.05)
    for labels in ([7, 6], [1], [9, 7]):
        for _ in range(10):
            mine.partial_fit(*corners(labels))
    assert mine.classes_.tolist() == [0, 1, 2, 3, 4, 6, 7, 9]
    assert mine.live_learner_.classes == (1, 6, 7, 9)
    x, y = corners([0, 1, 2, 3, 4, 6, 7, 9])
    assert mine.score(x, y) > 0.97
    assert_sums_to_one(mine, x)


@pytest.mark.parametrize("sure", [10.0, 500.0])
def test_fit_knows_the_labels_it_was_given_and_each_is_its_own_output(sure: float) -> None:
    everything = corners(range(10))[0]
    mine = LiveClassifier(trained(10, sure=sure), epochs=1).fit(*corners(range(5, 10)))
    assert mine.classes_.tolist() == [5, 6, 7, 8, 9]
    assert mine.live_learner_.classes == (5, 6, 7, 8, 9)
    assert mine.score(*corners(range(5, 10))) == 1
    assert_sums_to_one(mine, everything)
    mine.partial_fit(*corners([2]))
    assert mine.classes_.tolist() == [2, 5, 6, 7, 8, 9]
    assert mine.score(*corners([2, 5, 6, 7, 8, 9])) == 1
    assert_sums_to_one(mine, everything)
    assert mine.fit(*corners([0, 3])).classes_.tolist() == [0, 3]


def test_announced_numbers_are_their_own_outputs_in_whatever_order() -> None:
    mine = LiveClassifier(trained(10)).partial_fit(*corners([7]), classes=[9, 5, 7])
    assert mine.classes_.tolist() == [5, 7, 9]
    assert mine.score(*corners([5, 7, 9])) == 1
    assert_sums_to_one(mine, corners(range(10))[0])
    early = LiveClassifier(trained(3)).partial_fit(corners([1])[0], classes=[8, 9])
    assert early.predict_proba(corners([1])[0]).tolist() == [[0.5, 0.5]] * 8


def test_names_take_outputs_in_the_order_in_which_they_are_announced() -> None:
    x, y = corners([0, 1, 2])
    names = np.array(["cat", "ant", "bee"], dtype=object)
    mine = LiveClassifier(trained(4)).partial_fit(x[2:3], names[y[2:3]], classes=names)
    assert mine.classes_.tolist() == ["ant", "bee", "cat"]
    assert mine.score(x, names[y].astype(str)) == 1
    assert_sums_to_one(mine, corners(range(10))[0])


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (("b", "a", "c"), {}),
        ((12_345, 0, -2), {}),
        ((20, 10, 30), {"grow": False}),
        ((6, 4, 5), {"max_classes": 6}),
    ],
)
def test_labels_that_are_no_outputs_take_them_as_they_appear(
    names: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    x, y = clusters(120, names=names)
    mine = LiveClassifier(torch.nn.Linear(4, 5), lr=0.03, settings=settings)
    for some in (y == names[0], y != names[1], y == y):
        mine.partial_fit(x[some], y[some])
    first, second, third = (np.flatnonzero(y == name)[0] for name in names)
    for _ in range(4):
        mine.partial_fit(x, y)
    assert mine.live_learner_.classes == (0, 1, 2)
    assert mine.live_learner_.predict(x[[first, third, second]]).tolist() == [0, 1, 2]
    assert mine.classes_.tolist() == sorted(names)
    assert mine.score(x, y) > 0.97
    assert_sums_to_one(mine, x)


@pytest.mark.parametrize("label", [-2, 6, 10**15])
def test_what_cannot_be_an_output_is_refused_where_others_are_theirs(label: int) -> None:
    x, y = corners([0, 1, 2])
    mine = LiveClassifier(trained(3), settings={"max_classes": 6}).partial_fit(x, y)
    before = state_of(copy.deepcopy(mine.live_learner_))
    message = complaint(lambda: mine.partial_fit(x, np.where(y == 1, label, y)))
    assert f"outputs here, from 0 to 5; got {label}: announce all" in message
    assert mine.classes_.tolist() == [0, 1, 2]
    assert same(state_of(mine.live_learner_), before)
    mine.partial_fit(x, np.where(y == 1, 5, y))
    assert mine.classes_.tolist() == [0, 1, 2, 5]


def test_before_labels_come_a_network_predicts_the_numbers_of_its_outputs() -> None:
    x, y = corners([0, 1, 2])
    mine = LiveClassifier(trained(3)).partial_fit(x)
    assert mine.predict(x).tolist() == y.tolist()
    assert "all texts; got" in complaint(
        lambda: copy.deepcopy(mine).partial_fit(x, y).partial_fit(x, y.astype(str))
    )
    mine.partial_fit(x, np.array(["a", "b", "c"])[y])
    assert mine.classes_.tolist() == ["a", "b", "c"]
    assert_sums_to_one(mine, x)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_knows_the_same_outputs_and_a_clone_none(copied: Callable[[Any], Any]) -> None:
    x, y = corners([4, 7])
    mine = LiveClassifier(trained(6)).partial_fit(x, y)
    other = copied(mine)
    for each in (mine, other):
        each.partial_fit(*corners([9]))
    assert other.classes_.tolist() == mine.classes_.tolist() == [0, 1, 2, 3, 4, 5, 7, 9]
    assert np.array_equal(other.predict_proba(x), mine.predict_proba(x))
    assert clone(mine).partial_fit(*corners([1])).classes_.tolist() == [0, 1, 2, 3, 4, 5]


def test_settings_of_a_live_learner_can_be_searched_over() -> None:
    mine = LiveClassifier(settings={"watch_every": 3}, lr=0.05)
    assert clone(mine).get_params() == mine.get_params()
    mine.set_params(method="er-ace", settings={"checkrows": 3})
    assert "did you mean 'check_rows'?" in complaint(lambda: mine.fit(*clusters()))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"settings": {"method": "er"}}, "got 'method': give it as LiveClassifier(method=...)"),
        ({"settings": {"lr": 0.3}}, "got 'lr': give it as LiveClassifier(lr=...)"),
        ({"settings": {"network": "mlp"}}, "got 'network': give it as"),
        (
            {"settings": {"labels": len}},
            "got <built-in function len>: leave it out, or use a LiveLearner",
        ),
        ({"settings": [("check_rows", 3)]}, "such as {'check_rows': 30}; got [('check_rows', 3)]"),
        ({"settings": {3: 4}}, "must have texts for names, see LiveSettings; got 3"),
        ({"epochs": "3"}, "epochs must be a whole number, at least 1; got '3': give one, or leave"),
        ({"epochs": 0}, "at least 1; got 0: give one, or leave it out for 20"),
        ({"epochs": 2.5}, "at least 1; got 2.5"),
        ({"batch_size": None}, "batch_size must be a whole number, at least 1; got nothing"),
        ({"batch_size": True}, "at least 1; got True"),
        ({"buffer_size": None}, "buffer_size must be a whole number, at least 1; got nothing"),
        ({"unlabelled": [-1, 0]}, "unlabelled must be one label, a number or a text, or None; got"),
    ],
)
def test_parameters_that_cannot_be_used_are_refused_in_one_line_by_fit(
    given: dict[str, Any], text: str
) -> None:
    x, y = clusters(30)
    mine = LiveClassifier(**given)
    assert text in complaint(lambda: mine.fit(x, y))
    assert text in complaint(lambda: mine.partial_fit(x, y))
    assert not hasattr(mine, "live_learner_")


def test_numbers_of_numpy_are_numbers() -> None:
    x, y = clusters()
    counts: dict[str, Any] = {"buffer_size": 50, "epochs": 3, "batch_size": 16}
    mine = LiveClassifier(**counts).fit(x, y)
    other = clone(mine).set_params(**{name: np.int64(count) for name, count in counts.items()})
    other.fit(x, y)
    assert np.array_equal(mine.predict_proba(x), other.predict_proba(x))


def test_drift_is_found_and_adapted_to_through_partial_fit() -> None:
    stream = digits(0, classes=4, turn=300)
    soon = {"minibatch_size": 30, "watch_every": 3, "reference_size": 15, "check_rows": 10}
    mine = LiveClassifier("mlp", buffer_size=100, detector="ks", settings=soon)
    drifted, adapted = set(), set()
    for _, images, labels in stream.batches():
        mine.partial_fit(images, labels)
        drifted |= set(mine.observation_.drifted)
        adapted |= set(mine.observation_.adapted)
    assert drifted == adapted
    assert drifted


def test_a_call_that_is_refused_changes_nothing() -> None:
    x, y = clusters(30)
    mine = LiveClassifier()
    assert "give its labels" in complaint(lambda: mine.partial_fit(x))
    assert not hasattr(mine, "live_learner_")
    mine.partial_fit(x, y, classes=[0, 1, 2])
    mine = LiveClassifier().partial_fit(x, y)
    with pytest.raises(ValueError, match="features"):
        mine.partial_fit(x[:, :2], y + 7)
    assert mine.classes_.tolist() == [0, 1, 2]
    assert "all texts; got" in complaint(lambda: mine.partial_fit(x, np.array(["a"] * 30)))
    assert set(mine.predict(x)) <= {0, 1, 2}
    mine = LiveClassifier().fit(x, y)
    before = mine.predict_proba(x)
    mine.set_params(settings={"max_classes": 2})
    assert "labels are at most 1 here" in complaint(lambda: mine.fit(x[:, :3], y + 7))
    assert mine.classes_.tolist() == [0, 1, 2]
    assert np.array_equal(mine.predict_proba(x), before)
