"""Tables, figures and a page from saved results, without the packages that made them."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driftwise.errors import UserError
from driftwise.files import Manifest, reason, refuse_links, replacing
from driftwise.report.cells import Setting, group
from driftwise.report.comparison import comparison, comparison_csv, comparison_text
from driftwise.report.read import find_runs
from driftwise.report.words import cautions

__all__ = ["Report", "write_report"]

MOST_SETTINGS = 40
"""Settings whose figures are drawn; a setting takes some seconds."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Where everything is."""

    page: Path
    figures: tuple[Path, ...]
    """each figure as PNG, SVG and PDF"""
    table: str
    """the comparison, for a terminal"""
    warnings: tuple[str, ...] = ()
    """one line for each run that was left out, and for each thing that runs warn of"""


AnyPath = str | os.PathLike[str]


def write_report(paths: AnyPath | Iterable[AnyPath], out: AnyPath) -> Report:
    """Read the runs in a folder, or in several, and write page, figures and tables into `out`.

    Everything is drawn before anything is written, and each file appears whole or not at all; the
    page comes last. Then the figures of an earlier report in the same place go.

    >>> import tempfile, driftwise
    >>> folder = tempfile.mkdtemp()
    >>> config = driftwise.RunConfig(num_tasks=2, max_per_class=40, epochs=1, num_drifts=0)
    >>> result = driftwise.run(config, folder + "/run")
    >>> report = write_report(folder, folder + "/report")
    >>> print(report.page.name, *sorted({figure.suffix for figure in report.figures}))
    index.html .pdf .png .svg
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    out = Path(out)
    found = find_runs([Path(path) for path in given])
    grouped = group(found.runs)
    settings = grouped.settings
    left_out = (*found.warnings, *grouped.warnings)
    known = cautions(grouped.runs)
    _make_writable(out)

    # Late, because loading matplotlib takes a second that the tables alone need not wait for.
    from driftwise.report.page import Drawn, build_page
    from driftwise.report.setting_figures import draw_all
    from driftwise.report.style import styles_of

    styles = styles_of(cell.adaptation for cell in grouped.cells)
    shown = settings[:MOST_SETTINGS]
    if len(shown) < len(settings):
        left_out = (
            *left_out,
            f"figures are drawn for the first {len(shown)} of {len(settings)} settings; for "
            "others, make a report of their runs alone",
        )
    figures: dict[str, bytes] = {}
    drawn: list[Drawn] = []
    for slug, setting in zip(_slugs(shown), shown, strict=True):
        images = {f"figures/{slug}-{each.kind}": each for each in draw_all(setting, styles)}
        for name, image in images.items():
            figures |= {f"{name}.{ending}": each for ending, each in image.files.items()}
        drawn.append(Drawn(setting=setting, images=images))
    texts = {
        "table.csv": comparison_csv(settings),
        "table.md": comparison(settings, name_setting=True).markdown(),
        "index.html": build_page(settings, drawn, left_out=left_out, cautions=known),
    }
    drawn_now = {Path(name).name for name in figures}
    manifest = Manifest(out, "figures")
    manifest.add(drawn_now)
    _write(out, {**figures, **{name: text.encode() for name, text in texts.items()}})
    manifest.remove(manifest.names() - drawn_now)
    return Report(
        page=out / "index.html",
        figures=tuple(out / name for name in figures),
        table=comparison_text(settings),
        warnings=(*left_out, *known),
    )


def _slugs(settings: Sequence[Setting]) -> list[str]:
    """A file name's beginning for each setting, all different."""
    slugs: list[str] = []
    for setting in settings:
        run = setting.first
        names = [run.benchmark[:30], run.method[:20], f"b{run.buffer_size or 0}"]
        words = "-".join([*names, f"d{run.num_drifts}", setting.variant])
        slug = re.sub(r"[^A-Za-z0-9+-]+", "-", words).strip("-")[:80]
        slugs.append(slug if slug not in slugs else f"{slug}-{len(slugs) + 1}")
    return slugs


def _make_writable(out: Path) -> None:
    """Find out before the work, not after it, that nothing can be written."""
    refuse_links(out, out / "figures")
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for folder in (out, out / "figures"):
            with tempfile.TemporaryFile(dir=folder):
                pass
    except OSError as error:
        raise UserError(
            f"expected a folder to write the report into, but {out} cannot be written "
            f"({reason(error)}); choose another folder"
        ) from error


def _write(out: Path, contents: Mapping[str, bytes]) -> None:
    """Each file in one step, in the given order."""
    for name, content in contents.items():
        with replacing(out / name) as file:
            file.write(content)
