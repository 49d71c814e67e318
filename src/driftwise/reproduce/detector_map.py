"""Accuracy as a function of the detector's errors: what misses and false alarms cost."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from driftwise.report import style
from driftwise.report.canvas import Drawing, Margins, place
from driftwise.report.cells import mark, place_of
from driftwise.report.run import Floats
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.places import Spot, distinct, drift_words
from driftwise.reproduce.plate import Frame, Plate, buffer_words, plate, scale_words

NAMES = ("tpr", "fpr")
_MAX_NUMBERED = 8
"""Steps along an axis up to which each field carries its numbers."""
_COLOURS = matplotlib.colormaps["Blues"]
_FIELD = (0.86, 0.46)
"""Inches."""


def detector_map(spots: Sequence[Spot], sweep: Sweep) -> Drawing | None:
    """Final accuracy by share of drifts found and share of false alarms, a map per adaptation.

    `spots` differ in tpr, fpr and adaptation only; those without a tpr had no detector to err and
    are told in the caption. None if no field is known.
    """
    fields = [spot for spot in spots if _rates(spot) is not None]
    found = sorted({_rate(spot, "tpr") for spot in fields})
    alarmed = sorted({_rate(spot, "fpr") for spot in fields})
    adaptations = sorted(distinct(spot.adaptation for spot in fields), key=place_of)
    maps = {
        name: _map([s for s in fields if s.adaptation == name], found, alarmed)
        for name in adaptations
    }
    known = [value for table in maps.values() for value in table[~np.isnan(table)]]
    if not known:
        return None
    low, high = 5 * np.floor(min(known) / 5), 5 * np.ceil(max(known) / 5)
    high = max(high, low + 5)
    first = fields[0]
    title = f"{first.benchmark}, {first.variant(*NAMES)}, {buffer_words(first.buffer_size)}"
    title = f"{title}, {drift_words(first.num_drifts)}"
    drawn = plate(
        len(maps),
        max(2.0, len(alarmed) * _FIELD[0]),
        max(1.5, len(found) * _FIELD[1]),
        columns=3,
        frame=Frame(
            headline=f"Accuracy by detector error: {title}", notes=scale_words(sweep, spots)
        ),
        margins=Margins(left=0.8, right=0.95, bottom=0.5, top=0.3, row_gap=0.85),
    )
    for index, (panel, (name, table)) in enumerate(zip(drawn.panels, maps.items(), strict=True)):
        here = [spot for spot in fields if spot.adaptation == name]
        _draw(panel, table, (low, high))
        if max(len(found), len(alarmed)) <= _MAX_NUMBERED:
            _number(panel, here, table, (low, high), found, alarmed)
        panel.set_title(name)
        panel.set_xticks(np.arange(len(alarmed)) + 0.5, [f"{rate:g}" for rate in alarmed])
        panel.set_yticks(np.arange(len(found)) + 0.5, [f"{rate:g}" for rate in found])
        panel.tick_params(length=0, labelleft=index % 3 == 0)
        panel.set_xlabel("rate of false alarms")
        if index % 3 == 0:
            panel.set_ylabel("rate of drifts found")
    _colour_bar(drawn, low, high)
    rest = "; ".join(_reference(spot) for spot in spots if _rates(spot) is None)
    return Drawing(
        figure=drawn.figure,
        title=f"Accuracy by detector error, {title}",
        caption="Final average accuracy in percent, mean over seeds, where the detector finds a "
        "given share of the drifts and raises a given share of false alarms; below it the labels "
        "that adaptation asked for. Hatched: not run yet. "
        + (f"For comparison: {rest}. " if rest else "")
        + scale_words(sweep, spots),
        alt="Heat maps of final accuracy; "
        + "; ".join(
            f"{name}: " + ", ".join(_field_words(s) for s in fields if s.adaptation == name)
            for name in adaptations
        )
        + ".",
    )


def _rates(spot: Spot) -> tuple[float, float] | None:
    rates = [spot.place.get(name) for name in NAMES]
    return None if None in rates else (_rate(spot, "tpr"), _rate(spot, "fpr"))


def _rate(spot: Spot, name: str) -> float:
    return float(spot.place[name] or 0)


def _map(spots: Sequence[Spot], found: Sequence[float], alarmed: Sequence[float]) -> Floats:
    """(found, alarmed) percent; NaN where nothing is known."""
    table = np.full((len(found), len(alarmed)), np.nan)
    for spot in spots:
        faa = None if spot.cell is None else spot.cell.mean(lambda run: run.faa)
        if faa is not None:
            table[found.index(_rate(spot, "tpr")), alarmed.index(_rate(spot, "fpr"))] = faa
    return table


def _draw(panel: Axes, table: Floats, ends: tuple[float, float]) -> None:
    panel.patch.set(facecolor="white", edgecolor=style.FAINT, hatch="////")
    panel.pcolormesh(
        np.ma.masked_invalid(table),
        cmap=_COLOURS,
        vmin=ends[0],
        vmax=ends[1],
        edgecolors="white",
        linewidth=1.5,
    )


def _number(
    panel: Axes,
    spots: Sequence[Spot],
    table: Floats,
    ends: tuple[float, float],
    found: Sequence[float],
    alarmed: Sequence[float],
) -> None:
    for spot in spots:
        row, column = found.index(_rate(spot, "tpr")), alarmed.index(_rate(spot, "fpr"))
        if spot.cell is None or np.isnan(table[row, column]):
            continue
        stat = spot.cell.stat(lambda run: run.faa)
        asked = spot.cell.mean(lambda run: run.labels.get("adaptation"))
        spread = "" if stat is None or stat.sd is None else f" ±{stat.sd:.1f}"
        labels = "" if asked is None else f"\n{asked:,.0f} labels"
        is_dark = table[row, column] > ends[0] + 0.55 * (ends[1] - ends[0])
        panel.text(
            column + 0.5,
            row + 0.5,
            f"{table[row, column]:.1f}{spread}{mark(spot.cell)}{labels}",
            ha="center",
            va="center",
            fontsize=7,
            color="white" if is_dark else style.INK,
        )


def _colour_bar(drawn: Plate, low: float, high: float) -> None:
    """To the right of the first row's last panel."""
    across, up = drawn.figure.get_size_inches()
    box = drawn.panels[min(len(drawn.panels), drawn.columns) - 1].get_position()
    bar = place(drawn.figure, box.x1 * across + 0.15, box.y0 * up, 0.13, box.height * up)
    steps = np.linspace(low, high, 65)
    bar.pcolormesh(
        [0, 1], steps, steps[:-1, None], cmap=_COLOURS, vmin=low, vmax=high, edgecolors="face"
    )
    bar.set(xticks=[], ylabel="final accuracy (%)")
    bar.yaxis.set_label_position("right")
    bar.yaxis.tick_right()


def _field_words(spot: Spot) -> str:
    faa = None if spot.cell is None else spot.cell.mean(lambda run: run.faa)
    words = "missing" if faa is None else f"{faa:.1f}"
    return f"{_rate(spot, 'tpr'):g} found and {_rate(spot, 'fpr'):g} alarmed {words}"


def _reference(spot: Spot) -> str:
    faa = None if spot.cell is None else spot.cell.mean(lambda run: run.faa)
    drift = f"{spot.adaptation}, {drift_words(spot.num_drifts)}"
    return f"{drift} {'not run yet' if faa is None else f'{faa:.1f}'}"
