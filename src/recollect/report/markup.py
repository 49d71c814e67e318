"""What every page needs: escaped text, data that is safe inside a script, one look."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from importlib.resources import files

from recollect.files import JSON
from recollect.report.run import clean


def text(value: object) -> str:
    """One line of plain text that no page takes for markup, nor for an attribute's end.

    >>> text('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    shown = str(value)
    return escape(shown if shown.isprintable() else clean(shown))


def script_data(value: JSON) -> str:
    """JSON for a script element: ASCII, and without the one letter that could end it.

    >>> script_data(["</script>", "\\u2028"])
    '["\\\\u003c/script>","\\\\u2028"]'
    """
    compact = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return compact.replace("<", "\\u003c")


@cache
def common_style() -> str:
    """The look of the page of runs, which stands in one place."""
    return template("page.html").partition("<style>")[2].partition("</style>")[0]


@cache
def template(name: str) -> str:
    """A page's frame, kept beside this file."""
    return files("recollect.report").joinpath(name).read_text("utf-8")
