"""Reading and writing files: regular ones only, whole or not at all, failures in one line.

Files may come from anybody: a pipe or a device in a folder would keep its reader waiting, or never
end. Whatever is refused is an OSError, so that it is reported like a file that cannot be read.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import io
import json
import math
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeAlias

from driftwise.errors import RunFailure, UserError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""A JSON value; read-only types, so that a dict of floats counts as one."""

IS_WINDOWS = os.name == "nt"

SMALL = 16 * 2**20
"""Bytes of a file of settings, at most."""
LARGE = 256 * 2**20
"""Bytes of a result or a plan of a sweep, at most: that of 1,000 tasks with one class each has
about 150 MB."""
MOST_VALUES = 20_000_000
"""Values in a JSON file, at most: the shortest take thirty times as much memory as disk."""

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: str | os.PathLike[str], most: int | None = None) -> io.BufferedReader:
    """Open a regular file of at most so many bytes; OSError for anything else, without waiting."""
    _refuse(Path(path).stat(), path, most)  # first: opening some devices does something
    # Between the two calls it may have become something else; that must not keep us waiting either.
    handle = os.open(path, os.O_RDONLY | _flags("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY"))
    try:
        _refuse(os.fstat(handle), path, most)
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def _flags(*names: str) -> int:
    """Of these flags for `os.open`, those that the system has."""
    found = 0
    for name in names:
        found |= getattr(os, name, 0)
    return found


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """All of a regular file of at most so many bytes."""
    content = bytearray()
    with open_regular(path, most) as file:
        # In parts: memory for all that is allowed would be taken before anything is read.
        while len(content) <= most and (part := file.read(2**18)):
            content += part
    if len(content) > most:  # it has grown, or a size means nothing on its file system
        raise _too_large(len(content), path, most)
    return bytes(content)


def require_regular(path: str | os.PathLike[str], most: int | None = None) -> None:
    """OSError unless there is a regular file of at most so many bytes, for readers of their own."""
    open_regular(path, most).close()


def read_json(path: str | os.PathLike[str], most: int) -> Any:
    """The value in a JSON file; ValueError or RecursionError where there is none."""
    content = read_regular(path, most)
    # Each value but the first follows one of these; within texts they count, too.
    num_values = sum(map(content.count, (b",", b"[", b"{")))
    if num_values > MOST_VALUES:
        raise ValueError(f"expected at most {MOST_VALUES:,} values, found about {num_values:,}")
    return parse_json(content)


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    """The value of a JSON text; ValueError where it is none, or has a number out of range.

    Python reads NaN, takes 1e999 for infinity, and cannot print an integer of 5,000 digits.
    """
    hooks = {"parse_int": _whole, "parse_float": _finite, "parse_constant": _finite, **hooks}
    return json.loads(text, **hooks)


MAX_DIGITS = 300
"""of an integer: as many as a float can hold"""


def too_long(digits: str) -> str:
    """What is wrong with a number of so many digits."""
    return f"{digits[:20]}... is a number of {len(digits):,} digits, expected at most {MAX_DIGITS}"


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(too_long(text))
    return int(text)


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is not finite")
    return value


def _refuse(found: os.stat_result, path: str | os.PathLike[str], most: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for is_one, name in _KINDS if is_one(found.st_mode)), "something else")
        raise OSError(errno.EINVAL, f"expected a regular file, found {kind}", str(path))
    if most is not None and found.st_size > most:
        raise _too_large(found.st_size, path, most)


def _too_large(num_bytes: int, path: str | os.PathLike[str], most: int) -> OSError:
    words = f"expected at most {most:,} bytes, found {num_bytes:,}"
    return OSError(errno.EFBIG, words, str(path))


# Writing


def write_json(path: str | os.PathLike[str], obj: JSON) -> None:
    """Write JSON to a file, whole or not at all: a reader sees the old content or the new."""
    text = json.dumps(obj, indent=1, allow_nan=False) + "\n"
    with replacing(Path(path)) as file:
        file.write(text.encode())


@contextlib.contextmanager
def replacing(target: Path, *, durable: bool = True) -> Iterator[io.BufferedRandom]:
    """An open file to fill; it becomes `target` in one step, once it is safe on the disk.

    Its name cannot be guessed and it is made here or not at all, so that no link in its place leads
    the writing elsewhere; a link in the place of `target` gives way. `durable=False` does not wait
    for the disk: for what can be made again at any time.
    """
    temporary = temporary_beside(target)
    with writing(target):
        try:
            with temporary.open("x+b") as file:  # exclusive: it follows no link
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            temporary.replace(target)
            if durable:
                sync(target.parent)
        finally:
            quietly(temporary.unlink)


