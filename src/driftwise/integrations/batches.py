"""Batches of other people's trainers: inputs and labels are found, kept as samples, and extended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftwise.devices import to_device
from driftwise.distributed import as_bytes
from driftwise.errors import UserError
from driftwise.types import Samples

LABEL_NAMES = ("labels", "label")
"""under which a batch that is a mapping has its labels"""

Inputs = dict[str, Tensor]
"""what a network is given, by name, one entry per sample; "" where there is one tensor alone"""

Columns = dict[str, tuple[str, tuple[int, ...]]]
"""dtype and shape of a sample's inputs, by name; two are equal in any order"""

_EXPECTED = (
    "expected a pair (inputs, labels), or a mapping of tensors with an entry 'labels', where inputs "
    "are a tensor or a mapping of tensors"
)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs and labels of a trainer's batch."""

    inputs: Inputs
    labels: Tensor
    """int64 (samples,)"""

    def __len__(self) -> int:
        return len(self.labels)

    @staticmethod
    def read(batch: Any, what: str = "the trainer's batch") -> Batch:
        """The batch as a pair or a mapping; UserError where its labels cannot be found."""
        if isinstance(batch, Mapping):
            name = next((name for name in LABEL_NAMES if batch.get(name) is not None), None)
            if name is None:
                raise UserError(
                    f"{what} has no labels, which realignment needs: {_EXPECTED}; got a mapping "
                    f"with {', '.join(map(str, batch)) or 'nothing'}"
                )
            inputs = {str(key): value for key, value in batch.items() if key not in LABEL_NAMES}
            return _checked(inputs, batch[name], what)
        if isinstance(batch, Tensor) or not isinstance(batch, Sequence) or isinstance(batch, str):
            raise UserError(
                f"{what} has no labels, which realignment needs: {_EXPECTED}; got {_kind(batch)}"
            )
        if len(batch) != 2:
            raise UserError(
                f"{what} must be a pair (inputs, labels); got {len(batch)} entries: let the data "
                "loader's collate_fn give a pair, whose inputs may be a mapping of tensors"
            )
        first, labels = batch
        return _checked(dict(first) if isinstance(first, Mapping) else {"": first}, labels, what)

    def copied(self) -> Batch:
        """The same in memory of its own."""
        inputs = {name: value.clone() for name, value in self.inputs.items()}
        return Batch(inputs=inputs, labels=self.labels.clone())

    def joined(self, other: Batch) -> Batch:
        """This batch and then the other one, where this one lies."""
        return Batch(
            inputs={
                name: torch.cat([value, to_device(other.inputs[name], value.device)])
                for name, value in self.inputs.items()
            },
            labels=torch.cat([self.labels, to_device(other.labels, self.labels.device)]),
        )

    def written(self, like: Any) -> Any:
        """The batch in the form of the trainer's."""
        if isinstance(like, Mapping):
            name = next(name for name in LABEL_NAMES if like.get(name) is not None)
            values = {**self.inputs, name: self.labels}
            if type(like) is dict:
                return values
            same = type(like)({})  # type: ignore[call-arg]
            same.update(values)  # type: ignore[attr-defined]
            return same
        inputs: Any = self.inputs.get("", self.inputs)
        return (inputs, self.labels) if isinstance(like, tuple) else [inputs, self.labels]


def read_all(given: Any, what: str) -> Batch:
    """A batch, or the batches of a data loader or of another iterable, as one; on the CPU."""
    is_batch = isinstance(given, Mapping | Tensor | tuple | list)
    if isinstance(given, list) and given and isinstance(given[0], Sequence | Mapping):
        is_batch = False
    if is_batch or not isinstance(given, Iterable):
        return _on_cpu(Batch.read(given, what))
    batches = [_on_cpu(Batch.read(each, what)) for each in given]
    if not batches:
        raise UserError(f"{what} has no samples; {_EXPECTED}, or batches of these; got none")
    first = _columns_of(batches[0])
    for each in batches:
        if (found := _columns_of(each)) != first:
            raise UserError(
                f"all batches of {what} must have inputs of one shape: expected {_described(first)}, "
                f"as at first; got {_described(found)}: resize images, and pad texts to one length"
            )
    whole = {name: torch.cat([each.inputs[name] for each in batches]) for name in first}
    return Batch(inputs=whole, labels=torch.cat([each.labels for each in batches]))


