"""What the tables say about a cell, column by column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from driftwise.report.cells import Cell, Stat
from driftwise.report.run import Run

Value = str | int | Stat | None
MISSING = "–"


@dataclass(frozen=True, kw_only=True)
class Column:
    """What one column says about a cell."""

    key: str
    """its name in CSV"""
    heading: tuple[str, str]
    """two short lines; the first may be empty"""
    meaning: str
    """one line for a person who wonders"""
    value: Callable[[Cell], Value]
    show: Callable[[float], str] = str
    """how a number is printed"""
    spread: bool = False
    """whether the standard deviation is printed beside the mean"""
    names_the_cell: bool = False
    where_known: bool = False
    """left out of what people read where no cell has a value"""

    @property
    def title(self) -> str:
        """The heading in one line."""
        return " ".join(part for part in self.heading if part)

    def text(self, value: Value) -> str:
        """A value as a person reads it."""
        if value is None:
            return MISSING
        if not isinstance(value, Stat):
            return str(value)
        if self.spread and value.sd is not None:
            return f"{self.show(value.mean)} ± {self.show(value.sd)}"
        return self.show(value.mean)


def compact(value: float) -> str:
    """Three digits or all that stand before the point, so that costs of any size stay readable.

    >>> [compact(x) for x in (0, 0.0123, 7.26, 48.33, 40.0, 1234.6)]
    ['0', '0.012', '7.3', '48.3', '40', '1235']
    """
    if value == round(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def _one_decimal(value: float) -> str:
    return f"{value:.1f}"


def _two_decimals(value: float) -> str:
    return f"{value:.2f}"


def _over_seeds(read: Callable[[Run], float | None]) -> Callable[[Cell], Value]:
    return lambda cell: cell.stat(read)


def _gigaflops(run: Run) -> float | None:
    flops = run.cost(run.flops)
    return None if flops is None else flops / 1e9


COMPARISON = (
    Column(
        key="method",
        heading=("", "method"),
        meaning="How the network learns from the stream and its memory.",
        value=lambda cell: cell.first.method,
        names_the_cell=True,
    ),
    Column(
        key="adaptation",
        heading=("", "adaptation"),
        meaning="What is done about a class that has drifted.",
        value=lambda cell: cell.adaptation,
        names_the_cell=True,
    ),
    Column(
        key="detector",
        heading=("", "detector"),
        meaning="What says that a class has drifted.",
        value=lambda cell: cell.detector,
        names_the_cell=True,
    ),
    Column(
        key="trait",
        heading=("", "with"),
        meaning="What tells this row from another of the same adaptation and detector.",
        value=lambda cell: cell.trait or None,
        names_the_cell=True,
        where_known=True,
    ),
    Column(
        key="buffer_size",
        heading=("", "buffer"),
        meaning="Rows that the memory can hold.",
        value=lambda cell: cell.first.buffer_size,
        names_the_cell=True,
    ),
    Column(
        key="num_drifts",
        heading=("", "drifts"),
        meaning="Drift events in the stream.",
        value=lambda cell: cell.first.num_drifts,
        names_the_cell=True,
    ),
    Column(
        key="seeds",
        heading=("", "seeds"),
        meaning="Runs behind this row, one per seed.",
        value=lambda cell: len(cell.runs),
        names_the_cell=True,
    ),
    Column(
        key="faa",
        heading=("", "FAA"),
        meaning="Final average accuracy over all tasks in percent, with the deviation over seeds.",
        value=_over_seeds(lambda run: run.faa),
        show=_one_decimal,
        spread=True,
    ),
    Column(
        key="forgetting",
        heading=("", "forgetting"),
        meaning="How far a task fell from its best accuracy, in points, averaged over tasks.",
        value=_over_seeds(lambda run: run.forgetting),
        show=_one_decimal,
    ),
    Column(
        key="faa_drifted",
        heading=("FAA", "drifted"),
        meaning="Final accuracy of the classes that drifted, in percent.",
        value=_over_seeds(lambda run: run.faa_drifted),
        show=_one_decimal,
    ),
    Column(
        key="faa_stable",
        heading=("FAA", "stable"),
        meaning="Final accuracy of the classes that never drifted, in percent.",
        value=_over_seeds(lambda run: run.faa_stable),
        show=_one_decimal,
    ),
    Column(
        key="labels_adaptation",
        heading=("labels", "adapt"),
        meaning="Labels that the adaptation asked for.",
        value=_over_seeds(lambda run: run.labels.get("adaptation")),
        show=compact,
    ),
    Column(
        key="labels_monitoring",
        heading=("labels", "watch"),
        meaning="Labels that sorted the monitored rows by class.",
        value=_over_seeds(lambda run: run.labels.get("monitoring")),
        show=compact,
    ),
    Column(
        key="tpr",
        heading=("", "TPR"),
        meaning="Share of the drifted classes that were found at once.",
        value=_over_seeds(lambda run: run.detection.get("tpr")),
        show=_two_decimals,
    ),
    Column(
        key="fpr",
        heading=("", "FPR"),
        meaning="Share of the checks of unchanged classes that raised an alarm. Where watched rows"
        " were not told apart by their true class, other classes' drift raises some.",
        value=_over_seeds(lambda run: run.detection.get("fpr")),
        show=_two_decimals,
    ),
    Column(
        key="delay",
        heading=("", "delay"),
        meaning="Tasks from a drift to its discovery, over the drifts that were found.",
        value=_over_seeds(lambda run: run.detection.get("delay")),
        show=_two_decimals,
    ),
    Column(
        key="num_spared",
        heading=("", "spared"),
        meaning="Verdicts of drift that cost fewer than min_harm points: no labels are spent on"
        " such classes.",
        value=_over_seeds(lambda run: run.num_spared),
        show=compact,
        where_known=True,
    ),
    Column(
        key="seconds",
        heading=("", "seconds"),
        meaning="Wall-clock seconds of training, detection and adaptation.",
        value=_over_seeds(lambda run: run.cost(run.seconds)),
        show=compact,
    ),
    Column(
        key="gflops",
        heading=("", "GFLOPs"),
        meaning="10⁹ floating-point operations of training, detection and adaptation.",
        value=_over_seeds(_gigaflops),
        show=compact,
    ),
)

FURTHER = (
    Column(
        key="faa_til",
        heading=("task-incremental", "FAA"),
        meaning="Final accuracy if the network is told which task a row belongs to, in percent.",
        value=_over_seeds(lambda run: run.faa_til),
        show=_one_decimal,
        spread=True,
    ),
    Column(
        key="macro_f1",
        heading=("macro", "F1"),
        meaning="F1 averaged over classes after the last task, in percent.",
        value=_over_seeds(lambda run: run.macro_f1),
        show=_one_decimal,
        spread=True,
    ),
    Column(
        key="forgetting_since_event",
        heading=("forgetting", "since event"),
        meaning="Forgetting that counts a class's accuracy only since its last drift.",
        value=_over_seeds(lambda run: run.forgetting_since_event),
        show=_one_decimal,
        spread=True,
    ),
    Column(
        key="backward_transfer",
        heading=("backward", "transfer"),
        meaning="What a task gained (or lost) since it was learned, in points.",
        value=_over_seeds(lambda run: run.backward_transfer),
        show=_one_decimal,
        spread=True,
    ),
    Column(
        key="ece",
        heading=("calibration", "error"),
        meaning="Expected gap between confidence and accuracy, a share between 0 and 1.",
        value=_over_seeds(lambda run: run.calibration.ece if run.calibration else None),
        show=lambda value: f"{value:.3f}",
        spread=True,
    ),
    Column(
        key="gradient_steps",
        heading=("gradient", "steps"),
        meaning="Updates of the network; a fair comparison looks at these too.",
        value=_over_seeds(lambda run: run.gradient_steps),
        show=compact,
    ),
)
"""Measures beside the main comparison, for the page and for CSV."""

NOT_ADAPTED = Column(
    key="not_adapted",
    heading=("not", "adapted"),
    meaning="Why the adaptation had nothing to act on; empty where it had.",
    value=lambda cell: cell.not_adapted or None,
    names_the_cell=True,
)

EVERYTHING = (*COMPARISON, *FURTHER, NOT_ADAPTED)
"""For machines: the same columns in every report."""

MARKED = ("adaptation", "faa")
"""Columns that carry the mark of a cell that was not adapted, for people."""

NAMES = tuple(column for column in COMPARISON if column.names_the_cell)


def for_people(cells: Sequence[Cell], columns: Sequence[Column] = COMPARISON) -> list[Column]:
    """The columns without those that would stay empty."""
    return [
        column
        for column in columns
        if not column.where_known or any(column.value(cell) is not None for cell in cells)
    ]
