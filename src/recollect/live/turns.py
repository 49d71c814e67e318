"""Whose turn it is, among threads that share an interpreter."""

from __future__ import annotations

import sys
import threading


class QuickTurns:
    """While anybody is inside, a thread that wants to go on does not wait long for its turn.

    Python lets a busy thread keep the interpreter for 5 ms before another one gets it: many times
    what a small network's prediction takes. And it is asked for anew after every operation on
    tensors, some twenty times in a prediction, so whoever is busy gives way between its own.
    """

    SECONDS = 1e-4
    """after which a waiting thread gets the interpreter"""
    COURTESY = 1e-3
    """seconds for which one gives way at a time: small networks have answered by then, and for
    large ones the interpreter is not what counts"""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._nobody = threading.Event()
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self.SECONDS, self._before))
                self._nobody.clear()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._before)
                self._nobody.set()

    def give_way(self) -> None:
        """Let whoever is inside finish first, unless that takes long."""
        if self._inside:
            self._nobody.wait(self.COURTESY)


QUICK_TURNS = QuickTurns()
"""the one for all keepers: the interpreter has one setting"""
