"""`driftwise data`: list, fetch, verify and show data sets."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwise.config.flags import refuse_part_options
from driftwise.datasets.catalogue import KNOWN, KnownSet, by_name, known_set, recognise
from driftwise.errors import UserError, unknown_name

if TYPE_CHECKING:
    from driftwise.datasets.verify import Verification
    from driftwise.runs.stages import Stages
    from driftwise.types import Dataset

SOUND, UNSOUND = 0, 1
"""Exit codes: nothing is wrong; something is."""


def add_data_command(commands: Any) -> None:
    """Register `data` and its actions with the subparsers of the command line."""
    summary = "data sets: what is known and here, fetch, verify, show"
    data = commands.add_parser("data", help=summary, description=summary)
    actions = data.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = _add(actions, "list", _list, "every known data set: is it here, size, licence")
    listing.add_argument("--json", action="store_true", help="as JSON")

    fetch = _add(actions, "fetch", _fetch, "download a data set into the user's data folder")
    fetch.add_argument("name", metavar="NAME", help=f"one of {', '.join(_fetchable())}")
    _add_output_flags(fetch)

    verify = _add(actions, "verify", _verify, "checksums, counts, images that do not decode")
    verify.add_argument("name", metavar="NAME|PATH", help="a known data set, or images of yours")
    _add_data_flag(verify)
    _add_output_flags(verify)

    show = _add(actions, "show", _show, "a contact sheet: classes, transforms, severities, domains")
    show.add_argument(
        "name", metavar="NAME|BENCHMARK|PATH", help="a data set, a benchmark, or images of yours"
    )
    _add_data_flag(show)
    show.add_argument("--out", type=Path, metavar="FILE.png", help="where to write (NAME.png)")
    show.add_argument(
        "--classes", type=int, default=10, metavar="N", help="classes on it (default: 10)"
    )
    show.add_argument(
        "--size", type=int, metavar="N", help="side that images of yours are brought to"
    )
    _add_output_flags(show)


def _add(actions: Any, name: str, call: Any, summary: str) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary)
    added.set_defaults(call=call)
    return added


def _add_data_flag(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--data", type=Path, metavar="PATH", help="where the known data set lies, if elsewhere"
    )


def _add_output_flags(action: argparse.ArgumentParser) -> None:
    action.add_argument("--quiet", action="store_true", help="print errors and damage only")
    action.add_argument("--json", action="store_true", help="print the outcome as JSON")


def _fetchable() -> list[str]:
    return [known.name for known in KNOWN.values() if known.files]


def _list(arguments: argparse.Namespace) -> int:
    from driftwise.datasets.library import status

    refuse_part_options(arguments)
    lines = status()
    if arguments.json:
        print(json.dumps([_as_json(line) for line in lines], indent=1))
        return SOUND
    rows = [("name", "benchmark", "size", "licence", "here")]
    for line in lines:
        known = line.known
        here = str(line.path) if line.path else "inside a package" if line.is_here else _how(known)
        size = line.bytes_on_disk or (None if line.is_here else known.download_bytes)
        rows.append((known.name, known.benchmark, _megabytes(size), known.licence, here))
    _print_text(table(rows, right=[2]))
    return SOUND


def _how(known: KnownSet) -> str:
    return f"no: driftwise data fetch {known.name}" if known.files else "no: by hand"


def _as_json(line: Any) -> dict[str, Any]:
    known: KnownSet = line.known
    return {
        "name": known.name,
        "benchmark": known.benchmark,
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
    with _stages(arguments) as stages:
        path = fetch(name, progress=stages.progress)
    _print(arguments, {"name": name, "path": str(path)}, f"{name} is in {path}")
    return SOUND


def _verify(arguments: argparse.Namespace) -> int:
    from driftwise.datasets.verify import verify, verify_own

    refuse_part_options(arguments)
    with _stages(arguments) as stages:
        if (known := by_name(arguments.name)) is not None:
            found = verify(known.name, arguments.data, progress=stages.progress)
        else:
            _refuse_data(arguments)
            found = verify_own(_own_path(arguments.name), progress=stages.progress)
    _print(arguments, _verification_as_json(found), _verification_as_text(found))
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
    place = f" in {found.path}" if found.path else ""
    lines = [f"{found.name}{place}"]
    if found.counts is not None:
        parts = list(found.counts)
        rows = [["class", *parts]]
        for label, name in enumerate(found.class_names):
            rows.append([name, *(f"{found.counts[part][label]:,}" for part in parts)])
        rows.append(["total", *(f"{sum(found.counts[part]):,}" for part in parts)])
        lines += [table(rows, right=range(1, len(parts) + 1)), ""]
    if found.right_sums:
        lines.append(f"official by their checksums: {', '.join(found.right_sums)}")
    lines += [f"note: {note}" for note in found.notes]
    lines += [f"problem: {problem}" for problem in found.problems]
    lines.append("sound" if found.is_sound else f"{len(found.problems)} problems")
    return "\n".join(lines)


def _show(arguments: argparse.Namespace) -> int:
    from driftwise.cli.contact_sheet import contact_sheet

    refuse_part_options(arguments)
    with _stages(arguments) as stages:
        name, dataset = _dataset(arguments, stages)
        out = contact_sheet(
            dataset, classes=arguments.classes, out=arguments.out or Path(f"{name}.png")
        )
    _print(arguments, {"name": name, "sheet": str(out)}, f"the contact sheet: {out}")
    return SOUND


def _dataset(arguments: argparse.Namespace, stages: Stages) -> tuple[str, Dataset]:
    """The data set that was asked for, and what to call it."""
    from driftwise.datasets.library import load
    from driftwise.datasets.own import load_own

    known, path = by_name(arguments.name), arguments.data
    if known is None:
        _refuse_data(arguments)
        path = _own_path(arguments.name)
        known = recognise(path)
    if known is not None:
        if arguments.size is not None:
            raise UserError(f"--size is for images of yours; {known.name} has a size of its own")
        return known.name, load(known.name, path, progress=stages.progress, warn=stages.warn)
    size = arguments.size
    return path.stem, load_own(path, size=size, progress=stages.progress, warn=stages.warn)


def _own_path(text: str) -> Path:
    """A path of the user's; one that is called like a data set must be written ./NAME."""
    path = Path(text).expanduser()
    if not path.exists():
        raise UserError(f"{unknown_name('data set', text, KNOWN)}, nor is there such a path")
    return path.absolute()


