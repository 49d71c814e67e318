"""One store for everything a run writes: a folder, one writer at a time, never half a file.

A run's folder holds `config.json` from the start, `events.jsonl` which grows line by line,
`checkpoint.safetensors` and `samples.safetensors` which are replaced as a whole, and `result.json`
once the run is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from recollect.errors import RunFailure, UserError

if TYPE_CHECKING:
    from torch import Tensor

    from recollect.experiment.state import JSON

FORMAT = 1
"""Number of the checkpoint format; raised whenever an older reader would misunderstand the file."""

CONFIG = "config.json"
RESULT = "result.json"
EVENTS = "events.jsonl"
CHECKPOINT = "checkpoint.safetensors"
ARRAYS = {"samples": "samples.safetensors"}
"""Sets of arrays that a run may keep beside its result, by name."""
LOCK = ".lock"

# All that a run makes beside its config, in the order in which overwriting removes it: a run
# without a result counts as unfinished, and one without a checkpoint begins at its beginning.
_MADE = (RESULT, CHECKPOINT, EVENTS, *ARRAYS.values())


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """A set of arrays that a run kept."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]
    """what the writer wanted said about them"""


class RunFolder:
    """One run's folder, held by one writer until it is closed.

    Use `open`, preferably in a `with` statement. Whatever cannot be written (a full disk, a folder
    that has gone) is a RunFailure, and leaves the file that was there as it was.
    """

    def __init__(self, path: Path, lock: BinaryIO) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: Mapping[str, JSON],
        *,
        resume: bool = False,
        overwrite: bool = False,
    ) -> RunFolder:
        """Take a folder for the run that `config` describes; UserError, and no trace, if refused.

        A missing or empty folder is made into a run's. One that holds a run needs `resume` (same
        config; ask `finished` whether anything is left to do) or `overwrite` (removes the files
        of the run and no others). One that holds other things is never taken.
        """
        if resume and overwrite:
            raise UserError("--resume and --overwrite exclude each other; give one of them")
        path = Path(path)
        # As it would come back from the file (tuples as lists), and before anything is touched.
        config = json.loads(json.dumps(config, allow_nan=False))
        with contextlib.ExitStack() as undo:
            try:
                _make_folder(path, undo)
                if not (path / LOCK).exists():  # else someone may be at work: look when it is ours
                    _refuse_strangers(path)
                run = cls(path, _lock(path, undo))
                _refuse_strangers(path)
                if is_run(path) and not overwrite:
                    _refuse_unless_resumed(path, config, resume=resume)
                    _remove(_temporaries(path))
                else:
                    _start(path, config, undo)
            except OSError as error:
                raise UserError(f"cannot start a run in {path}: {_reason(error)}") from error
            except RunFailure as error:
                raise UserError(f"cannot start a run: {error}") from error
            undo.pop_all()
            return run

    def close(self) -> None:
        """Let the folder go; the next writer may have it."""
        self._lock.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def finished(self) -> bool:
        """Whether the result has been written, so that nothing is left to do."""
        return is_finished(self.path)

    def write_result(self, result: Mapping[str, JSON]) -> None:
        """Write `result.json`, which declares the run finished."""
        write_json(self._own(RESULT), result)

    def result(self) -> dict[str, Any]:
        """What `write_result` wrote."""
        return read_result(self.path)

    def append_event(self, event: Mapping[str, JSON]) -> None:
        """Add one line to `events.jsonl`, whole or not at all."""
        line = memoryview(json.dumps(event, allow_nan=False).encode() + b"\n")
        events = self._own(EVENTS)
        # Opened anew for each event: a handle kept open would go on writing into a removed folder.
        with _told_as_failure(events), events.open("ab", buffering=0) as file:
            length = file.tell()
            try:
                while line:
                    line = line[file.write(line) :]
            except OSError:
                with contextlib.suppress(OSError):  # what went wrong first is what gets told
                    file.truncate(length)
                raise

    def save_checkpoint(self, state: object) -> None:
        """Replace the checkpoint by `state`, which stands for all events so far."""
        events = self._own(EVENTS)
        with _told_as_failure(events):
            if events.exists():
                _sync(events)  # a checkpoint must not outlive events that it counts
        _write_state(self._own(CHECKPOINT), {"events": _size(events), "state": state})

    def load_checkpoint(self) -> Any:
        """The state saved last, None if there is none; events that came after it are dropped.

        Going on from the checkpoint will tell them again. A finished run keeps all of its events.
        """
        events = self._own(EVENTS)
        saved = _read_checkpoint(self.path)
        if _size(events) < saved["events"]:
            raise UserError(
                f"{events} is damaged: expected at least {saved['events']} bytes, "
                f"found {_size(events)}; start anew with --overwrite"
            )
        if not self.finished and _size(events) > saved["events"]:
            with _told_as_failure(events):
                os.truncate(events, saved["events"])
        return saved["state"]

    def save_arrays(
        self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, JSON]
    ) -> None:
        """Replace the set of arrays called `name` (one of `ARRAYS`)."""
        _write_state(self._own(ARRAYS[name]), {"tensors": dict(tensors), "meta": dict(meta)})

    def load_arrays(self, name: str) -> Arrays | None:
        """What `save_arrays` kept under `name`, None if nothing."""
        return read_arrays(self.path, name)

    def _own(self, name: str) -> Path:
        """A file to write, for as long as the folder is held."""
        assert not self._lock.closed, f"{self.path} was written to after it had been closed"
        return self.path / name


