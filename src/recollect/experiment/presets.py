"""Settings that a run takes where it is not told: by benchmark, method and buffer size."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recollect.errors import unknown_name
from recollect.experiment import catalogue
from recollect.experiment.config import PARTS, RunConfig


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


def _complete_options(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Every option of every part that has any, given or default."""
    complete = {}
    for part in PARTS:
        given = config.options.get(part, {})
        options_type = catalogue.find(part, getattr(config, part)).options_type()
        if options_type is not None:
            known = {field.name for field in dataclasses.fields(options_type)}
            for name in given:
                if name not in known:
                    raise unknown_name(f"option of {part} {getattr(config, part)}", name, known)
            complete[part] = dataclasses.asdict(options_type(**given))
        elif given:
            name = next(iter(given))
            raise unknown_name(f"option of {part} {getattr(config, part)}", name, ())
    return complete
