"""Which runs belong together, and how they differ.

Runs that differ in their seed alone make a cell. Cells may be compared if they differ in nothing
but what is done about drift; they make a setting.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from driftwise.report.cells import Cell, Setting, place_of
from driftwise.report.run import Run, clean

TITLE = ("benchmark", "method", "buffer_size", "num_drifts")
"""What a setting is named after; whatever else distinguishes it is its variant."""

METHOD = "options.method"

OF_A_RUN = ("seed", "threads")
"""Config keys in which the runs of one cell may differ."""

OF_A_CELL = (
    "adaptation",
    "detector",
    "options.adaptation",
    "options.detector",
    "label_budget",
    "min_harm",
    "device",
)
"""Config keys, with all below them, in which the cells of one setting may differ."""

LONGEST_VALUE = 32
"""Letters of a config value that a title can bear."""

ABSENT = "not set"

Traits = Mapping[str, str]
"""What is known of a run, config keys joined by dots, values as text; an absent key means None."""


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """All runs in their places."""

    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]
    """one line for each run whose seed is there already"""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, setting by setting."""
        return tuple(cell for setting in self.settings for cell in setting.cells)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs that are part of the report, cell by cell."""
        return tuple(run for cell in self.cells for run in cell.runs)


def group(runs: Sequence[Run]) -> Grouped:
    """Put runs into cells and cells into settings."""
    members: defaultdict[frozenset[tuple[str, str]], dict[int, Run]] = defaultdict(dict)
    warnings = []
    for run in runs:
        known = members[frozenset(_traits(run).items())].setdefault(run.seed, run)
        if known is not run:
            warnings.append(f"{run.folder}: same configuration and seed as {known.folder}, skipped")
    cells = [
        Cell(runs=tuple(run for _, run in sorted(by_seed.items()))) for by_seed in members.values()
    ]
    return Grouped(settings=_settings(cells), warnings=tuple(warnings))


def _settings(cells: Sequence[Cell]) -> tuple[Setting, ...]:
    comparable: defaultdict[frozenset[tuple[str, str]], list[Cell]] = defaultdict(list)
    for cell in cells:
        comparable[frozenset(_shared_traits(cell).items())].append(cell)
    groups = list(comparable.values())
    variants = _variants([_shared_traits(members[0]) for members in groups])
    settings = [
        Setting(cells=_in_order(members), variant=variant)
        for members, variant in zip(groups, variants, strict=True)
    ]
    return tuple(sorted(settings, key=_place_in_report))


def _variants(described: Sequence[Traits]) -> list[str]:
    """For each setting, what is not in its title and differs between settings of its benchmark."""
    variants = []
    for traits in described:
        peers = [each for each in described if each["benchmark"] == traits["benchmark"]]
        same_method = [each for each in peers if each["method"] == traits["method"]]
        # Options that only another method has do not concern this one.
        own = set(differing_keys(same_method))
        keys = [key for key in differing_keys(peers) if key in own or not _is_in(key, METHOD)]
        variants.append(_spell(traits, [key for key in keys if key not in TITLE], peers))
    return variants


def _in_order(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The cells of a setting as they are shown; cells of the same name are distinguished by their traits."""
    alike: defaultdict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        alike[cell.adaptation, cell.detector].append(cell)
    named = [
        replace(cell, trait=trait)
        for members in alike.values()
        for cell, trait in zip(
            members, distinguish([_traits(cell.first) for cell in members]), strict=True
        )
    ]
    return tuple(sorted(named, key=_place_in_setting))


def distinguish(described: Sequence[Traits]) -> list[str]:
    """For each of several things, in words, only what not all of them share.

    >>> distinguish([{"lr": "0.1", "epochs": "1"}, {"lr": "0.1", "epochs": "5"}, {"lr": "0.1"}])
    ['epochs 1', 'epochs 5', 'epochs not set']
    """
    keys = differing_keys(described)
    return [_spell(traits, keys, described) for traits in described]


def differing_keys(described: Sequence[Traits]) -> list[str]:
    """The keys whose values not all of them share."""
    keys = dict.fromkeys(key for traits in described for key in traits)
    return [key for key in keys if len({traits.get(key) for traits in described}) > 1]


def _spell(traits: Traits, keys: Sequence[str], among: Sequence[Traits]) -> str:
    words = []
    for key in keys:
        names = _shortened({each[key] for each in among if key in each})
        value = names[traits[key]] if key in traits else ABSENT
        words.append(f"{key.removeprefix('options.')} {value}")
    return ", ".join(words)


def _shortened(texts: Iterable[str]) -> dict[str, str]:
    """Each text with its middle cut out if it is long, and a number where two then are alike."""
    half = LONGEST_VALUE // 2
    cut = {
        text: text if len(text) <= LONGEST_VALUE else f"{text[:half]}…{text[1 - half :]}"
        for text in sorted(texts)
    }
    alike = Counter(cut.values())
    met: Counter[str] = Counter()
    for text, name in cut.items():
        met[name] += 1
        if alike[name] > 1:
            cut[text] = f"{name} ({met[name]})"
    return cut


def _traits(run: Run) -> Traits:
    """All that decides what a run computes, and what its results can be laid beside."""
    results = {
        "benchmark": run.benchmark,
        "method": run.method,
        "adaptation": run.adaptation,
        "detector": run.detector,
        "buffer_size": run.buffer_size,
        "num_drifts": run.num_drifts,
        "num_tasks": run.num_tasks,
        "class_names": run.class_names,
    }
    flat = _flat({**run.config, **results})
    return {key: text for key, text in flat.items() if key not in OF_A_RUN}


def _shared_traits(cell: Cell) -> Traits:
    """The traits in which all cells of a setting are alike."""
    return {
        key: text
        for key, text in _traits(cell.first).items()
        if not any(_is_in(key, own) for own in OF_A_CELL)
    }


def _is_in(key: str, branch: str) -> bool:
    return key == branch or key.startswith(f"{branch}.")


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested keys joined by dots, values as text; what is empty is as good as absent."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, str):
            flat[f"{prefix}{key}"] = clean(value)
        elif value is not None and value != [] and value != ():
            flat[f"{prefix}{key}"] = clean(json.dumps(_plain(value), ensure_ascii=False))
    return flat


def _plain(value: Any) -> Any:
    """JSON data in which equal values are written alike: 1.0 as 1, keys in order."""
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _place_in_setting(cell: Cell) -> tuple[object, ...]:
    # What is not set (for example no limit on labels) comes before any number.
    return (*place_of(cell.adaptation), cell.detector, _natural(cell.trait.replace(ABSENT, "")))


def _place_in_report(setting: Setting) -> tuple[object, ...]:
    run = setting.first
    variant = _natural(setting.variant)
    return run.benchmark, run.method, run.buffer_size or 0, run.num_drifts, variant


def _natural(text: str) -> list[str | float]:
    """Sorts numbers within texts by size.

    >>> sorted(["severity 10", "severity 9"], key=_natural)
    ['severity 9', 'severity 10']
    """
    # Texts and numbers alternate, so that like is always compared with like.
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [float(part) if index % 2 else part for index, part in enumerate(parts)]
