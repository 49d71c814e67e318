from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from report_builders import small_result, write_run, write_small_comparison

from driftwise.report.cells import Setting, group
from driftwise.report.columns import COMPARISON, comparison, comparison_csv, comparison_text
from driftwise.report.read import find_runs


def settings_in(folder: Path) -> Sequence[Setting]:
    return group(find_runs([folder]).runs).settings


def as_markdown(settings: Sequence[Setting]) -> str:
    return comparison(settings, name_setting=True).markdown()


RENDERERS = (comparison_text, as_markdown, comparison_csv)


def test_text_says_shared_names_once_and_aligns_the_rest(tmp_path: Path) -> None:
    write_small_comparison(tmp_path)
    lines = comparison_text(settings_in(tmp_path)).splitlines()
    assert lines[0] == "toy-cd · method er · detector ks · buffer 20 · drifts 1 · seeds 2"
    (amr,) = (line for line in lines if line.startswith("amr"))
    assert amr.split() == [
        *("amr", "90.0", "±", "2.8", "10.0", "70.0", "90.0"),
        *("100", "40", "0.50", "–", "0.00", "2.8", "4"),
    ]
    heading = next(line for line in lines if line.startswith("adaptation"))
    rows = [line for line in lines if line.startswith(("vanilla", "fr", "amr"))]
    assert {len(row) for row in rows} == {len(heading)}


def test_text_never_exceeds_its_width_and_loses_no_column(tmp_path: Path) -> None:
    write_small_comparison(tmp_path / "a", benchmark="a-benchmark-with-a-long-name")
    write_small_comparison(tmp_path / "b", method="finetune", buffer_size=50_000)
    write_small_comparison(tmp_path / "c", method="cls-er", num_drifts=4, detector="combined")
    for width in (120, 80):
        text = comparison_text(settings_in(tmp_path), width=width)
        assert max(map(len, text.splitlines())) <= width
        for word in ("forgetting", "delay", "seconds", "GFLOPs", "finetune", "combined", "50000"):
            assert word in text


def test_a_row_without_spread_keeps_its_mean_under_the_other_means(tmp_path: Path) -> None:
    write_small_comparison(tmp_path)
    write_run(tmp_path / "one", small_result(adaptation="fr-flush", faa=71.5))
    lines = comparison_text(settings_in(tmp_path)).splitlines()
    one = next(line for line in lines if line.startswith("fr-flush"))
    two = next(line for line in lines if line.startswith("amr"))
    assert one.index("71.5") == two.index("90.0")


def test_markdown_has_as_many_cells_in_every_line_and_escapes_names(tmp_path: Path) -> None:
    write_run(tmp_path / "a", small_result(method="a|b", buffer_size=None))
    lines = as_markdown(settings_in(tmp_path)).splitlines()
    assert r"a\|b" in lines[2]
    cells = [line.replace(r"\|", "").count("|") for line in lines]
    assert cells == [len(COMPARISON)] * 3  # nothing needs the columns "with" and "spared"
    assert "| – |" in lines[2]


def test_csv_keeps_full_precision_and_leaves_the_unknown_empty(tmp_path: Path) -> None:
    write_small_comparison(tmp_path)
    write_run(tmp_path / "one", small_result(adaptation="fr-flush", faa_stable=None))
    text = comparison_csv(settings_in(tmp_path))
    rows = {row["adaptation"]: row for row in csv.DictReader(io.StringIO(text))}
    assert float(rows["amr"]["faa"]) == 90.0
    assert float(rows["amr"]["faa_sd"]) == 8**0.5
    assert float(rows["amr"]["gflops"]) == 4.0
    assert float(rows["amr"]["seconds"]) == 2.75
    assert float(rows["amr"]["faa_til"]) == 94.0
    assert float(rows["amr"]["gradient_steps"]) == 120
    assert (rows["fr-flush"]["faa_stable"], rows["fr-flush"]["faa_sd"]) == ("", "")


def test_twins_in_name_are_told_apart_by_a_column_that_else_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "all", small_result())
    assert "with" not in comparison_text(settings_in(tmp_path)).split()
    write_run(tmp_path / "few", small_result(config={"label_budget": 40}))
    write_run(tmp_path / "not-compared", small_result(num_drifts=2))
    settings = settings_in(tmp_path)
    for render in RENDERERS:
        plain = render(settings).replace("\\", "")
        assert "label_budget 40" in plain
        assert "label_budget not set" in plain
    assert "with –" not in comparison_text(settings)


def test_variants_of_one_configuration_stay_apart_in_every_rendering(tmp_path: Path) -> None:
    for severity in (3, 5):
        write_run(tmp_path / f"{severity}", small_result(config={"severity": severity}))
    settings = settings_in(tmp_path)
    for render in RENDERERS:
        assert "severity 3" in render(settings)
        assert "severity 5" in render(settings)
