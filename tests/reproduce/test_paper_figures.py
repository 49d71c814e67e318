"""Figures of a sweep: what they show, their gaps, and that nothing is cut or overlaps."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from figure_checks import check_drawn_and_uncut, check_no_overlap
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from report_builders import small_result, write_run

from driftwise.report.facets import Drawing, lay_out
from driftwise.report.style import DRIFT, RC, Styles, styles_of
from driftwise.report.sweeps import Sweep, read_sweep
from driftwise.reproduce.cost_figures import cost_scatter, radar_grid, spread_out
from driftwise.reproduce.feature_maps import FeatureMap, draw_feature_maps
from driftwise.reproduce.figures import (
    accuracy_grid,
    detector_map,
    draw_paper_figures,
    gain_bars,
    paired_gain,
    severity_panels,
)
from driftwise.reproduce.places import MAX_COLUMNS, Group, grid_points, groups_of

Place = dict[str, Any]
FAA = {"vanilla": 50.0, "fr": 80.0, "amr": 75.0}
ASKED = {"vanilla": 0, "fr": 400, "amr": 20}
NOTE = "tiny images, one epoch"


def grid(
    *,
    methods: Iterable[str] = ("er", "der++"),
    buffers: Iterable[int] = (500, 5000),
    drifts: Iterable[int] = (1,),
    adaptations: Iterable[str] = ("vanilla", "fr", "amr"),
    seeds: int = 2,
    **more: Any,
) -> list[Place]:
    """vanilla without drift, and everything with."""
    return [
        {
            "benchmark": "toy-cd",
            "method": method,
            "adaptation": adaptation,
            "buffer_size": buffer,
            "num_drifts": count,
            "seed": seed,
            **more,
        }
        for buffer in buffers
        for method in methods
        for adaptation, count in [("vanilla", 0), *((a, d) for d in drifts for a in adaptations)]
        for seed in range(seeds)
    ]


def sweep_of(
    folder: Path,
    places: Sequence[Place],
    *,
    is_done: Callable[[Place], bool] = lambda _: True,
    faa: Callable[[Place], float] = lambda place: FAA[place["adaptation"]] + place["seed"],
) -> Sweep:
    """A sweep as it lies on disk; its buffers are a tenth of the nominal ones."""
    runs = []
    for number, place in enumerate(places):
        runs.append({"id": f"r{number}", "place": place, "config": {}})
        if not is_done(place):
            continue
        end = faa(place)
        result = small_result(
            benchmark="toy-cd",
            method=place.get("method", "er"),
            adaptation=place["adaptation"],
            buffer_size=place.get("buffer_size", 500) // 10,
            num_drifts=place.get("num_drifts", 1),
            seed=place["seed"],
            faa=end,
            accuracy_matrix=[[90.0, None], [end, end]],
            labels={"stream": 200, "monitoring": 40, "adaptation": ASKED[place["adaptation"]]},
            drift_events=[
                {"task": 2, "classes": [0, 1], "transform": "permutation", "severity": 5}
            ][: place.get("num_drifts", 1)],
        )
        write_run(folder / "runs" / f"r{number}", result)
    plan = {
        "format": 1,
        "name": "toy",
        "reproduces": None,
        "scale": {"name": "smoke", "note": NOTE},
        "grid": {},
        "runs": runs,
    }
    file = folder / "sweeps" / "toy.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(plan))
    return read_sweep(file)


def severity_grid() -> list[Place]:
    undrifted = grid(methods=["er"], buffers=[500], drifts=[], transform=None, severity=None)
    return undrifted + [
        {**place, "transform": transform, "severity": severity}
        for transform in ("rotation", "shot-noise")
        for severity in (1, 2, 3)
        for place in grid(methods=["er"], buffers=[500])
        if place["num_drifts"]
    ]


def error_grid() -> list[Place]:
    reference = grid(methods=["er"], buffers=[500], adaptations=["vanilla"], tpr=None, fpr=None)
    return reference + [
        {**place, "tpr": tpr, "fpr": fpr}
        for tpr in (0.5, 1.0)
        for fpr in (0.0, 0.1, 0.2)
        for place in grid(methods=["er"], buffers=[500], adaptations=["amr"])
        if place["num_drifts"]
    ]


STYLES: Styles = styles_of(FAA)


def texts(drawing: Drawing) -> str:
    """All that is written on a figure."""
    parts = [text.get_text() for text in drawing.figure.texts]
    for panel in drawing.figure.axes:
        parts += [text.get_text() for text in panel.texts]
        parts += [panel.get_title(), panel.get_title(loc="left"), panel.get_xlabel()]
        parts += [label.get_text() for label in panel.get_xticklabels()]
    return "\n".join(parts)


def only_group(sweep: Sweep) -> Group:
    (group,) = groups_of(grid_points(sweep))
    return group


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_of(tmp_path_factory.mktemp("sweep"), grid())


def test_a_table_gives_curves_gains_and_costs_with_scale_and_buffers(whole: Sweep) -> None:
    images = draw_paper_figures(whole)
    kinds = ["accuracy-toy-cd-d1", "gain-toy-cd", "cost-toy-cd-d1", "radar-toy-cd-d1"]
    assert [image.kind for image in images] == kinds
    check_drawn_and_uncut(*images)
    for image in images:
        assert f"Scale smoke: {NOTE}. Buffers: 50 samples for 500, 500 samples for 5,000." in (
            image.caption
        )


def test_every_figure_has_the_scale_printed_on_it_and_no_texts_overlap(
    whole: Sweep, tmp_path: Path
) -> None:
    group = only_group(whole)
    severe = sweep_of(tmp_path / "severe", severity_grid())
    erring = sweep_of(tmp_path / "erring", error_grid())
    drawings = [
        accuracy_grid(group, whole, STYLES),
        gain_bars([group], whole, STYLES),
        cost_scatter(group, whole, STYLES),
        radar_grid(group, whole, STYLES),
        severity_panels(grid_points(severe), severe, STYLES),
        detector_map([s for s in grid_points(erring) if s.num_drifts], erring),
    ]
    with matplotlib.rc_context(RC):
        for drawing in drawings:
            assert drawing is not None
            lay_out(drawing)
            printed = drawing.figure.get_supxlabel().replace("\n", " ")
            assert f"Scale smoke: {NOTE}." in printed, drawing.title
            assert "runs of the sweep are done" in printed
            check_no_overlap(drawing.figure)


UNFINISHED: list[tuple[dict[str, Any], Callable[[Place], bool], list[str]]] = [
    ({"methods": ["er"]}, lambda p: p["adaptation"] != "vanilla", ["accuracy", "cost", "radar"]),
    (
        {},
        lambda p: (p["buffer_size"], p["adaptation"]) == (500, "amr"),
        ["accuracy", "cost", "radar"],
    ),
    (
        {"seeds": 1, "buffers": [500]},
        lambda p: p["method"] == "er",
        ["accuracy", "gain", "cost", "radar"],
    ),
    ({"methods": ["er"]}, lambda p: not p["num_drifts"], []),
    ({}, lambda _: False, []),
    ({"drifts": []}, lambda _: True, ["accuracy"]),
]


@pytest.mark.parametrize(("changes", "is_done", "kinds"), UNFINISHED)
def test_unfinished_sweeps_are_drawn_with_gaps(
    tmp_path: Path, changes: dict[str, Any], is_done: Callable[[Place], bool], kinds: list[str]
) -> None:
    images = draw_paper_figures(sweep_of(tmp_path, grid(**changes), is_done=is_done))
    check_drawn_and_uncut(*images)
    assert [image.kind.split("-")[0] for image in images] == kinds
    if changes.get("drifts") == []:
        assert images[0].kind == "accuracy-toy-cd-d0"
        assert "Nothing drifts" in images[0].caption


def test_missing_cells_are_named_where_they_are_missing(tmp_path: Path) -> None:
    """A panel of which nothing has run stays where its method and its buffer have others."""

    def remarks(name: str, is_done: Callable[[Place], bool]) -> tuple[Drawing, list[list[str]]]:
        sweep = sweep_of(tmp_path / name, grid(), is_done=is_done)
        drawing = accuracy_grid(only_group(sweep), sweep, STYLES)
        return drawing, [[text.get_text() for text in p.texts] for p in drawing.figure.axes]

    _, found = remarks("panel", lambda p: (p["method"], p["buffer_size"]) != ("der++", 500))
    assert found == [[], ["not run yet"], [], []]
    drawing, found = remarks(
        "cell",
        lambda p: p["method"] == "er" and (p["adaptation"], p["buffer_size"]) != ("fr", 500),
    )
    assert found == [["not yet: fr"], []]
    assert "Not run yet: der++." in drawing.notes
    assert "er, buffer 500: vanilla 50.5, fr missing, amr 75.5" in drawing.alt


def test_no_figure_has_panels_of_methods_and_buffers_that_have_not_been_run(tmp_path: Path) -> None:
    begun = sweep_of(
        tmp_path, grid(), is_done=lambda p: (p["method"], p["buffer_size"]) == ("er", 500)
    )
    group = only_group(begun)
    drawings = {
        1: [accuracy_grid(group, begun, STYLES), gain_bars([group], begun, STYLES)],
        3: [cost_scatter(group, begun, STYLES)],
    }
    drawings[1].append(radar_grid(group, begun, STYLES))
    for panels, drawn in drawings.items():
        for drawing in drawn:
            assert drawing is not None
            assert len(drawing.figure.axes) == panels
            assert "Not run yet: der++, buffer 5,000." in drawing.notes


def test_drift_is_marked_between_the_tasks_and_the_undrifted_level_is_there(whole: Sweep) -> None:
    drawing = accuracy_grid(only_group(whole), whole, STYLES)
    panel = drawing.figure.axes[0]
    (mark,) = [line for line in panel.lines if to_hex(line.get_color()) == DRIFT.lower()]
    assert set(np.asarray(mark.get_xdata()).tolist()) == {1.5}
    assert len(panel.lines) == 1 + 4
    assert "Grey: the same without drift." in drawing.caption


def test_gains_are_differences_within_seeds_beside_the_published_ones(
    whole: Sweep, tmp_path: Path
) -> None:
    faa = {("vanilla", 0): 50.0, ("vanilla", 1): 60.0, ("amr", 1): 75.0, ("amr", 2): 99.0}
    sweep = sweep_of(
        tmp_path,
        grid(methods=["er"], buffers=[500], seeds=3),
        is_done=lambda p: (p["adaptation"], p["seed"]) in faa and p["num_drifts"] == 1,
        faa=lambda p: faa[p["adaptation"], p["seed"]],
    )
    ours, floor = (sweep.find(adaptation=name, num_drifts=1) for name in ("amr", "vanilla"))
    gain = paired_gain(ours, floor)
    assert gain is not None
    assert (gain.mean, gain.sd, gain.count) == (15.0, None, 1)
    assert paired_gain(None, floor) is None
    published = {"vanilla": 40.0, "amr": 71.5}
    drawing = gain_bars(
        [only_group(whole)],
        whole,
        STYLES,
        lambda place: published.get(str(place["adaptation"])) if place["method"] == "er" else None,
    )
    assert drawing is not None
    diamonds = [line for line in drawing.figure.axes[0].lines if line.get_marker() == "D"]
    assert [np.asarray(line.get_ydata()).tolist() for line in diamonds] == [[31.5]]
    assert {line.get_markerfacecolor() for line in diamonds} == {"white"}
    assert "amr +25.0 (published +31.5)" in drawing.alt
    assert "amr +25.0±0.0" in texts(drawing)


def test_costs_have_a_place_for_zero_and_radars_absolute_labels(
    whole: Sweep, tmp_path: Path
) -> None:
    drawing = cost_scatter(only_group(whole), whole, STYLES)
    assert drawing is not None
    panel = drawing.figure.axes[0]
    assert panel.get_xscale() == "symlog"
    left, right = panel.get_xlim()
    assert left < 0 < 400 < right
    assert 0 in panel.get_xticks()
    assert panel.get_title(loc="left") == "vanilla 0, fr 400, amr 20"
    radar = radar_grid(only_group(whole), whole, STYLES)
    assert texts(radar).count("labels: vanilla 0, fr 400, amr 20") == 4
    assert "amr 0.05, 1.00, 1.00" in radar.alt
    without = sweep_of(tmp_path, grid(adaptations=["amr"]))
    assert "largest = 1" in texts(radar_grid(only_group(without), without, STYLES))


@given(
    st.lists(st.floats(-100, 100), max_size=8),
    st.floats(0.1, 10),
)
def test_spread_out_names_keep_their_order_their_distance_and_their_centre(
    values: list[float], gap: float
) -> None:
    placed = spread_out(values, gap)
    order = sorted(range(len(values)), key=lambda index: values[index])
    steps = np.diff([placed[index] for index in order])
    assert (steps >= gap - 1e-6).all()
    assert sum(placed) == pytest.approx(sum(values), abs=1e-6)
    if (np.diff(sorted(values)) >= gap).all():
        assert placed == pytest.approx(values)


def test_severities_have_a_panel_per_transform_gaps_and_the_undrifted_level(
    tmp_path: Path,
) -> None:
    sweep = sweep_of(
        tmp_path,
        severity_grid(),
        is_done=lambda p: (p["transform"], p["severity"]) != ("rotation", 2),
        faa=lambda p: 90.0 - 10 * (p["severity"] or 0) + p["seed"],
    )
    (image,) = draw_paper_figures(sweep)
    assert image.kind == "severity-toy-cd-er-b500-d1"
    check_drawn_and_uncut(image)
    drawing = severity_panels(grid_points(sweep), sweep, STYLES)
    assert drawing is not None
    rotation, noise = drawing.figure.axes
    assert (rotation.get_title(), noise.get_title()) == ("rotation", "shot-noise")
    level, *lines = rotation.lines
    assert np.asarray(level.get_ydata()).tolist() == [90.5, 90.5]
    assert len(lines) == 3
    for line in lines:
        np.testing.assert_array_equal(np.asarray(line.get_ydata()), [80.5, np.nan, 60.5])
    assert "3 of 9 points not run yet" in texts(drawing)
    assert "vanilla without drift, 90.5 ± 0.7" in drawing.caption


def test_detector_errors_make_a_map_with_labels_gaps_and_the_level_without_a_detector(
    tmp_path: Path,
) -> None:
    sweep = sweep_of(
        tmp_path,
        error_grid(),
        is_done=lambda p: (p["tpr"], p["fpr"]) != (0.5, 0.1),
        faa=lambda p: 40.0 if p["tpr"] is None else 80 * p["tpr"] - 10 * p["fpr"] + p["seed"],
    )
    (image,) = draw_paper_figures(sweep)
    assert image.kind == "detector-toy-cd-er-b500-d1"
    check_drawn_and_uncut(image)
    assert "For comparison: vanilla, 1 drift 40.0; vanilla, no drift 40.0." in image.caption
    assert "0.5 found and 0.1 alarmed missing" in image.alt
    assert "1 found and 0.2 alarmed 78.5" in image.alt
    drawing = detector_map(grid_points(sweep), sweep)
    assert drawing is not None
    (mesh,) = drawing.figure.axes[0].collections
    values = mesh.get_array()
    assert values is not None
    shown = np.ma.filled(values, np.nan).reshape(2, 3)
    assert np.isnan(shown).tolist() == [[False, True, False], [False, False, False]]
    assert shown[1, 0] == 80.5
    assert "78.5 ±0.7\n20 labels" in texts(drawing)


def test_settings_that_differ_head_panels_and_wide_grids_become_several_figures(
    tmp_path: Path,
) -> None:
    places = [
        {**place, "rate": rate / 10}
        for rate in range(MAX_COLUMNS + 1)
        for place in grid(methods=["er"], buffers=[500], seeds=1)
    ]
    groups = groups_of(grid_points(sweep_of(tmp_path, places)))
    assert [(group.slug, len(group.variants)) for group in groups] == [
        ("toy-cd-d1", MAX_COLUMNS),
        ("toy-cd-d1-2", 1),
    ]
    assert groups[0].variants[:2] == ["er, rate 0.0", "er, rate 0.1"]


def test_what_the_grid_does_not_name_is_read_from_a_finished_run(tmp_path: Path) -> None:
    places = [{"adaptation": name, "seed": 0} for name in ("vanilla", "amr")]
    sweep = sweep_of(tmp_path, places, is_done=lambda p: p["adaptation"] == "amr")
    group = only_group(sweep)
    assert (group.benchmark, group.variants, group.buffers) == ("toy-cd", ["er"], [50])
    assert [point.cell is None for point in group.at("er", 50)] == [True, False]


def test_constant_settings_make_no_sweep_over_severities_and_drawing_repeats(
    tmp_path: Path,
) -> None:
    places = grid(methods=["er"], buffers=[500], drifts=[], transform="rotation", severity=5)
    sweep = sweep_of(tmp_path, places)
    first, again = draw_paper_figures(sweep), draw_paper_figures(sweep)
    assert first[0].kind == "accuracy-toy-cd-d0"
    assert [(p.svg, p.png) for p in first] == [(p.svg, p.png) for p in again]


def feature_row(*, drifts_at: int | None, tasks: int = 3) -> list[FeatureMap]:
    return [
        FeatureMap(
            task=task,
            coordinates=np.arange(12, dtype=np.float64).reshape(6, 2) % 5,
            labels=np.arange(6) % 2,
            drifted=drifts_at is not None and task >= drifts_at,
        )
        for task in range(1, tasks + 1)
    ]


def test_feature_maps_frame_what_has_drifted_and_leave_a_gap_for_what_is_not_there(
    tmp_path: Path,
) -> None:
    sweep = sweep_of(tmp_path, grid(methods=["er"], buffers=[500], drifts=[], seeds=1))
    rows = {"no drift": feature_row(drifts_at=None), "amr": feature_row(drifts_at=2, tasks=2)}
    image = draw_paper_figures(sweep, features=rows)[-1]
    assert image.kind == "features"
    check_drawn_and_uncut(image)
    assert "ant, bee" in image.alt
    drawing = draw_feature_maps(rows, title="toy", notes="")
    assert drawing is not None
    frames = [
        to_hex(panel.spines["left"].get_edgecolor()) == DRIFT.lower()
        for panel in drawing.figure.axes
    ]
    assert frames == [False, False, False, False, True, False]
    assert [text.get_text() for text in drawing.figure.axes[5].texts] == ["not there yet"]
    assert draw_feature_maps({"amr": []}, title="toy", notes="") is None


def test_umap_takes_the_options_that_maps_are_made_with() -> None:
    """Importing it compiles for many seconds: its source is read; benchmarks/feature_map.py makes maps."""
    found = importlib.util.find_spec("umap")
    if found is None or found.origin is None:
        pytest.skip("umap-learn is missing")
    tree = ast.parse(Path(found.origin).with_name("umap_.py").read_text())
    (made,) = (each for each in tree.body if getattr(each, "name", None) == "UMAP")
    assert isinstance(made, ast.ClassDef)
    methods = {each.name: each.args for each in made.body if isinstance(each, ast.FunctionDef)}
    options = {each.arg for each in methods["__init__"].args}
    assert {"n_components", "random_state", "n_jobs"} <= options
    assert "fit_transform" in methods
