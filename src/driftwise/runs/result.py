"""`result.json` from the schedule, the task records and the ledger; task records as plain data."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import platform
import subprocess
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import driftwise
from driftwise import metrics
from driftwise.adaptation_counts import count_adapted
from driftwise.config import registry
from driftwise.config.fields import fields_of, read
from driftwise.config.learners import pick_device
from driftwise.config.schema import RunConfig
from driftwise.distributed import Group
from driftwise.errors import UserError
from driftwise.metrics import Ledger
from driftwise.runs.store import RunFolder
from driftwise.streams import Concept, DriftEvent, Schedule
from driftwise.streams.stream import MakesFeatures, name_of
from driftwise.types import AdaptationResult, Samples, TaskRecord, TaskState, Verdict

if TYPE_CHECKING:
    from driftwise.drift_loop import DriftLoop

Record = dict[str, Any]
"""A task's record as plain data."""

MOST_CLASSES = 2000
"""Up to so many, the result holds a confusion matrix; a larger one would be most of the file."""


def record_to_json(record: TaskRecord[metrics.Scores], *, is_last: bool) -> Record:
    """Plain data; everything that `make_result` needs of a task.

    Verdicts are kept by field, without the fields that are blank in all of them; the confusion
    matrix is kept of the last task only. See docs/decisions/0016-records-by-field.md.
    """
    scores = record.scores.to_json()
    if not is_last:
        del scores["confusion_counts"]
    verdicts = [verdict_to_json(verdict) for verdict in record.verdicts]
    filled = dict.fromkeys(name for verdict in record.verdicts for name in noted(verdict))
    return {
        "task": record.task,
        "verdicts": {name: [verdict[name] for verdict in verdicts] for name in filled},
        "renewed": list(record.renewed),
        "notes": list(record.notes),
        "scores": scores,
    }


def verdict_to_json(verdict: Verdict) -> Record:
    """Plain data, the class under its stable name."""
    values = {**vars(verdict), "moved_rows": list(verdict.moved_rows)}
    for name in ("kind_evidence", "stream_evidence"):
        values[name] = None if values[name] is None else dict(values[name])
    return {"task": values.pop("task"), "class": values.pop("label"), **values}


_BLANK = verdict_to_json(Verdict(task=0, label=0, drifted=None))


def noted(verdict: Verdict) -> Record:
    """`verdict_to_json` without the blank fields."""
    always = ("task", "class", "drifted")
    values = verdict_to_json(verdict)
    return {k: value for k, value in values.items() if k in always or value != _BLANK[k]}


def verdicts_of(record: Record) -> list[Record]:
    """The verdicts of a task's record, each with all of its fields."""
    kept = record["verdicts"]
    if isinstance(kept, list):  # as earlier versions wrote them
        return kept
    return [
        _BLANK | dict(zip(kept, values, strict=True)) for values in zip(*kept.values(), strict=True)
    ]


def task_state_to_plain(task_state: TaskState) -> dict[str, Any]:
    """A task under way as plain values and tensors for a checkpoint; nothing is copied."""
    result = task_state.result
    return {
        "task": task_state.task,
        "epoch": task_state.epoch,
        "steps": task_state.steps,
        "verdicts": [
            _fields(verdict)
            | {
                name: some and dict(some)
                for name in ("p_values", "kind_evidence", "stream_evidence")
                if (some := getattr(verdict, name)) is not None
            }
            for verdict in task_state.verdicts
        ],
        "repair": _fields(result)
        | {
            name: None if samples is None else _fields(samples)
            for name, samples in (("extra", result.extra), ("refilled", result.refilled))
        },
    }


def task_state_from_plain(state: dict[str, Any]) -> TaskState:
    """What `task_state_to_plain` made; every value is checked, since a file may hold anything."""
    kept = dict(state["repair"])
    for name in ("extra", "refilled"):
        kept[name] = None if kept[name] is None else Samples.restored(kept[name])
    result = AdaptationResult(**kept)
    for name, kind in {"from_scratch": bool, "renewed": int, "notes": str}.items():
        value = getattr(result, name)
        values = value if isinstance(value, tuple) else (value,)
        if not all(type(each) is kind for each in values):
            raise ValueError(f"expected {name} of an adaptation, got {value!r}")
    for name in ("task", "epoch", "steps"):
        if type(state[name]) is not int or state[name] < 0:
            raise ValueError(f"expected the number of a {name}, got {state[name]!r}")
    return TaskState(
        task=state["task"],
        epoch=state["epoch"],
        steps=state["steps"],
        verdicts=tuple(map(verdict_from, state["verdicts"])),
        result=result,
    )


def verdict_from(state: dict[str, Any]) -> Verdict:
    """A verdict from a saved state, every field of its type."""
    verdict = Verdict(**state)
    for name, field in fields_of(Verdict).items():
        read(field, getattr(verdict, name), name=name, is_text=False)
    for some in (verdict.p_values, verdict.kind_evidence, verdict.stream_evidence):
        for name, value in (some or {}).items():
            if type(name) is not str or type(value) not in (int, float):
                raise ValueError(f"expected numbers by name, got {name!r}: {value!r}")
    return verdict


