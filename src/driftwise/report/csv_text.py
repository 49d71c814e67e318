"""Every CSV file that is written: a spreadsheet takes no text in it for a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

_SIGNS = "=+\\-@\u2212\ufe62\ufe63\ufe66\ufe6b\uff0b\uff0d\uff1d\uff20"
"""What begins a formula, the full-width and small forms included."""

# A cell begins at its start, and after what a spreadsheet of another country takes for a separator.
# Spaces and quotes before a formula do not stop every spreadsheet.
_FORMULA = re.compile(
    f"(?:^|(?<=[;\t\n]))(?=[\\s\"'`\u2018\u2019\u201c\u201d]*[{_SIGNS}])|^(?=[\t\n])"
)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def csv_text(lines: Iterable[Sequence[object]]) -> str:
    """Lines of cells as CSV; None is an empty cell, numbers are written in full.

    A text that could be run as a formula gets an apostrophe in front of it.

    >>> csv_text([["=1+1", -1.5, None, "a-b"]])
    "'=1+1,-1.5,,a-b\\n"
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    for line in lines:
        writer.writerow([_as_text(cell) if isinstance(cell, str) else cell for cell in line])
    return file.getvalue()


def _as_text(cell: str) -> str:
    # The writer puts quotes around a line feed only; a bare carriage return would end the line.
    return cell if _NUMBER.fullmatch(cell) else _FORMULA.sub("'", cell.replace("\r", "\n"))
