"""One store for everything a run writes: a folder, one writer at a time, never half a file.

A run's folder holds `config.json` from the start, `events.jsonl` and `records.jsonl` which grow
line by line, `checkpoint.safetensors` and `samples.safetensors` which are replaced as a whole, and
`result.json` once the run is complete.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from driftwise.config.custom import NO_SOURCE
from driftwise.config.schema import RunConfig
from driftwise.errors import RunFailure, UserError
from driftwise.files import (
    CHECKSUMS,
    JSON,
    LARGE,
    digest_of,
    lock_file,
    open_regular,
    own_file,
    quietly,
    read_object,
    read_regular,
    reason,
    refuse_unsealed,
    replacing,
    sealed,
    sync,
    temporary_beside,
    writing,
)
from driftwise.runs.append_log import EMPTY, Journal

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 4
"""Number of the checkpoint format; raised whenever an older reader would misunderstand the file."""

CONFIG = "config.json"
RESULT = "result.json"
EVENTS = "events.jsonl"
OLDER_EVENTS = "events-previous.jsonl"
"""The lines before those in `events.jsonl`, where only so many are kept."""
RECORDS = "records.jsonl"
"""What the result is made of: a line for each complete task."""
CHECKPOINT = "checkpoint.safetensors"
PREVIOUS = "checkpoint-previous.safetensors"
"""The checkpoint before the last, for when that one is damaged."""
ARRAYS = {"samples": "samples.safetensors", "features": "features.safetensors"}
"""Sets of arrays that a run may keep beside its result, by name."""
SHARED = "shared.json"
"""Says that the first tasks of several runs are complete, from which these can go on."""
MOST_ARRAYS = 4 * 2**30
"""Bytes of such a set that are read back, at most."""
LOCK = ".lock"

# All that a run makes beside its config, in the order in which overwriting removes it: a run
# without a result counts as unfinished, and one without a checkpoint begins at its beginning.
_MADE = (
    *(RESULT, SHARED, CHECKPOINT, PREVIOUS, EVENTS, OLDER_EVENTS, RECORDS),
    *ARRAYS.values(),
    CHECKSUMS,
)

Warn = Callable[[str], None]


def _ignore(_: str) -> None:
    """Warn nobody."""


class FolderBusy(UserError):
    """Another process is at work on the run."""


class RunFolder:
    """One run's folder, held by one writer until it is closed.

    Use `open`, preferably in a `with` statement. Whatever cannot be written (a full disk, a folder
    that was removed) is a RunFailure, and leaves the file that was there as it was.
    """

    def __init__(self, path: Path, lock: BinaryIO, config: Mapping[str, JSON]) -> None:
        self.path = path
        self._lock = lock
        self._config = config
        self._pid = os.getpid()
        _HELD.add(self)
        self._events = Journal(path / EVENTS)
        self._records = Journal(path / RECORDS)

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
        config; `finished` says whether anything is left to do) or `overwrite` (removes the files
        of the run and no others). One that holds other things is never taken.
        """
        return cls.open_all({Path(path): config}, resume=resume, overwrite=overwrite)[0]

    @classmethod
    def open_all(
        cls,
        configs: Mapping[Path, Mapping[str, JSON]],
        *,
        resume: bool = False,
        overwrite: bool = False,
    ) -> list[RunFolder]:
        """`open` for several runs at once, by folder: all of them are taken, or none is touched."""
        if resume and overwrite:
            raise UserError("resume=True and overwrite=True exclude each other; give one of them")
        # As it would come back from the file (tuples as lists), and before anything is touched.
        plain = {
            path: json.loads(json.dumps(config, allow_nan=False))
            for path, config in configs.items()
        }
        with contextlib.ExitStack() as undo:
            runs = []
            for path, config in plain.items():
                with _as_user_error(path):
                    _make_folder(path, undo)
                    _refuse_other_files(path)
                    runs.append(cls(path, _lock(path, undo), config))
                    if is_run(path) and not overwrite:
                        _refuse_unless_resumed(path, config, resume=resume)
            # Nothing was removed or written before every folder had been found free to take.
            for path, config in plain.items():
                with _as_user_error(path):
                    if overwrite or not is_run(path):
                        _start(path, config, undo)
                    else:
                        _remove_temporaries(path)
            undo.pop_all()
            return runs

    def close(self) -> None:
        """Release the folder; the next writer may have it."""
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
        with sealed(self._own(RESULT)) as file:
            for part in _readable(result):
                file.write(part.encode())

    def result(self) -> dict[str, Any]:
        """What `write_result` wrote; UserError if that was done for another config."""
        result = read_result(self.path)
        config = result.get("config")
        theirs = config if isinstance(config, Mapping) else {}
        known = [key for key in self._config if key in theirs]  # versions know more or fewer
        there, here = ({key: side[key] for key in known} for side in (theirs, self._config))
        if difference := next(_differences(there, here), None):
            raise UserError(
                f"{self.path / RESULT} is the result of another run ({difference}); put the right "
                "one back, or remove it and go on with resume=True"
            )
        return result

    def append_event(self, event: Mapping[str, JSON], *, most: int | None = None) -> None:
        """Add one line to `events.jsonl`, whole or not at all.

        Once it holds `most` bytes, a new file is begun, and the one before it is kept.
        """
        self._refuse_if_closed()
        if most is not None:
            self._events.rotate(self.path / OLDER_EVENTS, most=most)
        self._events.append(event)

    def append_record(self, record: Mapping[str, JSON]) -> None:
        """Add a complete task's line to `records.jsonl`; the next checkpoint counts it."""
        self._refuse_if_closed()
        self._records.append(record)

    def records(self) -> list[dict[str, Any]]:
        """What was recorded of every complete task, in their order."""
        return self._records.lines()

    @property
    def num_records(self) -> int:
        """Complete tasks."""
        return self._records.count()

    def save_checkpoint(self, state: object) -> None:
        """Replace the checkpoint by `state`, which stands for all events and records so far.

        The one before is kept beside it, until the next time.
        """
        from driftwise.runs import checkpoint as state_file  # late: it imports torch

        checkpoint = self._own(CHECKPOINT)
        self._take_again()
        # On the disk first: a checkpoint must not outlive lines that it counts. Events are for
        # people, and stop nothing.
        counted = {"events": self._events.mark(), "records": self._records.seal()}
        with replacing(checkpoint) as file:
            whole = {"config": self._identity, **counted, "state": state}
            state_file.write_into(file, whole, format=FORMAT)
            file.flush()
            os.fsync(file.fileno())
            if checkpoint.exists():
                keep_as(checkpoint, self._own(PREVIOUS))

    def load_checkpoint(self, warn: Warn = _ignore) -> Any:
        """The state saved last, None if there is none; events and records after it are dropped.

        The resumed run writes them again. A finished run keeps all of its lines. Where the last
        checkpoint is damaged, or counts records that are, the one before it takes its place, with a
        warning. Complete tasks without any checkpoint are refused.
        """
        self._refuse_if_closed()
        saved, file = _read_checkpoint(self.path, warn, self._refuse_unless_recorded)
        if self.finished:
            return saved["state"]
        if file is None:
            self._refuse_if_lost(warn)
        if file == self.path / PREVIOUS:
            with writing(self.path / CHECKPOINT):
                # Now, or the next one saved would have a damaged one beside it for a moment.
                keep_as(file, self.path / CHECKPOINT)
        self._events.undo_rotation(self.path / OLDER_EVENTS, saved["events"])
        self._events.return_to(saved["events"])
        self._records.return_to(saved["records"])
        if not self._events.fits(saved["events"]):
            warn(f"{self._events.path} is not as it was written: do not trust its earlier tasks")
        return saved["state"]

    def _refuse_unless_recorded(self, saved: Mapping[str, Any]) -> None:
        """UserError if the records that a checkpoint counts are not there as they were written."""
        if not self._records.fits(saved["records"]):
            raise UserError(
                f"{self._records.path} is damaged: "
                f"its first {saved['records']['bytes']} bytes are not as they were written"
            )

    def _refuse_if_lost(self, warn: Warn) -> None:
        """UserError if there is no checkpoint although there must have been one.

        Every complete task is followed by one, so that a crash leaves one such task at most.
        """
        complete = self._records.count()
        if complete > 1:
            raise UserError(
                f"{self.path / CHECKPOINT} is missing, and so is the one before it, although "
                f"{complete} tasks are complete; start anew with overwrite=True"
            )
        if complete:
            warn(f"{self.path} has no checkpoint of its first task, which begins again")

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return is_begun(self.path)

    def write_shared(self, content: Mapping[str, JSON]) -> None:
        """Write `shared.json`: other runs may now `begin_from` this one."""
        with sealed(self._own(SHARED)) as file:
            file.write(json.dumps(content, allow_nan=False).encode() + b"\n")

    def begin_from(self, shared: Path, *, adaptation: object) -> int:
        """Take over all complete tasks of another folder's run; how many there are.

        Lines, arrays and checkpoint become this run's own, with the state of its own `adaptation`.
        A crash meanwhile leaves no checkpoint: the run has not begun.
        """
        saved, file = _read_checkpoint(shared, _ignore)
        if file is None or saved["state"]["midway"] is not None:
            return 0
        state: dict[str, Any] = saved["state"]
        for journal, name, seal in (
            (self._records, RECORDS, saved["records"]),
            (self._events, EVENTS, saved["events"]),
        ):
            lines = Journal(shared / name).sealed_lines(seal)
            journal.return_to(EMPTY)
            for line in lines:
                journal.append(line)
        if features := _load_arrays(shared, "features", _ignore):
            self.save_arrays("features", features)
        self.save_checkpoint({**state, "parts": {**state["parts"], "adaptation": adaptation}})
        return int(state["tasks_done"])

    @functools.cached_property
    def _identity(self) -> str | None:
        """Of the run, kept in its checkpoints: they are no good to another one."""
        return _identity_of(self.path)

    def save_arrays(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Replace the set of arrays called `name` (one of `ARRAYS`), a plain safetensors file."""
        from safetensors.torch import save  # late: it imports torch

        with sealed(self._own(ARRAYS[name])) as file:
            file.write(save({key: value.clone() for key, value in tensors.items()}))

    def load_arrays(self, name: str, warn: Warn = _ignore) -> dict[str, Tensor]:
        """What `save_arrays` has kept under a name; empty if nothing was, or if it is damaged."""
        return _load_arrays(self.path, name, warn)

    def _own(self, name: str) -> Path:
        """A file to write, for as long as the folder is held."""
        self._refuse_if_closed()
        return self.path / name

    def refuse_if_forked(self) -> None:
        """UserError in a fork of the process that holds the folder: two would write to it."""
        if self._pid != os.getpid():
            raise UserError(
                f"{self.path} is held by the process {self._pid}, of which this one is a fork: "
                "only that one writes to it; open the folder after the fork, in one process"
            )

    def _refuse_if_closed(self) -> None:
        self.refuse_if_forked()
        assert not self._lock.closed, f"{self.path} was written to after it had been closed"

    def _take_again(self) -> None:
        """Take a folder once more that was removed meanwhile, and is there again."""
        with writing(self.path, "bring the folder back, or make it again"):
            if not _is_at(self._lock, self.path / LOCK):
                with contextlib.ExitStack() as undo:
                    lock = _lock(self.path, undo)
                    undo.pop_all()
                self._lock.close()
                self._lock = lock
            if not (self.path / CONFIG).exists():
                _write_config(self.path, self._config)
                self.__dict__.pop("_identity", None)


_HELD: weakref.WeakSet[RunFolder] = weakref.WeakSet()


def _release_in_fork() -> None:
    """A fork has the lock's file open too, and would hold the lock for longer than its owner."""
    for folder in _HELD:
        folder.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_fork)


