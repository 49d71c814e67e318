"""Figures of results, each as a matplotlib figure: `plot.accuracy("runs/demo").savefig("a.pdf")`.

Results are a folder of runs, several folders, `driftwise.results(...)`, what `driftwise.run` returned, or
a list of such dictionaries. The pages of `driftwise report` and `driftwise detect` draw by the same
functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from driftwise.errors import UserError, warn_caller
from driftwise.report import drift_figures, style
from driftwise.report.cells import Setting, group
from driftwise.report.facets import Drawing, place
from driftwise.report.parse import DamagedError, parse
from driftwise.report.read import find_runs
from driftwise.report.results import Results
from driftwise.report.saved_run import Run
from driftwise.report.setting_figures import DRAWERS, notes_of

__all__ = [
    "KINDS",
    "accuracy",
    "confusion",
    "cost",
    "drift",
    "harm",
    "matrix",
    "per_class",
    "radar",
    "reliability",
    "samples",
    "settings",
    "sweep",
    "theory",
    "verdicts",
]

KINDS = tuple(kind.replace("-", "_") for kind in DRAWERS)
"""The functions of this module that draw runs."""

AnyPath = str | os.PathLike[str]
AnyResults = AnyPath | Mapping[str, Any] | Results | Iterable[AnyPath | Mapping[str, Any]]


def settings(results: AnyResults) -> list[str]:
    """What can be compared: settings that differ in more than adaptation and detector, by title.

    Where there is more than one, the other functions take one of these titles, or its place, as
    `setting`.
    """
    return [each.title for each in group(_runs(results)).settings]


def accuracy(results: AnyResults, *, setting: str | int | None = None) -> Figure:
    """Mean accuracy over the tasks seen so far, after each task: a line per adaptation."""
    return _draw("accuracy", results, setting)


def matrix(results: AnyResults, *, setting: str | int | None = None) -> Figure:
    """Accuracy on each task (across) after each task (down), a heat map per adaptation."""
    return _draw("matrix", results, setting)


def per_class(results: AnyResults, *, setting: str | int | None = None) -> Figure:
    """Accuracy of each class after each task, a heat map per adaptation."""
    return _draw("per-class", results, setting)


def samples(results: AnyResults, *, setting: str | int | None = None) -> Figure:
    """Samples of drifted classes before and after the drift; only run folders hold them."""
    return _draw("samples", results, setting)


def verdicts(results: AnyResults, *, setting: str | int | None = None) -> Figure:
    """What the detector said of each class at each task, beside the truth."""
    return _draw("verdicts", results, setting)


def harm(results: AnyResults, *, setting: str | int | None = None) -> Figure:
    """Points of accuracy that each drift cost, with and without labels."""
    return _draw("harm", results, setting)


def confusion(results: AnyResults, *, setting: str | int | None = None) -> Figure:
    """True classes against predicted classes after the last task."""
    return _draw("confusion", results, setting)


def cost(results: AnyResults, *, setting: str | int | None = None) -> Figure:
    """Labels, seconds and FLOPs of each adaptation, as bars."""
    return _draw("cost", results, setting)


def radar(results: AnyResults, *, setting: str | int | None = None) -> Figure:
    """The three costs as multiples of those of full relearning."""
    return _draw("radar", results, setting)


def reliability(results: AnyResults, *, setting: str | int | None = None) -> Figure:
    """How often predictions are right, against how confident they are."""
    return _draw("reliability", results, setting)


def sweep(plan: AnyPath, *, features: bool = False) -> dict[str, Figure]:
    """The figures of a sweep or of a reproduced table, by name.

    Args:
        plan: the sweep's file, `FOLDER/sweeps/NAME.json`.
        features: whether maps of features are drawn, too, where runs have kept them (`keep_features`);
            with the extra `umap` that takes up to a minute.
    """
    from driftwise.report.sweeps import read_sweep
    from driftwise.reproduce.draw import published_faa
    from driftwise.reproduce.feature_maps import maps_of
    from driftwise.reproduce.figures import paper_drawings

    found = read_sweep(Path(plan))
    if not found.num_done:
        raise UserError(f"no run of {plan} is done yet; run the sweep first")
    maps = maps_of(found, warn_caller) if features else {}
    return _placed(lambda: paper_drawings(found, published=published_faa, features=maps or None))


def theory(measured: AnyPath | Mapping[str, Any]) -> dict[str, Figure]:
    """The figures of the measured theorems, by name.

    Args:
        measured: `theory.json` of `driftwise reproduce theory`, the file or its content.
    """
    from driftwise.reproduce.theory_figures import theory_drawings

    content = _content(measured, "theory.json")
    return _placed(lambda: theory_drawings(content))


def drift(report: Any) -> dict[str, Figure]:
    """The charts of a comparison of two data sets, by name.

    Args:
        report: what `DriftDetector.check` returned, or `report.json` of `driftwise detect`, the file or
            its content.
    """
    content = report.as_dict() if hasattr(report, "as_dict") else _content(report, "report.json")
    return _placed(lambda: drift_figures.drawings(content))


def _content(given: AnyPath | Mapping[str, Any], name: str) -> Mapping[str, Any]:
    from driftwise.files import LARGE, read_json, reason

    if isinstance(given, Mapping):
        return given
    try:
        found = read_json(Path(given), LARGE)
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise UserError(f"expected a {name}, but {given} cannot be read ({why})") from error
    if not isinstance(found, Mapping):
        raise UserError(f"expected the content of a {name}, got {type(found).__name__} in {given}")
    return found


def _draw(kind: str, results: AnyResults, chosen: str | int | None) -> Figure:
    setting = _chosen(group(_runs(results)).settings, chosen)
    styles = style.styles_of(cell.adaptation for cell in setting.cells)
    with matplotlib.rc_context(style.RC):
        drawing = DRAWERS[kind](setting, styles)
        if drawing is None:
            raise UserError(f"these runs hold nothing to draw for {kind.replace('-', '_')}")
        place(replace(drawing, notes=notes_of(setting, kind)))
    return drawing.figure


def _placed(drawings: Callable[[], Mapping[str, Drawing]]) -> dict[str, Figure]:
    with matplotlib.rc_context(style.RC):
        made = drawings()
        for drawing in made.values():
            place(drawing)
    return {kind: drawing.figure for kind, drawing in made.items()}


def _chosen(found: tuple[Setting, ...], chosen: str | int | None) -> Setting:
    titles = [each.title for each in found]
    if chosen is None and len(found) == 1:
        return found[0]
    if isinstance(chosen, int) and -len(found) <= chosen < len(found):
        return found[chosen]
    if chosen in titles:
        return found[titles.index(str(chosen))]
    given = "none was chosen" if chosen is None else f"got setting={chosen!r}"
    listed = "; ".join(titles[:20]) + ("; ..." if len(titles) > 20 else "")
    raise UserError(
        f"expected one of {len(found)} settings, but {given}; give setting= a title or its place: "
        f"{listed}"
    )


def _runs(results: AnyResults) -> tuple[Run, ...]:
    if isinstance(results, Results):
        return results.saved
    if isinstance(results, str | os.PathLike):
        return find_runs([Path(results)]).runs
    each = [results] if isinstance(results, Mapping) else list(results)
    folders = [Path(one) for one in each if isinstance(one, str | os.PathLike)]
    runs = [_parsed(one, place) for place, one in enumerate(each) if isinstance(one, Mapping)]
    if len(folders) + len(runs) < len(each) or not each:
        kinds = sorted({type(one).__name__ for one in each}) or ["nothing"]
        raise UserError(
            "expected folders of runs, driftwise.results(...) or results of runs; got "
            f"{', '.join(kinds)}"
        )
    return (*(find_runs(folders).runs if folders else ()), *runs)


def _parsed(result: Mapping[str, Any], place: int) -> Run:
    try:
        return parse(result, Path(f"result {place + 1}"))
    except DamagedError as error:
        raise UserError(f"result {place + 1} is not that of a finished run: it {error}") from error
