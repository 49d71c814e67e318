"""The newest snapshot as a file that prediction workers map into memory."""

from __future__ import annotations

import mmap
import os
import pickle
from pathlib import Path

from driftwise.config.learners import first_line
from driftwise.live import LiveLearner
from driftwise.live.portable import Predictor, packed, unpacked


class Publisher:
    """Writes each new snapshot of a live learner under one name, whole or not at all.

    While there is nothing that another process could use (nothing learned, a network that cannot be
    pickled, no room), there is no file, and the main process predicts.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "newest"
        self._number = -1
        self.failure: str | None = None
        """why workers cannot predict"""

    def publish(self, live: LiveLearner) -> None:
        """Write the newest snapshot if it is another one; in the thread that learns."""
        if live.snapshot_number == self._number:
            return
        self._number = live.snapshot_number
        part = self.path.with_name("part")
        try:
            predictor = live.predictor_snapshot()
            if predictor is None:
                self.path.unlink(missing_ok=True)
                return
            with part.open("wb") as file:
                file.writelines(packed(predictor, self._number))
            part.replace(self.path)  # workers that still map the former file keep it
            self.failure = None
        except (OSError, pickle.PicklingError, AttributeError, TypeError) as error:
            self.failure = f"prediction workers cannot follow: {first_line(error)}"
            self.path.unlink(missing_ok=True)
            part.unlink(missing_ok=True)


class Follower:
    """Maps the newest snapshot; the weights are those of the file, not copies of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None
        self._predictor: Predictor | None = None
        self.version = -1

    def newest(self) -> Predictor | None:
        """The newest predictor; None: there is none, ask the main process."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 (quicker, for each prediction)
            if (found.st_ino, found.st_mtime_ns) != self._file:
                self._map()
        except FileNotFoundError:
            return None
        return self._predictor

    def _map(self) -> None:
        with self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        # An inode is not used again while it is mapped: another file has another one.
        self.version, self._predictor = unpacked(mapped)
        self._file = (found.st_ino, found.st_mtime_ns)
