"""The replay buffer: a fixed number of samples of the stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from driftwise import allocation, rng
from driftwise.errors import UserError
from driftwise.memory.device_column import DeviceColumn
from driftwise.memory.policies import Draws, Ints, Policy, Reservoir, Slots
from driftwise.types import Extras, Samples

_Array: TypeAlias = npt.NDArray[Any]
_SAME_WIDTH = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NO_EXTRAS: Extras = MappingProxyType({})
_EXTRA = "extras."
"""Marks the columns of a method, beside those that every sample has."""
_STATE_KEYS = {"policy", "capacity", "seen", "slots", "columns", "generators"}
_FORMER_KEYS = {"step", "steps"}
"""in states of earlier versions; not used"""


class Column:
    """A value of one shape and dtype for every slot, (capacity, ...); a large column lies in a file.

    Kept in numpy, which copies whole samples where torch copies single numbers, and as integers of
    the same width: numpy does not know all of torch's dtypes, and integers carry no graph.
    """

    def __init__(self, like: Tensor, capacity: int) -> None:
        """For values such as `like`, (samples, ...)."""
        if like.itemsize not in _SAME_WIDTH:
            raise ValueError(f"expected numbers of at most 8 bytes each; got {like.dtype}")
        self._dtype = like.dtype
        self._shape = tuple(like.shape[1:])
        is_plain = like.dtype in (torch.uint8, torch.int64)
        self._kept_as = like.dtype if is_plain else _SAME_WIDTH[like.itemsize]
        self._sample_bytes = math.prod(self._shape) * like.itemsize
        self._values = allocation.allocate((capacity, *self._shape), self._kept_as).numpy()

    def check(self, name: str, values: Tensor, samples: int) -> None:
        """ValueError for another shape or dtype than that of the first values."""
        if values.dtype is not self._dtype or values.shape != (samples, *self._shape):
            raise ValueError(
                f"expected {name} of {self._dtype} and shape {(samples, *self._shape)}, like the "
                f"first samples; got {values.dtype} and {tuple(values.shape)}"
            )

    def convert(self, name: str, values: Tensor, samples: int) -> _Array:
        """The values as they are kept, (samples, ...); ValueError for another shape or dtype."""
        self.check(name, values, samples)
        kept_as = values if self._kept_as is self._dtype else values.view(self._kept_as)
        array: _Array = (kept_as if kept_as.is_cpu else kept_as.cpu()).numpy()
        return array

    def write(self, slots: Ints, values: _Array) -> None:
        """Copy converted values, (samples, ...), into `slots`; the last one of a slot stays."""
        self._values[slots] = values

    def read(self, slots: Ints) -> Tensor:
        """A copy of the values in `slots`, (samples, ...); a large copy lies in a file."""
        if len(slots) * self._sample_bytes <= allocation.MOST_IN_MEMORY:
            copy = torch.from_numpy(self._values.take(slots, axis=0))
        else:
            copy = allocation.allocate((len(slots), *self._shape), self._kept_as)
            # With mode="raise", numpy would make a second copy in plain memory.
            np.take(self._values, slots, axis=0, out=copy.numpy(), mode="clip")
        return copy if self._kept_as is self._dtype else copy.view(self._dtype)

    def widened(self, width: int) -> Column:
        """A copy with `width` numbers per sample, 0 at first; itself unless it has fewer."""
        if len(self._shape) != 1 or self._shape[0] >= width:
            return self
        wider = Column(torch.empty((0, width), dtype=self._dtype), len(self._values))
        wider._values[:, : self._shape[0]] = self._values
        wider._values[:, self._shape[0] :] = 0
        return wider


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Samples drawn from a buffer; every field has one entry per sample."""

    samples: Samples
    extras: dict[str, Tensor]
    """the columns that were offered beside the samples"""

    def __len__(self) -> int:
        return len(self.samples)


