"""The demo in a real browser: drift appears, people label by keyboard, accuracy comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from browser_tools import Visit, browser, sync_api
from serve_tools import batch, open_service, served

pytest.importorskip("uvicorn")

from driftwise.config.schema import RunConfig
from driftwise.runs.run import run
from driftwise.serve.access import Access
from driftwise.serve.api import make_app
from driftwise.serve.demo import LABELLED, QUIET, Demo
from driftwise.serve.service import Service
from driftwise.serve.views import RunsView
from driftwise.stats.kind_names import ACTIONS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

pytestmark = pytest.mark.browser
SECONDS = 60


class Shown:
    """A demo that is served, and who visits it."""

    def __init__(self, url: str, demo: Demo, service: Service, browser: Browser) -> None:
        self.url, self.demo, self.service = url, demo, service
        self._browser = browser
        self.visits: list[Visit] = []

    def open(self, path: str, *, width: int = 1400) -> Visit:
        """A page in a browser of its own."""
        context = self._browser.new_context(viewport={"width": width, "height": 900})
        visit = Visit(context.new_page())
        self.visits.append(visit)
        visit.page.goto(self.url + path)
        return visit

    def card(self, visit: Visit) -> int:
        """The id of the sample that an inbox shows."""
        visit.page.wait_for_selector("#card:not([hidden]) #sample img")
        source = visit.page.locator("#sample img").get_attribute("src") or ""
        return int(source.split("/")[3])

    def answer(self, visit: Visit) -> int:
        """Label the sample rightly, with the keyboard; its id."""
        number = self.card(visit)
        visit.page.keyboard.press(str(self.demo.truth[number]))
        self.wait(lambda: number not in {card.id for card in self.service.board.cards()})
        return number

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it took too long"
            self.visits[0].page.wait_for_timeout(30)


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Iterator[Shown]:
    demo = Demo(seconds=0.02)
    run(RunConfig(num_tasks=2, epochs=1), tmp_path / "runs" / "small")
    with demo.open(tmp_path / "state") as service:
        for number in range(LABELLED + QUIET):
            demo.send(service, number)
        with served(make_app(service, runs=RunsView(tmp_path / "runs"))) as url:
            shown = Shown(url, demo, service, browser)
            yield shown
            demo.stop()
            for visit in shown.visits:
                visit.page.context.close()


def accuracy(visit: Visit) -> int:
    return int(visit.page.locator("#accuracy").inner_text().removesuffix(" %"))


def test_drift_appears_people_label_and_accuracy_comes_back(shown: Shown) -> None:
    board = shown.open("/")
    sync_api.expect(board.page.locator("#accuracy")).not_to_have_text("–")
    assert accuracy(board) >= 90
    shown.demo.start(shown.service)
    board.page.wait_for_selector("#waiting:not([hidden])", timeout=1000 * SECONDS)
    assert board.page.locator("#drifts li").count() >= 1
    assert board.page.locator("#drifts img").count() > 8
    first = next(line for line in shown.service.history.verdicts if line["drifted"])
    advice = f"{first['kind']}: {ACTIONS[first['kind']]}"
    assert advice in board.page.locator("#kinds").inner_text()
    assert f"What to do: {ACTIONS[first['kind']]}" in board.page.locator("#drifts").inner_text()
    assert board.page.locator("#timeline g:has(circle[r='8'])").count() >= 1
    drifted = min(each["correct"] for each in list(shown.service.history.probes)[-3:])
    assert drifted < 90

    anna, eva = shown.open("/inbox"), shown.open("/inbox", width=400)
    assert shown.card(anna) != shown.card(eva)
    seen = [shown.answer(visit) for _ in range(10) for visit in (anna, eva)]
    assert len(set(seen)) == 20, "nobody is asked what another one has answered"
    assert anna.page.locator("#count").inner_text() == "10"

    number = shown.card(anna)
    anna.page.keyboard.press("Space")  # skip
    shown.wait(lambda: shown.card(anna) != number)

    def corrected(times: int) -> None:
        events = shown.service.history.events
        shown.wait(lambda: sum(each["kind"] == "corrected" for each in events) == times)

    for times, key in enumerate(("Backspace", "Space"), start=1):
        last = shown.answer(anna)
        if key == "Space":  # on the button that has the focus it does not skip
            anna.page.locator("#undo").focus()
        anna.page.keyboard.press(key)  # undo, and answer again
        assert shown.card(anna) == last
        assert "Another answer" in anna.page.locator("#question").inner_text()
        anna.page.keyboard.press(str(shown.demo.truth[last]))
        corrected(times)
    number = shown.card(eva)
    eva.page.keyboard.press("-")  # not in the list
    shown.wait(lambda: number not in {card.id for card in shown.service.board.cards()})

    shown.wait(lambda: accuracy(board) >= 90)
    assert shown.service.view["status"]["labels"]["adaptation"] >= 20
    narrow, runs = shown.open("/", width=400), shown.open("/runs", width=400)
    narrow.page.wait_for_selector("#drifts li")
    assert runs.page.locator("#rows tr").inner_text().split("\t")[1] == "done"
    board.page.locator("#pause").click()
    board.page.wait_for_selector("#resume:not([hidden])")
    shown.service.submit("save").result(SECONDS)
    board.page.locator("#state-rows button").first.click()
    board.page.locator("#rollback-reason").fill("a test")
    board.page.locator("#rollback-yes").click()
    shown.wait(lambda: any(e["kind"] == "rolled_back" for e in shown.service.history.events))
    assert any(
        (line["action"], line["reason"]) == ("rollback", "a test")
        for line in shown.service.audit.tail(20)
    )
    board.page.locator("#class").select_option("3")
    board.page.wait_for_timeout(1200)
    assert board.page.locator("#curve path").count() == 3
    for visit in shown.visits:
        width = visit.page.viewport_size["width"]  # type: ignore[index]
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith(shown.url)] == []


def test_tabs_that_nobody_sees_leave_the_connections_to_others(shown: Shown) -> None:
    context = shown.open("/inbox").page.context
    for _ in range(6):  # a browser opens six connections to a server
        tab = context.new_page()
        tab.goto(f"{shown.url}/inbox")
        tab.evaluate("Object.defineProperty(document, 'hidden', {value: true})")
        tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    tab = context.new_page()
    tab.goto(f"{shown.url}/inbox", timeout=20_000)
    tab.wait_for_selector("#keys button", state="attached", timeout=20_000)


def test_a_message_can_be_read_while_the_page_follows_the_service(
    shown: Shown, tmp_path: Path
) -> None:
    visit = shown.open("/inbox")
    shown.demo.start(shown.service)
    (tmp_path / "answers.csv").write_text("id,label\n0,3\n")
    visit.page.locator("#import").set_input_files(tmp_path / "answers.csv")
    sync_api.expect(visit.page.locator("#complaint")).to_have_text("1 labels imported.")
    visit.page.wait_for_timeout(2500)
    sync_api.expect(visit.page.locator("#complaint")).to_be_visible()


def test_a_labeller_logs_in_with_a_token(browser: Browser, tmp_path: Path) -> None:
    token = "token-of-a-labeller-1"
    access = Access([("anna", frozenset({"label"}), token)])
    demo = Demo(seconds=0.02)
    with demo.open(tmp_path) as service, served(make_app(service, access=access)) as url:
        for number in range(3):
            demo.send(service, number)
        context = browser.new_context()
        visit = Visit(context.new_page())
        visit.page.goto(f"{url}/inbox")
        assert visit.page.url == f"{url}/login"
        visit.page.fill("#token", token)
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_url(f"{url}/")
        visit.page.goto(f"{url}/inbox")
        sync_api.expect(visit.page.locator("#open")).to_have_text("0")
        visit.page.locator("#logout").click()
        visit.page.wait_for_url(f"{url}/login")
        assert visit.complaints == []
        context.close()


@pytest.mark.parametrize("kind", ["vectors", "texts"])
def test_vectors_are_shown_as_charts_and_texts_as_texts(
    browser: Browser, tmp_path: Path, kind: str
) -> None:
    with open_service(tmp_path) as service:
        for number in range(60):
            x, y = batch(number)
            texts = [f"<b>text {10 * number + place}</b>" for place in range(10)]
            service.observe(
                x.reshape(10, -1) / np.float32(255),
                y if number < 35 else None,
                texts=texts if kind == "texts" else None,
            ).result(SECONDS)
        with served(make_app(service)) as url:
            for width in (400, 1400):
                context = browser.new_context(viewport={"width": width, "height": 900})
                visit = Visit(context.new_page())
                visit.page.goto(url)
                visit.page.wait_for_selector(f"#drifts {'p' if kind == 'texts' else 'svg'}")
                visit.page.wait_for_selector("#kinds li")
                shown = {
                    "vectors": visit.page.locator("#drifts figure svg path").count(),
                    "texts": visit.page.locator("#drifts .texts p").filter(has_text="<b>").count(),
                }
                assert {name for name, count in shown.items() if count > 3} == {kind}
                visit.page.goto(f"{url}/inbox")
                place = "p" if kind == "texts" else "figure svg"
                visit.page.wait_for_selector(f"#card:not([hidden]) #sample {place}")
                text = visit.page.locator("#sample").inner_text()
                assert ("<b>text" if kind == "texts" else "64 values") in text
                assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
                assert visit.complaints == []
                assert [each for each in visit.requests if not each.startswith(url)] == []
                context.close()
