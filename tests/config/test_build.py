from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from run_tools import complaint

from driftwise.config import build, registry
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.datasets.readers.digits import load_digits
from driftwise.streams import Stream

DIGITS = load_digits()


def stream_of(**settings: Any) -> Stream:
    return build.make_stream(resolve(RunConfig(**settings)), DIGITS)


def ids(stream: Stream, part: str) -> list[int]:
    found: list[int] = stream.samples(part, range(10), 1).ids.tolist()
    return found


def order_of_training(stream: Stream) -> list[list[int]]:
    """The row numbers of every batch of two epochs of every task."""
    return [
        rows.ids.tolist()
        for task in stream.tasks()
        for epoch in (1, 2)
        for rows in task.batches(task.train(), epoch=epoch)
    ]


# --- the stream ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["memory", "held-out"])
def test_no_row_has_two_jobs_and_every_row_has_one(reference: str) -> None:
    stream = stream_of(reference=reference)
    parts = [ids(stream, part) for part in ("train", "monitored", "reference", "test")]
    assert sorted(row for part in parts for row in part) == list(range(1797))
    assert bool(parts[2]) is (reference == "held-out")


def test_every_class_is_cut_in_the_same_proportions() -> None:
    stream = stream_of(reference="held-out")
    shares = {"train": 0.6, "monitored": 0.1, "reference": 0.1, "test": 0.2}
    total = np.bincount(DIGITS.labels)
    for part, share in shares.items():
        count = np.bincount(DIGITS.labels[ids(stream, part)])
        assert np.abs(count - share * total).max() <= 1.5, part


@pytest.mark.parametrize("reference", ["memory", "held-out"])
def test_the_published_monitor_watches_the_scoring_test(reference: str) -> None:
    stream = stream_of(monitor="test", reference=reference)
    monitored = set(ids(stream, "monitored")) | set(ids(stream, "reference"))
    assert monitored == set(ids(stream, "test"))
    assert not set(ids(stream, "monitored")) & set(ids(stream, "reference"))
    # Nothing is held out for watching: all other rows are trained on, as published.
    everything = set(range(len(DIGITS.labels)))
    assert set(ids(stream, "train")) == everything - monitored


@pytest.mark.parametrize(
    "settings",
    [
        {"buffer_policy": "balanced"},
        {"minibatch_size": 3},
        {"buffer_size": 7},
        {"adaptation": "fr"},
        {"encoder": "random"},
        {"reference": "memory"},
        {"detector": "never"},
        {"backbone": "cnn"},
        {"transform": "rotation"},
        {"num_drifts": 3},
        {"augmentation": "crop-flip"},
        *({"method": name} for name in ("er-ace", "der++", "ser", "cls-er", "finetune")),
    ],
    ids=str,
)
def test_no_other_part_shifts_the_order_of_the_data(settings: dict[str, Any]) -> None:
    assert order_of_training(stream_of(**settings)) == order_of_training(stream_of())


def test_another_seed_gives_another_order_and_another_cut() -> None:
    first, second = stream_of(), stream_of(seed=1)
    assert ids(first, "test") != ids(second, "test")
    assert order_of_training(first) != order_of_training(second)


# --- the whole ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", registry.CATALOGUE["method"])
def test_assembling_leaves_the_global_random_state_alone(method: str) -> None:
    before = torch.get_rng_state()
    numpy_before = repr(np.random.get_state())  # noqa: NPY002  (the state that must not change)
    build.assemble(resolve(RunConfig(encoder="random", method=method)))
    assert torch.equal(torch.get_rng_state(), before)
    assert repr(np.random.get_state()) == numpy_before  # noqa: NPY002


def test_joint_training_sees_every_class_again_and_no_other_method_does() -> None:
    for name in registry.CATALOGUE["method"]:
        last = stream_of(method=name).task(5)
        classes = set(last.train().labels.tolist())
        assert classes == (set(range(10)) if name == "joint" else {8, 9}), name