class ReplayBuffer:
    """Keeps up to `capacity` samples as they came: uint8 images (n, h, w, c) or vectors (n, d).

    The first samples fix shapes, dtypes and extra columns; later samples must bring the same.

    >>> number = torch.arange(6)
    >>> images = torch.zeros(6, 2, 2, 3, dtype=torch.uint8)
    >>> buffer = ReplayBuffer(4)
    >>> samples = Samples(images=images, labels=number % 2, ids=number, concepts=number * 0)
    >>> kept = buffer.offer(samples)
    >>> len(buffer), buffer.seen, len(buffer.sample(3))
    (4, 6, 3)
    """

    def __init__(
        self,
        capacity: int,
        *,
        policy: Policy | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
    ) -> None:
        """An empty buffer.

        Args:
            capacity: samples at most.
            policy: which samples stay; None: `Reservoir`.
            seed: of what the policy draws and of `sample`, two independent streams.
            device: where images and extras are kept and drawn; None: in the host's memory.
        """
        if capacity < 1:
            raise UserError(f"capacity must be at least 1 sample; got {capacity}")
        self._policy = policy or Reservoir()
        self._slots = Slots(capacity)
        self._seen = 0
        self._device = None if device is None else torch.device(device)
        self._columns: dict[str, Column | DeviceColumn] = {}
        self._draws = {use: Draws(rng.fork(seed, "memory", use)) for use in ("offer", "sample")}

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
        """Samples offered so far; `drop` and `put` do not count."""
        return self._seen

    @property
    def device(self) -> torch.device:
        """Where images and extras are kept and drawn."""
        return self._device or torch.device("cpu")

    def offer(self, samples: Samples, extras: Extras = _NO_EXTRAS) -> Ints:
        """Let the policy keep what it wants of a batch, with the extras of each sample.

        Returns the positions of samples that were kept; a later one may have replaced an earlier one.
        """
        labels = samples.labels.numpy()
        if not len(labels):
            return labels
        values = self._convert(samples, extras)
        draws = self._draws["offer"]
        kept, slots = self._policy.place(self._slots, labels, seen=self._seen, draws=draws)
        self._seen += len(labels)
        if len(kept):
            for column, every in values:
                # Indexing copies the images once more.
                column.write(slots, every if len(kept) == len(every) else every[kept])
        return kept

    def put(self, samples: Samples, extras: Extras = _NO_EXTRAS) -> None:
        """Fill free slots, lowest first, without asking the policy; `seen` stays."""
        if len(samples) > self.free:
            raise ValueError(
                f"expected at most {self.free} samples, one per free slot; got {len(samples)}: "
                "drop a class first"
            )
        if not len(samples):
            return
        values = self._convert(samples, extras)
        slots = np.sort(self._slots.free)[: len(samples)]
        self._slots.write(slots, samples.labels.numpy())
        for column, every in values:
            column.write(slots, every)

    def slots_of(self, label: int) -> int:
        """Fresh samples that replace a class completely: as many as it has here."""
        return self.counts().get(label, 0)

    def drop(self, label: int, only: Tensor | None = None) -> int:
        """Free the slots of one class; the number of freed slots.

        `only`, bool (samples of the class,) in the order of `samples_of`, restricts it to some.
        """
        slots = self._slots.of_class(label)
        if only is not None:
            slots = slots[only.numpy()]
        self._slots.release(slots)
        return len(slots)

    def sample(self, count: int) -> Stored:
        """Draw min(count, len) samples without replacement, every subset equally likely."""
        if count < 0:
            raise ValueError(f"expected a count of at least 0 samples; got {count}")
        held = len(self._slots)
        picks = self._draws["sample"].choose(min(count, held), held)
        slots = self._slots.order.take(picks)
        extras = {
            name.removeprefix(_EXTRA): column.read(slots)
            for name, column in self._columns.items()
            if name.startswith(_EXTRA)
        }
        return Stored(samples=self._samples(slots), extras=extras)

    def rewind_point(self) -> Callable[[], None]:
        """Takes back draws that were made since."""
        draws = self._draws["sample"]
        state = draws.get_state()
        return lambda: draws.set_state(state)

    def widen(self, width: int) -> None:
        """Extend extras of one number per class to `width` classes, with 0 in stored samples."""
        self._columns = {
            name: column.widened(width) if name.startswith(_EXTRA) else column
            for name, column in self._columns.items()
        }

    def counts(self) -> dict[int, int]:
        """Samples per class, in ascending order, only classes with samples."""
        labels, counts = np.unique(self._slots.labels[self._slots.occupied], return_counts=True)
        return dict(zip(labels.tolist(), counts.tolist(), strict=True))

    def samples_of(self, label: int) -> Samples:
        """The samples of one class, in slot order; in the host's memory."""
        found = self._samples(self._slots.of_class(label))
        return found if self._device is None else replace(found, images=found.images.cpu())

    def ids_of(self, label: int) -> Tensor:
        """The ids of the samples of one class, in slot order."""
        slots = self._slots.of_class(label)
        return self._columns["ids"].read(slots) if self._columns else torch.from_numpy(slots)

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that changes; free slots take no space in it."""
        slots = self._slots.occupied
        return {
            "policy": self._policy.name,
            "capacity": self.capacity,
            "seen": self._seen,
            "slots": self._slots.state_dict(),
            "columns": {name: column.read(slots).cpu() for name, column in self._columns.items()},
            "generators": {use: each.get_state() for use, each in self._draws.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the buffer that `state` was taken from; same policy and capacity."""
        if state.keys() - _FORMER_KEYS != _STATE_KEYS:
            raise ValueError(f"expected buffer state {sorted(_STATE_KEYS)}; got {sorted(state)}")
        for name, own in (("policy", self._policy.name), ("capacity", self.capacity)):
            if state[name] != own:
                raise ValueError(f"expected a buffer state of {name} {own!r}; got {state[name]!r}")
        columns = {name: self._column(name, each) for name, each in state["columns"].items()}
        held = len(state["slots"]["labels"])
        values: dict[str, Any] = {
            name: column.convert(name, state["columns"][name], held)
            for name, column in columns.items()
        }
        self._slots.load_state_dict(state["slots"])
        self._seen = state["seen"]
        self._columns = columns
        for name, column in columns.items():
            column.write(self._slots.occupied, values[name])
        for use, draws in self._draws.items():
            draws.set_state(state["generators"][use])

    def _column(self, name: str, like: Tensor) -> Column | DeviceColumn:
        if self._device is None or name in ("ids", "concepts"):
            return Column(like, self.capacity)
        return DeviceColumn(like, self.capacity, self._device)

    def _convert(self, samples: Samples, extras: Extras) -> list[tuple[Any, Any]]:
        """The columns, made for the first samples, with the values to write into them.

        Samples that are refused leave no trace.
        """
        incoming = {"images": samples.images, "ids": samples.ids, "concepts": samples.concepts}
        for name, values in extras.items():
            incoming[_EXTRA + name] = values
        columns = self._columns or {
            name: self._column(name, values) for name, values in incoming.items()
        }
        if incoming.keys() != columns.keys():
            raise ValueError(
                f"expected the columns {', '.join(columns)}, as at first; got {', '.join(incoming)}"
            )
        count = len(samples)
        converted = [
            (column, column.convert(name, incoming[name], count))
            for name, column in columns.items()
        ]
        self._columns = columns
        return converted

    def _samples(self, slots: Ints) -> Samples:
        labels = torch.from_numpy(self._slots.labels.take(slots))
        if not self._columns:  # no sample has come yet: the shape of images is unknown
            return Samples(
                images=labels.to(torch.uint8), labels=labels, ids=labels, concepts=labels
            )
        columns = self._columns
        return Samples(
            images=columns["images"].read(slots),
            labels=labels,
            ids=columns["ids"].read(slots),
            concepts=columns["concepts"].read(slots),
        )
