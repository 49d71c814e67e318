"""Doctests of docstrings, outside of an "Examples:" section too, become code blocks on the site.

Named in zensical.toml as an extension of mkdocstrings.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"(?m)^(?P<indent>[ ]*)>>> .*\n?(?:(?P=indent)\S.*\n?)*")


def fenced(text: str) -> str:
    """A docstring with each doctest as a fenced code block."""

    def fence(found: re.Match[str]) -> str:
        indent = found["indent"]
        return f"{indent}```pycon\n{found[0].rstrip()}\n{indent}```\n"

    return _DOCTEST.sub(fence, text)


class Doctests(griffe.Extension):
    """Fences doctests as docstrings are read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for every object that it has read."""
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
