"""What the examples share: one stream run in three ways, a table and a figure of the outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

import driftwise
from driftwise.live import Request
from driftwise.report import style
from driftwise.report.facets import facets, to_png

WAYS = ("amr", "evenly", "vanilla")
"""labels asked for where drift is found; as many spread evenly over time; none"""
NAMES = {
    "amr": "labels where drift is found (amr)",
    "evenly": "as many labels, evenly",
    "vanilla": "no labels (vanilla)",
}


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Samples in the order in which they come."""

    images: np.ndarray
    """uint8 (samples, height, width, channels), or floats (samples, features)"""
    labels: np.ndarray
    """int64 (samples,)"""
    given: np.ndarray
    """bool (samples,): which come with their label; predictions of the others are scored"""
    parts: tuple[tuple[int, str], ...]
    """first sample and name of each part"""


@dataclass(kw_only=True)
class Outcome:
    """The outcome of one way with one seed."""

    hits: np.ndarray
    """bool (samples,): predicted right before anything was learned from the sample"""
    alarms: list[int] = field(default_factory=list)
    """samples at which classes were found drifted"""
    asked: list[tuple[int, int]] = field(default_factory=list)
    """at which sample how many labels were asked for"""
    labels: int = 0
    """labels beyond those that came with the samples"""


def run_stream(
    stream: Stream,
    way: str,
    *,
    network: str,
    seed: int,
    settings: Mapping[str, Any],
    budget: int = 0,
    batch: int = 50,
    first_steps: int = 300,
    steps: int = 2,
    override: Mapping[str, Any] | None = None,
) -> Outcome:
    """One live learner over the whole stream; between batches it rehearses its memory, whatever the way.

    `first_steps` when the first samples without a label come, `steps` after every batch from there on.
    `override`: settings of the live learner in the place of the way's own.
    """
    outcome = Outcome(hits=np.zeros(len(stream.labels), dtype=bool))
    here = 0

    def ask(request: Request) -> dict[int, int]:
        outcome.asked.append((here, len(request)))
        return {int(sample): int(stream.labels[sample]) for sample in request.ids}

    known = stream.given.copy()
    if way == "evenly":
        unknown = np.random.default_rng([seed, 1]).permutation(np.flatnonzero(~stream.given))
        known[unknown[:budget]] = True
        outcome.labels = budget
    by_drift: dict[str, Any] = {"adaptation": "vanilla", "detector": "never"}
    if way == "amr":
        by_drift = {"adaptation": "amr", "labels": ask, "label_budget": budget}
    live_learner = driftwise.LiveLearner(
        network, **{**settings, "seed": seed, "catch_up_steps": 0, **by_drift, **(override or {})}
    )
    is_live = False
    for here in range(0, len(stream.labels), batch):
        samples = slice(here, here + batch)
        if not is_live and not stream.given[samples].all():
            is_live = True
            live_learner.rehearse(first_steps)
        seen = live_learner.observe(
            stream.images[samples], np.where(known[samples], stream.labels[samples], -1)
        )
        if is_live:
            live_learner.rehearse(steps)
        outcome.hits[samples] = seen.predicted == stream.labels[samples]
        if seen.drifted:
            outcome.alarms.append(here)
    outcome.labels += sum(count for _, count in outcome.asked)
    return outcome


def run_all(
    stream_of: Any, seeds: Sequence[int], *, settings: Mapping[str, Any], budget: int, **more: Any
) -> tuple[Stream, dict[str, list[Outcome]]]:
    """All ways with all seeds; the stream of the first seed."""
    outcomes: dict[str, list[Outcome]] = {way: [] for way in WAYS}
    for seed in seeds:
        stream = stream_of(seed)
        asked = run_stream(stream, "amr", seed=seed, settings=settings, budget=budget, **more)
        outcomes["amr"].append(asked)
        for way, count in (("evenly", asked.labels), ("vanilla", 0)):
            outcomes[way].append(
                run_stream(stream, way, seed=seed, settings=settings, budget=count, **more)
            )
    return stream_of(seeds[0]), outcomes


