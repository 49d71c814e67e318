"""Draws that are made, and sent to the device, before they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from driftwise.devices import ASYNCHRONOUS, to_device
from driftwise.memory.buffer import Stored
from driftwise.types import Samples

Key = tuple[int, bool | None]
"""how many samples, and whether every process gets all of them"""


class PrefetchingBuffer:
    """A replay buffer in the host's memory whose next draws are on their way to a device.

    After a step, `prefetch` makes the draws that the last one asked for: samples are collected and
    copied while the device still computes. Nothing shows in the numbers: a draw that is not asked
    for after all, or a buffer that changes before, takes the random numbers back.
    """

    def __init__(self, buffer: Any, device: torch.device | str) -> None:
        """`buffer`: of one process or of several."""
        self._buffer = buffer
        self._device = torch.device(device)
        self._copies = _Copies(self._device)
        self._asked: list[Key] = []
        """draws since the last prefetch"""
        self._ahead: deque[tuple[Key, Callable[[], None], Callable[[], Stored]]] = deque()
        """draws made ahead: what they are, how they are taken back, and how they are awaited"""

    def __len__(self) -> int:
        return len(self._buffer)

    def __getattr__(self, name: str) -> Any:
        """What does not depend on draws: capacity, counts, samples_of, ..."""
        return getattr(self._buffer, name)

    def sample(self, count: int, *, whole: bool | None = None) -> Stored:
        """As the buffer itself draws, with samples on the device."""
        key = (count, whole)
        self._asked.append(key)
        if self._ahead and self._ahead[0][0] == key:
            _, _, arrive = self._ahead.popleft()
            return arrive()
        self.rewind()
        return self._copies.send(self._draw(key))()

    def prefetch(self) -> None:
        """Make the draws of the next step, as many and as large as those of the last."""
        self.rewind()
        for key in self._asked:
            take_back = self._buffer.rewind_point()
            self._ahead.append((key, take_back, self._copies.send(self._draw(key))))
        self._asked = []

    def rewind(self) -> None:
        """Take back what was drawn ahead."""
        if self._ahead:
            _, take_back, _ = self._ahead[0]
            take_back()
            self._ahead.clear()

    def offer(self, *samples: Any, **extras: Any) -> Any:
        """As the buffer itself."""
        self.rewind()
        return self._buffer.offer(*samples, **extras)

    def put(self, *samples: Any, **extras: Any) -> None:
        """As the buffer itself."""
        self.rewind()
        self._buffer.put(*samples, **extras)

    def drop(self, label: int, only: Tensor | None = None) -> int:
        """As the buffer itself."""
        self.rewind()
        freed: int = self._buffer.drop(label, only)
        return freed

    def widen(self, width: int) -> None:
        """As the buffer itself."""
        self.rewind()
        self._buffer.widen(width)

    def state_dict(self) -> dict[str, Any]:
        """As the buffer itself: what was drawn ahead is not drawn yet."""
        self.rewind()
        state: dict[str, Any] = self._buffer.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As the buffer itself."""
        self._ahead.clear()
        self._buffer.load_state_dict(state)

    def _draw(self, key: Key) -> Stored:
        count, whole = key
        drawn: Stored = (
            self._buffer.sample(count) if whole is None else self._buffer.sample(count, whole=whole)
        )
        return drawn


class _Copies:
    """Copies to a device, beside what it computes where it can do both at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device) if device.type in ASYNCHRONOUS else None

    def send(self, drawn: Stored) -> Callable[[], Stored]:
        """Begin to copy; what is returned waits for the copy, on the device, and gives it."""
        if self._stream is None:
            sent = self._sent(drawn)
            return lambda: sent
        computing = torch.accelerator.current_stream(self._device)
        torch.accelerator.set_stream(self._stream)
        try:
            sent = self._sent(drawn)
            done = self._stream.record_event()
        finally:
            torch.accelerator.set_stream(computing)

        def arrive() -> Stored:
            here = torch.accelerator.current_stream(self._device)
            here.wait_event(done)
            for column in (sent.samples.images, sent.samples.labels, *sent.extras.values()):
                column.record_stream(here)
            return sent

        return arrive

    def _sent(self, drawn: Stored) -> Stored:
        def send(column: Tensor) -> Tensor:
            return to_device(column, self._device)

        samples = Samples(
            images=send(drawn.samples.images),
            labels=send(drawn.samples.labels),
            ids=drawn.samples.ids,
            concepts=drawn.samples.concepts,
        )
        return Stored(samples=samples, extras={name: send(v) for name, v in drawn.extras.items()})
