"""A live learner of class statistics: the same promises as one with a network."""

from __future__ import annotations

import copy
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import engine_of, state_of
from run_tools import complaint
from same_state import same
from sklearn.utils.estimator_checks import check_estimators_dtypes, check_fit2d_1sample

import driftwise as dw
from driftwise.analytic_learner import AnalyticNetwork
from driftwise.live import Event, LiveLearner, Request
from driftwise.stats.kind_names import ACTIONS
from driftwise.types import Samples

SOON: dict[str, Any] = {
    "detector": "mmd",
    "watch_every": 3,
    "reference_size": 30,
    "check_rows": 15,
}
NEVER: dict[str, Any] = {"watch_every": 10**9, "check_rows": 10**9}
TURN = 600


class Sensors:
    """Four substances read by six sensors of unequal scale; from `TURN` on they read otherwise."""

    def __init__(self, samples: int = 1000, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.labels = draw.integers(4, size=samples)
        centres, moves = 2 * draw.normal(size=(4, 6)), 2 * draw.normal(size=(4, 6))
        is_late = (np.arange(samples) >= TURN)[:, None]
        vectors = centres[self.labels] + is_late * moves[self.labels]
        vectors += draw.normal(size=(samples, 6))
        self.vectors = (vectors * 10.0 ** np.arange(-2, 4) + 5).astype(np.float32)
        self.requested: list[Request] = []

    def feed(
        self, live: LiveLearner, until: int = 10**9, *, labelled: int = 10**9, size: int = 10
    ) -> list[Any]:
        """From where the learner is; labels up to a sample."""
        seen = []
        for start in range(live.num_samples, min(until, len(self.labels)), size):
            some = slice(start, min(start + size, until))
            labels = [int(y) if start < labelled else None for y in self.labels[some]]
            seen.append(live.observe(self.vectors[some], labels))
        return seen

    def ask(self, request: Request) -> np.ndarray:
        self.requested.append(request)
        answer: np.ndarray = self.labels[request.ids]
        return answer


def samples(stream: Sensors, some: slice) -> Samples:
    labels = torch.from_numpy(stream.labels[some])
    ids = torch.arange(len(stream.labels))[some]
    return Samples(
        images=torch.from_numpy(stream.vectors[some]), labels=labels, ids=ids, concepts=ids * 0
    )


@pytest.mark.parametrize("name", ["ncm", "slda", "ridge"])
def test_it_predicts_as_a_bare_learner_of_the_same_samples(name: str) -> None:
    options: dict[str, Any] = {"method": {"width": 50}} if name == "ridge" else {}
    stream, live = Sensors(), LiveLearner(method=name, options=options, **NEVER)
    methods = {
        "ncm": dw.methods.NearestMean(),
        "slda": dw.methods.SLDA(),
        "ridge": dw.methods.Ridge(width=50),
    }
    bare = dw.AnalyticLearner(methods[name], scaling=dw.Scaling())
    for start in range(0, 300, 30):
        observation = stream.feed(live, start + 30, size=30)[0]
        expected = bare.logits(torch.from_numpy(stream.vectors[start : start + 30]))
        if start:
            assert observation.predicted.tolist() == expected.argmax(dim=1).tolist()
        bare.observe(samples(stream, slice(start, start + 30)))
    rest = stream.vectors[300:400]
    expected = bare.logits(torch.from_numpy(rest)).softmax(dim=1)
    assert np.array_equal(live.predict_proba(rest), expected.numpy())
    assert live.accuracy is not None
    assert live.accuracy > 0.8


def test_the_scaling_is_fitted_on_the_first_labelled_samples_and_never_again() -> None:
    stream, live = Sensors(), LiveLearner(method="slda", **NEVER)
    stream.feed(live, 130, size=13)
    scaling = engine_of(live).learner.scaling  # type: ignore[attr-defined]
    first = stream.vectors[:104].astype(np.float64)
    np.testing.assert_allclose(scaling.mean.numpy(), first.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(scaling.deviation.numpy(), first.std(axis=0), rtol=1e-6)
    before = copy.deepcopy(scaling.state_dict())
    stream.feed(live)
    assert same(before, scaling.state_dict())


@pytest.mark.parametrize("size", [1, 7, 100])
def test_small_batches_are_scaled_like_large_ones(size: int) -> None:
    stream, live, whole = Sensors(), *(LiveLearner(method="slda", **NEVER) for _ in range(2))
    stream.feed(live, 100, size=size)
    whole.observe(stream.vectors[:100], stream.labels[:100])
    np.testing.assert_allclose(
        live.predict_proba(stream.vectors), whole.predict_proba(stream.vectors), atol=1e-5
    )


def test_the_classifier_is_not_computed_for_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, live = Sensors(), LiveLearner(method="slda", **NEVER)
    stream.feed(live, 500, size=100)
    computed: list[int] = []
    compute = AnalyticNetwork.compute

    def counting(*arguments: Any) -> None:
        computed.append(live.num_samples)
        compute(*arguments)

    monkeypatch.setattr(AnalyticNetwork, "compute", counting)
    stream.feed(live, 600, size=1)
    assert 15 <= len(computed) <= 20, "once for every hundredth of the samples so far"


def test_drift_is_found_asked_for_and_followed() -> None:
    stream = Sensors(seed=2)
    live = LiveLearner(method="slda", labels=stream.ask, label_budget=70, fresh_samples=15, **SOON)
    kinds: list[str] = []
    live.on("*", lambda event: kinds.append(event.kind))
    before = stream.feed(live, TURN, labelled=500)
    assert not any(each.drifted for each in before)
    seen = stream.feed(live, labelled=0)
    assert {label for each in seen for label in each.adapted} == {0, 1, 2, 3}
    assert 0 < sum(map(len, stream.requested)) <= 70
    right = live.predict(stream.vectors[800:]) == stream.labels[800:]
    assert right.mean() > 0.9
    assert {"observed", "checked", "drifted", "asked", "answered", "realigned"} <= set(kinds)
    asked = f"driftwise_labels_asked_total {sum(map(len, stream.requested))}"
    assert asked in live.counters
    stays = LiveLearner(method="slda", **{**SOON, "detector": "never"})
    stream.feed(stays, labelled=500)
    assert (stays.predict(stream.vectors[800:]) == stream.labels[800:]).mean() < 0.75


@pytest.mark.parametrize("labelled", [10**9, 500])
def test_events_name_the_kind_of_change_and_auto_acts_on_it(labelled: int) -> None:
    drifting, dead = Sensors(seed=2), Sensors(seed=2)
    dead.vectors[TURN:] = 0
    # A window that began before the turn holds both concepts.
    for stream, kinds in ((drifting, {"drift", "new mode"}), (dead, {"corrupted"})):
        live = LiveLearner(method="slda", adaptation="auto", labels=stream.ask, **SOON)
        events: list[Event] = []
        live.on("*", events.append)
        seen = stream.feed(live, labelled=labelled)
        drifts: list[Any] = [each.details for each in events if each.kind == "drifted"]
        checks: list[Any] = [each.details for each in events if each.kind == "checked"]
        effects = [each for drift in drifts for each in drift["verdicts"]]
        verdicts = [each for batch in seen for each in batch.verdicts]
        assert kinds & {each["kind"] for each in effects}
        assert kinds & {each["stream_kind"] for each in checks}
        assert {each["kind"] for each in effects} <= {each.kind for each in verdicts}
        for each in effects:
            assert each["action"] == ACTIONS[each["kind"]]
        json.dumps([*drifts, *checks])  # as a service sends them
        if stream is drifting:
            assert {label for each in seen for label in each.adapted} == set(range(4))
            right = live.predict(stream.vectors[900:]) == stream.labels[900:]
            assert right.mean() > 0.85
        else:
            assert not stream.requested
            assert not any(each.adapted for each in seen)
            assert any("quarantine" in note for each in seen for note in each.notes)


def test_a_hybrid_follows_drift_in_both_memories() -> None:
    stream = Sensors(seed=2)
    live = LiveLearner(method="hybrid", labels=stream.ask, buffer_size=60, **SOON)
    stream.feed(live, labelled=500)
    memory: Any = engine_of(live).learner.buffer
    assert stream.requested
    assert all(len(memory.samples_of(label)) for label in range(4))
    assert (live.predict(stream.vectors[800:]) == stream.labels[800:]).mean() > 0.9


def test_late_labels_are_learned() -> None:
    stream, live = Sensors(), LiveLearner(method="slda", **NEVER)
    stream.feed(live, 200, labelled=100)
    counts = engine_of(live).learner.buffer.counts()
    live.answer(np.arange(100, 200), stream.labels[100:200])
    live.observe(stream.vectors[:0])
    learned = sum(engine_of(live).learner.buffer.counts().values()) - sum(counts.values())
    assert learned > 80, "but for those that are monitored"


@pytest.mark.parametrize("name", ["slda", "hybrid"])
def test_a_corrected_label_is_forgotten_exactly(name: str) -> None:
    stream, live, never = Sensors(), *(LiveLearner(method=name, **NEVER) for _ in range(2))
    wrong = stream.labels[:200].copy()
    wrong[150:160] = (wrong[150:160] + 1) % 4
    live.observe(stream.vectors[:200], wrong)
    live.correct(np.arange(150, 160), stream.labels[150:160])
    live.observe(stream.vectors[:0])
    never.observe(stream.vectors[:200], stream.labels[:200])
    found, expected = (
        getattr(engine_of(each).learner, "analytic", engine_of(each).learner).logits(
            torch.from_numpy(stream.vectors)
        )
        for each in (live, never)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "stop"),
    [("slda", 40), ("slda", 300), ("ridge", 700), ("hybrid", 40), ("hybrid", 700)],
)
def test_a_restart_changes_no_bit(tmp_path: Path, name: str, stop: int) -> None:
    def play(live: LiveLearner, until: int = 10**9) -> None:
        stream.feed(live, until, labelled=550)

    settings = {"method": name, "adaptation": "amr-plus", **SOON}
    if name == "ridge":
        settings["options"] = {"method": {"width": 40}}
    stream = Sensors()
    whole = LiveLearner(labels=stream.ask, **settings)
    play(whole)
    with LiveLearner(labels=stream.ask, folder=tmp_path / "live", **settings) as first:
        play(first, stop)
        copied = copy.deepcopy(first._state())
    with LiveLearner.load(tmp_path / "live", labels=stream.ask) as second:
        assert same(copied["parts"]["learner"], second._state()["parts"]["learner"])
        assert second.num_samples == stop
        play(second)
        assert same(state_of(second), state_of(whole))
        assert np.array_equal(
            second.predict_proba(stream.vectors), whole.predict_proba(stream.vectors)
        )


def test_classes_may_be_new_at_any_time_and_a_first_batch_unlabelled() -> None:
    stream, live = Sensors(), LiveLearner(method="slda", **NEVER)
    assert live.observe(stream.vectors[:5]).predicted.tolist() == [-1] * 5
    assert "nothing has been learned yet" in complaint(lambda: live.predict(stream.vectors))
    assert live.observe(stream.vectors[5:30], np.full(25, 7)).new_classes == (7,)
    assert set(live.predict(stream.vectors).tolist()) == {7}
    live.observe(stream.vectors[:200], stream.labels[:200])
    assert live.classes == (0, 1, 2, 3, 7)
    assert live.predict_proba(stream.vectors[:3]).shape == (3, 8)
    assert live.predict_proba(stream.vectors[:3])[:, 4:7].max() == 0
    assert live.rehearse() is None


@pytest.mark.parametrize("name", ["slda", "hybrid"])
def test_threads_predict_by_whole_snapshots_while_one_learns(name: str) -> None:
    stream, live = Sensors(), LiveLearner(method=name, **NEVER)
    stream.feed(live, 100)
    sums: list[float] = []
    failures: list[BaseException] = []

    def predict() -> None:
        try:
            for _ in range(60):
                found = live.predict_proba(stream.vectors[:20])
                sums.append(float(np.abs(found.sum(axis=1) - 1).max()))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=predict) for _ in range(3)]
    for each in threads:
        each.start()
    stream.feed(live)
    live.observe(stream.vectors[:9], np.arange(9))  # more outputs, in the middle
    for each in threads:
        each.join()
    assert failures == []
    assert max(sums) < 1e-5


