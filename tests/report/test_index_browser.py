"""The index over many runs, and the pages of runs, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser_tools import Visit, browser
from report_builders import small_result, write_run
from sweep_builders import place_of, small_sweep, write_plan

from driftwise.report.index_page import write_index
from driftwise.report.sweeps import read_sweep

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

__all__ = ["browser"]

pytestmark = pytest.mark.browser

FIGURE = '<svg xmlns="http://www.w3.org/2000/svg" width="60" height="40"/>'


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight cells of two sweeps; of the second, one run has failed and one is not done."""
    out = tmp_path_factory.mktemp("index")
    (out / "table1-smoke" / "figures").mkdir(parents=True)
    (out / "table1-smoke" / "figures" / "faa.svg").write_text(FIGURE)
    first = small_sweep(out, methods=("er", "der++"))
    places = {
        "steep #1%": place_of(transform="rotation", severity=5),
        "broken": place_of(transform="rotation", severity=5, seed=1),
        "waiting": place_of(transform="rotation", severity=1),
    }
    write_run(out / "runs" / "steep #1%", small_result(faa=12.5))
    (out / "failures").mkdir()
    (out / "failures" / "broken.json").write_text(
        '{"attempts": [{"time": 0, "error": "no <b>memory</b> left"}]}'
    )
    second = write_plan(out, "severity-smoke", places, reproduces=None)
    return write_index(out, [read_sweep(first), read_sweep(second)])


@pytest.fixture
def visit(browser: Browser, page_file: Path) -> Iterator[Visit]:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    visit = Visit(page)
    page.goto(page_file.as_uri())
    yield visit
    assert visit.complaints == []
    assert [url for url in visit.requests if not url.startswith("file://")] == []
    page.close()


def column(visit: Visit, title: str) -> list[str]:
    """What stands under a heading, top to bottom."""
    titles = visit.page.locator(".runs thead th:visible").all_inner_texts()
    index = [text.strip(" ↑↓") for text in titles].index(title) + 1
    cells = visit.page.locator(f".runs tbody tr td:nth-child({index})")
    return [text.strip() for text in cells.all_inner_texts()]


def choose(visit: Visit, key: str, value: str) -> None:
    visit.page.locator(f'.options input[name="{key}"][value="{value}"]').locator("xpath=..").click()


def heading(visit: Visit, title: str) -> Locator:
    return visit.page.get_by_role("columnheader", name=title, exact=True).get_by_role("button")


def count(visit: Visit) -> str:
    return visit.page.get_by_role("status").inner_text()


def test_the_page_begins_with_all_cells_their_means_and_spread(visit: Visit) -> None:
    assert count(visit).startswith("8 of 8 cells, 15 of 15 runs")
    assert "All: benchmark toy-cd, buffer 500, drifts 1" in count(visit)
    ends = ["52.0 ± 2.8", "92.0 ± 1.4", "90.0 ± 2.8"]
    assert column(visit, "FAA") == [*ends, *ends, "12.5", "–"]
    assert column(visit, "state") == [*["done"] * 6, column(visit, "state")[6], "not done"]
    assert "1 done, 1 failed" in column(visit, "state")[6]
    assert "no <b>memory</b> left" in column(visit, "state")[6]
    assert column(visit, "real buffer") == [*["20"] * 7, "–"]


def test_the_figures_of_a_sweep_are_really_shown(visit: Visit) -> None:
    visit.page.evaluate("document.images[0].scrollIntoView()")  # it is loaded when it is near
    visit.page.wait_for_function("document.images[0].complete")
    assert visit.page.evaluate("[...document.images].map(image => image.naturalWidth)") == [60]


def test_filters_choose_runs_and_cells_are_made_of_those(visit: Visit) -> None:
    choose(visit, "adaptation", "amr")
    choose(visit, "method", "er")
    assert count(visit).startswith("3 of 8 cells, 5 of 15 runs")
    choose(visit, "seed", "1")
    assert column(visit, "FAA") == ["92.0", "–"]
    assert column(visit, "seed") == ["1", "1"]
    choose(visit, "state", "failed")
    assert count(visit).startswith("1 of 8 cells, 1 of 15 runs")
    visit.page.get_by_role("button", name="Clear filters").click()
    assert count(visit).startswith("8 of 8 cells, 15 of 15 runs")