def _fields(value: Verdict | AdaptationResult | Samples) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


class Result(dict[str, Any]):
    """All numbers of a complete run, under the keys of `result.json`."""

    def __init__(self, values: Mapping[str, Any], records: Sequence[Record]) -> None:
        super().__init__(values)
        self._records = records

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a run folder that `driftwise report` reads; of several processes, the first does."""
        group = Group()

        def write() -> None:
            if group.rank:
                return
            with RunFolder.open(folder, self["config"], overwrite=overwrite) as run:
                for record in self._records:
                    run.append_record(record)
                run.write_result(self)

        group.first(write)


def result_of(loop: DriftLoop) -> Result:
    """The result of a loop that was built from objects and has run."""
    schedule = loop.stream.schedule
    if len(loop.records) < schedule.num_tasks:
        raise UserError(
            f"{len(loop.records)} of {schedule.num_tasks} tasks are complete; a result needs all"
        )
    values = make_result(
        loop.config, schedule, loop.stream.class_names, loop.records, loop.ledger, loop.warnings
    )
    return Result(values, loop.records)


def describe(loop: DriftLoop) -> RunConfig:
    """The settings of a loop that was built from objects, as far as settings can express them."""
    parts = {
        "method": loop.learner.method,
        "adaptation": loop.adaptation,
        "detector": loop.unbound_detector,
    }
    names = {kind: _name_of(kind, part) for kind, part in parts.items()}
    options = {
        kind: {
            each.name: getattr(part, each.name) for each in dataclasses.fields(part) if each.init
        }
        for kind, part in parts.items()
        if dataclasses.is_dataclass(part) and dataclasses.fields(part)
    }
    stream = loop.stream
    return RunConfig(
        benchmark="own",
        scaling=None if stream.scaling is None else stream.scaling.kind,
        frozen_encoder=None if stream.encoder is None else object_name(stream.encoder),
        method=names["method"],
        adaptation=names["adaptation"],
        detector=names["detector"],
        options=options,
        buffer_size=getattr(loop.learner.buffer, "capacity", None),
        fresh_samples=getattr(loop.learner.buffer, "fresh", None),
        num_drifts=len(stream.schedule.events),
        epochs=loop.epochs,
        seed=loop.seed,
    )


def object_name(encoder: MakesFeatures) -> str:
    """What a config calls a frozen encoder that was given as an object."""
    return f"object {name_of(encoder)}"


def _name_of(kind: str, part: object) -> str:
    """The name of a built-in component, or the import path of another."""
    for name, entry in registry.CATALOGUE[kind].items():
        if entry.factory() is type(part) and (
            dataclasses.is_dataclass(part) or vars(entry.make()) == vars(part)
        ):
            return name
    owner = part if isinstance(part, type | types.FunctionType) else type(part)
    return f"{owner.__module__}:{owner.__qualname__}"


def make_result(
    config: RunConfig,
    schedule: Schedule,
    class_names: Sequence[str],
    records: Sequence[Record],
    ledger: Ledger,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """All of `result.json`. Two equal runs differ in `seconds` and `versions` only."""
    scores = [record["scores"] for record in records]
    matrix = metrics.accuracy_matrix([row["accuracy"] for row in scores])
    final = {int(label): value for label, value in scores[-1]["per_class"].items()}
    drifted = schedule.drifted()
    settings = config.to_json()
    return {
        "benchmark": config.benchmark,
        "method": config.method,
        "adaptation": config.adaptation,
        "detector": config.detector,
        "buffer_size": config.buffer_size,
        "num_drifts": len(schedule.events),
        "seed": config.seed,
        "faa": metrics.final_average_accuracy(matrix),
        "forgetting": metrics.forgetting(matrix),
        "forgetting_since_event": metrics.forgetting_since(matrix, _last_events(schedule)),
        "backward_transfer": metrics.backward_transfer(matrix),
        "faa_drifted": metrics.faa_of(final, drifted),
        "faa_stable": metrics.faa_of(final, set(final) - drifted),
        "accuracy_matrix": matrix,
        "accuracy_matrix_til": metrics.accuracy_matrix([row["accuracy_til"] for row in scores]),
        "per_class_accuracy": [row["per_class"] for row in scores],
        "macro_f1": [row["macro_f1"] for row in scores],
        "calibration": scores[-1]["calibration"],
        "confusion_matrix": _confusion(scores[-1], len(class_names)),
        "class_names": list(class_names),
        "tasks": [list(classes) for classes in schedule.tasks],
        "labels": ledger.labels,
        "labels_refused": ledger.refused,
        "gradient_steps": ledger.steps,
        "flops": ledger.flops,
        "drift_events": [_event_to_json(schedule, event) for event in schedule.events],
        "verdicts": [verdict for record in records for verdict in verdicts_of(record)],
        "renewals": [
            {"task": record["task"], "class": label}
            for record in records
            for label in record["renewed"]
        ],
        "adapted": _adapted(config, records, ledger),
        "detection": vars(_detection(schedule, records)),
        "recovery": _recovery(schedule, records),
        "notes": [
            {"task": record["task"], "text": note} for record in records for note in record["notes"]
        ],
        "warnings": list(warnings),
        "schedule": schedule.to_json(),
        "config": settings,
        "seconds": ledger.seconds,
        "versions": {**versions(), "device": str(pick_device(config.device))},
    }


def _confusion(scores: Record, num_classes: int) -> list[list[int]] | None:
    """Samples by true x predicted class, None where there are too many classes."""
    if "confusion" in scores:  # as earlier versions kept it
        whole: list[list[int]] = scores["confusion"]
        return whole
    counts = scores["confusion_counts"]
    num_outputs = max([num_classes, *(predicted + 1 for _, predicted, _ in counts)])
    return None if num_outputs > MOST_CLASSES else metrics.confusion_matrix(counts, num_outputs)


def _adapted(config: RunConfig, records: Sequence[Record], ledger: Ledger) -> Record:
    """How many drifts were adapted to; `note`: that there were none."""
    found = count_adapted(
        [
            (verdict["task"], verdict["class"], verdict["drifted"], verdict["spared"])
            for record in records
            for verdict in verdicts_of(record)
        ],
        {(record["task"], label) for record in records for label in record["renewed"]},
    )
    note = found.note(config.adaptation, ledger.labels["adaptation"])
    return {**vars(found), "note": note or None}


def _recovery(schedule: Schedule, records: Sequence[Record]) -> list[Record]:
    """What each event cost each class that it changed."""
    ends = [
        {int(label): value for label, value in record["scores"]["per_class"].items()}
        for record in records
    ]
    events = [(event.task, list(event.concepts)) for event in schedule.events]
    return [
        {"task": each.task, "class": each.label}
        | {"before": each.before, "after": list(each.after)}
        | {"tasks": each.tasks, "area": each.area}
        for each in metrics.recoveries(ends, events)
    ]


def _event_to_json(schedule: Schedule, event: DriftEvent) -> Record:
    """The truth about an event.

    Transforms one upon the other are joined by a plus sign, those of different classes by a slash.
    """
    concepts = sorted(set(event.concepts.values()))
    changes = {concept: _changes(schedule, concept) for concept in concepts}
    names = ["+".join(step.transform for step in steps) for steps in changes.values() if steps]
    return {
        "task": event.task,
        "classes": sorted(event.concepts),
        "transform": "/".join(dict.fromkeys(names)) or ("natural" if any(concepts) else "original"),
        "severity": max((step.severity for steps in changes.values() for step in steps), default=0),
        "by_class": {
            str(label): [[step.transform, step.severity] for step in changes[concept]]
            for label, concept in sorted(event.concepts.items())
        },
        "kind": event.kind,
        "share": event.share,
        "over_tasks": event.over_tasks,
        "over_steps": event.over_steps,
        "domains": sorted({schedule.domain_of(concept) or "all" for concept in concepts}),
    }


def _changes(schedule: Schedule, concept: int) -> list[Concept]:
    """The transforms from the original to a concept."""
    steps = [schedule.concepts[each - 1] for each in schedule.lineage(concept)]
    return [step for step in steps if step.domain is None or step.transform != "identity"]


def _last_events(schedule: Schedule) -> list[int | None]:
    """For each task, the last event that changed one of its classes."""
    return [
        max((e.task for e in schedule.events if set(classes) & set(e.concepts)), default=None)
        for classes in schedule.tasks
    ]


def _detection(schedule: Schedule, records: Sequence[Record]) -> metrics.DetectionQuality:
    verdicts = (
        Verdict(task=v["task"], label=v["class"], drifted=v["drifted"])
        for record in records
        for v in verdicts_of(record)
    )
    drifts = {task: schedule.drifting(task) for task in range(1, schedule.num_tasks + 1)}
    renewals = [(record["task"], label) for record in records for label in record["renewed"]]
    return metrics.detection_quality(verdicts, drifts, renewals)


def versions() -> Mapping[str, Any]:
    """What the run was made with."""
    packages = ("torch", "numpy", "scipy", "scikit-learn", "safetensors")
    return {
        "driftwise": driftwise.__version__,
        "commit": source_commit(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
    }


@functools.cache
def source_commit() -> str | None:
    """The commit of the source that runs, where it runs from a checkout.

    As it was when first asked for: the source may change during a run, what runs does not.
    """
    home = Path(__file__).resolve().parents[3]
    if not (home / ".git").exists():
        return None
    command = ["git", "-C", str(home), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
