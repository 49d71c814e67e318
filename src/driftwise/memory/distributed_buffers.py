"""One replay buffer for several processes: the samples and draws that one process would have.

Every process makes the same decisions from the same random numbers, so that only samples travel.
`ReplicatedBuffer` keeps all samples in every process: a draw needs no message. `ShardedBuffer` keeps
each sample in the process that saw it: the memory of a process falls as processes are added.

In both, `offer` takes the samples of this process, `put` takes the same samples in every process, and
`sample` returns the part of a draw that this process is to learn from. Every call is collective.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from driftwise.distributed import Group
from driftwise.memory.buffer import Column, ReplayBuffer, Stored
from driftwise.memory.policies import Policy
from driftwise.memory.prefetch import PrefetchingBuffer
from driftwise.types import Extras, Samples

_NO_EXTRAS: Extras = MappingProxyType({})
_EXTRA = "extras."
_SPARE = 256
"""values that a store keeps beyond those in use before it looks for some to forget"""


class ReplicatedBuffer:
    """A replay buffer of which every process keeps a complete copy."""

    def __init__(
        self,
        capacity: int,
        *,
        group: Group | None = None,
        policy: Policy | None = None,
        seed: int = 0,
    ) -> None:
        """As `ReplayBuffer`; `group`: the processes, by default all of torch.distributed."""
        self._group = group or Group()
        self._whole = ReplayBuffer(capacity, policy=policy, seed=seed)

    def __len__(self) -> int:
        return len(self._whole)

    def __getattr__(self, name: str) -> Any:
        """What is the same in every process: capacity, counts, drop, put, samples_of, state, ..."""
        if name == "_whole":  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self._whole, name)

    def offer(self, samples: Samples, extras: Extras = _NO_EXTRAS) -> None:
        """Offer the samples of all processes, in the order of their ranks."""
        marked = {_EXTRA + name: column for name, column in extras.items()}
        everything = self._group.gather_columns({**vars(samples), **marked})
        columns = {name: everything.pop(_EXTRA + name) for name in extras}
        self._whole.offer(Samples(**everything), columns)

    def sample(self, count: int, *, whole: bool = False) -> Stored:
        """This process's part of a draw of min(count, len) samples without replacement.

        `whole`: all of it, in every process.
        """
        drawn = self._whole.sample(count)
        if whole:
            return drawn
        mine = self._group.share(len(drawn))
        extras = {name: column[mine] for name, column in drawn.extras.items()}
        return Stored(samples=drawn.samples[mine], extras=extras)


class ShardedBuffer:
    """A replay buffer whose samples are kept in the processes that saw them.

    An index of all samples, 40 bytes each, is the same in every process: a `ReplayBuffer` of the
    owner and the number of each sample. A draw sends each process the samples that it is to learn
    from: whose they are does not matter, so that both layouts give the same numbers.
    """

    def __init__(
        self,
        capacity: int,
        *,
        group: Group | None = None,
        policy: Policy | None = None,
        seed: int = 0,
    ) -> None:
        """As `ReplayBuffer`; `group`: the processes, by default all of torch.distributed."""
        self._group = group or Group()
        self._index = ReplayBuffer(capacity, policy=policy, seed=seed)
        self._values = _Values()
        self._next = 0
        """the number of the next sample"""

    def __len__(self) -> int:
        return len(self._index)

    def __getattr__(self, name: str) -> Any:
        """What the index knows: capacity, free, seen, counts, slots_of, drop."""
        if name == "_index":  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self._index, name)

    def offer(self, samples: Samples, extras: Extras = _NO_EXTRAS) -> None:
        """Offer the samples of all processes, in the order of their ranks."""
        columns = self._checked(samples, extras)
        owner = torch.full_like(samples.labels, self._group.rank)
        known = torch.stack([samples.labels, samples.ids, samples.concepts, owner], dim=1)
        everybody = self._group.gather(known)
        numbers = self._numbers(len(everybody))
        kept = self._index.offer(_entries(everybody, numbers))
        mine = (everybody[:, 3] == self._group.rank).nonzero().squeeze(1).numpy()
        positions = np.flatnonzero(np.isin(mine, kept))
        self._store(numbers[mine[positions]], columns, torch.from_numpy(positions))

    def put(self, samples: Samples, extras: Extras = _NO_EXTRAS) -> None:
        """Fill free slots with samples that every process has; each keeps its part of them."""
        columns = self._checked(samples, extras)
        owners = torch.arange(len(samples)) % self._group.size
        known = torch.stack([samples.labels, samples.ids, samples.concepts, owners], dim=1)
        numbers = self._numbers(len(samples))
        self._index.put(_entries(known, numbers))
        mine = (owners == self._group.rank).nonzero().squeeze(1)
        self._store(numbers[mine], columns, mine)

    def sample(self, count: int, *, whole: bool = False) -> Stored:
        """This process's part of a draw of min(count, len) samples without replacement.

        `whole`: all of it, in every process.
        """
        drawn = self._index.sample(count).samples
        if whole or not len(drawn):
            return _stored(drawn, self._gathered(drawn.images))
        size, rank = self._group.size, self._group.rank
        parts = [drawn[self._group.share(len(drawn), other)] for other in range(size)]
        owned = [part.images[part.images[:, 0] == rank, 1] for part in parts]
        send, owners = [len(numbers) for numbers in owned], parts[rank].images[:, 0]
        receive = owners.bincount(minlength=size).tolist()
        back = owners.argsort(stable=True).argsort()  # they come ordered by owner
        mine = self._values.read(torch.cat(owned))
        came = self._group.exchange(mine, send=send, receive=receive)
        return _stored(parts[rank], {name: column[back] for name, column in came.items()})

    def samples_of(self, label: int) -> Samples:
        """The samples of one class, in slot order; the same in every process."""
        found = self._index.samples_of(label)
        return _stored(found, self._gathered(found.images)).samples

    def widen(self, width: int) -> None:
        """Extend extras of one number per class to `width` classes, with 0 in stored samples."""
        self._values.widen(width)

    def state_dict(self) -> dict[str, Any]:
        """All samples, as a `ReplayBuffer` in one process would save them."""
        state = self._index.state_dict()
        if "images" in state["columns"]:
            values = self._gathered(state["columns"]["images"])
            state["columns"] = {**state["columns"], **values}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a buffer of any number of processes; same policy and capacity."""
        self._values, self._next = _Values(), 0
        columns = dict(state["columns"])
        if "images" in columns:
            count = len(columns["images"])
            owners = torch.arange(count) % self._group.size
            numbers = self._numbers(count)
            mine = (owners == self._group.rank).nonzero().squeeze(1)
            heavy = {name: columns.pop(name) for name in list(columns) if name not in _LIGHT}
            self._values.add(numbers[mine], {name: each[mine] for name, each in heavy.items()})
            columns = {"images": torch.stack([owners, numbers], dim=1), **columns}
        self._index.load_state_dict({**state, "columns": columns})

    def _numbers(self, count: int) -> Tensor:
        self._next += count
        return torch.arange(self._next - count, self._next)

    def _checked(self, samples: Samples, extras: Extras) -> dict[str, Tensor]:
        """What is kept of samples, by column; ValueError, before anything changes."""
        columns = {"images": samples.images, **{_EXTRA + name: extras[name] for name in extras}}
        self._values.check(columns, len(samples))
        return columns

    def _store(self, numbers: Tensor, columns: Mapping[str, Tensor], which: Tensor) -> None:
        self._values.add(numbers, {name: column[which] for name, column in columns.items()})
        if len(self._values) > 2 * self.capacity // self._group.size + _SPARE:
            used = [self._index.samples_of(label).images for label in self._index.counts()]
            self._values.keep(torch.cat(used)[:, 1])

    def _gathered(self, entries: Tensor) -> dict[str, Tensor]:
        """The values of index entries, (samples, 2), from all processes, in their order."""
        if not len(entries):  # as all processes know
            return self._values.read(entries.reshape(-1))
        owners = entries[:, 0]
        mine = self._values.read(entries[owners == self._group.rank, 1])
        back = owners.argsort(stable=True).argsort()
        return {name: column[back] for name, column in self._group.gather_columns(mine).items()}