class Packing:
    """Turns inputs into one tensor for the replay buffer, and back, bit for bit.

    A single tensor stays as it is. Several are laid side by side as bytes, (samples, bytes).
    """

    def __init__(self) -> None:
        self._columns: Columns | None = None
        """as in the first batch, in its order"""

    def check(self, batch: Batch) -> None:
        """UserError where a batch's inputs are not like the first ones."""
        columns = _columns_of(batch)
        if self._columns is None:
            self._columns = columns
        if columns != self._columns:
            raise UserError(
                f"all batches must have inputs of one shape, since samples of several are replayed "
                f"together: expected {_described(self._columns)}, as at first; got "
                f"{_described(columns)}: resize images, and pad texts to one length"
            )

    def converted(self, batch: Batch) -> Batch:
        """Floats in the precision of the batches so far: some trainers convert what they are given."""
        if self._columns is None:
            return batch
        floats = {name: getattr(torch, dtype) for name, (dtype, _) in self._columns.items()}
        inputs = {
            name: value.to(floats[name])
            if name in floats and floats[name].is_floating_point and value.is_floating_point()
            else value
            for name, value in batch.inputs.items()
        }
        return Batch(inputs=inputs, labels=batch.labels)

    def pack(self, batch: Batch) -> Samples:
        """Samples with a digest of each one's content as its id; inputs stay on their device."""
        self.check(batch)
        assert self._columns is not None, "check has just set them"
        inputs = [batch.inputs[name].detach().contiguous() for name in self._columns]
        rows = [as_bytes(value) for value in inputs]
        flat = rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)
        known = torch.stack([batch.labels.detach(), _digests(flat)]).cpu()  # one copy, not two
        if not batch.labels.is_cpu:
            _refuse_negative(known[0], "the trainer's batch")
        return Samples(
            images=inputs[0] if len(rows) == 1 else flat,
            labels=known[0],
            ids=known[1],
            concepts=torch.zeros_like(known[0]),
        )

    def empty(self) -> Samples:
        """No samples, of the shape of all others."""
        assert self._columns is not None, "nothing has been packed yet"
        inputs = {
            name: torch.empty(0, *shape, dtype=getattr(torch, dtype))
            for name, (dtype, shape) in self._columns.items()
        }
        return self.pack(Batch(inputs=inputs, labels=torch.empty(0, dtype=torch.int64)))

    def unpack(self, images: Tensor) -> Inputs:
        """The inputs that were packed."""
        assert self._columns is not None, "nothing has been packed yet"
        if len(self._columns) == 1:
            return dict.fromkeys(self._columns, images)
        inputs, begin = {}, 0
        for name, (dtype_name, shape) in self._columns.items():
            dtype: torch.dtype = getattr(torch, dtype_name)
            end = begin + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            # The view of a slice need not lie at a multiple of the item's size.
            part = images[:, begin:end].clone(memory_format=torch.contiguous_format)
            inputs[name] = part.view(dtype).reshape(len(images), *shape)
            begin = end
        return inputs

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as plain values."""
        columns = self._columns
        return {
            "columns": None
            if columns is None
            else [[name, dtype, list(shape)] for name, (dtype, shape) in columns.items()]
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        columns = state["columns"]
        self._columns = None
        if columns is not None:
            self._columns = {name: (dtype, tuple(shape)) for name, dtype, shape in columns}


def _checked(inputs: dict[str, Any], labels: Any, what: str) -> Batch:
    if not isinstance(labels, Tensor) or labels.ndim != 1 or labels.dtype != torch.int64:
        raise UserError(
            f"labels of {what} must be a tensor of int64, one class number for each sample; got "
            f"{_kind(labels)}"
        )
    if not inputs:
        raise UserError(f"{what} has labels and no inputs: {_EXPECTED}")
    for name, value in inputs.items():
        called = f"inputs {name!r}" if name else "inputs"
        if not isinstance(value, Tensor):
            raise UserError(f"{called} of {what} must be a tensor; got {_kind(value)}")
        if value.layout is not torch.strided:
            raise UserError(f"{called} of {what} must be a dense tensor; got {value.layout}")
        if value.ndim < 1 or len(value) != len(labels):
            raise UserError(
                f"{called} of {what} must have an entry for each of {len(labels)} labels; got the "
                f"shape {tuple(value.shape)}"
            )
    if labels.is_cpu:  # else the host would wait, now rather than when they are copied
        _refuse_negative(labels, what)
    return Batch(inputs=inputs, labels=labels)


def _refuse_negative(labels: Tensor, what: str) -> None:
    if len(labels) and int(labels.min()) < 0:
        raise UserError(
            f"labels of {what} must be class numbers from 0; got {int(labels.min())}: leave samples "
            "without a label out"
        )


def _on_cpu(batch: Batch) -> Batch:
    inputs = {name: value.detach().cpu() for name, value in batch.inputs.items()}
    return Batch(inputs=inputs, labels=batch.labels.cpu())


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} with the shape {tuple(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _columns_of(batch: Batch) -> Columns:
    return {
        name: (str(value.dtype).removeprefix("torch."), tuple(value.shape[1:]))
        for name, value in batch.inputs.items()
    }


def _described(columns: Columns) -> str:
    return ", ".join(
        f"{name or 'inputs'} {dtype} {shape}" for name, (dtype, shape) in columns.items()
    )


def _digests(rows: Tensor) -> Tensor:
    """uint8 (samples, bytes) -> int64 (samples,) from 0: equal for samples of equal content.

    The sum of a hash of every word and its place (splitmix64), on the device of the samples: they
    need not be copied to be recognised.
    """
    if not len(rows):
        return torch.empty(0, dtype=torch.int64, device=rows.device)
    words = nn.functional.pad(rows, (0, -rows.shape[1] % 8)).view(torch.int64)
    mixed = words + torch.arange(words.shape[1], device=rows.device) * -7046029254386353131
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        # Bits that come in from the left are copies of the sign: they are not to stay.
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return (mixed ^ ((mixed >> 31) & (2**33 - 1))).sum(dim=1) & (2**62 - 1)
