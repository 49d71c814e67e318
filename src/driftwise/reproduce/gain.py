"""What each strategy gains over doing nothing, beside what was published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from driftwise.report import style
from driftwise.report.canvas import Drawing, Margins, short
from driftwise.report.cells import Cell, Stat, mark, stat_of
from driftwise.report.costs import FILLS, filled
from driftwise.report.sweeps import Place, Sweep
from driftwise.reproduce.places import FLOOR, Group, Spot, distinct, drift_words
from driftwise.reproduce.plate import Frame, buffer_words, plate, scale_words

Published = Callable[[Place], float | None]
"""The published final average accuracy of a place; None: there is none."""

_BARS_INCHES = 0.74
"""The room that the bars of one group share."""


def gain_bars(
    groups: Sequence[Group], sweep: Sweep, looks: style.Looks, published: Published | None = None
) -> Drawing | None:
    """Accuracy of each strategy minus that of `vanilla`, by method: drift counts x buffers.

    `groups` are of one benchmark, with the same methods. None if nothing can be compared.
    """
    adaptations = [
        name for name in distinct(a for g in groups for a in g.adaptations) if name != FLOOR
    ]
    buffers = distinct(buffer for group in groups for buffer in group.buffers)
    panels = [(group, buffer) for buffer in buffers for group in groups]
    gains = {
        (group, buffer): [
            {name: _compare(group, variant, buffer, name, published) for name in adaptations}
            for variant in group.variants
        ]
        for group, buffer in panels
    }
    found = [pair for rows in gains.values() for row in rows for pair in row.values()]
    if all(ours is None for ours, _ in found):
        return None
    has_published = any(theirs is not None for _, theirs in found)
    fills = dict(
        zip(adaptations, [FILLS[i % len(FILLS)] for i in range(len(adaptations))], strict=True)
    )
    num_methods = max(len(group.variants) for group in groups)
    slot = max(0.95, 0.3 * len(adaptations))
    spots = [spot for group in groups for spot in group.spots]
    legend: list[Artist] = [
        Patch(**filled(looks[name].colour, fills[name]), label=name) for name in adaptations
    ]
    if has_published:
        legend.append(_diamond([], [], "published, at the paper's scale"))
    drawn = plate(
        len(panels),
        max(1.8, slot * num_methods),
        1.9,
        columns=len(groups),
        frame=Frame(
            headline=f"Gain over vanilla: {groups[0].benchmark}",
            notes=scale_words(sweep, spots),
            legend=tuple(legend),
        ),
        margins=Margins(
            left=0.8,
            bottom=0.3 + 0.13 * len(adaptations),
            top=0.3,
            column_gap=0.25,
            row_gap=0.6 + 0.13 * len(adaptations),
        ),
    )
    words = []
    for panel, (group, buffer) in zip(drawn.panels, panels, strict=True):
        rows = gains[group, buffer]
        _draw(panel, rows, looks, fills)
        panel.set_xticks(
            range(len(rows)),
            [
                _tick(name, row, {s.adaptation: mark(s.cell) for s in group.at(name, buffer)})
                for name, row in zip(group.variants, rows, strict=True)
            ],
            fontsize=7,
            linespacing=1.25,
        )
        panel.set_xlim(-0.55, num_methods - 0.45)
        panel.set_title(f"{drift_words(group.num_drifts)}, {buffer_words(buffer)}")
        words += [
            f"{variant}, {drift_words(group.num_drifts)}, {buffer_words(buffer)}: {_told(row)}"
            for variant, row in zip(group.variants, rows, strict=True)
        ]
    _share_y(drawn.panels)
    for panel in drawn.panels:
        panel.tick_params(axis="x", length=0)
        panel.tick_params(labelleft=panel in drawn.left)
        panel.grid(axis="y")
    for panel in drawn.left:
        panel.set_ylabel("gain in final accuracy\n(percentage points)")
    diamonds = " Diamonds: the published means, at the paper's scale." if has_published else ""
    return Drawing(
        figure=drawn.figure,
        title=f"Gain over vanilla, {groups[0].benchmark}",
        caption="Final average accuracy of each strategy minus that of vanilla under the same "
        "drift, seed by seed; bars: means, whiskers: one sample standard deviation of the "
        f"differences, a dash: not run yet.{diamonds} {scale_words(sweep, spots)}",
        alt="Bar charts of the gain over vanilla in percentage points; " + "; ".join(words) + ".",
    )


Pair = tuple[Stat | None, float | None]
"""our gain, and the published one"""


def _compare(
    group: Group, variant: str, buffer: int | None, adaptation: str, published: Published | None
) -> Pair:
    spots = {spot.adaptation: spot for spot in group.at(variant, buffer)}
    ours, floor = spots.get(adaptation), spots.get(FLOOR)
    if ours is None or floor is None:
        return None, None
    return paired_gain(ours.cell, floor.cell), _published_gain(ours, floor, published)


def paired_gain(cell: Cell | None, floor: Cell | None) -> Stat | None:
    """The difference in final average accuracy over the seeds that both have."""
    if cell is None or floor is None:
        return None
    before = {run.seed: run.faa for run in floor.runs}
    differences = []
    for run in cell.runs:
        base = before.get(run.seed)
        if run.faa is not None and base is not None:
            differences.append(run.faa - base)
    return stat_of(differences)


def _published_gain(ours: Spot, floor: Spot, published: Published | None) -> float | None:
    if published is None:
        return None
    ends = published(ours.place), published(floor.place)
    return None if ends[0] is None or ends[1] is None else ends[0] - ends[1]


def _draw(
    panel: Axes, rows: Sequence[dict[str, Pair]], looks: style.Looks, fills: dict[str, str]
) -> None:
    width = _BARS_INCHES / max(1, len(fills))
    panel.axhline(0, color=style.MUTED, linewidth=0.8)
    for slot, row in enumerate(rows):
        for index, (name, (ours, theirs)) in enumerate(row.items()):
            at = slot + (index - (len(row) - 1) / 2) * width
            colour = looks[name].colour
            if ours is None:
                panel.text(at, 0, "–", ha="center", va="bottom", color=style.MUTED)
            else:
                panel.bar(at, ours.mean, width * 0.88, **filled(colour, fills[name]))
                if ours.sd is not None:
                    panel.errorbar(
                        at, ours.mean, ours.sd, color=style.INK, capsize=2.5, linewidth=1, zorder=3
                    )
            if theirs is not None:
                panel.add_line(_diamond([at], [theirs]))
    panel.autoscale_view()


def _diamond(x: Sequence[float], y: Sequence[float], label: str = "") -> Line2D:
    return Line2D(
        x,
        y,
        linestyle="",
        marker="D",
        markersize=5,
        markerfacecolor="white",
        markeredgecolor=style.INK,
        markeredgewidth=1.1,
        label=label,
        zorder=4,
    )


def _share_y(panels: Sequence[Axes]) -> None:
    """The same limits everywhere, with every bar, whisker and diamond inside them."""
    for panel in panels:
        panel.relim()
        panel.autoscale_view()
    ends = [end for panel in panels for end in panel.get_ylim()]
    for panel in panels:
        panel.set_ylim(min(ends), max(ends))


def _tick(variant: str, row: dict[str, Pair], marks: Mapping[str, str]) -> str:
    lines = [
        f"{short(name, 8)} {ours.mean:+.1f}"
        + ("" if ours.sd is None else f"±{ours.sd:.1f}")
        + marks[name]
        for name, (ours, _) in row.items()
        if ours is not None
    ]
    return "\n".join([short(variant, 14), *lines])


def _told(row: dict[str, Pair]) -> str:
    return ", ".join(
        f"{name} {'missing' if ours is None else f'{ours.mean:+.1f}'}"
        + ("" if theirs is None else f" (published {theirs:+.1f})")
        for name, (ours, theirs) in row.items()
    )
