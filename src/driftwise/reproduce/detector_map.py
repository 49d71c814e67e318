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
from driftwise.reproduce.places import Spot, distinct, drift_words, setting_words

ERROR_NAMES = ("tpr", "fpr")
_MAX_NUMBERED = 8
"""Steps along an axis up to which each field carries its numbers."""
_COLOURS = matplotlib.colormaps["Blues"]


def detector_map(spots: Sequence[Spot], sweep: Sweep) -> Drawing | None:
    """Final accuracy by rate of drifts found and rate of false alarms, a map per adaptation.

    `spots` differ in tpr, fpr and adaptation only; those without a tpr had no detector and are
    in the caption. None if no field is known.
    """
    fields = [s for s in spots if None not in [s.place.get(name) for name in ERROR_NAMES]]
    known = [faa for spot in fields if (faa := _faa(spot)) is not None]
    if not known:
        return None
    found = sorted({_rate(spot, "tpr") for spot in fields})
    alarmed = sorted({_rate(spot, "fpr") for spot in fields})
    low = 5 * np.floor(min(known) / 5)
    high = max(5 * np.ceil(max(known) / 5), low + 5)
    adaptations = sorted(distinct(spot.adaptation for spot in fields), key=place_of)
    size = max(2.2, 0.9 * len(alarmed)), max(2.0, 0.7 + 0.46 * len(found))
    grid = facets(len(adaptations), size)
    words = []
    for panel, name in zip(grid.panels, adaptations, strict=True):
        here = [spot for spot in fields if spot.adaptation == name]
        table = np.full((len(found), len(alarmed)), np.nan)
        for spot in here:
            row, column = found.index(_rate(spot, "tpr")), alarmed.index(_rate(spot, "fpr"))
            faa = _faa(spot)
            if faa is None:
                continue
            table[row, column] = faa
            if max(table.shape) <= _MAX_NUMBERED:
                text = panel.text(column + 0.5, row + 0.5, _field(spot), fontsize=7)
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
    rest = "; ".join(_reference(spot) for spot in spots if spot not in fields)
    return Drawing(
        figure=grid.figure,
        title=f"Accuracy by detector error, {title}",
        caption="Final average accuracy in percent, mean over seeds, where the detector finds a "
        "given share of the drifts and raises a given share of false alarms; below it the labels "
        "that adaptation requested. Hatched: not run yet."
        + (f" For comparison: {rest}." if rest else ""),
        alt="Heat maps of final accuracy; " + "; ".join(words) + ".",
        notes=scale_words(sweep, spots),
    )


def _rate(spot: Spot, name: str) -> float:
    return float(spot.place[name] or 0)


def _faa(spot: Spot) -> float | None:
    return None if spot.cell is None else spot.cell.mean(lambda run: run.faa)


def _field(spot: Spot) -> str:
    """Accuracy and labels as they stand in a field."""
    assert spot.cell is not None
    stat = spot.cell.stat(lambda run: run.faa)
    assert stat is not None
    labels = spot.cell.mean(lambda run: run.labels.get("adaptation"))
    spread = "" if stat.sd is None else f" ±{stat.sd:.1f}"
    below = "" if labels is None else f"\n{labels:,.0f} labels"
    return f"{stat.mean:.1f}{spread}{mark(spot.cell)}{below}"


def _field_words(spot: Spot) -> str:
    faa = _faa(spot)
    words = "missing" if faa is None else f"{faa:.1f}"
    return f"{_rate(spot, 'tpr'):g} found and {_rate(spot, 'fpr'):g} alarmed {words}"


def _reference(spot: Spot) -> str:
    faa = _faa(spot)
    drift = f"{spot.adaptation}, {drift_words(spot.num_drifts)}"
    return f"{drift} {'not run yet' if faa is None else f'{faa:.1f}'}"