# --- the reference ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reference", "warns"),
    [
        ({}, "held-out", False),
        ({"encoder": "random"}, "memory", False),
        ({"encoder": "random", "reference": "held-out"}, "held-out", False),
        ({"encoder": "learner", "reference": "memory"}, "memory", True),
        ({"encoder": "learner", "reference": "memory", "detector": "oracle"}, "memory", False),
    ],
    ids=str,
)
def test_a_reference_that_the_encoder_was_trained_on_is_warned_about(
    settings: dict[str, Any], reference: str, warns: bool
) -> None:
    config = resolve(RunConfig(**settings))
    assert config.reference == reference
    warnings = build.assemble(config).warnings
    assert len(warnings) == warns
    assert all("false alarms" in warning and "\n" not in warning for warning in warnings)


@pytest.mark.parametrize(("minibatch_size", "warns"), [(100, False), (101, True)])
def test_a_draw_larger_than_the_memory_is_warned_about(minibatch_size: int, warns: bool) -> None:
    config = resolve(RunConfig(minibatch_size=minibatch_size, buffer_size=100))
    expected = (
        "a draw of 101 samples is larger than the memory, which holds 100: every step draws all there "
        "are"
    )
    assert build.assemble(config).warnings == ((expected,) if warns else ())


# --- the schedule -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "tasks"),
    [
        ({"num_tasks": 2}, ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))),
        ({"num_tasks": 2, "class_order": (3, 1, 4, 0)}, ((3, 1), (4, 0))),
        ({"tasks": ((7,), (), (2, 1))}, ((7,), (), (2, 1))),
    ],
    ids=str,
)
def test_classes_arrive_as_the_config_says(
    settings: dict[str, Any], tasks: tuple[tuple[int, ...], ...]
) -> None:
    assert stream_of(**settings).schedule.tasks == tasks


def test_tasks_of_uneven_sizes_are_told() -> None:
    uneven = build.assemble(resolve(RunConfig(num_tasks=4)))
    assert [len(task) for task in uneven.stream.schedule.tasks] == [3, 3, 2, 2]
    told = "10 classes in 4 tasks: the first 2 have 3 classes, the others 2"
    assert told in uneven.warnings
    even = build.assemble(resolve(RunConfig(num_tasks=5)))
    assert not any("classes in" in warning for warning in even.warnings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"num_tasks": 11}, "10 classes cannot be split into 11 tasks"),
        ({"num_drifts": 5}, "num_drifts must be 0 to 4 for 5 tasks"),
        ({"num_tasks": 1, "num_drifts": 1}, "num_drifts must be 0 to 0 for 1 task"),
        ({"class_order": (0, 10), "num_tasks": 2}, "digits-cd has classes 0 to 9; .*10"),
        ({"tasks": ((0, -1), (2,))}, "digits-cd has classes 0 to 9; .*-1"),
        ({"tasks": ((0, 1), (1,))}, "a class may arrive only once"),
        ({"class_order": ()}, "0 classes cannot be split into 5 tasks"),
        ({"tasks": ()}, "task"),
    ],
    ids=str,
)
def test_an_impossible_schedule_gets_one_line(settings: dict[str, Any], expected: str) -> None:
    message = complaint(lambda: stream_of(**settings))
    assert re.search(expected, message), message


def test_normalisation_goes_by_the_first_task_that_brings_images() -> None:
    tasks = ((), (0, 1), (2, 3))
    settings: dict[str, Any] = {"normalise": True, "tasks": tasks, "num_drifts": 0}
    network = build.assemble(resolve(RunConfig(**settings))).learner.network
    mean, std = network.get_buffer("mean"), network.get_buffer("std")
    assert 0.1 < float(mean) < 0.9
    assert 0.1 < float(std) < 0.9


@pytest.mark.parametrize(
    ("settings", "draw"),
    [
        ({"method": "ser", "batch_size": 300}, 300),
        ({"method": "er", "minibatch_size": 200}, 200),
        ({"method": "ser", "minibatch_size": 200}, None),
        ({"method": "joint", "minibatch_size": 200}, None),
    ],
)
def test_a_draw_larger_than_the_memory_is_told(settings: dict[str, Any], draw: int | None) -> None:
    warnings = build.assemble(resolve(RunConfig(buffer_size=20, **settings))).warnings
    told = [warning for warning in warnings if warning.startswith("a draw of")]
    assert bool(told) is (draw is not None)
    if draw is not None:
        assert told[0].startswith(
            f"a draw of {draw} samples is larger than the memory, which holds 20"
        )
