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
class Edition:
    """A network as it was when it was published; it changes only while nobody reads it."""

    network: nn.Module
    silent: Tensor
    """bool (outputs,): the classes that must not be predicted"""
    readers: int = field(default=0)
    tensors: list[Tensor] = field(init=False)
    """its weights and statistics; finding them takes longer than copying those of an MLP"""

    def __post_init__(self) -> None:
        self.tensors = _tensors_of(self.network)


class Published:
    """Copies of a network: readers ask the newest, the writer renews one that nobody asks.

    Neither ever waits for the other for longer than it takes to count. There are as many copies as
    readers hold on to at once, and two more.
    """

    def __init__(self, network: nn.Module, answers: Tensor) -> None:
        self._lock = threading.Lock()
        self._newest = _edition(network, answers)
        self._old: list[Edition] = []

    def renew(self, network: nn.Module, answers: Tensor) -> None:
        """From now on readers get the network as it is."""
        with self._lock:
            # One that is not the newest and has no reader can get none any more.
            unread = next((each for each in self._old if not each.readers), None)
            self._old = [each for each in self._old if each.readers]
        if unread is None or not _take_on(unread.tensors, _tensors_of(network)):
            unread = _edition(network, answers)
        unread.silent = ~answers
        with self._lock:
            self._old.append(self._newest)
            self._newest = unread

    def go_on_in_fork(self) -> None:
        """Be free of readers that are no more."""
        self._lock = threading.Lock()
        for edition in (self._newest, *self._old):
            edition.readers = 0

    @property
    def newest(self) -> nn.Module:
        """The network as it was published last, for whoever renews it."""
        return self._newest.network

    @contextlib.contextmanager
    def reading(self) -> Iterator[Edition]:
        """A network that stays as it is for as long as it is used."""
        with self._lock:
            mine = self._newest
            mine.readers += 1
        try:
            yield mine
        finally:
            with self._lock:
                mine.readers -= 1


def _edition(network: nn.Module, answers: Tensor) -> Edition:
    copied = copy.deepcopy(network).requires_grad_(False).eval()
    return Edition(network=copied, silent=~answers)


def _tensors_of(network: nn.Module) -> list[Tensor]:
    return [*network.parameters(), *network.buffers()]


@torch.no_grad()
def _take_on(mine: list[Tensor], theirs: list[Tensor]) -> bool:
    """Copy all weights and statistics; False: a head has grown, and the shapes differ."""
    if any(kept.shape != new.shape for kept, new in zip(mine, theirs, strict=True)):
        return False
    if mine:
        torch._foreach_copy_(mine, theirs)
    return True
