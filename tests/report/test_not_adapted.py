"""A run whose adaptation had nothing to act on says so wherever its number stands."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from paper_sweep_builders import places_of, write_sweep
from report_builders import settings_in, small_result, write_run

from driftwise.adaptation_counts import Adapted, count_adapted
from driftwise.report import facets, write_report
from driftwise.report.comparison import comparison_text
from driftwise.report.index_page import write_index
from driftwise.report.words import overview
from driftwise.reproduce.claims import claims
from driftwise.reproduce.figures import draw_paper_figures
from driftwise.reproduce.paper_table import cell_by_cell, like_the_paper, paper_table

UNTESTABLE = [{"task": 2, "class": label, "drifted": None} for label in (0, 1)]
NOTE = "not adapted: 2 of 2 checks untestable"


def idle(**changes: Any) -> dict[str, Any]:
    """A run as earlier versions left it: nothing says that it was not adapted but its verdicts."""
    labels = {"stream": 200, "monitoring": 40, "adaptation": 0}
    return {"verdicts": UNTESTABLE, "labels": labels, "renewals": [], **changes}


@pytest.mark.parametrize(
    ("checks", "renewals", "why"),
    [
        ([], set(), "no class was checked"),
        ([(2, 0, None, False)], set(), "1 of 1 checks untestable"),
        ([(2, 0, False, False)], set(), "no drift found in 1 checks"),
        (
            [(2, 0, None, False), (2, 1, False, False)],
            set(),
            "no drift found in 2 checks, 1 of them untestable",
        ),
        ([(2, 0, True, True)], set(), "drift found in 1 of 1 checks, all of it harmless"),
        ([(2, 0, True, False)], {(3, 0)}, "drift found in 1 of 1 checks, none of it acted on"),
        ([(2, 0, True, False), (2, 1, None, False)], {(2, 0)}, ""),
    ],
)
def test_what_the_checks_gave_an_adaptation_to_act_on(
    checks: list[Any], renewals: set[tuple[int, int]], why: str
) -> None:
    found = count_adapted(checks, renewals)
    assert found.obstacle == why
    assert found.note("vanilla", labels=0) == ""
    assert found.note("amr", labels=0) == (f"not adapted: {why}" if why else "")
    assert found.note("amr", labels=5) == ""


def test_counts_of_several_runs_add_up() -> None:
    one = count_adapted([(2, 0, None, False), (2, 1, True, True)], set())
    assert one + one == Adapted(checks=4, untestable=2, drifted=2, spared=2, adapted=0)


@pytest.mark.usefixtures("one_figure")
def test_every_table_figure_and_page_of_a_report_says_so(tmp_path: Path) -> None:
    for adaptation in ("vanilla", "amr"):
        result = small_result(adaptation=adaptation, faa=50.0, **idle())
        write_run(tmp_path / "runs" / adaptation, result)
    report = write_report([tmp_path / "runs"], tmp_path / "out")
    page = report.page.read_text()
    for text in (report.table, page, (tmp_path / "out/table.md").read_text().replace("\\", "")):
        assert f"* {NOTE} (amr)" in text
        assert "50.0*" in text
    lines = [line.split() for line in report.table.splitlines()]
    assert [line[1] for line in lines if line[:1] == ["vanilla"]] == ["50.0"]
    assert f"seed 0: FAA 50.0, {NOTE}" in page
    rows = csv.DictReader(io.StringIO((tmp_path / "out/table.csv").read_text()))
    assert {row["adaptation"]: row["not_adapted"] for row in rows} == {"vanilla": "", "amr": NOTE}
    assert "amr*" in page  # in every figure's words
    write_run(tmp_path / "b", small_result())
    plain = comparison_text(settings_in(tmp_path / "b"))
    assert "not adapted" not in plain
    assert "*" not in plain


def test_the_note_is_part_of_the_figure_itself() -> None:
    drawing = facets.Drawing(figure=Figure(figsize=(4, 3)), title="t", caption="How.", alt="What.")
    plain = facets.render("cost", drawing)
    noted = facets.render("cost", replace(drawing, notes=f"* {NOTE} (amr)."))
    assert (plain.caption, plain.alt) == ("How.", "What.")
    assert noted.caption == f"How. * {NOTE} (amr)."
    before, after = (imread(io.BytesIO(each.png)) for each in (plain, noted))
    assert after.shape[1] == before.shape[1]
    below = after[before.shape[0] :]
    assert below.min() < 0.5, "nothing is printed below the figure"


def test_some_seeds_without_adaptation_differ_from_all(tmp_path: Path) -> None:
    write_run(tmp_path / "0", small_result(seed=0))
    write_run(tmp_path / "1", small_result(seed=1, **idle()))
    (setting,) = settings_in(tmp_path)
    assert setting.cells[0].not_adapted == (
        "not adapted with 1 of 2 seeds: 2 of 2 checks untestable"
    )


def test_who_was_not_adapted_wins_no_comparison(tmp_path: Path) -> None:
    for benchmark in ("a-cd", "b-cd"):
        for name, faa in (("vanilla", 50.0), ("fr", 50.0), ("amr", 50.0)):
            changes = idle() if benchmark == "a-cd" else {}
            result = small_result(benchmark=benchmark, adaptation=name, faa=faa, **changes)
            write_run(tmp_path / benchmark / name, result)
    message = overview(settings_in(tmp_path))
    assert "amr ends at or above fr in 1 of 1 settings." in message
    assert "1 setting cannot be compared: amr or fr was not adapted there." in message


def test_a_paper_table_its_figures_claims_and_pages_say_so(tmp_path: Path) -> None:
    wanted = {"method": "er", "buffer_size": 500}
    places = [place for place in places_of("table1") if wanted.items() <= place.items()]
    sweep = write_sweep(tmp_path, places, lambda place, seed: idle(faa=20.0), seeds=1)
    table = paper_table(sweep)
    like_paper, by_cell = like_the_paper(table, decimals=1), cell_by_cell(table)
    for form in (like_paper.text, like_paper.markdown, like_paper.latex, by_cell.html):
        text = " ".join(form().replace("\\", "").split())
        assert "with an adaptation were not adapted: their numbers say nothing about it" in text
        assert NOTE in text
        assert "20.0" in text
    rows = list(csv.DictReader(io.StringIO(by_cell.csv())))
    for row in rows:
        measured = bool(row["faa"])
        noted = measured and row["adaptation"] != "vanilla"
        assert row["not_adapted"].startswith("not adapted: ") == noted
    for image in draw_paper_figures(sweep):
        assert "* not adapted: " in image.caption
    for claim in claims([sweep]):
        if claim.key in ("matches-relearning", "fewer-labels", "stable-classes-kept"):
            assert claim.holds == "not measured"
            assert "checks untestable" in claim.measured
    index = write_index(tmp_path, [sweep])
    data = json.loads(index.read_text().partition('id="data">')[2].partition("</script>")[0])
    adaptation = [name["key"] for name in data["names"]].index("adaptation")
    for cell, _, _, _, reason, measures in data["runs"]:
        never = data["cells"][cell][1][adaptation] == "vanilla"
        assert reason == ("" if never or not measures else NOTE)
    pages = [page.read_text() for page in (tmp_path / "pages").glob("*.html")]
    for name in ("vanilla", "fr", "amr"):
        message = [NOTE in page for page in pages if f", {name}, seed" in page]
        assert message == [name != "vanilla"] * len(message) != []
