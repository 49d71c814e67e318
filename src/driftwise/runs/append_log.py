"""A file that only grows, line by line, and the seal by which its lines are known again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driftwise.errors import RunFailure, UserError
from driftwise.files import JSON, open_regular, own_file, size, sync, writing

Seal = dict[str, Any]
"""`bytes` from the beginning of a file, and their `sha256`."""

EMPTY: Seal = {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}


class Journal:
    """Lines of JSON in a file with one writer.

    The digest goes along with the lines, so that sealing them takes no longer the more there are.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._length = 0
        self._digest: Any = None  # of what is there before the first line: not yet read

    def append(self, line: Mapping[str, JSON]) -> None:
        """Add one line, whole or not at all."""
        content = json.dumps(line, allow_nan=False).encode() + b"\n"
        with writing(self.path):
            self._take_up()
        # Opened anew for each line: a handle kept open would go on writing into a removed folder.
        with (
            writing(self.path),
            open(self.path, "ab", buffering=0, opener=own_file) as file,
        ):
            # Half a line stays behind where a disk takes neither it nor its removal.
            length, left = min(file.tell(), self._length), memoryview(content)
            file.truncate(length)
            try:
                while left:
                    left = left[file.write(left) :]
            except OSError:
                with contextlib.suppress(OSError):  # the first error is the one to report
                    file.truncate(length)
                raise
        self._length += len(content)
        self._digest.update(content)

    def seal(self) -> Seal:
        """Of all lines so far, which are on the disk by then."""
        with writing(self.path):
            self._take_up()
            if self._length or self.path.exists():
                sync(self.path)
        return self._seal()

    def _seal(self) -> Seal:
        return {"bytes": self._length, "sha256": self._digest.hexdigest()}

    def mark(self) -> Seal:
        """`seal` for lines that nothing depends on: on the disk by then, if that can be."""
        try:
            return self.seal()
        except RunFailure:
            return EMPTY if self._digest is None else self._seal()

    def rotate(self, older: Path, *, most: int) -> None:
        """Begin a new file once there are so many bytes; the lines so far become `older`."""
        with writing(self.path):
            self._take_up()
            if self._length >= most:
                self.path.replace(older)
                self._length, self._digest = 0, hashlib.sha256()

    def undo_rotation(self, older: Path, seal: Seal) -> None:
        """Undo `rotate` where the lines that were sealed are those of before it."""
        if not self.fits(seal) and Journal(older).fits(seal):
            with writing(self.path):
                older.replace(self.path)

    def fits(self, seal: Seal) -> bool:
        """Whether the file begins with what was sealed."""
        if size(self.path) < seal["bytes"]:
            return False
        return bool(seal["sha256"] == _digest(self.path, seal["bytes"]).hexdigest())

    def return_to(self, seal: Seal) -> None:
        """Drop the lines that came after a seal; what was half written goes with them."""
        with writing(self.path):
            if size(self.path) > seal["bytes"]:
                os.truncate(self.path, seal["bytes"])
        self._digest = None

    def count(self) -> int:
        """Whole lines in the file."""
        if not self.path.exists():
            return 0
        with open_regular(self.path) as file:
            return sum(line.endswith(b"\n") for line in file)

    def lines(self) -> list[Any]:
        """All lines, as they were written; RunFailure if the file holds anything else."""
        self._take_up()
        digest, lines = hashlib.sha256(), []
        if self._length:
            with open_regular(self.path) as file:
                for line in file:  # one at a time: as text they take several times their memory
                    digest.update(line)
                    lines.append(_parsed(line))
        if digest.digest() != self._digest.digest():
            raise RunFailure(f"{self.path} was changed by somebody else while the run was going on")
        return lines

    def sealed_lines(self, seal: Seal) -> list[Any]:
        """The lines that were sealed; UserError if they are not as they were written."""
        if not self.fits(seal):
            raise UserError(f"{self.path} is damaged: its lines are not as they were written")
        with open_regular(self.path) as file:
            return [json.loads(line) for line in file.read(seal["bytes"]).splitlines()]

    def _take_up(self) -> None:
        if self._digest is None:
            self._length = size(self.path)
            self._digest = _digest(self.path, self._length)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None  # the digest will show it


def _digest(path: Path, length: int) -> Any:
    """SHA-256 over the first bytes of a file, open for more."""
    digest = hashlib.sha256()
    if length:
        with open_regular(path) as file:
            while length and (chunk := file.read(min(length, 1 << 20))):
                digest.update(chunk)
                length -= len(chunk)
    return digest
