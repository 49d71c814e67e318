"""The pages of the documentation, and the examples in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    )
}
EXECUTED: dict[str, list[str]] = {page: [] for page in PAGES}
"""page -> the Python blocks that some test executes"""

TestT = TypeVar("TestT", bound=Callable[..., None])


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL)


def block(page: str, marker: str) -> str:
    """The one Python block of a page that contains the marker."""
    (found,) = [each for each in python_blocks(page) if marker in each]
    return found


def executes(page: str, *markers: str) -> Callable[[TestT], TestT]:
    """Declares which blocks of a page a test executes."""
    EXECUTED[page].extend(block(page, marker) for marker in markers)
    return lambda test: test


def commands(page: str) -> list[list[str]]:
    """Every `driftwise ...` command line of a page, without its comment."""
    shell = "".join(re.findall(r"```sh\n(.*?)```", PAGES[page], re.DOTALL)).replace("\\\n", " ")
    found = re.findall(r"^    driftwise (.+)$", PAGES[page], re.MULTILINE)
    found += re.findall(r"^driftwise (.+)$", shell, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in found]
