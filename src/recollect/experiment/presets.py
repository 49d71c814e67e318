"""Settings that a run takes where it is not told: by benchmark, method and buffer size."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recollect.errors import UserError, unknown_name
from recollect.experiment import catalogue
from recollect.experiment.config import PARTS, RunConfig
from recollect.experiment.config_file import from_mapping


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Values for the settings that were left open, and where they come from."""

    source: str
    values: Mapping[str, Any]


DIGITS = Preset(
    source="chosen by this project on development seeds 1000-1004, see docs/log.md",
    values={
        "num_tasks": 5,
        "buffer_size": 100,
        "backbone": "mlp",
        "epochs": 10,
        "batch_size": 10,
        "minibatch_size": 10,
        "lr": 0.3,
        # So small a network gains nothing from a second thread; a fixed number gives every machine
        # the same digits, and a busy one no threads that wait for each other.
        "threads": 1,
    },
)

GENERIC = Preset(
    source="this project's choice for a benchmark or method that has no preset",
    values={
        "num_tasks": 5,
        "buffer_size": 500,
        "backbone": "cnn",
        "epochs": 5,
        "batch_size": 32,
        "minibatch_size": 32,
        "lr": 0.1,
    },
)

PRESETS: dict[str, dict[tuple[str, str], Preset]] = {
    "auto": {("digits-cd", "er"): DIGITS},
}
"""Preset by name, then by benchmark and method."""


def preset_of(config: RunConfig) -> Preset:
    """The preset that fills in what a config leaves open."""
    catalogue.find("benchmark", config.benchmark)
    catalogue.find("method", config.method)
    if config.preset not in PRESETS:
        raise unknown_name("preset", config.preset, PRESETS)
    return PRESETS[config.preset].get((config.benchmark, config.method), GENERIC)


def resolve(config: RunConfig) -> RunConfig:
    """The config as it will run: nothing left open, every name known, every option checked."""
    preset = preset_of(config)
    named = ("adaptation", "detector", "encoder", "buffer_policy", "transform")
    for kind in named:
        catalogue.find(kind, getattr(config, kind))
    fill = {
        name: value
        for name, value in preset.values.items()
        if getattr(config, name) is None and not (name == "num_tasks" and config.tasks is not None)
    }
    config = dataclasses.replace(config, **fill)
    return dataclasses.replace(config, options=_complete_options(config))


def options_type(config: RunConfig, part: str) -> Any:
    """The dataclass that lists the options of a part; UserError where there are none."""
    if part not in PARTS:
        raise unknown_name("part with options", part, PARTS)
    name = getattr(config, part)
    found = catalogue.find(part, name).options_type()
    if found is None:
        raise UserError(f"{part} {name} has no options of its own")
    return found


def _complete_options(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Every option of every part that has any, given or default."""
    for part in config.options:
        options_type(config, part)
    complete = {}
    for part in PARTS:
        name = getattr(config, part)
        options = catalogue.find(part, name).options_type()
        if options is not None:
            given = config.options.get(part, {})
            typed = from_mapping(options, given, source=f"{part} {name}")
            complete[part] = dataclasses.asdict(options(**typed))
    return complete
