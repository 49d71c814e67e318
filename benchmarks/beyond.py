"""Adaptation beyond realignment, beside realignment and relearning, over cells and seeds.

    python benchmarks/beyond.py [--seeds 0 1 2 3 4] [--cells f1-er-200 ...] [--workers 2]
    python benchmarks/beyond.py --validate --seeds 1000 1001 1002    # to choose by: not the tests
    python benchmarks/beyond.py --table                              # what has been saved

Cells: Fashion-MNIST with 1 and 2 drifts and CIFAR-10 with 1 drift (permuted pixels, 1,500 training
pictures a class, one epoch, ResNet-18 of width 8), buffers of 200 and 500, ER and DER++; PACS in
four styles, ER. Verdicts are those of `combined` on a fixed random network, which no learner can
change, so all adaptations of a cell and seed get the same ones, and the same run up to the first
drift, which is made once. Every run is saved in `results/beyond`, and not made again.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import os
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from recollect.adapt.wrapped import state_of
from recollect.evaluate import score
from recollect.experiment.build import Assembly, assemble, load_data
from recollect.experiment.config import RunConfig
from recollect.experiment.listeners import Silent
from recollect.experiment.presets import resolve
from recollect.experiment.result import make_result, record_to_json
from recollect.files import replacing
from recollect.loop import play
from recollect.types import Dataset

RESULTS = Path(__file__).resolve().parents[1] / "results" / "beyond"
ADAPTATIONS = ("amr", "fr", "fr-flush", "amr-plus")
SLACK = 1.0
"""points below relearning that are allowed"""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A benchmark, a method and a buffer."""

    name: str
    settings: dict[str, Any]

    def config(self, adaptation: str, seed: int) -> RunConfig:
        """Of one run."""
        return resolve(
            RunConfig(
                adaptation=adaptation,
                detector="combined",
                encoder="random",
                reference="held-out",
                device="cpu",
                threads=1,
                seed=seed,
                **self.settings,
            )
        )


def _cells() -> dict[str, Cell]:
    kinds: dict[str, dict[str, Any]] = {
        "f1": {"benchmark": "fmnist-cd", "num_drifts": 1},
        "f2": {"benchmark": "fmnist-cd", "num_drifts": 2},
        "c1": {"benchmark": "cifar10-cd", "num_drifts": 1},
    }
    small = {
        "epochs": 1,
        "max_per_class": 1800,
        "backbone": "resnet18",
        "options": {"backbone": {"width": 8}},
    }
    made = [
        Cell(
            name=f"{kind}-{method}-{buffer}",
            settings={**settings, **small, "method": method, "buffer_size": buffer},
        )
        for kind, settings in kinds.items()
        for buffer in (200, 500)
        for method in ("er", "der++")
    ]
    pacs = Cell(
        name="pacs-er-500", settings={"benchmark": "pacs-cd", "method": "er", "buffer_size": 500}
    )
    return {cell.name: cell for cell in (*made, pacs)}


CELLS = _cells()


class Course:
    """A run in memory: its parts, and the records of the tasks it is through."""

    def __init__(self, config: RunConfig, data: Dataset, *, validate: bool) -> None:
        self.parts = assemble(config, data)
        if validate:
            self.parts = replace(self.parts, evaluate=_on_reference_rows(self.parts))
        self.records: list[dict[str, Any]] = []

    @property
    def first_event(self) -> int:
        """Task of the first drift."""
        return min(event.task for event in self.parts.stream.schedule.events)

    def play(self, until: int | None = None) -> None:
        """On to the end of a task, or of the stream."""
        if until is not None and len(self.records) >= until:
            return
        for record in play(
            self.parts.stream.tasks(after=len(self.records)),
            care=self.parts.care,
            bench=self.parts.bench,
            evaluate=self.parts.evaluate,
            epochs=self.parts.config.epochs or 1,
            listener=Silent(),
        ):
            self.records.append(record_to_json(record))
            if record.task == until:
                break

    def take_up(self, other: Course) -> None:
        """Begin where another adaptation's run stands: no drift has come, so it did nothing."""
        state = copy.deepcopy(other.parts.state_dict())
        state["adaptation"] = state_of(self.parts.adaptation)
        self.parts.load_state_dict(state)
        self.records = list(other.records)

    def result(self) -> dict[str, Any]:
        """As a run folder would hold it."""
        parts = self.parts
        schedule, names = parts.stream.schedule, parts.stream.class_names
        return make_result(parts.config, schedule, names, self.records, parts.ledger)


