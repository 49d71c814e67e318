"""A light page about one run, quick enough to be made for every run of a sweep."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from driftwise.report.columns import compact
from driftwise.report.events import Outcome, changes, describe_events, outcomes_of, range_words
from driftwise.report.markup import data_uri, png, render
from driftwise.report.page import config_text
from driftwise.report.read import few
from driftwise.report.run import COSTS, Run
from driftwise.report.style import DRIFT
from driftwise.report.sweeps import Place
from driftwise.report.table import MISSING, Head, Item, Table
from driftwise.report.verdict_table import verdict_table
from driftwise.report.words import plural

MOST_VERDICTS = 50
"""Verdicts that are listed one by one; the table by task counts all of them."""
MOST_TASKS = 20
"""Rows and columns of the table of accuracies; of more, an image shows all and the table some."""
MOST_NOTES = 30
FILES = ("result.json", "config.json", "events.jsonl")

Changes = Mapping[int, tuple[int, ...]]
"""The tasks at which the concept of some class changes, with those classes."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The place of a run in one or more sweeps."""

    sweeps: Sequence[str]
    place: Place
    seeds: Sequence[tuple[int, str]]
    """seeds and ids of finished runs of its cell, itself among them"""
    count: int
    """how many finished runs its cell has"""


def build_run_page(run: Run, run_id: str, standings: Sequence[Standing]) -> str:
    """The page, made to lie two folders beside the run's own."""
    changed = changes(run)
    tasks = sorted({*range(1, run.num_tasks + 1, -(-run.num_tasks // MOST_TASKS)), run.num_tasks})
    verdicts = verdict_table(run, MOST_VERDICTS)
    num_noted = sum(outcome is not Outcome.QUIET for outcome in outcomes_of(run))
    return render(
        "run.html",
        id=run_id,
        title=f"{run.benchmark}, {run.method}, {run.adaptation}, seed {run.seed}",
        summary=_summary(run),
        warnings=few(run.warnings, MOST_NOTES),
        facts=_facts(run, standings),
        standings=standings,
        curve=_curve(run, changed),
        events=describe_events(run),
        matrix=_matrix(run, changed, tasks),
        heat=_heat(run) if len(tasks) < run.num_tasks else "",
        checks=_checks(run),
        verdicts=verdicts,
        verdicts_in_words=f"{plural(num_noted, 'verdict')} that claim drift, miss it or could not"
        " be given",
        labels=_labels(run),
        costs=_costs(run),
        notes_left=few(run.notes, MOST_NOTES),
        versions=", ".join(f"{name} {value}" for name, value in sorted(run.versions.items())),
        config=config_text(run.config),
        files=FILES,
    )


def _number(value: float | None, form: str = ".1f") -> str:
    return MISSING if value is None else format(value, form)


def _summary(run: Run) -> str:
    parts = [f"{_number(run.faa)} % final average accuracy"]
    if run.forgetting is not None:
        parts.append(f"{run.forgetting:.1f} points forgotten")
    asked = run.labels.get("adaptation")
    if asked is not None:
        parts.append(f"{asked:,.0f} labels asked for by the adaptation")
    if run.not_adapted:
        parts.append(run.not_adapted)
    return ", ".join(parts) + "."


def _facts(run: Run, standings: Sequence[Standing]) -> list[tuple[str, str]]:
    found = run.adapted
    checks = f"{found.checks}: {found.untestable} untestable, {found.drifted} drifted, "
    real = "none" if run.buffer_size is None else str(run.buffer_size)
    nominal = {str(each.place["buffer_size"]) for each in standings if "buffer_size" in each.place}
    other = ", ".join(sorted(nominal - {real}))
    return [
        ("detector", run.detector),
        ("buffer", f"{real} (stands for {other})" if other else real),
        ("drift events", str(len(run.events))),
        ("tasks", f"{run.num_tasks}, {len(run.class_names)} classes"),
        ("FAA of drifted classes", _number(run.faa_drifted)),
        ("FAA of stable classes", _number(run.faa_stable)),
        ("backward transfer", _number(run.backward_transfer)),
        ("checks", f"{checks}{found.adapted} adapted"),
        ("gradient steps", _number(run.gradient_steps, ",.0f")),
    ]


def _matrix(run: Run, changed: Changes, tasks: Sequence[int]) -> Table:
    """After each task, the accuracy on each; a drift is marked at the first row after it."""
    rows, before = [], 0
    for task in tasks:
        drifts = any(each in changed for each in range(before + 1, task + 1))
        kind, before = "changed" if drifts else "", task
        values = run.accuracy[task - 1, np.subtract(tasks, 1)].tolist()
        row = [Item(f"after {task}{' drift' if drifts else ''}", kind=kind)]
        row += [
            Item("", kind=kind)
            if math.isnan(value)
            else Item(f"{value:.1f}", value, kind, round(min(max(value / 100, 0.0), 1.0), 2))
            for value in values
        ]
        rows.append(row)
    return Table(
        title=f"Accuracy after each of {run.num_tasks} tasks (down) on each task (across)",
        heads=[Head(title="on task", is_name=True), *(Head(title=str(task)) for task in tasks)],
        rows=rows,
    )


def _heat(run: Run) -> str:
    """An image of all accuracies, one pixel each: white to the blue of the table's cells."""
    share = np.clip(np.nan_to_num(run.accuracy, nan=0.0) / 100, 0, 1)[:, :, None]
    pixels = np.round(255 + share * 0.5 * (np.array([0, 114, 178]) - 255)).astype(np.uint8)
    return data_uri(png(pixels), "image/png")


def _checks(run: Run) -> Table:
    """Verdicts by task, counted by what they turned out to be."""
    outcomes = outcomes_of(run)
    checked = Counter(verdict.task for verdict in run.verdicts)
    counts = Counter((v.task, outcome) for v, outcome in zip(run.verdicts, outcomes, strict=True))
    kinds = [kind for kind in Outcome if kind in outcomes]
    return Table(
        title="Verdicts by task",
        heads=[Head(title=title) for title in ("task", "checked", *(k.value for k in kinds))],
        rows=[
            [Item(str(task)), Item(str(number))]
            + [Item(str(counts[task, kind] or "")) for kind in kinds]
            for task, number in sorted(checked.items())
        ],
    )


def _labels(run: Run) -> Table:
    return Table(
        title="Labels",
        heads=[Head(title="labels for", is_name=True), Head(title="number")],
        rows=[
            [Item(name), Item(_number(run.labels.get(name), ",.0f"))]
            for name in ("stream", "monitoring", "adaptation")
        ],
    )


def _costs(run: Run) -> Table:
    def row(name: str, seconds: float | None, flops: float | None, kind: str = "") -> list[Item]:
        gigaflops = None if flops is None else flops / 1e9
        return [Item(name, kind=kind), *(Item(_amount(x), kind=kind) for x in (seconds, gigaflops))]

    return Table(
        title="Costs",
        heads=[Head(title="phase", is_name=True), Head(title="seconds"), Head(title="GFLOPs")],
        rows=[
            *(row(p, run.seconds.get(p), run.flops.get(p)) for p in (*COSTS, "evaluate")),
            row("without evaluate", run.cost(run.seconds), run.cost(run.flops), "total"),
        ],
    )


def _amount(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:,.0f}" if value >= 100 else compact(value)


# --- the curve -----------------------------------------------------------------------------------

WIDTH = 720
LEFT, RIGHT, TOP, BOTTOM = 40, 706, 24, 224
"""The area of the lines, as in `curve.html`; words and ticks stand around it."""

MOST_MARKERS = 40
"""Tasks along a line that carry a marker."""

LETTER = 7.0
"""Width that a letter may take."""

STYLES = {
    "all tasks seen": ("#0072B2", "", "m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0"),
    "classes that drift": (DRIFT, "7 3", "m-3.2 -3.2h6.4v6.4h-6.4z"),
    "classes that never drift": ("#009E73", "2 3", "m0 -4.4l4.2 7.4h-8.4z"),
}
"""Colour, dashes and marker of a line, each of which identifies it alone. Markers are path data: a
circle, a square, a triangle."""


def _curve(run: Run, changed: Changes) -> dict[str, object]:
    """For the template: means after each task, and dashed lines where classes drift."""
    drifting = {label for labels in changed.values() for label in labels}
    step = (RIGHT - LEFT) / run.num_tasks
    lines = []
    for name, means in _means(run, drifting).items():
        if all(mean is None for mean in means):
            continue
        points = [
            None if mean is None else (round(LEFT + (task + 0.5) * step, 1), _height(mean))
            for task, mean in enumerate(means)
        ]
        # A value that is not known leaves a gap.
        path = "".join(
            "" if point is None else f"{'M' if before is None else 'L'}{point[0]} {point[1]}"
            for before, point in pairwise([None, *points])
        )
        every = -(-run.num_tasks // MOST_MARKERS)
        colour, dashes, marker = STYLES[name]
        end = "unknown" if means[-1] is None else f"{means[-1]:.1f}"
        lines.append(
            {
                **{"name": name, "end": end, "colour": colour, "dashes": dashes, "path": path},
                "marker": marker,
                "markers": "".join(f"M{x} {y}{marker}" for x, y in filter(None, points[::every])),
            }
        )
    ends = "; ".join(f"{line['name']} {line['end']}" for line in lines)
    ticks = range(1, run.num_tasks + 1, math.ceil(run.num_tasks / 20))
    return {
        "label": f"Mean accuracy in percent after each of {run.num_tasks} tasks; at the end: {ends}",
        "ticks": [(task, round(LEFT + (task - 0.5) * step, 1)) for task in ticks],
        "drifts": _drift_lines(run, changed, step),
        "lines": lines,
    }


def _height(percent: float) -> float:
    return round(BOTTOM - percent / 100 * (BOTTOM - TOP), 1)


def _means(run: Run, drifting: set[int]) -> dict[str, list[float | None]]:
    """A mean per task for each line; None: nothing is known."""
    known = [None if math.isnan(value) else float(value) for value in run.mean_accuracy]
    if not drifting:
        return dict(zip(STYLES, [known], strict=False))
    after = run.per_class[: run.num_tasks]
    drifted = [_mean(v for label, v in each.items() if label in drifting) for each in after]
    stable = [_mean(v for label, v in each.items() if label not in drifting) for each in after]
    return dict(zip(STYLES, [known, drifted, stable], strict=True))


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None


def _drift_lines(run: Run, changed: Changes, step: float) -> list[tuple[float, float, str]]:
    """Before each task at which classes drift: where, the middle of its words, words that fit."""
    words = [f"drift: {range_words(labels)}" for labels in changed.values()]
    gap = step * min((late - early for early, late in pairwise(changed)), default=run.num_tasks)
    if any(len(each) * LETTER > gap for each in words):
        words = ["drift" if len("drift") * LETTER <= gap else ""] * len(changed)
    lines = []
    for task, text in zip(changed, words, strict=True):
        x, half = LEFT + (task - 1) * step, len(text) * LETTER / 2
        lines.append((round(x, 1), round(min(max(x, half), WIDTH - half), 1), text))
    return lines
