"""Class-incremental streams with drift, straight from a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from torch import nn

from driftwise.array_checks import refuse_other_data
from driftwise.encoders.embedding_cache import EmbeddingCache
from driftwise.encoders.loading import load
from driftwise.errors import UserError
from driftwise.scaling import Scaling, ScalingKind
from driftwise.streams.drift_events import (
    EventSpec,
    make_schedule,
    make_script,
    read_event,
    split_classes,
)
from driftwise.streams.split import make_parts, shortages
from driftwise.streams.stream import MakesFeatures, Stream
from driftwise.types import Dataset

FEWEST = 10
"""samples of a class in a domain, below which scope `all-present` takes it for absent"""


def class_incremental(
    data: Dataset,
    *,
    num_tasks: int | None = None,
    num_drifts: int = 1,
    transform: str = "permutation",
    severity: int = 5,
    seed: int = 0,
    batch_size: int = 32,
    class_order: Sequence[int] | None = None,
    tasks: Sequence[Sequence[int]] | None = None,
    events: Sequence[EventSpec | Mapping[str, Any]] = (),
    scope: str = "since-last-event",
    max_classes_per_drift: int | None = None,
    sequential: bool = False,
    permutation_unit: str = "pixel",
    recurring_in_training: bool = False,
    drift_share: float = 1.0,
    drift_over_tasks: int = 1,
    concept_per_class: bool = False,
    drift_seed: int | None = None,
    domains: Sequence[str] = (),
    first_domain: str | None = None,
    monitor: Literal["holdout", "test"] = "holdout",
    reference: Literal["memory", "held-out", "fingerprint"] = "held-out",
    max_per_class: int | None = None,
    cumulative: bool = False,
    encoder: Any = None,
    scaling: Scaling | ScalingKind | None = None,
    source: str = "data",
) -> Stream:
    """Tasks that bring new classes, and events at which known classes drift.

    Args:
        data: images or vectors, and labels; see `driftwise.datasets`.
        num_tasks: into how many tasks the classes are split, as evenly as possible.
        num_drifts: drift events, spread over the tasks as in the paper.
        transform: what drift does to the images or vectors; see `driftwise.streams.transforms` and
            `driftwise.streams.vector_transforms`.
        severity: how strongly, 1 to 5.
        seed: decides the parts of the data, the order of batches and the drift.
        batch_size: samples in a training step.
        class_order: the order in which classes arrive, by number; None: that of the data.
        tasks: the classes of each task, instead of `num_tasks` and `class_order`.
        events: the drift events one by one, instead of events placed by the paper's rules; every
            argument from `num_drifts` to `severity` and from `scope` to `domains` is then ignored,
            but for `recurring_in_training`.
        scope: which classes drift at an event: `since-last-event`, `all-seen`, or `all-present`:
            of those seen, the ones with ten samples or more of the event's domain.
        max_classes_per_drift: at most so many classes drift at an event, the most recent ones.
        sequential: every task from the second on drifts the classes of the task before it.
        permutation_unit: what a permutation moves: `pixel`, or `row` of the image.
        recurring_in_training: drifted classes return, labelled, in the event's training data.
        drift_share: the fraction of a class that drifts.
        drift_over_tasks: over how many tasks that fraction rises.
        concept_per_class: every class drifts to a concept of its own.
        drift_seed: one seed for the transforms of all events; None: another for each.
        domains: natural drift: each event takes the next of these domains, and no transform.
        first_domain: the domain whose images are learned first; None: all images.
        monitor: what a detector monitors: samples held out for it, or the scoring test set, as
            the published experiments did.
        reference: `held-out` keeps half of the monitored samples as reference samples.
        max_per_class: at most so many samples of each class to learn from, and the same fraction
            of its test samples.
        cumulative: every known class returns, labelled, in every task's training data.
        encoder: a frozen encoder, which turns samples into feature vectors once drift has changed
            them; the learner, its buffer and the detector see the vectors only. What
            `driftwise.encoders.load` takes, with features kept on disk, or an `EmbeddingCache`.
        scaling: how features are brought to one scale, as measured on the training samples of the
            first task: `standard`, `signed-log`, `none` or a `Scaling`. None: `standard` for
            vectors, `none` for images.
        source: what messages call the data.

    Returns:
        The stream. `Stream.warnings` has messages for the user about it.

    Raises:
        UserError: an argument does not fit the data, or a class has nothing to train on.

    >>> import numpy as np
    >>> images = np.zeros((40, 4, 4, 1), dtype=np.uint8)
    >>> data = Dataset(images=images, labels=np.arange(40) % 4, class_names=tuple("abcd"))
    >>> stream = class_incremental(data, num_tasks=2)
    >>> [task.new_classes for task in stream.tasks()], stream.schedule.drifting(2)
    ([(0, 1), (2, 3)], (0, 1))
    """
    refuse_other_data(data, source)
    classes = _tasks(len(data.class_names), num_tasks, class_order, tasks, source)
    if data.images.dtype.kind in "UO" and encoder is None:
        raise UserError(
            f"{source} holds texts, which a frozen encoder turns into vectors: give one, e.g. "
            'encoder="sentence-transformers:all-MiniLM-L6-v2"'
        )
    are_vectors = data.images.ndim < 3  # or texts, which become vectors at once
    if events:
        specs = [
            event if isinstance(event, EventSpec) else read_event(event, source=f"event {number}")
            for number, event in enumerate(events, start=1)
        ]
        schedule = make_script(
            classes,
            specs,
            seed=seed,
            recurring_in_training=recurring_in_training,
            first_domain=first_domain,
            vectors=are_vectors,
        )
    else:
        schedule = make_schedule(
            classes,
            num_drifts=num_drifts,
            transform=transform,
            severity=severity,
            seed=seed,
            scope=scope,
            max_classes_per_drift=max_classes_per_drift,
            sequential=sequential,
            unit=permutation_unit,
            recurring_in_training=recurring_in_training,
            share=drift_share,
            over_tasks=drift_over_tasks,
            per_class=concept_per_class,
            drift_seed=drift_seed,
            domains=domains,
            first_domain=first_domain,
            vectors=are_vectors,
            present=_present(data),
        )
    parts = make_parts(
        data,
        monitor_test=monitor == "test",
        keep_reference=reference == "held-out",
        seed=seed,
        max_per_class=max_per_class,
    )
    warnings = shortages(data, parts, [label for task in classes for label in task])
    if len(data.domain_names) > 1 and first_domain is None and schedule.events:
        first, *others = data.domain_names
        warnings += (
            f"the data have {len(others) + 1} domains, which are mixed here, and drift is simulated; for "
            f"natural drift give first_domain, e.g. {first!r}, and domains, e.g. {','.join(others[:3])!r}",
        )
    sizes = [len(task) for task in classes]
    if tasks is None and len(set(sizes)) > 1:
        larger = sizes.count(max(sizes))
        first = "the first has" if larger == 1 else f"the first {larger} have"
        warnings += (
            f"{sum(sizes)} classes in {len(sizes)} tasks: {first} {max(sizes)} classes, "
            f"the others {min(sizes)}",
        )
    return Stream(
        data,
        parts,
        schedule,
        batch_size=batch_size,
        seed=seed,
        cumulative=cumulative,
        encoder=None if encoder is None else _frozen(encoder),
        scaling=_scaling(scaling, vectors=are_vectors or encoder is not None),
        warnings=warnings,
    )


def _frozen(encoder: Any) -> MakesFeatures:
    """What turns samples into features, from a name, a network, a function or an encoder."""
    if not isinstance(encoder, str | nn.Module) and hasattr(encoder, "features"):
        made: MakesFeatures = encoder
        return made
    return EmbeddingCache(load(encoder))


def _scaling(given: Scaling | ScalingKind | None, *, vectors: bool) -> Scaling | None:
    """The scaling of a stream; UserError where images are to be scaled."""
    if vectors:
        return given if isinstance(given, Scaling) else Scaling(given or "standard")
    if given not in (None, "none"):
        raise UserError(
            "scaling is for feature vectors, and these samples are images; give an encoder, or "
            "let the learner normalise images"
        )
    return None


def _present(data: Dataset) -> dict[str, set[int]] | None:
    """The classes with samples enough for every part, by domain; None: there are no domains."""
    if data.domains is None:
        return None
    found: dict[str, set[int]] = {}
    for number, name in enumerate(data.domain_names):
        counts = np.bincount(data.labels[data.domains == number])
        found[name] = set(np.flatnonzero(counts >= FEWEST).tolist())
    return found


def _tasks(
    num_classes: int,
    num_tasks: int | None,
    class_order: Sequence[int] | None,
    tasks: Sequence[Sequence[int]] | None,
    source: str,
) -> tuple[tuple[int, ...], ...]:
    """The new classes of each task; UserError where the arguments do not fit."""
    if tasks is None:
        if num_tasks is None:
            raise UserError("give num_tasks, or the classes of each task as tasks")
        order = range(num_classes) if class_order is None else class_order
        tasks = split_classes(tuple(order), num_tasks)
    elif num_tasks is not None or class_order is not None:
        raise UserError("tasks names the classes already: leave num_tasks and class_order out")
    named = {label for task in tasks for label in task}
    if not named:
        raise UserError("tasks must bring at least one class, e.g. [[0, 1], [2]]")
    if unknown := sorted(named - set(range(num_classes))):
        raise UserError(f"{source} has classes 0 to {num_classes - 1}; the tasks name {unknown}")
    return tuple(tuple(task) for task in tasks)
