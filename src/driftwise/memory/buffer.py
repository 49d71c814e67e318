"""The replay buffer: a fixed number of samples of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError
from driftwise.memory.column import Column
from driftwise.memory.draws import Draws, Ints
from driftwise.memory.policies import Policy, Reservoir
from driftwise.memory.slots import Slots
from driftwise.types import Extras, Samples

_NO_EXTRAS: Extras = MappingProxyType({})
_EXTRA = "extras."
"""Marks the columns of a method, beside those that every sample has."""
_STATE_KEYS = {"policy", "capacity", "seen", "slots", "columns", "generators"}
_FORMER_KEYS = {"step", "steps"}
"""in states of earlier versions; not used"""


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
    >>> buffer.offer(Samples(images=images, labels=number % 2, ids=number, concepts=number * 0))
    >>> len(buffer), buffer.seen, len(buffer.sample(3))
    (4, 6, 3)
    """

    def __init__(self, capacity: int, *, policy: Policy | None = None, seed: int = 0) -> None:
        """An empty buffer.

        Args:
            capacity: samples at most.
            policy: which samples stay; None: `Reservoir`.
            seed: of what the policy draws and of `sample`, two independent streams.
        """
        if capacity < 1:
            raise UserError(f"capacity must be at least 1 sample; got {capacity}")
        self._policy = policy or Reservoir()
        self._slots = Slots(capacity)
        self._seen = 0
        self._columns: dict[str, Column] = {}
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

    def offer(self, samples: Samples, extras: Extras = _NO_EXTRAS) -> None:
        """Let the policy keep what it wants of a batch, with the extras of each sample."""
        if not len(samples):
            return
        columns, values = self._convert(samples, extras)
        kept, slots = self._policy.place(
            self._slots,
            samples.labels.numpy(),
            seen=self._seen,
            draws=self._draws["offer"],
        )
        self._seen += len(samples)
        self._columns = columns
        if len(kept):
            for name, column in columns.items():
                # Indexing copies the images once more.
                every = values[name]
                column.write(slots, every if len(kept) == len(every) else every[kept])

    def put(self, samples: Samples, extras: Extras = _NO_EXTRAS) -> None:
        """Fill free slots, lowest first, without asking the policy; `seen` stays."""
        if len(samples) > self.free:
            raise ValueError(
                f"expected at most {self.free} samples, one per free slot; got {len(samples)}: "
                "drop a class first"
            )
        if not len(samples):
            return
        self._columns, values = self._convert(samples, extras)
        slots = np.sort(self._slots.free)[: len(samples)]
        self._slots.write(slots, samples.labels.numpy())
        for name, column in self._columns.items():
            column.write(slots, values[name])

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
        held = len(self)
        picks = self._draws["sample"].choose(min(count, held), held)
        slots = self._slots.order[picks]
        extras = {
            name.removeprefix(_EXTRA): column.read(slots)
            for name, column in self._columns.items()
            if name.startswith(_EXTRA)
        }
        return Stored(samples=self._samples(slots), extras=extras)

    def widen(self, width: int) -> None:
        """Extend extras of one number per class to `width` classes, with 0 in stored samples."""
        self._columns = {
            name: column.widened(width) if name.startswith(_EXTRA) else column
            for name, column in self._columns.items()
        }

    def counts(self) -> dict[int, int]:
        """Samples per class, in ascending order, only classes with samples."""
        return self._slots.counts()

    def samples_of(self, label: int) -> Samples:
        """The samples of one class, in slot order."""
        return self._samples(self._slots.of_class(label))

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that changes; free slots take no space in it."""
        slots = self._slots.occupied
        return {
            "policy": self._policy.name,
            "capacity": self.capacity,
            "seen": self._seen,
            "slots": self._slots.state_dict(),
            "columns": {name: column.read(slots) for name, column in self._columns.items()},
            "generators": {use: each.get_state() for use, each in self._draws.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the buffer that `state` was taken from; same policy and capacity."""
        if state.keys() - _FORMER_KEYS != _STATE_KEYS:
            raise ValueError(f"expected buffer state {sorted(_STATE_KEYS)}; got {sorted(state)}")
        for name, own in (("policy", self._policy.name), ("capacity", self.capacity)):
            if state[name] != own:
                raise ValueError(f"expected a buffer state of {name} {own!r}; got {state[name]!r}")
        columns = {name: Column(each, self.capacity) for name, each in state["columns"].items()}
        held = len(state["slots"]["labels"])
        values = {
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

    def _convert(
        self, samples: Samples, extras: Extras
    ) -> tuple[dict[str, Column], dict[str, Any]]:
        """The columns, made for the first samples, and the values to write into them.

        Nothing changes: samples that are refused leave no trace.
        """
        incoming = {"images": samples.images, "ids": samples.ids, "concepts": samples.concepts}
        incoming |= {_EXTRA + name: values for name, values in extras.items()}
        columns = self._columns or {
            name: Column(values, self.capacity) for name, values in incoming.items()
        }
        if incoming.keys() != columns.keys():
            raise ValueError(
                f"expected the columns {', '.join(columns)}, as at first; got {', '.join(incoming)}"
            )
        return columns, {
            name: column.convert(name, incoming[name], len(samples))
            for name, column in columns.items()
        }

    def _samples(self, slots: Ints) -> Samples:
        labels = torch.from_numpy(self._slots.labels[slots])
        if not self._columns:  # no sample has come yet: the shape of images is unknown
            return Samples(
                images=labels.to(torch.uint8), labels=labels, ids=labels, concepts=labels
            )
        images, ids, concepts = (
            self._columns[name].read(slots) for name in ("images", "ids", "concepts")
        )
        return Samples(images=images, labels=labels, ids=ids, concepts=concepts)