def test_two_values_of_a_filter_mean_either_and_counts_show_what_is_left(visit: Visit) -> None:
    choose(visit, "adaptation", "amr")
    choose(visit, "adaptation", "fr")
    assert set(column(visit, "adaptation")) == {"amr", "fr"}
    assert count(visit).startswith("6 of 8 cells")
    counts = visit.page.locator('.options input[name="method"] + span small').all_inner_texts()
    assert counts == ["7", "4"]


def test_search_looks_into_ids_names_and_errors(visit: Visit) -> None:
    search = visit.page.get_by_role("searchbox")
    for words, found in (("MEMORY left", 1), ("steep", 1), ("rotation", 3), ("nothing like it", 0)):
        search.fill(words)
        assert f"{found} of 15 runs" in count(visit)
    assert "No run fits" in visit.page.locator(".runs tbody").inner_text()


def test_a_heading_sorts_by_number_turns_round_and_keeps_the_unknown_last(visit: Visit) -> None:
    heading(visit, "FAA").click()
    rising = ["12.5", *["52.0 ± 2.8"] * 2, *["90.0 ± 2.8"] * 2, *["92.0 ± 1.4"] * 2]
    assert column(visit, "FAA") == [*rising, "–"]
    heading(visit, "FAA").click()
    assert column(visit, "FAA") == [*rising[::-1], "–"]
    assert visit.page.locator("th[aria-sort=descending]").inner_text().startswith("FAA")


def test_the_switch_shows_runs_one_by_one(visit: Visit) -> None:
    visit.page.get_by_role("radio", name="Runs").check(force=True)
    assert count(visit).startswith("15 of 15 runs")
    ends = ["50.0", "54.0", "91.0", "93.0", "88.0", "92.0"]
    assert column(visit, "FAA")[:12] == ends * 2
    visit.page.get_by_role("radio", name="Cells").check(force=True)
    assert count(visit).startswith("8 of 8 cells")


def test_columns_of_other_grids_go_when_no_row_has_them(visit: Visit) -> None:
    assert visit.page.get_by_role("columnheader", name="severity", exact=True).is_visible()
    choose(visit, "sweep", "table1-smoke")
    assert not visit.page.get_by_role("columnheader", name="severity", exact=True).is_visible()
    assert column(visit, "FAA")[0] == "52.0 ± 2.8"


def test_the_address_keeps_the_view_on_the_way_to_a_run_and_back(
    visit: Visit, page_file: Path
) -> None:
    visit.page.get_by_role("radio", name="Runs").check(force=True)
    choose(visit, "method", "der++")
    choose(visit, "adaptation", "fr")
    heading(visit, "FAA").click()
    heading(visit, "FAA").click()
    assert column(visit, "FAA") == ["93.0", "91.0"]
    visit.page.get_by_role("link", name="seed 1 of der++-fr-1").click()
    assert visit.page.locator("h1").inner_text() == "toy-cd, der++, fr, seed 1"
    visit.page.get_by_role("link", name="0", exact=True).click()  # the other seed of its cell
    assert visit.page.locator("h1").inner_text() == "toy-cd, der++, fr, seed 0"
    visit.page.get_by_role("link", name="All runs").click()
    assert column(visit, "FAA") == ["93.0", "91.0"]
    address = visit.page.url
    visit.page.goto("about:blank")
    visit.page.goto(address)
    assert column(visit, "FAA") == ["93.0", "91.0"]
    assert visit.page.get_by_role("radio", name="Runs").is_checked()
    visit.page.goto(page_file.as_uri() + "#view=runs&adaptation=nobody-has-this")
    assert count(visit).startswith("15 of 15 runs")


def test_an_id_of_strange_letters_leads_to_its_page(visit: Visit) -> None:
    visit.page.get_by_role("searchbox").fill("steep")
    visit.page.get_by_role("link", name="seed 0 of steep #1%").click()
    assert "12.5 % final average accuracy" in visit.page.locator(".summary").inner_text()


