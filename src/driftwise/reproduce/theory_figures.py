"""Figures of the measured theorems, from what `theory.json` holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from driftwise.report import style
from driftwise.report.canvas import Drawing, Margins, panels, short
from driftwise.report.figures import Picture, image_of
from driftwise.report.run import Floats

Measured = Mapping[str, Any]
"""What `measure_theory` returned, or was read back from its JSON."""

_FORMULA, _TAKEN = style.INK, "#0072B2"
_CONTROL = "#009E73"


def draw_theory(measured: Measured) -> tuple[Picture, ...]:
    """Every figure of the measured theorems."""
    with matplotlib.rc_context(style.RC):
        return tuple(image_of(kind, draw(measured)) for kind, draw in _DRAWERS.items())


def cosines(measured: Measured) -> Drawing:
    """Theorem 1: per drifted class, the cosine between its old and its new gradient."""
    classes = measured["event"]["classes"]
    names = [measured["event"]["class_names"][label] for label in classes]
    last = _last_step(measured)
    moments = [
        ("at the event", "vanilla", 0),
        (f"after {last} steps, vanilla", "vanilla", last),
        (f"after {last} steps, amr", "amr", last),
    ]
    figure, axes = panels(3, 2.6, 2.5, Margins(left=0.65, bottom=0.9, top=0.4))
    everywhere = (m["cosine"] for m in measured["moments"] if m["cosine"] is not None)
    lowest = min([0.0, *everywhere])
    words = []
    for index, (panel, (title, branch, step)) in enumerate(zip(axes, moments, strict=True)):
        for key, shift, colour, marker, label in (
            ("cosine", -0.13, style.DRIFT, "o", "old look against new look"),
            ("same_look_cosine", 0.13, _CONTROL, "s", "old look twice, other rows (no drift)"),
        ):
            found = [_values(measured, branch, step, key, label=each) for each in classes]
            _dots(panel, found, shift, colour, marker, label)
            everything = np.concatenate(found)
            if len(everything):
                words.append(f"{title}, {label}: mean {everything.mean():.2f}")
        panel.axhline(0, color=style.MUTED, linewidth=0.8)
        panel.set_title(title, loc="left")
        panel.set_xticks(range(len(classes)), [short(str(name), 12) for name in names])
        if max(len(str(name)) for name in names) > 4:
            panel.tick_params(axis="x", labelrotation=20)
        panel.set(xlim=(-0.5, len(classes) - 0.5), ylim=(lowest - 0.1, 1.05))
        panel.set_xlabel("drifted class")
        panel.grid(axis="y")
        if index:
            panel.tick_params(labelleft=False)
    axes[0].set_ylabel("cosine of the gradients")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower left", ncols=2)
    return Drawing(
        figure=figure,
        title="Gradients of drifted classes",
        caption="Cosine between the gradients of the mean loss on a drifted class in its old and "
        "its new look, on rows nobody trained on. A faint mark per seed, mean and sample standard "
        "deviation beside it. The control says how far from 1 the choice of rows alone takes it.",
        alt="Dot chart of gradient cosines per class; " + "; ".join(words) + ".",
    )


def efficiencies(measured: Measured) -> Drawing:
    """Theorems 3 and 4: alignment efficiency against the share of rewritten rows."""
    shares = np.array(measured["shares"])
    last = _last_step(measured)
    figure, axes = panels(
        4, 3.3, 2.2, Margins(left=0.7, bottom=0.95, top=0.4, row_gap=0.6), columns=2
    )
    settings = [
        (f"{when}: {what}", branch, step, keys)
        for when, branch, step in (
            ("at the event", "amr", 0),
            (f"{last} steps on", "amr", last),
        )
        for what, keys in (
            ("stream and memory", ("formula", "measured")),
            ("memory alone", ("mixture_formula", "mixture")),
        )
    ]
    words = []
    for index, (panel, (title, branch, step, keys)) in enumerate(zip(axes, settings, strict=True)):
        for key, colour, line, marker, label in (
            (keys[0], _FORMULA, "--", None, "formula, gradients of unseen rows"),
            (keys[1], _TAKEN, "-", "o", "measured, rows of the memory really rewritten"),
        ):
            curves = _curves(measured, branch, step, key)
            means, spread = curves.mean(axis=0), _deviation(curves)
            panel.plot(
                shares,
                means,
                color=colour,
                linestyle=line,
                marker=marker,
                markersize=4,
                linewidth=1.7,
                label=label,
            )
            panel.fill_between(
                shares, means - spread, means + spread, color=colour, alpha=0.13, linewidth=0
            )
            words.append(f"{title}, {key}: {means[0]:.2f} at 0, {means[-1]:.2f} at 1")
        panel.set_title(title, loc="left")
        panel.set(xlim=(-0.02, 1.02), ylim=(-0.03, 1.05), xticks=np.linspace(0, 1, 6))
        panel.grid()
        if index % 2:
            panel.tick_params(labelleft=False)
        else:
            panel.set_ylabel("alignment efficiency")
        if index >= 2:
            panel.set_xlabel("share of rewritten rows")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower left", ncols=2)
    return Drawing(
        figure=figure,
        title="Alignment efficiency",
        caption="Cosine between what the class's rows pull at and the gradient of its new look on "
        "unseen rows, at the event and when the network has learned from the realigned memory. "
        "Left as in the paper, where the stream brings the new look too; right what realignment "
        "trains on. Means over the drifted classes, bands: one sample standard deviation over "
        "seeds.",
        alt="Line charts of alignment efficiency against the share of rewritten rows; "
        + "; ".join(words)
        + ".",
    )


def replacement(measured: Measured) -> Drawing:
    """Theorem 2: how soon a memory by itself loses the stale rows of a drifted class."""
    law = measured["reservoir"]
    rows = np.array(law["rows"])
    figure, (one, every) = panels(
        2, 3.7, 2.6, Margins(left=0.65, bottom=1.1, top=0.4, column_gap=0.85), columns=2
    )
    one.plot(rows, law["paper"], color=style.DRIFT, linestyle="--", label="paper: 1/|M| a row")
    one.plot(rows, law["exact"], color=_FORMULA, label="exact: 1/n, n rows seen")
    for policy, colour, marker in (("reservoir", _TAKEN, "o"), ("balanced", _CONTROL, "^")):
        found = law["simulated"][policy]
        one.errorbar(
            rows,
            found["replaced"],
            yerr=2 * _numbers(found["error"]),
            color=colour,
            marker=marker,
            markersize=4,
            linestyle="",
            elinewidth=0.9,
            label=f"simulated, {policy} memory",
        )
    seen = _lost_in_runs(measured)
    if seen:
        policy = measured["config"]["buffer_policy"]
        one.plot(*zip(*seen, strict=True), "x", color=style.INK, label=f"in the runs ({policy})")
    one.set(ylim=(-0.02, 1.04), ylabel="chance of being replaced")
    for key, colour, line in (("paper_all", style.DRIFT, "--"), ("exact_all", _FORMULA, "-")):
        chances = _numbers(law[key])
        possible = chances > 0
        every.plot(rows[possible], chances[possible], color=colour, linestyle=line)
    every.set(yscale="log", ylim=(1e-40, 10))
    every.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}" if value < 1 else "1")
    one.set_title("one stale row", loc="left")
    every.set_title(f"all {law['stale']} stale rows of a class", loc="left")
    for panel in (one, every):
        panel.set(xscale="log", xlim=(0.8, 1.3 * rows[-1]), xlabel="rows offered since the drift")
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        panel.grid()
        panel.axvline(law["event_rows"], color=style.MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
    figure.legend(*one.get_legend_handles_labels(), loc="lower left", ncols=3)
    at = int(np.searchsorted(rows, law["event_rows"]).clip(0, len(rows) - 1))
    return Drawing(
        figure=figure,
        title="Stale rows in a reservoir",
        caption=f"Chance that rows of a drifted class leave a memory of {law['capacity']} by "
        f"themselves, {law['seen']} rows having been seen before the drift. Left one row, right "
        f"all of one class. Simulated: {law['repeats']} memories, bars: two standard errors. "
        "Dotted: the end of the event's task. The paper's second formula ends at |M| rows.",
        alt=f"Line charts of replacement chances; around the end of the event's task, after "
        f"{rows[at]} rows: paper {law['paper'][at]:.2f}, exact {law['exact'][at]:.2f}, simulated "
        f"{law['simulated']['reservoir']['replaced'][at]:.2f} (reservoir) and "
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
    """Rows offered and share of stale rows lost, per seed and moment of the runs left alone."""
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


def _dots(
    panel: Axes, found: Sequence[Floats], shift: float, colour: str, marker: str, label: str
) -> None:
    for place, values in enumerate(found):
        if not len(values):
            continue
        panel.plot(
            np.full(len(values), place + shift),
            values,
            marker,
            color=colour,
            alpha=0.3,
            markersize=4,
        )
        panel.errorbar(
            place + 1.75 * shift,
            values.mean(),
            yerr=_deviation(values),
            marker=marker,
            color=colour,
            markersize=5,
            elinewidth=1.2,
            linestyle="",
            label=label if place == 0 else None,
        )


def _deviation(values: Floats) -> Floats:
    """Sample standard deviation over the first axis; 0 where there is but one."""
    spread: Floats = np.asarray(values.std(axis=0, ddof=1 if len(values) > 1 else 0))
    return spread


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
