"""Charts of a comparison of two data sets, from its report as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np

from driftwise.report import style
from driftwise.report.facets import Drawing, RenderedFigure, facets, render, short
from driftwise.report.heat_maps import draw_grid, set_ticks
from driftwise.report.saved_run import clean
from driftwise.report.vectors import REFERENCE
from driftwise.report.words import IMAGE_WORDS, LEAST_SHIFT, frequency_words

MAX_PANELS = 12
"""Classes whose scores are drawn: those with the smallest p-values."""
MAX_BARS = 24
"""Classes whose frequencies are drawn: those that changed most."""
MAX_CAUSES = 10
MAX_ROWS = 40
"""Classes in the chart over periods."""

Report = Mapping[str, Any]


def draw_all(report: Report) -> tuple[RenderedFigure, ...]:
    """Every chart that a report has something for."""
    with matplotlib.rc_context(style.RC):
        return tuple(render(kind, drawing) for kind, drawing in drawings(report).items())


def drawings(report: Report) -> dict[str, Drawing]:
    """The same, before they are rendered; a report of several periods has one chart over time."""
    if "periods" in report:
        return {"periods": over_periods(report)}
    drawn = {"scores": scores(report), "causes": causes(report), "classes": frequencies(report)}
    return {kind: drawing for kind, drawing in drawn.items() if drawing is not None}


def scores(report: Report) -> Drawing | None:
    """Per class, the scores of both sides: how far they lie apart."""
    known = [each for each in report["classes"] if each.get("scores") is not None]
    if not known:
        return None
    chosen = sorted(known, key=lambda each: each["p_value"])[:MAX_PANELS]
    shown = [each for each in known if each in chosen]
    grid = facets(len(shown), (2.5, 1.75), columns=4)
    low = min(each["scores"]["edges"][0] for each in shown)
    high = max(each["scores"]["edges"][-1] for each in shown)
    for panel, each in zip(grid.panels, shown, strict=True):
        edges = each["scores"]["edges"]
        before, after = each["scores"]["reference"], each["scores"]["current"]
        panel.stairs(before, edges, fill=True, color=REFERENCE, alpha=0.35, label="reference")
        panel.stairs(after, edges, color=style.DRIFT, linewidth=1.8, label="current")
        is_drifted = each["verdict"] == "drifted"
        words = f"{short(clean(each['name']), 16)}: {each['verdict']}"
        panel.set_title(words, color=style.DRIFT if is_drifted else style.INK)
        panel.set(yticks=[], xlim=(low, high))
        panel.spines["left"].set_visible(False)
    grid.label("score", share_x=False)
    grid.add_legend(grid.panels[0].get_legend_handles_labels()[0])
    left = len(known) - len(shown)
    more = f" {left} more classes, with larger p-values, are not shown." if left else ""
    apart = ", ".join(f"{clean(each['name'])} {each['auc']:.2f}" for each in shown)
    return Drawing(
        figure=grid.figure,
        title="How different the two sides are",
        caption="Each sample gets a score from a linear classifier that has not seen it: the higher, "
        "the more it resembles current samples. Where the two distributions overlap, the sides "
        f"cannot be told apart; the further apart they lie, the larger the drift.{more}",
        alt=f"Histograms of scores by class; area under the curve: {apart}.",
    )


def causes(report: Report) -> Drawing | None:
    """The features, or statistics of images, that changed most."""
    found = report.get("image_statistics") or report["features"]
    if not found:
        return None
    of_images = bool(report.get("image_statistics"))
    shown = found[:MAX_CAUSES][::-1]
    grid = facets(1, (6.4, 0.9 + 0.3 * len(shown)))
    (panel,) = grid.panels
    panel.barh(range(len(shown)), [each["ks"] for each in shown], color=REFERENCE, height=0.62)
    words = [_shift(each) for each in shown]
    for row, (each, text) in enumerate(zip(shown, words, strict=True)):
        panel.annotate(
            text, (each["ks"], row), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    names = [short(clean(each["name"]), 24) for each in shown]
    panel.set_yticks(range(len(shown)), names)
    panel.set(xlim=(0, 1.45), xlabel="KS distance: 0 no change, 1 no overlap")
    panel.set_xticks(np.linspace(0, 1, 6))
    panel.grid(axis="x")
    over = "the drifted classes" if report["drifted"] else "all tested classes; none has drifted"
    what = "Statistics of the images" if of_images else "The features"
    listed = "; ".join(f"{n}: {t}" for n, t in zip(reversed(names), reversed(words), strict=True))
    return Drawing(
        figure=grid.figure,
        title="What changed in the images" if of_images else "Which features changed",
        caption=f"{what} whose distribution changed most, on average over {over}. Beside each bar, by "
        "how much its mean moved, in standard deviations (SD) of the reference; a way up in one class and "
        "a way down in another cancel. They point to a probable cause; they do not prove one.",
        alt=f"Bar chart of changes: {listed}.",
    )


def _shift(each: Mapping[str, Any]) -> str:
    if each["shift"] is None:
        return "was constant before"
    lower, higher = IMAGE_WORDS.get(each["name"], ("", ""))
    meaning = (higher if each["shift"] > 0 else lower) if abs(each["shift"]) >= LEAST_SHIFT else ""
    return f"mean {each['shift']:+.1f} SD{f': {meaning}' if meaning else ''}"


def frequencies(report: Report) -> Drawing | None:
    """How often each class occurs on either side."""
    if report.get("frequencies") is None:
        return None
    classes = report["classes"]
    totals = [sum(each[f"num_{side}"] for each in classes) for side in ("reference", "current")]
    rates = [
        (100 * each["num_reference"] / totals[0], 100 * each["num_current"] / totals[1])
        for each in classes
    ]
    order = sorted(range(len(classes)), key=lambda row: -abs(rates[row][1] - rates[row][0]))
    shown = [row for row in range(len(classes)) if row in order[:MAX_BARS]][::-1]
    grid = facets(1, (6.4, 0.8 + 0.36 * len(shown)))
    (panel,) = grid.panels
    places = np.arange(len(shown))
    for shift, side, face in (
        (0.19, 0, {"color": REFERENCE, "alpha": 0.5, "label": "reference"}),
        (-0.19, 1, {"color": style.DRIFT, "label": "current"}),
    ):
        panel.barh(places + shift, [rates[row][side] for row in shown], height=0.36, **face)
    names = [short(clean(classes[row]["name"]), 24) for row in shown]
    panel.set_yticks(places, names)
    panel.set(xlabel="percent of the samples", ylim=(-0.6, len(shown) - 0.4))
    panel.grid(axis="x")
    grid.add_legend(panel.get_legend_handles_labels()[0])
    found = report["frequencies"]
    left = len(classes) - len(shown)
    more = f" {left} more classes, which changed less, are not shown." if left else ""
    return Drawing(
        figure=grid.figure,
        title="How frequent the classes are",
        caption=f"{frequency_words(found, report['level'])} A class that became rarer or more frequent "
        f"has not drifted by that: each class is tested by itself.{more}",
        alt="Bar chart of the frequency of classes in percent, reference and current: "
        + "; ".join(
            f"{n} {rates[r][0]:.1f}, {rates[r][1]:.1f}" for n, r in zip(names, shown, strict=True)
        )
        + ".",
    )


def over_periods(report: Report) -> Drawing:
    """The AUC of each class in each period, drifted ones marked."""
    periods = report["periods"]
    names = list(dict.fromkeys(each["name"] for period in periods for each in period["classes"]))
    found = [{each["name"]: each for each in period["classes"]} for period in periods]
    drifted = {n for n in names for by_name in found if _is_drifted(by_name.get(n))}
    rows = [*(n for n in names if n in drifted), *(n for n in names if n not in drifted)]
    rows = rows[:MAX_ROWS]
    values = np.array([[_auc(by_name.get(name)) for by_name in found] for name in rows])
    width = max(2.4, 1.0 + 0.62 * len(periods))
    grid = facets(1, (width + 1.4, 1.0 + 0.28 * len(rows)))
    (panel,) = grid.panels
    colours = matplotlib.colormaps["Oranges"]
    draw_grid(panel, values, cmap=colours, vmin=0.5, vmax=1.0, linewidth=0.6)
    set_ticks(panel, [short(clean(name), 24) for name in rows], _period_names(periods))
    words = []
    for row, name in enumerate(rows):
        marked = [place for place, by_name in enumerate(found) if _is_drifted(by_name.get(name))]
        for place in marked:
            value = values[row, place]
            text = panel.text(place + 0.5, row + 0.52, f"{value:.2f}", fontsize=7)
            text.set(ha="center", va="center", color="white" if value > 0.8 else style.INK)
        if marked:
            words.append(f"{clean(name)} in {', '.join(str(place + 1) for place in marked)}")
    grid.add_colour_bar(colours, 0.5, 1.0, "AUC")
    left = len(names) - len(rows)
    more = f" {left} more classes are not shown." if left else ""
    return Drawing(
        figure=grid.figure,
        title="Drift over time",
        caption="Each period compared with the same reference, class by class. The stronger the "
        "colour, the easier the two sides can be told apart (AUC, 0.5 to 1); a number stands where a "
        f"class has drifted. Empty: the class could not be tested.{more}",
        alt=f"Heat map of classes by period; drifted: {'; '.join(words) or 'none'}.",
    )


def _is_drifted(each: Mapping[str, Any] | None) -> bool:
    return each is not None and each["verdict"] == "drifted"


def _auc(each: Mapping[str, Any] | None) -> float:
    return np.nan if each is None or each["auc"] is None else max(0.5, float(each["auc"]))


def _period_names(periods: Sequence[Report]) -> list[str]:
    return [short(clean(period["name"]), 18) for period in periods]
