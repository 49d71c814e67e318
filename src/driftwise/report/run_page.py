"""What a page shows of one run, and a light page of its own for every run of a sweep."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from urllib.parse import quote

import numpy as np

from driftwise.report.comparison import duration, operations
from driftwise.report.event_words import Outcome, changes, describe_events, outcomes_of, range_words
from driftwise.report.markup import data_uri, png, render
from driftwise.report.saved_run import COSTS, Run, Verdict, few
from driftwise.report.style import DRIFT
from driftwise.report.sweeps import Place
from driftwise.report.table import MISSING, Head, Item, Table
from driftwise.report.time_line import time_lines
from driftwise.report.vectors import axes_words, drawing, drift_in, feature_table
from driftwise.report.words import glossary, plural

MAX_VERDICTS = 100
"""Verdicts of a run that a report shows; `result.json` has them all."""
FEWEST_VERDICTS = 5
"""Verdicts for which a table is worth its heading; fewer are counted."""
LONGEST_CONFIG = 20_000
"""Letters of a configuration that are shown."""
MOST_VERDICTS = 50
"""Verdicts that the page of a run lists one by one; its table by task counts all of them."""
MOST_TASKS = 20
"""Rows and columns of the table of accuracies; of more, an image shows all and the table some."""
MOST_NOTES = 30
FILES = ("result.json", "config.json", "events.jsonl")

Changes = Mapping[int, tuple[int, ...]]
"""The tasks at which the concept of some class changes, with those classes."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The place of a run in one or more sweeps."""

    sweeps: str
    place: Place
    seeds: Sequence[tuple[int, str]]
    """seeds and pages of finished runs of its cell, itself among them"""
    count: int
    """how many finished runs its cell has"""


