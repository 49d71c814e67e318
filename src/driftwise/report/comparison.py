"""The comparison of all cells: its columns, as one table, and block by block for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from driftwise.report.cells import MARK, Cell, Setting, Stat, notes_below
from driftwise.report.saved_run import Run
from driftwise.report.table import MISSING, WIDTH, Head, Item, Table, Value


@dataclass(frozen=True, kw_only=True)
class Column(Head):
    """A heading, and how the value below it is read from a cell."""

    value: Callable[[Cell], Value]
    form: str = ""
    """format of a number; empty: `write`"""
    write: Callable[[float], str] = lambda value: compact(value)
    """how a number is written where there is no format"""
    spread: bool = False
    """whether the standard deviation is shown beside the mean"""
    where_known: bool = False
    """left out of what people read where no cell has a value"""

    def item(self, cell: Cell) -> Item:
        """The entry of a cell."""
        value = self.value(cell)
        text = MISSING if value is None else str(value)
        if isinstance(value, Stat):
            text = self._number(value.mean)
            if self.spread and value.sd is not None:
                text += f" ± {self._number(value.sd)}"
        if cell.not_adapted and self.key in MARKED:
            text += MARK
        return Item(text, value)

    def _number(self, value: float) -> str:
        return format(value, self.form) if self.form else self.write(value)


def duration(seconds: float) -> str:
    """Seconds as a person would write them.

    >>> [duration(x) for x in (0.25, 48.33, 300, 5400, 400_000)]
    ['0.25 s', '48.3 s', '5 min', '1.5 h', '4.6 days']
    """
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{compact(round(seconds / size, 1))} {unit}"
    return f"{compact(seconds)} s"


def operations(flops: float) -> str:
    """A number of floating-point operations as a person would write it.

    >>> [operations(x) for x in (0, 2.5e8, 4.2e12)]
    ['0', '250 M', '4.2 T']
    """
    for unit, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if flops >= size:
            return f"{compact(round(flops / size, 1))} {unit}"
    return compact(flops)


def compact(value: float) -> str:
    """Three digits or all that stand before the point, so that costs of any size stay readable.

    >>> [compact(x) for x in (0, 0.0123, 7.26, 48.33, 40.0, 1234.6)]
    ['0', '0.012', '7.3', '48.3', '40', '1235']
    """
    if value == round(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


MARKED = ("adaptation", "faa")
"""Columns that carry the mark of a cell that was not adapted."""

MEANINGS = {
    "method": "How the network learns from the stream and its replay buffer.",
    "adaptation": "What is done about a class that has drifted.",
    "detector": "What decides whether a class has drifted.",
    "trait": "What distinguishes this row from another of the same adaptation and detector.",
    "buffer_size": "Samples that the replay buffer can hold.",
    "num_drifts": "Drift events in the stream.",
    "seeds": "Runs behind this row, one per seed.",
    "faa": "Final average accuracy over all tasks in percent, with the deviation over seeds.",
    "forgetting": "How far a task fell from its best accuracy, in points, averaged over tasks.",
    "faa_drifted": "Final accuracy of the classes that drifted, in percent.",
    "faa_stable": "Final accuracy of the classes that never drifted, in percent.",
    "labels_adaptation": "Labels that the adaptation asked for.",
    "labels_monitoring": "Labels that sorted the monitored samples by class.",
    "tpr": "Share of the drifted classes that were detected at once.",
    "fpr": "Share of the checks of unchanged classes that raised an alarm. Where monitored samples"
    " were not sorted by their true class, the drift of other classes raises some.",
    "delay": "Tasks from a drift to its detection, over the drifts that were detected.",
    "num_spared": "Verdicts of drift that cost fewer than min_harm points: no labels are spent on"
    " such classes.",
    "seconds": "Wall-clock time of training, detection and adaptation.",
    "gflops": "Floating-point operations of training, detection and adaptation: M millions, G billions,"
    " T trillions.",
    "faa_til": "Final accuracy if the network is given the task of each sample, in percent.",
    "macro_f1": "F1 averaged over classes after the last task, in percent.",
    "forgetting_since_event": "Forgetting that counts a class's accuracy only since its last drift.",
    "backward_transfer": "What a task gained (or lost) since it was learned, in points.",
    "ece": "Expected gap between confidence and accuracy, a share between 0 and 1.",
    "gradient_steps": "Updates of the network; a fair comparison considers these too.",
    "not_adapted": "Why the adaptation had nothing to act on; empty where it had.",
}


def _name(key: str, title: str, value: Callable[[Cell], Value], **more: Any) -> Column:
    return Column(key=key, title=title, meaning=MEANINGS[key], is_name=True, value=value, **more)


def _measure(
    key: str, title: str, read: Callable[[Run], float | None], form: str = "", **more: Any
) -> Column:
    """A mean over seeds; `title` may be GROUP/TITLE."""
    group, _, title = title.rpartition("/")
    return Column(
        key=key,
        group=group,
        title=title,
        meaning=MEANINGS[key],
        has_sd=True,
        value=lambda cell: cell.stat(read),
        form=form,
        **more,
    )


def _gigaflops(run: Run) -> float | None:
    flops = run.cost(run.flops)
    return None if flops is None else flops / 1e9


def _calibration_error(run: Run) -> float | None:
    return run.calibration.ece if run.calibration else None


NAMES = (
    _name("method", "method", lambda cell: cell.first.method),
    _name("adaptation", "adaptation", lambda cell: cell.adaptation),
    _name("detector", "detector", lambda cell: cell.detector),
    _name("trait", "with", lambda cell: cell.trait or None, where_known=True),
    _name("buffer_size", "buffer", lambda cell: cell.first.buffer_size),
    _name("num_drifts", "drifts", lambda cell: cell.first.num_drifts),
    _name("seeds", "seeds", lambda cell: len(cell.runs)),
)

COMPARISON = (
    *NAMES,
    _measure("faa", "FAA", lambda run: run.faa, ".1f", spread=True),
    _measure("forgetting", "forgetting", lambda run: run.forgetting, ".1f"),
    _measure("faa_drifted", "FAA/drifted", lambda run: run.faa_drifted, ".1f"),
    _measure("faa_stable", "FAA/stable", lambda run: run.faa_stable, ".1f"),
    _measure("labels_adaptation", "labels/adapt", lambda run: run.labels.get("adaptation")),
    _measure("labels_monitoring", "labels/monitor", lambda run: run.labels.get("monitoring")),
    _measure("tpr", "TPR", lambda run: run.detection.get("tpr"), ".2f"),
    _measure("fpr", "FPR", lambda run: run.detection.get("fpr"), ".2f"),
    _measure("delay", "delay", lambda run: run.detection.get("delay"), ".2f"),
    _measure("num_spared", "spared", lambda run: run.num_spared, where_known=True),
    _measure("seconds", "time", lambda run: run.cost(run.seconds), write=duration),
    _measure("gflops", "FLOPs", _gigaflops, write=lambda value: operations(1e9 * value)),
)

FURTHER = (
    _measure("faa_til", "task-incremental/FAA", lambda run: run.faa_til, ".1f", spread=True),
    _measure("macro_f1", "macro/F1", lambda run: run.macro_f1, ".1f", spread=True),
    _measure(
        *("forgetting_since_event", "forgetting/since event"),
        lambda run: run.forgetting_since_event,
        ".1f",
        spread=True,
    ),
    _measure(
        *("backward_transfer", "backward/transfer"),
        lambda run: run.backward_transfer,
        ".1f",
        spread=True,
    ),
    _measure("ece", "calibration/error", _calibration_error, ".3f", spread=True),
    _measure("gradient_steps", "gradient/steps", lambda run: run.gradient_steps),
)
"""Measures beside the main comparison, for the page and for CSV."""

EVERYTHING = (
    *(*COMPARISON, *FURTHER),
    _name("not_adapted", "not adapted", lambda cell: cell.not_adapted or None),
)
"""For CSV: the same columns in every report."""


_LEGEND = (
    "FAA: final average accuracy (%), mean ± sample standard deviation over seeds. "
    "Costs leave evaluation out."
)
_SETTING = Head(
    title="setting", meaning="The benchmark, and how settings of it differ.", is_name=True
)


def _for_people(cells: Sequence[Cell], columns: Sequence[Column] = COMPARISON) -> list[Column]:
    """The columns without those that would stay empty."""
    return [
        column
        for column in columns
        if not column.where_known or any(column.value(cell) is not None for cell in cells)
    ]


def comparison(
    settings: Sequence[Setting],
    columns: Sequence[Column] | None = None,
    *,
    title: str = "",
    name_setting: bool | None = None,
) -> Table:
    """One row per cell, for people.

    Args:
        settings: what is compared
        columns: None: those of the main comparison that are known of some cell
        title: of the table
        name_setting: whether a first column names the setting; None: where there are several
    """
    if columns is None:
        columns = _for_people([cell for setting in settings for cell in setting.cells])
    places = [_place(setting) for setting in settings]
    named = len(set(places)) > 1 if name_setting is None else name_setting
    return Table(
        title=title,
        heads=[_SETTING, *columns] if named else columns,
        rows=[
            [*([Item(place, place)] if named else []), *(column.item(cell) for column in columns)]
            for setting, place in zip(settings, places, strict=True)
            for cell in setting.cells
        ],
        notes=_notes(settings),
    )


def _place(setting: Setting) -> str:
    return ", ".join(filter(None, (setting.first.benchmark, setting.variant)))


def _notes(settings: Sequence[Setting]) -> list[str]:
    """What the marks mean, with the setting's name if there are several."""
    if len(settings) == 1:
        return list(filter(None, [settings[0].not_adapted]))
    named = [
        (f"{setting.title}: {label}", cell)
        for setting in settings
        for label, cell in zip(setting.labels, setting.cells, strict=True)
    ]
    return list(filter(None, [notes_below(named)]))


