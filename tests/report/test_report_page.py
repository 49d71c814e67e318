from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from report_builders import PageReader, small_result, write_run, write_small_comparison
from run_tools import snapshot

import driftwise.report
from driftwise.errors import UserError
from driftwise.report import Report, page, setting_figures, write_report

HOSTILE = "<script>alert('1')</script>\"&$title"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("report")
    write_small_comparison(folder / "runs")
    unfinished = write_run(folder / "runs" / "stopped", small_result(seed=9))
    (unfinished / "result.json").unlink()
    return write_report([folder / "runs"], folder / "out")


def test_the_report_leaves_page_figures_and_tables(report: Report) -> None:
    out = report.page.parent
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    figures = {path.relative_to(out).as_posix() for path in report.figures}
    assert files == {"index.html", "table.csv", "table.md", ".written.json", *figures}
    assert len(figures) == 30
    assert "figures/toy-cd-er-b20-d1-accuracy.svg" in figures
    mask = os.umask(0)
    os.umask(mask)
    assert report.page.stat().st_mode & 0o777 == 0o666 & ~mask


def test_the_page_holds_summary_table_every_run_and_what_was_left_out(report: Report) -> None:
    text = PageReader(report.page).text
    assert "Over 2 seeds, amr ends at 90.0 ± 2.8 where vanilla ends at 52.0 and fr at 92.0" in text
    assert text.count("± 2.8") >= 3
    for adaptation in ("vanilla", "fr", "amr"):
        for seed in (0, 1):
            assert f"er, {adaptation}, ks, seed {seed}: FAA" in text
    for words in ("task 2: class 0 realigned with 10 samples", '"severity": 5', "driftwise 0.1.0"):
        assert words in text
    (warning,) = report.warnings
    assert "stopped: unfinished" in warning
    assert warning in text


def test_the_page_loads_nothing_and_describes_every_figure(report: Report) -> None:
    assert re.findall(r"https?://", report.page.read_text(encoding="utf-8")) == []
    reader = PageReader(report.page)
    assert reader.all("meta", "content")[1:] == [
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    ]
    for _, attributes in reader.tags:
        assert (attributes.get("href") or "#").startswith("#"), "to other places of the page only"
        assert (attributes.get("src") or "data:").startswith("data:")
    alternatives = reader.all("img", "alt")
    assert len(alternatives) == len(report.figures) / 3
    assert min(map(len, alternatives)) > 20


@pytest.mark.usefixtures("one_figure")
def test_a_run_shows_the_kind_of_each_change_and_its_classes_in_feature_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verdict(task: int, *, drifted: bool) -> dict[str, Any]:
        known = {"moved": 2.0 if drifted else 0.1, "moved_band": 0.4, "spread": 1.0}
        return {
            **{"task": task, "class": 0, "drifted": drifted, "score": 0.5, "p_value": 0.01},
            **{"threshold": 0.05, "kind": "new mode" if drifted else "none", "spread_band": 1.3},
            **known,
        }

    verdicts = [verdict(1, drifted=False), verdict(2, drifted=True)]
    for seed in range(3):
        write_run(tmp_path / "runs" / str(seed), small_result(seed=seed, verdicts=verdicts))
    reader = PageReader(write_report([tmp_path / "runs"], tmp_path / "out").page)
    assert reader.text.count("new mode") == 3
    assert reader.text.count("Classes in feature space") == 3
    assert "class 0: 2.00 at the last check, band 0.40" in reader.text
    monkeypatch.setattr(page, "MOST_TIME_LINES", 2)
    reader = PageReader(write_report([tmp_path / "runs"], tmp_path / "out").page)
    assert reader.text.count("Classes in feature space") == 2, "of many runs, the first ones"


