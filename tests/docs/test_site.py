"""The site: built without a warning, complete, and without a request to anybody else."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from browser_tools import Visit, browser
from pages import PAGES, ROOT

import driftwise

__all__ = ["browser"]

CONFIG = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
API = "".join(text for page, text in PAGES.items() if page.startswith("docs/reference/api/"))
NARROW = 400


def files_in(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [
        file for each in (nav.values() if isinstance(nav, dict) else nav) for file in files_in(each)
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    for name in ("docs", "tools", "src"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    words = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_menu_has_every_page_once() -> None:
    listed = files_in(CONFIG["nav"])
    assert len(listed) == len(set(listed))
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    assert set(listed) == {page for page in pages if not page.startswith("decisions/0")}


def test_every_decision_is_listed() -> None:
    listed = re.findall(r"\]\((0[\w-]+\.md)\)", PAGES["docs/decisions/README.md"])
    assert listed == sorted(file.name for file in (ROOT / "docs/decisions").glob("0*.md"))


def test_every_public_name_has_a_place_in_the_reference() -> None:
    placed = set(re.findall(r"^::: driftwise\.([\w.]+)", API, re.MULTILINE))
    packages = [f"driftwise.{name}" for name in placed if (ROOT / "src/driftwise" / name).is_dir()]
    for package in map(importlib.import_module, packages):
        placed |= set(getattr(package, "__all__", ()))
    assert set(driftwise.__all__) <= placed


def url(site: Path, file: str) -> Path:
    return (site / file.replace("README.md", "index.md")).with_suffix(".html")


def test_every_page_is_built_and_asks_no_other_server_for_anything(site: Path) -> None:
    for file in files_in(CONFIG["nav"]):
        html = url(site, file).read_text()
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]* src=[\"']?([^\"' >]+)", html)
        loaded += re.findall(
            r"<link[^>]*rel=[\"']?(?:stylesheet|icon|preconnect)[^>]*?href=[\"']?([^\"' >]+)", html
        )
        assert loaded != []
        assert [each for each in loaded if each.startswith(("http:", "https:", "//"))] == [], file


@pytest.mark.browser
def test_every_page_fits_a_narrow_screen_and_is_complete(browser: Any, site: Path) -> None:
    with browser.new_context(viewport={"width": NARROW, "height": 800}) as context:
        visit = Visit(context.new_page())
        for file in files_in(CONFIG["nav"]):
            visit.page.goto(url(site, file).as_uri(), wait_until="load")
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= NARROW, file
            broken = (
                "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
            )
            assert visit.page.evaluate(broken) == [], file
        assert [
            url for url in visit.requests if not url.startswith(("file:", "blob:", "data:"))
        ] == []