def build_run_page(run: Run, run_id: str, standings: Sequence[Standing]) -> str:
    """The page, made to lie two folders beside the run's own."""
    changed = changes(run)
    tasks = sorted({*range(1, run.num_tasks + 1, -(-run.num_tasks // MOST_TASKS)), run.num_tasks})
    drift = drift_in(run)
    num_noted = sum(outcome is not Outcome.QUIET for outcome in outcomes_of(run))
    return render(
        "run.html",
        id=run_id,
        address=address_of(run_id),
        folder=quote(run_id),
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
        verdicts=verdict_table(run, MOST_VERDICTS),
        time_lines=time_lines(run),
        verdicts_in_words=f"{plural(num_noted, 'verdict')} that claim drift, miss it or could not"
        " be given",
        features=None if drift is None else feature_table(drift.features),
        axes="" if drift is None else axes_words(drift.axes),
        views=[]
        if drift is None
        else [(name, drawing(view, ("before", "after"))) for name, view in drift.views],
        labels=_labels(run),
        costs=_costs(run),
        notes_left=few(run.notes, MOST_NOTES),
        versions=versions_text(run),
        config=config_text(run.config),
        files=FILES,
        sections=[
            *(("curve", "Accuracy over tasks"), ("matrix", "Accuracy on each task")),
            ("verdicts", "Verdicts"),
            *([] if drift is None else [("features", "Features that drifted")]),
            *(
                ("costs", "Labels and costs"),
                ("notes", "Notes"),
                ("configuration", "Configuration"),
            ),
        ],
        glossary=glossary(
            [run.adaptation],
            ("FAA", "forgetting", "drifted, stable", "verdict", "labels", "time, FLOPs"),
        ),
    )


def address_of(run_id: str) -> str:
    """The address of a run's page, within the folder of pages."""
    return f"{quote(run_id)}.html"


def versions_text(run: Run) -> str:
    """The versions of the software that made a run."""
    return ", ".join(f"{name} {value}" for name, value in sorted(run.versions.items()))


def config_text(config: Mapping[str, object]) -> str:
    """A configuration as a person reads it, a line per setting."""
    encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
    settings = (f"  {encode({name: config[name]})[1:-1]}" for name in sorted(config))
    text = "{\n" + ",\n".join(settings) + "\n}"
    if len(text) <= LONGEST_CONFIG:
        return text
    return f"{text[:LONGEST_CONFIG]}\n… the rest is in result.json"


# --- tables --------------------------------------------------------------------------------------


def _number(value: float | None, form: str = ".1f") -> str:
    return MISSING if value is None else format(value, form)


@lru_cache(maxsize=64)
def _heads(*titles: str) -> list[Head]:
    """Headings, the first of which names the rows."""
    return [Head(title=title, is_name=not place) for place, title in enumerate(titles)]


def _table(title: str, heads: Sequence[Head], rows: Iterable[Sequence[str]]) -> Table:
    return Table(title=title, heads=heads, rows=[[Item(text) for text in row] for row in rows])


def _summary(run: Run) -> str:
    parts = [f"{_number(run.faa)} % final average accuracy"]
    if run.forgetting is not None:
        parts.append(f"{run.forgetting:.1f} points forgotten")
    asked = run.labels.get("adaptation")
    if asked is not None:
        parts.append(f"{asked:,.0f} labels asked for by the adaptation")
    return ", ".join(filter(None, [*parts, run.not_adapted])) + "."


def _facts(run: Run, standings: Sequence[Standing]) -> list[tuple[str, str]]:
    found = run.adapted
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
        (
            "checks",
            f"{found.checks}: {found.untestable} untestable, {found.drifted} drifted, "
            f"{found.adapted} adapted",
        ),
        ("gradient steps", _number(run.gradient_steps, ",.0f")),
    ]


def _matrix(run: Run, changed: Changes, tasks: Sequence[int]) -> Table:
    """After each task, the accuracy on each; a drift is marked at the first row after it."""
    rows, before = [], 0
    shown = run.accuracy[np.ix_(*[np.subtract(tasks, 1)] * 2)].tolist()
    for task, values in zip(tasks, shown, strict=True):
        drifts = any(each in changed for each in range(before + 1, task + 1))
        kind, before = "changed" if drifts else "", task
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
        heads=_heads("on task", *map(str, tasks)),
        rows=rows,
    )


def _heat(run: Run) -> str:
    """An image of all accuracies, one pixel each: white to the blue of the table's cells."""
    share = np.clip(np.nan_to_num(run.accuracy, nan=0.0) / 100, 0, 1)[:, :, None]
    pixels = np.round(255 + share * 0.5 * (np.array([0, 114, 178]) - 255)).astype(np.uint8)
    return data_uri(png(pixels), "image/png")


def _checks(run: Run) -> Table:
    """Verdicts by task, counted by their outcome."""
    counts: dict[int, Counter[Outcome]] = {}
    for verdict, outcome in zip(run.verdicts, outcomes_of(run), strict=True):
        counts.setdefault(verdict.task, Counter())[outcome] += 1
    kinds = [kind for kind in Outcome if kind in outcomes_of(run)]
    rows = [
        [str(task), str(counted.total()), *(str(counted[kind] or "") for kind in kinds)]
        for task, counted in sorted(counts.items())
    ]
    heads = _heads("task", "checked", *(kind.value for kind in kinds))
    return _table("Verdicts by task", heads, rows)


def _labels(run: Run) -> Table:
    names = ("stream", "monitoring", "adaptation")
    rows = [(name, _number(run.labels.get(name), ",.0f")) for name in names]
    return _table("Labels", _heads("labels for", "number"), rows)


def _costs(run: Run) -> Table:
    costs = [
        (phase, run.seconds.get(phase), run.flops.get(phase)) for phase in (*COSTS, "evaluate")
    ]
    costs.append(("without evaluate", run.cost(run.seconds), run.cost(run.flops)))
    rows = [
        (
            name,
            MISSING if seconds is None else duration(seconds),
            MISSING if flops is None else operations(flops),
        )
        for name, seconds, flops in costs
    ]
    return _table("Costs", _heads("phase", "time", "FLOPs"), rows)


# --- verdicts ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fact(Head):
    """A column of the table of verdicts, shown where it is known of some verdict."""

    read: Callable[[Verdict], str]
    """empty: not known"""


def _known(value: float | None, form: str = ".2g") -> str:
    return "" if value is None else format(value, form)


NAMES = (
    Head(title="task", meaning="The check comes before the task is learned.", is_name=True),
    Head(title="class", meaning="The class that was checked.", is_name=True),
    Head(title="verdict", meaning="The detector's verdict, compared with the truth.", is_name=True),
)
FACTS = (
    Fact(
        title="kind",
        meaning="What kind of change it is, as the detector names it.",
        read=lambda v: "" if v.kind == "none" else v.kind,
    ),
    Fact(title="score", meaning="The test statistic.", read=lambda v: _known(v.score)),
    Fact(
        title="p-value",
        meaning="How often two samples of one distribution would differ as much.",
        read=lambda v: _known(v.p_value),
    ),
    Fact(
        title="p by test",
        meaning="Before the evidence of several tests was merged.",
        read=lambda v: ", ".join(f"{name} {value:.2g}" for name, value in v.p_values),
    ),
    Fact(
        title="threshold",
        meaning="Drifted exactly where the p-value is at most this (or the score above it, where"
        " max_statistic is set).",
        read=lambda v: _known(v.threshold),
    ),
    Fact(
        title="harm, counted",
        meaning="Points of accuracy lost on the class, counted by labels of monitored samples, with"
        " the standard error.",
        read=lambda v: v.harm_words,
    ),
    Fact(
        title="harm, estimated",
        meaning="The same, estimated without labels.",
        read=lambda v: _known(v.harm_unlabelled, ".1f"),
    ),
    Fact(
        title="fraction drifted",
        meaning="At least this fraction of the current samples has drifted, with its standard error.",
        read=lambda v: v.share_words,
    ),
    Fact(
        title="samples drifted",
        meaning="Current samples that more likely than not have drifted.",
        read=lambda v: "" if v.share is None else f"{v.num_drifted} of {v.num_current}",
    ),
)


def verdict_table(run: Run, most: int = MAX_VERDICTS) -> Table | None:
    """The verdicts on classes that drifted, were flagged or could not be tested; None: no such.

    Where fewer than FEWEST_VERDICTS may be shown, they are counted and the table has no rows.
    """
    outcomes = zip(run.verdicts, outcomes_of(run), strict=True)
    found = [(verdict, outcome) for verdict, outcome in outcomes if outcome is not Outcome.QUIET]
    if not found:
        return None
    if most < FEWEST_VERDICTS:
        counts = Counter(outcome for _, outcome in found)
        words = ", ".join(f"{number} {kind.value}" for kind, number in counts.items())
        return Table(heads=(), rows=(), about=[f"{words}; all verdicts are in result.json."])
    shown = found[:most]
    left_out = len(found) - len(shown)
    more = f"; {left_out} more are in result.json" if left_out else ""
    columns = [(fact, [fact.read(verdict) for verdict, _ in shown]) for fact in FACTS]
    columns = [(fact, texts) for fact, texts in columns if any(texts)]
    rows = [
        [
            Item(str(verdict.task), verdict.task),
            Item(name := run.class_names[verdict.label], name),
            Item(text := _judged(verdict, outcome), text, outcome.name.lower()),
            *(Item(texts[place] or MISSING) for _, texts in columns),
        ]
        for place, (verdict, outcome) in enumerate(shown)
    ]
    return Table(
        title="Verdicts",
        about=[
            f"Verdicts on classes that drifted, were flagged or could not be tested{more}. Of "
            f"{len(run.verdicts)} verdicts in all, {len(run.verdicts) - len(found)} found an "
            "unchanged class unchanged."
        ],
        heads=[*NAMES, *(fact for fact, _ in columns)],
        rows=rows,
    )


def _judged(verdict: Verdict, outcome: Outcome) -> str:
    words = f"{outcome.value}, spared" if verdict.spared else outcome.value
    return f"{words}: {verdict.reason}" if verdict.reason else words


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
