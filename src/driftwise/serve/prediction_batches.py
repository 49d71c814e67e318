"""Requests that wait for a prediction are predicted together."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from starlette.concurrency import run_in_threadpool

SAMPLES_TOGETHER = 64
"""of requests that are predicted together; a larger request has a thread of its own"""

Predict = Callable[[np.ndarray], np.ndarray]
"""Samples to probabilities, (samples, outputs); UserError for samples that do not fit."""


class _Waiting(NamedTuple):
    predict: Predict
    x: np.ndarray
    future: Future[np.ndarray]

    def fits(self, other: _Waiting) -> bool:
        """Whether both can be predicted together."""
        same = self.x.shape[1:] == other.x.shape[1:] and self.x.dtype == other.x.dtype
        return same and self.predict == other.predict

    def answer(self) -> None:
        try:
            found = self.predict(self.x)
        except BaseException as error:  # a network of the user's may raise anything
            self.future.set_exception(error)
        else:
            self.future.set_result(found)


class Batches:
    """One thread predicts; what comes meanwhile is predicted together, by the next call.

    A call for four images takes half the time of four calls, and one thread leaves the other
    processors to learning.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Waiting] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="predictions", daemon=True).start()

    async def predict(self, predict: Predict, x: np.ndarray) -> np.ndarray:
        """What `predict` gives for these samples, alone or together with others."""
        if len(x) > SAMPLES_TOGETHER or x.ndim < 2:
            return await run_in_threadpool(predict, x)
        future: Future[np.ndarray] = Future()
        future.set_running_or_notify_cancel()
        self._queue.put(_Waiting(predict, x, future))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        held: _Waiting | None = None
        while True:
            first, held = held or self._queue.get(), None
            group, samples = [first], len(first.x)
            while samples < SAMPLES_TOGETHER and held is None:
                try:
                    other = self._queue.get_nowait()
                except queue.Empty:
                    break
                if first.fits(other):
                    group.append(other)
                    samples += len(other.x)
                else:
                    held = other
            _answer(group)


def _answer(group: list[_Waiting]) -> None:
    if len(group) > 1:
        try:
            found = group[0].predict(np.concatenate([each.x for each in group]))
        except BaseException:  # of one of them: each gets its own answer
            pass
        else:
            ends = np.cumsum([len(each.x) for each in group])
            for each, part in zip(group, np.split(found, ends[:-1]), strict=True):
                each.future.set_result(part)
            return
    for each in group:
        each.answer()
