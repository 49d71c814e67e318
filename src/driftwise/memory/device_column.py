"""A column of the replay buffer in the memory of a device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from driftwise.devices import to_device
from driftwise.memory.policies import Ints


class DeviceColumn:
    """A value of one shape and dtype for every slot, (capacity, ...), on a device.

    Does what `buffer.Column` does for the host's memory; only slot numbers travel.
    """

    def __init__(self, like: Tensor, capacity: int, device: torch.device) -> None:
        """For values such as `like`, (samples, ...)."""
        self._values = torch.zeros(
            (capacity, *like.shape[1:]), dtype=like.dtype, device=device, requires_grad=False
        )

    def convert(self, name: str, values: Tensor, samples: int) -> Tensor:
        """The values, where they are; ValueError for another shape or dtype."""
        expected = (samples, *self._values.shape[1:])
        if values.dtype is not self._values.dtype or values.shape != expected:
            raise ValueError(
                f"expected {name} of {self._values.dtype} and shape {expected}, like the first "
                f"samples; got {values.dtype} and {tuple(values.shape)}"
            )
        return values.detach()

    def write(self, slots: Ints, values: Tensor) -> None:
        """Copy values, (samples, ...), into `slots`; the last one of a slot stays."""
        _, back = np.unique(slots[::-1], return_index=True)  # a device writes in any order
        if len(back) < len(slots):
            last = len(slots) - 1 - back
            slots, values = slots[last], values[to_device(torch.from_numpy(last), values.device)]
        self._values[self._sent(slots)] = to_device(values, self._values.device)

    def read(self, slots: Ints) -> Tensor:
        """A copy of the values in `slots`, (samples, ...), on the device."""
        return self._values.index_select(0, self._sent(slots))

    def widened(self, width: int) -> DeviceColumn:
        """A copy with `width` numbers per sample, 0 at first; itself unless it has fewer."""
        capacity, *shape = self._values.shape
        if len(shape) != 1 or shape[0] >= width:
            return self
        like = torch.empty((0, width), dtype=self._values.dtype)
        wider = DeviceColumn(like, capacity, self._values.device)
        wider._values[:, : shape[0]] = self._values
        return wider

    def _sent(self, slots: Ints) -> Tensor:
        return to_device(torch.from_numpy(slots), self._values.device)
