"""A sweep's plan: every run it asks for, under an id that follows from the run's config alone."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import yaml

from driftwise.config.config_files import OWN_DATA
from driftwise.config.custom import NO_SOURCE
from driftwise.config.fields import fields_of
from driftwise.config.presets import REALIGN_NOTHING, RULE, STORE_NO_LOGITS, resolve
from driftwise.config.registry import CATALOGUE
from driftwise.config.schema import RunConfig
from driftwise.config.speed import fast as make_fast
from driftwise.datasets.catalogue import by_name
from driftwise.errors import UserError, unknown_name
from driftwise.files import LARGE, alone, read_object, refuse_links, write_json
from driftwise.report.sweeps import DIGEST, digest_of_plan
from driftwise.sweeps.grid import Grid, Place, Value
from driftwise.sweeps.scale import Scale

FORMAT = 1
"""Number of the format of a plan's file; raised whenever an older reader would misunderstand it."""

SWEEPS, RUNS, FAILURES, SHARED = "sweeps", "runs", "failures", "shared"
"""Folders of plans, of runs (which sweeps may share), of notes about failures, and of tasks that
unfinished runs share."""

TAKEN = (SWEEPS, RUNS, FAILURES, SHARED, "claims", "leaderboard", "pages", "index.html")
"""Names that a sweep cannot have; nor can it have one that begins with theory-."""

MOST_RUNS = 10_000
"""of one sweep; more are usually a mistake, and weeks of work"""

ALWAYS = ("benchmark", "method", "buffer_size", "num_drifts", "adaptation", "seed")
"""Settings that a place names, whether the grid varies them or not."""


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a sweep."""

    id: str
    place: Place
    """its settings in the grid, before the scale makes them smaller"""
    config: RunConfig
    """as it will run"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The runs of a sweep."""

    name: str
    grid: Grid
    runs: tuple[PlannedRun, ...]
    scale: str = "own"
    scale_note: str = "as the grid says"
    reproduces: str | None = None
    """what of the paper it redraws"""

    def to_json(self) -> dict[str, Any]:
        """Plain data, with a digest that shows damage."""
        plain = {
            "format": FORMAT,
            "name": self.name,
            "reproduces": self.reproduces,
            "scale": {"name": self.scale, "note": self.scale_note},
            "grid": json.loads(json.dumps(self.grid.to_json())),  # as it comes back from the file
            "runs": [
                {"id": run.id, "place": dict(run.place), "config": run.config.to_json()}
                for run in self.runs
            ],
        }
        return {**plain, DIGEST: digest_of_plan(plain)}


def make_plan(
    name: str,
    grid: Grid,
    *,
    scale: Scale | None = None,
    reproduces: str | None = None,
    published_on: str | None = None,
    changed: Mapping[str, Any] | None = None,
    fast: bool = False,
) -> Plan:
    """Every run of a grid; a setting that cannot run is refused before anything begins.

    `changed`: settings of the base that are not the scale's or the paper's, for the note. `fast`:
    with the fastest settings of this machine, where the grid leaves them open.
    """
    _refuse_bad_name(name)
    if any(True for _ in itertools.islice(grid.places(), MOST_RUNS, None)):
        count = math.prod(map(len, grid.axes.values()))
        raise UserError(
            f"the sweep {name} has more than {MOST_RUNS:,} runs (its axes make {count:,}); cut it "
            "into several"
        )
    names = names_in_places(grid)
    runs: dict[str, PlannedRun] = {}
    for place in grid.places():
        config = grid.config_at(place, source=f"the sweep {name}")
        if config.threads is None:
            # One thread each uses many cores best, and gives the same digits on any number.
            config = dataclasses.replace(config, threads=1)
        if fast:
            config = make_fast(config, given={*grid.base, *place, "threads"})
        nominal = resolve(config)
        config = nominal if scale is None else scale.apply(config, published_on=published_on)
        named = {setting: getattr(nominal, setting) for setting in ALWAYS}
        named |= {names[axis]: value for axis, value in place.items()}
        if config.code_identity == NO_SOURCE:
            raise UserError(
                f"the sweep {name} names a custom part whose source cannot be read: its results "
                "could not be distinguished from those of an earlier version; put it into a file"
            )
        run = PlannedRun(id=run_id(config), place=named, config=config)
        if run.id in runs:
            twin = dict(runs[run.id].place)
            raise UserError(
                f"the sweep {name} has one run at two places of its grid: {twin} and "
                f"{dict(run.place)}; leave one of them out (without)"
            )
        runs[run.id] = run
    about = {}
    if scale is not None:
        note = scale.note([run.config for run in runs.values()], published_on=published_on)
        if changed:
            settings = [f"{key}={_as_given(value)}" for key, value in changed.items()]
            note += f"; changed by --set: {', '.join(settings)}"
        about = {"scale": scale.name, "scale_note": note}
    return Plan(name=name, grid=grid, runs=tuple(runs.values()), reproduces=reproduces, **about)


