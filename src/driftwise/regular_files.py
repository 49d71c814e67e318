"""Reading files that came from anybody: regular ones only, and no more of them than expected.

A pipe or a device in a folder would keep its reader waiting, or never end. Whatever is refused is
an OSError, so that it is reported like a file that cannot be read.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Any

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


def open_regular(path: str | os.PathLike[str], most: int | None = None) -> BufferedReader:
    """Open a regular file of at most so many bytes; OSError for anything else, without waiting."""
    _refuse(Path(path).stat(), path, most)  # first: opening some devices does something
    # Between the two calls it may have become something else; that must not keep us waiting either.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _refuse(os.fstat(handle), path, most)
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


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
    """What a JSON file says; ValueError or RecursionError where it says nothing."""
    content = read_regular(path, most)
    # Each value but the first follows one of these; within texts they count, too.
    num_values = sum(map(content.count, (b",", b"[", b"{")))
    if num_values > MOST_VALUES:
        raise ValueError(f"expected at most {MOST_VALUES:,} values, found about {num_values:,}")
    return parse_json(content)


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    """What JSON says; ValueError where it is none, or says a number that nothing can go on with.

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