def temporary_beside(target: Path) -> Path:
    """A name for a temporary file, which no two processes share and nobody foresees."""
    start = os.fsdecode(os.fsencode(target.name)[:200])  # file systems allow 255 bytes
    return target.with_name(f".{start}.{secrets.token_hex(8)}.tmp")


def own_file(path: str, flags: int) -> int:
    """An `opener` for files under a known name: a link, a pipe or a device there is an OSError."""
    # Without waiting: a pipe would keep its opener until somebody comes to the other end.
    flags |= _flags("O_NOFOLLOW", "O_NONBLOCK")
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a pipe with nobody at its other end
            kind = "a link" if error.errno == errno.ELOOP else "a pipe"
            raise OSError(error.errno, f"it is {kind}, not a regular file", path) from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return handle


@contextlib.contextmanager
def writing(file: Path, remedy: str = "") -> Iterator[None]:
    """RunFailure in one line for an OSError: the file, the reason, and what to do."""
    try:
        yield
    except OSError as error:
        advice = f"; {remedy}" if remedy else ""
        raise RunFailure(f"cannot write {file}: {reason(error)}{advice}") from error


def read_object(
    file: Path, remedy: str = "start anew with overwrite=True", *, most: int = SMALL
) -> dict[str, Any] | None:
    """A JSON object from a file of at most so many bytes, None if there is no such file."""
    try:
        found = read_json(file, most)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot read {file}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged: {error}; {remedy}") from error
    if not isinstance(found, dict):
        raise UserError(f"{file} is damaged: expected a JSON object; {remedy}")
    return found


CHECKSUMS = "checksums.json"
"""Kept in a folder: SHA-256 of the files that were written `sealed` into it, and of itself."""


@contextlib.contextmanager
def sealed(target: Path) -> Iterator[io.BufferedRandom]:
    """`replacing`, and the checksum of what was written is kept beside it.

    The new checksum is there before the new content is, and that of the content it replaces stays
    beside it: however often it crashes in between, the file fits one of them.
    """
    with replacing(target) as file:
        yield file
        file.seek(0)
        seals = _checksums(target.parent)
        seals[target.name] = [
            digest_of(target),
            hashlib.file_digest(file, "sha256").hexdigest(),
        ]
        write_json(target.parent / CHECKSUMS, {**seals, CHECKSUMS: [_digest_of_json(seals)]})


def refuse_unsealed(file: Path) -> None:
    """UserError if a file is not as it was written; one that has no checksum, or is not, passes."""
    seals = _checksums(file.parent).get(file.name)
    if seals is not None and digest_of(file) not in (*seals, None):
        raise UserError(
            f"{file} is damaged: its checksum in {CHECKSUMS} does not fit; "
            "start anew with overwrite=True"
        )


def _checksums(folder: Path) -> dict[str, list[str | None]]:
    """By name; UserError if they are damaged themselves.

    Whatever damaged them may have damaged the files beside them, and nothing would report it.
    """
    file = folder / CHECKSUMS
    remedy = "start anew with overwrite=True, or remove it to go on without checksums"
    seals = read_object(file, remedy) or {}
    own = seals.pop(CHECKSUMS, None)
    if own is None:  # as earlier versions wrote it
        whole = all(isinstance(each, list) for each in seals.values())
    else:
        whole = own == [_digest_of_json(seals)]
    if not whole:
        raise UserError(f"{file} is damaged: its own checksum does not fit; {remedy}")
    return seals


def _digest_of_json(value: JSON) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def digest_of(file: Path) -> str | None:
    """SHA-256 of a file's content, None if there is no such file."""
    try:
        with open_regular(file) as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def refuse_links(out: Path, path: Path) -> None:
    """UserError if a folder on the way from an output folder to a path below it is a link.

    Writing or removing there would happen elsewhere. The output folder itself may be a link.
    """
    for part in reversed([path, *path.parents][: len(path.relative_to(out).parts)]):
        if part.is_symlink():
            raise UserError(
                f"{part} is a link, and nothing is written through a link below {out}; put a "
                "folder in its place, or choose another output folder"
            )


