"""Whose turn it is, among threads that share an interpreter."""

from __future__ import annotations

import os
import sys
import threading
import time


class QuickTurns:
    """While anybody is inside, a thread that wants to go on does not wait long for its turn.

    Python lets a busy thread keep the interpreter for 5 ms before another one gets it: many times
    what a small network's prediction takes.
    """

    SECONDS = 1e-4

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self.SECONDS, self._before))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._before)


class Courtesy:
    """Whoever is inside goes first: others that are busy give way between their operations.

    A thread asks for the interpreter anew after every operation on tensors, some twenty times in a
    small network's prediction. That is what it waits for while another one learns.
    """

    SECONDS = 1e-3
    """for which one gives way at a time: small networks have answered by then, and for large ones
    the interpreter is not what counts"""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._nobody = threading.Event()
        self._own_until = 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self._nobody.clear()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._nobody.set()

    def give_way(self) -> None:
        """Let whoever is inside finish first; for half of the time at most, however many come."""
        if not self._inside or (began := time.monotonic()) < self._own_until:
            return
        self._nobody.wait(self.SECONDS)
        ended = time.monotonic()
        self._own_until = ended + (ended - began)


QUICK_TURNS = QuickTurns()
"""the one for all keepers: the interpreter has one setting"""
PREDICTIONS_FIRST = Courtesy()
"""the one for all keepers: there is one interpreter"""


def _go_on_in_fork() -> None:
    """Nobody is inside any more: other threads are not in a fork."""
    if QUICK_TURNS._inside:
        sys.setswitchinterval(QUICK_TURNS._before)
    QUICK_TURNS.__init__()  # type: ignore[misc]
    PREDICTIONS_FIRST.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_go_on_in_fork)


def give_way() -> None:
    """Let predictions go first."""
    PREDICTIONS_FIRST.give_way()
