"""Fit and check on feature vectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from run_tools import complaint, strict_json
from scipy import stats

from driftwise.datasets import from_arrays
from driftwise.detect.feature_report import MAX_FEATURES, MAX_POINTS
from driftwise.detect.standalone import DriftDetector, DriftReport
from driftwise.runs import checkpoint as files
from driftwise.scaling import ScalingKind
from driftwise.types import Dataset

NAMES = tuple(f"sensor {number}" for number in range(8))


def readings(seed: int, *, count: int = 400, moved: bool = False) -> Dataset:
    """Two gases; of neon, sensor 2 reads higher and sensor 5 trembles, once they have moved."""
    draw = np.random.default_rng(seed)
    values = draw.normal(size=(count, 8)) * 10.0 ** np.arange(8)
    gas = np.array(["argon", "neon"])[np.arange(count) % 2]
    if moved:
        values[gas == "neon", 2] += 200
        values[gas == "neon", 5] *= 4
    return from_arrays(values, gas, feature_names=NAMES)


def columns(data: Dataset, order: list[int]) -> Dataset:
    names = tuple(data.feature_names[place] for place in order)
    return replace(data, images=data.images[:, order], feature_names=names)


def verdicts(report: DriftReport) -> dict[str, str]:
    return {each.name: each.verdict for each in report.classes}


FITTED = DriftDetector(max_samples=100).fit(readings(0))
MOVED = FITTED.check(readings(1, moved=True))


def test_the_features_that_moved_come_first() -> None:
    assert verdicts(MOVED) == {"argon": "same", "neon": "drifted"}
    neon = MOVED.classes[1]
    assert [each.name for each in neon.features[:2]] == ["sensor 2", "sensor 5"]
    high, trembling = neon.features[:2]
    assert high.shift == pytest.approx(2, abs=0.5)
    assert trembling.spread == pytest.approx(4, abs=1.2)
    assert neon.num_features_changed == 2
    assert [each.ks for each in neon.features] == sorted(
        (each.ks for each in neon.features), reverse=True
    )
    assert [each.name for each in MOVED.features[:2]] == ["sensor 2", "sensor 5"]
    assert MOVED.scaling == "standard"
    same = FITTED.check(readings(2))
    assert not same.drifted
    assert [each.num_features_changed for each in same.classes] == [0, 0]


def test_features_are_matched_by_name_in_any_order() -> None:
    assert FITTED.check(columns(readings(1, moved=True), [7, 2, 5, 0, 1, 3, 4, 6])) == MOVED
    more = readings(1, moved=True)
    more = replace(
        more,
        images=np.concatenate([more.images[:, :1], more.images], axis=1),
        feature_names=("sensor new", *NAMES),
    )
    report = FITTED.check(more)
    assert report.not_compared == ("sensor new",)
    assert replace(report, not_compared=()) == MOVED
    nameless = readings(1, moved=True)
    assert FITTED.check(replace(nameless, feature_names=())) == MOVED


def test_scaling_belongs_to_the_whole_reference_and_is_saved(tmp_path: Path) -> None:
    # One class after the other: the first samples say nothing about the second feature.
    x = np.zeros((1600, 2))
    x[800:] = np.random.default_rng(0).normal(size=(800, 2)) * [1, 1e6]
    y = np.repeat([0, 1], 800)
    kinds: tuple[ScalingKind, ...] = ("standard", "signed-log", "none")
    for kind in kinds:
        detector = DriftDetector(scaling=kind, detector="ks").fit((x, y))
        files.write(tmp_path / kind, detector.state_dict(), format=1)
        loaded = DriftDetector(scaling=kind, detector="ks")
        loaded.load_state_dict(files.read(tmp_path / kind, format=1))
        report = loaded.check((x, y))
        assert report == detector.check((x, y))
        assert (report.scaling, report.drifted) == (kind, False)
    state = DriftDetector().fit((x, y)).state_dict()
    assert 1e5 < state["scaling"]["deviation"][1] < 1e6
    assert "was scaled by standard" in complaint(
        lambda: DriftDetector(scaling="none").load_state_dict(state)
    )
    del state["scaling"]
    assert "fit the detector to the reference again" in complaint(
        lambda: DriftDetector().load_state_dict(state)
    )


def test_few_samples_of_many_features_raise_no_more_alarms_than_promised() -> None:
    """A scale that fits the reference alone would be taken for drift in half of these checks."""
    alarms = 0
    for seed in range(60):
        x, y = np.random.default_rng(seed).normal(size=(40, 50)), np.zeros(20, int)
        detector = DriftDetector(detector="ks").fit((x[:20], y))
        alarms += detector.check((x[20:], y)).drifted
    # At the promised rate this fails once in ten thousand times.
    assert alarms <= stats.binom.isf(1e-4, 60, 0.05)


def test_names_are_saved_with_the_reference() -> None:
    loaded = DriftDetector(max_samples=100)
    loaded.load_state_dict(FITTED.state_dict())
    assert loaded.check(columns(readings(1, moved=True), [*range(7, -1, -1)])) == MOVED


def test_equal_vectors_are_no_copies() -> None:
    """Two yes-or-no questions have four different answers, and their shares can drift."""
    draw = np.random.default_rng(0)
    before, after = (draw.random((200, 2)) < share for share in (0.2, 0.6))
    labels = np.zeros(200, dtype=int)
    (found,) = DriftDetector().fit((before, labels)).check((after, labels)).classes
    assert found.verdict == "drifted"
    assert (found.num_kept_reference, found.num_copies_reference) == (200, 0)


def test_a_constant_feature_may_begin_to_vary() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(100, 3)), np.zeros(100, dtype=int)
    x[:, 1] = 5
    now = x.copy()
    now[:, 1] += draw.normal(size=100)
    found = DriftDetector().fit((x, y)).check((now, y)).classes[0]
    assert found.verdict == "drifted"
    assert found.features[0].name == "feature 1"
    assert found.features[0].shift is None


def test_a_single_feature_and_a_shift_of_all_are_seen_by_every_test() -> None:
    x, y = np.random.default_rng(0).normal(size=(200, 6)), np.zeros(200, int)
    for detector in ("ks", "mmd", "c2st"):
        for features in (1, 6):
            fitted = DriftDetector(detector=detector).fit((x[:100, :features], y[:100]))
            assert fitted.check((x[100:, :features] + 2, y[100:])).drifted


def test_without_labels_all_samples_are_one_class() -> None:
    moved = from_arrays(readings(1, moved=True).images)
    report = DriftDetector().fit(from_arrays(readings(0).images)).check(moved)
    assert verdicts(report) == {"all samples": "drifted"}


def test_a_class_of_one_sample_is_not_testable_and_more_features_than_samples_are() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(21, 50)), np.repeat([0, 1], [20, 1])
    report = (
        DriftDetector().fit((x, y)).check((draw.normal(size=(21, 50)) + 2 * (y == 0)[:, None], y))
    )
    assert verdicts(report) == {"0": "drifted", "1": "not testable"}
    assert report.classes[1].features == ()


def test_reports_are_bounded_and_plain_data() -> None:
    draw = np.random.default_rng(0)
    y = np.arange(3000) % 30
    x = draw.normal(size=(3000, 60))
    report = DriftDetector(detector="ks").fit((x, y)).check((x + 2, y))
    assert {len(each.features) for each in report.classes} == {MAX_FEATURES}
    views = [each.view for each in report.classes if each.view is not None]
    assert len(views) == 20
    assert all(len(view.reference) <= MAX_POINTS for view in views)
    assert strict_json(json.dumps(report.as_dict()))["scaling"] == "standard"
    for view in views:
        for histogram in view.histograms:
            assert sum(histogram.reference) == pytest.approx(1, abs=0.01)
            assert sum(histogram.current) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("features", [1, 2, 5, 90])
def test_points_lie_along_the_directions_in_which_the_reference_varies_most(features: int) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, features)) @ draw.normal(size=(features, features))
    report = DriftDetector(detector="ks").fit((x, np.zeros(60, int))).check((x, np.zeros(60, int)))
    view = report.classes[0].view
    assert view is not None
    assert report.axes is not None
    scaled = ((x - x.mean(axis=0)) / x.std(axis=0)).clip(-10, 10)
    values = np.linalg.svd(scaled, compute_uv=False) ** 2
    np.testing.assert_allclose(
        report.axes[: min(2, features)], values[:2] / values.sum(), rtol=1e-3
    )
    variances = np.square(view.reference).sum(axis=0)
    np.testing.assert_allclose(variances[: min(2, features)], values[:2], rtol=1e-2)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "dimensions": (
        lambda: (
            DriftDetector(max_samples=100)
            .fit((np.ones((9, 4)), np.zeros(9, int)))
            .check((np.ones((9, 3)), np.zeros(9, int)))
        ),
        "samples are vectors of 4, the current ones vectors of 3; give both the same features",
    ),
    "a missing feature": (
        lambda: FITTED.check(columns(readings(1), [0, 1, 2, 3])),
        "the feature 'sensor 4' of the reference and 3 more is missing; there are sensor 0, sensor 1",
    ),
    "images after vectors": (
        lambda: FITTED.check((np.zeros((9, 8, 8, 1), np.uint8), np.zeros(9, int))),
        "samples are vectors of 8, the current ones 8 x 8 in grey",
    ),
    "names": (
        lambda: DriftDetector().fit((np.ones((9, 4)), np.zeros(9, int)), feature_names=["a"]),
        "must name each feature of vectors of 4 once; got 1 names",
    ),
    "names of images": (
        lambda: DriftDetector(encoder="random").fit(
            (np.zeros((9, 8, 8, 1), np.uint8), np.zeros(9, int)), feature_names=["a"]
        ),
        "must name each feature of 8 x 8 in grey once",
    ),
    "batches": (
        lambda: DriftDetector().fit([(np.ones((9, d)), np.zeros(9, int)) for d in (4, 5)]),
        "must all have one shape; got vectors of 4, then vectors of 5",
    ),
    "an array without labels": (
        lambda: DriftDetector().fit(cast(Any, np.ones((9, 4)))),
        "got ndarray: samples without labels are datasets.from_arrays(samples)",
    ),
    "scaling": (lambda: DriftDetector(scaling="standart"), "did you mean 'standard'"),  # type: ignore[arg-type]
    "identity": (
        lambda: DriftDetector(encoder="identity").fit(
            (np.zeros((9, 8, 8, 1), np.uint8), np.zeros(9, int))
        ),
        "takes feature vectors as they are, and the samples are images",
    ),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compared_is_refused_in_one_line(
    call: Callable[[], Any], words: str
) -> None:
    assert words in complaint(call)
