"""Draws the figures of docs/gallery.md.

    python tools/gallery.py

The runs, the sweep and the comparison are those of the page and of the tutorials that it names.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import tutorials

from driftwise.cli.main import command

PAGE = tutorials.FOLDER.parent / "gallery.md"
IMAGES = PAGE.parent / "images" / "gallery"


def prepare(epochs: int | None = None) -> None:
    """What the page draws, in the working folder: fewer epochs are quicker."""
    cells = tutorials.cells_of(PAGE.read_text())
    (compare,) = (cell.source for cell in cells if cell.language == "sh")
    words = compare.split()[1:]
    if epochs is not None:
        words[words.index("--epochs") + 1] = str(epochs)
    assert command(words) == 0
    for name, marker in {
        "laptop_to_cluster": "buffers.yaml",
        "has_my_data_drifted": "last-year",
    }.items():
        page = tutorials.cells_of((tutorials.FOLDER / f"{name}.md").read_text())
        (block,) = (
            c.source
            for c in page
            if c.language == "python" and marker in c.source and "Path(" in c.source
        )
        exec(block, {})
    assert command(["sweep", "buffers.yaml", "--engine", "in-process", "--quiet"]) == 0
    assert (
        command(
            ["detect", "last-year", "this-year", "--encoder", "random", "--out", "drift", "--quiet"]
        )
        == 3
    )


def blocks() -> list[str]:
    """The Python blocks of the page, in order."""
    return [c.source for c in tutorials.cells_of(PAGE.read_text()) if c.language == "python"]


def kinds() -> list[str]:
    """The functions of `plot` that the page calls, once for each block."""
    return [re.findall(r"plot\.(\w+)\(", block)[0] for block in blocks()]


def images() -> list[str]:
    """The images of the page."""
    return re.findall(r"\]\(images/gallery/([\w-]+\.png)\)", PAGE.read_text())


def main() -> None:
    """Draw all figures into the page's folder."""
    with tutorials.empty_folder() as folder:
        prepare()
        names: dict[str, object] = {}
        for block in blocks():
            exec(block, names)
        IMAGES.mkdir(exist_ok=True)
        shutil.copy(next(iter(sorted(folder.glob("sweep-*.png")))), folder / "sweep.png")
        for name in images():
            shutil.copy(Path(folder) / name, IMAGES / name)


if __name__ == "__main__":
    main()
