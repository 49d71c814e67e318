"""Every tutorial runs from top to bottom and prints what its page shows; its notebook is the same."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import gallery
import pytest
import tutorials
from pages import EXECUTED, executes, python_blocks

from driftwise import plot

PAGES = tutorials.pages()
for page in PAGES:
    name = f"docs/tutorials/{page.name}"
    EXECUTED[name].extend(python_blocks(name))

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?(?!\w)")
_DIGEST = re.compile(r"-[0-9a-f]{10}\b")


def shape(text: str) -> str:
    """What is printed, without its numbers and without the widths of columns."""
    return " ".join(_NUMBER.sub("#", _DIGEST.sub("-#", text)).replace("-", "").split())


def numbers(text: str) -> list[float]:
    return [float(each.replace(",", "")) for each in _NUMBER.findall(_DIGEST.sub("", text))]


def close(shown: float, printed: float) -> bool:
    """Numbers may differ a little between processors; p-values and the like are not compared."""
    return max(abs(shown), abs(printed)) <= 1 or abs(shown - printed) <= max(5, 0.1 * abs(shown))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.mark.usefixtures("one_figure")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_prints_what_its_page_shows(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "serve" in page.read_text():
        pytest.importorskip("uvicorn")
    monkeypatch.setenv("COLUMNS", "100")
    # Worker processes take seconds to start; tests/sweeps has them.
    text = page.read_text().replace("--workers 2", "--engine in-process")
    text = text.replace("8765", str(free_port()))
    cells = tutorials.cells_of(text)
    assert "".join(cell.as_page() for cell in cells) == text
    with tutorials.empty_folder() as folder:
        monkeypatch.setenv("DRIFTWISE_CACHE", str(folder / "cache"))
        for shown, printed in zip(cells, tutorials.executed(cells), strict=True):
            assert shape(printed.output) == shape(shown.output), printed.source
            pairs = zip(numbers(shown.output), numbers(printed.output), strict=True)
            assert all(close(*pair) for pair in pairs), printed.output
        for image in re.findall(r"\]\(images/([\w-]+\.png)\)", text):
            assert (folder / image).stat().st_size > 1000
            assert (tutorials.FOLDER / "images" / image).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_is_made_from_its_page(page: Path) -> None:
    written = page.with_suffix(".ipynb").read_text()
    assert written == tutorials.notebook(tutorials.cells_of(page.read_text()))
    content = json.loads(written)
    assert content["nbformat"] == 4
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])


@pytest.mark.usefixtures("one_figure")
@executes("docs/gallery.md", *(f"plot.{name}(" for name in gallery.kinds()))
def test_every_figure_of_the_gallery_is_drawn_by_its_lines() -> None:
    with tutorials.empty_folder() as folder:
        gallery.prepare(epochs=1)
        names: dict[str, object] = {}
        for block in gallery.blocks():
            exec(block, names)
        for name in gallery.images():
            assert (folder / name).is_file() or name == "sweep.png", name
            assert (gallery.IMAGES / name).is_file(), name
    assert {*gallery.kinds(), "radar"} >= {*plot.KINDS, "drift", "sweep"}


def test_outputs_that_differ_are_noticed() -> None:
    assert shape("accuracy 81 %") == shape("accuracy 83 %")
    assert shape("drifted: ['3']") != shape("drifted: ['3', '8']")
    assert close(81, 83)
    assert not close(33, 81)
    assert close(0.8, 1e-51)
