"""How callers are told how far a long piece of work is; cheap to import from anywhere."""

from __future__ import annotations

from collections.abc import Callable

StageProgress = Callable[[int, int | None], None]
"""Told how much of one stage is done, and of how much (None: nobody knows)."""

Progress = Callable[[str, int, int | None], None]
"""The same over several stages: told first what is being done (downloading, decoding)."""
