"""Windows in which one thing has changed; broken sensors and careless annotators."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from driftwise.errors import UserError
from driftwise.streams.changes import CHANGES, NOBODY, Window, Windows, kind_of
from driftwise.streams.faults import FAULTS, break_sensor, careless_labels

CONCEPTS = ("noise", "blur")
SIZE = 20


def pools() -> dict[str, dict[int, np.ndarray]]:
    """Samples that say which concept, subclass and sample they are."""
    names = ("clean", *CONCEPTS, "shifted", "black")
    return {
        concept: {
            subclass: np.stack(
                [np.full(200, number), np.full(200, subclass), np.arange(200)], axis=1
            ).astype(np.float32)
            for subclass in range(10)
        }
        for number, concept in enumerate(names)
    }


def windows(seed: int = 0) -> Windows:
    return Windows(
        pools(),
        [[0, 1], [2, 3], [4, 5]],
        siblings={0: [6], 1: [7], 2: [8]},
        strangers=[9],
        concepts=CONCEPTS,
        size=SIZE,
        seed=seed,
    )


def subclasses(window: Window, label: int) -> set[int]:
    return set(window.current[window.labels == label, 1].astype(int).tolist())


@pytest.mark.parametrize("change", CHANGES)
def test_equal_arguments_give_equal_windows_and_no_sample_is_used_twice(change: str) -> None:
    one, other = windows().make(change, 3), windows().make(change, 3)
    assert np.array_equal(one.current, other.current)
    assert np.array_equal(one.labels, other.labels)
    if change == "broken sensor":
        return
    sides = [*one.train.values(), *one.reference.values(), one.current]
    everything = np.concatenate(
        [*sides, *(each for some in one.archived.values() for each in some)]
    )
    assert len(np.unique(everything, axis=0)) == len(everything)


def test_a_class_that_drifts_has_none_of_its_old_samples_left_and_a_new_mode_about_half() -> None:
    for number in range(20):
        for change, least, most in (("drift", 0.0, 0.0), ("new mode", 0.4, 0.6)):
            window = windows().make(change, number)
            assert set(window.kinds.values()) == {change}
            for c in range(3):
                mine = window.current[window.labels == c]
                is_old = (mine[:, 0] == 0) & (mine[:, 1] < 6)
                old = float(is_old.mean())
                assert least - 0.05 <= old <= most + 0.05 if c in window.kinds else old == 1


def test_what_returns_is_an_archived_concept_and_a_drift_is_never_one() -> None:
    for number in range(10):
        for change, is_back in (("recurring", True), ("drift", False)):
            window = windows().make(change, number)
            for c in window.kinds:
                now = window.current[window.labels == c]
                (archived,) = window.archived[c]
                same = set(now[:, 0]) & set(archived[:, 0])
                assert bool(same) is is_back


def test_a_new_class_has_no_name_and_resembles_a_known_one_or_none() -> None:
    near, far = (windows().make(f"new class {where}", 0) for where in ("near", "far"))
    assert subclasses(near, NOBODY) <= {6, 7, 8}
    assert subclasses(far, NOBODY) == {9}
    assert kind_of(near.change) == kind_of(far.change) == "new class"


def test_only_one_annotator_is_careless() -> None:
    window = windows().make("careless annotator", 1)
    wrong = window.labels != window.current[:, 1].astype(int) // 2
    assert len(set(window.annotators[wrong].tolist())) == 1


def test_pools_that_are_too_small_are_refused() -> None:
    small = {
        concept: {s: each[:25] for s, each in some.items()} for concept, some in pools().items()
    }
    made = Windows(
        small, [[0, 1], [2, 3]], siblings={}, strangers=[9], concepts=CONCEPTS, size=SIZE
    )
    with pytest.raises(UserError, match="give larger pools"):
        made.make("none", 0)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("shape", [(6, 4, 5, 3), (6, 9)])
def test_a_broken_sensor_gives_samples_of_the_same_shape_and_values(
    fault: str, shape: tuple[int, ...]
) -> None:
    draw = torch.Generator().manual_seed(0)
    samples = torch.randint(1, 255, shape, generator=draw, dtype=torch.uint8)
    broken = break_sensor(samples, fault, seed=1)
    assert broken.shape == samples.shape
    assert torch.equal(broken, break_sensor(samples, fault, seed=1))
    if fault == "black":
        assert not broken.any()
    elif fault == "stuck":
        assert torch.equal(broken, samples[:1].expand_as(samples))
    else:
        assert not torch.equal(broken, samples)
        assert torch.equal(broken.flatten(1).sort().values, samples.flatten(1).sort().values)


def test_a_careless_annotator_names_another_class_as_often_as_asked() -> None:
    labels = np.arange(4000) % 4
    answers = careless_labels(labels, 0.3, np.arange(4), seed=0)
    wrong = answers != labels
    assert wrong.mean() == pytest.approx(0.3, abs=0.03)
    counts = np.bincount((answers - labels)[wrong] % 4, minlength=4)
    assert counts[1:].min() > 0.8 * counts[1:].max()
