"""Several runs side by side: one method under several adaptations, over several seeds."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from driftwise.config import registry
from driftwise.config.benchmarks import QUIET, Notify
from driftwise.config.build import as_begun, assemble
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig, changed
from driftwise.errors import UserError
from driftwise.files import refuse_links
from driftwise.runs.display import Display
from driftwise.runs.run import run_in, run_name
from driftwise.runs.saving import OFTEN, Saving
from driftwise.runs.store import RunFolder, is_run


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What to run."""

    base: RunConfig
    adaptations: tuple[str, ...] = ("vanilla", "fr", "amr")
    num_seeds: int = 3
    """seeds from the base config's on"""

    def __post_init__(self) -> None:
        for name in self.adaptations:
            registry.find("adaptation", name)
        if not self.adaptations or len(set(self.adaptations)) < len(self.adaptations):
            names = ",".join(self.adaptations) or "none"
            raise UserError(f"adaptations must be one or more, each named once; got {names}")
        if self.num_seeds < 1:
            raise UserError(f"num_seeds must be at least 1; got {self.num_seeds}")

    def configs(self) -> list[RunConfig]:
        """One resolved config per run, in the order in which they are run."""
        return [
            resolve(changed(self.base, adaptation=adaptation, seed=self.base.seed + number))
            for number in range(self.num_seeds)
            for adaptation in self.adaptations
        ]


def comparison_of(configs: Sequence[RunConfig], *, first_seed: int | None = None) -> Comparison:
    """The comparison that runs of these configs were made by; at least one."""
    found = {config.adaptation for config in configs}
    usual = [name for name in Comparison.adaptations if name in found]
    seeds = {config.seed for config in configs}
    first = min(seeds) if first_seed is None else first_seed
    options = {part: own for part, own in configs[0].options.items() if part != "adaptation"}
    return Comparison(
        base=changed(configs[0], options=options, seed=first),
        adaptations=(*usual, *sorted(found - {*usual})),
        num_seeds=max(1, max(seeds) - first + 1),
    )


def compare(
    comparison: Comparison,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    display: Display,
    saving: Saving = OFTEN,
) -> Sequence[Path]:
    """Run all of it in folders below `out`; every folder is taken before the first run begins."""
    configs = {run_name(config, ["adaptation", "seed"]): config for config in comparison.configs()}
    if is_run(out):
        raise UserError(f"{out} holds a run of its own; choose another folder")
    for name in configs:
        refuse_links(out, out / name)
        if resume:
            configs[name] = as_begun(configs[name], out / name)
    notify = Notify(warn=display.warn)
    first = assemble(next(iter(configs.values())), notify=notify)
    for warning in first.warnings:
        display.say(f"warning: {warning}")
    identity = first.config.data_identity
    configs = {
        name: changed(config, data_identity=config.data_identity or identity)
        for name, config in configs.items()
    }
    plain = {out / name: config.to_json() for name, config in configs.items()}
    with contextlib.ExitStack() as stack:
        folders = RunFolder.open_all(plain, resume=resume, overwrite=overwrite)
        for folder in folders:
            stack.enter_context(folder)
        for config, folder in zip(configs.values(), folders, strict=True):
            if folder.finished:
                display.say(f"{folder.path.name}: finished before")
                display.finished()
                continue
            # The first one has warned already of data that all of them share.
            of_its_own = config.data_identity != identity
            loop = assemble(config, notify=notify if of_its_own else QUIET)
            listener = display.run(folder.path.name, config, len(loop.stream))
            run_in(folder, loop, listener=listener, saving=saving, warn=display.warn)
    return [folder.path for folder in folders]
