"""A network that other threads may ask while another one learns."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator

from torch import nn


class Published:
    """Copies of a network: readers ask the newest, the writer renews one that nobody asks.

    Neither ever waits for the other for longer than it takes to count.
    """

    def __init__(self, network: nn.Module) -> None:
        self._lock = threading.Lock()
        self._newest = _Copy(network)
        self._spare: list[_Copy] = []

    def renew(self, network: nn.Module) -> None:
        """From now on readers get the network as it is."""
        with self._lock:
            free = [each for each in self._spare if not each.readers]
            fresh = free[0] if free else None
            if fresh is not None:
                self._spare.remove(fresh)
        if fresh is None:
            fresh = _Copy(network)
        else:
            fresh.take_on(network)
        with self._lock:
            self._spare = [each for each in self._spare if each.readers][:MOST]
            self._spare.append(self._newest)
            self._newest = fresh

    @contextlib.contextmanager
    def reading(self) -> Iterator[nn.Module]:
        """A network that stays as it is for as long as it is used."""
        with self._lock:
            mine = self._newest
            mine.readers += 1
        try:
            yield mine.network
        finally:
            with self._lock:
                mine.readers -= 1


MOST = 8
"""copies that slow readers may hold on to before new ones are made no more"""


class _Copy:
    def __init__(self, network: nn.Module) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self.readers = 0

    def take_on(self, network: nn.Module) -> None:
        """The weights as they are; a head that has grown is copied anew."""
        mine, theirs = self.network.state_dict(), network.state_dict()
        if any(mine[name].shape != theirs[name].shape for name in mine):
            self.network = copy.deepcopy(network).requires_grad_(False).eval()
            return
        for name, value in theirs.items():
            mine[name].copy_(value)
