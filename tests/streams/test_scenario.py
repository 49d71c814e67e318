"""`class_incremental` gives the stream that a config of the same options describes, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from streams_builders import make_images

from driftwise.config.build import make_stream
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.datasets.readers.digits import load_digits
from driftwise.errors import UserError
from driftwise.streams import Stream, class_incremental
from driftwise.types import Dataset

DIGITS = load_digits()
PARTS = ("train", "monitored", "reference", "test")


def assert_same(one: Stream, other: Stream) -> None:
    assert one.schedule == other.schedule
    assert (one.batch_size, one.seed, one.cumulative) == (
        other.batch_size,
        other.seed,
        other.cumulative,
    )
    for number in range(1, len(one) + 1):
        ours, theirs = one.task(number), other.task(number)
        for part in PARTS:
            classes = (*ours.known_classes, *ours.new_classes)
            a, b = one.samples(part, classes, number), other.samples(part, classes, number)
            assert torch.equal(a.ids, b.ids)
            assert torch.equal(a.images, b.images)
        orders = [
            [batch.ids.tolist() for batch in task.batches(task.train(), epoch=1)]
            for task in (ours, theirs)
        ]
        assert orders[0] == orders[1]


EVENTS: tuple[dict[str, Any], ...] = (
    {"task": 2, "classes": [0, 1], "transforms": [["rotation", 2]], "name": "turned"},
    {"task": 4, "classes": [0], "to": "original"},
)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_tasks": 5},
        {"num_tasks": 3, "num_drifts": 2, "transform": "gaussian-noise", "severity": 3, "seed": 7},
        {"num_tasks": 5, "class_order": (9, 8, 7, 6, 5, 4, 3, 2, 1, 0), "batch_size": 16},
        {"tasks": ((0, 1), (2, 3, 4), (), (5,)), "sequential": True, "drift_seed": 42},
        {"num_tasks": 5, "scope": "all-seen", "max_classes_per_drift": 2, "drift_share": 0.5},
        {"num_tasks": 5, "drift_over_tasks": 2, "concept_per_class": True},
        {"num_tasks": 5, "recurring_in_training": True, "permutation_unit": "row"},
        {"num_tasks": 5, "monitor": "test", "reference": "held-out"},
        {"num_tasks": 5, "reference": "held-out", "max_per_class": 30},
        {"num_tasks": 5, "events": EVENTS},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_the_same_options_give_the_same_stream_as_a_config(settings: dict[str, Any]) -> None:
    given: dict[str, Any] = {"batch_size": 32, "reference": "held-out"} | settings
    config = resolve(RunConfig(**given))
    assert_same(class_incremental(DIGITS, **settings), make_stream(config, DIGITS))


def test_natural_drift_takes_the_next_domain_at_each_event() -> None:
    stream = class_incremental(
        make_images(),
        num_tasks=3,
        num_drifts=2,
        domains=("cartoon", "sketch"),
        first_domain="photo",
    )
    schedule = stream.schedule
    shown = [
        {schedule.domain_of(concept) for concept in event.concepts.values()}
        for event in schedule.events
    ]
    assert shown == [{"cartoon"}, {"sketch"}]


def test_cumulative_brings_every_known_class_back_in_training() -> None:
    stream = class_incremental(DIGITS, num_tasks=5, cumulative=True)
    assert stream.task(3).training_classes == (4, 5, 0, 1, 2, 3)


def test_domains_that_nothing_names_come_with_a_warning() -> None:
    data = make_images()
    tasks = [range(len(data.class_names)), []]
    (warning,) = class_incremental(data, tasks=tasks, num_drifts=1).warnings
    first, second = data.domain_names[:2]
    assert "domains, which are mixed here, and drift is simulated" in warning
    assert f"first_domain, e.g. {first!r}, and domains, e.g. '{second}" in warning
    natural = class_incremental(
        data, tasks=tasks, num_drifts=1, first_domain=first, domains=[second]
    )
    assert natural.warnings == ()
    assert class_incremental(data, tasks=tasks, num_drifts=0).warnings == ()


def test_classes_that_do_not_divide_evenly_come_with_a_warning() -> None:
    assert class_incremental(DIGITS, num_tasks=5).warnings == ()
    (warning,) = class_incremental(DIGITS, num_tasks=3).warnings
    assert warning == "10 classes in 3 tasks: the first has 4 classes, the others 3"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give num_tasks, or the classes of each task"),
        ({"num_tasks": 2, "tasks": [[0], [1]]}, "leave num_tasks and class_order out"),
        ({"tasks": [[], []]}, "at least one class"),
        ({"tasks": [[0, 11], [1]]}, r"data has classes 0 to 9; the tasks name \[11\]"),
        ({"num_tasks": 11}, "10 classes cannot be split into 11 tasks"),
        ({"num_tasks": 2, "num_drifts": 2}, "num_drifts must be 0 to 1"),
        ({"num_tasks": 2, "transform": "melt"}, "melt"),
        ({"num_tasks": 2, "severity": 6}, "severity must be 1 to 5"),
        ({"num_tasks": 2, "scope": "none"}, "scope must be one of"),
        ({"num_tasks": 2, "events": [{"task": 2}]}, "event 1"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        class_incremental(DIGITS, **settings)


def by_batches() -> Dataset:
    """Three classes in two batches, the third of them with nine samples in the second."""
    domains = np.repeat([0, 1], [90, 69])
    labels = np.r_[np.arange(90) % 3, np.arange(60) % 2, np.full(9, 2)]
    return Dataset(
        images=np.zeros((159, 4), dtype=np.float32),
        labels=labels,
        class_names=("a", "b", "c"),
        domains=domains,
        domain_names=("first", "second"),
    )


def test_a_class_that_hardly_comes_in_a_domain_stays_as_it_was() -> None:
    stream = class_incremental(
        by_batches(),
        tasks=[[0, 1, 2], []],
        num_drifts=1,
        scope="all-present",
        first_domain="first",
        domains=["second"],
    )
    assert stream.schedule.drifting(2) == (0, 1)
    tests = stream.task(2).tests()
    assert by_batches().domains[tests.ids[tests.labels == 2]].tolist() == [0] * 6  # type: ignore[index]
    with pytest.raises(UserError, match="all-present needs data with domains"):
        class_incremental(by_batches(), num_tasks=3, scope="all-present")
