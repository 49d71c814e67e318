"""Snapshots for processes that only predict, and the file that prediction workers map into memory."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from driftwise.config.learners import first_line
from driftwise.live import LiveLearner
from driftwise.live.portable import Predictor, packed, unpacked

log = logging.getLogger("driftwise.serve")


class Publisher(ABC):
    """Gives each new snapshot of a live learner to processes that only predict.

    While there is nothing that another process could use (nothing learned, a network that cannot be
    pickled, no room), nothing is given, and the learner's process predicts.
    """

    def __init__(self) -> None:
        self._number = -1
        self.failure: str | None = None
        """why other processes cannot predict"""

    def publish(self, live: LiveLearner, applied: int) -> None:
        """Give away the newest snapshot if it is another one; in the thread that learns.

        `applied`: the number of the last change that it knows.
        """
        if live.snapshot_number == self._number:
            return
        self._number = live.snapshot_number
        try:
            predictor = live.predictor_snapshot()
            if predictor is None:
                self._withdraw()
                self.failure = live.why_no_predictor
            else:
                self._give(packed(predictor, applied))
                self.failure = None
        except Exception as error:  # a network of the user's may raise anything
            self.failure = first_line(error)
            self._withdraw()

    @abstractmethod
    def _give(self, parts: Iterable[bytes | memoryview]) -> None:
        """Give these bytes away, whole or not at all."""

    @abstractmethod
    def _withdraw(self) -> None:
        """There is no snapshot to predict with."""


class FilePublisher(Publisher):
    """Snapshots as a file that is replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "newest"
        self._part = folder / "part"

    def _give(self, parts: Iterable[bytes | memoryview]) -> None:
        with self._part.open("wb") as file:
            file.writelines(parts)
        self._part.replace(self.path)  # workers that still map the former file keep it

    def _withdraw(self) -> None:
        with contextlib.suppress(OSError):  # a broken disk must not end learning
            self.path.unlink(missing_ok=True)
            self._part.unlink(missing_ok=True)


class Follower:
    """Maps the newest snapshot; the weights are those of the file, not copies of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None
        self._predictor: Predictor | None = None
        """None: what the file holds cannot be used here"""
        self._applied = 0

    def newest(self) -> tuple[int, Predictor] | None:
        """The last change that the newest predictor knows, and it; None: ask the main process."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 (quicker, for each prediction)
            if (found.st_ino, found.st_mtime_ns) != self._file:
                self._map()
        except FileNotFoundError:
            return None
        return None if self._predictor is None else (self._applied, self._predictor)

    def _map(self) -> None:
        with self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        # An inode is not used again while it is mapped: another file has another one.
        self._file = (found.st_ino, found.st_mtime_ns)
        try:
            self._applied, self._predictor = unpacked(mapped)
        except Exception as error:  # a class of the user's that is not found here, for example
            self._predictor = None
            log.warning("a snapshot cannot be used: %s", first_line(error))
