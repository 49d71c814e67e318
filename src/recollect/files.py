"""Files that appear whole or not at all, and whose failures are told in one line."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from recollect.errors import RunFailure, UserError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""What JSON can say; read-only shapes, so that a dict of floats counts as one."""


def write_json(path: str | os.PathLike[str], obj: JSON) -> None:
    """Write JSON to a file, whole or not at all: a reader sees the old content or the new."""
    text = json.dumps(obj, indent=1, allow_nan=False) + "\n"
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(text.encode())


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A temporary file to fill; it becomes `target` in one step, once it is safe on the disk."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with writing(target):
        try:
            yield temporary
            sync(temporary)
            temporary.replace(target)
            sync(target.parent)
        finally:
            quietly(temporary.unlink)


@contextlib.contextmanager
def writing(file: Path, remedy: str = "") -> Iterator[None]:
    """Tell an OSError in one line: the file, the reason, and what to do."""
    try:
        yield
    except OSError as error:
        advice = f"; {remedy}" if remedy else ""
        raise RunFailure(f"cannot write {file}: {reason(error)}{advice}") from error


def read_object(
    file: Path, remedy: str = "start anew with overwrite=True"
) -> dict[str, Any] | None:
    """A JSON object from a file, None if there is no such file."""
    try:
        found = json.loads(file.read_bytes())
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
def sealed(target: Path) -> Iterator[Path]:
    """`replacing`, and the checksum of what was written is kept beside it.

    The new checksum is there before the new content is, and that of the content it replaces stays
    beside it: however often it crashes in between, the file fits one of them.
    """
    with replacing(target) as temporary:
        yield temporary
        seals = _checksums(target.parent)
        seals[target.name] = [digest_of(target), digest_of(temporary)]
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

    Whatever damaged them may have been at the files beside them, which nothing would tell then.
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
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def size(file: Path) -> int:
    """Bytes in a file, 0 if there is none."""
    return file.stat().st_size if file.exists() else 0


def quietly(action: Callable[[], None]) -> None:
    """Tidy up as far as possible; what went wrong first is what gets told."""
    with contextlib.suppress(OSError):
        action()


def reason(error: OSError) -> str:
    """What the system says went wrong."""
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


def _take(lock: Path) -> BinaryIO:
    """Wait for a lock that the kernel gives back however its holder ends."""
    import fcntl  # here, so that looking for data works where there is no such lock

    with writing(lock, "choose a folder on a local disk that you may write to"):
        while True:
            handle = lock.open("ab")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(handle.fileno()), lock.stat()):
                    return handle
            except FileNotFoundError:
                pass  # its last holder removed it between our opening and locking: try again
            except BaseException:
                handle.close()
                raise
            handle.close()
