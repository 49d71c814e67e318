"""IDX files, gzipped or not: the layout of MNIST and everything that was modelled on it.

An IDX file is two zero bytes, a type code, the number of dimensions, one big-endian length per
dimension, then the values.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from driftwise.datasets.reading import Allocate, StageProgress, empty, must_be_folder, silent
from driftwise.errors import UserError

if TYPE_CHECKING:  # it imports torch, which importing a limit from here should not cost
    from driftwise.types import Dataset

DIGITS = tuple("0123456789")

MAX_DEFLATE_RATIO = 1032
"""a deflate stream never expands by more, so a header that claims more is wrong"""

_PARTS = ("train", "t10k")
_UNSIGNED_BYTE = 0x08
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20


def read_idx(
    folder: Path,
    *,
    class_names: Sequence[str] = DIGITS,
    allocate: Allocate = empty,
    progress: StageProgress = silent,
) -> Dataset:
    """The four files `{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]`; t10k is the test part.

    torchvision's older spelling with a dot (`train-images.idx3-ubyte`) is found too. Images are
    (samples, height, width, 1), the training samples first.
    """
    from driftwise.types import Dataset

    paths = _find(folder)
    images_of = [paths[f"{part}-images-idx3-ubyte"] for part in _PARTS]
    labels_of = [paths[f"{part}-labels-idx1-ubyte"] for part in _PARTS]
    shapes = [_shape_of(path, num_dims=3) for path in images_of]
    labels = [_read_labels(path, len(class_names)) for path in labels_of]
    for images_path, labels_path, shape, part in zip(
        images_of, labels_of, shapes, labels, strict=True
    ):
        if shape[0] != len(part):
            raise UserError(
                f"{labels_path}: {len(part)} labels for the {shape[0]} images of "
                f"{images_path.name}; the two files do not belong together"
            )
        if shape[1:] != shapes[0][1:]:
            raise UserError(
                f"{images_path}: images are {shape[1]}x{shape[2]}, those of "
                f"{images_of[0].name} {shapes[0][1]}x{shapes[0][2]}; expected one size"
            )
    num_train, num_test = shapes[0][0], shapes[1][0]
    images = allocate((num_train + num_test, *shapes[0][1:], 1))
    for path, start, stop in zip(images_of, (0, num_train), (num_train, len(images)), strict=True):
        _fill(path, images[start:stop], num_dims=3)
        progress(stop, len(images))
    return Dataset(
        images=images,
        labels=np.concatenate(labels),
        class_names=tuple(class_names),
        is_test=np.arange(num_train + num_test) >= num_train,
    )


def _find(folder: Path) -> dict[str, Path]:
    """Where each of the four files is, by its usual name without an ending."""
    must_be_folder(folder, "a folder of IDX files")
    found, missing = {}, []
    for part in _PARTS:
        for name in (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"):
            dotted = name.replace("-idx", ".idx")
            spellings = (name, dotted, f"{name}.gz", f"{dotted}.gz")
            here = [folder / spelling for spelling in spellings if (folder / spelling).is_file()]
            if here:
                found[name] = here[0]
            else:
                missing.append(f"{name}[.gz]")
    if missing:
        raise UserError(f"{folder}: expected IDX files that are not there: {', '.join(missing)}")
    return found


def _read_labels(path: Path, num_classes: int) -> np.ndarray:
    labels = np.empty(_shape_of(path, num_dims=1), dtype=np.uint8)
    _fill(path, labels, num_dims=1)
    if labels.max() >= num_classes:
        sample = int(np.argmax(labels >= num_classes))
        raise UserError(
            f"{path}: label {labels[sample]} in sample {sample}, expected 0..{num_classes - 1} "
            f"({num_classes} class names)"
        )
    return labels.astype(np.int64)


def _shape_of(path: Path, num_dims: int) -> tuple[int, ...]:
    """The shape in the header, refused where the file is too small to hold it."""
    return _fill(path, None, num_dims)


def _fill(path: Path, target: np.ndarray | None, num_dims: int) -> tuple[int, ...]:
    """The shape in a file's header; its values are written into a `target` of that size."""
    try:
        with path.open("rb") as raw:
            zipped = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            stream: BufferedIOBase = gzip.GzipFile(fileobj=raw) if zipped else raw
            shape = _read_header(stream, path, num_dims)
            most = path.stat().st_size * (MAX_DEFLATE_RATIO if zipped else 1)
            too_short = UserError(
                f"{path}: ends before the {'x'.join(map(str, shape))} bytes that its header"
                " promises; fetch it again"
            )
            if math.prod(shape) > most:
                raise too_short
            if target is None:
                return shape
            flat = target.reshape(-1).data
            filled = 0
            while filled < len(flat):
                got = stream.readinto(flat[filled : filled + _CHUNK_BYTES])
                if not got:
                    raise too_short
                filled += got
            # Reading to the end also makes gzip compare its checksum.
            if stream.read(1):
                raise UserError(f"{path}: holds more than its header promises; fetch it again")
            return shape
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read ({reason}); fetch it again") from error


def _read_header(stream: BufferedIOBase, path: Path, num_dims: int) -> tuple[int, ...]:
    header = stream.read(4 + 4 * num_dims)
    expected = bytes([0, 0, _UNSIGNED_BYTE, num_dims])
    if len(header) >= 4 and header[:4] != expected:
        raise UserError(
            f"{path}: starts with {header[:4].hex()}, expected {expected.hex()} "
            f"(IDX, unsigned bytes, {num_dims} dimensions)"
        )
    if len(header) < 4 + 4 * num_dims:
        raise UserError(f"{path}: ends inside its header; fetch it again")
    shape = struct.unpack(f">{num_dims}I", header[4:])
    if 0 in shape:
        raise UserError(
            f"{path}: its header promises {'x'.join(map(str, shape))}: it holds nothing"
        )
    return shape
