"""Accuracy over tasks as a few lines of SVG, for pages of which there are hundreds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from driftwise.report.events import range_words
from driftwise.report.markup import text
from driftwise.report.run import Run
from driftwise.report.style import DRIFT

WIDTH, HEIGHT = 720, 264
LEFT, RIGHT, TOP, BOTTOM = 40, 14, 24, 40
"""Room for words and ticks around the lines."""

MOST_MARKERS = 40
"""Tasks along a line that carry a marker."""

LETTER = 7.0
"""How wide a letter above the lines may be."""

LOOKS = {
    "all tasks seen": ("#0072B2", "", "circle"),
    "classes that drift": (DRIFT, "7 3", "square"),
    "classes that never drift": ("#009E73", "2 3", "triangle"),
}
"""Colour, dashes and marker of a line, each of which tells it alone."""

Line = Sequence[float | None]
"""A mean per task; None: nothing to take it over."""


Changes = Mapping[int, tuple[int, ...]]
"""The tasks at which some class looks otherwise than the task before, with those classes."""


def accuracy_curve(run: Run, changed: Changes) -> str:
    """An SVG and its legend: means after each task, and dashed lines where classes change."""
    drifting = {label for labels in changed.values() for label in labels}
    told = _lines(run, drifting).items()
    lines = {name: line for name, line in told if any(value is not None for value in line)}
    ends = "; ".join(f"{name} {_words(line[-1])}" for name, line in lines.items())
    label = f"Mean accuracy in percent after each of {run.num_tasks} tasks; at the end: {ends}"
    parts = [*_axes(run), *_changes(run, changed), *(_drawn(run, *each) for each in lines.items())]
    legend = "".join(
        f'<span><svg width="34" height="12" aria-hidden="true"><line x1="0" y1="6" x2="34" y2="6" '
        f"{_stroke(name)}/>{_marker(name, 17, 6)}</svg> {name}: {_words(line[-1])}</span>"
        for name, line in lines.items()
    )
    return (
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(label)}">'
        f'{"".join(parts)}</svg><p class="legend">{legend}</p>'
    )


def _lines(run: Run, drifting: Collection[int]) -> dict[str, Line]:
    known = [None if math.isnan(value) else float(value) for value in run.mean_accuracy]
    if not drifting:
        return dict(zip(LOOKS, [known], strict=False))
    after = run.per_class[: run.num_tasks]
    moved = [_mean(v for label, v in each.items() if label in drifting) for each in after]
    still = [_mean(v for label, v in each.items() if label not in drifting) for each in after]
    return dict(zip(LOOKS, [known, moved, still], strict=True))


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None


def _words(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"


def _x(run: Run, task: float) -> float:
    return LEFT + (task - 0.5) * (WIDTH - LEFT - RIGHT) / run.num_tasks


def _y(percent: float) -> float:
    return HEIGHT - BOTTOM - percent / 100 * (HEIGHT - TOP - BOTTOM)


def _axes(run: Run) -> list[str]:
    levels = [
        f'<line class="grid" x1="{LEFT}" y1="{_y(level):.1f}" x2="{WIDTH - RIGHT}" '
        f'y2="{_y(level):.1f}"/><text class="end" x="{LEFT - 6}" y="{_y(level) + 4:.1f}">{level}'
        "</text>"
        for level in (0, 25, 50, 75, 100)
    ]
    ticks = range(1, run.num_tasks + 1, math.ceil(run.num_tasks / 20))
    tasks = [f'<text x="{_x(run, t):.1f}" y="{HEIGHT - 22}">{t}</text>' for t in ticks]
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*levels, *tasks, f'<text x="{middle:.0f}" y="{HEIGHT - 5}">after task</text>']


def _changes(run: Run, changed: Changes) -> list[str]:
    """A line before each task at which classes look otherwise than before, with words that fit."""
    words = [f"drift: {range_words(labels)}" for labels in changed.values()]
    gap = min((late - early for early, late in pairwise(changed)), default=run.num_tasks)
    room = gap * (WIDTH - LEFT - RIGHT) / run.num_tasks
    if any(len(each) * LETTER > room for each in words):
        words = ["drift" if len("drift") * LETTER <= room else ""] * len(changed)
    parts = []
    for task, told in zip(changed, words, strict=True):
        at = _x(run, task - 0.5)
        half = len(told) * LETTER / 2
        middle = min(max(at, half), WIDTH - half)
        parts.append(
            f'<line class="drift" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}"/>'
            f'<text class="drift" x="{middle:.1f}" y="{TOP - 8}">{told}</text>'
        )
    return parts


def _drawn(run: Run, name: str, line: Line) -> str:
    points = [
        (_x(run, task), _y(value)) if value is not None else None
        for task, value in enumerate(line, start=1)
    ]
    # A value that is not known leaves a gap.
    steps = "".join(
        "" if point is None else f"{'M' if before is None else 'L'}{point[0]:.1f} {point[1]:.1f}"
        for before, point in pairwise([None, *points])
    )
    every = -(-run.num_tasks // MOST_MARKERS)
    markers = "".join(_marker(name, *point) for point in points[::every] if point is not None)
    return f'<path d="{steps}" fill="none" {_stroke(name)}/>{markers}'


def _stroke(name: str) -> str:
    colour, dashes, _ = LOOKS[name]
    return f'stroke="{colour}" stroke-width="2"' + (
        f' stroke-dasharray="{dashes}"' if dashes else ""
    )


def _marker(name: str, x: float, y: float) -> str:
    colour, _, shape = LOOKS[name]
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="{colour}"/>'
    if shape == "square":
        return f'<path d="M{x - 3.2:.1f} {y - 3.2:.1f}h6.4v6.4h-6.4z" fill="{colour}"/>'
    return f'<path d="M{x:.1f} {y - 4.4:.1f}l4.2 7.4h-8.4z" fill="{colour}"/>'
