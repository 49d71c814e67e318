"""The memory: what is kept of the samples that went by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from driftwise import allocation, rng
from driftwise.errors import UserError
from driftwise.memory.draws import Draws, Picks
from driftwise.memory.policies import Policy
from driftwise.memory.slots import Ints, Slots
from driftwise.types import Extras, Samples

_Array: TypeAlias = npt.NDArray[Any]
_NO_EXTRAS: Extras = MappingProxyType({})
_EXTRA = "extras."
"""Marks the columns that a method brought, beside those every sample has."""
_STATE_KEYS = ("policy", "capacity", "seen", "slots", "columns", "generators")
_FORMER_KEYS = ("step", "steps")
"""which states of earlier versions have, and nobody reads"""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Samples as the memory gives them back; every field has one entry per sample."""

    samples: Samples
    extras: dict[str, Tensor]
    """the columns that were offered beside the samples"""

    def __len__(self) -> int:
        return len(self.samples)


class ReplayBuffer:
    """A fixed number of slots for samples, kept as they came (uint8 images, float vectors).

    The first samples decide shapes, dtypes and extra columns; all later ones must bring the same.

    >>> from driftwise.memory.policies import Reservoir
    >>> column = torch.arange(6)
    >>> images = torch.zeros(6, 2, 2, 3, dtype=torch.uint8)
    >>> memory = Memory(4, policy=Reservoir(), seed=0)
    >>> memory.offer(Samples(images=images, labels=column % 2, ids=column, concepts=column * 0))
    >>> len(memory), memory.seen, len(memory.sample(3))
    (4, 6, 3)
    """

    def __init__(self, capacity: int, *, policy: Policy, seed: int) -> None:
        if capacity < 1:
            raise UserError(f"buffer_size must be at least 1 sample; got {capacity}")
        self._policy = policy
        self._slots = Slots(capacity)
        self._seen = 0
        self._columns: dict[str, _Column] = {}
        self._extra_columns: dict[str, _Column] = {}
        self._draws = Draws(rng.fork(seed, "memory", "offer"))
        self._picks = Picks(rng.fork(seed, "memory", "sample"))

    @property
    def capacity(self) -> int:
        """Slots in all."""
        return self._slots.capacity

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def free(self) -> int:
        """Slots without a sample."""
        return self.capacity - len(self)

    @property
    def seen(self) -> int:
        """Samples offered so far; dropping and putting do not count."""
        return self._seen

    def offer(self, samples: Samples, extras: Extras = _NO_EXTRAS) -> None:
        """Let the policy keep what it wants of a batch."""
        labels = samples.labels.numpy()
        if not len(labels):
            return
        incoming = self._admit(samples, extras, len(labels))
        slots, kept = self._policy.place(self._slots, labels, seen=self._seen, draws=self._draws)
        self._seen += len(labels)
        if kept is None or len(kept):
            for column, values in incoming:
                column.write(slots, values, kept)

    def put(self, samples: Samples, extras: Extras = _NO_EXTRAS) -> None:
        """Fill free slots, lowest first; the policy is not asked and `seen` stays."""
        if len(samples) > self.free:
            raise ValueError(
                f"expected at most {self.free} samples, one per free slot; got {len(samples)}: "
                "drop a class first"
            )
        if len(samples) == 0:
            return
        incoming = self._admit(samples, extras, len(samples))
        slots = np.sort(self._slots.free)[: len(samples)]
        self._slots.write(slots, samples.labels.numpy())
        for column, values in incoming:
            column.write(slots, values)

    def drop(self, label: int, only: Tensor | None = None) -> int:
        """Free the slots of one class; how many there were.

        `only`, a mask over the class's samples as `rows_of` gives them, limits it to some of them.
        """
        slots = self._slots.of_class(label)
        if only is not None:
            slots = slots[only.numpy()]
        self._slots.release(slots)
        return len(slots)

    def sample(self, count: int) -> Stored:
        """Draw min(count, len) samples without replacement, every subset equally likely."""
        slots = self._draw(count)
        return Stored(samples=self._samples(slots), extras=self._extras(slots))

    def recall(self, count: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """What a training step needs of a `sample`: its images, labels and extras.

        The same draw; not reading the rest spares a third of its time.
        """
        slots = self._draw(count)
        labels = torch.from_numpy(self._slots.labels[slots])
        return self._columns["images"].read(slots), labels, self._extras(slots)

    def _draw(self, count: int) -> Ints:
        if count < 0:
            raise ValueError(f"expected a count of at least 0 samples; got {count}")
        held = len(self._slots)
        return self._slots.order[self._picks.take(min(count, held), held)]

    def _extras(self, slots: Ints) -> dict[str, Tensor]:
        return {name: column.read(slots) for name, column in self._extra_columns.items()}

    def widen(self, width: int) -> None:
        """Columns of one number per class get more of them, 0 in every sample that is there."""
        wider = {name: column.widened(width) for name, column in self._extra_columns.items()}
        self._take_columns(self._columns | {_EXTRA + name: each for name, each in wider.items()})

    def counts(self) -> dict[int, int]:
        """Samples per class, in ascending order, only classes with samples."""
        return self._slots.counts()

    def samples_of(self, label: int) -> Samples:
        """The samples of one class, in slot order."""
        return self._samples(self._slots.of_class(label))

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that changes; free slots take no room in it."""
        slots = self._slots.occupied
        return {
            "policy": self._policy.name,
            "capacity": self.capacity,
            "seen": self._seen,
            "slots": self._slots.state_dict(),
            "columns": {name: column.read(slots) for name, column in self._columns.items()},
            "generators": {
                "offer": self._draws.get_state(),
                "sample": self._picks.get_state(),
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the memory that `state` was taken from, with this policy and capacity."""
        _check_state(state, policy=self._policy.name, capacity=self.capacity)
        self._slots.load_state_dict(state["slots"])
        self._seen = state["seen"]
        slots = self._slots.occupied
        self._take_columns(self._columns_like(state["columns"]))
        for name, values in state["columns"].items():
            column = self._columns[name]
            column.write(slots, column.admit(name, values, len(slots)))
        self._draws.set_state(state["generators"]["offer"])
        self._picks.set_state(state["generators"]["sample"])

    def _columns_like(self, values: Mapping[str, Tensor]) -> dict[str, _Column]:
        return {name: _Column(like, self.capacity) for name, like in values.items()}

    def _take_columns(self, columns: dict[str, _Column]) -> None:
        self._columns = columns
        self._extra_columns = {
            name.removeprefix(_EXTRA): column
            for name, column in columns.items()
            if name.startswith(_EXTRA)
        }

    def _admit(
        self, samples: Samples, extras: Extras, num_samples: int
    ) -> list[tuple[_Column, _Array]]:
        """What is to be written where, if it is what the memory keeps; the first samples decide."""
        incoming = {"images": samples.images, "ids": samples.ids, "concepts": samples.concepts}
        for name, values in extras.items():
            incoming[_EXTRA + name] = values
        columns = self._columns
        if not columns:
            _check_lengths(incoming, num_samples)
            columns = self._columns_like(incoming)
        if incoming.keys() != columns.keys():
            raise ValueError(
                f"expected the columns {', '.join(columns)}, as at first; got {', '.join(incoming)}"
            )
        admitted = [
            (column, column.admit(name, incoming[name], num_samples))
            for name, column in columns.items()
        ]
        if columns is not self._columns:
            self._take_columns(columns)
        return admitted

    def _samples(self, slots: Ints) -> Samples:
        labels = torch.from_numpy(self._slots.labels[slots])
        if not self._columns:  # nothing has come yet: no samples, and nobody knows their shape
            return Samples(
                images=labels.to(torch.uint8), labels=labels, ids=labels, concepts=labels
            )
        return Samples(
            images=self._columns["images"].read(slots),
            labels=labels,
            ids=self._columns["ids"].read(slots),
            concepts=self._columns["concepts"].read(slots),
        )


class _Column:
    """One value per slot, and one for the slot that is nobody's, of one shape and dtype.

    Kept in numpy, which reads and writes whole samples by their numbers where torch goes element by
    element. What is not integers is kept as integers of the same width: numpy does not know all of
    torch's dtypes, and integers carry no graph. A large column lies in a file.
    """

    def __init__(self, like: Tensor, capacity: int) -> None:
        """For values such as these, (samples, ...)."""
        if like.itemsize not in _SAME_WIDTH:
            raise ValueError(f"expected numbers of at most 8 bytes each; got {like.dtype}")
        self._dtype = like.dtype
        self._shape = tuple(like.shape[1:])
        is_plain = like.dtype in (torch.uint8, torch.int64)
        self._stand_in = like.dtype if is_plain else _SAME_WIDTH[like.itemsize]
        self._values = allocation.allocate((capacity + 1, *self._shape), self._stand_in).numpy()
        sample_bytes = max(1, math.prod(self._shape) * self._dtype.itemsize)
        self._most_at_once = allocation.MOST_IN_MEMORY // sample_bytes

    def admit(self, name: str, values: Tensor, samples: int) -> _Array:
        """The values as they are kept; refused if of another shape or dtype, or not one per sample."""
        if values.dtype is self._dtype:
            kept_as = values if self._stand_in is self._dtype else values.view(self._stand_in)
            array: _Array = (kept_as if kept_as.is_cpu else kept_as.cpu()).numpy()
            if array.shape == (samples, *self._shape):
                return array
        _check_lengths({name: values}, samples)
        raise ValueError(
            f"expected {name} of {self._dtype} {self._shape} per sample, as at first; "
            f"got {values.dtype} {tuple(values.shape[1:])}"
        )

    def widened(self, width: int) -> _Column:
        """One with more entries per sample, all 0; itself, if it keeps no lists of numbers."""
        if len(self._shape) != 1 or self._shape[0] >= width:
            return self
        capacity, before = len(self._values) - 1, self._shape[0]
        wider = _Column(torch.empty((0, width), dtype=self._dtype), capacity)
        wider._values[:, :before] = self._values
        wider._values[:, before:] = 0
        return wider

    def read(self, slots: Ints) -> Tensor:
        """A copy of the values at `slots`, which lies in a file, too, where it is large."""
        if len(slots) <= self._most_at_once:
            values = torch.from_numpy(self._values.take(slots, axis=0))
        else:
            values = allocation.allocate((len(slots), *self._shape), self._stand_in)
            filled = values.numpy()
            for start in range(0, len(slots), _SLOTS_AT_ONCE):
                some = slots[start : start + _SLOTS_AT_ONCE]
                filled[start : start + len(some)] = self._values[some]
        return values if self._stand_in is self._dtype else values.view(self._dtype)

    def write(self, slots: Ints | slice, values: _Array, kept: Ints | None = None) -> None:
        """Copy admitted values, or those at the ascending positions `kept`, into `slots`."""
        self._values[slots] = values if kept is None else values.take(kept, axis=0)


_SLOTS_AT_ONCE = 4096
"""of a large copy, so that nothing large lies in plain memory on the way"""
_SAME_WIDTH = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _check_lengths(columns: Mapping[str, Tensor], samples: int) -> None:
    for name, values in columns.items():
        if values.shape[0] != samples:
            raise ValueError(
                f"expected {samples} entries in {name}, one per sample; got {len(values)}"
            )


def _check_state(state: Mapping[str, Any], *, policy: str, capacity: int) -> None:
    """Refuse a state that is not one of such a memory."""
    if set(state) - set(_FORMER_KEYS) != set(_STATE_KEYS):
        raise ValueError(f"expected memory state {sorted(_STATE_KEYS)}; got {sorted(state)}")
    for name, mine in (("policy", policy), ("capacity", capacity)):
        if state[name] != mine:
            raise ValueError(f"expected a memory state of {name} {mine!r}; got {state[name]!r}")
    _check_lengths(state["columns"], len(state["slots"]["labels"]))
