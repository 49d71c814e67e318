"""The page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from browser_tools import Visit, browser
from report_builders import small_result, write_run, write_small_comparison

from driftwise.datasets import from_arrays
from driftwise.detect.standalone import DriftDetector
from driftwise.report import page as page_module
from driftwise.report import write_report
from driftwise.report.drift_page import build_drift_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    write_small_comparison(folder / "runs" / "er", detection={"tpr": 1.0, "fpr": 0.1})
    write_small_comparison(folder / "runs" / "der", method="der++")
    return write_report([folder / "runs"], folder / "out").page


@pytest.fixture
def visit(browser: Browser, page_file: Path) -> Iterator[Visit]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    visit = Visit(page)
    page.goto(page_file.as_uri())
    yield visit
    page.close()


def test_the_page_opens_without_a_complaint_or_a_request_to_the_outside(visit: Visit) -> None:
    visit.page.wait_for_load_state("load")
    assert visit.complaints == []
    outside = [url for url in visit.requests if not url.startswith(("file://", "data:"))]
    assert outside == []
    assert visit.requests[0].startswith("file://")
    widths = visit.page.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(widths) == 20
    assert min(widths) > 0


def test_a_click_on_a_heading_sorts_by_number_and_a_second_one_turns_it_round(
    visit: Visit,
) -> None:
    heading = visit.page.get_by_role("columnheader", name="FAA", exact=True).first
    faa = 7
    assert visit.column(faa) == ["52.0 ± 2.8", "92.0 ± 1.4", "90.0 ± 2.8"] * 2
    heading.get_by_role("button").click()
    rising = visit.column(faa)
    assert rising == ["52.0 ± 2.8"] * 2 + ["90.0 ± 2.8"] * 2 + ["92.0 ± 1.4"] * 2
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.get_by_role("button").click()
    assert visit.column(faa) == rising[::-1]


def test_the_unknown_is_sorted_to_the_end(visit: Visit) -> None:
    heading = visit.page.get_by_role("columnheader", name="adaptation", exact=True).first
    heading.get_by_role("button").click()
    assert visit.column(2) == ["amr", "amr", "fr", "fr", "vanilla", "vanilla"]
    for _ in ("rising", "falling"):
        visit.page.get_by_role("columnheader", name="FPR").get_by_role("button").click()
        assert visit.column(14) == ["0.10"] * 3 + ["–"] * 3
    assert visit.complaints == []


def test_a_button_chooses_the_setting_that_is_shown(visit: Visit) -> None:
    first, second = visit.page.locator(".setting").all()
    assert (first.is_visible(), second.is_visible()) == (True, False)
    visit.page.get_by_role("button", name="toy-cd, er, buffer 20, 1 drift").click()
    assert (first.is_visible(), second.is_visible()) == (False, True)
    visit.page.emulate_media(media="print")
    assert (first.is_visible(), second.is_visible()) == (True, True)


def test_no_table_and_no_figure_is_cut_off_at_any_width(visit: Visit) -> None:
    cut = """[...document.querySelectorAll(".cards, figure .scroll")]
        .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1)
        .map((each) => each.getAttribute("aria-label"))"""
    for width in (1300, 800, 400):
        visit.page.set_viewport_size({"width": width, "height": 900})
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.page.evaluate(cut) == [], width


def test_a_figure_is_enlarged_by_a_click_and_closed_by_a_key(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 400, "height": 800})
    figure = visit.page.get_by_title("Enlarge").first
    figure.click()
    enlarged = visit.page.locator("dialog img")
    box = enlarged.bounding_box()
    assert box is not None
    assert box["width"] >= 900, "its numbers are readable"
    visit.page.keyboard.press("Escape")
    assert visit.page.locator("dialog").count() == 0
    assert visit.page.evaluate("document.activeElement.className") == "zoom"


def test_the_page_is_dark_where_the_user_wants_that(visit: Visit) -> None:
    colours = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    light = visit.page.evaluate(colours)
    visit.page.emulate_media(color_scheme="dark")
    dark = visit.page.evaluate(colours)
    assert (light[0], dark[0]) == ("rgb(255, 255, 255)", "rgb(20, 20, 20)")
    assert light[1] != dark[1]


def test_the_contents_lead_to_every_section(visit: Visit) -> None:
    links = visit.page.get_by_role("navigation", name="Contents").get_by_role("link").all()
    addresses = [str(link.get_attribute("href")) for link in links]
    assert addresses == ["#comparison", "#further", "#figures", "#runs"]
    assert all(visit.page.locator(address).count() == 1 for address in addresses)


@pytest.mark.usefixtures("one_figure")
def test_figures_beside_the_page_are_shown_and_nothing_else_is_asked_for(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "MOST_EMBEDDED", 1000)
    for method in ("er", "der++"):
        write_run(tmp_path / "runs" / method, small_result(method=method))
    file = write_report([tmp_path / "runs"], tmp_path / "out").page
    page = browser.new_page(viewport={"width": 400, "height": 900})
    visit = Visit(page)
    page.goto(file.as_uri())
    page.get_by_role("button", name="toy-cd, er").click()
    for image in page.locator(".setting:not([hidden]) img").all():
        image.scroll_into_view_if_needed()
        page.wait_for_function("image => image.complete", arg=image.element_handle())
        assert image.evaluate("image => image.naturalWidth") > 0
    assert visit.complaints == []
    assert [url for url in visit.requests if not url.startswith(("file://", "data:"))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.close()


def test_a_page_of_vectors_fits_a_telephone_and_a_screen(browser: Browser, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    names = ["a sensor with a name that is much longer than any of the others have", "b", "c"]
    x, y = draw.normal(size=(120, 3)), np.arange(120) % 2
    before = from_arrays(x, y, feature_names=names)
    after = from_arrays(x + 2 * (y == 1)[:, None], y, feature_names=names)
    report = DriftDetector().fit(before).check(after).as_dict()
    more = {"reference": "last.csv", "current": "this.csv", "self_check": None}
    (tmp_path / "index.html").write_text(build_drift_page(report | more, []))
    for width in (400, 1300):
        page = browser.new_page(viewport={"width": width, "height": 900})
        visit = Visit(page)
        page.goto((tmp_path / "index.html").as_uri())
        assert not visit.complaints
        assert len(visit.requests) == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = [each.bounding_box() for each in page.locator(".view svg[role=img]").all()]
        assert len(boxes) == 4, "points, and the distributions of three features"
        assert all(box is not None and box["width"] > 250 for box in boxes)
        page.close()
