"""What every page needs: escaped text, data that is safe inside a script, one look."""

from __future__ import annotations

import json
import struct
import zlib
from functools import cache
from html import escape
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from driftwise.files import JSON
from driftwise.report.run import clean


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


def png(pixels: NDArray[np.uint8]) -> bytes:
    """An image (height, width, 3) as a PNG file."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


@cache
def template(name: str) -> str:
    """A page's frame, kept beside this file."""
    return files("driftwise.report").joinpath(name).read_text("utf-8")
