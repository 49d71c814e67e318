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

from driftwise.datasets.arrays import (
    check_pixel_type,
    class_numbers,
    domain_numbers,
    full_shape,
    to_bytes,
)
from driftwise.datasets.readers.idx import MAX_DEFLATE_RATIO
from driftwise.datasets.reading import Allocate, StageProgress, empty, silent
from driftwise.errors import UserError

if TYPE_CHECKING:  # it imports torch, which reading some columns should not cost
    from driftwise.types import Dataset

_CHUNK_BYTES = 1 << 22
SPLIT_KEYS = ("is_test", "is_valid")


def read_npz(
    path: Path,
    *,
    class_names: Sequence[str] | None = None,
    group_years: int | None = None,
    keep_test: bool = True,
    allocate: Allocate = empty,
    progress: StageProgress = silent,
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
    with Arrays.opened(path) as arrays:
        labels, names = class_numbers(arrays.column("labels"), class_names, str(path))
        domains, domain_names = _domains(arrays, group_years)
        is_test = _test_part(arrays) if keep_test else None
        for key, column in (("domain or year", domains), ("is_test or is_valid", is_test)):
            if column is not None and len(column) != len(labels):
                raise UserError(f"{path}: {len(column)} entries of {key} for {len(labels)} labels")
        with arrays.stream("images") as (_, shape, dtype, by_columns):
            shape = full_shape(shape, str(path))
            if by_columns:
                raise UserError(
                    f"{path}: images is in Fortran order; save np.ascontiguousarray(images)"
                )
            if shape[0] != len(labels):
                raise UserError(f"{path}: {len(labels)} labels for {shape[0]} images")
            check_pixel_type(dtype, str(path))
    images = allocate(shape)  # out here, so that a full disk is not called an unreadable file
    with Arrays.opened(path) as arrays:
        arrays.fill("images", images, progress)
    return Dataset(
        images=images,
        labels=labels,
        class_names=names,
        is_test=is_test,
        domains=domains,
        domain_names=domain_names,
    )


def distinct_values(path: Path, key: str) -> set[int | str]:
    """The values that occur in an array with one entry per image; pixels are not read."""
    with Arrays.opened(path) as arrays:
        return set(np.unique(arrays.column(key)).tolist())


def check_group_years(group_years: int | None) -> None:
    """Refuse anything but a number of years."""
    if group_years is not None and (type(group_years) is not int or group_years < 1):
        raise UserError(f"group_years is {group_years!r}, expected a whole number from 1 on")


def _domains(arrays: Arrays, group_years: int | None) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Where or when each image was taken, as positions in the names."""
    here = [key for key in ("domain", "year") if key in arrays.keys]
    if len(here) == 2:
        raise UserError(f"{arrays.path}: holds both domain and year; save the one to go by")
    if group_years is not None and here != ["year"]:
        raise UserError(
            f"{arrays.path}: has no year, so that group_years={group_years} has no meaning"
        )
    if not here:
        return None, ()
    column = arrays.column(here[0])
    if here == ["year"] and column.dtype.kind != "i":
        raise UserError(f"{arrays.path}: year is {column.dtype}, expected whole numbers")
    return domain_numbers(column, group_years or 1)


def _test_part(arrays: Arrays) -> np.ndarray | None:
    here = [key for key in SPLIT_KEYS if key in arrays.keys]
    if not here:
        return None
    column = arrays.column(here[0])
    if column.dtype.kind == "U" or not np.isin(column, (0, 1)).all():
        raise UserError(f"{arrays.path}: {here[0]} must be true or false (1 or 0) for each image")
    return column.astype(bool)


class Arrays:
    """The arrays in an opened file, by name."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self.keys = [name.removesuffix(".npy") for name in archive.namelist()]

    @staticmethod
    @contextlib.contextmanager
    def opened(path: Path) -> Iterator[Arrays]:
        """Whatever damaged bytes raise in here becomes a UserError that names the file."""
        if not path.is_file():
            found = "is no regular file" if path.exists() else "does not exist"
            found = "is a folder" if path.is_dir() else found
            raise UserError(f"{path}: {found}, expected an .npz file")
        try:
            with zipfile.ZipFile(path) as archive:
                yield Arrays(path, archive)
        except UserError:
            raise
        except zipfile.BadZipFile as error:
            raise UserError(
                f"{path}: not a whole .npz file ({error}); save or fetch it again"
            ) from error
        # RuntimeError, NotImplementedError among them: encrypted members, unknown compression.
        except (OSError, EOFError, zlib.error, RuntimeError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}); save or fetch it again") from error

    @contextlib.contextmanager
    def stream(self, key: str) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype, bool]]:
        """The values of one array as a stream, its shape, its type, and whether it lies column by column.

        No object arrays.
        """
        path, keys = self.path, self.keys
        if key not in keys:
            listed = ", ".join(keys) or "nothing"
            raise UserError(f"{path}: holds {listed}; expected {key!r} among them")
        member = self._archive.infolist()[keys.index(key)]
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UserError(f"{path}: {key} is packed in a way that numpy.savez does not use")
        with self._archive.open(member) as stream:
            try:
                one = np.lib.format.read_magic(stream) == (1, 0)
                formats = np.lib.format
                read = formats.read_array_header_1_0 if one else formats.read_array_header_2_0
                shape, fortran, dtype = read(stream)
            except (OSError, zlib.error, zipfile.BadZipFile):
                raise
            except Exception as error:  # a header is parsed as Python text: it may raise anything
                raise UserError(
                    f"{path}: {key} has no valid array header; save the file again"
                ) from error
            if dtype.hasobject:
                raise UserError(
                    f"{path}: {key} is an array of Python objects, which is never loaded; "
                    f"save it as numbers or as text (astype(str))"
                )
            if not math.prod(shape):
                raise UserError(f"{path}: {key} is empty (shape {shape})")
            if math.prod(shape) * dtype.itemsize > path.stat().st_size * MAX_DEFLATE_RATIO:
                raise UserError(f"{path}: {key} is cut off: its header promises {shape}")
            yield stream, shape, dtype, fortran and len(shape) > 1

    def column(self, key: str) -> np.ndarray:
        """A small array with one entry per image: whole numbers (int64), truth values or text."""
        with self.stream(key) as (stream, shape, dtype, _):
            if len(shape) != 1 or dtype.kind not in "biuUS":
                raise UserError(
                    f"{self.path}: {key} is {dtype} {shape}, expected (samples,) of whole numbers"
                    " or text"
                )
            content = self._read(stream, shape[0] * dtype.itemsize, key, is_last=True)
        values = np.frombuffer(content, dtype=dtype)
        if dtype.kind == "S":
            return np.char.decode(values, "utf-8")
        if dtype.kind == "U":
            # Text is stored as numbers, of which not all stand for a character.
            codes = np.frombuffer(content, f"{dtype.byteorder}u4")
            bad = codes[(codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))]
            if bad.size:
                raise UserError(
                    f"{self.path}: {key} holds {bad[0]:#x}, which is no character of Unicode;"
                    " save it again"
                )
        if dtype.kind == "u" and values.max() > np.iinfo(np.int64).max:
            raise UserError(f"{self.path}: {key} holds {values.max()}, which is too large")
        return values.astype(np.int64) if dtype.kind in "iu" else values

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array, by its header."""
        found = {}
        for key in self.keys:
            with self.stream(key) as (_, shape, _, _):
                found[key] = shape
        return found

    def values(self, key: str) -> np.ndarray:
        """A whole array with a number, a text, a date or a vector per sample."""
        with self.stream(key) as (stream, shape, dtype, by_columns):
            if dtype.kind in "biuUS" and len(shape) == 1:
                return self.column(key)
            if dtype.kind not in "biufM" or len(shape) > 2:
                raise UserError(
                    f"{self.path}: {key} is {dtype} {shape}, expected (samples,) or (samples, d) of"
                    " numbers"
                )
            values = np.empty(shape, dtype=np.float32 if len(shape) == 2 else dtype)
            target = values.T if by_columns else values  # pandas keeps a frame's columns together
            for part, content in self._parts(stream, target, dtype, key):
                with np.errstate(over="ignore"):  # what is infinite then is refused
                    part[...] = content
        return values

    def fill(self, key: str, target: np.ndarray, progress: StageProgress) -> None:
        """Write the pixels of an array into `target`, some megabytes at a time."""
        done = 0
        with self.stream(key) as (stream, _, dtype, _):
            for part, content in self._parts(stream, target, dtype, key):
                part[...] = to_bytes(content, str(self.path), done)
                done += len(part)
                progress(done, len(target))

    def _parts(
        self, stream: IO[bytes], target: np.ndarray, dtype: np.dtype, key: str
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Some samples of `target` at a time, and what the stream holds for them."""
        sample_bytes = math.prod(target.shape[1:]) * dtype.itemsize
        step = max(1, _CHUNK_BYTES // sample_bytes)
        for start in range(0, len(target), step):
            part = target[start : start + step]
            is_last = start + len(part) == len(target)
            content = self._read(stream, len(part) * sample_bytes, key, is_last=is_last)
            yield part, np.frombuffer(content, dtype=dtype).reshape(part.shape)

    def _read(self, stream: IO[bytes], count: int, key: str, *, is_last: bool) -> bytes:
        content = stream.read(count)
        if len(content) < count:
            raise UserError(f"{self.path}: {key} ends too early; save or fetch the file again")
        # Reading to the end also makes the archive compare its checksum.
        if is_last and stream.read(1):
            raise UserError(
                f"{self.path}: {key} holds more than its header promises; save the file again"
            )
        return content
