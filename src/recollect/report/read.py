"""Finding run folders and reading them; what cannot be read is named and left out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from safetensors import SafetensorError, safe_open

from recollect.errors import UserError
from recollect.files import refuse_unsealed
from recollect.report.parse import DamagedError, parse
from recollect.report.run import Run

RESULT, CONFIG, SAMPLES = "result.json", "config.json", "samples.safetensors"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What lies in the folders."""

    runs: tuple[Run, ...]
    """at least one"""
    warnings: tuple[str, ...]
    """one line for each run that is unfinished, damaged or there twice"""


def find_runs(paths: Sequence[Path]) -> Found:
    """Every finished run in these folders, at any depth; UserError if there is none."""
    runs: list[Run] = []
    warnings: list[str] = []
    for folder in _run_folders(paths):
        if not (folder / RESULT).is_file():
            warnings.append(f"{folder}: unfinished (no {RESULT}), skipped")
            continue
        try:
            runs.append(read_run(folder, warnings))
        except DamagedError as error:
            warnings.append(f"{folder}: damaged ({RESULT} {error}), skipped")
    if not runs:
        places = ", ".join(map(str, paths)) or "no folder at all"
        skipped = "".join(f"; {line}" for line in warnings)
        raise UserError(
            f"expected folders with finished runs (a {RESULT} in each), found none in {places}"
            f"{skipped}; finish a run first, or name another folder"
        )
    return Found(runs=tuple(runs), warnings=tuple(warnings))


def _run_folders(paths: Sequence[Path]) -> list[Path]:
    """Folders with a result, and folders with a config and no run below; each once, in order."""
    folders: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"expected a folder with runs, but {path} is none; check the path")
        for folder in _walk(path):
            folders.setdefault(folder.resolve(), folder)
    return list(folders.values())


def _walk(top: Path) -> Iterator[Path]:
    started: list[Path] = []
    finished: list[Path] = []
    for place, subfolders, files in os.walk(top):
        # A folder that begins with a dot is somebody's working place, half written by right.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        if RESULT in files:
            finished.append(Path(place))
        elif CONFIG in files:
            started.append(Path(place))
    # A config above finished runs is that of a sweep: nothing is missing there.
    unfinished = [p for p in started if not any(run.is_relative_to(p) for run in finished)]
    yield from sorted([*finished, *unfinished])


def read_run(folder: Path, warnings: list[str]) -> Run:
    """The finished run in a folder; adds a line to `warnings` for what it does without."""
    try:
        refuse_unsealed(folder / RESULT)
        text = (folder / RESULT).read_text(encoding="utf-8")
        result = json.loads(text, parse_constant=_refuse_constant)
    except UserError as error:
        raise DamagedError("does not fit its checksum") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"cannot be read: {error}") from error
    samples = folder / SAMPLES
    try:
        refuse_unsealed(samples)
        has_samples = _check_samples(samples)
    except (OSError, SafetensorError, DamagedError, UserError) as error:
        warnings.append(f"{samples}: damaged ({error}), its pictures are left out")
        has_samples = False
    return parse(result, folder, samples if has_samples else None)


def _refuse_constant(name: str) -> NoReturn:
    raise DamagedError(f"holds {name}, which is no JSON number")


def _check_samples(path: Path) -> bool:
    """Whether there are pictures; reads the header alone, against which the size is checked."""
    if not path.is_file():
        return False
    with safe_open(path, framework="np") as file:
        names = set(file.keys())
        missing = {"before", "after", "labels", "tasks"} - names
        if missing:
            raise DamagedError(f"has no tensor {', '.join(sorted(missing))}")
        shapes = {name: file.get_slice(name).get_shape() for name in sorted(names)}
        types = {name: file.get_slice(name).get_dtype() for name in sorted(names)}
    rows = [shapes["before"][0]] if shapes["before"] else [0]
    fits = (
        len(shapes["before"]) == 4
        and shapes["before"] == shapes["after"]
        and shapes["labels"] == shapes["tasks"] == rows
        and shapes["before"][3] in (1, 3)
        and types["before"] == types["after"] == "U8"
    )
    if not fits:
        raise DamagedError(
            "expected uint8 before and after (n, h, w, 1 or 3), labels and tasks (n,), "
            f"got {shapes}"
        )
    return rows[0] > 0