@pytest.mark.usefixtures("one_figure")
def test_nothing_from_a_run_becomes_markup(tmp_path: Path) -> None:
    names = ("benchmark", "method", "adaptation", "detector")
    result = small_result(
        **dict.fromkeys(names, HOSTILE),
        class_names=[HOSTILE] * 4,
        notes=[{"task": 1, "text": HOSTILE}],
        warnings=[f"beware: {HOSTILE}"],
        versions={HOSTILE: HOSTILE},
        config={HOSTILE: HOSTILE},
        drift_events=[{"task": 2, "classes": [0], "transform": HOSTILE, "severity": 1}],
    )
    for seed in (0, 1):
        write_run(tmp_path / f"{seed}", result | {"seed": seed})
    report = write_report([tmp_path], tmp_path / "out")
    reader = PageReader(report.page)
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert "<script>alert" not in report.page.read_text(encoding="utf-8")
    assert reader.text.count("alert('1')</script>\"&$title") >= 8
    (warning,) = report.warnings
    assert warning == f"{tmp_path / '0'} and 1 other run: beware: {HOSTILE}"
    assert f"What to know about these runs:{warning}" in reader.text


@pytest.mark.usefixtures("one_figure")
def test_many_settings_get_a_button_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("er", "der++"):
        write_run(tmp_path / method, small_result(method=method))
    report = write_report([tmp_path], tmp_path / "out")
    reader = PageReader(report.page)
    pressed = [a for tag, a in reader.tags if tag == "button" and "aria-pressed" in a]
    assert len(pressed) == 2
    sections = [a["aria-label"] for tag, a in reader.tags if tag == "section"]
    assert sections == ["toy-cd, der++, buffer 20, 1 drift", "toy-cd, er, buffer 20, 1 drift"]
    assert len(set(report.figures)) == len(report.figures)


@pytest.mark.usefixtures("one_figure")
def test_figures_of_an_earlier_report_go_and_whatever_else_is_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    long_name = "a name that goes on and on, " * 5
    write_run(tmp_path / "old" / "a", small_result(benchmark=long_name))
    write_run(tmp_path / "old" / "b", small_result(method="der++", buffer_size=None))
    write_run(tmp_path / "old" / "c", small_result(config={"severity": 3}))
    write_run(tmp_path / "old" / "d", small_result(config={"severity": 4}))
    write_run(tmp_path / "new", small_result())
    assert len(write_report([tmp_path / "old"], out).figures) == 12
    kept = ["mine.png", "toy-er-b20-d1-radar.pdf", "toy-er-radar.png", "b20-d1-cat.svg"]
    for name in kept:
        (out / "figures" / name).write_text("mine")
    (out / "old-b20-d1-radar.png").write_text("mine")
    (out / "figures" / "old-b20-d1-radar.png").mkdir()
    report = write_report([tmp_path / "new"], out)
    left = {path.name for path in (out / "figures").iterdir() if path.is_file()}
    assert left == {path.name for path in report.figures} | set(kept)
    assert (out / "figures" / "old-b20-d1-radar.png").is_dir()
    assert (out / "old-b20-d1-radar.png").is_file()


@pytest.mark.usefixtures("one_figure")
def test_a_strangers_links_lead_no_report_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "run", small_result())
    write_run(tmp_path / "other", small_result(method="der++"))
    report = write_report([tmp_path / "other"], tmp_path / "whole")
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    for folder in (elsewhere, out):
        folder.mkdir()
    for path in (*report.figures, report.page):
        (elsewhere / path.name).write_text("precious")
    before = snapshot(elsewhere)
    (out / "figures").symlink_to(elsewhere)
    (out / "index.html").symlink_to(elsewhere / "index.html")
    with pytest.raises(UserError, match=r"figures is a link, and nothing is written through"):
        write_report([tmp_path / "run"], out)
    assert snapshot(elsewhere) == before
    (out / "figures").unlink()
    (tmp_path / "link").symlink_to(out)  # the output folder itself may be one
    write_report([tmp_path / "run"], tmp_path / "link")
    assert snapshot(elsewhere) == before
    assert not (out / "index.html").is_symlink()


