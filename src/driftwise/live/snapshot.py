"""A network that other threads may ask while another one learns."""

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
    """A network as it was when it was published; it changes only while nobody reads it."""

    network: nn.Module
    silent: Tensor
    """bool (outputs,): the classes that must not be predicted"""
    readers: int = field(default=0)
    tensors: _Tensors = field(init=False)
    """finding them takes longer than copying those of an MLP"""

    def __post_init__(self) -> None:
        self.tensors = _tensors_of(self.network)


class NetworkSnapshots:
    """Copies of a network: readers ask the newest, the writer renews one that nobody asks.

    Neither ever waits for the other for longer than it takes to count. There are as many copies as
    readers hold on to at once, and two more.
    """

    def __init__(self, network: nn.Module, answers: Tensor) -> None:
        self._lock = threading.Lock()
        self._newest = _edition(network, answers)
        self._old: list[Snapshot] = []

    def renew(self, network: nn.Module, answers: Tensor, *, kept: float = 0.0) -> None:
        """From now on readers get the network, its weights averaged with those of the newest copy.

        `kept`: the share of the newest copy in it. A network whose head has grown is taken as it
        is.
        """
        with self._lock:
            # One that is not the newest and has no reader can get none any more.
            unread = next((each for each in self._old if not each.readers), None)
            self._old = [each for each in self._old if each.readers]
        theirs, newest = _tensors_of(network), self._newest.tensors
        if not theirs.fits(newest):
            unread, kept = _edition(network, answers), 0.0
        elif unread is None or not theirs.fits(unread.tensors):
            unread = _edition(network, answers)
        unread.tensors.become(theirs, newest, kept)
        unread.silent = ~answers
        with self._lock:
            self._old.append(self._newest)
            self._newest = unread

    def go_on_in_fork(self) -> None:
        """Be free of readers that are no more."""
        self._lock = threading.Lock()
        for snapshot in (self._newest, *self._old):
            snapshot.readers = 0

    @property
    def newest(self) -> nn.Module:
        """The network as it was published last, for whoever renews it."""
        return self._newest.network

    @contextlib.contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """A network that stays as it is for as long as it is used."""
        with self._lock:
            mine = self._newest
            mine.readers += 1
        try:
            yield mine
        finally:
            with self._lock:
                mine.readers -= 1


def _edition(network: nn.Module, answers: Tensor) -> Snapshot:
    copied = copy.deepcopy(network).requires_grad_(False).eval()
    return Snapshot(network=copied, silent=~answers)


@dataclass(frozen=True)
class _Tensors:
    """Of a network: what an average is taken of, weights and batch statistics, and all others."""

    averaged: list[Tensor]
    others: list[Tensor]

    def fits(self, other: _Tensors) -> bool:
        """Whether all shapes are the same; they are not once a head has grown."""
        return all(
            mine.shape == its.shape for mine, its in zip(self.averaged, other.averaged, strict=True)
        )

    @torch.no_grad()
    def become(self, new: _Tensors, old: _Tensors, kept: float) -> None:
        """The average of two networks, of which the old one counts for `kept`."""
        if self.others:
            torch._foreach_copy_(self.others, new.others)
        if self.averaged:
            torch._foreach_copy_(self.averaged, old.averaged if kept else new.averaged)
        if kept and self.averaged:
            torch._foreach_lerp_(self.averaged, new.averaged, 1 - kept)


def _tensors_of(network: nn.Module) -> _Tensors:
    statistics = ("running_mean", "running_var")
    averaged: list[Tensor] = []
    others: list[Tensor] = []
    for weights in network.parameters():
        (averaged if weights.is_floating_point() else others).append(weights)
    for name, tensor in network.named_buffers():
        (averaged if name.endswith(statistics) else others).append(tensor)
    return _Tensors(averaged, others)
