"""Errors that are no fault of the code: one line for the user, never a traceback."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable
from types import FrameType

MAX_LENGTH = 4_000
"""characters of a message: what it quotes may be of any length, a person reads no more"""


def shortened(text: str) -> str:
    """A message of bounded length: its middle goes, since what to do stands at the end.

    >>> len(shortened("x" * 300_000))
    4000
    """
    if len(text) <= MAX_LENGTH:
        return text
    begin, end = MAX_LENGTH // 2, MAX_LENGTH // 4
    gap = f" ... ({len(text) - begin - end:,} characters left out) ... "
    return text[: MAX_LENGTH - end - len(gap)] + gap + text[-end:]


def warn_caller(text: str) -> None:
    """A warning at the line of the user's code that led here, however deep in this package."""
    level = 1
    caller: FrameType | None = sys._getframe()
    while caller is not None and caller.f_globals["__name__"].split(".")[0] in _INSIDE:
        level, caller = level + 1, caller.f_back
    warnings.warn(text, stacklevel=level)


_INSIDE = (__name__.partition(".")[0], "contextlib")  # whose decorators stand in between


class UserError(ValueError):
    """Something the user can correct: what was expected, what came, what to do.

    >>> import driftwise
    >>> try:  # doctest: +ELLIPSIS
    ...     driftwise.run(driftwise.RunConfig(method="derr++"), "unused")
    ... except driftwise.UserError as error:
    ...     print(error)
    unknown method 'derr++'; did you mean 'der++'? (known: cls-er, der++, er, ...)
    """

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


class RunFailure(RuntimeError):
    """A run that could not continue although its settings were right (a full disk, a NaN loss).

    >>> import driftwise
    >>> try:
    ...     raise driftwise.RunFailure("the disk is full")  # as a run would
    ... except driftwise.RunFailure as error:
    ...     print(error)
    the disk is full
    """

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


class Diverged(RunFailure):
    """A loss or weights that are no longer finite."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UserError:
    """The error for a name nobody knows, with the nearest known one.

    >>> str(unknown_name("method", "err", ["er", "finetune"]))
    "unknown method 'err'; did you mean 'er'? (known: er, finetune)"
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UserError(f"unknown {kind} {name!r}{hint} (known: {', '.join(names)})")