def test_a_folder_that_cannot_be_written_is_reported_before_the_work(tmp_path: Path) -> None:
    write_run(tmp_path / "run", small_result())
    occupied = tmp_path / "file"
    occupied.write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_report([tmp_path / "run"], occupied)


@pytest.mark.usefixtures("one_figure")
def test_an_interrupted_report_leaves_the_old_page_and_no_scraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "index.html").write_text("the old page")
    write_run(tmp_path / "run", small_result())
    written: list[Path] = []
    replace = Path.replace

    def fail_on_third(self: Path, target: Path) -> Path:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(target)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail_on_third)
    with pytest.raises(KeyboardInterrupt):
        write_report([tmp_path / "run"], out)
    assert (out / "index.html").read_text() == "the old page"
    assert list(out.rglob(".*.tmp")) == []


def test_reading_results_needs_neither_torch_nor_a_plotting_library_until_it_draws() -> None:
    code = (
        "import sys; from driftwise.report import write_report; "
        "print([name for name in ('torch', 'matplotlib') if name in sys.modules]); "
        "import driftwise.report.page; print('torch' in sys.modules)"
    )
    source = Path(driftwise.report.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:2] == ["[]", "False"]


@pytest.mark.usefixtures("one_figure")
def test_folders_may_be_texts_or_paths_one_or_several(tmp_path: Path) -> None:
    runs = write_run(tmp_path / "run", small_result())
    given: list[Any] = [str(runs), [str(runs)], runs, iter([runs])]
    for number, paths in enumerate(given):
        report = write_report(paths, str(tmp_path / f"{number}"))
        assert report.page == tmp_path / f"{number}" / "index.html"
        assert report.page.is_file()


def test_a_run_more_adds_little_to_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setting_figures, "DRAWERS", {})

    def size_of(num_runs: int) -> int:
        for seed in range(num_runs):
            folder = tmp_path / f"{num_runs}" / f"{seed:05}"
            write_run(folder, small_result(seed=seed, config={"words": "long " * 300}))
        report = write_report([tmp_path / f"{num_runs}"], tmp_path / f"out-{num_runs}")
        text = PageReader(report.page).text
        assert text.count("long long") > 100, "the configuration is shown"
        assert f"As seed 0, but for: seed {num_runs - 1}." in text
        return report.page.stat().st_size

    few, many = size_of(10), size_of(60)
    assert (many - few) / 50 < 3000, "the configuration, of 1,500 letters, once"
    monkeypatch.setattr(page, "PAGE_VERDICTS", 200)
    assert (size_of(110) - few) / 100 < 700, "of many runs, verdicts are counted only"


@pytest.mark.usefixtures("one_figure")
def test_figures_that_would_make_a_page_heavy_are_taken_from_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_EMBEDDED", 1000)
    for method in ("er", "der++"):
        write_run(tmp_path / method, small_result(method=method))
    report = write_report([tmp_path], tmp_path / "out")
    reader = PageReader(report.page)
    first, second = [a["src"] or "" for tag, a in reader.tags if tag == "img"]
    assert first.startswith("data:image/svg+xml;base64,")
    assert (tmp_path / "out" / unquote(second)).is_file()
    (policy,) = [a["content"] or "" for _, a in reader.tags if "http-equiv" in a]
    assert "img-src data: 'self' file:;" in policy


@pytest.mark.usefixtures("one_figure")
def test_of_very_many_settings_the_first_have_figures_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driftwise.report, "MOST_SETTINGS", 2)
    for number in range(4):
        write_run(tmp_path / f"{number}", small_result(method=f"er{number}"))
    report = write_report([tmp_path], tmp_path / "out")
    assert len(report.figures) == 6
    assert any("first 2 of 4 settings" in line for line in report.warnings)
    text = PageReader(report.page).text
    assert "first 2 of 4 settings" in text
    assert all(f"er{number}" in text for number in range(4)), "all are in the table"
