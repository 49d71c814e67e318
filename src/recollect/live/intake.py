"""What comes in from outside: pictures or vectors, and labels for some of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.types import Rows

UNKNOWN = -1
"""the label of a row that nobody has labelled"""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Rows that can be worked with, and those that cannot."""

    rows: Rows
    refused: tuple[int, ...]
    """positions of rows with values that are not finite"""


class Intake:
    """Turns what it is given into rows, each with a number of its own."""

    def __init__(self) -> None:
        self.count = 0
        """rows that have come, refused ones included"""
        self._shape: tuple[int, ...] | None = None
        self._dtype: torch.dtype | None = None

    def take(self, x: Any, y: Any = None) -> Taken:
        """Rows with labels where `y` has them; what has another shape than at first is refused."""
        images = self._images(x)
        labels = _labels(y, len(images))
        ids = torch.arange(self.count, self.count + len(images))
        self.count += len(images)
        rows = Rows(images=images, labels=labels, ids=ids, concepts=torch.zeros_like(ids))
        if images.dtype == torch.uint8:
            return Taken(rows=rows, refused=())
        finite = images.flatten(1).isfinite().all(dim=1)
        refused = tuple((~finite).nonzero().squeeze(1).tolist())
        return Taken(rows=rows[finite] if refused else rows, refused=refused)

    def images(self, x: Any) -> Tensor:
        """Pictures or vectors to be asked about, of the shape that is known, if one is."""
        return self._checked(_tensor(x))

    def _images(self, x: Any) -> Tensor:
        images = self._checked(_tensor(x))
        self._shape, self._dtype = tuple(images.shape[1:]), images.dtype
        return images

    def _checked(self, images: Tensor) -> Tensor:
        if images.dtype == torch.uint8 and images.ndim != 4:
            raise UserError(
                "pictures as bytes are (rows, height, width, channels); got the shape "
                f"{tuple(images.shape)}"
            )
        if images.dtype != torch.uint8 and images.ndim < 2:
            raise UserError(f"expected one row per sample; got the shape {tuple(images.shape)}")
        if self._shape is not None and (tuple(images.shape[1:]), images.dtype) != (
            self._shape,
            self._dtype,
        ):
            raise UserError(
                f"rows were {self._dtype} of shape {self._shape} at first; got {images.dtype} of "
                f"shape {tuple(images.shape[1:])}: resize them, or begin anew"
            )
        return images

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "count": self.count,
            "shape": None if self._shape is None else list(self._shape),
            "bytes": self._dtype == torch.uint8,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self.count = state["count"]
        self._shape = None if state["shape"] is None else tuple(state["shape"])
        self._dtype = torch.uint8 if state["bytes"] else torch.float32


def _tensor(x: Any) -> Tensor:
    """Bytes as they are, all other numbers as single precision; on the CPU, cut from any graph."""
    try:
        values = x.detach().cpu() if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"expected an array or a tensor of numbers; got {type(x).__name__}"
        ) from error
    return values if values.dtype == torch.uint8 else values.float()


def _labels(y: Any, rows: int) -> Tensor:
    """int64 (rows,), UNKNOWN where there is none."""
    if y is None:
        return torch.full((rows,), UNKNOWN)
    if isinstance(y, list | tuple):
        y = [UNKNOWN if label is None else label for label in y]
    try:
        labels = y.detach().cpu() if isinstance(y, Tensor) else torch.as_tensor(np.asarray(y))
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError("labels are whole numbers, None where there is none") from error
    if labels.shape != (rows,):
        raise UserError(
            f"expected a label for each of {rows} rows; got the shape {tuple(labels.shape)}"
        )
    if labels.is_floating_point() and not bool((labels == labels.round()).all()):
        raise UserError("labels are whole numbers, None where there is none")
    labels = labels.to(torch.int64)
    if bool((labels < UNKNOWN).any()):
        raise UserError(f"labels are 0 or more; got {int(labels.min())}")
    return labels
