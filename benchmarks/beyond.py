"""Adaptation beyond realignment, beside realignment and relearning, over cells and seeds.

    python benchmarks/beyond.py [main controls schedules alarms parts labels] [--seeds 5 6] [...]
    python benchmarks/beyond.py main --validate --seeds 1000 1001 --out FILE    # to choose by
    python benchmarks/beyond_page.py                              # tables and figures of the docs

Cells (`beyond_trials.py`): Fashion-MNIST with 1 and 2 drifts and CIFAR-10 with 1 drift (permuted
pixels, 1,500 training images a class, one epoch in batches of 10 and 10, ResNet-18 of width 8),
buffers of 200 and 500, ER and DER++; PACS in four styles, ER; partial, gradual and recurring drift.
Verdicts are those of `combined` on a fixed random network, which no learner can change, so all
adaptations of a cell and seed get the same ones, and the same run up to the first drift, which is
made once. A finished run is one line in `results/beyond.csv`, and is not made again.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import itertools
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from queue import Empty
from typing import Any

import torch
from beyond_outcomes import RESULTS, Outcome, append, saved
from beyond_trials import CELLS, GROUPS, REALIGNED, SEEDS, Trial

from driftwise.config.build import assemble, load_data
from driftwise.config.schema import RunConfig
from driftwise.drift_loop import DriftLoop
from driftwise.loop import run_tasks
from driftwise.metrics import score
from driftwise.runs.listeners import Silent
from driftwise.runs.result import make_result, record_to_json, verdicts_of
from driftwise.types import Dataset


class Course:
    """A run in memory: its parts, and the records of the tasks it is through."""

    def __init__(self, config: RunConfig, data: Dataset, *, validate: bool) -> None:
        self.parts = assemble(config, data)
        self._evaluate = _on_reference_samples(self.parts) if validate else self.parts.evaluate
        self.records: list[dict[str, Any]] = []

    @property
    def first_event(self) -> int:
        """Task of the first drift."""
        return min(event.task for event in self.parts.stream.schedule.events)

    def run(self, until: int | None = None) -> None:
        """On to the end of a task, or of the stream."""
        if until is not None and len(self.records) >= until:
            return
        for record in run_tasks(
            self.parts.stream.tasks(after=len(self.records)),
            handler=self.parts.handler,
            context_of=self.parts.context,
            evaluate=self._evaluate,
            epochs=self.parts.config.epochs or 1,
            listener=Silent(),
        ):
            is_last = record.task == self.parts.stream.schedule.num_tasks
            self.records.append(record_to_json(record, is_last=is_last))
            if record.task == until:
                break

    def take_up(self, other: Course) -> None:
        """Begin where another adaptation's run stands: no drift has come, so it did nothing."""
        state = copy.deepcopy(other.parts.state_dict())
        state["adaptation"] = self.parts.adaptation_state.state_dict()
        self.parts.load_state_dict(state)
        self.records = list(other.records)

    def result(self) -> dict[str, Any]:
        """As a run folder would hold it."""
        parts = self.parts
        schedule, names = parts.stream.schedule, parts.stream.class_names
        return make_result(parts.config, schedule, names, self.records, parts.ledger)


def _on_reference_samples(parts: DriftLoop) -> Any:
    """Scores from samples that nobody trains on, in place of the tests."""

    def evaluate(task: Any) -> Any:
        classes = [label for labels in task.classes_by_task() for label in labels]
        samples = parts.stream.samples("reference", classes, task.number)
        logits = parts.learner.logits(samples.images)
        return score(logits, samples.labels, task.classes_by_task(), task=task.number)

    return evaluate


def outcome_of(trial: Trial, result: dict[str, Any]) -> Outcome:
    flagged: dict[int, list[int]] = {}
    for verdict in result["verdicts"]:
        if verdict["drifted"]:
            flagged.setdefault(verdict["task"], []).append(verdict["class"])
    return Outcome(
        **asdict(trial),
        faa=round(result["faa"], 3),
        faa_drifted=round(result["faa_drifted"], 3),
        faa_stable=None if result["faa_stable"] is None else round(result["faa_stable"], 3),
        forgetting=round(result["forgetting"], 3),
        labels=result["labels"]["adaptation"],
        steps=result["gradient_steps"],
        gflops=round((result["flops"]["train"] + result["flops"]["adapt"]) / 1e9, 1),
        found="; ".join(f"{task}:{' '.join(map(str, each))}" for task, each in flagged.items()),
        guessed=sum(
            " guessed labels, " in note["text"] or " pseudo-labels, " in note["text"]
            for note in result["notes"]
        ),
        commit=(result["versions"]["commit"] or "")[:10],
    )


