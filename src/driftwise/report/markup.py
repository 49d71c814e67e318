"""HTML from the templates beside this file. What a run holds can never become markup."""

from __future__ import annotations

import base64
import io
from functools import cache

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from numpy.typing import NDArray
from PIL import Image

from driftwise.report.saved_run import clean

__all__ = ["Markup", "data_uri", "escape", "png", "printable", "render"]


def render(template: str, /, **values: object) -> Markup:
    """A filled-in template; every value is escaped unless it is Markup itself."""
    return Markup(_environment().get_template(template).render(values))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("driftwise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable,
        auto_reload=False,
    )
    # For `tojson`, which writes data that cannot end the script that holds them.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment


def printable(value: object) -> object:
    """Without control characters, which could reverse or hide text; line ends stay."""
    if type(value) is not str or value.isprintable():
        return value
    return "\n".join(map(clean, value.split("\n")))


def data_uri(content: bytes, kind: str) -> str:
    """A file within the page; `kind` is a MIME type."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def png(pixels: NDArray[np.uint8]) -> bytes:
    """An image (height, width, 3) as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()
