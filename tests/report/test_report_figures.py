from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from figure_checks import check_drawn_and_uncut, check_no_overlap
from report_builders import settings_in, small_result, write_run, write_small_comparison

from driftwise.report.cells import Setting
from driftwise.report.costs import cost_bars, cost_radar
from driftwise.report.curves import accuracy_over_tasks, pooled_bins
from driftwise.report.facets import RenderedFigure, lay_out
from driftwise.report.heat_maps import confusion_shares, contact_sheet, per_class_means
from driftwise.report.setting_figures import DRAWERS, draw_all
from driftwise.report.style import RC, styles_by_cell, styles_of


def only_setting(folder: Path) -> Setting:
    (setting,) = settings_in(folder)
    return setting


@contextmanager
def only(*kinds: str) -> Iterator[None]:
    """Draw these figures alone."""
    with mock.patch.dict(DRAWERS, {kind: DRAWERS[kind] for kind in kinds}, clear=True):
        yield


def draw(setting: Setting) -> tuple[RenderedFigure, ...]:
    return draw_all(setting, styles_of(cell.adaptation for cell in setting.cells))


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return only_setting(write_small_comparison(tmp_path_factory.mktemp("runs")))


@pytest.fixture(scope="module")
def images(setting: Setting) -> tuple[RenderedFigure, ...]:
    return draw(setting)


def test_every_kind_of_figure_is_drawn_and_none_is_blank(
    images: tuple[RenderedFigure, ...],
) -> None:
    assert [image.kind for image in images] == list(DRAWERS)
    for image in images:
        check_drawn_and_uncut(image)


def test_no_texts_overlap_and_none_is_cut_off(tmp_path: Path) -> None:
    names = ["airplane", "automobile", "bird", "a class with a long name"]
    for index, (adaptation, detector) in enumerate(
        [("vanilla", "none"), ("fr", "ks"), ("amr", "ks"), ("amr", "mmd")]
    ):
        result = small_result(adaptation=adaptation, detector=detector, class_names=names)
        write_run(tmp_path / f"{index}", result, samples=True)
    setting = only_setting(tmp_path)
    styles = styles_of(cell.adaptation for cell in setting.cells)
    with matplotlib.rc_context(RC):
        for draw_one in DRAWERS.values():
            drawing = draw_one(setting, styles)
            assert drawing is not None
            lay_out(drawing)
            check_no_overlap(drawing.figure)


