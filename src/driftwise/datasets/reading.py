"""The arguments of every reader: where to put pixels, and how to report progress."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwise.errors import UserError

if TYPE_CHECKING:  # the catalogue imports this file and must stay quick to import
    import numpy as np

    from driftwise.types import Dataset

Allocate = Callable[[tuple[int, ...]], "np.ndarray"]
"""Returns a uint8 array of a shape, for a reader to fill: plain memory, or a mapped file."""

StageProgress = Callable[[int, int | None], None]
"""Called with how much of one stage is done, and of how much (None: unknown)."""

Progress = Callable[[str, int, int | None], None]
"""The same over several stages; the first argument names the stage (downloading, decoding)."""

Warn = Callable[[str], None]
"""Called with messages for the user although nothing has failed."""


def silent(_done: int, _total: int | None) -> None:
    """Progress that nobody sees."""


def stage(progress: Progress | None, name: str) -> StageProgress:
    """The progress of one stage."""
    return silent if progress is None else partial(progress, name)


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """A uint8 array in plain memory, not yet filled."""
    import numpy as np

    return np.empty(shape, dtype=np.uint8)


def discard(shape: tuple[int, ...]) -> np.ndarray:
    """An array for pixels that nobody reads: all of its samples share the memory of one."""
    import numpy as np

    sample = np.empty(shape[1:], dtype=np.uint8)
    return np.lib.stride_tricks.as_strided(sample, shape=shape, strides=(0, *sample.strides))


def must_be_folder(path: Path, what: str = "a folder of images") -> Path:
    """The path itself if it is a folder; otherwise an error."""
    if not path.is_dir():
        came = "a file" if path.exists() else "nothing"
        raise UserError(f"expected {what} at {path}, found {came}; check the path")
    return path


def read_with(
    reader: str,
    path: Path,
    allocate: Allocate,
    progress: StageProgress = silent,
    **options: Any,
) -> Dataset:
    """Call a reader, `module:function` in `readers/`, with its options."""
    module, _, name = reader.partition(":")
    read = getattr(importlib.import_module(f"driftwise.datasets.readers.{module}"), name)
    dataset: Dataset = read(path, allocate=allocate, progress=progress, **options)
    return dataset
