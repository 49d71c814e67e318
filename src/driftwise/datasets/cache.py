"""Data sets decoded once: their pixels lie in a file that later uses map into memory.

A cache is a folder that appears whole or not at all, with every byte under a checksum:

    images.u8     the pixels, raw, (samples, height, width, channels)
    labels.npy    and is_test.npy, domains.npy, groups.npy where the data set has them
    meta.json     shape, names, what it was made from, size and checksum of the files above

Every byte is compared with its checksum when a cache is opened, once in a process: a damaged cache
is built again, never trained on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftwise.datasets.reading import Allocate
from driftwise.errors import RunFailure, UserError
from driftwise.files import alone, quietly, sync, write_json, writing
from driftwise.paths import cache_home

if TYPE_CHECKING:  # it imports torch, which only building or opening a cache should cost
    from driftwise.types import Dataset

FORMAT = 2
IMAGES = "images.u8"
META = "meta.json"
COLUMNS = ("labels", "is_test", "domains", "groups")
REMEDY = "free some space or let DRIFTWISE_CACHE name another folder"

_VERIFIED: dict[Path, tuple[object, ...]] = {}
"""Files whose content was compared with their checksum in this process, and their state then."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The files that a data set is read from, in the state in which they were found."""

    fingerprint: str
    """hexadecimal, of names, sizes and times of writing: another one is another cache"""
    touched: str = ""
    """of the times of any change, which the system keeps and no program sets back"""
    paths: tuple[Path, ...] = ()

    def sha256(self) -> str:
        """Of the names and the content of all files."""
        digest = hashlib.sha256()
        for file in (file for path in self.paths for file in _files_of(path)):
            with _readable():
                # A link to nothing has no content.
                regular = stat.S_ISREG(file.state.st_mode)
                content = _sha256(Path(file.path)) if regular else None
                digest.update(os.fsencode(f"{file.name}\0{content}\n"))
        return digest.hexdigest()


def source_of(paths: Iterable[Path], *, tag: str = "") -> Source:
    """The state of some files and folders.

    Names are taken relative to each path, so that a data set may be moved as a whole. The tag is
    for whatever else determines the outcome, such as the version of a reader.
    """
    paths = tuple(paths)
    digest, touched = hashlib.sha256(tag.encode()), hashlib.sha256()
    for path in paths:
        files = _files_of(path)
        lines = [f"{file.name}\0{file.state.st_size}\0{file.state.st_mtime_ns}" for file in files]
        digest.update(os.fsencode("\n".join(["", *lines])))
        touched.update(" ".join(str(file.state.st_ctime_ns) for file in files).encode())
    return Source(fingerprint=digest.hexdigest(), touched=touched.hexdigest(), paths=paths)


def cached(
    name: str,
    source: Source,
    read: Callable[[Allocate], Dataset],
    *,
    home: Path | None = None,
    warn: Callable[[str], None] | None = None,
) -> Dataset:
    """What `read` returns, read only the first time and mapped from a file from then on.

    Another fingerprint of the source replaces the cache of that name. Where the source was touched
    since, its content decides. A damaged or outdated cache is built again, and `warn` is called.
    """
    fingerprint = source.fingerprint
    assert re.fullmatch(r"[\w.+-]+", name), name
    assert re.fullmatch(r"[0-9a-f]{16,}", fingerprint), fingerprint
    caches = (cache_home() if home is None else home) / "datasets"
    folder = caches / f"{name}-{fingerprint[:16]}"
    try:
        return _open(folder, source)
    except _Unusable:
        with writing(caches, REMEDY):
            caches.mkdir(parents=True, exist_ok=True)
    with alone(caches / name):
        try:  # another process may have built it while this one waited
            return _open(folder, source)
        except _Unusable as problem:
            if warn is not None and folder.exists():
                warn(f"the cached {name} is {problem.kind} and built anew: {folder}: {problem}")
        _build(folder, source, read)
        # What was made, or begun, from a source that is no more.
        old = re.compile(rf"\.?{re.escape(name)}-[0-9a-f]{{16}}(\.building)?")
        for path in caches.iterdir():
            if path != folder and old.fullmatch(path.name):
                _remove(path)
        return _open(folder, source)


