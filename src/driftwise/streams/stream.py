"""The stream: the samples of each task for training, monitoring and test.

Drifted pixels are computed once per concept, for every sample of the classes that ever show it, and
kept: two reads are equal, in whatever order or portions samples are read. A frozen encoder and a
scaling come after drift, where samples leave the stream.
"""

from __future__ import annotations

import math
import warnings as warning_filters
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from driftwise import rng
from driftwise.allocation import allocate
from driftwise.encoders import OwnEncoder
from driftwise.encoders.digests import identity_of
from driftwise.errors import UserError
from driftwise.scaling import Scaling
from driftwise.streams import transforms, vector_transforms
from driftwise.streams.roster import Roster
from driftwise.streams.schedule import ORIGINAL, Concept, Schedule
from driftwise.types import Dataset, Parts, Samples

_GATHERED_AT_ONCE = 2 * 2**20
"""bytes of images, or one batch"""


class MakesFeatures(Protocol):
    """A frozen encoder, as a stream uses it."""

    def features(self, samples: Any) -> Tensor:
        """Images or texts -> float32 (samples, features); of each sample by itself."""
        ...


def name_of(encoder: MakesFeatures) -> str:
    """What a frozen encoder is, exactly: of a pretrained one, a digest of its weights included."""
    own = getattr(encoder, "encoder", encoder)
    name = str(getattr(own, "name", type(own).__name__))
    # The name of a network of one's own has its weights, and not what else it computes with.
    identity = identity_of(own) if isinstance(own, OwnEncoder) else None
    return name if identity is None else f"{name} {identity[:12]}"


def refuse_other_encoder(name: str, encoder: MakesFeatures) -> None:
    """UserError if features were made by another encoder than this one."""
    if (here := name_of(encoder)) != name:
        raise UserError(
            f"the features were made by the encoder {name}, and this one is {here}: its features "
            "are others; give the same encoder, with the same weights"
        )


