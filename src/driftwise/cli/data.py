"""`driftwise data`: list, fetch, verify and show data sets."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from driftwise.cli.common import (
    add_command,
    add_output_flags,
    display,
    print_outcome,
    refuse_part_options,
)
from driftwise.datasets.catalogue import KNOWN, KnownSet, by_name, known_set, recognise
from driftwise.errors import UserError, unknown_name

if TYPE_CHECKING:
    from driftwise.datasets.own import TableOptions
    from driftwise.datasets.verify import Verification
    from driftwise.runs.display import Display
    from driftwise.types import Dataset

TABLE_COLUMNS = {
    "label": "the column of classes (default: label)",
    "domain": "the column of domains",
    "time": "the column of times, which are cut into periods",
}

SOUND, UNSOUND = 0, 1
"""Exit codes: no problem was found; one was."""


def add_data_command(commands: Any) -> None:
    """Register `data` and its actions with the subparsers of the command line."""
    summary = "data sets: what is known and here, fetch, verify, show"
    data = commands.add_parser("data", help=summary, description=summary)
    actions = data.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = add_command(actions, "list", _list, "every known data set: is it here, size, licence")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(quiet=False)

    fetch = add_command(actions, "fetch", _fetch, "download a data set into the user's data folder")
    fetchable = ", ".join(known.name for known in KNOWN.values() if known.files)
    fetch.add_argument("name", metavar="NAME", help=f"one of {fetchable}")

    verify = add_command(actions, "verify", _verify, "checksums, counts, images that do not decode")
    verify.add_argument("name", metavar="NAME|PATH", help="a known data set, or your own samples")

    show = add_command(
        actions,
        "show",
        _show,
        "a sheet: images by class, transform, severity and domain; vectors in two directions",
    )
    show.add_argument(
        "name", metavar="NAME|BENCHMARK|PATH", help="a data set, a benchmark, or your own samples"
    )
    show.add_argument("--out", type=Path, metavar="FILE.png", help="where to write (NAME.png)")
    show.add_argument(
        "--classes", type=int, default=10, metavar="N", help="classes on it (default: 10)"
    )
    show.add_argument("--size", type=int, metavar="N", help="side that your images are brought to")
    for action in (verify, show):
        action.add_argument(
            "--data", type=Path, metavar="PATH", help="where the known data set is, if elsewhere"
        )
        for column, what in TABLE_COLUMNS.items():
            action.add_argument(f"--{column}", metavar="NAME", help=f"your own table: {what}")
    for action in (fetch, verify, show):
        add_output_flags(action)


def _list(arguments: argparse.Namespace) -> int:
    from driftwise.datasets.library import status

    refuse_part_options(arguments)
    lines = status()
    rows = []
    for line in lines:
        known = line.known
        here = str(line.path) if line.path else "inside a package" if line.is_here else _how(known)
        size = line.bytes_on_disk or (None if line.is_here else known.download_bytes)
        rows.append(
            (known.name, ", ".join(known.benchmarks), _megabytes(size), known.licence, here)
        )
    table = _table(("name", "benchmarks", "size", "licence", "here"), rows, numbers=[2])
    print_outcome(arguments, [_as_json(line) for line in lines], table)
    return SOUND


def _how(known: KnownSet) -> str:
    return f"no: driftwise data fetch {known.name}" if known.files else "no: by hand"


def _as_json(line: Any) -> dict[str, Any]:
    known: KnownSet = line.known
    return {
        "name": known.name,
        "benchmark": known.benchmarks[0],
        "benchmarks": known.benchmarks,
        "summary": known.summary,
        "licence": known.licence,
        "homepage": known.homepage,
        "is_here": line.is_here,
        "path": None if line.path is None else str(line.path),
        "bytes_on_disk": line.bytes_on_disk,
        "can_be_fetched": bool(known.files),
        "download_bytes": known.download_bytes,
    }


def _fetch(arguments: argparse.Namespace) -> int:
    from driftwise.datasets.library import fetch

    refuse_part_options(arguments)
    name = known_set(arguments.name).name
    with display(arguments) as shown:
        path = fetch(name, progress=shown.progress)
    print_outcome(arguments, {"name": name, "path": str(path)}, f"{name} is in {path}")
    return SOUND


def _verify(arguments: argparse.Namespace) -> int:
    from driftwise.datasets.verify import verify, verify_own

    refuse_part_options(arguments)
    with display(arguments) as shown:
        if (known := by_name(arguments.name)) is not None:
            _refuse_columns(arguments, known)
            found = verify(known.name, arguments.data, progress=shown.progress)
        else:
            path = _own_path(arguments)
            found = verify_own(path, progress=shown.progress, **_columns(arguments))
    print_outcome(arguments, _verification_as_json(found), _verification_as_text(found))
    return SOUND if found.is_sound else UNSOUND


def _verification_as_json(found: Verification) -> dict[str, Any]:
    counts = None
    if found.counts is not None:
        counts = {
            part: dict(zip(found.class_names, numbers, strict=True))
            for part, numbers in found.counts.items()
        }
    return {
        "name": found.name,
        "path": None if found.path is None else str(found.path),
        "is_sound": found.is_sound,
        "problems": found.problems,
        "notes": found.notes,
        "right_checksums": found.right_sums,
        "counts": counts,
    }


def _verification_as_text(found: Verification) -> str:
    lines = [f"{found.name} in {found.path}" if found.path else found.name]
    if found.counts is not None:
        by_class = zip(found.class_names, *found.counts.values(), strict=True)
        total = ("total", *map(sum, found.counts.values()))
        rows = [(name, *(f"{count:,}" for count in counts)) for name, *counts in (*by_class, total)]
        numbers = range(1, len(found.counts) + 1)
        lines += [_table(("class", *found.counts), rows, numbers=numbers), ""]
    if found.right_sums:
        lines.append(f"official by their checksums: {', '.join(found.right_sums)}")
    lines += [f"note: {note}" for note in found.notes]
    lines += [f"problem: {problem}" for problem in found.problems]
    lines.append("sound" if found.is_sound else f"{len(found.problems)} problems")
    return "\n".join(lines)


def _show(arguments: argparse.Namespace) -> int:
    from driftwise.cli.contact_sheet import contact_sheet
    from driftwise.cli.vector_sheet import vector_sheet

    refuse_part_options(arguments)
    with display(arguments) as shown:
        name, dataset = _dataset(arguments, shown)
        if dataset.images.ndim == 1:
            raise UserError(f"{name} holds texts: a sheet shows images or feature vectors")
        draw = contact_sheet if dataset.images.ndim == 4 else vector_sheet
        out = draw(dataset, classes=arguments.classes, out=arguments.out or Path(f"{name}.png"))
    print_outcome(arguments, {"name": name, "sheet": str(out)}, f"the contact sheet: {out}")
    return SOUND


def _dataset(arguments: argparse.Namespace, shown: Display) -> tuple[str, Dataset]:
    """The data set that was asked for, and its name."""
    from driftwise.datasets.library import load
    from driftwise.datasets.own import load_own

    known, path, size = by_name(arguments.name), arguments.data, arguments.size
    if known is None:
        path = _own_path(arguments)
        known = recognise(path)
    if known is None:
        columns = _columns(arguments)
        own = load_own(path, size=size, progress=shown.progress, warn=shown.warn, **columns)
        return path.stem, own
    _refuse_columns(arguments, known)
    if size is not None:
        raise UserError(f"--size is for your own images; {known.name} has a size of its own")
    return known.name, load(known.name, path, progress=shown.progress, warn=shown.warn)


def _columns(arguments: argparse.Namespace) -> TableOptions:
    """The columns of a table that were named."""
    given = {name: getattr(arguments, name) for name in TABLE_COLUMNS}
    return cast("TableOptions", {name: value for name, value in given.items() if value is not None})


def _refuse_columns(arguments: argparse.Namespace, known: KnownSet) -> None:
    if given := [f"--{name}" for name in _columns(arguments)]:
        raise UserError(f"{given[0]} is for your own table; {known.name} has columns of its own")


def _own_path(arguments: argparse.Namespace) -> Path:
    """A path of the user's; one that is called like a data set must be written ./NAME."""
    if arguments.data is not None:
        raise UserError(f"--data goes with the name of a known data set; got {arguments.name!r}")
    path = Path(arguments.name).expanduser()
    if not path.exists():
        raise UserError(
            f"{unknown_name('data set', arguments.name, KNOWN)}, nor is there such a path"
        )
    return path.absolute()


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] | range
) -> str:
    """Aligned columns; `numbers` are those of numbers, aligned right."""
    from driftwise.report.table import Head, Item, Table

    items = [
        [Item(cell, None if column in numbers else cell) for column, cell in enumerate(row)]
        for row in rows
    ]
    heads = [Head(title=title) for title in titles]
    return Table(heads=heads, rows=items).text(width=10_000).rstrip("\n")


def _megabytes(size: int | None) -> str:
    """A size for people, nothing where it is not known.

    >>> _megabytes(None), _megabytes(3_000), _megabytes(12_345_678)
    ('', '< 1 MB', '12 MB')
    """
    if size is None:
        return ""
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else "< 1 MB"
