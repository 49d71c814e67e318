"""Whose turn it is, among threads that share an interpreter."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator


class FastSwitching:
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


class PredictionPriority:
    """Predictions go first, and learning has a share of the processor's time for certain.

    A thread asks for the interpreter anew after every operation on tensors, some twenty times in a
    small network's prediction. That is what it waits for while another one learns, so that whoever
    learns gives way between operations. Of what learning and predicting use together, learning is
    owed its share: once it has too little, it does not give way, and new predictions wait until it
    has caught up.
    """

    SECONDS = 1e-3
    """for which one gives way at a time: small networks have answered by then, and for large ones
    the interpreter is not what counts"""
    SLICE = 2e-3
    """seconds of processor time: when learning is owed so much, it catches up"""
    MOST_SECONDS = 0.1
    """for which a prediction waits until it has, at most"""
    BETWEEN = 5e-3
    """for which it waits between two batches"""
    MOST_OWED, MOST_AHEAD = 0.1, 0.02
    """seconds of processor time that are remembered: neither side pays for what is long past"""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """of those who predict alone: whoever learns must not queue up with them for it"""
        self._inside = 0
        self._nobody = threading.Event()
        self._own_until = 0.0
        self._shares: list[float] = []
        """of those who learn"""
        self._owed = 0.0
        """seconds of processor time that learning has too few; a count that is lost in a race of
        two threads does no harm"""
        self._may_begin = threading.Event()
        self._may_begin.set()
        self._thread = threading.local()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self._nobody.clear()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._nobody.set()

    @contextlib.contextmanager
    def predicting(self) -> Iterator[None]:
        """A prediction, from what it is made of on; it begins when learning has caught up."""
        if not self._may_begin.is_set():
            # Between two batches for a moment only: there may be no other one.
            self._may_begin.wait(self.MOST_SECONDS if self._shares else self.BETWEEN)
            if not self._shares:
                self._may_begin.set()
        began = time.thread_time()
        try:
            yield
        finally:
            if share := max(self._shares, default=0.0):
                used = time.thread_time() - began
                self._owed = min(self._owed + share * used, self.MOST_OWED)
                if self._owed >= self.SLICE:
                    self._may_begin.clear()

    @contextlib.contextmanager
    def learning(self, share: float) -> Iterator[None]:
        """What this thread does in here is learning, and is owed so much of what both use."""
        self._begin(share)
        self._thread.share = share
        try:
            yield
        finally:
            self._thread.share = None
            self._end(share)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """This thread waits for somebody, for which it is owed nothing."""
        share: float | None = getattr(self._thread, "share", None)
        if share is None:
            yield
            return
        self._end(share)
        try:
            yield
        finally:
            self._begin(share)

    def yield_to_predictions(self) -> None:
        """Let whoever is inside finish first; for half of the time at most, however many come."""
        if not self._may_begin.is_set() and self._count_learning():
            return
        if not self._inside or (began := time.monotonic()) < self._own_until:
            return
        self._nobody.wait(self.SECONDS)
        ended = time.monotonic()
        self._own_until = ended + (ended - began)

    def _begin(self, share: float) -> None:
        self._shares.append(share)
        if self._owed >= self.SLICE:
            self._may_begin.clear()
        self._thread.learns_since = time.thread_time()

    def _end(self, share: float) -> None:
        self._count_learning()
        self._shares.remove(share)

    def _count_learning(self) -> bool:
        """Take what this thread has learned since it was counted from what is owed; is any left?"""
        now = time.thread_time()
        used, self._thread.learns_since = now - getattr(self._thread, "learns_since", now), now
        share = max(self._shares, default=0.0)
        self._owed = max(self._owed - (1 - share) * used, -self.MOST_AHEAD)
        if self._owed <= 0:
            self._may_begin.set()
        return self._owed > 0


FAST_SWITCHING = FastSwitching()
"""the one for all live learners: the interpreter has one setting"""
PREDICTIONS_FIRST = PredictionPriority()
"""the one for all live learners: there is one interpreter"""


def _go_on_in_fork() -> None:
    """Nobody is inside any more: other threads are not in a fork."""
    if FAST_SWITCHING._inside:
        sys.setswitchinterval(FAST_SWITCHING._before)
    FAST_SWITCHING.__init__()  # type: ignore[misc]
    PREDICTIONS_FIRST.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_go_on_in_fork)


def yield_to_predictions() -> None:
    """Let predictions go first."""
    PREDICTIONS_FIRST.yield_to_predictions()
