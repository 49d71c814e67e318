from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from run_tools import complaint

from driftwise.config import build
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
    """The sample numbers of every batch of two epochs of every task."""
    return [
        batch.ids.tolist()
        for task in stream.tasks()
        for epoch in (1, 2)
        for batch in task.batches(task.train(), epoch=epoch)
    ]


# --- the stream ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["memory", "held-out"])
def test_no_sample_has_two_jobs_and_every_sample_has_one(reference: str) -> None:
    stream = stream_of(reference=reference)
    parts = [ids(stream, part) for part in ("train", "monitored", "reference", "test")]
    assert sorted(sample for part in parts for sample in part) == list(range(1797))
    assert bool(parts[2]) is (reference == "held-out")


@pytest.mark.parametrize("reference", ["memory", "held-out"])
def test_the_published_monitor_reads_the_scoring_test(reference: str) -> None:
    stream = stream_of(monitor="test", reference=reference)
    monitored = set(ids(stream, "monitored")) | set(ids(stream, "reference"))
    assert monitored == set(ids(stream, "test"))
    assert not set(ids(stream, "monitored")) & set(ids(stream, "reference"))
    # Nothing is held out for monitoring: all other samples are trained on, as published.
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
        {"method": "cls-er"},
    ],
    ids=str,
)
def test_no_other_component_shifts_the_order_of_the_data(settings: dict[str, Any]) -> None:
    assert order_of_training(stream_of(**settings)) == order_of_training(stream_of())
    assert order_of_training(stream_of(seed=1)) != order_of_training(stream_of())


# --- the whole ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["er", "cls-er", "joint"])
def test_assembling_leaves_the_global_random_state_alone(method: str) -> None:
    before = torch.get_rng_state()
    numpy_before = repr(np.random.get_state())  # noqa: NPY002  (the state that must not change)
    build.assemble(resolve(RunConfig(encoder="random", method=method)))
    assert torch.equal(torch.get_rng_state(), before)
    assert repr(np.random.get_state()) == numpy_before  # noqa: NPY002


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


# --- the schedule -------------------------------------------------------------------------------


def test_tasks_of_uneven_sizes_are_reported() -> None:
    uneven = build.assemble(resolve(RunConfig(num_tasks=4)))
    assert [len(task) for task in uneven.stream.schedule.tasks] == [3, 3, 2, 2]
    message = "10 classes in 4 tasks: the first 2 have 3 classes, the others 2"
    assert message in uneven.warnings
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
def test_a_draw_larger_than_the_buffer_is_reported(
    settings: dict[str, Any], draw: int | None
) -> None:
    warnings = build.assemble(resolve(RunConfig(buffer_size=20, **settings))).warnings
    message = [warning for warning in warnings if warning.startswith("a draw of")]
    assert bool(message) is (draw is not None)
    if draw is not None:
        assert message[0].startswith(
            f"a draw of {draw} samples is larger than the buffer, which holds 20"
        )
