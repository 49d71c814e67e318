"""What `beyond.py` runs: cells, ways to answer drift, and how many labels they may ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig

REALIGNED, RELEARNED, FLUSHED, BEYOND = "amr", "fr", "fr-flush", "amr-plus"
PARTS = (
    "amr-partial",
    "amr-chosen",
    "amr-recovery",
    "amr-free-labels",
    "amr-remembered",
    "amr-gradual",
)
REHEARSED = "amr-recovery"
"""realignment with as many gradient steps as `amr-plus`: what is gained by steps alone"""
CONTROL = "beyond_control:relearn_and_rehearse"
"""relearning that rehearses after tasks as well: what is left to gain by more labels"""
UNCERTAIN = "beyond_control:choose_uncertain"
"""`amr-chosen` by the other choice"""


SEEDS = range(5, 10)
"""nothing was chosen by these: 0 to 4 were run with earlier code, 1000 and 1001 are to choose by"""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A stream, a method and a buffer."""

    name: str
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run of a cell."""

    cell: str
    adaptation: str
    seed: int
    budget: int | None = None
    """labels that adaptation may ask for in all; None: as many as it wants"""

    def config(self, labels_of_amr: int | None = None) -> RunConfig:
        """The run's settings; what goes beyond `amr` asks for no more labels than it did."""
        budget = self.budget
        if self.adaptation == BEYOND and labels_of_amr is not None:
            budget = labels_of_amr if budget is None else min(budget, labels_of_amr)
        settings = {"detector": "combined", **CELLS[self.cell].settings}
        return resolve(
            RunConfig(
                adaptation=self.adaptation,
                label_budget=budget,
                encoder="random",
                reference="held-out",
                device="cpu",
                threads=1,
                seed=self.seed,
                **settings,
            )
        )


@dataclass(frozen=True, kw_only=True)
class Group:
    """Trials that answer one question: all of its cells with all of its adaptations."""

    cells: tuple[str, ...]
    adaptations: tuple[str, ...]
    budgets: tuple[int | None, ...] = (None,)
    also: tuple[tuple[str, int | None], ...] = field(default=())
    """adaptations with single budgets"""

    def trials(self, seeds: Sequence[int]) -> Iterator[Trial]:
        """Seed by seed, so that what is there at any time is comparable."""
        pairs = [(a, budget) for a in self.adaptations for budget in self.budgets]
        for seed in seeds:
            for cell in self.cells:
                for adaptation, budget in (*pairs, *self.also):
                    yield Trial(cell=cell, adaptation=adaptation, seed=seed, budget=budget)


_SMALL: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 10,
    "minibatch_size": 10,
    "max_per_class": 1800,  # 1,500 to learn from; the others are monitored
    "backbone": "resnet18",
    "memory_format": "channels-last",
    "options": {"backbone": {"width": 8}},
}
_STREAMS: dict[str, dict[str, Any]] = {
    "f1": {"benchmark": "fmnist-cd", "num_drifts": 1},
    "f2": {"benchmark": "fmnist-cd", "num_drifts": 2},
    "c1": {"benchmark": "cifar10-cd", "num_drifts": 1},
}
_PERMUTED = {"transforms": (("permutation", 5),), "name": "permuted"}
_SCHEDULES: dict[str, tuple[dict[str, Any], ...]] = {
    "partial": ({"task": 3, **_PERMUTED, "share": 0.5},),
    "gradual": ({"task": 3, **_PERMUTED, "over_tasks": 3},),
    "recurring": (
        {"task": 2, **_PERMUTED},
        {"task": 3, "classes": (0, 1), "to": "original"},
        {"task": 4, "classes": (0, 1), "to": "permuted"},
        {"task": 5, "classes": (0, 1), "to": "original"},
    ),
}


def _cells() -> dict[str, Cell]:
    made = [
        Cell(
            name=f"{stream}-{method}-{buffer}",
            settings={**settings, **_SMALL, "method": method, "buffer_size": buffer},
        )
        for stream, settings in _STREAMS.items()
        for buffer in (200, 500)
        for method in ("er", "der++")
    ]
    pacs = {
        "benchmark": "pacs-cd",
        "method": "er",
        "buffer_size": 500,
        # By the accuracy without drift on development seeds; few images need many epochs.
        "epochs": 10,
        "batch_size": 10,
        "minibatch_size": 10,
        "lr": 0.03,
    }
    made.append(Cell(name="pacs-er-500", settings=pacs))
    for schedule, events in _SCHEDULES.items():
        settings = {"benchmark": "fmnist-cd", "events": events, "method": "er", "buffer_size": 500}
        made.append(Cell(name=f"{schedule}-er-500", settings={**settings, **_SMALL}))
    gradual = made[-2]
    assert gradual.name.startswith("gradual")
    made.append(Cell(name="alarms-er-500", settings={**gradual.settings, "detector": "always"}))
    return {cell.name: cell for cell in made}


CELLS = _cells()
MAIN = tuple(name for name in CELLS if name.split("-")[0] in (*_STREAMS, "pacs"))
SCHEDULES = tuple(name for name in CELLS if name.split("-")[0] in _SCHEDULES)

GROUPS = {
    "main": Group(cells=MAIN, adaptations=(REALIGNED, RELEARNED, FLUSHED, BEYOND)),
    "controls": Group(cells=MAIN, adaptations=(REHEARSED, CONTROL)),
    "schedules": Group(
        cells=SCHEDULES,
        adaptations=(REALIGNED, BEYOND, "amr-partial", "amr-gradual", "amr-remembered"),
    ),
    "alarms": Group(cells=("alarms-er-500",), adaptations=(REALIGNED, "amr-gradual")),
    "parts": Group(cells=("f1-er-200", "c1-er-200"), adaptations=(*PARTS, UNCERTAIN, CONTROL)),
    "labels": Group(
        cells=("f1-er-500", "c1-er-500"),
        adaptations=(REALIGNED, BEYOND),
        budgets=(12, 50, 200),
        also=(("vanilla", None), (FLUSHED, 1000), (FLUSHED, 3000)),
    ),
}
