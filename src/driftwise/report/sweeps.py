"""A sweep as it stands: which runs its grid asks for, and what those that are done say.

A folder of sweeps holds `sweeps/NAME.json`, what was asked for, and `runs/ID/`, one run each, which
several sweeps may share.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftwise.errors import UserError
from driftwise.files import LARGE, read_json, reason
from driftwise.report.cells import Cell
from driftwise.report.parse import DamagedError
from driftwise.report.read import RESULT, read_run
from driftwise.report.run import Run, clean

FORMAT = 1
SWEEPS, RUNS = "sweeps", "runs"

Place = Mapping[str, str | int | float | None]
"""Where a run stands in its grid, by setting and as the grid says it: buffers are the paper's, also
where the scale makes them smaller. The seed is apart."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """One run that a sweep asks for."""

    id: str
    place: Place
    seed: int
    run: Run | None
    """None: not done yet, or damaged"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sweep:
    """What was asked for, and what is there."""

    name: str
    reproduces: str | None
    """what of the paper it redraws: table1, ...; None: a grid of one's own"""
    scale: str
    """smoke, small or paper; or own"""
    scale_note: str
    """what that means for images, network and epochs, in one line"""
    entries: tuple[Entry, ...]
    """in the order of the grid"""
    warnings: tuple[str, ...] = ()
    """one line for each run that could not be read"""

    @property
    def num_done(self) -> int:
        """Runs whose result is there."""
        return sum(entry.run is not None for entry in self.entries)

    def find(self, **place: str | int | float | None) -> Cell | None:
        """The finished runs of all seeds at a place; None if there are none.

        Settings that are not named may have any value, as long as all runs found share one config.
        """
        runs = {
            entry.seed: entry.run
            for entry in self.entries
            if entry.run is not None
            and all(entry.place.get(key) == value for key, value in place.items())
        }
        return Cell(runs=tuple(run for _, run in sorted(runs.items()))) if runs else None

    def cells(self) -> Iterator[tuple[Place, Cell | None]]:
        """Every place of the grid once, in its order, with what is done there."""
        places: dict[str, Place] = {}
        for entry in self.entries:
            places.setdefault(json.dumps(entry.place, sort_keys=True), entry.place)
        for place in places.values():
            yield place, self.find(**place)


def read_sweep(file: Path) -> Sweep:
    """The sweep that a `sweeps/NAME.json` describes, with whatever of its runs is finished."""
    try:
        plan = read_json(file, LARGE)
    except OSError as error:
        raise UserError(f"cannot read the sweep {file}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged: {error}; start the sweep again to mend it") from error
    if isinstance(plan, dict) and plan.get(DIGEST, digest_of_plan(plan)) != digest_of_plan(plan):
        raise UserError(
            f"{file} is damaged: its digest does not fit; start the sweep again to mend it"
        )
    if not isinstance(plan, dict) or plan.get("format") != FORMAT:
        found = plan.get("format") if isinstance(plan, dict) else type(plan).__name__
        raise UserError(
            f"{file} has the sweep format {found!r} and this version reads {FORMAT}; use another "
            "folder, or the version that made it"
        )
    warnings: list[str] = []
    folder = file.parent.parent / RUNS
    try:
        entries = tuple(_entry(each, folder, warnings) for each in plan["runs"])
        scale = plan["scale"]
        return Sweep(
            name=clean(plan["name"]),
            reproduces=None if plan["reproduces"] is None else clean(plan["reproduces"]),
            scale=clean(scale["name"]),
            scale_note=clean(scale["note"]),
            entries=entries,
            warnings=tuple(warnings),
        )
    except UserError:
        raise
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UserError(
            f"{file} is damaged: {error!r}; start the sweep again to mend it"
        ) from error


def _entry(planned: Mapping[str, Any], folder: Path, warnings: list[str]) -> Entry:
    if not names_a_file(str(planned["id"])):
        raise UserError(
            f"expected ids of runs that can name a file, got {planned['id']!r}; start the sweep "
            "again"
        )
    place = {key: value for key, value in planned["place"].items() if key != "seed"}
    return Entry(
        id=str(planned["id"]),
        place=place,
        seed=int(planned["place"]["seed"]),
        run=_run(folder / str(planned["id"]), planned.get("config") or {}, warnings),
    )


def _run(folder: Path, planned: Mapping[str, Any], warnings: list[str]) -> Run | None:
    if not (folder / RESULT).exists():
        return None
    try:
        run = read_run(folder, warnings)
    except DamagedError as error:
        warnings.append(f"{folder}: damaged ({RESULT} {error}), counted as not done")
        return None
    if strange := unplanned(planned, run.config):
        warnings.append(f"{folder}: the result of another run ({strange}), counted as not done")
        return None
    return run


MAY_MOVE = ("data", "data_identity")
"""Config keys that a plan does not settle: data that have moved are the same data."""


def unplanned(planned: Mapping[str, Any], config: Mapping[str, Any], prefix: str = "") -> str:
    """In a phrase, the first setting in which a run is not the one that was planned; else empty.

    What only one of them names was added by a later version, and makes no other run.
    """
    for key in sorted({*planned} & {*config}):
        there, wanted = config[key], planned[key]
        if isinstance(there, Mapping) and isinstance(wanted, Mapping):
            if found := unplanned(wanted, there, f"{prefix}{key}."):
                return found
        elif there != wanted and key not in MAY_MOVE:
            return f"{prefix}{key} {json.dumps(there)}, planned {json.dumps(wanted)}"
    return ""


DIGEST = "sha256"
"""The key of a plan's file under which the digest of the rest stands."""


def digest_of_plan(plan: Mapping[str, Any]) -> str:
    """SHA-256 of all that a plan says."""
    rest = {key: value for key, value in plan.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def names_a_file(name: str) -> bool:
    """Whether it is a plain name, which leads nowhere else."""
    return name.isprintable() and name not in ("", ".", "..") and not {"/", "\\"} & set(name)