def is_run(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a run, finished or not.

    `config.json` alone proves nothing: many a project keeps a file of that name.
    """
    try:
        return _is_of_run(_names(Path(path)))
    except OSError:
        return False


def is_finished(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a run that is complete."""
    return is_run(path) and (Path(path) / RESULT).is_file()


def is_busy(path: str | os.PathLike[str]) -> bool:
    """Whether a process is at work on the run in a folder, at this moment."""
    try:
        with open_regular(Path(path) / LOCK) as lock:
            lock_file(
                lock, wait=False, shared=True
            )  # two that ask at once do not take each other for a worker
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The config of the run in a folder."""
    config = read_object(Path(path) / CONFIG)
    refuse_unsealed(Path(path) / CONFIG)
    if config is None:
        raise UserError(f"{path} holds no run; expected a folder with {CONFIG}")
    return config


def read_result(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The result of the finished run in a folder."""
    result = read_object(Path(path) / RESULT, most=LARGE)
    refuse_unsealed(Path(path) / RESULT)
    if result is None and is_run(path):
        raise UserError(f"{path} holds an unfinished run; finish it with resume=True")
    if result is None:
        raise UserError(f"{path} holds no run; expected a folder with {CONFIG} and {RESULT}")
    return result


def read_checkpoint(path: str | os.PathLike[str], warn: Warn = _ignore) -> Any:
    """The state saved last by the run in a folder, None if there is none; nothing is changed."""
    saved, _ = _read_checkpoint(Path(path), warn)
    return saved["state"]


def is_begun(path: Path) -> bool:
    """Whether the run in a folder has a checkpoint."""
    return any((path / name).exists() for name in (CHECKPOINT, PREVIOUS))


def trail_file(trail: Path, task: int) -> Path:
    """What was learned up to the end of a task, in a folder that other runs follow."""
    return trail / f"task-{task}.safetensors"


def shared_tasks(path: Path) -> int | None:
    """How many tasks of a folder's run others can go on from; None: it is not complete."""
    try:
        refuse_unsealed(path / SHARED)
        tasks = (read_object(path / SHARED) or {}).get("tasks")
    except UserError:
        return None  # damaged: it is completed again from its checkpoint
    return tasks if isinstance(tasks, int) else None


def remove_shared(path: Path) -> None:
    """Remove a run that others went on from; one that a process is at work on stays."""
    if path.is_symlink() or is_busy(path) or not is_run(path):
        return
    for name in (*_MADE, CONFIG, LOCK):
        quietly((path / name).unlink)
    quietly(path.rmdir)


def _load_arrays(path: Path, name: str, warn: Warn) -> dict[str, Tensor]:
    """What `RunFolder.save_arrays` has kept in a folder; empty if nothing was, or if it is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    file = path / ARRAYS[name]
    try:
        refuse_unsealed(file)
        return load(read_regular(file, MOST_ARRAYS))
    except FileNotFoundError:
        return {}
    except (OSError, SafetensorError, UserError):
        warn(f"{file} is damaged: what it held of earlier tasks is lost")
        return {}


def _readable(result: Mapping[str, JSON]) -> Iterator[str]:
    """JSON with a line for each entry, and for each entry of an entry.

    Indented throughout, it would be twice as long, and be written by the slow half of `json`.
    """
    start = "{"
    for key, value in result.items():
        if isinstance(value, Mapping) and value:
            text = _lines(
                "{", (f"{_compact(name)}: {_compact(e)}" for name, e in value.items()), "}"
            )
        elif isinstance(value, list | tuple) and any(isinstance(e, list | dict) for e in value):
            text = _lines("[", map(_compact, value), "]")
        else:
            text = _compact(value)
        yield f"{start}\n {_compact(key)}: {text}"
        start = ","
    yield "\n}\n"


def _lines(start: str, members: Iterable[str], end: str) -> str:
    return f"{start}\n  " + ",\n  ".join(members) + f"\n {end}"


_compact = functools.partial(json.dumps, allow_nan=False)


# Opening


@contextlib.contextmanager
def _as_user_error(path: Path) -> Iterator[None]:
    """Before a run begins, the user can correct whatever cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot start a run in {path}: {reason(error)}") from error
    except RunFailure as error:
        raise UserError(f"cannot start a run: {error}") from error


def _make_folder(path: Path, undo: contextlib.ExitStack) -> None:
    """Make a folder and those above it; undoing removes the ones that were made here."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster: its to remove
            folder.mkdir()
            undo.callback(quietly, folder.rmdir)
    if not path.is_dir():
        raise UserError(f"{path} is not a folder; choose another")


def _refuse_other_files(path: Path) -> None:
    """Leave alone a folder that holds anything but a run, and links and devices in a run's."""
    # One listing decides: between two of them another process may have started a run here.
    names = _names(path)
    left = (name for name in names if name not in (LOCK, CHECKSUMS) and not _is_temporary(name))
    if not _is_of_run(names) and any(left):  # what a crash at the start left does not count
        raise UserError(f"{path} holds files but no run; choose an empty or new folder")
    for file in (path / name for name in (LOCK, EVENTS, OLDER_EVENTS, RECORDS)):
        if file.is_symlink():
            raise UserError(
                f"{file} is a link, and a run writes into its own folder only; put the file itself "
                "there, or choose another folder"
            )
        if file.exists() and not file.is_file():
            raise UserError(f"{file} is no regular file; remove it, or choose another folder")


def _lock(path: Path, undo: contextlib.ExitStack) -> BinaryIO:
    """Take the folder's lock, which the kernel gives back however this process ends."""
    while True:
        is_new = not (path / LOCK).exists()
        lock = open(path / LOCK, "a+b", buffering=0, opener=own_file)  # noqa: SIM115
        undo.callback(lock.close)
        try:
            lock_file(lock, wait=False)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().decode(errors="replace").strip() or "unknown"
            raise FolderBusy(f"{path} is in use by another process (pid {holder})") from None
        if _is_at(lock, path / LOCK):
            break
        lock.close()  # its last holder removed it between our opening and locking: try again
    if is_new:
        undo.callback(quietly, (path / LOCK).unlink)
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n".encode())
    return lock


def _refuse_unless_resumed(path: Path, config: Mapping[str, JSON], *, resume: bool) -> None:
    """Resume a run that is already there only where that is asked for and the config is the same."""
    if not resume:
        kind = "a finished" if is_finished(path) else "an unfinished"
        raise UserError(
            f"{path} already holds {kind} run; go on with resume=True or start anew with "
            "overwrite=True"
        )
    if config.get("code_identity") == NO_SOURCE:
        raise UserError(
            f"{path} holds a run with a custom part whose source cannot be read, so that nobody "
            "knows whether it is still the same; start anew with overwrite=True, or put the part "
            "into a file"
        )
    refuse_other_config(path, config)


def refuse_other_config(path: Path, config: Mapping[str, JSON]) -> None:
    """UserError that names what differs, if the run in a folder has another config."""
    # A setting that a later version has added is at its default in a run begun before.
    there = read_config(path)
    there |= {k: v for k, v in _defaults().items() if k in config and k not in there}
    differences = list(_differences(there, config))
    if len(differences) > 5:  # one line must hold them
        differences[5:] = [f"and {len(differences) - 5} more"]
    if differences:
        raise UserError(
            f"{path} holds a run of another config ({'; '.join(differences)}); "
            "choose another folder or start anew with overwrite=True"
        )


@functools.cache
def _defaults() -> Mapping[str, JSON]:
    return RunConfig().to_json()


def _differences(
    there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """One phrase for each entry in which two configs differ."""
    for key in dict.fromkeys([*there, *here]):
        old, new = there.get(key), here.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{key}.")
        elif key == "code_identity" and old != new:
            yield "the source of custom parts, or of local modules they import, has changed"
        elif old != new:  # what only one of them knows, and leaves open, makes no difference
            old_text, new_text = (
                json.dumps(side[key]) if key in side else "absent" for side in (there, here)
            )
            yield f"{prefix}{key}: {old_text} there, {new_text} here"


def _start(path: Path, config: Mapping[str, JSON], undo: contextlib.ExitStack) -> None:
    """Make the folder that of a new run."""
    for name in (CONFIG, CHECKSUMS):
        if not (path / name).exists():
            undo.callback(quietly, (path / name).unlink)
    for name in _MADE:
        (path / name).unlink(missing_ok=True)
    _remove_temporaries(path)
    _write_config(path, config)  # replaced, never removed: the folder stays a run's throughout


def _write_config(path: Path, config: Mapping[str, JSON]) -> None:
    with sealed(path / CONFIG) as file:
        file.write(json.dumps(config, indent=1, allow_nan=False).encode() + b"\n")


# Checkpoints


def keep_as(file: Path, name: Path) -> None:
    """Let a file be found under another name too, in one step."""
    temporary = temporary_beside(name)
    try:
        try:
            os.link(file, temporary)
        except OSError:  # a file system without links
            with file.open("rb") as content, temporary.open("xb") as copy:
                shutil.copyfileobj(content, copy)
            sync(temporary)
        temporary.replace(name)
    finally:
        quietly(temporary.unlink)


def _read_checkpoint(
    path: Path, warn: Warn, check: Callable[[Mapping[str, Any]], None] = lambda _: None
) -> tuple[dict[str, Any], Path | None]:
    """What `save_checkpoint` wrote, the seals included, and the file that it was found in.

    `check` raises a UserError for one that cannot be resumed from.
    """
    try:
        files = [file for file in (path / CHECKPOINT, path / PREVIOUS) if file.exists()]
    except OSError as error:
        raise UserError(f"cannot read {path / CHECKPOINT}: {reason(error)}") from error
    if not files:
        return {"events": EMPTY, "records": EMPTY, "state": None}, None
    from driftwise.runs import checkpoint as state_file  # late: it imports torch

    troubles = [] if path / CHECKPOINT in files else [f"{path / CHECKPOINT} is missing"]
    for file in files:
        try:
            saved: dict[str, Any] = state_file.read(file, format=FORMAT)
            _refuse_foreign(saved, file)
            check(saved)
        except state_file.OtherFormat as error:
            raise UserError(f"{error}; start anew with overwrite=True") from error
        except UserError as error:
            troubles.append(str(error))
        else:
            for trouble in troubles:
                warn(f"{trouble}; going on from the checkpoint before it")
            return saved, file
    raise UserError(f"{'; '.join(dict.fromkeys(troubles))}; start anew with overwrite=True")


def _refuse_foreign(saved: Any, file: Path) -> None:
    """UserError if what was read is no checkpoint, or that of another run."""
    match saved:
        case {
            "events": {"bytes": int(), "sha256": str()},
            "records": {"bytes": int(), "sha256": str()},
            "state": _,
        }:
            # Earlier versions did not note whose it is.
            if saved.get("config") not in (None, _identity_of(file.parent)):
                raise UserError(f"{file} is the checkpoint of another run")
        case _:
            raise UserError(f"{file} is damaged or not of this project")


def _identity_of(path: Path) -> str | None:
    """By which the run in a folder is distinguished from others."""
    try:
        return digest_of(path / CONFIG)
    except OSError as error:
        raise UserError(f"cannot read {path / CONFIG}: {reason(error)}") from error


def _is_at(open_file: BinaryIO, path: Path) -> bool:
    """Whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(open_file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def _is_of_run(names: set[str]) -> bool:
    """Whether a folder with these files is a run's."""
    return CONFIG in names and not names.isdisjoint((LOCK, *_MADE))


def _is_temporary(name: str) -> bool:
    """Whether a crash in the middle of `replacing` one of a run's files left this."""
    starts = tuple(f".{target}." for target in (CONFIG, *_MADE))
    return name.startswith(starts) and name.endswith(".tmp")


def _remove_temporaries(path: Path) -> None:
    for name in filter(_is_temporary, _names(path)):
        (path / name).unlink(missing_ok=True)