def _refuse_bad_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,79}", name):
        raise UserError(f"a sweep's name is made of letters, digits, '-', '_', '.'; got {name!r}")
    if name.lower() in TAKEN or name.lower().startswith("theory-"):  # some disks ignore the case
        raise UserError(
            f"a sweep cannot be called {name}, as something else in its folder is; give it another "
            "name (--name, or a line 'name: ...' in its file)"
        )


def _as_given(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def run_id(config: RunConfig) -> str:
    """A readable name, and a digest of everything that decides the result.

    >>> run_id(RunConfig(adaptation="amr", buffer_size=100, num_drifts=1))[:-11]
    'digits-cd-er-amr-b100-d1-s0'
    """
    digest = _digest(config.to_json())
    words = f"{config.benchmark}-{config.method}-{config.adaptation}"
    words = re.sub(r"[^A-Za-z0-9+-]+", "-", words)[:60]
    size = f"b{config.buffer_size}" if config.fresh_samples is None else f"f{config.fresh_samples}"
    return f"{words}-{size}-d{config.num_drifts}-s{config.seed}-{digest}"


LATER_OPTIONS: Mapping[str, Mapping[str, object]] = {
    "method": {"one_forward": False},
    "adaptation": {"wrong_answers": 0.2, "ask_again": 0.0},
}
"""Options added later, at the value that changes nothing: they do not change ids."""


def _digest(config: Mapping[str, Any]) -> str:
    """Of everything that decides a run's result."""
    default = _defaults()
    options = {
        part: {
            name: value
            for name, value in given.items()
            if value != LATER_OPTIONS.get(part, {}).get(name, MISSING)
        }
        for part, given in config["options"].items()
    }
    config = {**config, "options": options}
    left_out = {"data_identity"}
    if config["method"] in STORE_NO_LOGITS or config["adaptation"] in REALIGN_NOTHING:
        left_out.add("realigned_logits")
    if config["benchmark"] not in OWN_DATA and config["benchmark"] in CATALOGUE["benchmark"]:
        left_out.add("data")  # its folder on a machine makes no other run
    # A setting that later versions add does not rename the runs that leave it as it is.
    plain = {
        key: value
        for key, value in config.items()
        if key not in left_out and value not in (None, default.get(key))
    }
    known = by_name(config["benchmark"])
    if known is not None and known.version > 1:  # runs on data as read before are other runs
        plain["data_version"] = known.version
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]


@functools.cache
def _defaults() -> dict[str, Any]:
    # What the rule has always been, for settings that a preset may now choose: ids stay.
    settled_before = {
        name: RULE[name] for name in ("detector", "realigned_logits", "monitor_labels")
    }
    return {**RunConfig().to_json(), **settled_before}


