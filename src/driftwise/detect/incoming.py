"""Images and vectors from outside, all at once or batch by batch, in blocks of one size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor

from driftwise.array_checks import refuse_odd
from driftwise.errors import UserError
from driftwise.types import Dataset

Array = np.ndarray | Tensor
Batch = tuple[Array, Array] | list[Array]
"""Images, uint8 (samples, height, width, 1 or 3) or floats in [0, 1], or vectors of any numbers
(samples, features), and labels, whole numbers (samples,). Channels may also come first, as torch has
them, where it is plain that they do."""
Data = Dataset | Batch | Iterable[Batch]
"""All of it at once, or as batches arrive."""

_BLOCK_ROWS, _BLOCK_PIXELS = 512, 1 << 18
"""encoded at once, whatever batches they came in: memory is bounded, and how the samples were cut into
batches cannot make a difference, not even in the last digit"""


class Block(NamedTuple):
    """Samples that are encoded at once."""

    start: int
    """the number of its first sample"""
    images: Tensor
    """uint8 (samples, height, width, channels), or float32 (samples, features)"""
    labels: Tensor
    """int64 (samples,)"""


class Incoming(NamedTuple):
    """Any kind of data, opened."""

    name_of: Callable[[int], str]
    """what a label is called"""
    image_shape: tuple[int, ...]
    """(height, width, channels), or (features,)"""
    blocks: Iterable[Block]
    """all of them, the first one too"""
    side: str
    feature_names: tuple[str, ...] = ()
    """of vectors; (): they have none"""

    def matched(self, names: Sequence[str]) -> tuple[Incoming, tuple[str, ...]]:
        """The same with these features, in this order, and the names of the others.

        UserError where one of them is missing.
        """
        place_of = {name: place for place, name in enumerate(self.feature_names)}
        if missing := [name for name in names if name not in place_of]:
            listed = ", ".join(self.feature_names[:20])
            more = "" if len(missing) == 1 else f" and {len(missing) - 1} more"
            raise UserError(
                f"{self.side}: the feature {missing[0]!r} of the reference{more} is missing; there are"
                f" {listed}{' ...' if len(self.feature_names) > 20 else ''}"
            )
        others = tuple(name for name in self.feature_names if name not in set(names))
        order = torch.tensor([place_of[name] for name in names])
        blocks = (block._replace(images=block.images[:, order]) for block in self.blocks)
        return self._replace(
            image_shape=(len(names),), blocks=blocks, feature_names=tuple(names)
        ), others


def opened(
    data: Data,
    class_names: Sequence[str] | None,
    side: str,
    feature_names: Sequence[str] | None = None,
) -> Incoming:
    """Any kind of data, block by block; errors name the `side`."""
    if isinstance(data, Dataset):
        class_names = data.class_names if class_names is None else class_names
        feature_names = data.feature_names if feature_names is None else feature_names
    blocks = _naming_side(side, _blocks_of(_batches_of(data)))
    first = next(blocks, None)
    if first is None:
        hint = ": an iterator gives its images only once" if isinstance(data, Iterator) else ""
        raise UserError(f"{side}: expected images, got none{hint}")
    image_shape = tuple(first.images.shape[1:])
    names = tuple(feature_names or ())
    if names and (len(image_shape) != 1 or len(set(names)) != image_shape[0]):
        raise UserError(
            f"{side}: feature_names must name each feature of {size_in_words(image_shape)} once; got"
            f" {len(names)} names"
        )
    every = itertools.chain([first], blocks)
    return Incoming(_naming(class_names), image_shape, every, side, names)


def _naming_side(side: str, blocks: Iterable[Block]) -> Iterator[Block]:
    try:
        yield from blocks
    except UserError as error:
        raise UserError(f"{side}: {error}") from error


def _batches_of(data: Data) -> Iterator[Batch]:
    if isinstance(data, Dataset):
        yield data.images, data.labels
    elif _is_batch(data):
        yield data
    elif _is_table(data):
        raise _table_given(data)
    elif isinstance(data, Iterable) and not isinstance(
        data, np.ndarray | Tensor | str | bytes | bytearray | memoryview | Mapping
    ):
        yield from data  # type: ignore[misc]
    else:
        hint = ""
        if isinstance(data, torch.utils.data.Dataset):
            hint = ": give datasets.from_torch(data), or a DataLoader of it"
        elif isinstance(data, np.ndarray | Tensor):
            hint = ": samples without labels are datasets.from_arrays(samples)"
        raise UserError(
            "expected a Dataset, a pair (images, labels) or batches of such pairs; got"
            f" {type(data).__name__}{hint}"
        )


def _naming(class_names: Sequence[str] | None) -> Callable[[int], str]:
    if class_names is None:
        return str
    names = [str(name) for name in class_names]
    if len(set(names)) < len(names):
        raise UserError(f"two classes have one name; got {', '.join(names)}")

    def name_of(label: int) -> str:
        if not 0 <= label < len(names):
            raise UserError(f"label {label} has no name; there are {len(names)} class names")
        return names[label]

    return name_of


def _is_batch(data: object) -> TypeGuard[Batch]:
    return (
        isinstance(data, tuple | list)
        and len(data) == 2
        and isinstance(data[0], np.ndarray | Tensor)
    )


def _is_table(data: object) -> bool:
    return isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "column_names")


def _table_given(data: object) -> UserError:
    return UserError(
        f"got a table, {type(data).__name__}: give datasets.from_table(table, label=NAME), with the"
        " name of the column that holds the classes"
    )


def _blocks_of(batches: Iterable[Batch]) -> Iterator[Block]:
    """The same samples in blocks of one size, the last one shorter, however they came."""
    waiting: list[tuple[Tensor, Tensor]] = []
    start = count = 0
    for images, labels in _pieces(batches):
        waiting.append((images, labels))
        shape, other = (tuple(each.shape[1:]) for each in (waiting[0][0], images))
        if other != shape:
            raise UserError(
                f"samples must all have one shape; got {size_in_words(shape)}, then"
                f" {size_in_words(other)}"
            )
        count += len(labels)
        size = max(1, min(_BLOCK_ROWS, _BLOCK_PIXELS // max(1, math.prod(shape[:2]))))
        if count >= size:
            pixels, numbers = (torch.cat(parts) for parts in zip(*waiting, strict=True))
            end = count - count % size
            for begin in range(0, end, size):
                part = slice(begin, begin + size)
                yield Block(start + begin, pixels[part], numbers[part])
            start, count = start + end, count - end
            waiting = [(pixels[end:], numbers[end:])]
    if count:
        pixels, numbers = (torch.cat(parts) for parts in zip(*waiting, strict=True))
        yield Block(start, pixels, numbers)


def _pieces(batches: Iterable[Batch]) -> Iterator[tuple[Tensor, Tensor]]:
    """Checked batches, large ones cut: a file that is mapped into memory is read bit by bit."""
    for batch in batches:
        if not _is_batch(batch):
            if _is_table(batch):  # of a pair (table, labels)
                raise _table_given(batch)
            raise UserError(
                "expected batches of (images, labels), both arrays; got"
                f" {type(batch).__name__}: a data set of single images goes into a DataLoader"
            )
        images, labels = batch
        refuse_odd(images, "images")
        numbers = _label_numbers(labels)
        if not images.ndim:
            raise UserError("expected images or vectors, (samples, ...); got a single number")
        if len(images) != len(numbers):
            raise UserError(f"{len(numbers)} labels for {len(images)} images")
        for begin in range(0, len(numbers), _BLOCK_ROWS):
            piece = slice(begin, begin + _BLOCK_ROWS)
            yield _pixels(images[piece]), numbers[piece]


def _label_numbers(labels: Array) -> Tensor:
    """int64 (samples,)"""
    refuse_odd(labels, "labels")
    try:
        array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"expected labels as whole numbers (samples,); got a {type(labels).__name__} of several "
            "lengths or kinds"
        ) from error
    if array.dtype.kind not in "iu" or array.ndim != 1:
        hint = ": give datasets.from_arrays(samples, names)" if array.dtype.kind in "OSU" else ""
        raise UserError(
            f"expected labels as whole numbers (samples,); got {array.dtype} {array.shape}{hint}"
        )
    if (array < 0).any():
        raise UserError(
            f"expected labels from 0 on, and -1 marks a sample without one; got {array.min()}: "
            "leave out samples without a label"
        )
    return torch.from_numpy(array.astype(np.int64))


def _pixels(images: Array) -> Tensor:
    """uint8 (samples, height, width, channels), or float32 (samples, features)"""
    if images.ndim == 2 and images.shape[1]:
        return _vectors(images)
    if isinstance(images, np.ndarray):
        native = images.dtype.newbyteorder("=")
        if native not in (np.uint8, np.float16, np.float32, np.float64):
            raise _not_pixels(images.dtype)
        # Owned, since torch cannot promise not to write into what is read-only.
        images = torch.from_numpy(np.require(images, native, requirements=["C", "W"]))
    pixels = images.detach().cpu()
    shape = tuple(pixels.shape)
    if len(shape) != 4 or not {shape[1], shape[3]} & {1, 3} or not all(shape[1:]):
        raise UserError(
            "expected images (samples, height, width, 1 or 3), or vectors (samples, features); got"
            f" {shape}"
        )
    if pixels.shape[3] not in (1, 3):
        pixels = pixels.permute(0, 2, 3, 1)
    if pixels.dtype == torch.uint8:
        return pixels
    if not pixels.is_floating_point():
        raise _not_pixels(pixels.dtype)
    # Written so that NaN is outside too: every comparison with it is false.
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise UserError(
            "expected images as uint8, or floats in [0, 1] without NaN; got floats from"
            f" {pixels.min().item():g} to {pixels.max().item():g}"
        )
    return pixels.float().mul(255).round_().to(torch.uint8)


def _vectors(values: Array) -> Tensor:
    """float32 (samples, features), if they are finite numbers."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "fiub":
            raise UserError(f"expected vectors of numbers (samples, features); got {values.dtype}")
        values = torch.from_numpy(values.astype(np.float32))
    if values.is_complex():
        raise UserError(f"expected vectors of numbers (samples, features); got {values.dtype}")
    vectors = values.detach().cpu().float()
    if not vectors.isfinite().all():
        raise UserError(
            "vectors hold NaN, infinity or more than single precision holds: fill in what is"
            " missing, or leave such samples out"
        )
    return vectors


def _not_pixels(dtype: object) -> UserError:
    if isinstance(dtype, np.dtype) and dtype.kind in "OU":
        return UserError(
            f"expected images or vectors; got {dtype}: texts become vectors by"
            " driftwise.encoders.EmbeddingCache(encoder).encoded(data)"
        )
    return UserError(
        f"expected images as uint8, or floats in [0, 1]; got {dtype}: divide by the largest value"
        " that a pixel can have"
    )


def size_in_words(shape: tuple[int, ...]) -> str:
    """An image's size in words, or a vector's.

    >>> size_in_words((8, 12, 1)), size_in_words((6,))
    ('8 x 12 in grey', 'vectors of 6')
    """
    if len(shape) == 1:
        return f"vectors of {shape[0]}"
    colours = {1: "in grey", 3: "in colour"}.get(shape[2], f"in {shape[2]} channels")
    return f"{shape[0]} x {shape[1]} {colours}"