def is_run(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a run, finished or not.

    `config.json` alone proves nothing: many a project keeps a file of that name.
    """
    folder = Path(path)
    return (folder / CONFIG).is_file() and any((folder / name).exists() for name in (LOCK, *_MADE))


def is_finished(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a run that is complete."""
    return is_run(path) and (Path(path) / RESULT).is_file()


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The config of the run in a folder."""
    config = _read_object(Path(path) / CONFIG)
    if config is None:
        raise UserError(f"{path} holds no run; expected a folder with {CONFIG}")
    return config


def read_result(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The result of the finished run in a folder."""
    result = _read_object(Path(path) / RESULT)
    if result is None and is_run(path):
        raise UserError(f"{path} holds an unfinished run; finish it with --resume")
    if result is None:
        raise UserError(f"{path} holds no run; expected a folder with {CONFIG} and {RESULT}")
    return result


def read_checkpoint(path: str | os.PathLike[str]) -> Any:
    """The state saved last by the run in a folder, None if there is none; nothing is changed."""
    return _read_checkpoint(Path(path))["state"]


def read_arrays(path: str | os.PathLike[str], name: str) -> Arrays | None:
    """The arrays that the run in a folder kept under `name` (one of `ARRAYS`), None if nothing."""
    file = Path(path) / ARRAYS[name]
    return Arrays(**_read_state(file)) if file.exists() else None


def write_json(path: str | os.PathLike[str], obj: JSON) -> None:
    """Write JSON to a file, whole or not at all: a reader sees the old content or the new."""
    text = json.dumps(obj, indent=1, allow_nan=False) + "\n"
    with _replacing(Path(path)) as temporary:
        temporary.write_bytes(text.encode())


# Opening


def _make_folder(path: Path, undo: contextlib.ExitStack) -> None:
    """Make a folder and those above it; undoing removes the ones that were made here."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # somebody else was faster: theirs to remove
            folder.mkdir()
            undo.callback(_quietly, folder.rmdir)
    if not path.is_dir():
        raise UserError(f"{path} is not a folder; choose another --out")


def _refuse_strangers(path: Path) -> None:
    """Leave folders alone that hold anything but a run (or what a crash at its start left)."""
    debris = {LOCK, *(file.name for file in _temporaries(path))}
    if not is_run(path) and any(file.name not in debris for file in path.iterdir()):
        raise UserError(f"{path} holds files but no run; choose an empty or new folder for --out")


def _lock(path: Path, undo: contextlib.ExitStack) -> BinaryIO:
    """Take the folder's lock, which the kernel gives back however this process ends."""
    while True:
        is_new = not (path / LOCK).exists()
        lock = (path / LOCK).open("a+b", buffering=0)
        undo.callback(lock.close)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().decode(errors="replace").strip() or "unknown"
            raise UserError(f"{path} is in use by another process (pid {holder})") from None
        if _is_at(lock, path / LOCK):
            break
        lock.close()  # its last holder removed it between our opening and locking: try again
    if is_new:
        undo.callback(_quietly, (path / LOCK).unlink)
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n".encode())
    return lock


def _refuse_unless_resumed(path: Path, config: Mapping[str, JSON], *, resume: bool) -> None:
    """Let a run that is already there go on only where that is asked for and fits."""
    if not resume:
        kind = "a finished" if is_finished(path) else "an unfinished"
        raise UserError(
            f"{path} already holds {kind} run; go on with --resume or start anew with --overwrite"
        )
    differences = list(_differences(read_config(path), config))
    if len(differences) > 5:  # one line must hold them
        differences[5:] = [f"and {len(differences) - 5} more"]
    if differences:
        raise UserError(
            f"{path} holds a run of another config ({'; '.join(differences)}); "
            "choose another --out or start anew with --overwrite"
        )


def _start(path: Path, config: Mapping[str, JSON], undo: contextlib.ExitStack) -> None:
    """Make the folder that of a new run."""
    if not (path / CONFIG).exists():
        undo.callback(_quietly, (path / CONFIG).unlink)
    _remove([*(path / name for name in _MADE), *_temporaries(path)])
    write_json(
        path / CONFIG, config
    )  # replaced, never removed: the folder stays a run's throughout


def _differences(
    there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """One phrase for each entry in which two configs differ."""
    for key in dict.fromkeys([*there, *here]):
        old, new = there.get(key), here.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{key}.")
        elif old != new or (key in there) != (key in here):
            old_text, new_text = (
                json.dumps(side[key]) if key in side else "absent" for side in (there, here)
            )
            yield f"{prefix}{key}: {old_text} there, {new_text} here"


# Files


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A temporary file to fill; it becomes `target` in one step, once it is safe on the disk."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with _told_as_failure(target):
        try:
            yield temporary
            _sync(temporary)
            temporary.replace(target)
            _sync(target.parent)
        finally:
            _quietly(temporary.unlink)


@contextlib.contextmanager
def _told_as_failure(file: Path) -> Iterator[None]:
    """Tell an OSError in one line with the file and the reason."""
    try:
        yield
    except OSError as error:
        raise RunFailure(f"cannot write {file}: {_reason(error)}") from error


def _write_state(file: Path, state: object) -> None:
    # Imported here because it imports torch: `--help` and usage errors must not wait for that.
    from recollect.experiment import state as state_file

    with _replacing(file) as temporary:
        state_file.write(temporary, state, format=FORMAT)


def _read_state(file: Path) -> Any:
    from recollect.experiment import state as state_file  # late for the same reason

    try:
        return state_file.read(file, format=FORMAT)
    except UserError as error:
        raise UserError(f"{error}; start anew with --overwrite") from error


def _read_checkpoint(path: Path) -> dict[str, Any]:
    """What `save_checkpoint` wrote: the state, and the length of the events it stands for."""
    file = path / CHECKPOINT
    saved: dict[str, Any] = _read_state(file) if file.exists() else {"events": 0, "state": None}
    return saved


def _read_object(file: Path) -> dict[str, Any] | None:
    """A JSON object from a file, None if there is no such file."""
    try:
        found = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot read {file}: {_reason(error)}") from error
    except ValueError as error:
        raise UserError(f"{file} is damaged: {error}; start anew with --overwrite") from error
    if not isinstance(found, dict):
        raise UserError(f"{file} is damaged: expected a JSON object; start anew with --overwrite")
    return found


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _is_at(open_file: BinaryIO, path: Path) -> bool:
    """Whether an open file is still the one that stands at `path`."""
    try:
        return os.path.samestat(os.fstat(open_file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _temporaries(path: Path) -> list[Path]:
    """What a crash in the middle of `_replacing` left in a run's folder."""
    return [file for name in (CONFIG, *_MADE) for file in path.glob(f".{name}.*.tmp")]


def _remove(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _quietly(action: Callable[[], None]) -> None:
    """Tidy up as far as possible; what went wrong first is what gets told."""
    with contextlib.suppress(OSError):
        action()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
