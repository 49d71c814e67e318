"""A sweep as it stands: which runs its grid asks for, and the results of those that are done.

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
from driftwise.report.saved_run import Run, clean

FORMAT = 1
SWEEPS, RUNS = "sweeps", "runs"

Place = Mapping[str, str | int | float | None]
"""The place of a run in its grid, by setting and as the grid states it: buffers are the paper's,
also where the scale makes them smaller. The seed is apart."""


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
    """What was asked for, and what is done."""

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
        """Runs that have a result."""
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
        """Every place of the grid once, in its order, with its finished runs."""
        places = {json.dumps(entry.place, sort_keys=True): entry.place for entry in self.entries}
        for place in places.values():
            yield place, self.find(**place)


def read_sweep(file: Path) -> Sweep:
    """The sweep that a `sweeps/NAME.json` describes, with whatever of its runs is finished."""
    try:
        plan = read_json(file, LARGE)
    except OSError as error:
        raise UserError(f"cannot read the sweep {file}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(file, error) from error
    if isinstance(plan, dict) and DIGEST in plan and plan[DIGEST] != digest_of_plan(plan):
        raise _damaged(file, "its digest does not fit")
    if not isinstance(plan, dict) or plan.get("format") != FORMAT:
        found = plan.get("format") if isinstance(plan, dict) else type(plan).__name__
        raise UserError(
            f"{file} has the sweep format {found!r} and this version reads {FORMAT}; use another "
            "folder, or the version that made it"
        )
    warnings: list[str] = []
    try:
        return Sweep(
            entries=tuple(
                _entry(each, file.parent.parent / RUNS, warnings) for each in plan["runs"]
            ),
            name=clean(plan["name"]),
            reproduces=None if plan["reproduces"] is None else clean(plan["reproduces"]),
            scale=clean(plan["scale"]["name"]),
            scale_note=clean(plan["scale"]["note"]),
            warnings=tuple(warnings),
        )
    except UserError:
        raise
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise _damaged(file, repr(error)) from error


def _damaged(file: Path, why: object) -> UserError:
    return UserError(f"{file} is damaged: {why}; start the sweep again to mend it")


def _entry(planned: Mapping[str, Any], folder: Path, warnings: list[str]) -> Entry:
    run_id = str(planned["id"])
    if not names_a_file(run_id):
        raise UserError(
            f"expected ids of runs that can name a file, got {planned['id']!r}; start the sweep "
            "again"
        )
    return Entry(
        id=run_id,
        place={key: value for key, value in planned["place"].items() if key != "seed"},
        seed=int(planned["place"]["seed"]),
        run=_run(folder / run_id, planned.get("config") or {}, warnings),
    )


def _run(folder: Path, planned: Mapping[str, Any], warnings: list[str]) -> Run | None:
    if not (folder / RESULT).exists():
        return None
    try:
        run = read_run(folder)
    except DamagedError as error:
        warnings.append(f"{folder}: damaged ({RESULT} {error}), counted as not done")
        return None
    if strange := unplanned(planned, run.config):
        warnings.append(f"{folder}: the result of another run ({strange}), counted as not done")
        return None
    return run


MAY_DIFFER = ("data", "data_identity")
"""Config keys that a plan does not settle: data in another folder are the same data."""


def unplanned(planned: Mapping[str, Any], config: Mapping[str, Any], prefix: str = "") -> str:
    """In a phrase, the first setting in which a run is not the one that was planned; else empty.

    What only one of them names was added by a later version, and makes no other run.
    """
    if planned == config:
        return ""
    for key in sorted(planned.keys() & config.keys()):
        there, wanted = config[key], planned[key]
        if isinstance(there, Mapping) and isinstance(wanted, Mapping):
            if found := unplanned(wanted, there, f"{prefix}{key}."):
                return found
        elif there != wanted and key not in MAY_DIFFER:
            return f"{prefix}{key} {json.dumps(there)}, planned {json.dumps(wanted)}"
    return ""


DIGEST = "sha256"
"""The key of a plan's file that holds the digest of the rest."""


def digest_of_plan(plan: Mapping[str, Any]) -> str:
    """SHA-256 of everything else in a plan."""
    rest = {key: value for key, value in plan.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def names_a_file(name: str) -> bool:
    """Whether it is a plain name, which leads nowhere else."""
    return name.isprintable() and name not in ("", ".", "..") and not {"/", "\\"} & set(name)