def measure(
    trials: Sequence[Trial], *, validate: bool, labels_of_amr: int | None = None
) -> Iterator[Outcome]:
    """Runs of one cell and seed, which share what comes before the first drift.

    Not where there was an alarm before it: then they have differed ever since. `labels_of_amr`:
    what it asked for, if it has been run.
    """
    first = replace(trials[0], adaptation=REALIGNED, budget=None).config()
    data = load_data(first)
    shared = Course(first, data, validate=validate)
    shared.run(until=shared.first_event - 1)
    same_so_far = not any(v["drifted"] for record in shared.records for v in verdicts_of(record))
    for trial in trials:
        course = Course(trial.config(labels_of_amr), data, validate=validate)
        if same_so_far:
            course.take_up(shared)
        course.run()
        outcome = outcome_of(trial, course.result())
        if (trial.adaptation, trial.budget) == (REALIGNED, None):
            labels_of_amr = outcome.labels
        yield outcome


def work(jobs: Any, done: Any, validate: bool) -> None:
    """One process's share of the jobs; it ends soon after its parent."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    while (job := jobs.get()) is not None:
        trials, labels_of_amr = job
        for outcome in measure(trials, validate=validate, labels_of_amr=labels_of_amr):
            done.put(outcome)
            if parent is not None and not parent.is_alive():
                return


Job = tuple[list[Trial], int | None]
"""Runs of one cell and seed, and how many labels `amr` asked for there, if that is known."""


def run_all(jobs: Sequence[Job], file: Path, *, workers: int, validate: bool) -> None:
    """In as many processes; what is finished is saved at once, by this one alone."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    done: Any = context.Queue()
    for job in (*jobs, *[None] * workers):
        queue.put(job)
    arguments = (queue, done, validate)
    processes = [context.Process(target=work, args=arguments, daemon=True) for _ in range(workers)]
    for process in processes:
        process.start()
    began = time.monotonic()
    while any(process.is_alive() for process in processes) or not done.empty():
        with contextlib.suppress(Empty):
            outcome = done.get(timeout=1)
            append(outcome, file)
            print(f"{(time.monotonic() - began) / 60:5.1f} min  {in_words(outcome)}", flush=True)
    if any(process.exitcode for process in processes):
        sys.exit("a process failed (see above); what is finished is saved, run again for the rest")


def in_words(outcome: Outcome) -> str:
    allowed = "" if outcome.budget is None else f" (at most {outcome.budget} labels)"
    return (
        f"{outcome.cell} {outcome.adaptation}{allowed} seed {outcome.seed}: FAA {outcome.faa:.1f}, "
        f"drifted {outcome.faa_drifted:.1f}, {outcome.labels} labels, {outcome.steps} steps"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("groups", nargs="*", default=list(GROUPS), help=", ".join(GROUPS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--adaptations", nargs="+", help="these in place of the groups' own")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--validate", action="store_true", help="score samples that are no tests")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if unknown := sorted(set(options.groups) - set(GROUPS)):
        parser.error(f"groups are {', '.join(GROUPS)}; got {', '.join(unknown)}")
    have = {outcome.trial: outcome for outcome in saved(options.out)}
    jobs: list[Job] = []
    for name in options.groups:
        group = GROUPS[name]
        if options.adaptations:
            group = replace(group, adaptations=tuple(options.adaptations), also=())
        wanted = (
            trial
            for trial in group.trials(options.seeds)
            if trial.cell in options.cells and trial not in have
        )
        together = itertools.groupby(wanted, key=lambda trial: (trial.cell, trial.seed))
        for (cell, seed), trials in together:
            amr = have.get(Trial(cell=cell, adaptation=REALIGNED, seed=seed))
            jobs.append((list(trials), None if amr is None else amr.labels))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    run_all(jobs, options.out, workers=options.workers, validate=options.validate)


if __name__ == "__main__":
    main()
