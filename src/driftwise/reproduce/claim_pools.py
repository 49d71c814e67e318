"""Which finished runs a claim may lay beside each other: those of one scale and equal settings."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from driftwise.report.run import Run
from driftwise.report.sweeps import Place, Sweep
from driftwise.reproduce import published
from driftwise.reproduce.paper_table import STANDARD

SCALES = ("paper", "small", "smoke")
"""From what says most to what says least; others follow."""

OF_A_PLACE = (*STANDARD, "seed")
"""Config keys, with all below them, in which the runs of a pool may differ."""

OF_A_MACHINE = ("data", "device", "threads", "keep_features")
"""Config keys that ask no other question."""

TUNED = (
    *("data_identity", "max_per_class", "num_tasks", "tasks", "domains", "first_domain"),
    *("permutation_unit", "channels", "epochs", "batch_size", "minibatch_size", "lr"),
    *("scheduler", "lr_milestones", "options.benchmark", "options.method", "options.backbone"),
)
"""Config keys that presets and scales choose by benchmark, network, method and buffer: runs that
share these four must agree in them, others need not."""

AT_HOME = frozenset(cell.benchmark for name in published.NAMES for cell in published.table(name))
"""The paper's benchmarks: numbers on other data never stand before theirs, however large."""

Settings = dict[str, str]
"""Config keys joined by dots, values as JSON."""

Tuning = tuple[str, str, int, str]
"""Benchmark, network, nominal buffer and method."""


class Where(NamedTuple):
    """All that two runs must share for their difference to mean something."""

    benchmark: str
    backbone: str
    """empty where the grid does not vary it, as in the paper's main tables"""
    buffer_size: int
    """nominal"""
    method: str
    num_drifts: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Done:
    """A finished run at its place in a sweep's grid."""

    place: Place
    seed: int
    run: Run

    @property
    def adaptation(self) -> str:
        """What was done about drift."""
        return str(self.setting("adaptation"))

    @property
    def where(self) -> Where:
        """The place without the adaptation."""
        return Where(
            benchmark=str(self.setting("benchmark")),
            backbone=str(self.place.get("backbone", "")),
            buffer_size=int(self.setting("buffer_size") or 0),
            method=str(self.setting("method")),
            num_drifts=int(self.setting("num_drifts") or 0),
        )

    @property
    def tuning(self) -> Tuning:
        """What decides how it trains."""
        where = self.where
        return where.benchmark, str(self.setting("backbone")), where.buffer_size, where.method

    @property
    def is_at_home(self) -> bool:
        """Whether the paper has numbers on this benchmark."""
        return self.where.benchmark in AT_HOME

    def setting(self, key: str) -> Any:
        """As the grid says it, or as it ran where the grid does not."""
        return self.place[key] if key in self.place else self.run.config.get(key)

    def varies_only(self, *keys: str) -> bool:
        """Whether the grid names nothing but what the paper's tables vary, and these."""
        return {*self.place} <= {*STANDARD, *keys}


@dataclass(kw_only=True, eq=False)
class Pool:
    """Runs that may be compared, from one sweep or from several that agree."""

    scale: str
    at_home: bool
    """on the paper's benchmarks"""
    settings: Settings
    """what may tell its runs from those of other pools"""
    tuned: dict[Tuning, Settings] = field(default_factory=dict)
    done: list[Done] = field(default_factory=list)
    sweeps: list[str] = field(default_factory=list)
    is_plain: bool = False
    """one of the sweeps goes by its target's name alone, as one with other settings should not"""

    @property
    def origin(self) -> str:
        """For a sentence."""
        return f"scale {self.scale}" + ("" if self.at_home else ", not on the paper's data")

    def is_beside(self, other: Pool) -> bool:
        """Whether nothing but settings keeps the two apart."""
        return (self.at_home, self.scale) == (other.at_home, other.scale)

    def differs_in(self, other: Pool) -> list[str]:
        """The settings that keep the two apart."""
        pairs = [(self.settings, other.settings)]
        shared = [cell for cell in self.tuned if cell in other.tuned]
        pairs += [(self.tuned[cell], other.tuned[cell]) for cell in shared]
        keys = [key for ours, theirs in pairs for key in ours if ours[key] != theirs[key]]
        return [key.removeprefix("options.") for key in dict.fromkeys(keys)]


