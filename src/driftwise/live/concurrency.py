"""Predictions from other threads: snapshots of the network, and who goes first."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

# Snapshots


@dataclass(kw_only=True, eq=False)
class Snapshot:
    """A copy of a network; it changes only while nobody reads it."""

    network: nn.Module
    masked: Tensor
    """bool (outputs,): the classes that must not be predicted"""
    readers: int = 0
    tensors: _Tensors = field(init=False)
    """kept, because to find them takes longer than to copy those of an MLP"""

    def __post_init__(self) -> None:
        self.network = copy.deepcopy(self.network).requires_grad_(False).eval()
        self.tensors = _Tensors.of(self.network)


class NetworkSnapshots:
    """Readers use the newest snapshot; the writer overwrites one that has no readers.

    Neither waits for the other. There are at most two more snapshots than readers.
    """

    def __init__(self, network: nn.Module, predictable: Tensor) -> None:
        """`predictable`: bool (outputs,), the classes that may be predicted."""
        self._lock = threading.Lock()
        self._newest = Snapshot(network=network, masked=~predictable)
        self._older: list[Snapshot] = []

    def renew(self, network: nn.Module, predictable: Tensor, *, decay: float = 0.0) -> None:
        """Make a newest snapshot: `decay` x the last one + (1 - `decay`) x the network.

        A network whose head has grown is copied as it is.
        """
        with self._lock:
            # A snapshot that is not the newest and has no reader will never get one.
            free = next((each for each in self._older if not each.readers), None)
            self._older = [each for each in self._older if each.readers]
        new, last = _Tensors.of(network), self._newest.tensors
        has_grown = not new.same_shapes(last)
        if free is None or has_grown or not new.same_shapes(free.tensors):
            free = Snapshot(network=network, masked=~predictable)
        free.tensors.set_average(new, last, 0.0 if has_grown else decay)
        free.masked = ~predictable
        with self._lock:
            self._older.append(self._newest)
            self._newest = free

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

    def reset_in_fork(self) -> None:
        """Forget readers: their threads do not exist in a fork."""
        self._lock = threading.Lock()
        for snapshot in (self._newest, *self._older):
            snapshot.readers = 0


@dataclass(frozen=True)
class _Tensors:
    """The tensors of a network: weights and batch statistics are averaged, others copied."""

    averaged: list[Tensor]
    copied: list[Tensor]

    @staticmethod
    def of(network: nn.Module) -> _Tensors:
        tensors = _Tensors([], [])
        for weights in network.parameters():
            (tensors.averaged if weights.is_floating_point() else tensors.copied).append(weights)
        for name, values in network.named_buffers():
            is_statistic = name.endswith(("running_mean", "running_var"))
            (tensors.averaged if is_statistic else tensors.copied).append(values)
        return tensors

    def same_shapes(self, other: _Tensors) -> bool:
        """Whether all shapes agree; they do not once a head has grown."""
        tensors = (self.averaged + self.copied, other.averaged + other.copied)
        return all(mine.shape == theirs.shape for mine, theirs in zip(*tensors, strict=True))

    @torch.no_grad()
    def set_average(self, new: _Tensors, last: _Tensors, decay: float) -> None:
        """Overwrite these with `decay` x last + (1 - `decay`) x new."""
        if self.copied:
            torch._foreach_copy_(self.copied, new.copied)
        if self.averaged:
            torch._foreach_copy_(self.averaged, last.averaged if decay else new.averaged)
        if decay and self.averaged:
            torch._foreach_lerp_(self.averaged, new.averaged, 1 - decay)


# Priority


class FastSwitching:
    """While a thread is inside, the interpreter switches threads after 0.1 ms.

    By default Python lets a busy thread run for 5 ms before another one gets the interpreter: many
    times what the prediction of a small network takes.
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
    """Predictions come first, and learning is guaranteed a share of the processor time.

    A thread requests the interpreter after every operation on tensors, some twenty times in a
    small network's prediction. It waits for that while another thread learns, so the learning
    thread yields between operations. Of the time that learning and predictions use together,
    learning is owed its share: once it has too little it stops yielding, and new predictions wait
    until it has caught up.
    """

    YIELD_SECONDS = 1e-3
    """longest pause of the learning thread at a time: small networks have predicted by then, and
    large ones do not wait for the interpreter"""
    DEBT_SECONDS = 2e-3
    """processor time owed to learning at which predictions wait"""
    MAX_WAIT_SECONDS = 0.1
    """longest wait of a prediction for learning"""
    IDLE_WAIT_SECONDS = 5e-3
    """the same between two batches: there may be no next one"""
    MAX_DEBT, MAX_CREDIT = 0.1, 0.02
    """seconds of processor time: neither side pays for what is long past"""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """of predictions alone: a learning thread must not queue for it"""
        self._predictions = 0
        self._no_predictions = threading.Event()
        self._keep_until = 0.0
        """time until which the learning thread does not yield again"""
        self._learning: list[_LearningThread] = []
        self._owed = 0.0
        """seconds of processor time owed to learning; an update lost in a race does no harm"""
        self._counting = threading.Lock()
        """whoever does not get it at once leaves the counting to who has it"""
        self._may_begin = threading.Event()
        self._may_begin.set()
        self._thread = threading.local()

    def __enter__(self) -> None:
        with self._lock:
            self._predictions += 1
            self._no_predictions.clear()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._predictions -= 1
            if not self._predictions:
                self._no_predictions.set()

    @contextlib.contextmanager
    def predicting(self) -> Iterator[None]:
        """A whole prediction, input checks included; it begins when learning has caught up."""
        if not self._may_begin.is_set():
            self._wait_for_learning()
        began = time.thread_time()
        try:
            yield
        finally:
            if share := self._share:
                used = time.thread_time() - began
                self._owed = min(self._owed + share * used, self.MAX_DEBT)
                if self._owed >= self.DEBT_SECONDS:
                    self._may_begin.clear()

    def _wait_for_learning(self) -> None:
        seconds = self.MAX_WAIT_SECONDS if self._learning else self.IDLE_WAIT_SECONDS
        until = time.monotonic() + seconds
        # A step of a large network yields seldom: its time is counted from here, too.
        while self._update_debt() and (left := until - time.monotonic()) > 0:
            if self._may_begin.wait(min(left, max(self._owed, self.YIELD_SECONDS))):
                return
        if not self._learning:
            self._may_begin.set()

    @contextlib.contextmanager
    def learning(self, share: float) -> Iterator[None]:
        """This thread learns, and is owed a share of the time that both kinds use."""
        mine = self._thread.mine = _LearningThread(share)
        self._begin(mine)
        try:
            yield
        finally:
            self._thread.mine = None
            self._end(mine)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """This thread waits for something else and is owed nothing meanwhile."""
        mine: _LearningThread | None = getattr(self._thread, "mine", None)
        if mine is None:
            yield
            return
        self._end(mine)
        try:
            yield
        finally:
            self._begin(mine)

    def yield_to_predictions(self) -> None:
        """Let running predictions finish; at most half of the time, however many there are."""
        if not self._may_begin.is_set() and self._update_debt():
            return
        if not self._predictions or (began := time.monotonic()) < self._keep_until:
            return
        self._no_predictions.wait(self.YIELD_SECONDS)
        ended = time.monotonic()
        self._keep_until = ended + (ended - began)

    @property
    def _share(self) -> float:
        return max((each.share for each in self._learning), default=0.0)

    def _begin(self, mine: _LearningThread) -> None:
        mine.used()
        self._learning.append(mine)
        if self._owed >= self.DEBT_SECONDS:
            self._may_begin.clear()

    def _end(self, mine: _LearningThread) -> None:
        self._update_debt()
        self._learning.remove(mine)

    def _update_debt(self) -> bool:
        """Subtract what learning has used since the last update; whether any debt is left."""
        if self._counting.acquire(blocking=False):
            try:
                used = sum(each.used() for each in tuple(self._learning))
                self._owed = max(self._owed - (1 - self._share) * used, -self.MAX_CREDIT)
            finally:
                self._counting.release()
        if self._owed <= 0:
            self._may_begin.set()
        return self._owed > 0