def test_svg_is_xml_that_points_nowhere(images: tuple[RenderedFigure, ...]) -> None:
    for image in images:
        root = ElementTree.fromstring(image.svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert b"DOCTYPE" not in image.svg
        for element in root.iter():
            for name, value in element.attrib.items():
                if name.endswith("href"):
                    assert value.startswith(("#", "data:image/png;base64,"))


def test_drawing_again_gives_equal_files_and_leaves_the_global_style_alone(
    setting: Setting, images: tuple[RenderedFigure, ...]
) -> None:
    before = dict(matplotlib.rcParams)
    with only("accuracy", "per-class", "samples"):
        again = {image.kind: image for image in draw(setting)}
    assert dict(matplotlib.rcParams) == before
    first = {image.kind: image for image in images}
    assert all(first[kind] == image for kind, image in again.items())


def test_alternative_texts_and_captions_carry_the_numbers(
    images: tuple[RenderedFigure, ...],
) -> None:
    alt = {image.kind: image.alt for image in images}
    assert "amr 80.0 ± 0.0" in alt["accuracy"]
    assert "amr 0.25, 1.00, 1.00" in alt["radar"]
    assert "amr: 1 drift, found, 1 drift, missed" in alt["verdicts"]
    assert "ant taken for bee in 40 %" in alt["confusion"]
    assert "ant, task 2" in alt["samples"]
    caption = {image.kind: image.caption for image in images}
    assert "task 2: classes 0–1 (permutation, severity 5)" in caption["accuracy"]
    assert "the first seed only" in caption["verdicts"]
    assert "fr = 1.0" in caption["radar"]


def test_without_full_relearning_the_radar_says_so(tmp_path: Path) -> None:
    write_run(tmp_path / "run", small_result())
    radar = cost_radar(only_setting(tmp_path), styles_of(["amr"]))
    assert "there is no fr to compare with" in radar.caption


def test_a_cost_of_zero_has_an_axis_in_whole_units(tmp_path: Path) -> None:
    """Class statistics have no counted FLOPs."""
    write_run(tmp_path / "run", small_result(flops={"train": 0, "detect": 0, "adapt": 0}))
    bars = cost_bars(only_setting(tmp_path), styles_of(["amr"]))
    assert bars.figure.axes[2].get_xlim() == (0, 1.35)


def test_what_a_run_does_not_hold_is_not_drawn(tmp_path: Path) -> None:
    bare = small_result(verdicts=[], drift_events=[], num_drifts=0)
    for extra in ("calibration", "confusion_matrix"):
        del bare[extra]
    write_run(tmp_path / "run", bare)
    kinds = {image.kind for image in draw(only_setting(tmp_path))}
    assert kinds == set(DRAWERS) - {"verdicts", "harm", "reliability", "confusion", "samples"}


def test_names_may_hold_what_plotting_takes_for_formulas_or_has_no_glyph_for(
    tmp_path: Path,
) -> None:
    names = ["$x^", "犬", "_hidden", "a--b<&>"]
    write_run(tmp_path / "run", small_result(class_names=names, adaptation="$\\frac"))
    with only("per-class", "confusion", "radar"):
        check_drawn_and_uncut(*draw(only_setting(tmp_path)))


def test_a_hundred_classes_and_twenty_tasks_can_be_drawn(tmp_path: Path) -> None:
    accuracy = [[90.0 if j <= i else None for j in range(20)] for i in range(20)]
    per_class = [{str(c): 90.0 for c in range(5 * (t + 1))} for t in range(20)]
    result = small_result(
        accuracy_matrix=accuracy,
        per_class_accuracy=per_class,
        confusion_matrix=(90 * np.eye(100)).tolist(),
        class_names=[f"class number {c} of many" for c in range(100)],
        verdicts=[
            {"task": 3, "class": c, "drifted": True, "p_value": 0.01, "harm": 1.0 * c, "share": 1.0}
            for c in range(100)
        ],
    )
    write_run(tmp_path / "run", result)
    large = ("per-class", "confusion", "verdicts", "harm")
    with only(*large):
        images = draw(only_setting(tmp_path))
    assert [image.kind for image in images] == list(large)
    check_drawn_and_uncut(*images)


def test_words_above_the_lines_of_drift_never_overlap(tmp_path: Path) -> None:
    for num_tasks, most in ((5, "drift: classes 0–1"), (20, "drift"), (60, "")):
        events = [
            {"task": task, "classes": [0, 1], "transform": "blur", "severity": 1}
            for task in (2, 3, 4)
        ]
        matrix = [[50.0] * num_tasks] * num_tasks
        folder = tmp_path / f"{num_tasks}"
        write_run(folder, small_result(accuracy_matrix=matrix, drift_events=events))
        drawing = accuracy_over_tasks(only_setting(folder), styles_of(["amr"]))
        texts = drawing.figure.axes[0].texts
        assert [text.get_text() for text in texts][1:] == [most, most]
        drawing.figure.canvas.draw()
        places = [text.get_window_extent() for text in texts if text.get_text()]
        assert all(left.x1 < right.x0 for left, right in pairwise(places))


def test_confusion_is_counted_over_seeds_before_it_is_normalised(tmp_path: Path) -> None:
    small = [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    large = [[8, 0, 0, 0], [0, 9, 0, 0], [0, 0, 9, 0], [0, 0, 0, 0]]
    for seed, matrix in enumerate((small, large)):
        write_run(tmp_path / f"{seed}", small_result(seed=seed, confusion_matrix=matrix))
    shares = confusion_shares(only_setting(tmp_path).cells[0])
    assert shares[0].tolist() == [90.0, 10.0, 0.0, 0.0]
    assert np.isnan(shares[3]).all()


def test_a_class_has_no_accuracy_before_it_arrives(setting: Setting) -> None:
    means = per_class_means(setting.cells[0])
    assert means[0].tolist() == [80.0, 60.0]
    assert np.isnan(means[2, 0])
    assert means[2, 1] == 100.0


def test_calibration_bins_are_pooled_by_their_samples(tmp_path: Path) -> None:
    for seed, (accuracy, count) in enumerate(((0.5, 10), (1.0, 30))):
        bins = [{"confidence": 0.95, "accuracy": accuracy, "count": count}]
        write_run(
            tmp_path / f"{seed}", small_result(seed=seed, calibration={"ece": 0.1, "bins": bins})
        )
    confidence, accuracies, counts = pooled_bins(only_setting(tmp_path).cells[0])
    assert confidence.tolist() == pytest.approx([0.95])
    assert accuracies.tolist() == pytest.approx([0.875])
    assert counts.tolist() == [40.0]


def test_a_contact_sheet_holds_each_image_at_its_place() -> None:
    images = np.arange(3, dtype=np.uint8).reshape(3, 1, 1, 1)
    sheet = contact_sheet([[images[2]], [images[0], images[1]]])[:, :, 0]
    white = 255
    assert sheet[1::3, 1::3].tolist() == [[2, white], [0, 1]]
    assert (np.delete(np.delete(sheet, [1, 4], 0), [1, 4], 1) == white).all()


def test_adaptations_differ_in_colour_marker_and_line_and_keep_their_style() -> None:
    names = ["vanilla", "fr", "fr-flush", "fr-scratch", "amr", "new", "newer"]
    styles = styles_of(names)
    for trait in ("colour", "marker", "line"):
        assert len({getattr(style, trait) for style in styles.values()}) == len(names)
    assert styles_of(["amr"])["amr"] == styles["amr"]


def test_a_second_cell_of_one_adaptation_is_hollow(tmp_path: Path) -> None:
    for detector in ("ks", "lsdd", "mmd"):
        write_run(tmp_path / detector, small_result(detector=detector))
    styles = styles_by_cell(only_setting(tmp_path).cells, styles_of(["amr"]))
    assert [style.hollow for style in styles] == [False, True, True]
    assert len({(style.marker, style.hollow) for style in styles}) == 3


def test_every_colour_of_the_palette_stands_out_from_white() -> None:
    for style in styles_of(["vanilla", "fr", "fr-flush", "fr-scratch", "amr"]).values():
        red, green, blue = (int(style.colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        assert 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.75
