"""A live learner whose evidence adds up sample by sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from live_tools import SOON, Digits, digits, play
from same_state import same

import driftwise
from driftwise.live.components import monitor_of
from driftwise.live.settings import settings_from

SETTINGS = {**SOON, "detector": "sequential", "reference_size": 6, "check_rows": 1}
FEW = {name: value for name, value in SOON.items() if name not in ("reference_size", "check_rows")}


def test_every_sample_is_looked_at_by_a_fixed_encoder_unless_told_otherwise() -> None:
    config, live = settings_from({"detector": "sequential"}, backbone="mlp")
    assert (config.encoder, live.reference_size, live.check_rows) == ("random", 10, 1)
    config, live = settings_from({"detector": "sequential", "check_rows": 7}, backbone="mlp")
    assert (live.reference_size, live.check_rows) == (10, 7)
    config, live = settings_from({"detector": "ks"}, backbone="mlp")
    assert (config.encoder, live.reference_size, live.check_rows) == ("learner", 100, 50)


def make_images(samples: int, *, turn: int, seed: int = 0) -> Digits:
    """Noise around an image of each of two classes; from `turn` on the first is upside down."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, samples)
    faces = draw.integers(60, 200, (2, 8, 8, 1))
    images = np.where((np.arange(samples) >= turn)[:, None, None, None], faces[labels, ::-1], 0)
    images = np.where((labels == 1)[:, None, None, None] | (images == 0), faces[labels], images)
    noise = draw.normal(0, 20, images.shape)
    return Digits((images + noise).clip(0, 255).astype(np.uint8), labels, turn)


def test_a_drift_is_dated_and_realigned_with_samples_that_came_since() -> None:
    stream = make_images(700, turn=400)
    mine = driftwise.LiveLearner("mlp", **SETTINGS)
    for start, images, labels in stream.batches():
        seen = mine.observe(images, labels)
        if seen.drifted or start > stream.turn + 150:
            break
    assert seen.drifted == seen.adapted == (0,)
    assert start > stream.turn + 20
    assert mine._engine is not None
    engine = mine._engine
    onset = monitor_of(engine.handlers[0]).onset(0)
    ids = engine.learner.buffer.samples_of(0).ids
    assert onset is not None
    assert int(ids.min()) >= onset, "none from before the drift as it was dated"
    assert int(ids.min()) < start - 15, "and not only those since the last sample that was watched"


def test_a_realigned_class_is_watched_again_after_few_samples() -> None:
    stream = make_images(700, turn=400)
    mine = driftwise.LiveLearner("mlp", detector="sequential", **FEW)
    labelled = waited = 0
    for _, images, labels in stream.batches():
        seen = mine.observe(images, labels)
        if labelled:
            labelled += int((labels == 0).sum())
            if any(verdict.label == 0 for verdict in seen.verdicts):
                waited = labelled
                break
        labelled = labelled or int(0 in seen.adapted)
    # Every third sample is watched: ten of them, one to look at, and what a batch brings.
    assert 3 * 10 < waited <= 3 * (10 + 2) + 10


def test_pauses_change_no_bit_of_the_evidence(tmp_path: Path) -> None:
    stream = make_images(520, turn=300)
    steady = driftwise.LiveLearner("mlp", **SETTINGS)
    play(steady, stream)
    paused = driftwise.LiveLearner("mlp", folder=tmp_path / "it", **SETTINGS)
    for start, images, labels in stream.batches():
        paused.observe(images, labels)
        if start in (150, 340, 480):
            paused.close()
            paused = driftwise.LiveLearner.load(tmp_path / "it")
    paused.close()
    evidence, same_evidence = (each._state()["parts"]["monitors"] for each in (steady, paused))
    assert same(evidence, same_evidence)
    assert evidence[0]["detector"]["begun"] == 3, "two classes, and one of them renewed"
    assert np.array_equal(steady.predict(stream.images), paused.predict(stream.images))


def test_samples_without_labels_are_told_to_be_unwatched() -> None:
    mine = driftwise.LiveLearner("mlp", **SETTINGS)
    seen = play(mine, digits(0, classes=3, turn=None), known=0.5, samples=60)
    assert (
        sum("unlabelled samples are not monitored" in note for each in seen for note in each.notes)
        == 1
    )
