"""The network that predicts, as bytes: other processes map them and predict the same."""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftwise.live.input_reader import InputReader
from driftwise.models.inputs import to_input

_HEAD = struct.Struct("<8sqqq")
_MAGIC = b"driftwis"
_ALIGNMENT = 64
_AT_ONCE = 512
"""samples of one forward"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor:
    """A snapshot of a live learner, for predicting alone."""

    network: nn.Module
    masked: Tensor
    """bool (outputs,): the classes that must not be predicted"""
    inputs: InputReader
    """which knows the shape and type of samples"""
    memory_format: torch.memory_format
    bf16: bool

    @torch.no_grad()
    def predict_proba(self, x: Any) -> np.ndarray:
        """Probabilities, (samples, outputs), as `LiveLearner.predict_proba` gives them."""
        images = self.inputs.images(x)
        if not len(images):
            return np.zeros((0, len(self.masked)), dtype=np.float32)
        context = torch.autocast("cpu", torch.bfloat16) if self.bf16 else contextlib.nullcontext()
        with context:
            parts = [
                self.network(to_input(part, memory_format=self.memory_format)).float()
                for part in torch.split(images, _AT_ONCE)
            ]
        logits = torch.cat(parts) if len(parts) > 1 else parts[0]
        return logits.masked_fill(self.masked, -torch.inf).softmax(dim=1).numpy()


def packed(predictor: Predictor, applied: int) -> Iterator[bytes | memoryview]:
    """The bytes of a predictor, in parts: a head, the structure without weights, the weights.

    `applied` is a number that goes with them. The structure is a pickle: only for processes of one's own.
    """
    tensors: dict[int, Tensor] = {}

    class Structure(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            if not isinstance(value, Tensor):
                return None
            tensors[id(value)] = value
            return list(tensors).index(id(value)), isinstance(value, nn.Parameter)

    file = io.BytesIO()
    Structure(file).dump(predictor)
    weights = [_dense(each.detach()) for each in tensors.values()]
    layout, end = [], 0
    for each in weights:
        layout.append((each.dtype, tuple(each.shape), each.stride(), end))
        end = _aligned(end + each.numel() * each.element_size())
    head = pickle.dumps(layout)
    yield _HEAD.pack(_MAGIC, applied, len(head), file.tell())
    yield head
    yield file.getbuffer()
    yield bytes(_aligned(size := _HEAD.size + len(head) + file.tell()) - size)
    for each in weights:
        flat = each.as_strided((each.numel(),), (1,)).view(torch.uint8).numpy()
        yield flat.data
        yield bytes(_aligned(len(flat)) - len(flat))


def unpacked(buffer: Any) -> tuple[int, Predictor]:
    """The number and the predictor of `packed`; its weights lie in the buffer, nothing is copied."""
    view = memoryview(buffer)
    magic, applied, layout_size, size = _HEAD.unpack_from(view)
    if magic != _MAGIC:
        raise ValueError("expected a packed predictor")
    start = _HEAD.size + layout_size
    layout = pickle.loads(view[_HEAD.size : start])
    weights_at = _aligned(start + size)

    class Structure(pickle.Unpickler):
        def persistent_load(self, key: Any) -> Tensor:
            dtype, shape, stride, offset = layout[key[0]]
            count = int(np.prod(shape, dtype=np.int64))
            if not count:
                made = torch.empty(shape, dtype=dtype)
            else:
                flat = torch.frombuffer(
                    buffer, dtype=dtype, count=count, offset=weights_at + offset
                )
                made = flat.as_strided(shape, stride)
            return nn.Parameter(made, requires_grad=False) if key[1] else made

    return applied, Structure(io.BytesIO(view[start : start + size])).load()


def _dense(tensor: Tensor) -> Tensor:
    """A tensor whose values lie side by side, in the order that they have if they do already."""
    if tensor.is_contiguous() or (
        tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    ):
        return tensor
    return tensor.contiguous()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
