"""One look for all figures: colour-blind safe, dark on white, tellable in grey print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from driftwise.report.cells import Cell, place_of

INK = "#1b1f24"
MUTED = "#5b6570"
FAINT = "#d5dae0"
DRIFT = "#D55E00"
"""Marks drift in every figure (vermillion, of Okabe and Ito's palette like all colours here)."""

LineStyle = str | tuple[float, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Look:
    """How one adaptation is drawn, everywhere: colour, marker and line each tell it alone."""

    colour: str
    marker: str
    line: LineStyle
    hollow: bool = False
    """every cell of an adaptation after its first (another detector, say) has hollow markers"""


_FIXED = {
    "vanilla": Look(colour="#000000", marker="s", line=":"),
    "fr": Look(colour="#009E73", marker="^", line="--"),
    "fr-flush": Look(colour="#E69F00", marker="v", line="-."),
    "fr-scratch": Look(colour="#CC79A7", marker="D", line=(0.0, (6.0, 1.5, 1.0, 1.5, 1.0, 1.5))),
    "amr": Look(colour="#0072B2", marker="o", line="-"),
}
_SPARE = (
    Look(colour="#56B4E9", marker="P", line=(0.0, (8.0, 2.0))),
    Look(colour="#8A8D00", marker="X", line=(0.0, (2.0, 1.0))),
    Look(colour="#7A4EAB", marker="*", line=(0.0, (4.0, 1.0, 1.0, 1.0))),
    Look(colour="#8C564B", marker="h", line=(0.0, (1.0, 2.5))),
)

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 9.0,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "text.color": INK,
    "text.parse_math": False,  # a class may be named "$"
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "svg.hashsalt": "driftwise",
    "svg.fonttype": "path",
}

Looks = Mapping[str, Look]


def looks_of(adaptations: Iterable[str]) -> Looks:
    """A look for each adaptation: its own, or for one that has none the next spare look by name."""
    names = sorted(set(adaptations), key=place_of)
    strangers = [name for name in names if name not in _FIXED]
    spare = {name: _SPARE[index % len(_SPARE)] for index, name in enumerate(strangers)}
    return {name: _FIXED.get(name) or spare[name] for name in names}


def looks_by_cell(cells: Sequence[Cell], looks: Looks) -> list[Look]:
    """One look per cell: the adaptation's, then the same but hollow, then with other markers."""
    met: Counter[str] = Counter()
    result = []
    for cell in cells:
        look, place = looks[cell.adaptation], met[cell.adaptation]
        marker = look.marker if place < 2 else _SPARE[place % len(_SPARE)].marker
        result.append(replace(look, marker=marker, hollow=place > 0))
        met[cell.adaptation] += 1
    return result
