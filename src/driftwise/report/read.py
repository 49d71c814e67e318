"""Finding run folders and reading them; what cannot be read is named and left out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from driftwise.errors import UserError
from driftwise.files import LARGE, read_json, reason, refuse_unsealed, require_regular
from driftwise.report.parse import DamagedError, parse
from driftwise.report.saved_run import Run, few

RESULT, CONFIG, SAMPLES = "result.json", "config.json", "samples.safetensors"

MOST_ENTRIES = 1_000_000
"""Names of files and folders that are searched for runs."""
MOST_WARNINGS = 100
"""Lines about what is left out; more are counted."""
MOST_TENSORS = 2**30
"""Bytes of a file with example images or features."""
LONGEST_SIDE = 4096
"""Pixels along a side of an example image."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The runs in some folders."""

    runs: tuple[Run, ...]
    """at least one"""
    warnings: tuple[str, ...]
    """one line for each run that is unfinished, damaged or there twice"""


def find_runs(paths: Sequence[Path]) -> Found:
    """Every finished run in these folders, at any depth; UserError if there is none."""
    runs: list[Run] = []
    warnings: list[str] = []
    for folder, is_finished in _run_folders(paths, warnings).items():
        if not is_finished:
            warnings.append(f"{folder}: unfinished (no {RESULT}), skipped")
            continue
        try:
            run = read_run(folder)
        except DamagedError as error:
            warnings.append(f"{folder}: damaged ({RESULT} {error}), skipped")
            continue
        samples = folder / SAMPLES
        try:
            runs.append(replace(run, samples=samples if _has_samples(samples) else None))
        except DamagedError as error:
            warnings.append(f"{samples}: damaged ({error}), its images are left out")
            runs.append(run)
    if not runs:
        places = ", ".join(map(str, paths)) or "no folder at all"
        skipped = "".join(f"; {line}" for line in few(warnings, 5))
        raise UserError(
            f"expected folders with finished runs (a {RESULT} in each), found none in {places}"
            f"{skipped}; finish a run first, or name another folder"
        )
    return Found(runs=tuple(runs), warnings=tuple(few(warnings, MOST_WARNINGS)))


def _run_folders(paths: Sequence[Path], warnings: list[str]) -> dict[Path, bool]:
    """Each folder of a run once, in order, and whether it has a result.

    A folder with a config alone is an unfinished run, unless there are finished runs below it.
    """
    folders: dict[Path, tuple[Path, bool]] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"expected a folder with runs, but {path} is none; check the path")
        found = _walk(path, warnings)
        above = {parent for folder, done in found.items() if done for parent in folder.parents}
        for folder in sorted(found):
            if found[folder] or folder not in above:
                folders.setdefault(folder.resolve(), (folder, found[folder]))
    return dict(folders.values())


def _walk(top: Path, warnings: list[str]) -> dict[Path, bool]:
    """Folders with a result (True) or a config only (False); warns of folders it did not enter.

    It follows no link: links may form a circle.
    """
    found: dict[Path, bool] = {}
    waiting, num_entries = [top], 0
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    num_entries += 1
                    if num_entries > MOST_ENTRIES:
                        warnings.append(
                            f"{top}: has more than {MOST_ENTRIES:,} entries, of which only these "
                            "were searched for runs; name the folders with the runs"
                        )
                        return found
                    if entry.name in (RESULT, CONFIG):
                        found[place] = found.get(place, False) or entry.name == RESULT
                    # Programs keep half-written files in folders whose names begin with a dot.
                    elif not entry.name.startswith(".") and _is_folder(entry):
                        if not entry.is_symlink():
                            waiting.append(Path(entry.path))
                        elif not Path(entry.path).resolve().is_relative_to(top.resolve()):
                            warnings.append(
                                f"{entry.path}: a link to a folder, not followed; name the folder "
                                "itself to have its runs"
                            )
        except OSError as error:
            warnings.append(f"{place}: cannot be read ({reason(error)}), skipped")
    return found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in a circle, for one
        return False


def read_run(folder: Path) -> Run:
    """The finished run in a folder, without its example images; DamagedError says why not."""
    file = folder / RESULT
    try:
        require_regular(file, LARGE)  # before it is read for its checksum
        refuse_unsealed(file)
        result = read_json(file, LARGE)
    except UserError as error:
        raise DamagedError("does not fit its checksum") from error
    except OSError as error:
        raise DamagedError(f"cannot be read: {reason(error)}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise DamagedError(f"cannot be read: {error}") from error
    return parse(result, folder)


@contextmanager
def tensors_in(path: Path) -> Iterator[Any]:
    """A safetensors file, open, whose header fits its size; DamagedError for anything else.

    Nothing is read before it is asked for.
    """
    try:
        require_regular(path, MOST_TENSORS)
        refuse_unsealed(path)
        with safe_open(path, framework="np") as file:
            yield file
    except OSError as error:
        raise DamagedError(reason(error)) from error
    except (SafetensorError, UserError) as error:
        raise DamagedError(str(error)) from error


def shapes_in(file: Any, names: Sequence[str]) -> Mapping[str, list[int]]:
    """The shapes of tensors in an open file; DamagedError where one is missing."""
    missing = sorted(set(names) - set(file.keys()))
    if missing:
        raise DamagedError(f"has no tensor {', '.join(missing)}")
    return {name: file.get_slice(name).get_shape() for name in names}


def _has_samples(path: Path) -> bool:
    """Whether a file of example images or vectors exists and holds some; reads its header alone."""
    if not path.exists():
        return False
    with tensors_in(path) as file:
        shapes = shapes_in(file, ("before", "after", "labels", "tasks"))
        types = {name: file.get_slice(name).get_dtype() for name in shapes}
    shape, kind = shapes["before"], types["before"]
    count = shape[:1]
    is_images = (
        len(shape) == 4
        and all(1 <= side <= LONGEST_SIDE for side in shape[1:3])
        and shape[3] in (1, 3)
        and kind == "U8"
    )
    is_vectors = len(shape) == 2 and shape[1] >= 1 and kind == "F32"
    fits = (
        (is_images or is_vectors)
        and shape == shapes["after"]
        and shapes["labels"] == shapes["tasks"] == count
        and kind == types["after"]
        and {types["labels"], types["tasks"]} <= {"I32", "I64"}
    )
    if not fits:
        raise DamagedError(
            "expected uint8 before and after (n, h, w, 1 or 3), or float32 (n, d), labels and tasks"
            f" (n,), got {shapes}"
        )
    return count[0] > 0