def pools(
    sweeps: Sequence[Sweep], asked: Callable[[Done], bool], varied: Sequence[str] = ()
) -> list[Pool]:
    """The finished runs that are asked for, in pools, the one that says most first.

    `varied` names config keys, with all below them, that the question itself is about.
    """
    batches = [
        (sweep, [done for done in _done(sweep) if asked(done)])
        for sweep in sorted(sweeps, key=lambda sweep: sweep.name)
    ]
    runs = [done.run for _, batch in batches for done in batch]
    telling = _telling_keys(runs, without=(*OF_A_PLACE, *OF_A_MACHINE, *varied))
    tuned = [key for key in telling if _is_in(key, TUNED)]
    strict = [key for key in telling if not _is_in(key, TUNED)]
    found: list[Pool] = []
    for sweep, batch in batches:
        parts: defaultdict[tuple[object, ...], list[Done]] = defaultdict(list)
        for done in batch:
            parts[done.is_at_home, *_settings(done.run, strict).values()].append(done)
        for members in parts.values():
            _pour(sweep, members, found, strict, tuned)
    return sorted(found, key=_rank)


def _done(sweep: Sweep) -> list[Done]:
    return [
        Done(place=entry.place, seed=entry.seed, run=entry.run)
        for entry in sweep.entries
        if entry.run is not None
    ]


def _pour(
    sweep: Sweep,
    members: Sequence[Done],
    found: list[Pool],
    strict: Sequence[str],
    tuned: Sequence[str],
) -> None:
    """Into the first pool that agrees with runs of one sweep, or into a new one."""
    first = members[0]
    settings = _settings(first.run, strict)
    tunings = {done.tuning: _settings(done.run, tuned) for done in members}
    for pool in found:
        same = (pool.scale, pool.at_home, pool.settings) == (
            sweep.scale,
            first.is_at_home,
            settings,
        )
        if same and all(pool.tuned.get(cell, known) == known for cell, known in tunings.items()):
            break
    else:
        pool = Pool(scale=sweep.scale, at_home=first.is_at_home, settings=settings)
        found.append(pool)
    pool.done += members
    pool.tuned |= tunings
    pool.sweeps.append(sweep.name)
    plain = f"{sweep.reproduces}-{sweep.scale}"
    pool.is_plain |= sweep.name in (plain, f"{plain}-{first.where.benchmark}")


def _rank(pool: Pool) -> tuple[object, ...]:
    scale = SCALES.index(pool.scale) if pool.scale in SCALES else len(SCALES)
    return (not pool.at_home, scale, not pool.is_plain, -len(pool.done), pool.sweeps)


def _telling_keys(runs: Iterable[Run], without: Sequence[str]) -> list[str]:
    """The config keys in which runs differ.

    A key that an older version did not know may be missing: that alone makes no difference.
    """
    values: defaultdict[str, set[str]] = defaultdict(set)
    for run in runs:
        for key, value in _flat(run.config).items():
            values[key].add(value)
    return [key for key, known in values.items() if len(known) > 1 and not _is_in(key, without)]


def _settings(run: Run, keys: Sequence[str]) -> Settings:
    known = _flat(run.config)
    return {key: known.get(key, "") for key in keys}


def _flat(config: Mapping[str, Any], prefix: str = "") -> Settings:
    flat: Settings = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, sort_keys=True)
    return flat


def _is_in(key: str, branches: Sequence[str]) -> bool:
    return any(key == branch or key.startswith(f"{branch}.") for branch in branches)
