"""Accuracy as a function of the detector's errors: what misses and false alarms cost."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np

from driftwise.report import style
from driftwise.report.cells import mark, place_of
from driftwise.report.facets import Drawing, facets
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.notes import scale_words
from driftwise.reproduce.places import GridPoint, distinct, drift_words, setting_words

ERROR_NAMES = ("tpr", "fpr")
_MAX_NUMBERED = 8
"""Steps along an axis up to which each field carries its numbers."""
_COLOURS = matplotlib.colormaps["Blues"]


def detector_map(points: Sequence[GridPoint], sweep: Sweep) -> Drawing | None:
    """Final accuracy by rate of drifts found and rate of false alarms, a map per adaptation.

    `points` differ in tpr, fpr and adaptation only; those without a tpr had no detector and are
    in the caption. None if no field is known.
    """
    fields = [s for s in points if None not in [s.place.get(name) for name in ERROR_NAMES]]
    known = [faa for point in fields if (faa := _faa(point)) is not None]
    if not known:
        return None
    found = sorted({_rate(point, "tpr") for point in fields})
    alarmed = sorted({_rate(point, "fpr") for point in fields})
    low = 5 * np.floor(min(known) / 5)
    high = max(5 * np.ceil(max(known) / 5), low + 5)
    adaptations = sorted(distinct(point.adaptation for point in fields), key=place_of)
    size = max(2.2, 0.9 * len(alarmed)), max(2.0, 0.7 + 0.46 * len(found))
    grid = facets(len(adaptations), size)
    words = []
    for panel, name in zip(grid.panels, adaptations, strict=True):
        here = [point for point in fields if point.adaptation == name]
        table = np.full((len(found), len(alarmed)), np.nan)
        for point in here:
            row, column = found.index(_rate(point, "tpr")), alarmed.index(_rate(point, "fpr"))
            faa = _faa(point)
            if faa is None:
                continue
            table[row, column] = faa
            if max(table.shape) <= _MAX_NUMBERED:
                text = panel.text(column + 0.5, row + 0.5, _field(point), fontsize=7)
                is_dark = faa > low + 0.55 * (high - low)
                text.set(ha="center", va="center", color="white" if is_dark else style.INK)
        panel.patch.set(facecolor="white", edgecolor=style.FAINT, hatch="////")
        colours = {"cmap": _COLOURS, "vmin": low, "vmax": high}
        panel.pcolormesh(np.ma.masked_invalid(table), **colours, edgecolors="white", linewidth=1.5)
        panel.set_title(name)
        panel.set_xticks(np.arange(len(alarmed)) + 0.5, [f"{rate:g}" for rate in alarmed])
        panel.set_yticks(np.arange(len(found)) + 0.5, [f"{rate:g}" for rate in found])
        panel.tick_params(length=0)
        words.append(f"{name}: {', '.join(map(_field_words, here))}")
    grid.label("rate of false alarms", "rate of drifts found")
    grid.add_colour_bar(_COLOURS, low, high, "final accuracy (%)")
    title = setting_words(fields[0], *ERROR_NAMES)
    grid.add_legend(headline=f"Accuracy by detector error: {title}")
    rest = "; ".join(_reference(point) for point in points if point not in fields)
    return Drawing(
        figure=grid.figure,
        title=f"Accuracy by detector error, {title}",
        caption="Final average accuracy in percent, mean over seeds, where the detector finds a "
        "given share of the drifts and raises a given share of false alarms; below it the labels "
        "that adaptation requested. Hatched: not run yet."
        + (f" For comparison: {rest}." if rest else ""),
        alt="Heat maps of final accuracy; " + "; ".join(words) + ".",
        notes=scale_words(sweep, points),
    )


def _rate(point: GridPoint, name: str) -> float:
    return float(point.place[name] or 0)


def _faa(point: GridPoint) -> float | None:
    return None if point.cell is None else point.cell.mean(lambda run: run.faa)


def _field(point: GridPoint) -> str:
    """Accuracy and labels as they stand in a field."""
    assert point.cell is not None
    stat = point.cell.stat(lambda run: run.faa)
    assert stat is not None
    labels = point.cell.mean(lambda run: run.labels.get("adaptation"))
    spread = "" if stat.sd is None else f" ±{stat.sd:.1f}"
    below = "" if labels is None else f"\n{labels:,.0f} labels"
    return f"{stat.mean:.1f}{spread}{mark(point.cell)}{below}"


def _field_words(point: GridPoint) -> str:
    faa = _faa(point)
    words = "missing" if faa is None else f"{faa:.1f}"
    return f"{_rate(point, 'tpr'):g} found and {_rate(point, 'fpr'):g} alarmed {words}"


def _reference(point: GridPoint) -> str:
    faa = _faa(point)
    drift = f"{point.adaptation}, {drift_words(point.num_drifts)}"
    return f"{drift} {'not run yet' if faa is None else f'{faa:.1f}'}"
