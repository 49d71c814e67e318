"""Images in one `.npz` file: `images`, `labels`, and optionally where or when each was taken.

Arrays are read out of the archive piece by piece, so that pixels go straight to where they belong,
and by their header alone: an array of Python objects (a pickle) is refused and never loaded.
"""

from __future__ import annotations

import contextlib
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from driftwise.datasets.convert import (
    check_pixel_type,
    class_numbers,
    domain_numbers,
    full_shape,
    to_bytes,
)
from driftwise.datasets.readers.idx import MAX_DEFLATE_RATIO
from driftwise.datasets.reading import Allocate, StageProgress, empty
from driftwise.errors import UserError

if TYPE_CHECKING:  # it imports torch, which reading some columns should not cost
    from driftwise.types import Dataset

_CHUNK_BYTES = 1 << 22
_SPLIT_KEYS = ("is_test", "is_valid")


def read_npz(
    path: Path,
    *,
    class_names: Sequence[str] | None = None,
    group_years: int | None = None,
    keep_test: bool = True,
    allocate: Allocate = empty,
    progress: StageProgress | None = None,
) -> Dataset:
    """A data set from the arrays of an `.npz` file, one entry per image in each.

    `images`: uint8, or floats in [0, 1]; (samples, height, width[, 1 or 3]).
    `labels`: whole numbers from 0, or names; `class_names` gives the order or the names.
    `domain` (numbers or names) or `year`: becomes the domains, in ascending order; `group_years`
    puts that many years together (10: decades).
    `is_test` or `is_valid`: true where an image belongs to the test part; ignored without
    `keep_test`.
    """
    from driftwise.types import Dataset

    check_group_years(group_years)
    with _opened(path) as archive:
        labels, names = class_numbers(_column(archive, path, "labels"), class_names, str(path))
        domains, domain_names = _domains(archive, path, group_years)
        is_test = _held_out(archive, path) if keep_test else None
        for key, column in (("domain or year", domains), ("is_test or is_valid", is_test)):
            if column is not None and len(column) != len(labels):
                raise UserError(f"{path}: {len(column)} entries of {key} for {len(labels)} labels")
        shape = _image_shape(archive, path, len(labels))
    images = allocate(shape)  # out here, so that a full disk is not called an unreadable file
    with _opened(path) as archive:
        _fill(archive, path, images, progress)
    return Dataset(
        images=images,
        labels=labels,
        class_names=names,
        is_test=is_test,
        domains=domains,
        domain_names=domain_names,
    )


def distinct_values(path: Path, key: str) -> set[int | str]:
    """What occurs in an array with one entry per image; pixels are not read."""
    with _opened(path) as archive:
        return set(np.unique(_column(archive, path, key)).tolist())


def check_group_years(group_years: int | None) -> None:
    """Refuse what is no number of years."""
    if group_years is not None and (type(group_years) is not int or group_years < 1):
        raise UserError(f"group_years is {group_years!r}, expected a whole number from 1 on")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    if path.is_dir():
        raise UserError(f"{path}: is a folder, expected an .npz file")
    if not path.exists():
        raise UserError(f"{path}: does not exist, expected an .npz file")
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except UserError:
        raise
    except zipfile.BadZipFile as error:
        raise UserError(
            f"{path}: not a whole .npz file ({error}); save or fetch it again"
        ) from error
    # RuntimeError and NotImplementedError: encrypted members, unknown compression.
    except (OSError, EOFError, zlib.error, RuntimeError, NotImplementedError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); save or fetch it again") from error


def _keys(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist()]


@contextlib.contextmanager
def _array_in(
    archive: zipfile.ZipFile, path: Path, key: str
) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype]]:
    """The values of one array as a stream, its shape and its type; no object arrays."""
    keys = _keys(archive)
    if key not in keys:
        raise UserError(
            f"{path}: holds {', '.join(keys) or 'nothing'}; expected {key!r} among them"
        )
    member = archive.infolist()[keys.index(key)]
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UserError(f"{path}: {key} is packed in a way that numpy.savez does not use")
    with archive.open(member) as stream:
        shape, fortran, dtype = _read_header(stream, path, key)
        if dtype.hasobject:
            raise UserError(
                f"{path}: {key} is an array of Python objects, which is never loaded; "
                f"save it as numbers or as text (astype(str))"
            )
        if fortran and len(shape) > 1:
            raise UserError(f"{path}: {key} is in Fortran order; save np.ascontiguousarray({key})")
        if not math.prod(shape):
            raise UserError(f"{path}: {key} is empty (shape {shape})")
        if math.prod(shape) * dtype.itemsize > path.stat().st_size * MAX_DEFLATE_RATIO:
            raise UserError(f"{path}: {key} is cut off: its header promises {shape}")
        yield stream, shape, dtype


