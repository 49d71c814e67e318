"""Pages and figures of runs on feature vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from report_builders import settings_in, small_result, write_run
from safetensors.numpy import save_file

from driftwise.report.heat_maps import sample_sheet
from driftwise.report.read import find_runs
from driftwise.report.run_page import build_run_page
from driftwise.report.setting_figures import draw_all
from driftwise.report.style import styles_of
from driftwise.report.vectors import MAX_GROUPS, drift_in

FEATURES = 6


def write_vectors(
    folder: Path, *, moved: int = 4, groups: int = 2, names: bool = True, gap: bool = False
) -> Path:
    """A run whose classes have moved in one feature."""
    draw = np.random.default_rng(0)
    before = draw.normal(size=(30 * groups, FEATURES)).astype(np.float32)
    after = before + 3 * (np.arange(FEATURES) == moved).astype(np.float32)
    after[0, 0] = np.nan if gap else after[0, 0]
    tensors = {
        "before": before,
        "after": after,
        "labels": np.repeat(np.arange(groups) % 2, 30),
        "tasks": np.repeat(2 + np.arange(groups) // 2, 30),
    }
    if names:
        text = "\n".join(f"<i>sensor {number}" for number in range(FEATURES)).encode()
        tensors["feature_names"] = np.frombuffer(text, dtype=np.uint8)
    run = write_run(folder, small_result())
    save_file(tensors, run / "samples.safetensors")
    return run


@pytest.mark.parametrize("names", [True, False])
def test_the_page_of_a_run_shows_the_features_that_drifted(tmp_path: Path, names: bool) -> None:
    (run,) = find_runs([write_vectors(tmp_path / "run", names=names)]).runs
    drift = drift_in(run)
    assert drift is not None
    expected = "<i>sensor 4" if names else "feature 4"
    assert drift.features[0]["name"] == expected
    assert drift.features[0]["shift"] == pytest.approx(3, abs=0.5)
    assert drift.features[1]["ks"] == 0
    page = build_run_page(run, "run", [])
    assert ">Features that drifted</h2>" in page
    assert "<i>" not in page
    assert "<img" not in page
    (setting,) = settings_in(tmp_path)
    figures = {each.kind: each for each in draw_all(setting, styles_of(["amr"]))}
    assert expected in figures["samples"].alt


def test_a_page_stays_small_however_many_classes_have_drifted(tmp_path: Path) -> None:
    (run,) = find_runs([write_vectors(tmp_path / "run", groups=40)]).runs
    drift = drift_in(run)
    assert drift is not None
    assert (drift.num_classes, len(drift.views)) == (40, MAX_GROUPS)
    assert len(build_run_page(run, "run", [])) < 60_000


def test_vectors_that_cannot_be_compared_are_left_out(tmp_path: Path) -> None:
    (run,) = find_runs([write_vectors(tmp_path / "run", gap=True)]).runs
    assert drift_in(run) is None
    assert "Features that drifted" not in build_run_page(run, "run", [])
    (setting,) = settings_in(tmp_path)
    assert sample_sheet(setting) is None
    (plain,) = find_runs([write_run(tmp_path / "images", small_result(), samples=True)]).runs
    assert plain.samples is not None
    assert drift_in(plain) is None