def write_plan(
    plan: Plan,
    out: Path,
    *,
    overwrite: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write a plan into a folder of sweeps; another plan of the same name is not replaced.

    One with the same runs and more, such as further seeds, takes its place. A damaged one is
    written anew, with a warning.
    """
    file = out / SWEEPS / f"{plan.name}.json"
    refuse_links(out, file.parent)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}; choose another --out") from error
    with alone(file):
        there = _read(file)
        if there is None and file.exists():
            warn(f"{file} was damaged, and is written anew from the grid")
        wanted = plan.to_json()
        if there is not None and not overwrite and not _goes_on(there, wanted):
            raise UserError(
                f"{file} is a sweep of the same name with {_difference(there, wanted)}; give yours "
                "another name or --out, or replace the plan with --overwrite (its runs stay)"
            )
        if there != wanted:
            write_json(file, wanted)
    return file


def names_in_places(grid: Grid) -> dict[str, str]:
    """The name of each axis in a place: an option without its part, if that is unique."""
    short = {axis: axis.rpartition(".")[2] for axis in grid.axes}
    settings = fields_of(RunConfig)
    return {
        axis: axis if name in settings or list(short.values()).count(name) > 1 else name
        for axis, name in short.items()
    }


def _asked(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies a plan: its runs, their places, and the scale that tables name.

    Neither a setting that only a later version names, nor a note in other words, nor data in
    another folder, nor edited custom parts make another sweep.
    """
    if plan.get("format") != FORMAT:
        return dict(plan)
    scale = plan.get("scale")
    return {
        "reproduces": plan.get("reproduces"),
        "scale": scale.get("name") if isinstance(scale, Mapping) else scale,
        "runs": [{"id": _asked_id(run), "place": run["place"]} for run in plan["runs"]],
    }


def _goes_on(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the plan wanted has all runs of the one that is there, at the same places."""
    if there.get("format") != FORMAT:
        return False
    before, now = _asked(there), _asked(wanted)
    theirs, ours = (
        {json.dumps(run, sort_keys=True) for run in asked.pop("runs")} for asked in (before, now)
    )
    return before == now and theirs <= ours


def _asked_id(run: Mapping[str, Any]) -> str:
    """A run's id without the source of its custom parts."""
    name, config = str(run["id"]), run.get("config")
    if not isinstance(config, Mapping) or config.get("code_identity") is None:
        return name
    return f"{name.rpartition('-')[0]}-{_digest({**config, 'code_identity': None})}"


def _read(file: Path) -> dict[str, Any] | None:
    try:
        plan = read_object(file, most=LARGE)
        if plan is not None and plan.get("format") == FORMAT:
            if plan.get(DIGEST, digest_of_plan(plan)) != digest_of_plan(plan):
                return None
            whole = all(isinstance(run["id"], str) and "place" in run for run in plan["runs"])
            return plan if whole else None
    except (UserError, KeyError, TypeError):
        return None  # damaged: it is written anew
    return plan


def _difference(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """In a phrase, how another plan differs."""
    if there.get("format") != FORMAT:
        return f"the format {there.get('format')!r} of another version"
    before, now = _asked(there), _asked(wanted)
    for key in ("scale", "reproduces"):
        if before[key] != now[key]:
            return f"another {key}: {before[key]}"
    if there.get("grid") != wanted["grid"]:
        return f"another grid: {json.dumps(there.get('grid'))[:200]}"
    theirs, ours = ({run["id"] for run in plan["runs"]} for plan in (there, wanted))
    count = len(ours - theirs)
    return f"other settings behind the same grid ({count} runs differ{_example(there, wanted)})"


def _example(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """A setting in which two plans of one grid differ, such as an encoder that is not here."""
    for old, new in zip(there["runs"], wanted["runs"], strict=False):
        before, now = old.get("config") or {}, new["config"]
        for key in now:
            if key in before and before[key] != now[key] and key != "data":
                return f", as in {key}: {_as_given(before[key])} there, {_as_given(now[key])} here"
    return ""


def chosen(plan: Plan, only: Sequence[str]) -> list[PlannedRun]:
    """The runs at the places that `--only` names."""
    names = {key: key for key in plan.runs[0].place} | names_in_places(plan.grid)
    wanted: dict[str, list[Value]] = {}
    for text in only:
        key, equals, values = text.partition("=")
        key = key.replace("-", "_")
        if not equals or not values:
            raise UserError(f"--only takes KEY=VALUE,...; got {text!r}")
        if key not in names:
            raise unknown_name("setting of the grid", key, names)
        there = list(dict.fromkeys(run.place[names[key]] for run in plan.runs))
        for word in values.split(","):
            meant = [value for value in there if _means(word, value)]
            if not meant:
                raise unknown_name(f"value of {key}", word, map(str, there))
            wanted.setdefault(names[key], []).extend(meant)
    runs = [r for r in plan.runs if all(r.place[name] in found for name, found in wanted.items())]
    if not runs:
        raise UserError(f"the plan has no run at --only {' '.join(only)}; see --dry-run")
    return runs


def _means(word: str, value: Value) -> bool:
    """Whether a word is a value as written in Python or in YAML: true, 1 for 1.0."""
    if word == str(value):
        return True
    try:
        read = yaml.safe_load(word)
    except yaml.YAMLError:
        return False
    return read == value and isinstance(read, bool) == isinstance(value, bool)