def _read_header(stream: IO[bytes], path: Path, key: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    try:
        if np.lib.format.read_magic(stream) == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        return np.lib.format.read_array_header_2_0(stream)
    except (OSError, zlib.error, zipfile.BadZipFile):
        raise
    except Exception as error:  # a header is parsed as Python text: what a bad one raises is open
        raise UserError(f"{path}: {key} has no valid array header; save the file again") from error


def _read_exactly(stream: IO[bytes], count: int, path: Path, key: str) -> bytes:
    content = stream.read(count)
    if len(content) < count:
        raise UserError(f"{path}: {key} ends too early; save or fetch the file again")
    return content


def _expect_end(stream: IO[bytes], path: Path, key: str) -> None:
    # Reading to the end is also what makes the archive compare its checksum.
    if stream.read(1):
        raise UserError(f"{path}: {key} holds more than its header says; save the file again")


def _column(archive: zipfile.ZipFile, path: Path, key: str) -> np.ndarray:
    """A small array with one entry per image: whole numbers (int64), truth values or text."""
    with _array_in(archive, path, key) as (stream, shape, dtype):
        if len(shape) != 1 or dtype.kind not in "biuUS":
            raise UserError(
                f"{path}: {key} is {dtype} {shape}, expected (samples,) of whole numbers or text"
            )
        content = _read_exactly(stream, shape[0] * dtype.itemsize, path, key)
        _expect_end(stream, path, key)
    values = np.frombuffer(content, dtype=dtype)
    if dtype.kind == "U":
        _refuse_no_characters(np.frombuffer(content, f"{dtype.byteorder}u4"), path, key)
    if dtype.kind == "S":
        return np.char.decode(values, "utf-8")
    if dtype.kind == "u" and values.max() > np.iinfo(np.int64).max:
        raise UserError(f"{path}: {key} holds {values.max()}, which is too large")
    return values.astype(np.int64) if dtype.kind in "iu" else values


def _refuse_no_characters(codes: np.ndarray, path: Path, key: str) -> None:
    """Text is stored as numbers, of which not all stand for a character."""
    bad = codes[(codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))]
    if bad.size:
        raise UserError(
            f"{path}: {key} holds {bad[0]:#x}, which is no character of Unicode; save it again"
        )


def _domains(
    archive: zipfile.ZipFile, path: Path, group_years: int | None
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Where or when each image was taken, as positions in the names."""
    here = [key for key in ("domain", "year") if key in _keys(archive)]
    if len(here) == 2:
        raise UserError(f"{path}: holds both domain and year; save the one to go by")
    if group_years is not None and here != ["year"]:
        raise UserError(f"{path}: has no year, so that group_years={group_years} has no meaning")
    if not here:
        return None, ()
    column = _column(archive, path, here[0])
    if here == ["year"] and column.dtype.kind != "i":
        raise UserError(f"{path}: year is {column.dtype}, expected whole numbers")
    return domain_numbers(column, group_years or 1)


def _held_out(archive: zipfile.ZipFile, path: Path) -> np.ndarray | None:
    here = [key for key in _SPLIT_KEYS if key in _keys(archive)]
    if not here:
        return None
    column = _column(archive, path, here[0])
    if column.dtype.kind == "U" or not np.isin(column, (0, 1)).all():
        raise UserError(f"{path}: {here[0]} must be true or false (1 or 0) for each image")
    return column.astype(bool)


def _image_shape(archive: zipfile.ZipFile, path: Path, num_labels: int) -> tuple[int, ...]:
    with _array_in(archive, path, "images") as (_, shape, dtype):
        full = full_shape(shape, str(path))
        if full[0] != num_labels:
            raise UserError(f"{path}: {num_labels} labels for {full[0]} images")
        check_pixel_type(dtype, str(path))
    return full


def _fill(
    archive: zipfile.ZipFile, path: Path, images: np.ndarray, progress: StageProgress | None
) -> None:
    """Write the pixels into `images`, some megabytes at a time."""
    with _array_in(archive, path, "images") as (stream, _, dtype):
        sample_bytes = math.prod(images.shape[1:]) * dtype.itemsize
        samples_at_once = max(1, _CHUNK_BYTES // sample_bytes)
        for start in range(0, len(images), samples_at_once):
            target = images[start : start + samples_at_once]
            content = _read_exactly(stream, len(target) * sample_bytes, path, "images")
            values = np.frombuffer(content, dtype=dtype).reshape(target.shape)
            target[...] = to_bytes(values, str(path), start)
            if progress is not None:
                progress(start + len(target), len(images))
        _expect_end(stream, path, "images")
