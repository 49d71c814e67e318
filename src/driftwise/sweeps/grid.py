"""A grid: lists of settings whose every combination is a run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driftwise.config.config_files import (
    from_mapping,
    read_config_file,
    split_parts,
    unfold_data,
)
from driftwise.config.fields import fields_of
from driftwise.config.schema import PARTS, RunConfig
from driftwise.errors import UserError, unknown_name

Value = str | int | float | None
Place = Mapping[str, Value]
"""One combination: setting (or `part.option`) -> value."""

KEYS = ("name", "base", "grid", "without", "scale")
"""The keys of a sweep's file."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Axes, settings that all runs share, and combinations that are left out."""

    axes: Mapping[str, Sequence[Value]]
    """setting, or `part.option`, -> values"""
    base: Mapping[str, Any] = field(default_factory=dict)
    """settings of every run, as in a config file, or as `part.option`"""
    without: Sequence[Mapping[str, Sequence[Value]]] = ()
    """combinations that match one of these in all its settings are left out"""

    def __post_init__(self) -> None:
        _refuse_what_json_cannot_hold(self.base)
        given = _settings_of(self.base)
        for name, values in self.axes.items():
            _refuse_bad_axis(name, values)
            if name in given:
                raise UserError(f"{name} is in the grid and in the base; leave it in one of them")
        for name in (name for rule in self.without for name in rule):
            if name not in self.axes:
                raise unknown_name("setting of the grid under without", name, self.axes)
        if next(self.places(), None) is None:
            raise UserError("the grid is empty: without leaves no combination")

    def places(self) -> Iterator[Place]:
        """Every combination that is not left out; the last axis varies fastest."""
        for values in itertools.product(*self.axes.values()):
            place = dict(zip(self.axes, values, strict=True))
            if not any(_matches(rule, place) for rule in self.without):
                yield place

    def config_at(self, place: Place, *, source: str = "the grid") -> RunConfig:
        """The config of one combination, not resolved yet."""
        named = {**self.base, **place}
        plain = {name: value for name, value in named.items() if "." not in str(name)}
        in_file = unfold_data(plain, source=source)
        settings, in_parts = split_parts(in_file, PARTS)
        values: dict[str, Any] = from_mapping(RunConfig, settings, source=source)
        options = {part: {**given} for part, given in values.pop("options", {}).items()}
        for part, given in in_parts.items():
            options[part] = {**options.get(part, {}), **given}
        for name, value in named.items():
            part, dot, option = _name(name).partition(".")
            if dot:
                options[part] = {**options.get(part, {}), option: value}
        return RunConfig(**values, options=options)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "base": dict(self.base),
            "grid": {name: list(values) for name, values in self.axes.items()},
            "without": [{k: list(v) for k, v in rule.items()} for rule in self.without],
        }


@dataclass(frozen=True, kw_only=True)
class GridFile:
    """The contents of a sweep's file."""

    name: str
    grid: Grid
    scale: str | None


def read_grid_file(path: Path) -> GridFile:
    """A sweep from a YAML or JSON file."""
    content = read_config_file(path)
    for key in content:
        if key not in KEYS:
            raise UserError(f"{path}: {unknown_name('key', key, KEYS)}")
    axes = _mapping(content, "grid", path)
    if not axes:
        raise UserError(f"{path}: expected a grid such as 'grid: {{method: [er, der++]}}'")
    without = [] if content.get("without") is None else content["without"]
    if not isinstance(without, list) or not all(isinstance(rule, dict) for rule in without):
        raise UserError(f"{path}: without takes a list such as '- {{num_drifts: 0}}'")
    base = _mapping(content, "base", path)
    try:
        grid = Grid(axes=_lists(axes), base=base, without=[_lists(rule) for rule in without])
        _refuse_idle_rules(grid)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    name, scale = content.get("name"), content.get("scale")
    return GridFile(
        name=path.stem if name is None else str(name),
        grid=grid,
        scale=None if scale is None else str(scale),
    )


def _mapping(content: Mapping[str, object], key: str, path: Path) -> dict[str, Any]:
    """The mapping below a key; empty where there is none."""
    found = content.get(key)
    if not isinstance(found, dict | None):
        raise UserError(f"{path}: {key} takes a mapping such as 'seed: [0, 1]'; got {found!r}")
    return found or {}


def _name(key: object) -> str:
    """A setting as spelled in Python; files may write '-' for '_'."""
    return str(key).replace("-", "_")


def _refuse_what_json_cannot_hold(base: Mapping[str, Any]) -> None:
    """YAML has dates, sets and bytes, which no setting takes and no plan can keep."""
    try:
        json.dumps(dict(base))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"the base takes texts, numbers, lists and mappings; {error}; put a date in quotes"
        ) from error


def _settings_of(base: Mapping[str, Any]) -> set[str]:
    """Every setting of a base, options as `part.option`; each may be named once."""
    options = base.get("options") or {}
    if not isinstance(options, Mapping) or not all(
        isinstance(given, Mapping) for given in options.values()
    ):
        raise UserError(f"options are given as {{detector: {{level: 0.01}}}}; got {options!r}")
    names = [_name(key) for key in base]
    for key, value in [*base.items(), *options.items()]:
        if isinstance(value, Mapping) and key != "options":
            names += [f"{_name(key)}.{_name(option)}" for option in value]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{name} is given twice in the base; keep one")
    return set(names)


def _lists(mapping: Mapping[Any, object]) -> dict[str, list[Any]]:
    """Settings and their values; a single value means a list of one."""
    lists: dict[str, list[Any]] = {}
    for key, values in mapping.items():
        if _name(key) in lists:
            raise UserError(f"{_name(key)} is given twice, with '-' and with '_'; keep one")
        lists[_name(key)] = values if isinstance(values, list) else [values]
    return lists


def _refuse_idle_rules(grid: Grid) -> None:
    """A rule for a value that no run has leaves nothing out: it is mistyped."""
    for name, values in (item for rule in grid.without for item in rule.items()):
        for value in values:
            if value not in grid.axes[name]:
                known = map(str, grid.axes[name])
                raise unknown_name(f"value of {name} under without", value, known)


def _refuse_bad_axis(name: str, values: Sequence[Value]) -> None:
    part, dot, _ = name.partition(".")
    if dot and part not in PARTS:
        raise unknown_name("part with options", part, PARTS)
    if not dot and name not in (known := fields_of(RunConfig)):
        raise unknown_name("setting", name, known)
    if not values:
        raise UserError(f"{name} has an empty list; give at least one value, or leave it out")
    for value in values:
        if not isinstance(value, str | int | float | None):
            raise UserError(f"{name} varies over texts and numbers; got {value!r}")
    if len(set(values)) < len(values):
        raise UserError(f"{name} names a value twice: {', '.join(map(str, values))}")


def _matches(rule: Mapping[str, Sequence[Value]], place: Place) -> bool:
    return all(place[name] in values for name, values in rule.items())
