"""Tiny images of several domains, and streams with events over them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from driftwise import rng
from driftwise.streams import (
    Concept,
    EventSpec,
    Schedule,
    Stream,
    make_schedule,
    make_script,
    transforms,
)
from driftwise.streams.split import cut
from driftwise.types import Dataset, Parts, Samples

PARTS = ("train", "monitored", "reference", "test")
DOMAINS = ("photo", "cartoon", "sketch")
ROWS = {"photo": 45, "cartoon": 31, "sketch": 20}
"""samples of every class in each domain"""
TASKS = ((0, 1), (2,), (3,), (), ())
NUM_CLASSES = 4
PAIRS = tuple((2 * i, 2 * i + 1) for i in range(5))
"""five tasks of two classes, as in the benchmarks of ten"""
TURNED = (("rotation", 2),)
BLURRED = (("defocus-blur", 5),)

every_part = pytest.mark.parametrize("part", PARTS)


@functools.cache
def make_images(*, missing: tuple[int, str] | None = None) -> Dataset:
    """Noise of 6x6 pixels, samples shuffled; one class may be missing in one domain."""
    draw = np.random.RandomState(0)
    groups = [
        (label, DOMAINS.index(domain))
        for label in range(NUM_CLASSES)
        for domain, count in ROWS.items()
        for _ in range(count if (label, domain) != missing else 0)
    ]
    labels, domains = draw.permutation(np.array(groups, dtype=np.int64)).T
    return Dataset(
        images=draw.randint(0, 256, (len(labels), 6, 6, 1)).astype(np.uint8),
        labels=np.ascontiguousarray(labels),
        class_names=("cat", "dog", "elk", "fox"),
        domains=np.ascontiguousarray(domains),
        domain_names=DOMAINS,
    )


def parts_of(dataset: Dataset) -> Parts:
    """Every class and domain in the same proportions."""
    assert dataset.domains is not None
    pieces = cut(
        dataset.labels * len(DOMAINS) + dataset.domains,
        (0.4, 0.2, 0.2, 0.2),
        rng.fork(0, "parts"),
    )
    return Parts(**dict(zip(PARTS, pieces, strict=True)))


def script(*events: EventSpec, seed: int = 0, **changes: Any) -> Schedule:
    return make_script(TASKS, events, seed=seed, **changes)


def stream_of(
    schedule: Schedule,
    *,
    dataset: Dataset | None = None,
    like: Dataset | None = None,
    seed: int = 0,
) -> Stream:
    """A stream of a data set, with the parts of another one `like` it."""
    dataset = dataset or make_images()
    return Stream(dataset, parts_of(like or dataset), schedule, batch_size=4, seed=seed)


def stream_with(*events: EventSpec, **changes: Any) -> Stream:
    """The images under these events."""
    return stream_of(script(*events, **changes))


def natural(*events: EventSpec, **changes: Any) -> Stream:
    """The same, beginning with photos."""
    return stream_with(*events, first_domain="photo", **changes)


def original(samples: Samples) -> torch.Tensor:
    """The data set's own pixels of some samples."""
    return torch.from_numpy(make_images().images)[samples.ids]


def domains_of(samples: Samples) -> list[str]:
    domains = make_images().domains
    assert domains is not None
    return [DOMAINS[number] for number in domains[samples.ids.numpy()]]


def assert_equal(one: Samples, other: Samples) -> None:
    for field in dataclasses.fields(Samples):
        assert torch.equal(getattr(one, field.name), getattr(other, field.name))


def applied(images: torch.Tensor, *steps: Concept) -> torch.Tensor:
    """The images after one step upon the other."""
    for step in steps:
        images = transforms.apply(
            images, step.transform, step.severity, seed=step.seed, unit=step.unit
        )
    return images


def ids_showing(samples: Samples, concept: int) -> set[int]:
    return set(samples.ids[samples.concepts == concept].tolist())


def placed(tasks: Any = PAIRS, **changes: Any) -> Schedule:
    choices: dict[str, Any] = {
        "num_drifts": 1,
        "transform": "permutation",
        "severity": 5,
        "seed": 0,
    }
    return make_schedule(tasks, **{**choices, **changes})


@st.composite
def task_lists(draw: st.DrawFn) -> list[list[int]]:
    """Up to six tasks, uneven or empty, over shuffled classes."""
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    classes = draw(st.permutations(range(sum(sizes))))
    ends = np.cumsum(sizes)
    return [classes[end - size : end] for size, end in zip(sizes, ends, strict=True)]


@st.composite
def placements(draw: st.DrawFn) -> Schedule:
    tasks = draw(task_lists())
    return placed(
        tasks,
        num_drifts=draw(st.integers(0, len(tasks) - 1)),
        scope=draw(st.sampled_from(["since-last-event", "all-seen"])),
        max_classes_per_drift=draw(st.none() | st.integers(1, 4)),
        sequential=draw(st.booleans()),
        recurring_in_training=draw(st.booleans()),
        seed=draw(st.integers(0, 9)),
    )


def concept_of(made: Schedule, label: int, task: int) -> int:
    """The concept that most of a class shows during a task."""
    mixture = made.mixture(label, task)
    return max(mixture, key=lambda concept: (mixture[concept], concept))
