from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from report_builders import PageReader, small_result, write_run
from sweep_builders import ENDS, place_of, small_sweep, troubled_sweep, write_plan

from driftwise.errors import UserError
from driftwise.files import Manifest
from driftwise.report.index_page import MEASURES, cells_of, write_index
from driftwise.report.markup import Markup
from driftwise.report.parse import parse
from driftwise.report.run_page import build_run_page
from driftwise.report.sweeps import read_sweep

HOSTILE = "</script><script>alert('1')</script>\"&$title\n\u202emoc"


def data_of(page: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PageReader(page).scripts[0])
    return found


def test_every_run_is_a_row_and_every_finished_one_has_a_page(tmp_path: Path) -> None:
    page = write_index(tmp_path, [read_sweep(small_sweep(tmp_path))])
    assert page == tmp_path / "index.html"
    rows = data_of(page)["runs"]
    assert [row[1] for row in rows] == [f"er-{a}-{seed}" for a in ENDS for seed in (0, 1)]
    faa = MEASURES.index("faa")
    assert [row[5][faa] for row in rows] == [50.0, 54.0, 91.0, 93.0, 88.0, 92.0]
    assert {p.stem for p in (tmp_path / "pages").iterdir()} == {row[1] for row in rows}
    assert "6 of 6 runs done." in PageReader(page).text


