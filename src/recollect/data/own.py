"""Anybody's own pictures: a folder or an `.npz` file, decoded once and kept."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.data.library import Warn, cache_name
from recollect.data.obtain import Progress
from recollect.errors import UserError

if TYPE_CHECKING:
    from recollect.data.allocate import Allocate
    from recollect.data.decode import Fit
    from recollect.data.folders import Layout
    from recollect.types import Dataset

VERSION = 1
"""Goes up when the readers give other pixels for the same files."""


def load_own(
    path: str | Path,
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    layout: Layout = "auto",
    fit: Fit = "crop",
    group_years: int | None = None,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Dataset:
    """A data set of one's own, its pixels mapped from a file that the first use makes.

    A folder is read by `read_folder` (size, channels, layout, fit), a file by `read_npz`
    (group_years). Changed files, or other settings, make it anew.
    """
    from recollect.data.cache import cached, fingerprint_of

    path = Path(path).expanduser()
    if not path.exists():
        raise UserError(f"expected a folder of pictures or an .npz file at {path}, found nothing")
    settings = f"own {VERSION} {size} {channels} {layout} {fit} {group_years}"
    stem = "".join(letter for letter in path.resolve().stem if letter.isalnum())[:40] or "own"

    def read(allocate: Allocate) -> Dataset:
        from recollect.data.folders import read_folder
        from recollect.data.npz import read_npz

        if path.is_file():
            return read_npz(path, group_years=group_years, allocate=allocate)
        return read_folder(
            path,
            size=size,
            channels=channels,
            layout=layout,
            fit=fit,
            allocate=allocate,
            progress=progress and partial(progress, f"decoding {path.name}"),
        )

    return cached(cache_name(stem, path), fingerprint_of([path], tag=settings), read, warn=warn)