def verified_sha256(images: np.ndarray) -> str | None:
    """Of the pixels of a cache that has just been opened; None: another array, or a part of one.

    It is that of the file. It does not cover what was written to the images in memory since.
    """
    pixels = images.base
    return pixels.sha256 if isinstance(pixels, _Pixels) and _is_same(images, pixels) else None


def verify_cache(path: Path) -> list[str]:
    """Everything that is wrong with a cache folder, every byte read; empty if all is well."""
    try:
        return _problems(path, _read_meta(path), {})
    except _Unusable as problem:
        return [str(problem)]


class _Unusable(Exception):
    """Why a cache cannot be opened."""

    def __init__(self, reason: str, kind: str = "damaged") -> None:
        super().__init__(reason)
        self.kind = kind


class _Pixels(np.memmap):
    """Pixels in the file of a cache, as they were when it was opened."""

    sha256: str | None = None


def _open(folder: Path, source: Source) -> Dataset:
    """The data set in a cache, after its files have been checked."""
    from driftwise.types import Dataset

    meta = _read_meta(folder)
    if problems := _problems(folder, meta, _VERIFIED):
        raise _Unusable("; ".join(problems))
    if meta["fingerprint"] != source.fingerprint:
        raise _Unusable(
            f"made from {meta['fingerprint']}, expected {source.fingerprint}", "outdated"
        )
    if meta["touched"] != source.touched:
        if source.sha256() != meta["content"]:
            raise _Unusable(
                "the files it was made from have changed, though not their sizes and times",
                "outdated",
            )
        touched = {**meta, "touched": source.touched}
        with contextlib.suppress(RunFailure):  # they will be read again the next time
            write_json(folder / META, {**touched, "sha256": _seal(touched)})
    try:
        columns = {
            column: np.load(folder / f"{column}.npy", allow_pickle=False)
            for column in COLUMNS
            if f"{column}.npy" in meta["files"]
        }
        # Copy on write ("c") rather than read-only: torch.from_numpy warns about arrays that may
        # not be written to. The file stays as it is, and pages cost memory only if written to.
        pixels = _Pixels(folder / IMAGES, dtype=np.uint8, mode="c", shape=tuple(meta["shape"]))
        pixels.sha256 = meta["files"][IMAGES]["sha256"]
    except OSError as error:  # another process has just replaced it
        raise _Unusable(str(error)) from error
    return Dataset(
        images=pixels.view(np.ndarray),  # indexing the subclass is slower
        class_names=tuple(meta["class_names"]),
        domain_names=tuple(meta["domain_names"]),
        **columns,
    )


def _problems(
    folder: Path, meta: dict[str, Any], known: dict[Path, tuple[object, ...]]
) -> list[str]:
    """What is wrong with the files; those that are known to be right are not read again."""
    problems = []
    for name, expected in meta["files"].items():
        file = folder / name
        try:
            found = file.stat()
            state = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, expected["sha256"])
            if found.st_size != expected["bytes"]:
                problems.append(f"{name}: expected {expected['bytes']} bytes, got {found.st_size}")
            elif known.get(file) != state and _sha256(file) != expected["sha256"]:
                problems.append(f"{name}: its checksum differs")
            else:
                known[file] = state
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
    return problems