def test_runs_that_are_not_done_are_counted_named_and_have_no_page(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    Manifest(tmp_path, "pages").add(["er-amr-0.html"])
    (tmp_path / "pages" / "er-amr-0.html").write_text("of an earlier result")
    troubled = troubled_sweep(tmp_path)
    page = write_index(tmp_path, [troubled])
    reader = PageReader(page)
    assert "4 of 6 runs done, 1 failed, 1 not done." in reader.text
    assert "er-amr-0: damaged (result.json cannot be read" in reader.text
    data = data_of(page)
    message = {row[1]: (data["states"][row[3]], row[4], row[5]) for row in data["runs"]}
    assert message["er-vanilla-1"] == ("failed", "2 attempts, the last: out of <b>memory</b>", [])
    assert message["er-amr-0"] == ("not done", "its result.json is damaged", [])
    assert message["er-vanilla-0"][:2] == ("done", "")
    pages = {file.stem for file in (tmp_path / "pages").iterdir()}
    assert pages == {run_id for run_id, (state, _, _) in message.items() if state == "done"}
    (tmp_path / "failures" / "er-vanilla-1.json").write_text("[]")
    data = data_of(write_index(tmp_path, [troubled]))
    (row,) = [row for row in data["runs"] if row[1] == "er-vanilla-1"]
    assert data["states"][row[3]] == "failed"
    assert row[4].startswith("the note about its failure is damaged")


def test_a_strangers_links_lead_no_page_elsewhere(tmp_path: Path) -> None:
    sweep, elsewhere = troubled_sweep(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    for entry in sweep.entries:
        (elsewhere / f"{entry.id}.html").write_text("precious")
    (tmp_path / "pages").symlink_to(elsewhere)
    with pytest.raises(UserError, match="pages is a link"):
        write_index(tmp_path, [sweep])
    (tmp_path / "pages").unlink()
    (tmp_path / "pages").mkdir()
    for entry in sweep.entries:
        (tmp_path / "pages" / f".{entry.id}.tmp").symlink_to(elsewhere / f"{entry.id}.html")
    (tmp_path / "pages" / "er-amr-0.html").write_text("mine, though the run is not done")
    write_index(tmp_path, [sweep])
    assert {file.read_text() for file in elsewhere.iterdir()} == {"precious"}
    assert (tmp_path / "pages" / "er-amr-0.html").exists()


def test_a_cell_of_which_nothing_is_done_keeps_its_place_and_has_no_real_buffer(
    tmp_path: Path,
) -> None:
    places = {"a": place_of(), "b": place_of(adaptation="fr")}
    write_run(tmp_path / "runs" / "a", small_result())
    listing = cells_of([read_sweep(write_plan(tmp_path, "own", places))])
    names = ("benchmark", "method", "adaptation", "buffer_size", "real_buffer", "num_drifts")
    assert listing.names == names
    assert [cell.coordinates for cell in listing.cells] == [
        ("toy-cd", "er", "amr", 500, 20, 1),
        ("toy-cd", "er", "fr", 500, None, 1),
    ]


def test_what_a_grid_leaves_out_is_taken_from_a_finished_run_of_the_cell(tmp_path: Path) -> None:
    places = {f"{lr}-{seed}": {"lr": lr, "seed": seed} for lr in (0.1, 0.2) for seed in (0, 1)}
    write_run(tmp_path / "runs" / "0.1-1", small_result(seed=1))
    listing = cells_of([read_sweep(write_plan(tmp_path, "own", places))])
    assert listing.names[:4] == ("benchmark", "method", "adaptation", "lr")
    assert [cell.coordinates[:4] for cell in listing.cells] == [
        ("toy-cd", "er", "amr", 0.1),
        (None, None, None, 0.2),
    ]
    assert [[entry.seed for entry in cell.entries] for cell in listing.cells] == [[0, 1]] * 2


def test_sweeps_that_share_all_runs_of_a_cell_share_its_row(tmp_path: Path) -> None:
    small_sweep(tmp_path)
    two = {f"er-amr-{seed}": place_of(seed=seed) for seed in (0, 1)}
    one = {"er-amr-0": place_of()}
    files = [
        tmp_path / "sweeps" / "table1-smoke.json",
        write_plan(tmp_path, "same", two),
        write_plan(tmp_path, "fewer", one),
    ]
    sweeps = [read_sweep(file) for file in files]
    listing = cells_of(sweeps)
    assert [cell.sweeps for cell in listing.cells] == [[0], [0], [0, 1], [2]]
    text = PageReader(write_index(tmp_path, sweeps)).text
    assert "6 of 6 runs done." in text  # a run that two sweeps ask for is one run
    assert "1 of 1 run done" in text
    page = PageReader(tmp_path / "pages" / "er-amr-0.html").text
    assert "seeds in table1-smoke, same" in page
    assert "seeds in fewer" in page


def test_a_run_that_ends_between_the_reading_of_two_sweeps_is_done_for_both(
    tmp_path: Path,
) -> None:
    files = [write_plan(tmp_path, name, {"a": place_of(tag=name)}) for name in ("one", "two")]
    early = read_sweep(files[0])
    write_run(tmp_path / "runs" / "a", small_result())
    page = write_index(tmp_path, [early, read_sweep(files[1])])
    assert "1 of 1 run done." in PageReader(page).text
    data = data_of(page)
    assert [data["states"][row[3]] for row in data["runs"]] == ["done", "done"]
    assert (tmp_path / "pages" / "a.html").is_file()


def test_nothing_from_a_plan_or_a_run_becomes_markup(tmp_path: Path) -> None:
    result = small_result(
        **dict.fromkeys(("benchmark", "method", "adaptation", "detector"), HOSTILE),
        class_names=[HOSTILE] * 4,
        notes=[{"task": 1, "text": HOSTILE}],
        warnings=[HOSTILE],
        versions={HOSTILE: HOSTILE},
        config={HOSTILE: HOSTILE},
        drift_events=[{"task": 2, "classes": [0], "transform": HOSTILE, "severity": 1}],
    )
    run_id = "<img src=x onerror=alert(1)>\"'&#"
    write_run(tmp_path / "runs" / run_id, result)
    place = place_of(method=HOSTILE, adaptation=HOSTILE, backbone=HOSTILE) | {HOSTILE: HOSTILE}
    file = write_plan(
        tmp_path,
        "own",
        {run_id: place, "other": place_of()},
        name=HOSTILE,
        reproduces=HOSTILE,
        scale={"name": HOSTILE, "note": HOSTILE},
    )
    (tmp_path / "failures").mkdir()
    failure = {"attempts": [{"time": 0, "error": HOSTILE}]}
    (tmp_path / "failures" / "other.json").write_text(json.dumps(failure))
    index = write_index(tmp_path, [read_sweep(file)])
    pages = [index, *(tmp_path / "pages").iterdir()]
    assert len(pages) == 2
    for page in pages:
        content = page.read_text(encoding="utf-8")
        reader = PageReader(page)
        assert len(reader.scripts) == (2 if page == index else 1)
        assert "<script>alert" not in content
        assert "\u202e" not in content
        assert not any(tag == "img" for tag, _ in reader.tags)
        assert "alert('1')</script>\"&$title" in reader.text
    data = data_of(index)
    shown = HOSTILE.replace("\n", "�").replace("\u202e", "�")
    assert data["sweeps"] == [shown]
    assert [row[1] for row in data["runs"]] == [run_id, "other"]
    assert data["runs"][1][4] == f"1 attempt, the last: {shown}"
    assert [name["title"] for name in data["names"]][3:5] == ["backbone", shown]


@pytest.mark.parametrize("run_id", ["../outside", "a\\b", "a\nb", ""])
def test_an_id_that_cannot_name_a_file_is_refused_before_anything_is_read_or_written(
    tmp_path: Path, run_id: str
) -> None:
    file = write_plan(tmp_path, "own", {run_id: place_of()})
    with pytest.raises(UserError, match="can name a file"):
        read_sweep(file)


def test_fragments_figures_and_tables_stand_in_the_section_of_their_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "table1-smoke"
    (folder / "figures").mkdir(parents=True)
    for name in ("faa-by #.png", "faa-by #.svg", "costs.png", "notes.txt"):
        (folder / "figures" / name).write_text("")
    (folder / "table.csv").write_text("")
    sweep = read_sweep(small_sweep(tmp_path))
    fragment = Markup("<table><caption>as in the paper</caption></table>")
    page = write_index(tmp_path, [sweep], fragments={"table1-smoke": fragment})
    assert fragment in page.read_text(encoding="utf-8")
    reader = PageReader(page)
    assert "Reproduces table1 at scale smoke" in reader.text
    assert "few images" not in reader.text  # the table says it
    bare = PageReader(write_index(tmp_path, [sweep]))
    assert "Reproduces table1 at scale smoke: few images" in bare.text
    images = [attributes["src"] for tag, attributes in reader.tags if tag == "img"]
    at = "table1-smoke/figures"
    assert images == [f"{at}/costs.png", f"{at}/faa-by%20%23.svg"]
    links = [attributes["href"] for tag, attributes in reader.tags if tag == "a"]
    assert f"{at}/faa-by%20%23.png" in links
    assert "table1-smoke/table.csv" in links
    assert "table1-smoke/table.tex" not in links


def test_a_sweep_named_like_a_way_out_shows_no_files(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "secret.png").write_text("")
    (tmp_path / "out").mkdir()
    for name in ("..", "../", "../figures", "/", "."):
        file = write_plan(tmp_path / "out", "own", {}, name=name)
        reader = PageReader(write_index(tmp_path / "out", [read_sweep(file)]))
        assert not any(tag == "img" for tag, _ in reader.tags)


def test_pages_ask_nobody_outside_for_anything(tmp_path: Path) -> None:
    page = write_index(tmp_path, [read_sweep(small_sweep(tmp_path))])
    for file in (page, *(tmp_path / "pages").iterdir()):
        assert re.findall(r"https?://", file.read_text(encoding="utf-8")) == []
        (policy,) = [a["content"] or "" for _, a in PageReader(file).tags if "http-equiv" in a]
        assert policy.startswith("default-src 'none'; ")


def test_a_run_page_reports_what_the_run_found(tmp_path: Path) -> None:
    write_index(tmp_path, [read_sweep(small_sweep(tmp_path))])
    page = tmp_path / "pages" / "er-amr-1.html"
    reader = PageReader(page)
    for words in (
        "toy-cd, er, amr, seed 1",
        "92.0 % final average accuracy, 10.0 points forgotten, 10 labels",
        "20 (stands for 500)",
        "drift: classes 0–1",
        "all tasks seen: 80.0",
        "classes that drift: 70.0",
        "classes that never drift: 90.0",
        "after 2 drift",
        "drift, found",
        "drift, missed",
        "2 verdicts that claim drift, miss it or could not be given",
        "task 2: class 0 realigned with 10 samples",
        '"severity": 5',
        "driftwise 0.1.0",
    ):
        assert words in reader.text, words
    links = [attributes["href"] or "" for tag, attributes in reader.tags if tag == "a"]
    assert links[:2] == ["../index.html", "er-amr-0.html"]
    for link in links:
        if link.startswith("#"):
            assert f'id="{link[1:]}"' in page.read_text(encoding="utf-8")
        elif not link.endswith("events.jsonl"):  # which these made-up runs do not have
            assert (page.parent / link).is_file()
    cells = re.findall(r'--share:([\d.]+)">([\d.]+)<', page.read_text(encoding="utf-8"))
    assert cells == [("0.9", "90.0"), ("0.7", "70.0"), ("0.9", "90.0")]


def test_a_run_that_knows_little_still_has_a_page(tmp_path: Path) -> None:
    result = small_result(
        faa=None,
        forgetting=None,
        accuracy_matrix=[[None]],
        per_class_accuracy=[],
        drift_events=[],
        verdicts=[],
        labels={},
        flops={},
        seconds={},
        detection={},
        buffer_size=None,
    )
    write_run(tmp_path / "runs" / "a", result)
    page = write_index(tmp_path, [read_sweep(write_plan(tmp_path, "own", {"a": place_of()}))])
    assert data_of(page)["runs"][0][5] == [None] * len(MEASURES)
    text = PageReader(tmp_path / "pages" / "a.html").text
    assert "Nothing was checked for drift" in text
    assert "Nothing drifts in this stream" in text


def test_no_sweep_makes_an_empty_page_and_takes_no_fragment(tmp_path: Path) -> None:
    assert "0 of 0 runs done." in PageReader(write_index(tmp_path, [])).text
    with pytest.raises(ValueError, match="not there: table9"):
        write_index(tmp_path, [], fragments={"table9": Markup()})


def test_a_page_names_some_seeds_of_its_cell_however_many_there_are(tmp_path: Path) -> None:
    places = {f"r{seed}": place_of(seed=seed) for seed in range(40)}
    for run_id, place in places.items():
        write_run(tmp_path / "runs" / run_id, small_result(seed=place["seed"]))
    write_index(tmp_path, [read_sweep(write_plan(tmp_path, "own", places))])
    for own in (0, 20, 39):
        reader = PageReader(tmp_path / "pages" / f"r{own}.html")
        links = [a["href"] or "" for tag, a in reader.tags if tag == "a" and "class" in a]
        named = {int(link[1:-5]) for link in links if link.startswith("r")}
        assert len(named) == 11
        assert min(abs(seed - own) for seed in named) == 1
        assert max(abs(seed - own) for seed in named) <= 11
        assert "of 40" in reader.text
    sizes = {(tmp_path / "pages" / f"r{seed}.html").stat().st_size for seed in range(10, 30)}
    assert max(sizes) - min(sizes) < 100


def test_the_page_of_a_long_stream_shows_all_as_an_image_and_some_as_numbers(
    tmp_path: Path,
) -> None:
    def size_of(num_tasks: int) -> int:
        matrix = [[50.0] * task + [None] * (num_tasks - task) for task in range(1, num_tasks + 1)]
        per_class = [
            {str(label): 50.0 for label in range(task)} for task in range(1, num_tasks + 1)
        ]
        verdicts = [
            {"task": task, "class": label, "drifted": True, "p_value": 0.01}
            for task in range(2, num_tasks + 1)
            for label in range(task - 1)
        ]
        changes = {"accuracy_matrix": matrix, "per_class_accuracy": per_class}
        changes |= {"verdicts": verdicts, "confusion_matrix": None}
        changes |= {"class_names": [str(label) for label in range(num_tasks)]}
        run = parse(small_result(**changes, accuracy_matrix_til=None), tmp_path, None)
        page = build_run_page(run, "run", [])
        assert ('class="heat"' in page) == (num_tasks > 20)
        return len(page)

    few, many = size_of(20), size_of(120)
    assert many < 1.6 * few, "36 times as many accuracies"