_LIGHT = ("ids", "concepts")
"""columns of a buffer's state that every process keeps of every sample"""


class _Values:
    """The values of numbered samples in this process, in rows that are used again."""

    def __init__(self) -> None:
        self._row_of: dict[int, int] = {}
        self._free: list[int] = []
        self._rows = 0
        self._columns: dict[str, Column] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def check(self, values: Mapping[str, Tensor], samples: int) -> None:
        """ValueError for values unlike the first ones."""
        if self._columns and values.keys() != self._columns.keys():
            raise ValueError(
                f"expected the columns {', '.join(self._columns)}, as at first; got {', '.join(values)}"
            )
        for name, column in self._columns.items():
            column.check(name, values[name], samples)

    def add(self, numbers: Tensor, values: Mapping[str, Tensor]) -> None:
        """Keep values, (samples, ...) by column, under these numbers."""
        if len(numbers) > len(self._free) or not self._columns:
            self._grow(len(numbers), values)
        rows = np.array([self._free.pop() for _ in range(len(numbers))], dtype=np.int64)
        self._row_of.update(zip(numbers.tolist(), rows.tolist(), strict=True))
        for name, column in self._columns.items():
            column.write(rows, column.convert(name, values[name], len(rows)))

    def read(self, numbers: Tensor) -> dict[str, Tensor]:
        """The values of these numbers, by column."""
        rows = np.array([self._row_of[number] for number in numbers.tolist()], dtype=np.int64)
        return {name: column.read(rows) for name, column in self._columns.items()}

    def keep(self, numbers: Tensor) -> None:
        """Forget all others."""
        for number in self._row_of.keys() - set(numbers.tolist()):
            self._free.append(self._row_of.pop(number))

    def widen(self, width: int) -> None:
        """Extend columns of one number per class."""
        self._columns = {
            name: column.widened(width) if name.startswith(_EXTRA) else column
            for name, column in self._columns.items()
        }

    def _grow(self, count: int, values: Mapping[str, Tensor]) -> None:
        old, rows = self._rows, np.arange(self._rows)
        self._rows = max(2 * old, old + count, _SPARE)
        self._free += range(self._rows - 1, old - 1, -1)
        for name, like in values.items():
            grown = Column(like, self._rows)
            if old:
                kept = self._columns[name].read(rows)
                grown.write(rows, grown.convert(name, kept, old))
            self._columns[name] = grown


AnyBuffer: TypeAlias = ReplayBuffer | ReplicatedBuffer | ShardedBuffer | PrefetchingBuffer
"""Of one process or of several."""


def _entries(known: Tensor, numbers: Tensor) -> Samples:
    """Entries of the index: in place of an image, its owner and its number."""
    labels, ids, concepts, owners = (each.contiguous() for each in known.T)
    images = torch.stack([owners, numbers], dim=1)
    return Samples(images=images, labels=labels, ids=ids, concepts=concepts)


def _stored(entries: Samples, values: Mapping[str, Tensor]) -> Stored:
    extras = {name.removeprefix(_EXTRA): values[name] for name in values if name != "images"}
    images = values.get("images", entries.images)
    samples = Samples(
        images=images, labels=entries.labels, ids=entries.ids, concepts=entries.concepts
    )
    return Stored(samples=samples, extras=extras)
