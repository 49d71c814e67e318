"""A keeper as scikit-learn wants a classifier to be."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import digits, keeper, play
from run_tools import complaint
from same_state import same
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_keeper_saving import state_of

import recollect
from recollect import KeeperClassifier


@parametrize_with_checks([KeeperClassifier()])  # type: ignore[untyped-decorator]
def test_scikit_learn_finds_nothing_wrong(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def clusters(rows: int = 120, *, seed: int = 0, names: Any = (0, 1, 2)) -> tuple[Any, Any]:
    """Three heaps of points far from one another."""
    draw = np.random.default_rng(seed)
    numbers = draw.integers(3, size=rows)
    centres = np.array([[0, 0, 4, 0], [4, 0, 0, 0], [0, 4, 0, 4]])
    return draw.normal(size=(rows, 4)) / 2 + centres[numbers], np.array(names)[numbers]


def test_digits_are_told_apart_in_a_pipeline_and_across_folds() -> None:
    x, y = load_digits(return_X_y=True)
    scores = cross_val_score(make_pipeline(StandardScaler(), KeeperClassifier()), x, y, cv=3)
    assert scores.min() > 0.88


@pytest.mark.parametrize("names", [("c", "a", "b"), (30, -1, 7), (2.0, 0.0, 1.0)])
def test_labels_of_any_kind_come_back_as_they_went_in(names: tuple[Any, ...]) -> None:
    x, y = clusters(names=names)
    mine = KeeperClassifier().fit(x, y)
    assert mine.classes_.tolist() == sorted(names)
    assert mine.score(x, y) > 0.97
    assert mine.predict(x).dtype == y.dtype
    assert np.allclose(mine.predict_proba(x).sum(axis=1), 1, atol=1e-6)


def test_classes_may_appear_at_any_time_and_columns_stay_sorted() -> None:
    x, y = clusters(300, names=("m", "z", "a"))
    mine = KeeperClassifier()
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
    mine = KeeperClassifier().partial_fit(x[only], y[only], classes=["a", "m", "z"])
    assert mine.predict_proba(x).shape == (120, 3)
    assert mine.predict_proba(x)[:, 1].tolist() == [1.0] * 120
    before = copy.deepcopy(mine.keeper_)
    assert "expected one of ['a', 'm', 'z']" in complaint(lambda: mine.partial_fit(x[:1], ["new"]))
    assert "classes were ['a', 'm', 'z'] at first" in complaint(
        lambda: mine.partial_fit(x, y, classes=["a", "m"])
    )
    assert same(state_of(mine.keeper_), state_of(before))
    for _ in range(5):
        mine.partial_fit(x, y, classes=["z", "m", "a"])
    assert mine.score(x, y) > 0.97


@pytest.mark.parametrize(("mark", "settings"), [(None, {}), (np.nan, {}), (-1, {"unlabelled": -1})])
def test_rows_without_a_label_are_watched_and_not_learned_from(
    mark: Any, settings: dict[str, Any]
) -> None:
    x, y = clusters(200)
    some: Any = y.astype(object)
    some[100:] = mark
    if mark is not None:
        some = some.astype(type(mark))
    mine = KeeperClassifier(**settings).fit(x, some)
    assert mine.classes_.tolist() == [0, 1, 2]
    assert "recollect_rows_total 200\n" in mine.keeper_.counters
    assert "recollect_rows_labelled_total 100\n" in mine.keeper_.counters
    mine.partial_fit(x[:10])
    assert mine.observation_.labelled == 0
    assert mine.score(x, y) > 0.97


def test_without_a_mark_minus_one_is_a_label_like_any_other() -> None:
    x, y = clusters(names=(-1, 1, 3))
    assert KeeperClassifier().fit(x, y).classes_.tolist() == [-1, 1, 3]


@pytest.mark.parametrize(
    ("y", "text"),
    [
        ([None] * 3, "y has no label"),
        (["a", 1, "b"], "all alike; got int, str"),
        ([(1, 2), None, (3, 4)], "all alike; got tuple"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(y: list[Any], text: str) -> None:
    labels = np.empty(3, dtype=object)
    labels[:] = y
    assert text in complaint(lambda: KeeperClassifier().fit(np.eye(3), labels))


def test_pictures_may_be_floats_or_bytes_with_channels_or_without() -> None:
    data = load_digits()
    grey, y = data.images[:200], data.target[:200]
    whole = (grey * 15).astype(np.uint8)
    said = {
        name: KeeperClassifier("cnn", epochs=2).fit(x, y).predict_proba(x)
        for name, x in {
            "floats": grey / 16,
            "floats, channels": grey[:, None] / 16,
            "bytes": whole,
            "bytes, channels": whole[..., None],
        }.items()
    }
    assert np.array_equal(said["floats"], said["floats, channels"])
    assert np.array_equal(said["bytes"], said["bytes, channels"])
    # 15/16 of a byte's scale apart: as good as the same picture
    assert np.abs(said["floats"] - said["bytes"]).mean() < 0.05


def test_a_network_of_ones_own_is_cloned_and_left_alone() -> None:
    x, y = clusters()
    network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    before = copy.deepcopy(network.state_dict())
    mine = clone(KeeperClassifier(network)).fit(x, y)
    assert mine.score(x, y) > 0.97
    assert same(network.state_dict(), before)


def test_settings_of_a_keeper_can_be_searched_over() -> None:
    mine = KeeperClassifier(settings={"watch_every": 3}, lr=0.05)
    assert clone(mine).get_params() == mine.get_params()
    mine.set_params(method="er-ace", settings={"checkrows": 3})
    assert "did you mean 'check_rows'?" in complaint(lambda: mine.fit(*clusters()))


def test_drift_is_seen_and_mended_through_partial_fit() -> None:
    stream = digits(0)
    soon = {"minibatch_size": 30, "watch_every": 3, "reference_size": 15, "check_rows": 10}
    mine = KeeperClassifier("mlp", buffer_size=100, lr=0.3, detector="ks", settings=soon)
    drifted, repaired = set(), set()
    for _, images, labels in stream.batches():
        mine.partial_fit(images, labels)
        drifted |= set(mine.observation_.drifted)
        repaired |= set(mine.observation_.repaired)
    assert drifted == repaired
    assert len(drifted) >= 5


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_goes_on_as_the_original_does(copied: Callable[[Any], Any]) -> None:
    stream = digits(0)
    mine = keeper(method="der++")
    play(mine, stream, rows=300)
    other = copied(mine)
    assert same(state_of(other), state_of(mine))
    rest = stream.images[300:700], stream.labels[300:700]
    mine.observe(*rest)
    assert not same(state_of(other), state_of(mine))
    other.observe(*rest)
    assert same(state_of(other), state_of(mine))


def test_a_keeper_in_a_folder_is_not_copied(tmp_path: Any) -> None:
    with recollect.Keeper("mlp", folder=tmp_path / "kept") as mine:
        assert "save it, and load the folder" in complaint(lambda: copy.deepcopy(mine))


def test_rehearsing_makes_the_memory_known_by_heart_and_keeps_nothing() -> None:
    x, y = clusters(60)
    mine = keeper(torch.nn.Linear(4, 3))
    assert mine.rehearse(3) is None
    mine.observe(x.astype(np.float32), y)
    first = mine.rehearse()
    before = state_of(mine)["parts"]["learner"]["memory"]
    last = mine.rehearse(50)
    assert first is not None
    assert last is not None
    assert last < first
    after = state_of(mine)["parts"]["learner"]["memory"]
    changed = {key for key in before if not same(before[key], after[key])}
    assert changed == {"generators"}
    mine.close()
    assert "has been closed" in complaint(mine.rehearse)


def test_what_is_refused_leaves_nothing_behind() -> None:
    x, y = clusters(30)
    mine = KeeperClassifier()
    assert "give its labels" in complaint(lambda: mine.partial_fit(x))
    assert not hasattr(mine, "keeper_")
    mine.partial_fit(x, y, classes=[0, 1, 2])
    mine = KeeperClassifier().partial_fit(x, y)
    with pytest.raises(ValueError, match="features"):
        mine.partial_fit(x[:, :2], y + 7)
    assert mine.classes_.tolist() == [0, 1, 2]
    assert "all alike; got" in complaint(lambda: mine.partial_fit(x, np.array(["a"] * 30)))
    assert set(mine.predict(x)) <= {0, 1, 2}