def table(stream: Stream, outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """Accuracy in percent by part, of samples without a label, and labels; means over seeds."""
    scored = scored_parts(stream)
    width = max(map(len, NAMES.values()))
    columns = [*(name for name, _ in scored), "all", "± sd", "labels"]
    lines = [" " * width + "".join(f"{name:>12}" for name in columns)]
    rest = np.flatnonzero(~stream.given)
    for way, runs in outcomes.items():
        means = [np.mean([100 * run.hits[samples].mean() for run in runs]) for _, samples in scored]
        totals = [100 * run.hits[rest].mean() for run in runs]
        numbers = [
            *means,
            float(np.mean(totals)),
            float(np.std(totals, ddof=min(1, len(runs) - 1))),
        ]
        count = round(float(np.mean([run.labels for run in runs])))
        lines.append(
            f"{NAMES[way]:{width}}" + "".join(f"{x:12.1f}" for x in numbers) + f"{count:12,}"
        )
    return "\n".join(lines)


def draw(
    stream: Stream, outcomes: Mapping[str, Sequence[Outcome]], file: Path, *, title: str, over: int
) -> None:
    """Accuracy over the last `over` samples, alarms, and labels asked for, as one PNG."""
    with matplotlib.rc_context(style.RC):
        grid = facets(2, (7.8, 2.1), columns=1)
        upper, lower = grid.panels
        _draw_accuracy(upper, outcomes, over)
        _draw_asked(lower, outcomes["amr"])
        starts, names = zip(*stream.parts, strict=True)
        for axes in (upper, lower):
            axes.set_xlim(0, len(stream.labels))
            axes.set_xticks(starts, names if axes is lower else [""] * len(names), ha="left")
            axes.grid()
            for begin, end in _labelled_parts(stream):
                axes.axvspan(begin, end, color=style.FAINT, alpha=0.5, linewidth=0, zorder=0)
        lower.text(
            0.005,
            0.88,
            "all labelled",
            transform=lower.transAxes,
            fontsize=6.5,
            color=style.MUTED,
        )
        grid.add_legend(upper.get_legend_handles_labels()[0], title)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(to_png(grid.figure))


def _draw_accuracy(axes: Axes, outcomes: Mapping[str, Sequence[Outcome]], over: int) -> None:
    """A line per way, mean over seeds, from the least seed to the best; alarms below."""
    styles = style.styles_of(WAYS)
    for way in reversed(WAYS):
        curves = 100 * np.stack([smooth(run.hits, over) for run in outcomes[way]])
        across, line = np.arange(curves.shape[1]), styles[way]
        options = {**line.line_options(), "marker": "", "linewidth": 1.5, "label": NAMES[way]}
        axes.plot(across, curves.mean(axis=0), **options)
        if len(curves) > 1:
            low, high = curves.min(axis=0), curves.max(axis=0)
            axes.fill_between(across, low, high, color=line.colour, alpha=0.12, linewidth=0)
    axes.set_ylim(-6 - 4 * len(outcomes["amr"]), 102)
    axes.set_yticks(range(0, 101, 20))
    for number, run in enumerate(outcomes["amr"]):
        height = np.full(len(run.alarms), -6.0 - 4 * number)
        label = "drift found (a line per seed)" if number == 0 else None
        axes.scatter(run.alarms, height, marker="^", s=12, color=style.DRIFT, label=label)
    axes.set_ylabel(f"accuracy over\n{over} samples, %")


def _draw_asked(axes: Axes, runs: Sequence[Outcome]) -> None:
    """Labels asked for so far, a line per seed."""
    for run in runs:
        samples = [0, *(sample for sample, _ in run.asked), len(run.hits)]
        so_far = np.cumsum([0, *(count for _, count in run.asked), 0])
        axes.step(samples, so_far, where="post", color=style.styles_of(WAYS)["amr"].colour, lw=1.1)
    axes.set_ylabel("labels asked for\n(a line per seed)")
    axes.set_ylim(bottom=0)


def smooth(hits: np.ndarray, over: int) -> np.ndarray:
    """Mean over the last samples, as many as there are at first."""
    total = np.concatenate([[0], np.cumsum(hits)])
    last = np.arange(1, len(total))
    first = np.maximum(0, last - over)
    means: np.ndarray = (total[last] - total[first]) / (last - first)
    return means


def _labelled_parts(stream: Stream) -> list[tuple[int, int]]:
    """First and last sample of parts in which all samples come with their labels."""
    bounds = [*(start for start, _ in stream.parts), len(stream.labels)]
    return [(a, b) for a, b in pairwise(bounds) if stream.given[a:b].all()]


def scored_parts(stream: Stream) -> list[tuple[str, np.ndarray]]:
    """Name and scored samples of each part that has any."""
    ends = [*(start for start, _ in stream.parts[1:]), len(stream.labels)]
    found = []
    for (start, name), end in zip(stream.parts, ends, strict=True):
        samples = start + np.flatnonzero(~stream.given[start:end])
        if len(samples):
            found.append((name, samples))
    return found
