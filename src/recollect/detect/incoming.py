"""Pictures as anybody has them, all at once or batch by batch, in blocks of one size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.types import Dataset

Array = np.ndarray | Tensor
Batch = tuple[Array, Array] | list[Array]
"""Pictures, uint8 (rows, height, width, 1 or 3) or floats in [0, 1], and labels, whole numbers
(rows,). Channels may also come first, as torch has them, where it is plain that they do."""
Data = Dataset | Batch | Iterable[Batch]
"""All of it at once, or as batches arrive; whoever wants a second look at an iterable keeps it."""

_BLOCK_ROWS, _BLOCK_PIXELS = 512, 1 << 18
"""encoded at once, whatever batches they came in: memory is bounded, and how the rows were cut into
batches cannot make a difference, not even in the last digit"""


class Block(NamedTuple):
    """Rows that are encoded at once."""

    start: int
    """the number of its first row"""
    images: Tensor
    """uint8 (rows, height, width, channels)"""
    labels: Tensor
    """int64 (rows,)"""


def opened(
    data: Data, class_names: Sequence[str] | None
) -> tuple[Callable[[int], str], Iterable[Batch]]:
    """What labels are called, and the batches, of any kind of data."""
    if isinstance(data, Dataset):
        class_names = data.class_names if class_names is None else class_names
        return _naming(class_names), [(data.images, data.labels)]
    if _is_batch(data):
        return _naming(class_names), [data]
    if isinstance(data, np.ndarray | Tensor | str | Mapping) or not isinstance(data, Iterable):
        raise UserError(
            "expected a Dataset, a pair (images, labels) or batches of such pairs; got"
            f" {type(data).__name__}"
        )
    return _naming(class_names), data  # type: ignore[return-value]


def _naming(class_names: Sequence[str] | None) -> Callable[[int], str]:
    if class_names is None:
        return str
    if len(set(class_names)) < len(class_names):
        raise UserError(f"two classes have one name; got {', '.join(class_names)}")

    def name_of(label: int) -> str:
        if not 0 <= label < len(class_names):
            raise UserError(f"label {label} has no name; there are {len(class_names)} class names")
        return class_names[label]

    return name_of


def _is_batch(data: object) -> TypeGuard[Batch]:
    return (
        isinstance(data, tuple | list)
        and len(data) == 2
        and isinstance(data[0], np.ndarray | Tensor)
    )


def peeked(blocks: Iterator[Block], what: str) -> tuple[tuple[int, ...], Iterable[Block]]:
    """The shape of a picture, and all blocks."""
    first = next(blocks, None)
    if first is None:
        raise UserError(f"{what}: expected pictures, got none")
    return tuple(first.images.shape[1:]), itertools.chain([first], blocks)


def blocks_of(batches: Iterable[Batch]) -> Iterator[Block]:
    """The same rows in blocks of one size, the last one shorter, however they came."""
    waiting: list[tuple[Tensor, Tensor]] = []
    shape: tuple[int, ...] | None = None
    start = 0
    for images, labels in _pieces(batches):
        if shape is None:
            shape = tuple(images.shape[1:])
        elif tuple(images.shape[1:]) != shape:
            raise UserError(
                f"pictures must all have one size; got {size_in_words(shape)}, then"
                f" {size_in_words(tuple(images.shape[1:]))}"
            )
        size = _block_rows(shape)
        waiting.append((images, labels))
        while sum(len(part) for _, part in waiting) >= size:
            pixels, numbers = (torch.cat(parts) for parts in zip(*waiting, strict=True))
            yield Block(start, pixels[:size], numbers[:size])
            start += size
            waiting = [(pixels[size:], numbers[size:])] if len(numbers) > size else []
    if waiting:
        pixels, numbers = (torch.cat(parts) for parts in zip(*waiting, strict=True))
        yield Block(start, pixels, numbers)


def _block_rows(shape: tuple[int, ...]) -> int:
    return max(1, min(_BLOCK_ROWS, _BLOCK_PIXELS // max(1, shape[0] * shape[1])))


def _pieces(batches: Iterable[Batch]) -> Iterator[tuple[Tensor, Tensor]]:
    """Checked batches, large ones cut: a file that is mapped into memory is read bit by bit."""
    for batch in batches:
        if not _is_batch(batch):
            raise UserError(
                "expected batches of (images, labels), both arrays; got"
                f" {type(batch).__name__}: a data set of single pictures goes into a DataLoader"
            )
        images, labels = batch
        numbers = _label_numbers(labels)
        if len(images) != len(numbers):
            raise UserError(f"{len(numbers)} labels for {len(images)} pictures")
        for begin in range(0, len(numbers), _BLOCK_ROWS):
            piece = slice(begin, begin + _BLOCK_ROWS)
            yield _pixels(images[piece]), numbers[piece]


def _label_numbers(labels: Array) -> Tensor:
    """int64 (rows,)"""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise UserError(
            f"expected labels as whole numbers (rows,); got {array.dtype} {array.shape}"
        )
    return torch.from_numpy(array.astype(np.int64))


def _pixels(images: Array) -> Tensor:
    """uint8 (rows, height, width, channels)"""
    if isinstance(images, np.ndarray):
        if images.dtype.kind not in "uf":
            raise UserError(f"expected images as uint8, or floats in [0, 1]; got {images.dtype}")
        images = torch.from_numpy(np.ascontiguousarray(images))
    pixels = images.detach().cpu()
    if pixels.ndim != 4 or not {pixels.shape[1], pixels.shape[3]} & {1, 3}:
        shape = tuple(pixels.shape)
        raise UserError(f"expected images (rows, height, width, 1 or 3); got {shape}")
    if pixels.shape[3] not in (1, 3):
        pixels = pixels.permute(0, 2, 3, 1)
    if pixels.dtype == torch.uint8:
        return pixels
    # Written so that NaN is outside too: every comparison with it is false.
    if not pixels.is_floating_point() or not ((pixels >= 0) & (pixels <= 1)).all():
        raise UserError(
            f"expected images as uint8, or floats in [0, 1] without NaN; got {pixels.dtype} from"
            f" {pixels.min().item():g} to {pixels.max().item():g}"
        )
    return pixels.float().mul(255).round_().to(torch.uint8)


def size_in_words(shape: tuple[int, ...]) -> str:
    """A picture's size in words.

    >>> size_in_words((8, 12, 1))
    '8 x 12 in grey'
    """
    colours = {1: "in grey", 3: "in colour"}.get(shape[2], f"in {shape[2]} channels")
    return f"{shape[0]} x {shape[1]} {colours}"