def _on_reference_rows(parts: Assembly) -> Any:
    """Scores from rows that nobody trains on, in place of the tests."""

    def evaluate(task: Any) -> Any:
        classes = [label for labels in task.classes_by_task() for label in labels]
        rows = parts.stream.rows("reference", classes, task.number)
        logits = parts.learner.logits(rows.images)
        return score(logits, rows.labels, task.classes_by_task(), task=task.number)

    return evaluate


def file_of(folder: Path, cell: str, adaptation: str, seed: int) -> Path:
    return folder / f"{cell}--{adaptation}--{seed}.json"


def measure(job: tuple[str, int, tuple[str, ...], bool, Path]) -> list[str]:
    """Every adaptation of one cell and seed that has not been saved; a line each."""
    name, seed, adaptations, validate, folder = job
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    missing = [a for a in adaptations if not file_of(folder, name, a, seed).exists()]
    if not missing:
        return []
    cell = CELLS[name]
    data = load_data(cell.config("amr", seed))
    shared = Course(cell.config("amr", seed), data, validate=validate)
    shared.play(until=shared.first_event - 1)
    lines = []
    for adaptation in missing:
        began = time.process_time()
        course = Course(cell.config(adaptation, seed), data, validate=validate)
        course.take_up(shared)
        course.play()
        result = course.result()
        with replacing(file_of(folder, name, adaptation, seed)) as temporary:
            temporary.write_text(json.dumps(result, indent=1))
        lines.append(
            f"{name:14s} {adaptation:16s} seed {seed}: FAA {result['faa']:.2f}, drifted "
            f"{result['faa_drifted']:.1f}, stable {result['faa_stable'] or 0:.1f}, "
            f"{result['labels']['adaptation']} labels, {result['gradient_steps']} steps, "
            f"{time.process_time() - began:.0f} s"
        )
    return lines


def saved(folder: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    found = {}
    for file in sorted(folder.glob("*.json")):
        cell, adaptation, seed = file.stem.split("--")
        found[cell, adaptation, int(seed)] = json.loads(file.read_text())
    return found


def table(folder: Path) -> None:
    """Paired differences of `amr-plus` to the others, with 95 % intervals, cell by cell."""
    runs = saved(folder)
    heads = ["cell", "seeds", *ADAPTATIONS, "- amr", "- fr", "- fr-flush", "labels", "steps"]
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for cell in CELLS:
        by = {
            a: {s: r for (c, x, s), r in runs.items() if (c, x) == (cell, a)} for a in ADAPTATIONS
        }
        seeds = sorted(set.intersection(*(set(each) for each in by.values())))
        if len(seeds) < 2:
            continue
        faa = {a: np.array([by[a][s]["faa"] for s in seeds]) for a in ADAPTATIONS}
        means = [f"{faa[a].mean():.1f}" for a in ADAPTATIONS]
        gains = [_interval(faa["amr-plus"] - faa[a]) for a in ADAPTATIONS[:3]]
        labels = [np.mean([by[a][s]["labels"]["adaptation"] for s in seeds]) for a in ADAPTATIONS]
        steps = [np.mean([by[a][s]["gradient_steps"] for s in seeds]) for a in ADAPTATIONS]
        counts = [" / ".join(f"{value:,.0f}" for value in each) for each in (labels, steps)]
        print("| " + " | ".join([cell, str(len(seeds)), *means, *gains, *counts]) + " |")


def _interval(differences: np.ndarray) -> str:
    mean = differences.mean()
    half = stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--adaptations", nargs="+", default=list(ADAPTATIONS))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--validate", action="store_true", help="score rows that are no tests")
    parser.add_argument("--table", action="store_true", help="only show what has been saved")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.table:
        jobs = [
            (cell, seed, tuple(options.adaptations), options.validate, options.out)
            for seed in options.seeds
            for cell in options.cells
        ]
        with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
            for lines in pool.imap_unordered(measure, jobs):
                for line in lines:
                    print(line, flush=True)
    table(options.out)


if __name__ == "__main__":
    main()
