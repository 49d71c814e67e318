"""Runs the tutorials, and writes what they print and draw into their pages and notebooks.

    python tools/tutorials.py                    # all
    python tools/tutorials.py first_stream       # one
    python tools/tutorials.py --notebooks        # only the notebooks, from the pages as they are

A page of docs/tutorials is the source of everything: its Python and sh blocks are run from top to bottom in
an empty folder. A text block after one of them is what it printed. Images of the page are taken from the
folder: `images/NAME.png` is the file NAME.png that a block has saved. `<!-- not executed: why -->` before a
block leaves it out. The notebook has the same text and code. Tests compare both with a new run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
_BLOCK = re.compile(
    r"(?:<!-- not executed: (?P<why>[^>]+) -->\n)?```(?P<language>python|sh)\n(?P<code>.*?)```\n"
    r"(?:\n```text\n(?P<output>.*?)```\n)?",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A piece of a page: text, or a block of code with what it printed."""

    language: str
    """markdown, python or sh"""
    source: str
    output: str = ""
    why_not: str | None = None
    """why it is not executed"""

    def as_page(self) -> str:
        """The cell as it stands in the page."""
        if self.language == "markdown":
            return self.source
        head = f"<!-- not executed: {self.why_not} -->\n" if self.why_not else ""
        text = f"{head}```{self.language}\n{self.source}```\n"
        return text + (f"\n```text\n{self.output}```\n" if self.output else "")


def pages() -> list[Path]:
    """The tutorials, without their index."""
    return sorted(page for page in FOLDER.glob("*.md") if page.name != "index.md")


def cells_of(text: str) -> list[Cell]:
    """A page, cut into text and blocks of code."""
    cells, end = [], 0
    for found in _BLOCK.finditer(text):
        if found.start() > end:
            cells.append(Cell(language="markdown", source=text[end : found.start()]))
        cells.append(
            Cell(
                language=found["language"],
                source=found["code"],
                output=found["output"] or "",
                why_not=found["why"],
            )
        )
        end = found.end()
    return [*cells, *([Cell(language="markdown", source=text[end:])] if text[end:] else [])]


def executed(cells: Sequence[Cell]) -> Iterator[Cell]:
    """The cells, with what they print when they are run in the working folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for cell in cells:
            if cell.language == "markdown" or cell.why_not:
                yield cell
            else:
                yield replace(cell, output=_printed(cell, names))
    finally:
        for each in names.values():  # a service that a failed page has left behind
            if isinstance(each, subprocess.Popen) and each.poll() is None:
                each.terminate()
                each.wait()


def _printed(cell: Cell, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        if cell.language == "python":
            exec(compile(cell.source, f"<block {cell.source[:40]!r}>", "exec"), names)
        else:
            _run_commands(cell.source)
    lines = [line.rstrip() for line in printed.getvalue().strip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _run_commands(source: str) -> None:
    from driftwise.cli.main import command

    for line in source.replace("\\\n", " ").splitlines():
        program, *words = shlex.split(line, comments=True)
        if program != "driftwise":
            raise ValueError(f"expected a driftwise command, got {line!r}")
        if command(words) not in (0, 3):  # 3: `detect` has found drift
            raise RuntimeError(f"{line} has failed")


@contextlib.contextmanager
def empty_folder() -> Iterator[Path]:
    """An empty working folder, from which modules can be imported."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        try:
            yield Path(folder)
        finally:
            sys.path.remove(folder)
            os.chdir(before)


def notebook(cells: Sequence[Cell]) -> str:
    """The page as a Jupyter notebook, with the same outputs."""
    made = [
        _notebook_cell(number, cell) for number, cell in enumerate(cells) if cell.source.strip()
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _notebook_cell(number: int, cell: Cell) -> dict[str, Any]:
    source = cell.source.strip("\n")
    head: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
    if cell.language == "markdown" or cell.why_not:
        text = source if cell.language == "markdown" else f"```{cell.language}\n{source}\n```"
        return {"cell_type": "markdown", **head, "source": text.splitlines(keepends=True)}
    if cell.language == "sh":
        source = re.sub(r"(?m)^(?=driftwise )", "!", source)
    printed = {"name": "stdout", "output_type": "stream", "text": cell.output.splitlines(True)}
    return {
        "cell_type": "code",
        "execution_count": None,
        **head,
        "outputs": [printed] if cell.output else [],
        "source": source.splitlines(keepends=True),
    }


def write(page: Path) -> None:
    """Run a page, and put its outputs, figures and notebook in place."""
    text = page.read_text()
    with empty_folder() as folder:
        cells = list(executed(cells_of(text)))
        for name in re.findall(r"\]\(images/([\w-]+\.png)\)", text):
            (FOLDER / "images").mkdir(exist_ok=True)
            shutil.copy(folder / name, FOLDER / "images" / name)
    page.write_text("".join(cell.as_page() for cell in cells))
    page.with_suffix(".ipynb").write_text(notebook(cells))


def main() -> None:
    """Run the named tutorials, or all."""
    parser = argparse.ArgumentParser(
        description="Run tutorials; write their outputs and notebooks."
    )
    parser.add_argument("names", nargs="*", help="tutorials, by the names of their files")
    parser.add_argument("--notebooks", action="store_true", help="run nothing")
    given = parser.parse_args()
    os.environ["COLUMNS"] = "100"
    for page in pages():
        if given.names and page.stem not in given.names:
            continue
        print(page.stem, flush=True)
        if given.notebooks:
            page.with_suffix(".ipynb").write_text(notebook(cells_of(page.read_text())))
        else:
            write(page)


if __name__ == "__main__":
    main()
