"""The write-ahead log: what was acknowledged is on the disk, and survives a crash.

A folder of segments, `000000000001.jsonl` and so on, each named after the number of its first record.
A record is a line of JSON with a checksum of itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from driftwise.errors import RunFailure, UserError
from driftwise.files import JSON, open_regular, size, sync, writing
from driftwise.runs.append_log import Journal, Seal

SUFFIX = ".jsonl"
CHECKSUM = "crc32"


class RequestLog:
    """Numbered records in segments; one writer."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        """`max_bytes`: of all segments together; beyond that nothing is appended."""
        self._folder = folder
        self._max_bytes = max_bytes
        self.dropped = 0
        """bytes at the end that were cut off: a record that a crash left half-written"""
        with writing(folder):
            folder.mkdir(exist_ok=True)
        names = [each.stem for each in folder.glob(f"*{SUFFIX}")]
        if strange := sorted(name for name in names if not name.isdecimal()):
            raise UserError(
                f"{folder / strange[0]}{SUFFIX} is no part of a log of requests; move it"
            )
        self._firsts = sorted(map(int, names))
        self._next = self._firsts[-1] if self._firsts else 1
        if self._firsts:
            self._next += self._cut_tail()
        else:
            self._firsts = [self._next]
        self._journal = Journal(self._path(self._firsts[-1]))
        self._broken: str | None = None
        """why nothing can be appended any more"""

    @property
    def next_number(self) -> int:
        """The number of the next record."""
        return self._next

    @property
    def num_bytes(self) -> int:
        """Of all segments."""
        return sum(size(self._path(first)) for first in self._firsts)

    @property
    def segment_bytes(self) -> int:
        """Of the current segment: what has come since the last saved state."""
        return size(self._journal.path)

    def append(self, record: Mapping[str, JSON]) -> int:
        """Add a record; it is on the disk when this returns. RunFailure: it is not in the log."""
        if self._broken is not None:
            raise RunFailure(self._broken)
        if self.num_bytes >= self._max_bytes:
            raise RunFailure(
                f"{self._folder} holds {self.num_bytes:,} bytes of requests that are not saved yet, "
                f"and at most {self._max_bytes:,} are allowed; see why the state cannot be saved"
            )
        number = self._next
        line = {"n": number, **record}
        before: Seal = {"bytes": size(self._journal.path)}
        self._journal.append({**line, CHECKSUM: _checksum(line)})
        try:
            self._journal.seal()
            if number == self._firsts[-1]:  # the name of a new file must be on the disk, too
                with writing(self._folder):
                    sync(self._folder)
        except RunFailure as error:
            self._take_back(before, error)
            raise
        self._next += 1
        return number

    def _take_back(self, before: Seal, error: RunFailure) -> None:
        """Remove a record that may not have reached the disk: its number will be given again."""
        try:
            self._journal.return_to(before)
        except RunFailure:
            self._broken = f"{error}; restart the service once the disk is well"

    def records(self, since: int) -> Iterator[dict[str, Any]]:
        """The records after number `since`, in order; UserError where some are missing."""
        if self._firsts[0] > since + 1:
            raise UserError(
                f"{self._folder} begins with request {self._firsts[0]}, and the saved state ends "
                f"with {since}: requests in between are missing; put the files back"
            )
        for first, end in zip(self._firsts, [*self._firsts[1:], self._next], strict=True):
            if end <= since + 1:
                continue
            found, _ = _read(self._path(first))
            if [each["n"] for each in found] != list(range(first, end)):
                raise UserError(f"{self._path(first)} is damaged: expected {first} to {end - 1}")
            yield from (each for each in found if each["n"] > since)
        if self._next <= since:
            raise UserError(
                f"{self._folder} ends with request {self._next - 1}, and the saved state with "
                f"{since}: put the newer files back"
            )

    def begin_segment(self) -> None:
        """The next record begins a new file; earlier files can be dropped once all is saved."""
        if self._next > self._firsts[-1]:
            # Its name says where the log goes on, also once all earlier files are dropped.
            path = self._path(self._next)
            with writing(path):
                path.touch()
                sync(self._folder)
            self._firsts.append(self._next)
            self._journal = Journal(path)

    def drop_until(self, number: int) -> None:
        """Remove segments all of whose records, up to `number`, are part of saved states."""
        while len(self._firsts) > 1 and self._firsts[1] <= number + 1:
            with writing(self._path(self._firsts[0])):
                self._path(self._firsts[0]).unlink(missing_ok=True)
            self._firsts.pop(0)

    def _cut_tail(self) -> int:
        """Drop a half-written record at the end; the number of whole ones in the last segment."""
        path = self._path(self._firsts[-1])
        found, length = _read(path)
        self.dropped = size(path) - length
        if self.dropped:
            with writing(path):
                os.truncate(path, length)
        return len(found)

    def _path(self, first: int) -> Path:
        return self._folder / f"{first:012d}{SUFFIX}"


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Whole records, and the bytes that they take; UserError if others follow a damaged one."""
    found: list[dict[str, Any]] = []
    length, damaged = 0, False
    with contextlib.suppress(FileNotFoundError), open_regular(path) as file:
        for line in file:
            record = _parsed(line)
            if record is None:
                damaged = True
            elif damaged:
                raise UserError(
                    f"{path} is damaged after {length} bytes: acknowledged requests follow that "
                    "cannot be applied in order; put the file back from a copy"
                )
            else:
                found.append(record)
                length += len(line)
    return found, length


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None: it is not as it was written."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
        checksum = record.pop(CHECKSUM)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    return record if checksum == _checksum(record) else None


def _checksum(record: Mapping[str, JSON]) -> int:
    return zlib.crc32(json.dumps(record, allow_nan=False).encode())