def _refuse_data(arguments: argparse.Namespace) -> None:
    if arguments.data is not None:
        raise UserError(f"--data goes with the name of a known data set; got {arguments.name!r}")


def _stages(arguments: argparse.Namespace) -> Stages:
    from rich.console import Console

    from driftwise.runs.stages import Stages

    # On the error stream, so that the outcome can be piped.
    return Stages(Console(stderr=True, quiet=arguments.quiet))


def _print(arguments: argparse.Namespace, outcome: dict[str, Any], text: str) -> None:
    if arguments.json:
        print(json.dumps(outcome, indent=1))
    elif not arguments.quiet:
        _print_text(text)


def _print_text(text: str) -> None:
    """Print what may hold the name of a file, which may be none in the terminal's letters."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] | range = ()) -> str:
    """Cells in aligned columns, the first row a heading; `right` names columns of numbers.

    >>> print(table([("class", "train"), ("cat", "12"), ("a dog", "3")], right=[1]))
    class  train
    -----  -----
    cat       12
    a dog      3
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ruled = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in ruled
    )


def _megabytes(size: int | None) -> str:
    """A size for people, nothing where it is not known.

    >>> _megabytes(None), _megabytes(3_000), _megabytes(12_345_678)
    ('', '< 1 MB', '12 MB')
    """
    if size is None:
        return ""
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else "< 1 MB"
