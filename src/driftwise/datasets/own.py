"""Anybody's own images: a folder, an `.npz` file or a Hugging Face data set, decoded once."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from driftwise.datasets.library import Warn, cache_name
from driftwise.datasets.progress import Progress
from driftwise.errors import UserError

if TYPE_CHECKING:
    from driftwise.datasets.allocate import Allocate
    from driftwise.datasets.readers.decode import Fit, Skipped
    from driftwise.datasets.readers.folders import Layout
    from driftwise.types import Dataset

VERSION = 1
"""Goes up when the readers give other pixels for the same files."""

Kind = Literal["a folder of images", "an .npz file", "a Hugging Face data set"]
"""What can be read, in the words in which errors speak of it."""


def load_own(
    path: str | Path,
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    layout: Layout = "auto",
    fit: Fit = "crop",
    group_years: int | None = None,
    on_bad: Callable[[Skipped], None] | None = None,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Dataset:
    """A data set of one's own, its pixels mapped from a file that the first use makes.

    A folder is read by `read_folder` (size, channels, layout, fit), a file by `read_npz`
    (group_years), what Hugging Face's `save_to_disk` wrote by `read_huggingface`. A setting that
    has no meaning there is refused. Changed files, or other settings, make it anew. `warn` is told
    of images that are missing or left out. A file in a folder that is no usable image is an
    error, or told to `on_bad` and left out, and so are classes that have none.
    """
    from driftwise.datasets.cache import cached, source_of
    from driftwise.datasets.readers.folders import check_settings, list_folder
    from driftwise.datasets.readers.npz import check_group_years

    path = Path(path).expanduser()
    kind = kind_of(path)
    for_folders = {"size": size, "channels": channels, "layout": layout, "fit": fit}
    unchanged = {"size": None, "channels": None, "layout": "auto", "fit": "crop"}
    if kind != "a folder of images":
        changed = [name for name, value in for_folders.items() if value != unchanged[name]]
        _refuse(path, kind, changed, "a folder of images")
    if kind != "an .npz file":
        _refuse(path, kind, [] if group_years is None else ["group_years"], "an .npz file")
    # Before anything is looked up: in the name of a copy "32" and 32 are the same.
    size = check_settings(size=size, channels=channels, layout=layout, fit=fit)
    check_group_years(group_years)
    settings = f"own {VERSION} {size} {channels} {layout} {fit} {group_years}"
    left_out: set[Path] = set()
    skip_bad = on_bad is not None
    if kind == "a folder of images" and (warn is not None or skip_bad):
        listing = list_folder(path, layout, skip_empty=skip_bad)
        if on_bad is not None:
            from driftwise.datasets.readers.decode import undecodable

            telling = progress and partial(progress, f"looking through {path.name}")
            for bad in undecodable(listing.files, telling):
                left_out.add(bad.file)
                on_bad(bad)
        for remark in listing.without(left_out).remarks:
            if warn is not None:
                warn(remark)
    if left_out:
        settings += " without bad images"

    def read(allocate: Allocate) -> Dataset:
        if kind == "an .npz file":
            from driftwise.datasets.readers.npz import read_npz

            return read_npz(path, group_years=group_years, allocate=allocate)
        if kind == "a Hugging Face data set":
            from driftwise.datasets.adapters import read_huggingface

            return read_huggingface(path, allocate=allocate)
        from driftwise.datasets.readers.folders import read_folder

        return read_folder(
            path,
            size=size,
            channels=channels,
            layout=layout,
            fit=fit,
            left_out=left_out,
            skip_empty=skip_bad,
            allocate=allocate,
            progress=progress and partial(progress, f"decoding {path.name}"),
        )

    return cached(copy_name(path), source_of([path], tag=settings), read, warn=warn)


def kind_of(path: Path) -> Kind:
    """What lies at a path, by a look at names alone; nothing there is an error."""
    if not path.exists():
        raise UserError(f"expected a folder of images or an .npz file at {path}, found nothing")
    if path.is_file():
        _refuse_archive(path)
        return "an .npz file"
    if is_huggingface(path):
        return "a Hugging Face data set"
    return "a folder of images"


def _refuse_archive(path: Path) -> None:
    """An error for an archive of images: an .npz file is a zip, too, but holds arrays."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                is_archive = not any(name.endswith(".npy") for name in archive.namelist())
        else:
            is_archive = tarfile.is_tarfile(path)
    except (OSError, zipfile.BadZipFile, tarfile.TarError):
        return  # what is wrong with it is told by whoever reads it
    if is_archive:
        raise UserError(
            f"{path} is an archive without arrays; unpack it, and give the folder of images"
            " (class/*.jpg)"
        )


def copy_name(path: Path) -> str:
    """What the decoded copy of a path is called."""
    stem = "".join(letter for letter in path.resolve().stem if letter.isalnum())[:40]
    return cache_name(stem or "own", path)


def is_huggingface(path: Path) -> bool:
    """Whether a folder is one that Hugging Face's `save_to_disk` wrote: by what it leaves there."""
    return (path / "dataset_dict.json").is_file() or all(
        # Either of these alone may well lie in a folder of images.
        (path / name).is_file()
        for name in ("dataset_info.json", "state.json")
    )


def _refuse(path: Path, kind: Kind, settings: list[str], meant_for: Kind) -> None:
    """An error for settings that have no meaning for what lies at a path."""
    if settings:
        raise UserError(
            f"{path} is {kind}; {' and '.join(settings)} can be set for {meant_for} only"
        )
