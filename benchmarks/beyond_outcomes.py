"""The file that finished runs of `beyond.py` are lines of."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from beyond_trials import Trial

RESULTS = Path(__file__).resolve().parents[1] / "results" / "beyond.csv"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One finished run: a line of the file."""

    cell: str
    adaptation: str
    budget: int | None
    seed: int
    faa: float
    faa_drifted: float
    faa_stable: float | None
    forgetting: float
    labels: int
    """that adaptation asked for"""
    steps: int
    """gradient steps, rehearsals included"""
    gflops: float
    """training and adaptation"""
    found: str
    """what the detector found drifted: `task:class class; ...`"""
    guessed: int
    """after how many tasks guessed labels were used"""
    commit: str
    """of the code that ran"""

    @property
    def trial(self) -> Trial:
        """What was run."""
        return Trial(cell=self.cell, adaptation=self.adaptation, seed=self.seed, budget=self.budget)


def saved(file: Path) -> list[Outcome]:
    """What has been measured."""
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return [_parsed(line) for line in csv.DictReader(lines)]


def _parsed(line: dict[str, str]) -> Outcome:
    kinds = {each.name: str(each.type) for each in fields(Outcome)}
    values: dict[str, Any] = {}
    for name, text in line.items():
        kind, _, or_none = kinds[name].partition(" | ")
        values[name] = None if or_none and not text else _READ[kind](text)
    return Outcome(**values)


_READ: dict[str, Any] = {"str": str, "int": int, "float": float}


def append(outcome: Outcome, file: Path) -> None:
    """One more line, in one write."""
    begins = not file.exists()
    with file.open("a", newline="") as lines:
        writer = csv.DictWriter(lines, [each.name for each in fields(Outcome)], lineterminator="\n")
        if begins:
            writer.writeheader()
        writer.writerow(asdict(outcome))
