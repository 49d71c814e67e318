"""A light page about one run, quick enough to be made for every run of a sweep."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from string import Template
from typing import Any
from urllib.parse import quote

import numpy as np

from driftwise.report.columns import MISSING, compact
from driftwise.report.events import Outcome, changes, describe_events, outcomes_of
from driftwise.report.index.curve_svg import Changes, accuracy_curve
from driftwise.report.markup import common_style, png, template, text
from driftwise.report.read import few
from driftwise.report.run import Run, clean
from driftwise.report.sweeps import Place
from driftwise.report.words import plural

MOST_VERDICTS = 50
"""Verdicts that are told one by one; the table by task counts all of them."""
MOST_TASKS = 20
"""Rows and columns of the table of accuracies; of more, an image shows all and the table some."""
MOST_NOTES = 30
LONGEST_CONFIG = 20_000
"""Letters of a configuration that are shown."""

RAW = ("result.json", "config.json", "events.jsonl")
PHASES = ("train", "detect", "adapt", "evaluate")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a run stands in one or more sweeps."""

    sweeps: Sequence[str]
    place: Place
    seeds: Sequence[tuple[int, str]]
    """seeds and ids of finished runs of its cell, itself among them"""
    count: int
    """how many finished runs its cell has"""


def build_run_page(run: Run, run_id: str, standings: Sequence[Standing]) -> str:
    """The page, made to lie two folders beside the run's own."""
    changed = changes(run)
    title = f"{run.benchmark}, {run.method}, {run.adaptation}, seed {run.seed}"
    return _frame().substitute(
        style=common_style(),
        title=text(title),
        summary=text(_summary(run)),
        warnings=_list("warnings", few(run.warnings, MOST_NOTES)),
        facts=_facts(run, run_id, standings),
        curve=accuracy_curve(run, changed),
        events=text(describe_events(run)),
        matrix=_matrix(run, changed),
        verdicts=_verdicts(run),
        costs=_costs(run),
        notes=_list("facts", few(run.notes, MOST_NOTES)) or "<p>The run left no notes.</p>",
        versions=text(", ".join(f"{name} {value}" for name, value in sorted(run.versions.items()))),
        config=_config(run.config),
        raw=" · ".join(f'<a href="../runs/{quote(run_id)}/{name}">{name}</a>' for name in RAW),
    )


@cache
def _frame() -> Template:
    return Template(template("index/run.html"))


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


def _facts(run: Run, run_id: str, standings: Sequence[Standing]) -> str:
    facts = [
        ("detector", text(run.detector)),
        ("buffer", _buffer(run, standings)),
        ("drift events", str(len(run.events))),
        ("tasks", f"{run.num_tasks}, {len(run.class_names)} classes"),
        ("FAA of drifted classes", _number(run.faa_drifted)),
        ("FAA of stable classes", _number(run.faa_stable)),
        ("backward transfer", _number(run.backward_transfer)),
        ("checks", _checks(run)),
        ("gradient steps", _number(run.gradient_steps, ",.0f")),
        ("run", f"<code>{text(run_id)}</code>"),
    ]
    for standing in standings:
        names = ", ".join(map(text, standing.sweeps))
        facts.append((f"seeds in {names}", _seeds(run_id, standing)))
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f'<dl class="tiles">{items}</dl>'


def _checks(run: Run) -> str:
    found = run.adapted
    return (
        f"{found.checks}: {found.untestable} untestable, {found.drifted} drifted, "
        f"{found.adapted} adapted"
    )


def _buffer(run: Run, standings: Sequence[Standing]) -> str:
    real = "none" if run.buffer_size is None else str(run.buffer_size)
    named = {text(each.place["buffer_size"]) for each in standings if "buffer_size" in each.place}
    other = sorted(named - {real})
    return f"{real} (stands for {', '.join(other)})" if other else real


def _seeds(run_id: str, standing: Standing) -> str:
    words = [
        f"<b>{seed}</b>"
        if other == run_id
        else f'<a class="kept" href="{quote(other)}.html">{seed}</a>'
        for seed, other in standing.seeds
    ]
    return " ".join(words) + (f" of {standing.count}" if len(words) < standing.count else "")


