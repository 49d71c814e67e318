"""Accuracy as a function of how often a detector is right: true- and false-positive rates."""

from __future__ import annotations

from collections.abc import Mapping

from driftwise.errors import UserError
from driftwise.report.cells import Cell, mark, place_of
from driftwise.report.columns import compact
from driftwise.report.sweeps import Sweep
from driftwise.report.table import MISSING, Head, Item, Table, csv_text
from driftwise.reproduce.paper_table import Value, paper_table

RATES = ("tpr", "fpr")


def detector_table(sweep: Sweep) -> Table:
    """Mean FAA by true-positive rate (rows) and false-positive rate (columns), per adaptation."""
    cells = _cells(sweep)
    table = paper_table(sweep)
    names = [key for key in table.keys if key not in (*RATES, "adaptation", "num_drifts")]
    if len(table.drifts) > 1:
        names.append("num_drifts")
    names.append("adaptation")
    columns = sorted({float(place["fpr"] or 0) for place, _ in cells})
    rows: dict[tuple[Value, ...], dict[float, Cell | None]] = {}
    for place, cell in cells:
        row = (*(place.get(key) for key in names), float(place["tpr"] or 0))
        rows.setdefault(row, {})[float(place["fpr"] or 0)] = cell
    ordered = sorted(rows, key=lambda row: (*map(str, row[:-2]), place_of(str(row[-2])), row[-1]))
    heads = [Head(title=key.replace("_", " "), is_name=True) for key in (*names, "TPR")]
    heads += [Head(title=f"FPR {rate:g}", group="FAA ± sd") for rate in columns]
    return Table(
        title=f"{table.title}: accuracy by the detector's rates",
        about=table.about,
        heads=heads,
        rows=[
            [
                *(Item(_text(name), name) for name in row),
                *(_item(rows[row], rate) for rate in columns),
            ]
            for row in ordered
        ],
        breaks={
            index
            for index in range(1, len(ordered))
            if ordered[index][:-1] != ordered[index - 1][:-1]
        },
        notes=table.notes,
    )


def as_csv(sweep: Sweep) -> str:
    """One line per cell, nothing rounded: rates asked for and reached, accuracy, labels."""
    cells = _cells(sweep)
    keys = list(dict.fromkeys(key for place, _ in cells for key in place))
    reached = ("tpr_reached", "fpr_reached", "labels_adaptation")
    header = ["sweep", "scale", *keys, "seeds", "faa", "faa_sd", *reached, "not_adapted"]
    lines: list[list[object]] = [[*header]]
    for place, cell in cells:
        line: list[object] = [sweep.name, sweep.scale, *(place.get(key) for key in keys)]
        lines.append(line + ([0] + [None] * 6 if cell is None else _numbers(cell)))
    return csv_text(lines)


def _numbers(cell: Cell) -> list[object]:
    faa = cell.stat(lambda run: run.faa)
    return [
        len(cell.runs),
        *((None, None) if faa is None else (faa.mean, faa.sd)),
        cell.mean(lambda run: run.detection.get("tpr")),
        cell.mean(lambda run: run.detection.get("fpr")),
        cell.mean(lambda run: run.labels.get("adaptation")),
        cell.not_adapted,
    ]


def _cells(sweep: Sweep) -> list[tuple[Mapping[str, Value], Cell | None]]:
    cells = [(place, cell) for place, cell in sweep.cells() if {*RATES} <= {*place}]
    if not cells:
        raise UserError(
            f"expected a sweep over the rates {' and '.join(RATES)} of a detector, but the grid of "
            f"{sweep.name} has neither; choose another sweep"
        )
    return cells


def _item(row: Mapping[float, Cell | None], rate: float) -> Item:
    if rate not in row:
        return Item(MISSING)
    cell = row[rate]
    faa = None if cell is None else cell.stat(lambda run: run.faa)
    if faa is None:
        return Item("not run")
    spread = "" if faa.sd is None else f" ± {faa.sd:.1f}"
    return Item(f"{faa.mean:.1f}{spread}{mark(cell)}", faa.mean)


def _text(value: Value) -> str:
    return compact(value) if isinstance(value, float) else str(value)