def _build(folder: Path, source: Source, read: Callable[[Allocate], Dataset]) -> None:
    """Read into a folder beside the cache's own, which it becomes in one step."""
    scratch = folder.with_name(f".{folder.name}.building")
    given: list[tuple[Path, np.memmap]] = []

    def allocate(shape: tuple[int, ...]) -> np.ndarray:
        """A uint8 array in a file of its own."""
        if not math.prod(shape):
            raise UserError(f"expected at least one image to cache, got the shape {shape}")
        file = scratch / f"given-{len(given)}.u8"
        with writing(file, REMEDY), file.open("wb") as handle:
            # Space that turns out to be missing at a write to mapped memory would end the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle.fileno(), 0, math.prod(shape))
            handle.truncate(math.prod(shape))
        given.append((file, np.memmap(file, dtype=np.uint8, mode="r+", shape=shape)))
        return given[-1][1]

    _remove(scratch)  # of a process that was killed: the lock is ours
    try:
        with writing(scratch, REMEDY):
            scratch.mkdir()
        # Before it is read: a change in between is noticed the next time.
        content = source.sha256()
        dataset = read(allocate)
        with writing(scratch, REMEDY):
            for file, pixels in given:
                if _is_same(dataset.images, pixels):  # no copy needed
                    pixels.flush()
                    file.rename(scratch / IMAGES)
                else:
                    file.unlink()
            if not (scratch / IMAGES).exists():
                dataset.images.tofile(scratch / IMAGES)
            _write_rest(scratch, dataset, source, content)
            _remove(folder)  # a damaged one
            scratch.rename(folder)
            sync(folder.parent)
    except BaseException:
        _remove(scratch)
        raise


def _write_rest(folder: Path, dataset: Dataset, source: Source, content: str) -> None:
    """Everything but the pixels, and wait until all of it is on the disk."""
    columns = {column: getattr(dataset, column) for column in COLUMNS}
    present = {column: values for column, values in columns.items() if values is not None}
    assert dataset.images.dtype == np.uint8, dataset.images.dtype
    assert all(len(values) == len(dataset.images) for values in present.values())
    for column, values in present.items():
        np.save(folder / f"{column}.npy", values, allow_pickle=False)
    files = [folder / IMAGES, *(folder / f"{column}.npy" for column in present)]
    meta = {
        "format": FORMAT,
        "fingerprint": source.fingerprint,
        "touched": source.touched,
        "content": content,
        "shape": dataset.images.shape,
        "class_names": dataset.class_names,
        "domain_names": dataset.domain_names,
        "files": {
            file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)} for file in files
        },
    }
    meta["sha256"] = _seal(meta)
    (folder / META).write_text(json.dumps(meta, indent=1))
    for path in (*files, folder / META, folder):
        sync(path)


def _read_meta(folder: Path) -> dict[str, Any]:
    """The description of a cache, if it is intact and of the present format."""
    try:
        meta = json.loads((folder / META).read_bytes())
    except OSError as error:
        raise _Unusable(f"{META}: {error.strerror}") from error
    except ValueError as error:
        raise _Unusable(f"{META}: {error}") from error
    if not isinstance(meta, dict) or meta.pop("sha256", None) != _seal(meta):
        raise _Unusable(f"{META}: its checksum differs")
    if meta["format"] != FORMAT:
        raise _Unusable(f"expected format {FORMAT}, got {meta['format']}", "outdated")
    return meta


def _seal(meta: dict[str, Any]) -> str:
    """A checksum of the content of meta.json."""
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_same(images: np.ndarray, pixels: np.ndarray) -> bool:
    """Whether both are the same memory, seen the same way."""
    one, other = images.__array_interface__, pixels.__array_interface__
    return all(one[key] == other[key] for key in ("data", "shape", "strides", "typestr"))


def _remove(folder: Path) -> None:
    """Remove a folder, file or link as far as possible; whoever has mapped a file keeps it."""
    if folder.is_symlink() or folder.is_file():
        quietly(folder.unlink)
    else:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}") from error


class _File(NamedTuple):
    name: str
    """relative to the path that was given"""
    path: str
    state: os.stat_result


@_readable()
def _files_of(path: Path) -> list[_File]:
    """The file at a path, or every file below it, by name."""
    state = path.stat()
    if not stat.S_ISDIR(state.st_mode):
        return [_File(path.name, str(path), state)]
    return sorted(_files(str(path), "", ()), key=lambda file: file.name)


def _files(folder: str, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[_File]:
    """Every file below a folder; links are followed, but not around in circles."""
    here = Path(folder).stat()
    if (here.st_dev, here.st_ino) in above:
        return
    above = (*above, (here.st_dev, here.st_ino))
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path, f"{prefix}{entry.name}/", above)
                continue
            try:
                found = entry.stat()
            except FileNotFoundError:
                found = entry.stat(follow_symlinks=False)  # a link to nothing
            yield _File(f"{prefix}{entry.name}", entry.path, found)
