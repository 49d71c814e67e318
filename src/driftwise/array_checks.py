"""Arrays from outside: what cannot be taken as it is, is refused and never converted in silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftwise.errors import UserError

_LARGEST = np.iinfo(np.int64).max


def refuse_other_data(data: object, what: str) -> None:
    """UserError for a table, a pair of arrays or the like where a `Dataset` is expected."""
    if not hasattr(data, "images"):
        raise UserError(
            f"{what}: expected a data set of driftwise; got {type(data).__name__}: make one with "
            "datasets.from_table(table, label=NAME), from_arrays(samples, labels), "
            "from_torch(data) or load_own(path)"
        )


def columns_of(x: Any) -> tuple[str, ...] | None:
    """The names of the columns of a pandas or polars data frame; None: it is something else."""
    if hasattr(x, "collect"):
        raise UserError("got a lazy frame; give it as collect() makes it")
    if not hasattr(x, "columns") or not hasattr(x, "__getitem__"):
        return None
    return tuple(map(str, x.columns))


def in_column_order(frame: Any, order: Sequence[str], whose: str) -> np.ndarray:
    """The values of a data frame with these columns, float32 (samples, columns) in this order.

    `whose`: of what these are the columns, for the message where the frame has others.
    """
    names = columns_of(frame) or ()
    if len(set(names)) < len(names) or set(names) != set(order):
        missing = [name for name in order if name not in names]
        more = [name for name in names if names.count(name) > 1 or name not in order]
        raise UserError(
            f"expected a data frame with each of {whose} columns once; "
            + (f"{', '.join(missing[:5])} missing" if missing else "")
            + (" and " if missing and more else "")
            + (f"{', '.join(dict.fromkeys(more[:5]))} too much" if more else "")
        )
    by_name = dict(zip(names, frame.columns, strict=True))
    columns = [np.asarray(frame[by_name[name]]) for name in order]
    for name, values in zip(order, columns, strict=True):
        if values.dtype.kind not in "biuf":
            raise UserError(
                f"expected numbers; column {name!r} of the data frame holds {values.dtype}: "
                "leave it out, or make it numbers"
            )
    if not columns:
        return np.zeros((len(frame), 0), np.float32)
    matrix: np.ndarray = np.column_stack(columns).astype(np.float32)
    return matrix


def refuse_odd(values: object, what: str) -> None:
    """UserError for arrays, tensors, or lists of them, that hide values, have none, or wrap."""
    if isinstance(values, np.ma.MaskedArray):
        raise UserError(
            f"{what}: a masked array hides values that would be used; leave masked samples out and "
            "give the others as a plain array"
        )
    if hasattr(values, "toarray"):
        raise UserError(f"{what}: got a sparse matrix; give it as x.toarray()")
    if isinstance(values, Tensor):
        _refuse_odd_tensor(values, what)
    elif isinstance(values, np.ndarray):
        if values.dtype == np.uint64 and bool((values > _LARGEST).any()):
            raise UserError(f"{what}: {values.max()} is too large; numbers go up to {_LARGEST}")
    elif isinstance(values, list | tuple):
        for each in values:
            if isinstance(each, np.ndarray | Tensor):
                refuse_odd(each, what)


def _refuse_odd_tensor(values: Tensor, what: str) -> None:
    if values.is_nested:
        raise UserError(f"{what}: got a nested tensor; pad it with to_padded_tensor()")
    if values.layout != torch.strided:
        raise UserError(f"{what}: got a sparse tensor; give it as to_dense() makes it")
    if values.is_meta:
        raise UserError(f"{what}: got a tensor on the device meta, which has no values")
    if values.is_quantized:
        raise UserError(f"{what}: got a quantised tensor; give it as dequantize() makes it")
    if values.is_floating_point() and values.dtype.itemsize == 1:
        raise UserError(f"{what}: got {values.dtype}, which nothing computes with; give x.float()")
    if values.dtype == torch.uint64 and bool((values.view(torch.int64) < 0).any()):
        raise UserError(f"{what}: a value is too large; numbers go up to {_LARGEST}")
