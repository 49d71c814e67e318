"""Figures of the measured theorems, from what `theory.json` holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from driftwise.report import style
from driftwise.report.facets import Drawing, RenderedFigure, draw_band, facets, render, short
from driftwise.report.saved_run import Floats

Measured = Mapping[str, Any]
"""What `measure_theory` returned, or was read back from its JSON."""

_FORMULA, _MEASURED, _CONTROL = style.INK, "#0072B2", "#009E73"


def draw_theory(measured: Measured) -> tuple[RenderedFigure, ...]:
    """Every figure of the measured theorems."""
    with matplotlib.rc_context(style.RC):
        return tuple(render(kind, each) for kind, each in theory_drawings(measured).items())


def theory_drawings(measured: Measured) -> dict[str, Drawing]:
    """The same, before they are rendered."""
    return {kind: draw(measured) for kind, draw in _DRAWERS.items()}


def cosines(measured: Measured) -> Drawing:
    """Theorem 1: per drifted class, the cosine between its old and its new gradient."""
    classes = measured["event"]["classes"]
    names = [short(str(measured["event"]["class_names"][label]), 12) for label in classes]
    last = _last_step(measured)
    moments = [
        ("at the event", "vanilla", 0),
        (f"after {last} steps, vanilla", "vanilla", last),
        (f"after {last} steps, amr", "amr", last),
    ]
    grid = facets(3, (2.8, 2.9))
    lowest = min([0.0, *(m["cosine"] for m in measured["moments"] if m["cosine"] is not None)])
    words = []
    for panel, (title, branch, step) in zip(grid.panels, moments, strict=True):
        for key, shift, colour, marker, label in (
            ("cosine", -0.13, style.DRIFT, "o", "old against new concept"),
            (
                "same_look_cosine",
                0.13,
                _CONTROL,
                "s",
                "old concept twice, other samples (no drift)",
            ),
        ):
            found = [_values(measured, branch, step, key, label=each) for each in classes]
            _dots(panel, found, shift, color=colour, marker=marker, label=label)
            everything = np.concatenate(found)
            if len(everything):
                words.append(f"{title}, {label}: mean {everything.mean():.2f}")
        panel.axhline(0, color=style.MUTED, linewidth=0.8)
        panel.set_title(title, loc="left")
        panel.set_xticks(range(len(classes)), names)
        panel.tick_params(axis="x", labelrotation=20 if max(map(len, names)) > 4 else 0)
        panel.set(xlim=(-0.5, len(classes) - 0.5), ylim=(lowest - 0.1, 1.05))
        panel.grid(axis="y")
    grid.label("drifted class", "cosine of the gradients")
    grid.add_legend(grid.panels[0].get_legend_handles_labels()[0])
    return Drawing(
        figure=grid.figure,
        title="Gradients of drifted classes",
        caption="Cosine between the gradients of the mean loss on a drifted class in its old and "
        "its new concept, on held-out samples. A faint mark per seed, mean and sample standard "
        "deviation beside it. The control shows how far from 1 the choice of samples alone takes "
        "it.",
        alt="Dot chart of gradient cosines per class; " + "; ".join(words) + ".",
    )


def efficiencies(measured: Measured) -> Drawing:
    """Theorems 3 and 4: alignment efficiency against the fraction of realigned samples."""
    shares = measured["shares"]
    last = _last_step(measured)
    settings = [
        (f"{when}: {what}", step, keys)
        for when, step in (("at the event", 0), (f"{last} steps on", last))
        for what, keys in (
            ("stream and buffer", ("formula", "measured")),
            ("buffer alone", ("mixture_formula", "mixture")),
        )
    ]
    grid = facets(4, (3.5, 2.5), columns=2)
    words = []
    for panel, (title, step, keys) in zip(grid.panels, settings, strict=True):
        for key, colour, line, marker, label in (
            (keys[0], _FORMULA, "--", None, "formula, gradients of held-out samples"),
            (keys[1], _MEASURED, "-", "o", "measured, samples of the buffer really realigned"),
        ):
            curves = _curves(measured, "amr", step, key)
            means = curves.mean(axis=0)
            options = {"linestyle": line, "marker": marker, "markersize": 4, "linewidth": 1.7}
            draw_band(panel, shares, means, _deviation(curves), colour, label=label, **options)
            words.append(f"{title}, {key}: {means[0]:.2f} at 0, {means[-1]:.2f} at 1")
        panel.set_title(title, loc="left")
        panel.set(xlim=(-0.02, 1.02), ylim=(-0.03, 1.05), xticks=np.linspace(0, 1, 6))
        panel.grid()
    grid.label("fraction of realigned samples", "alignment efficiency")
    grid.add_legend(grid.panels[0].get_legend_handles_labels()[0])
    return Drawing(
        figure=grid.figure,
        title="Alignment efficiency",
        caption="Cosine between the gradient of the class's samples and the gradient of its new "
        "concept on held-out samples, at the event and when the network has learned from the "
        "realigned buffer. Left as in the paper, where the stream brings the new concept too; "
        "right what realignment trains on. Means over the drifted classes, bands: one sample "
        "standard deviation over seeds.",
        alt="Line charts of alignment efficiency against the fraction of realigned samples; "
        + "; ".join(words)
        + ".",
    )


def replacement(measured: Measured) -> Drawing:
    """Theorem 2: how soon a buffer by itself loses the stale samples of a drifted class."""
    law = measured["reservoir"]
    samples = np.array(law["rows"])
    grid = facets(2, (4.2, 3.1))
    one, every = grid.panels
    one.plot(samples, law["paper"], color=style.DRIFT, linestyle="--", label="paper: 1/|M| each")
    one.plot(samples, law["exact"], color=_FORMULA, label="exact: 1/n, n samples seen")
    for policy, colour, marker in (("reservoir", _MEASURED, "o"), ("balanced", _CONTROL, "^")):
        found = law["simulated"][policy]
        bars = 2 * _numbers(found["error"])
        dots: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": ""}
        label = f"simulated, {policy} buffer"
        one.errorbar(samples, found["replaced"], bars, markersize=4, label=label, **dots)
    if seen := _lost_in_runs(measured):
        policy = measured["config"]["buffer_policy"]
        one.plot(*zip(*seen, strict=True), "x", color=style.INK, label=f"in the runs ({policy})")
    one.set(ylim=(-0.02, 1.04), ylabel="chance of being replaced", title="one stale sample")
    for key, colour, line in (("paper_all", style.DRIFT, "--"), ("exact_all", _FORMULA, "-")):
        chances = _numbers(law[key])
        possible = chances > 0
        every.plot(samples[possible], chances[possible], color=colour, linestyle=line)
    every.set(yscale="log", ylim=(1e-40, 10), title=f"all {law['stale']} stale samples of a class")
    every.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}" if value < 1 else "1")
    for panel in grid.panels:
        panel.set(xscale="log", xlim=(0.8, 1.3 * samples[-1]))
        panel.set_xlabel("samples offered since the drift")
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        panel.grid()
        panel.axvline(law["event_rows"], color=style.MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
    grid.add_legend(one.get_legend_handles_labels()[0])
    at = int(np.searchsorted(samples, law["event_rows"]).clip(0, len(samples) - 1))
    return Drawing(
        figure=grid.figure,
        title="Stale samples in a reservoir",
        caption=f"Chance that samples of a drifted class leave a buffer of {law['capacity']} by "
        f"themselves, {law['seen']} samples having been seen before the drift. Left one sample, "
        f"right all of one class. Simulated: {law['repeats']} buffers, bars: two standard errors. "
        "Dotted: the end of the event's task. The paper's second formula ends at |M| samples.",
        alt=f"Line charts of replacement chances; around the end of the event's task, after "
        f"{samples[at]} samples: paper {law['paper'][at]:.2f}, exact {law['exact'][at]:.2f}, "
        f"simulated {law['simulated']['reservoir']['replaced'][at]:.2f} (reservoir) and "
        f"{law['simulated']['balanced']['replaced'][at]:.2f} (balanced).",
    )


_DRAWERS: Mapping[str, Callable[[Measured], Drawing]] = {
    "cosine": cosines,
    "efficiency": efficiencies,
    "replacement": replacement,
}


def _last_step(measured: Measured) -> int:
    return max(int(moment["step"]) for moment in measured["moments"])


def _moments(measured: Measured, branch: str, step: int) -> Iterable[Mapping[str, Any]]:
    return (m for m in measured["moments"] if m["adaptation"] == branch and m["step"] == step)


def _values(measured: Measured, branch: str, step: int, key: str, *, label: int) -> Floats:
    """One number per seed in which it is known."""
    found = (m[key] for m in _moments(measured, branch, step) if m["class"] == label)
    return _numbers([value for value in found if value is not None])


def _curves(measured: Measured, branch: str, step: int, key: str) -> Floats:
    """One curve per seed, the mean over its classes, (seeds, shares)."""
    by_seed: dict[int, list[Floats]] = {}
    for moment in _moments(measured, branch, step):
        if moment[key] is not None:
            by_seed.setdefault(moment["seed"], []).append(_numbers(moment[key]))
    if not by_seed:
        return np.full((1, len(measured["shares"])), np.nan)
    return np.stack([np.mean(curves, axis=0) for curves in by_seed.values()])


def _lost_in_runs(measured: Measured) -> list[tuple[float, float]]:
    """Samples offered and fraction of stale samples lost, per seed and moment of vanilla."""
    books: dict[tuple[int, int], tuple[int, int]] = {}
    for moment in measured["moments"]:
        if moment["adaptation"] == "vanilla" and moment["offered"]:
            key = (moment["seed"], moment["offered"])
            stale, left = books.get(key, (0, 0))
            books[key] = (stale + moment["num_stale"], left + moment["stale_left"])
    return [
        (float(offered), 1 - left / stale)
        for (_, offered), (stale, left) in sorted(books.items())
        if stale
    ]


def _dots(panel: Axes, found: Sequence[Floats], shift: float, *, label: str, **marker: Any) -> None:
    """Per class a faint mark for each seed, and beside them mean and spread."""
    for place, values in enumerate(found):
        if len(values):
            at = np.full(len(values), place + shift)
            panel.plot(at, values, linestyle="", alpha=0.3, markersize=4, **marker)
            bar = {"markersize": 5, "elinewidth": 1.2, "linestyle": "", **marker}
            name = label if place == 0 else None
            panel.errorbar(
                place + 1.75 * shift, values.mean(), _deviation(values), label=name, **bar
            )


def _deviation(values: Floats) -> Floats:
    """Sample standard deviation over the first axis; 0 where there is but one."""
    spread: Floats = np.asarray(values.std(axis=0, ddof=1 if len(values) > 1 else 0))
    return spread


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