def folder_in(out: Path, name: str) -> Path:
    """A folder below an output folder, made where it is missing; UserError if it is a link."""
    folder = out / name
    refuse_links(out, folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


MANIFEST = ".written.json"
"""Kept in an output folder: names of the files that were written below it, by folder."""


class Manifest:
    """Which files of a folder, or of one below it, were written here: only these are removed."""

    def __init__(self, out: Path, below: str = "") -> None:
        self._file = out / MANIFEST
        self._folder = below

    def names(self) -> set[str]:
        """Files of the folder; none where nothing is noted, or the note is damaged."""
        return self._read().get(self._folder, set())

    def add(self, names: Iterable[str]) -> None:
        """Note files; to be called before they are written, for what a crash leaves behind."""
        with alone(self._file):
            noted = self._read()
            known = noted.get(self._folder, set())
            if not known.issuperset(names := set(names)):
                self._write({**noted, self._folder: known | names})

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, those of them that are noted."""
        if not (gone := self.names().intersection(names)):
            return
        folder = self._file.parent / self._folder
        refuse_links(self._file.parent, folder)
        for file in (folder / name for name in gone):
            with writing(file):
                if not file.is_dir():
                    file.unlink(missing_ok=True)
        with alone(self._file):
            noted = self._read()
            self._write({**noted, self._folder: noted.get(self._folder, set()) - gone})

    def _read(self) -> dict[str, set[str]]:
        try:
            with open(self._file, "rb", opener=own_file) as file:
                noted = json.loads(file.read(1 << 26))  # cut off, a larger one is damaged
            return {
                folder: {name for name in names if Path(name).name == name}
                for folder, names in noted.items()
            }
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            return {}

    def _write(self, noted: Mapping[str, set[str]]) -> None:
        left = {folder: sorted(names) for folder, names in noted.items() if names}
        if left:
            write_json(self._file, left)
        else:
            quietly(self._file.unlink)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if IS_WINDOWS and path.is_dir():
        return  # folders cannot be opened there; NTFS keeps a log of names
    # Windows flushes only what was opened for writing.
    handle = os.open(path, os.O_RDWR if IS_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def size(file: Path) -> int:
    """Bytes in a file, 0 if there is none."""
    return file.stat().st_size if file.exists() else 0


def quietly(action: Callable[[], None]) -> None:
    """Tidy up as far as possible; the first error is the one to report."""
    with contextlib.suppress(OSError):
        action()


def reason(error: OSError) -> str:
    """The system's own message."""
    return error.strerror or str(error)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Let one process at a time work on `path`; the others wait until it is done, or dead."""
    lock = path.with_name(f".{path.name}.lock")
    handle = _take(lock)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()  # while it is held: whoever waits for it notices, and tries again
        handle.close()


def lock_file(file: IO[bytes], *, wait: bool = True, shared: bool = False) -> None:
    """Lock an open file until it is closed, however its process ends.

    Args:
        file: open for reading at least.
        wait: for another process that holds it; else BlockingIOError.
        shared: with others that ask for a shared lock. Windows has no such lock here: it is exclusive.
    """
    try:
        import fcntl
    except ImportError:
        _lock_on_windows(file, wait=wait)
        return
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)


_LOCKED_BYTE = 2**30
"""Far behind the content, which others may read while the file is locked."""


def _lock_on_windows(file: IO[bytes], *, wait: bool) -> None:
    msvcrt: Any = importlib.import_module("msvcrt")
    handle = file.fileno()
    while True:
        before = os.lseek(handle, 0, os.SEEK_CUR)
        os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            return
        except OSError as error:
            if not wait:
                raise BlockingIOError(errno.EAGAIN, "the file is locked", file.name) from error
        finally:
            os.lseek(handle, before, os.SEEK_SET)
        time.sleep(0.05)


def _take(lock: Path) -> BinaryIO:
    """Wait for a lock that the kernel gives back however its holder ends."""
    with writing(lock, "choose a folder on a local disk that you may write to"):
        while True:
            handle = open(lock, "ab", opener=own_file)  # noqa: SIM115
            try:
                lock_file(handle)
                if os.path.samestat(os.fstat(handle.fileno()), lock.stat()):
                    return handle
            except FileNotFoundError:
                pass  # its last holder removed it between our opening and locking: try again
            except BaseException:
                handle.close()
                raise
            handle.close()
