"""Snapshots of a network: other threads predict with one while the network learns."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(kw_only=True, eq=False)
class Snapshot:
    """A copy of a network; it changes only while nobody reads it."""

    network: nn.Module
    masked: Tensor
    """bool (outputs,): the classes that must not be predicted"""
    readers: int = field(default=0)
    tensors: _Tensors = field(init=False)
    """kept, because to find them takes longer than to copy those of an MLP"""

    def __post_init__(self) -> None:
        self.tensors = _tensors_of(self.network)

    @staticmethod
    def of(network: nn.Module, predictable: Tensor) -> Snapshot:
        """A new copy of a network."""
        copied = copy.deepcopy(network).requires_grad_(False).eval()
        return Snapshot(network=copied, masked=~predictable)


class NetworkSnapshots:
    """Readers use the newest snapshot; the writer overwrites one that has no readers.

    Neither waits for the other. There are at most two more snapshots than readers.
    """

    def __init__(self, network: nn.Module, predictable: Tensor) -> None:
        """`predictable`: bool (outputs,), the classes that may be predicted."""
        self._lock = threading.Lock()
        self._newest = Snapshot.of(network, predictable)
        self._older: list[Snapshot] = []

    def renew(self, network: nn.Module, predictable: Tensor, *, decay: float = 0.0) -> None:
        """Make a newest snapshot: `decay` x the last one + (1 - `decay`) x the network.

        A network whose head has grown is copied as it is.
        """
        with self._lock:
            # A snapshot that is not the newest and has no reader will never get one.
            free = next((each for each in self._older if not each.readers), None)
            self._older = [each for each in self._older if each.readers]
        new, last = _tensors_of(network), self._newest.tensors
        if not new.same_shapes(last):
            free, decay = Snapshot.of(network, predictable), 0.0
        elif free is None or not new.same_shapes(free.tensors):
            free = Snapshot.of(network, predictable)
        free.tensors.set_average(new, last, decay)
        free.masked = ~predictable
        with self._lock:
            self._older.append(self._newest)
            self._newest = free

    def reset_in_fork(self) -> None:
        """Forget readers: their threads do not exist in a fork."""
        self._lock = threading.Lock()
        for snapshot in (self._newest, *self._older):
            snapshot.readers = 0

    @property
    def newest(self) -> nn.Module:
        """The newest snapshot's network, for the thread that renews it."""
        return self._newest.network

    @contextlib.contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """The newest snapshot, unchanged until the context is left."""
        with self._lock:
            mine = self._newest
            mine.readers += 1
        try:
            yield mine
        finally:
            with self._lock:
                mine.readers -= 1


@dataclass(frozen=True)
class _Tensors:
    """The tensors of a network: those that are averaged, and those that are copied."""

    averaged: list[Tensor]
    """weights and batch statistics"""
    copied: list[Tensor]

    def same_shapes(self, other: _Tensors) -> bool:
        """Whether all shapes agree; they do not once a head has grown."""
        pairs = zip(self.averaged, other.averaged, strict=True)
        return all(mine.shape == theirs.shape for mine, theirs in pairs)

    @torch.no_grad()
    def set_average(self, new: _Tensors, last: _Tensors, decay: float) -> None:
        """Overwrite these with `decay` x last + (1 - `decay`) x new."""
        if self.copied:
            torch._foreach_copy_(self.copied, new.copied)
        if self.averaged:
            torch._foreach_copy_(self.averaged, last.averaged if decay else new.averaged)
        if decay and self.averaged:
            torch._foreach_lerp_(self.averaged, new.averaged, 1 - decay)


def _tensors_of(network: nn.Module) -> _Tensors:
    averaged: list[Tensor] = []
    copied: list[Tensor] = []
    for weights in network.parameters():
        (averaged if weights.is_floating_point() else copied).append(weights)
    for name, tensor in network.named_buffers():
        is_statistic = name.endswith(("running_mean", "running_var"))
        (averaged if is_statistic else copied).append(tensor)
    return _Tensors(averaged, copied)
