"""From a sweep's plan and whatever of its runs is done: tables, figures, the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driftwise.datasets.reading import Progress
from driftwise.errors import UserError
from driftwise.files import folder_in, replacing
from driftwise.report.markup import Markup
from driftwise.report.sweeps import SWEEPS, Place, Sweep, read_sweep

Warn = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What was written."""

    files: tuple[Path, ...]
    text: str
    """for a terminal"""
    page: Path | None = None


def draw(file: Path, warn: Warn) -> Drawn:
    """Tables and figures of one sweep into its folder, and the page over all sweeps beside it.

    `warn` is called with a line about everything that is left out.
    """
    # Late, because loading matplotlib takes a second.
    from driftwise.report.index_page import write_index

    sweep = read_sweep(file)
    out = file.parent.parent
    forms, fragment = _tables(sweep)
    contents = {f"table.{ending}": text.encode() for ending, text in forms.items()}
    contents |= _figures(sweep, warn)
    # By its file's name: the one that a plan gives itself could lead out of the folder.
    files = [_write(out, f"{file.stem}/{name}", content) for name, content in contents.items()]
    others = [each for each in all_sweeps(out, warn) if each.name != sweep.name]
    fragments = {each.name: _tables(each)[1] for each in others} | {sweep.name: fragment}
    page = write_index(out, [sweep, *others], fragments=fragments)
    return Drawn(page=page, files=tuple(files), text=forms["txt"])


def draw_claims(out: Path, warn: Warn) -> Drawn:
    """The paper's claims beside the results of the sweeps in a folder."""
    from driftwise.reproduce.claims import claims, forms_of

    sweeps = all_sweeps(out, warn)
    if not sweeps:
        raise UserError(f"{out} holds no sweeps yet; reproduce a table into it first")
    forms = forms_of(claims(sweeps))
    files = [
        _write(out, f"claims/claims.{ending}", text.encode()) for ending, text in forms.items()
    ]
    return Drawn(files=tuple(files), text=forms["txt"])


def draw_leaderboard(out: Path, warn: Warn) -> Drawn:
    """All entries of the sweeps in a folder, ranked."""
    from driftwise.reproduce.leaderboard import board

    table = board(all_sweeps(out, warn))
    forms = {"txt": table.text(), "md": table.markdown(), "csv": table.csv()}
    files = [
        _write(out, f"leaderboard/leaderboard.{ending}", text.encode())
        for ending, text in forms.items()
    ]
    return Drawn(files=tuple(files), text=forms["txt"])


def draw_theory(
    out: Path, benchmark: str, seeds: Sequence[int], progress: Progress | None
) -> Drawn:
    """The theorems, measured on a network that is trained for it."""
    from driftwise.config.benchmarks import Notify
    from driftwise.reproduce.theory import reproduce_theory

    folder = folder_in(out, f"theory-{benchmark}")
    files = reproduce_theory(folder, benchmark, seeds, Notify(progress=progress))
    return Drawn(files=tuple(files), text="\n".join(map(str, files)))


def all_sweeps(out: Path, warn: Warn) -> list[Sweep]:
    """Every sweep in a folder of them, by name; one that cannot be read is left out with a warning."""
    found = []
    for file in sorted((out / SWEEPS).glob("*.json")):
        try:
            found.append(read_sweep(file))
        except UserError as error:
            warn(f"{error}; it is left out")
    return found


def _tables(sweep: Sweep) -> tuple[dict[str, str], Markup]:
    """A sweep's table by the ending of its file, and as a fragment of a page."""
    from driftwise.reproduce import paper_table as tables

    if sweep.reproduces == "detector-errors":
        short = exact = page = tables.detector_table(sweep)
        csv = tables.detector_csv(sweep)
    else:
        table = tables.paper_table(sweep)
        short, exact = (tables.like_the_paper(table, decimals=decimals) for decimals in (1, 2))
        page = tables.cell_by_cell(table)
        csv = page.csv()
    forms = {"txt": short.text(), "csv": csv, "md": exact.markdown(), "tex": exact.latex()}
    return forms, page.html()


def _figures(sweep: Sweep, warn: Warn) -> dict[str, bytes]:
    from driftwise.reproduce.feature_maps import maps_of
    from driftwise.reproduce.figures import draw_paper_figures

    if not sweep.num_done:
        return {}
    features = maps_of(sweep, warn) or None
    images = draw_paper_figures(sweep, published=published_faa, features=features)
    return {
        f"figures/{image.kind}.{ending}": content
        for image in images
        for ending, content in image.files.items()
    }


def published_faa(place: Place) -> float | None:
    """The published accuracy of a place in a grid; None: there is none."""
    from driftwise.reproduce.published import find

    try:
        cell = find(
            benchmark=str(place["benchmark"]),
            buffer_size=int(place["buffer_size"] or 0),
            method=str(place.get("method", "er")),
            adaptation=str(place["adaptation"]),
            num_drifts=int(place["num_drifts"] or 0),
            backbone=str(place.get("backbone", "resnet18")),
        )
    except KeyError:
        return None
    return None if cell is None else cell.faa


def _write(out: Path, name: str, content: bytes) -> Path:
    folder, _, last = name.rpartition("/")
    path = folder_in(out, folder) / last
    with replacing(path) as file:
        file.write(content)
    return path