def _matrix(run: Run, changed: Changes) -> str:
    """After each task, the accuracy on each; a drift stands before the row that meets it first."""
    tasks = sorted({*range(1, run.num_tasks + 1, -(-run.num_tasks // MOST_TASKS)), run.num_tasks})
    head = "".join(f'<th scope="col">{task}' for task in tasks)
    rows = []
    before = 0
    for task in tasks:
        drifts = any(each in changed for each in range(before + 1, task + 1))
        mark = ' <span class="mark">drift</span>' if drifts else ""
        cells = "".join(_shade(run.accuracy[task - 1, column - 1]) for column in tasks)
        kind = " class=changed" if drifts else ""
        rows.append(f"<tr{kind}><th scope=row>after {task}{mark}{cells}")
        before = task
    table = _table(f'<th scope="col">on task{head}', rows, "Accuracy on each task", kind="matrix")
    return table if len(tasks) == run.num_tasks else _heat(run) + table


def _shade(percent: float) -> str:
    if math.isnan(percent):
        return "<td>"
    share = min(max(percent / 100, 0.0), 1.0)
    return f"<td style=--share:{share:.2f}>{percent:.1f}"


def _heat(run: Run) -> str:
    """An image of all accuracies: a pixel for each."""
    # From white to the blue of the table's cells.
    share = np.clip(np.nan_to_num(run.accuracy, nan=0.0) / 100, 0, 1)[:, :, None]
    pixels = np.round(255 + share * 0.5 * (np.array([0, 114, 178]) - 255)).astype(np.uint8)
    address = base64.b64encode(png(pixels)).decode()
    words = f"Accuracy after each of {run.num_tasks} tasks (down) on each task (across)"
    return (
        f'<img class="heat" alt="{words}" src="data:image/png;base64,{address}">'
        f'<p class="note">{words}, the darker the better; below, some of them as numbers.</p>'
    )


def _verdicts(run: Run) -> str:
    if not run.verdicts:
        return "<p>Nothing was checked for drift in this run.</p>"
    outcomes = outcomes_of(run)
    checks = Counter(verdict.task for verdict in run.verdicts)
    counts = Counter(
        (verdict.task, outcome) for verdict, outcome in zip(run.verdicts, outcomes, strict=True)
    )
    kinds = [kind for kind in Outcome if kind in outcomes]
    head = "".join(f'<th scope="col">{text(kind.value)}</th>' for kind in kinds)
    rows = [
        f"<tr><th scope=row>{task}<td>{checked}"
        + "".join(f"<td>{counts[task, kind] or ''}" for kind in kinds)
        for task, checked in sorted(checks.items())
    ]
    start = '<th scope="col">task</th><th scope="col">checked</th>'
    kind = "tall" if len(rows) > MOST_TASKS else ""
    table = _table(start + head, rows, "Verdicts by task", kind=kind)
    return table + _told_one_by_one(run, outcomes)


def _told_one_by_one(run: Run, outcomes: Sequence[Outcome]) -> str:
    telling = [
        (verdict, outcome)
        for verdict, outcome in zip(run.verdicts, outcomes, strict=True)
        if outcome is not Outcome.QUIET
    ]
    if not telling:
        return ""
    rows = [
        f"<tr class={outcome.name.lower()}><td>{verdict.task}"
        f"<td>{text(run.class_names[verdict.label])}<td>{text(outcome.value)}"
        f"<td>{_number(verdict.p_value, '.2g')}<td>{_number(verdict.score, '.3g')}"
        for verdict, outcome in telling[:MOST_VERDICTS]
    ]
    head = (
        '<th scope="col">task</th><th scope="col" class="name">class</th>'
        '<th scope="col" class="name">verdict</th><th scope="col">p-value</th>'
        '<th scope="col">score</th>'
    )
    left = len(telling) - len(rows)
    more = f'<p class="note">{left} more stand in result.json.</p>' if left else ""
    summary = f"{plural(len(telling), 'verdict')} that claim drift, miss it or could not be given"
    table = _table(head, rows, "Verdicts one by one", kind="told")
    return f"<details><summary>{summary}</summary>{table}{more}</details>"


def _costs(run: Run) -> str:
    labels = [(name, run.labels.get(name)) for name in ("stream", "monitoring", "adaptation")]
    asked = "".join(
        f'<tr><th scope="row">{name}</th><td>{_number(value, ",.0f")}</td></tr>'
        for name, value in labels
    )
    rows = [
        f'<tr><th scope="row">{phase}</th><td>{_scaled(run.seconds.get(phase), 1)}</td>'
        f"<td>{_scaled(run.flops.get(phase), 1e9)}</td></tr>"
        for phase in PHASES
    ]
    rows.append(
        '<tr class="total"><th scope="row">without evaluate</th>'
        f"<td>{_scaled(run.cost(run.seconds), 1)}</td>"
        f"<td>{_scaled(run.cost(run.flops), 1e9)}</td></tr>"
    )
    head = '<th scope="col">phase</th><th scope="col">seconds</th><th scope="col">GFLOPs</th>'
    start = '<th scope="col">labels for</th><th scope="col">number</th>'
    return (
        f'<div class="pair">{_table(start, [asked], "Labels")}{_table(head, rows, "Costs")}</div>'
    )


def _config(config: Mapping[str, Any]) -> str:
    told = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    shown = told[:LONGEST_CONFIG]
    lines = [shown] if shown.replace("\n", "").isprintable() else map(clean, shown.split("\n"))
    more = "" if shown == told else "\n… the rest stands in config.json"
    return escape("\n".join(lines) + more)


def _table(head: str, rows: Sequence[str], label: str, *, kind: str = "") -> str:
    return (
        f'<div class="scroll {kind}" tabindex="0" role="region" aria-label="{label}"><table><thead>'
        f"<tr>{head}</tr></thead><tbody>\n" + "\n".join(rows) + "\n</tbody></table></div>"
    )


def _list(kind: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f'<ul class="{kind}">{items}</ul>' if lines else ""


def _number(value: float | None, form: str = ".1f") -> str:
    return MISSING if value is None else format(value, form)


def _scaled(value: float | None, unit: float) -> str:
    if value is None:
        return MISSING
    amount = value / unit
    return f"{amount:,.0f}" if amount >= 100 else compact(amount)
