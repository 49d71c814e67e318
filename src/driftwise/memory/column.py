"""One column of a buffer: a value per slot."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from driftwise import allocation
from driftwise.memory.draws import Ints

_Array: TypeAlias = npt.NDArray[Any]
_SAME_WIDTH = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Column:
    """A value of one shape and dtype for every slot, (capacity, ...); a large column lies in a file.

    Kept in numpy, which copies whole samples where torch copies single numbers, and as integers of
    the same width: numpy does not know all of torch's dtypes, and integers carry no graph.
    """

    def __init__(self, like: Tensor, capacity: int) -> None:
        """For values such as `like`, (samples, ...)."""
        if like.itemsize not in _SAME_WIDTH:
            raise ValueError(f"expected numbers of at most 8 bytes each; got {like.dtype}")
        self._dtype = like.dtype
        self._shape = tuple(like.shape[1:])
        is_plain = like.dtype in (torch.uint8, torch.int64)
        self._kept_as = like.dtype if is_plain else _SAME_WIDTH[like.itemsize]
        self._sample_bytes = math.prod(self._shape) * like.itemsize
        self._values = allocation.allocate((capacity, *self._shape), self._kept_as).numpy()

    def convert(self, name: str, values: Tensor, samples: int) -> _Array:
        """The values as they are kept, (samples, ...); ValueError for another shape or dtype."""
        if values.dtype == self._dtype:
            kept_as = values if self._kept_as is self._dtype else values.view(self._kept_as)
            array: _Array = (kept_as if kept_as.is_cpu else kept_as.cpu()).numpy()
            if array.shape == (samples, *self._shape):
                return array
        raise ValueError(
            f"expected {name} of {self._dtype} and shape {(samples, *self._shape)}, like the "
            f"first samples; got {values.dtype} and {tuple(values.shape)}"
        )

    def write(self, slots: Ints, values: _Array) -> None:
        """Copy converted values, (samples, ...), into `slots`; the last one of a slot stays."""
        self._values[slots] = values

    def read(self, slots: Ints) -> Tensor:
        """A copy of the values in `slots`, (samples, ...); a large copy lies in a file."""
        if len(slots) * self._sample_bytes <= allocation.MOST_IN_MEMORY:
            copy = torch.from_numpy(self._values.take(slots, axis=0))
        else:
            copy = allocation.allocate((len(slots), *self._shape), self._kept_as)
            # With mode="raise", numpy would make a second copy in plain memory.
            np.take(self._values, slots, axis=0, out=copy.numpy(), mode="clip")
        return copy if self._kept_as is self._dtype else copy.view(self._dtype)

    def widened(self, width: int) -> Column:
        """A copy with `width` numbers per sample, 0 at first; itself unless it has fewer."""
        if len(self._shape) != 1 or self._shape[0] >= width:
            return self
        wider = Column(torch.empty((0, width), dtype=self._dtype), len(self._values))
        wider._values[:, : self._shape[0]] = self._values
        wider._values[:, self._shape[0] :] = 0
        return wider