class _LearningThread:
    """The thread that made it, and how much processor time it has used."""

    def __init__(self, share: float) -> None:
        self.share = share
        self._identity = threading.get_ident()
        # Where there is no such clock (macOS), its time is counted when it yields.
        clock_of = getattr(time, "pthread_getcpuclockid", None)
        self._clock: int | None = None if clock_of is None else clock_of(self._identity)
        self._counted = 0.0

    def used(self) -> float:
        """Seconds since the last call."""
        if self._clock is not None:
            try:
                now = time.clock_gettime(self._clock)
            except OSError:  # the thread has just ended
                return 0.0
        elif threading.get_ident() == self._identity:
            now = time.thread_time()
        else:
            return 0.0
        used, self._counted = now - self._counted, now
        return used


# One of each for all live learners: there is one interpreter.
FAST_SWITCHING = FastSwitching()
PREDICTIONS_FIRST = PredictionPriority()


def _reset_in_fork() -> None:
    """Forget other threads: they do not exist in a fork."""
    if FAST_SWITCHING._inside:
        sys.setswitchinterval(FAST_SWITCHING._before)
    FAST_SWITCHING.__init__()  # type: ignore[misc]
    PREDICTIONS_FIRST.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_fork)


def yield_to_predictions() -> None:
    """Let running predictions finish first."""
    PREDICTIONS_FIRST.yield_to_predictions()