def test_an_earlier_state_is_taken_back() -> None:
    stream, live = Sensors(), LiveLearner(method="slda", **NEVER)
    stream.feed(live, 300)
    earlier, expected = live.state_dict(), live.predict_proba(stream.vectors)
    stream.feed(live, 600)
    assert not np.array_equal(live.predict_proba(stream.vectors), expected)
    live.roll_back(earlier)
    assert np.array_equal(live.predict_proba(stream.vectors), expected)


def test_the_estimator_takes_analytic_methods() -> None:
    stream = Sensors()
    names = np.array(["a", "b", "c", "d"])[stream.labels]
    mine = dw.LiveClassifier(method="slda").fit(stream.vectors[:500], names[:500])
    assert mine.score(stream.vectors[500:TURN], names[500:TURN]) > 0.85
    mine.partial_fit(stream.vectors[500:TURN], names[500:TURN])
    assert mine.classes_.tolist() == ["a", "b", "c", "d"]
    for check in (check_fit2d_1sample, check_estimators_dtypes):
        check("LiveClassifier", dw.LiveClassifier(method="slda"))


HARD = {
    "one sample of a class": (np.eye(3, 6), [0, 1, 2]),
    "constant columns": (np.ones((40, 6)), np.arange(40) % 4),
    "a constant column": (
        np.c_[np.full(60, 5.0), np.eye(6)[np.arange(60) % 6, :5]],
        np.arange(60) % 6,
    ),
    "more features than samples": (np.random.default_rng(0).normal(size=(8, 50)), np.arange(8) % 2),
    "copies of a column": (np.arange(40.0)[:, None].repeat(6, axis=1), np.arange(40) // 20),
    "huge values": (1e15 * np.random.default_rng(0).normal(size=(40, 6)), np.arange(40) % 2),
}


@pytest.mark.parametrize("name", ["ncm", "slda", "ridge"])
@pytest.mark.parametrize(("x", "y"), HARD.values(), ids=HARD)
def test_hard_input_gives_finite_probabilities(x: np.ndarray, y: Any, name: str) -> None:
    live = LiveLearner(method=name, outlier_factor=None, **NEVER)
    live.observe(x, y)
    probabilities = live.predict_proba(x)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


def test_samples_that_are_not_finite_are_left_out_and_counted() -> None:
    stream, live, clean = Sensors(), *(LiveLearner(method="slda", **NEVER) for _ in range(2))
    dirty = stream.vectors[:100].copy()
    dirty[3, 2], dirty[50, 0] = np.nan, np.inf
    assert live.observe(dirty, stream.labels[:100]).refused == (3, 50)
    assert "driftwise_samples_refused_total 2" in live.counters
    good = np.isfinite(dirty).all(axis=1)
    clean.observe(dirty[good], stream.labels[:100][good])
    assert np.array_equal(live.predict_proba(stream.vectors), clean.predict_proba(stream.vectors))
    assert "sample 0 holds values that are not finite" in complaint(
        lambda: live.predict(dirty[3:4])
    )


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_data_frames_are_matched_by_name(library: str, tmp_path: Path) -> None:
    package = pytest.importorskip(library)
    stream, plain = Sensors(), LiveLearner(method="slda", **NEVER)

    def frame(some: slice, order: str) -> Any:
        return package.DataFrame(
            {name: stream.vectors[some, "abcdef".index(name)] for name in order}
        )

    with LiveLearner(method="slda", folder=tmp_path / "live", **NEVER) as first:
        first.observe(frame(slice(100), "abcdef"), stream.labels[:100])
    live = LiveLearner.load(tmp_path / "live")
    live.observe(frame(slice(100, 200), "fedcba"), stream.labels[100:200])
    for some in (slice(100), slice(100, 200)):
        plain.observe(stream.vectors[some], stream.labels[some])
    rest = slice(200, None)
    expected = plain.predict_proba(stream.vectors[rest])
    assert np.array_equal(live.predict_proba(frame(rest, "badcfe")), expected)
    assert np.array_equal(live.predict_proba(stream.vectors[rest]), expected), "by position"
    before = copy.deepcopy(state_of(live))
    fewer = frame(rest, "abcde")
    assert "each of the first one's columns once; f missing" in complaint(
        lambda: live.observe(fewer)
    )
    other = frame(rest, "abcdef")
    other = package.DataFrame({name.replace("f", "g"): other[name] for name in "abcdef"})
    assert "f missing and g too much" in complaint(lambda: live.predict(other))
    texts = package.DataFrame({name: ["low"] if name == "c" else [0.0] for name in "abcdef"})
    assert "expected numbers; column 'c' of the data frame holds" in complaint(
        lambda: live.observe(texts, [0])
    )
    assert "got a lazy frame; give it as collect() makes it" in complaint(
        lambda: live.observe(SimpleNamespace(collect=None, columns=list("abcdef")), [0])
    )
    assert same(before, state_of(live))
    live.close()


BAD: dict[str, tuple[Any, str]] = {
    "fewer features": (
        lambda live: live.observe(np.zeros((2, 5)), [0, 1]),
        "of shape (6,) at first; got",
    ),
    "more, to predict": (
        lambda live: live.predict(np.zeros((2, 7))),
        "of shape (6,) at first; got",
    ),
    "text": (
        lambda live: live.observe([["a"] * 6], [0]),
        "expected an array or a tensor of numbers",
    ),
    "objects": (
        lambda live: live.observe(np.array([[None] * 6]), [0]),
        "expected an array or a tensor of numbers",
    ),
    "bytes": (
        lambda _: LiveLearner(method="slda").observe(np.zeros((2, 8, 8, 1), np.uint8), [0, 1]),
        "learns from feature vectors; these samples have the shape (8, 8, 1)",
    ),
    "a network": (lambda _: LiveLearner("mlp", method="slda"), "the method slda trains no network"),
    "features of a network": (
        lambda _: LiveLearner(method="slda", features="0"),
        "the method slda has none",
    ),
    "fewer labels": (
        lambda live: live.observe(np.zeros((2, 6)), [0]),
        "a label for each of 2 samples",
    ),
    "fresh samples": (lambda _: LiveLearner(method="slda", fresh_samples=0), "fresh_samples"),
    "fresh samples of a network": (
        lambda _: LiveLearner("mlp", fresh_samples=5),
        "fresh_samples is a setting of analytic methods",
    ),
    "scaling": (lambda _: LiveLearner(method="slda", scaling="log"), "scaling must be one of"),
    "scaling of a network": (
        lambda _: LiveLearner("mlp", method="hybrid", scaling="signed-log"),
        "scaling is for class statistics without a network; got 'signed-log'",
    ),
    "shrinkage": (
        lambda _: LiveLearner(method="slda", options={"method": {"shrinkage": 2.0}}),
        "shrinkage must be 0 to 1; got 2.0",
    ),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_what_is_refused_changes_nothing(call: Any, message: str) -> None:
    live = LiveLearner(method="slda", **NEVER)
    live.observe(np.random.default_rng(0).normal(size=(30, 6)), np.arange(30) % 3)
    before = copy.deepcopy(state_of(live))
    assert message in complaint(lambda: call(live))
    assert same(before, state_of(live))
