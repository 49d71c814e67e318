"""From a sweep's plan and whatever of its runs is done: tables, figures, the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driftwise.datasets.reading import Progress
from driftwise.errors import UserError
from driftwise.files import folder_in, replacing
from driftwise.report.sweeps import SWEEPS, Place, Sweep, read_sweep

Warn = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What was written."""

    files: tuple[Path, ...]
    text: str
    """for a terminal"""
    page: Path | None = None


@dataclass(frozen=True, kw_only=True)
class _Table:
    """A sweep's table in every form."""

    text: str
    forms: Mapping[str, str]
    """by the ending of its file"""
    html: str


def draw(file: Path, warn: Warn) -> Drawn:
    """Tables and figures of one sweep into its folder, and the page over all sweeps beside it.

    What has to be left out is told to `warn`.
    """
    # Late, because loading matplotlib takes a second.
    from driftwise.report.index.page import write_index

    sweep = read_sweep(file)
    out = file.parent.parent
    table = _table(sweep)
    contents = {f"table.{ending}": text.encode() for ending, text in table.forms.items()}
    contents |= _figures(sweep, warn)
    # By its file's name: the one that a plan gives itself could lead out of the folder.
    files = [_write(out, f"{file.stem}/{name}", content) for name, content in contents.items()]
    others = [each for each in all_sweeps(out, warn) if each.name != sweep.name]
    fragments = {each.name: _table(each).html for each in others} | {sweep.name: table.html}
    page = write_index(out, [sweep, *others], fragments=fragments)
    return Drawn(page=page, files=tuple(files), text=table.text)


def draw_claims(out: Path, warn: Warn) -> Drawn:
    """What the paper claims beside what the sweeps in a folder say."""
    from driftwise.reproduce import claims_render
    from driftwise.reproduce.claims import claims

    sweeps = all_sweeps(out, warn)
    if not sweeps:
        raise UserError(f"{out} holds no sweeps yet; reproduce a table into it first")
    found = claims(sweeps)
    text = claims_render.as_text(found)
    forms = {
        "txt": text,
        "md": claims_render.as_markdown(found),
        "csv": claims_render.as_csv(found),
        "html": claims_render.as_html(found),
    }
    files = [
        _write(out, f"claims/claims.{ending}", content.encode())
        for ending, content in forms.items()
    ]
    return Drawn(files=tuple(files), text=text)


def draw_theory(
    out: Path, benchmark: str, seeds: Sequence[int], progress: Progress | None
) -> Drawn:
    """The theorems, measured on a network that is trained for it."""
    from driftwise.config.benchmarks import Tell
    from driftwise.reproduce.theory import reproduce_theory

    folder = folder_in(out, f"theory-{benchmark}")
    files = reproduce_theory(folder, benchmark, seeds, Tell(progress=progress))
    return Drawn(files=tuple(files), text="\n".join(map(str, files)))


def all_sweeps(out: Path, warn: Warn) -> list[Sweep]:
    """Every sweep in a folder of them, by name; one that cannot be read is told and left out."""
    found = []
    for file in sorted((out / SWEEPS).glob("*.json")):
        try:
            found.append(read_sweep(file))
        except UserError as error:
            warn(f"{error}; it is left out")
    return found


def _table(sweep: Sweep) -> _Table:
    from driftwise.report import sheet
    from driftwise.reproduce import detector_table, render
    from driftwise.reproduce.table import paper_table

    if sweep.reproduces == "detector-errors":
        made = detector_table.detector_table(sweep)
        return _Table(
            text=sheet.as_text(made),
            forms={
                "txt": sheet.as_text(made),
                "csv": detector_table.as_csv(sweep),
                "md": sheet.as_markdown(made),
                "tex": sheet.as_latex(made),
            },
            html=sheet.as_html(made),
        )
    table = paper_table(sweep)
    text = render.as_text(table)
    return _Table(
        text=text,
        forms={
            "txt": text,
            "csv": render.as_csv(table),
            "md": render.as_markdown(table),
            "tex": render.as_latex(table),
        },
        html=render.as_html(table),
    )


def _figures(sweep: Sweep, warn: Warn) -> dict[str, bytes]:
    from driftwise.reproduce.feature_maps import maps_of
    from driftwise.reproduce.figures import draw_paper_figures

    if not sweep.num_done:
        return {}
    features = maps_of(sweep, warn) or None
    images = draw_paper_figures(sweep, published=_published, features=features)
    return {
        f"figures/{image.kind}.{ending}": content
        for image in images
        for ending, content in (("png", image.png), ("svg", image.svg))
    }


def _published(place: Place) -> float | None:
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