def comparison_csv(settings: Sequence[Setting]) -> str:
    """Every column at full precision, the same in every report."""
    places = [Head(title="benchmark"), Head(title="variant")]
    rows = [
        [
            Item("", setting.first.benchmark),
            Item("", setting.variant),
            *(column.item(cell) for column in EVERYTHING),
        ]
        for setting in settings
        for cell in setting.cells
    ]
    return Table(heads=[*places, *EVERYTHING], rows=rows).csv()


def comparison_text(settings: Sequence[Setting], width: int = WIDTH) -> str:
    """Plain text of at most `width` columns, one block per benchmark and variant.

    Names that all rows of a block share, such as the method, stand once above it.
    """
    columns = _for_people([cell for setting in settings for cell in setting.cells])
    blocks = []
    for _, members in groupby(settings, key=_place):
        group = list(members)
        cells = [cell for setting in group for cell in setting.cells]
        heading, kept = [group[0].first.benchmark, *filter(None, [group[0].variant])], []
        for column in columns:
            values = {column.value(cell) for cell in cells} if column.is_name else set()
            if len(values) != 1 or column.key == "adaptation":
                kept.append(column)
            elif values != {None} or not column.where_known:
                heading.append(f"{column.title} {column.item(cells[0]).text}")
        rows = [[column.item(cell) for column in kept] for cell in cells]
        blocks += [_joined(heading, width), Table(heads=kept, rows=rows).text(width).rstrip()]
    blocks += [textwrap.fill(line, width) for line in (*_notes(settings), _LEGEND)]
    return "\n\n".join(blocks) + "\n"


def _joined(parts: Sequence[str], width: int) -> str:
    """Parts beside each other, on as few lines as hold them whole."""
    lines = [parts[0][:width]]
    for part in parts[1:]:
        longer = f"{lines[-1]} · {part}"
        lines[-1:] = [longer] if len(longer) <= width else [lines[-1], part[:width]]
    return "\n".join(lines)
