"""Labelled streams: drift in the middle is found, answered, and the learner recovers."""

from __future__ import annotations

import numpy as np
import pytest
from live_tools import SOON, accuracy, digits, live_learner, play

import driftwise
from driftwise.config.registry import CATALOGUE
from driftwise.live.engine import LiveEngine


@pytest.mark.parametrize("seed", [0, 1])
def test_a_drift_in_mid_stream_is_found_and_realigned_and_accuracy_recovers(seed: int) -> None:
    stream = digits(seed)
    mine = driftwise.LiveLearner("mlp", detector="combined", seed=seed, **SOON)
    seen = play(mine, stream)
    turn = stream.turn // 10
    drifted = {label for each in seen[turn:] for label in each.drifted}
    adapted = {label for each in seen[turn:] for label in each.adapted}
    assert not any(each.drifted for each in seen[:turn]), "nothing had changed yet"
    assert drifted == set(range(10))
    assert len(adapted) >= 9
    before, shock, end = seen[turn - 20 : turn], seen[turn : turn + 15], seen[-30:]
    assert accuracy(before) > 0.7
    assert accuracy(shock) < 0.5
    assert accuracy(end) > 0.8


def test_realignment_leaves_only_samples_that_came_since_nothing_was_found() -> None:
    stream = digits(1)
    mine = live_learner(seed=1)
    quiet = dict.fromkeys(range(10), 0)
    for start, images, labels in stream.batches():
        seen = mine.observe(images, labels)
        quiet |= {each.label: start + 10 for each in seen.verdicts if each.drifted is False}
        if start >= stream.turn and seen.adapted:
            break
    memory = engine_of(mine).learner.buffer
    oldest = {label: int(memory.samples_of(label).ids.min()) for label in memory.counts()}
    for label in seen.adapted:
        assert oldest[label] >= quiet[label] > 0
    assert min(oldest[label] for label in oldest if label not in seen.adapted) < 300


def test_samples_from_before_those_that_were_checked_realign_nothing() -> None:
    """Also at a class's first check, when nothing says yet until when it had stayed as it was."""
    stream = digits(1, classes=3, turn=200)
    mine = live_learner(seed=1, check_rows=25, buffer_size=400)
    for start, images, labels in stream.batches():
        began = (
            {}
            if start == 0
            else {c: engine_of(mine).window.labelled.first_current(c) for c in range(3)}
        )
        seen = mine.observe(images, labels)
        if seen.verdicts:
            break
    assert len(seen.adapted) > 0
    memory = engine_of(mine).learner.buffer
    for label in seen.adapted:
        first = began[label]
        assert first is not None
        assert int(memory.samples_of(label).ids.min()) >= first > 100


def test_only_the_class_that_moved_is_flagged() -> None:
    seen = play(live_learner(detector="combined"), digits(3, moving=4))
    assert {label for each in seen for label in each.drifted} == {4}


def test_predictions_are_made_before_anything_is_learned_of_the_batch() -> None:
    stream = digits(0, turn=None)
    mine = live_learner()
    play(mine, stream, samples=200)
    images, labels = stream.images[200:300], stream.labels[200:300]
    before, sure = mine.predict(images), mine.predict_proba(images)
    seen = mine.observe(images, labels)
    assert np.array_equal(seen.predicted, before)
    assert seen.correct == int((before == labels).sum())
    assert not np.array_equal(mine.predict_proba(images), sure), "and then it learned"


def test_watched_samples_are_never_trained_on_and_never_in_memory() -> None:
    stream = digits(0)
    mine = live_learner(watch_every=6, buffer_size=2000)
    play(mine, stream, samples=600)
    engine = engine_of(mine)
    ids = {
        int(number) for label in range(10) for number in engine.learner.buffer.samples_of(label).ids
    }
    expected = set()
    counts = dict.fromkeys(range(10), 0)
    for number, label in enumerate(stream.labels[:600].tolist()):  # the rule, sample by sample
        counts[label] += 1
        if counts[label] % 6:
            expected.add(number)
    assert ids == expected


def test_checks_spend_their_level_over_the_whole_stream() -> None:
    seen = play(live_learner(), digits(0, turn=None))
    checks = [each.verdicts for each in seen if each.verdicts]
    tasks = [verdicts[0].task for verdicts in checks]
    assert tasks == list(range(2, 2 + len(checks)))
    assert not any(each.drifted for each in seen)
    thresholds = [
        max(v.threshold for v in verdicts if v.threshold is not None) for verdicts in checks[:3]
    ]
    assert thresholds == sorted(thresholds, reverse=True)


@pytest.mark.parametrize("detector", sorted(set(CATALOGUE["detector"]) - {"oracle"}))
def test_any_detector_of_the_catalogue_watches_a_live_stream(detector: str) -> None:
    seen = play(live_learner(detector=detector), digits(2, classes=4, turn=400))
    checks = [each for each in seen if each.verdicts]
    assert checks
    flagged = [each for each in checks if each.drifted]
    assert (flagged == []) == (detector == "never")


def test_any_adaptation_of_the_catalogue_answers_a_live_drift() -> None:
    for adaptation in CATALOGUE["adaptation"]:
        mine = live_learner(adaptation=adaptation)
        seen = play(mine, digits(2, classes=4, turn=360))
        assert any(each.drifted for each in seen), adaptation
        adapted = any(each.adapted for each in seen)
        assert adapted == (adaptation != "vanilla"), adaptation


def test_drift_that_costs_too_little_is_told_and_left_alone() -> None:
    stream = digits(2, classes=4, turn=400)
    spared = play(live_learner(min_harm=100), stream)
    assert any(each.drifted for each in spared)
    assert not any(each.adapted for each in spared)
    assert any(each.adapted for each in play(live_learner(min_harm=5), stream))


def test_what_is_kept_of_a_long_stream_is_bounded() -> None:
    stream = digits(0)
    mine = live_learner(recent_rows=50, detector="never")
    sizes = []
    for _ in range(3):
        play(mine, stream, known=0.5)
        sizes.append(kept_rows(engine_of(mine)))
    assert max(sizes) <= 3 * 50 + 2 * 10 * (15 + 10 + 10)
    assert sizes[2] <= sizes[1] + 100


def kept_rows(engine: LiveEngine) -> int:
    state = engine.window.state_dict()
    piles = [state[name]["ids"] for name in ("learned", "unlabelled", "asked")]
    piles += [
        state[track][queue]["ids"]
        for track in ("given", "guessed")
        for queue in ("collected", "current")
    ]
    return sum(len(ids) for ids in piles)


def engine_of(mine: driftwise.LiveLearner) -> LiveEngine:
    assert mine._engine is not None
    return mine._engine


@pytest.mark.parametrize("adaptation", ["fr", "fr-scratch"])
def test_relearning_puts_no_sample_into_memory_twice(adaptation: str) -> None:
    mine = live_learner(adaptation=adaptation, lr=0.05)
    seen = play(mine, digits(0, classes=4, turn=350))
    assert any(each.adapted for each in seen)
    memory = engine_of(mine).learner.buffer
    ids = [sample for label in memory.counts() for sample in memory.samples_of(label).ids.tolist()]
    assert len(set(ids)) == len(ids)
