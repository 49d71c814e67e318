"""Going on with runs from their folders alone: a folder knows its config."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from driftwise.config import registry
from driftwise.config.custom import is_import_path
from driftwise.config.files import from_mapping
from driftwise.config.schema import RunConfig
from driftwise.errors import UserError
from driftwise.models.head import Features
from driftwise.protocols import Listener
from driftwise.runs.run import run
from driftwise.runs.saving import OFTEN, Saving
from driftwise.runs.store import CONFIG, is_run, read_config, refuse_other_config
from driftwise.types import Dataset


def resume(
    out: str | os.PathLike[str],
    *,
    trust: bool = False,
    data: Dataset | None = None,
    network: nn.Module | None = None,
    features: Features | None = None,
    listener: Listener | None = None,
    saving: Saving = OFTEN,
) -> dict[str, Any]:
    """Go on with the run in a folder and return its result; a finished run is not run again.

    A folder that came from somebody else could name any code (`module:name`) and any path to data:
    it is resumed only with `trust`. A run that was given `data`, a `network` or `features` needs
    the same ones again.
    """
    given = [
        *([] if data is None else ["benchmark", "data"]),
        *([] if network is None else ["backbone"]),
    ]
    config = saved_config(out, given=given, trust=trust)
    return run(
        config,
        out,
        resume=True,
        data=data,
        network=network,
        features=features,
        listener=listener,
        saving=saving,
    )


def saved_config(
    folder: str | os.PathLike[str], *, given: Collection[str] = (), trust: bool = False
) -> RunConfig:
    """The config of the run in a folder, checked like one that a user wrote.

    Code of one's own and a path to data are refused without `trust`, but for the settings that the
    user has `given` as well.
    """
    if not is_run(folder):
        raise UserError(f"{folder} holds no run to resume; name the folder of one, or start one")
    saved = from_mapping(RunConfig, read_config(folder), source=str(Path(folder) / CONFIG))
    config = RunConfig(**saved)  # type: ignore[arg-type]  # as the file says, checked by the class
    named = {kind: getattr(config, kind) or "" for kind in registry.OWN if kind not in given}
    strange = [f"{kind} {name}" for kind, name in named.items() if is_import_path(name)]
    if config.data is not None and "data" not in given:
        strange.append(f"data in {config.data}")
    if strange and not trust:
        raise UserError(
            f"the run in {folder} names code or data of its own ({', '.join(strange)}); if you "
            "trust it, resume it with trust=True, or name them again"
        )
    return config


def with_given(
    config: RunConfig,
    folder: Path,
    values: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]],
) -> RunConfig:
    """The config of a folder's run, which settings given once more must not contradict."""
    own = {name: value for name, value in values.items() if value is not None}
    config = dataclasses.replace(config, **own)
    refuse_other_config(folder, config.to_json())
    parts = {part: {**config.options.get(part, {}), **options[part]} for part in options}
    config = dataclasses.replace(config, options={**config.options, **parts})
    refuse_other_config(folder, config.to_json())
    return config


def saved_runs(out: Path, *, given: Collection[str], trust: bool) -> dict[str, RunConfig]:
    """The configs of all runs right below a folder, by the names of theirs."""
    folders = sorted(out.iterdir()) if out.is_dir() else []
    return {
        folder.name: saved_config(folder, given=given, trust=trust)
        for folder in folders
        if is_run(folder)
    }
