"""What goes wrong through no fault of the code: told in one line, never with a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user can mend: what was expected, what came, what to do."""


class RunFailure(RuntimeError):
    """A run that could not go on although it was asked for correctly (a full disk, a NaN loss)."""


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
