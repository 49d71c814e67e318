"""Images of one's own: a folder, an `.npz` file or a Hugging Face data set, decoded once."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from driftwise.datasets.library import cache_name
from driftwise.datasets.reading import Allocate, Progress, Warn, stage
from driftwise.errors import UserError

if TYPE_CHECKING:
    from driftwise.datasets.readers.decode import BadImage, Fit
    from driftwise.datasets.readers.folders import Layout
    from driftwise.types import Dataset

VERSION = 1
"""Goes up when the readers give other pixels for the same files."""

Kind = Literal["a folder of images", "an .npz file", "a Hugging Face data set"]
"""What can be read, as messages call it."""


def from_folder(
    path: str | Path,
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    layout: Layout = "auto",
    fit: Fit = "crop",
    on_bad: Callable[[BadImage], None] | None = None,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Dataset:
    """Images in folders: `class/*.jpg`, `domain/class/*.jpg` or `split/class/*.jpg`.

    The arguments are those of `load_own`; anything but a folder of images is refused.
    """
    if (kind := kind_of(Path(path).expanduser())) != "a folder of images":
        raise UserError(f"{path} is {kind}, expected a folder of images; load_own reads it")
    return load_own(
        path,
        size=size,
        channels=channels,
        layout=layout,
        fit=fit,
        on_bad=on_bad,
        progress=progress,
        warn=warn,
    )


def load_own(
    path: str | Path,
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    layout: Layout = "auto",
    fit: Fit = "crop",
    group_years: int | None = None,
    on_bad: Callable[[BadImage], None] | None = None,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Dataset:
    """A data set of one's own, its pixels mapped from a file that the first use makes.

    Changed files, or other settings, make that file anew.

    Args:
        path: a folder of images, an `.npz` file (`read_npz` says what it holds), or a folder that
            Hugging Face's `save_to_disk` wrote.
        size: folders only: the side, or (height, width), that images are brought to. None: they
            must all have one size.
        channels: folders only: 1 (grey) or 3 (colour). None: grey if every image is.
        layout: folders only: what the levels of folders mean.
        fit: folders only: how an image is brought to the size.
        group_years: `.npz` files only: how many years make one domain.
        on_bad: folders only: called with each file that is no usable image; the file, and classes
            without any other, are left out. None: such a file is an error.
        progress: called while images are decoded.
        warn: called with what a user should know, such as classes without images in a domain.
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
    # Before the name of the copy is made, in which "32" and 32 are the same.
    size = check_settings(size=size, channels=channels, layout=layout, fit=fit)
    check_group_years(group_years)
    settings = f"own {VERSION} {size} {channels} {layout} {fit} {group_years}"
    left_out: set[Path] = set()
    skip_bad = on_bad is not None
    if kind == "a folder of images" and (warn is not None or skip_bad):
        listing = list_folder(path, layout, skip_empty=skip_bad)
        if on_bad is not None:
            from driftwise.datasets.readers.decode import undecodable

            for bad in undecodable(listing.files, stage(progress, f"checking {path.name}")):
                left_out.add(bad.file)
                on_bad(bad)
        for remark in listing.without(left_out).remarks:
            if warn is not None:
                warn(remark)
    if left_out:
        settings += " without bad images"

    def read(allocate: Allocate) -> Dataset:
        decoding = stage(progress, f"decoding {path.name}")
        if kind == "an .npz file":
            from driftwise.datasets.readers.npz import read_npz

            return read_npz(path, group_years=group_years, allocate=allocate, progress=decoding)
        if kind == "a Hugging Face data set":
            from driftwise.datasets.readers.huggingface import read_huggingface

            return read_huggingface(path, allocate=allocate, progress=decoding)
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
            progress=decoding,
        )

    return cached(copy_name(path), source_of([path], tag=settings), read, warn=warn)


def kind_of(path: Path) -> Kind:
    """What lies at a path, by names alone; UserError where there is nothing."""
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
        return  # its reader will report what is wrong
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
