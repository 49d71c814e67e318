"""What can go wrong with the k-th change that a process makes to the files of a folder."""

from __future__ import annotations

import builtins
import dataclasses
import errno
import io
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

Kind = Literal["none", "full", "stays full", "read-only", "kill", "stuck"]
ERRORS: dict[Kind, int] = {
    "full": errno.ENOSPC,
    "stays full": errno.ENOSPC,
    "read-only": errno.EROFS,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trouble:
    """Strikes at one change to a folder: making, opening, writing, syncing, renaming, linking."""

    folder: str
    log: str
    """a line for each change that was tried, the one that met trouble being the last"""
    kind: Kind = "none"
    """full: that one fails for want of space; stays full: all from it on; read-only: all from it
    on, for another reason; kill: as by `kill -9`; stuck: the disk does not answer. Removing a file
    takes no space, and does not count for the first two."""
    call: int = 0
    """counted from 1"""
    only: str = ""
    """count changes whose line in the log begins like this, no others"""

    def install(self) -> None:
        """From now on, in this process; half of a write that fails reaches the disk."""
        _Patches(self)


class _Patches:
    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble
        self._calls = 0
        self._paths: dict[int, str] = {}
        self._log = os.open(trouble.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._open, self._os_open = io.open, os.open
        for name in ("replace", "rename", "link", "truncate", "mkdir", "unlink"):
            setattr(os, name, self._with_trouble(name, getattr(os, name)))
        fsync = os.fsync
        patches: dict[Any, dict[str, Any]] = {
            os: {"fsync": lambda fd: self._fsync(fsync, fd), "open": self._remember},
            io: {"open": self._opened},
            builtins: {"open": self._opened},
        }
        for module, names in patches.items():
            vars(module).update(names)

    def strike(self, name: str, path: object, half: Callable[[], object] = lambda: None) -> None:
        """Count a change to a file; perhaps it is the one that meets trouble."""
        if not str(path).startswith(self._trouble.folder):
            return
        line = f"{name} {Path(str(path)).name}"
        os.write(self._log, f"{line}\n".encode())
        needs_no_space = name == "unlink" and self._trouble.kind in ("full", "stays full")
        if needs_no_space or not line.startswith(self._trouble.only):
            return
        self._calls += 1
        kind, call = self._trouble.kind, self._trouble.call
        if kind == "none" or self._calls < call:
            return
        if kind not in ("stays full", "read-only") and self._calls > call:
            return
        half()
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "stuck":
            Path(f"{self._trouble.log}.stuck").touch()
            time.sleep(60)
            return
        raise OSError(ERRORS[kind], os.strerror(ERRORS[kind]), str(path))

    def _with_trouble(self, name: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def changed(path: Any, *rest: Any, **options: Any) -> Any:
            self.strike(name, path)
            return action(path, *rest, **options)

        return changed

    def _fsync(self, action: Callable[[int], None], fd: int) -> None:
        self.strike("fsync", self._paths.get(fd, ""))
        action(fd)

    def _remember(self, path: Any, *rest: Any, **options: Any) -> int:
        fd = self._os_open(path, *rest, **options)
        self._paths[fd] = str(path)
        return fd

    def _opened(self, file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+"):
            return self._open(file, mode, *rest, **options)
        self.strike("open", file)
        opened = self._open(file, mode, *rest, **options)
        self._paths[opened.fileno()] = str(file)
        return _File(opened, str(file), self.strike)


class _File:
    """A file open for writing."""

    def __init__(self, file: Any, path: str, strike: Callable[..., None]) -> None:
        self._file = file
        self._path = path
        self._strike = strike

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: Any) -> Any:
        def half() -> None:
            self._file.write(data[: len(data) // 2])
            self._file.flush()

        self._strike("write", self._path, half)
        return self._file.write(data)

    def truncate(self, size: int | None = None) -> Any:
        self._strike("truncate", self._path)
        return self._file.truncate(size)
