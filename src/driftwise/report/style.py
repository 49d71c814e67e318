"""One style for all figures: colour-blind safe, dark on white, distinguishable in grey print."""

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

DASHED = (0.0, (4.0, 2.0))


@dataclass(frozen=True, kw_only=True)
class Style:
    """How one adaptation is drawn everywhere; colour, marker and line each identify it alone."""

    colour: str
    marker: str
    line: str | tuple[float, tuple[float, ...]]
    hollow: bool = False
    """every cell of an adaptation after its first (another detector, say) has hollow markers"""

    @property
    def face(self) -> str:
        """The colour inside a marker."""
        return "white" if self.hollow else self.colour

    def line_options(self, marker_size: float = 5.0) -> dict[str, Any]:
        """What matplotlib takes to draw a line."""
        return {
            "color": self.colour,
            "linestyle": self.line,
            "linewidth": 1.8 * min(1.0, marker_size / 4.5),
            "marker": self.marker,
            "markersize": marker_size,
            "markerfacecolor": self.face,
        }


_FIXED = {
    "vanilla": Style(colour="#000000", marker="s", line=":"),
    "fr": Style(colour="#009E73", marker="^", line="--"),
    "fr-flush": Style(colour="#E69F00", marker="v", line="-."),
    "fr-scratch": Style(colour="#CC79A7", marker="D", line=(0.0, (6.0, 1.5, 1.0, 1.5, 1.0, 1.5))),
    "amr": Style(colour="#0072B2", marker="o", line="-"),
}
_SPARE = (
    Style(colour="#56B4E9", marker="P", line=(0.0, (8.0, 2.0))),
    Style(colour="#8A8D00", marker="X", line=(0.0, (2.0, 1.0))),
    Style(colour="#7A4EAB", marker="*", line=(0.0, (4.0, 1.0, 1.0, 1.0))),
    Style(colour="#8C564B", marker="h", line=(0.0, (1.0, 2.5))),
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
    "pdf.fonttype": 42,
}

Styles = Mapping[str, Style]


def styles_of(adaptations: Iterable[str]) -> Styles:
    """A style for each adaptation: its own, or for one without it the next spare style by name."""
    names = sorted(set(adaptations), key=place_of)
    others = [name for name in names if name not in _FIXED]
    spare = {name: _SPARE[index % len(_SPARE)] for index, name in enumerate(others)}
    return {name: _FIXED.get(name) or spare[name] for name in names}


def styles_by_cell(cells: Sequence[Cell], styles: Styles) -> list[Style]:
    """One style per cell: the adaptation's, then the same but hollow, then with other markers."""
    used: Counter[str] = Counter()
    result = []
    for cell in cells:
        style, index = styles[cell.adaptation], used[cell.adaptation]
        marker = style.marker if index < 2 else _SPARE[index % len(_SPARE)].marker
        result.append(replace(style, marker=marker, hollow=index > 0))
        used[cell.adaptation] += 1
    return result


def filled(colour: str, fill: str) -> dict[str, Any]:
    """What matplotlib takes to fill a bar: solid, hatched or open."""
    return {
        "facecolor": colour if fill == "solid" else "white",
        "edgecolor": colour,
        "hatch": "/////" if fill == "hatched" else "",
        "linewidth": 0.9,
    }