def test_a_sweeps_own_button_shows_its_runs(visit: Visit) -> None:
    visit.page.get_by_role("button", name="Show its runs").nth(1).click()
    assert count(visit).startswith("2 of 8 cells, 3 of 15 runs")
    visit.page.get_by_role("link", name="table1-smoke").click()
    assert count(visit).startswith("2 of 8 cells")  # a jump costs no filter


def test_filters_and_order_can_be_had_by_keyboard_alone(visit: Visit) -> None:
    visit.page.locator('.options input[name="adaptation"][value="fr"]').focus()
    visit.page.keyboard.press("Space")
    assert count(visit).startswith("2 of 8 cells")
    heading(visit, "time").focus()
    visit.page.keyboard.press("Enter")
    assert visit.page.locator("th[aria-sort=ascending]").inner_text().startswith("time")
    visit.page.get_by_role("radio", name="Cells").focus()
    visit.page.keyboard.press("ArrowRight")
    assert count(visit).startswith("4 of 15 runs")


@pytest.mark.parametrize("width", [1400, 400])
def test_index_and_run_page_fit_the_screen(visit: Visit, width: int) -> None:
    visit.page.set_viewport_size({"width": width, "height": 900})
    for _ in ("index", "run"):
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        visit.page.locator(".runs tbody a, a.kept").first.click()


def test_many_runs_are_shown_in_parts(browser: Browser, tmp_path: Path) -> None:
    places = {f"r{number}": place_of(seed=number % 30, severity=number) for number in range(600)}
    places |= {f"s{seed}": place_of(seed=seed) for seed in range(200)}
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    visit = Visit(page)
    page.goto(write_index(tmp_path, [read_sweep(write_plan(tmp_path, "own", places))]).as_uri())
    rows = page.locator(".runs tbody tr")
    assert rows.count() == 500
    page.get_by_role("button", name="Show 101 more of 601 rows").click()
    assert rows.count() == 601
    assert page.locator(".runs tbody").get_by_text("and 195 more").count() == 1
    assert page.locator('.options input[name="seed"]').count() == 0, "200 chips are no choice"
    page.get_by_role("searchbox").fill("s199")
    assert count(visit).startswith("1 of 601 cells, 1 of 800 runs")
    assert visit.complaints == []
    page.close()


def test_the_image_of_a_long_stream_is_shown(browser: Browser, tmp_path: Path) -> None:
    tasks = range(1, 41)
    write_run(
        tmp_path / "runs" / "long",
        small_result(
            accuracy_matrix=[[50.0] * task + [None] * (40 - task) for task in tasks],
            per_class_accuracy=[{"0": 50.0} for _ in tasks],
            accuracy_matrix_til=None,
        ),
    )
    write_index(tmp_path, [read_sweep(write_plan(tmp_path, "own", {"long": place_of()}))])
    page = browser.new_page(viewport={"width": 400, "height": 900})
    visit = Visit(page)
    page.goto((tmp_path / "pages" / "long.html").as_uri())
    assert page.locator("img.heat").evaluate("image => image.naturalWidth") == 40
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert visit.complaints == []
    page.close()


def test_rows_not_run_yet_are_folded_away_where_they_would_bury_the_others(
    browser: Browser, tmp_path: Path
) -> None:
    file = small_sweep(tmp_path, methods=("er", "ser", "der++"))
    for folder in [*(tmp_path / "runs").glob("ser-*"), *(tmp_path / "runs").glob("der++-*")]:
        (folder / "result.json").unlink()
    page = browser.new_page()
    page.goto(write_index(tmp_path, [read_sweep(file)]).as_uri())
    visit = Visit(page)
    assert {*column(visit, "method")} == {"er"}
    assert count(visit).startswith("3 of 9 cells, 18 of 18 runs")
    page.get_by_role("button", name="Show 6 cells that have not been run yet").click()
    assert {*column(visit, "method")} == {"er", "ser", "der++"}
    assert page.locator("#waiting").is_hidden()
    page.close()
