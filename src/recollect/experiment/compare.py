"""Several runs side by side: one method under several adaptations, over several seeds."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recollect.experiment.build import assemble
from recollect.experiment.config import RunConfig
from recollect.experiment.presets import resolve
from recollect.experiment.progress import Display
from recollect.experiment.run import run_in, run_name
from recollect.experiment.store import RunFolder


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What to run."""

    base: RunConfig
    adaptations: tuple[str, ...] = ("vanilla", "fr", "amr")
    num_seeds: int = 3
    """seeds from the base config's on"""

    def configs(self) -> list[RunConfig]:
        """One resolved config per run, in the order in which they are run."""
        return [
            resolve(
                dataclasses.replace(self.base, adaptation=adaptation, seed=self.base.seed + number)
            )
            for number in range(self.num_seeds)
            for adaptation in self.adaptations
        ]


def compare(
    comparison: Comparison,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    display: Display,
) -> Sequence[Path]:
    """Run all of it in folders below `out`; every folder is taken before the first run begins."""
    configs = comparison.configs()
    with contextlib.ExitStack() as stack:
        assemble(configs[0])
        folders = [
            stack.enter_context(
                RunFolder.open(
                    out / run_name(config, ["adaptation", "seed"]),
                    config.to_json(),
                    resume=resume,
                    overwrite=overwrite,
                )
            )
            for config in configs
        ]
        for config, folder in zip(configs, folders, strict=True):
            if folder.finished:
                display.say(f"{folder.path.name}: finished before")
                display.finished()
                continue
            assembly = assemble(config)
            listener = display.run(folder.path.name, config, len(assembly.stream))
            run_in(folder, config, assembly, listener=listener)
    return [folder.path for folder in folders]