class Stream:
    """A data set, cut into parts, presented by a schedule.

    >>> import driftwise as dw
    >>> data = dw.datasets.load("digits")
    >>> stream = dw.streams.class_incremental(data, num_tasks=5, num_drifts=1)

    >>> len(stream.schedule.tasks)
    5
    """

    def __init__(
        self,
        dataset: Dataset,
        parts: Parts,
        schedule: Schedule,
        *,
        batch_size: int,
        seed: int,
        cumulative: bool = False,
        encoder: MakesFeatures | None = None,
        scaling: Scaling | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        """A stream; `class_incremental` makes parts and schedule from a few settings.

        Args:
            dataset: images and labels.
            parts: which samples are for training, monitoring, reference and test.
            schedule: which classes arrive and drift when.
            batch_size: samples in a training step.
            seed: decides the order of batches.
            cumulative: every known class returns, labelled, in every task's training data.
            encoder: turns samples into vectors where they leave the stream.
            scaling: brings the features of vectors to one scale; where it is not fitted yet, it is
                fitted on the training samples of the first task. None: they stay as they are.
            warnings: messages for the user about the stream.
        """
        labels, last = dataset.labels, len(dataset.class_names) - 1
        if len(labels) and not (labels.min() >= 0 and labels.max() <= last):
            raise UserError(f"labels must be 0 to {last}; got {labels.min()} to {labels.max()}")
        self.schedule = schedule
        self.class_names = dataset.class_names
        self.feature_names = dataset.feature_names
        self.batch_size = batch_size
        self.seed = seed
        self.cumulative = cumulative
        self.warnings = warnings
        self.encoder = encoder
        self.scaling = scaling
        self._encoder = encoder
        self._are_texts = dataset.images.dtype.kind in "UO"
        if self._are_texts:  # which do not drift by a transform: encoded at once
            assert encoder is not None, "texts need an encoder"
            self._images, self._encoder = encoder.features(dataset.images), None
        else:
            with warning_filters.catch_warnings():  # of arrays that are mapped to be read only
                warning_filters.filterwarnings("ignore", "The given NumPy array is not writ")
                self._images = torch.from_numpy(dataset.images)
        _refuse_transforms(schedule, vectors=self._images.ndim == 2)
        self._book: Callable[[int], None] = lambda _: None
        self._booked: dict[int, Tensor] = {}
        """by concept, whether each sample of the data set has been encoded under it"""
        self._labels = torch.from_numpy(dataset.labels)
        self._roster = Roster(dataset, parts, schedule)
        self._drifted: dict[int, tuple[Tensor, Tensor]] = {}
        """the pixels of a concept, and the position of each sample of the data set in them"""

    def __len__(self) -> int:
        return self.schedule.num_tasks

    @property
    def num_classes(self) -> int:
        """Classes of the whole stream: the size of a network's head."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(height, width, channels) of every image, or (features,) of every vector."""
        return tuple(self.blank.shape[1:])

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of every sample before a frozen encoder; () of texts."""
        return () if self._are_texts else tuple(self._images.shape[1:])

    @cached_property
    def blank(self) -> Tensor:
        """Two samples without content, of the shape and type of all."""
        one = self._images[:1]
        if self._encoder is not None:
            one = self._encoder.features(one)
        return torch.zeros_like(one).repeat(2, *[1] * (one.ndim - 1))

    @property
    def encode_two(self) -> Callable[[], object] | None:
        """A call of the frozen encoder on two samples, past any cache; None: there is none."""
        if self._encoder is None:
            return None
        own = getattr(self._encoder, "encoder", None)
        two = self._images[:1].repeat(2, *[1] * (self._images.ndim - 1))
        return partial(self._encoder.features if own is None else own.encode, two)

    def task(self, number: int) -> Task:
        """A task by its number, counted from 1."""
        if not 1 <= number <= len(self):
            raise UserError(f"there are tasks 1 to {len(self)}; got {number}")
        return Task(self, number)

    def tasks(self, *, after: int = 0) -> Iterator[Task]:
        """The tasks in order, those up to number `after` left out."""
        return (Task(self, number) for number in range(after + 1, len(self) + 1))

    def samples(self, part: str, classes: Sequence[int], task: int) -> Samples:
        """A part's samples of some classes, as they are during a task, in data-set order.

        Encoded and scaled, where the stream does that.
        """
        samples = self.raw_samples(part, classes, task)
        images = self._encoded(samples)
        if self.scaling is not None:
            if not self.scaling.is_fitted:
                self.scaling.fit(self._encoded(self._first()))
            images = self.scaling(images)
        return replace(samples, images=images)

    def _first(self) -> Samples:
        """The training samples of the first task that brings classes, before a frozen encoder."""
        number = next(n for n, classes in enumerate(self.schedule.tasks, start=1) if classes)
        return self.raw_samples("train", self.schedule.tasks[number - 1], number)

    def _encoded(self, samples: Samples) -> Tensor:
        """What the learner gets of samples, but for the scaling."""
        if self._encoder is None:
            return samples.images
        for concept in torch.unique(samples.concepts).tolist():
            ids = samples.ids[samples.concepts == concept]
            blank = torch.zeros(len(self._labels), dtype=torch.bool)
            booked = self._booked.setdefault(self._shown(concept), blank)
            self._book(int((~booked[ids]).sum()))
            booked[ids] = True
        return self._encoder.features(samples.images)

    def raw_samples(self, part: str, classes: Sequence[int], task: int) -> Samples:
        """`samples` before a frozen encoder and a scaling."""
        ids, concepts = self._roster.members(part, classes, task)
        images = self._images.index_select(0, ids)
        for concept in torch.unique(concepts).tolist():
            if concept != ORIGINAL:
                shows = (concepts == concept).nonzero().squeeze(1)
                images.index_copy_(0, shows, self._images_under(concept, ids[shows]))
        return Samples(images=images, labels=self._labels[ids], ids=ids, concepts=concepts)

    def counts(self, part: str, classes: Sequence[int], task: int) -> dict[int, int]:
        """How many of a part's samples each of some classes has during a task."""
        ids, _ = self._roster.members(part, classes, task)
        counts = torch.bincount(self._labels[ids], minlength=self.num_classes)
        return {label: int(counts[label]) for label in classes}

    def book_encodings(self, book: Callable[[int], None]) -> None:
        """From now on, call `book` with the number of samples that the frozen encoder encodes.

        A sample that is read again under the same concept counts once: features are kept.
        """
        self._book, self._booked = book, {}

    def state_dict(self) -> dict[str, Any]:
        """What a frozen encoder and a scaling have done so far; empty where there are none."""
        state: dict[str, Any] = {}
        if self.scaling is not None:
            state["scaling"] = self.scaling.state_dict()
        if self.encoder is not None:
            state["encoder"] = name_of(self.encoder)
        if self._encoder is not None:
            state["encoded"] = {
                concept: torch.from_numpy(np.packbits(each.numpy()))
                for concept, each in self._booked.items()
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; UserError where features came from another encoder."""
        if self.encoder is not None:
            refuse_other_encoder(state["encoder"], self.encoder)
        if self.scaling is not None:
            self.scaling.load_state_dict(state["scaling"])
        if self._encoder is not None:
            self._booked = {
                concept: torch.from_numpy(
                    np.unpackbits(bits.numpy(), count=len(self._labels)).astype(bool)
                )
                for concept, bits in state["encoded"].items()
            }

    def training_keys(self, classes: Sequence[int], task: int) -> Tensor:
        """A number for each training sample of some classes under its concept, int64 (samples,)."""
        ids, concepts = self._roster.members("train", classes, task)
        return concepts * len(self._labels) + ids

    def sets_in_by_steps(self, task: int) -> bool:
        """Whether an event of the task reaches training samples step by step."""
        return self._roster.sets_in_by_steps(task)

    def while_drift_sets_in(self, samples: Samples, steps: Tensor, task: int) -> Samples:
        """A task's training samples as they are at the steps at which they are trained on.

        `steps`: int64 (samples,), counted from 0 at the beginning of the task.

        Those that an event has not reached by then keep the concept of the task before.
        """
        waiting = steps <= self._roster.last_steps_before_drift(samples.ids, task)
        if not waiting.any():
            return samples
        before = self.samples("train", torch.unique(samples.labels[waiting]).tolist(), task - 1)
        position = torch.full((len(self._labels),), -1, dtype=torch.int64)
        position[before.ids] = torch.arange(len(before))
        old = position[samples.ids]
        which = (waiting & (old >= 0)).nonzero().squeeze(1)
        return replace(
            samples,
            images=samples.images.index_copy(0, which, before.images[old[which]]),
            concepts=samples.concepts.index_copy(0, which, before.concepts[old[which]]),
        )

    def _images_under(self, concept: int, ids: Tensor) -> Tensor:
        """The images of samples under a concept, (samples, height, width, channels)."""
        lineage = self._changes(concept)
        if not lineage:
            return self._images.index_select(0, ids)
        for each in lineage:  # from the first on: a call for each would be one within the other
            if each not in self._drifted:
                self._drifted[each] = self._drift(each)
        images, position = self._drifted[lineage[-1]]
        return images.index_select(0, position[ids])

    def _changes(self, concept: int) -> list[int]:
        """The concepts that lead to a concept and change the images, the first one first."""
        return [
            each
            for each in self.schedule.lineage(concept)
            if self.schedule.concepts[each - 1].transform != "identity"
        ]

    def _shown(self, concept: int) -> int:
        """The concept whose images a concept shows: its own, or those that it left as they are."""
        return (self._changes(concept) or [ORIGINAL])[-1]

    @cached_property
    def _spread(self) -> Scaling:
        """The mean and deviation of each feature of vectors in the first task."""
        return Scaling().fit(self._first().images)

    @cached_property
    def _classes_by_concept(self) -> dict[int, set[int]]:
        """The classes that ever show a concept, or one that grew out of it."""
        classes: defaultdict[int, set[int]] = defaultdict(set)
        for event in self.schedule.events:
            for label, taken_on in event.concepts.items():
                for concept in reversed(self.schedule.lineage(taken_on)):
                    if label in classes[concept]:
                        break  # and in all that it grew out of
                    classes[concept].add(label)
        return classes

    def _drift(self, concept: int) -> tuple[Tensor, Tensor]:
        """The pixels of a concept, for the classes that ever show it, and where each sample is."""
        spec = self.schedule.concepts[concept - 1]
        classes = self._classes_by_concept[concept]
        ids = torch.isin(self._labels, torch.tensor(sorted(classes))).nonzero().squeeze(1)
        position = torch.full((len(self._labels),), -1, dtype=torch.int64)
        position[ids] = torch.arange(len(ids))
        images = allocate((len(ids), *self._images.shape[1:]), self._images.dtype)
        for label in sorted(classes):
            samples = ids[self._labels[ids] == label]
            drawn = rng.derive(spec.seed, "class", label)
            # What is drawn for each image must differ between classes that share a concept;
            # a permutation is drawn once for all of them.
            seed = drawn if spec.transform in transforms.NOISES else spec.seed
            images[position[samples]] = self._transformed(
                self._images_under(spec.parent, samples), spec, seed
            )
        return images, position

    def _transformed(self, images: Tensor, spec: Concept, seed: int) -> Tensor:
        if images.ndim == 2:
            mean, deviation = self._spread.mean, self._spread.deviation
            assert mean is not None
            assert deviation is not None
            return vector_transforms.apply(
                images, spec.transform, spec.severity, seed=seed, mean=mean, deviation=deviation
            )
        return transforms.apply(images, spec.transform, spec.severity, seed=seed, unit=spec.unit)


def _refuse_transforms(schedule: Schedule, *, vectors: bool) -> None:
    """UserError for drift that samples of this kind cannot show."""
    kind, others = ("vectors", "images") if vectors else ("images", "vectors")
    known = vector_transforms.VECTOR_TRANSFORMS if vectors else transforms.TRANSFORMS
    for concept in schedule.concepts:
        if concept.transform not in known:
            raise UserError(
                f"the transform {concept.transform} is for {others}, and these samples are {kind};"
                f" use one of {', '.join(known)}"
            )
        if vectors and concept.unit != "pixel":
            raise UserError(
                f"a permutation of vectors moves single features; leave out the unit {concept.unit}"
            )


class Task:
    """One task of a stream: the classes it brings and everything that can be read during it.

    >>> import driftwise as dw
    >>> stream = dw.streams.class_incremental(dw.datasets.load("digits"), num_tasks=5, num_drifts=1)
    >>> task = Task(stream, 3)
    >>> task.new_classes, task.known_classes
    ((4, 5), (0, 1, 2, 3))
    >>> task.train().images.shape[1:]  # uint8 (samples, height, width, channels)
    torch.Size([8, 8, 1])
    """

    def __init__(self, stream: Stream, number: int) -> None:
        self.number = number
        self.new_classes = stream.schedule.tasks[number - 1]
        self.known_classes = stream.schedule.known(number)
        self._stream = stream

    @property
    def returning_classes(self) -> tuple[int, ...]:
        """Known classes that return, labelled, in the task's own training data."""
        schedule = self._stream.schedule
        if self._stream.cumulative:
            return self.known_classes
        return schedule.drifting(self.number) if schedule.recurring_in_training else ()

    @property
    def training_classes(self) -> tuple[int, ...]:
        """The classes of the task's own training data."""
        return (*self.new_classes, *self.returning_classes)

    def train(self) -> Samples:
        """The labelled samples that the task brings by itself."""
        return self._stream.samples("train", self.training_classes, self.number)

    def new_labels(self) -> int:
        """How many of these samples' labels no task before it has brought.

        A label belongs to a sample under a concept: another concept needs another label.
        """
        unlike_before = {*self.new_classes, *self._stream.schedule.drifting(self.number)}
        keys = self._keys_of(unlike_before)
        earlier = (Task(self._stream, number) for number in range(1, self.number))
        before = torch.cat([keys[:0], *(task._keys_of(unlike_before) for task in earlier)])
        return int((~torch.isin(keys, before)).sum())

    def _keys_of(self, labels: set[int]) -> Tensor:
        """The keys of the task's own training samples of some classes."""
        classes = [label for label in self.training_classes if label in labels]
        return self._stream.training_keys(classes, self.number)

    def batches(self, samples: Samples, *, epoch: int, skip: int = 0) -> Iterator[Samples]:
        """The samples once over in an order of the epoch's own, `batch_size` at a time.

        The first `skip` batches are left out.
        """
        batch_size = self._stream.batch_size
        shuffle = rng.fork(self._stream.seed, "shuffle", self.number, epoch)
        order = torch.randperm(len(samples), generator=shuffle)
        if self._stream.sets_in_by_steps(self.number):
            steps = torch.empty_like(order)
            before = (epoch - 1) * math.ceil(len(samples) / batch_size)
            steps[order] = before + torch.arange(len(samples)) // batch_size
            samples = self._stream.while_drift_sets_in(samples, steps, self.number)
        # Many batches are gathered at once and then only cut apart: for a single one, threads
        # would spend more time on waiting for each other than on copying.
        bytes_per_batch = batch_size * math.prod(samples.images.shape[1:]) * samples.images.itemsize
        at_once = max(1, _GATHERED_AT_ONCE // bytes_per_batch)
        for some in torch.split(order[skip * batch_size :], at_once * batch_size):
            yield from samples[some].split(batch_size)

    def monitored(self) -> Samples:
        """The monitored samples of every class known so far, under its present concept."""
        return self._stream.samples("monitored", self.known_classes, self.number)

    def reference(self, label: int) -> Samples:
        """Reference samples of a class under its present concept; never trained on."""
        return self._stream.samples("reference", [label], self.number)

    def incoming(self, label: int) -> Samples:
        """Training samples of a class under its present concept, whose labels can be asked for."""
        return self._stream.samples("train", [label], self.number)

    def classes_by_task(self) -> list[tuple[int, ...]]:
        """The classes that each task up to this one brought."""
        return list(self._stream.schedule.tasks[: self.number])

    def tests(self) -> Samples:
        """The scoring samples of every class seen, this task's included, as they are now."""
        return self._stream.samples("test", (*self.known_classes, *self.new_classes), self.number)
