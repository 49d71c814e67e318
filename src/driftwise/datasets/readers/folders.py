"""Plain folders of images: `class/*.jpg`, `domain/class/*.jpg`, `split/class/*.jpg`, or no classes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from driftwise.datasets.readers import columns
from driftwise.datasets.readers.decode import (
    MAX_SIDE,
    Fit,
    WrongSize,
    check_image_options,
    decode,
    decode_all,
    is_grey,
)
from driftwise.datasets.readers.tabular import EVERYTHING
from driftwise.datasets.reading import Allocate, StageProgress, empty, must_be_folder, silent
from driftwise.errors import UserError, unknown_name
from driftwise.types import Dataset

Layout = Literal["auto", "class", "domain/class", "split/class", "flat"]
"""What the names of the folders mean, from the outside in; flat: nothing, all images are of one class."""

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Files that are taken for images, in small letters or capitals."""
SPLITS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
"""The split that a folder is by its name."""

_DEEPEST = 3  # one level more than any layout has: enough to see that something lies too deep


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The images in a folder, with the labels of their places, one entry per file."""

    files: tuple[Path, ...]
    """in the order of their paths"""
    labels: np.ndarray
    """int64 (samples,)"""
    class_names: tuple[str, ...]
    """sorted"""
    domains: np.ndarray | None = None
    """int64 (samples,)"""
    domain_names: tuple[str, ...] = ()
    """sorted"""
    is_test: np.ndarray | None = None
    """bool (samples,); None: there is no test part"""
    ignored: tuple[Path, ...] = ()
    """files that are no images by their name"""
    num_hidden: int = 0
    """hidden files, which are left out"""
    notes: tuple[str, ...] = ()
    """warnings: classes missing in a domain or in the test part"""

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes, and a line about ignored files if there are any."""
        if not self.ignored:
            return self.notes
        count = len(self.ignored)
        # The deepest one, since it lies among the images: it may be one that was meant to count.
        example = max(self.ignored, key=lambda file: len(file.parts))
        what = "1 file is no image" if count == 1 else f"{count:,} files are no images"
        such_as = "" if count == 1 else "for example "
        return (*self.notes, f"{what} by name and left out: {such_as}{example}")

    def without(self, files: Collection[Path]) -> Listing:
        """The listing less some of its files, and less the classes that lose their last one."""
        if not files:
            return self
        stays = np.array([file not in files for file in self.files])
        if not stays.any():
            raise UserError(
                f"none of {len(stays):,} images can be used, {self.files[0]} among them"
            )
        kept, labels = np.unique(self.labels[stays], return_inverse=True)
        emptied = sorted(set(range(len(self.class_names))) - set(kept.tolist()))
        return replace(
            self,
            files=tuple(itertools.compress(self.files, stays)),
            labels=labels.astype(np.int64),
            class_names=tuple(self.class_names[label] for label in kept),
            notes=(*self.notes, *(_left_out(self.class_names[label]) for label in emptied)),
            domains=None if self.domains is None else self.domains[stays],
            is_test=None if self.is_test is None else self.is_test[stays],
        )


def read_folder(
    path: Path,
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    layout: Layout = "auto",
    fit: Fit = "crop",
    left_out: Collection[Path] = (),
    skip_empty: bool = False,
    allocate: Allocate = empty,
    progress: StageProgress = silent,
) -> Dataset:
    """The images of a folder at one size (a side, or height and width), less those `left_out`.

    Folders of classes without images are left out, too, with `skip_empty`. Without a size the
    images must all have the same already. Without `channels` they become grey if every one of
    them is, and colour otherwise.
    """
    target = check_settings(size=size, channels=channels, layout=layout, fit=fit)
    listing = list_folder(path, layout, skip_empty=skip_empty).without(left_out)
    files = listing.files
    if channels is None:
        channels = 1 if all(is_grey(file) for file in files) else 3
    if target is None:
        height, width, _ = decode(files[0], channels=channels).shape
        fit = "exact"
    else:
        height, width = target
    images = allocate((len(files), height, width, channels))
    try:
        decode_all(files, images, fit=fit, progress=progress)
    except WrongSize as error:
        if target is not None:
            raise
        hint = f"give a size, for example size={min(height, width)}, to resize them all"
        raise UserError(f"{error}; {hint}") from error
    return Dataset(
        images=images,
        labels=listing.labels,
        class_names=listing.class_names,
        is_test=listing.is_test,
        domains=listing.domains,
        domain_names=listing.domain_names,
    )


def check_settings(
    *, size: int | tuple[int, int] | None, channels: int | None, layout: str, fit: str
) -> tuple[int, int] | None:
    """The size as (height, width), None for none; UserError for an impossible setting."""
    check_image_options(channels, fit)
    if layout not in get_args(Layout):
        raise unknown_name("layout", layout, get_args(Layout))
    if size is None:
        return None
    sides = size if isinstance(size, tuple) else (size, size)
    # By the type: True is a whole number to Python, but no size.
    if len(sides) != 2 or not all(type(side) is int and 1 <= side <= MAX_SIDE for side in sides):
        raise UserError(
            f"the size of images is a side or (height, width), each 1 to {MAX_SIDE:,} pixels;"
            f" got {size!r}"
        )
    return sides


def list_folder(path: Path, layout: Layout = "auto", *, skip_empty: bool = False) -> Listing:
    """Find the images under a folder and read their classes off the folders' names.

    `auto` infers the layout from depth and names, and refuses to guess where they are ambiguous. Of
    the splits, `test` is the test part, or `val` where there is no `test`; the rest is for
    training. An empty folder of a class is an error, or noted and left out with `skip_empty`. `flat`
    takes all images, directly in the folder and below it, as one class.
    """
    if layout not in get_args(Layout):
        raise unknown_name("layout", layout, get_args(Layout))
    folders = list(_walk(must_be_folder(path)))
    leaves = [folder for folder in folders if folder.images]
    if not leaves:
        tables = sorted(each.name for kind in columns.SUFFIXES for each in path.glob(f"*{kind}"))
        hint = f"; for feature vectors name the file, e.g. {path / tables[0]}" if tables else ""
        raise UserError(f"no images ({', '.join(SUFFIXES)}) in {path}; expected class/*.jpg{hint}")
    if layout == "flat":
        return Listing(
            files=tuple(file for leaf in leaves for file in leaf.images),
            labels=np.zeros(sum(len(leaf.images) for leaf in leaves), dtype=np.int64),
            class_names=(EVERYTHING,),
            ignored=tuple(file for folder in folders for file in folder.ignored),
            num_hidden=sum(folder.num_hidden for folder in folders),
        )
    if layout == "auto":
        layout = _detect(path, leaves)
    depth = layout.count("/") + 1
    for leaf in leaves:
        if len(leaf.names) != depth:
            raise UserError(f"expected {layout}/*.jpg in {path}, got {leaf.images[0]}")
    places = [folder for folder in folders if 1 <= len(folder.names) <= depth]
    empty_classes = _empty(places, depth - 1)
    refused = [("class", name) for name in ([] if skip_empty else empty_classes)]
    refused += [("folder", name) for name in _empty(places, 0) if name not in empty_classes]
    for what, name in refused:
        raise UserError(
            f"{what} {name!r} in {path} has no images ({', '.join(SUFFIXES)});"
            " add some or remove it"
        )
    class_names = _names(leaves, depth - 1)
    listing = Listing(
        files=tuple(file for leaf in leaves for file in leaf.images),
        labels=_per_file(leaves, [class_names.index(leaf.names[-1]) for leaf in leaves]),
        class_names=class_names,
        ignored=tuple(file for folder in folders for file in folder.ignored),
        num_hidden=sum(folder.num_hidden for folder in folders),
    )
    if layout == "domain/class":
        listing = _with_domains(listing, leaves)
    elif layout == "split/class":
        listing = _with_test_part(path, listing, leaves)
    return replace(listing, notes=(*listing.notes, *map(_left_out, empty_classes)))


@dataclass(frozen=True, kw_only=True)
class _Folder:
    """What lies directly in a folder, sorted."""

    names: tuple[str, ...]
    """its path below the folder that is listed"""
    images: list[Path]
    folders: list[str]
    ignored: list[Path]
    num_hidden: int


def images_in(folder: Path) -> list[Path]:
    """The images directly in a folder, sorted."""
    return _scan(folder).images


def folders_in(folder: Path) -> list[str]:
    """The names of the folders directly in a folder, sorted, hidden ones left out."""
    return _scan(folder).folders


def _walk(path: Path, names: tuple[str, ...] = ()) -> Iterator[_Folder]:
    """The folder and those below it, in the order of their paths."""
    folder = _scan(path, names)
    yield folder
    if len(names) < _DEEPEST:
        for name in folder.folders:
            yield from _walk(path / name, (*names, name))


def _scan(path: Path, names: tuple[str, ...] = ()) -> _Folder:
    try:
        with os.scandir(path) as entries:
            found = sorted((entry.name, entry.is_dir()) for entry in entries)
    except OSError as error:
        raise UserError(f"cannot read the folder {path}: {error.strerror}") from error
    hidden = {name for name, _ in found if name.startswith(".") or name == "__MACOSX"}
    files = [path / name for name, is_dir in found if not is_dir and name not in hidden]
    return _Folder(
        names=names,
        images=[file for file in files if file.name.lower().endswith(SUFFIXES)],
        folders=[name for name, is_dir in found if is_dir and name not in hidden],
        ignored=[file for file in files if not file.name.lower().endswith(SUFFIXES)],
        num_hidden=sum(not is_dir and name in hidden for name, is_dir in found),
    )


def _detect(path: Path, leaves: Sequence[_Folder]) -> Layout:
    """The layout by depth and names; an error where they fit none or two."""
    example = {len(leaf.names): leaf.images[0] for leaf in reversed(leaves)}
    depth = max(example)
    if len(example) > 1:
        shallow = example[min(example)]
        raise UserError(f"images in {path} lie at different depths: {shallow} and {example[depth]}")
    if depth == 0:
        raise UserError(
            f"images lie directly in {path}; expected one folder per class in it, or layout='flat'"
            " if they are all of one class"
        )
    tops = _names(leaves, 0)
    num_splits = sum(top.lower() in SPLITS for top in tops)
    if depth == 1:
        if num_splits < len(tops):
            return "class"
        raise UserError(
            f"images lie directly in {path / tops[0]}; expected one folder per class in it,"
            " or layout='class' if it is a class itself"
        )
    if depth == 2:
        if num_splits == len(tops):
            return "split/class"
        # Domains share classes; otherwise the outer folders may as well be the classes.
        if num_splits == 0 and 1 < len(_names(leaves, 1)) < len(leaves):
            return "domain/class"
        raise UserError(
            f"cannot tell whether the folders in {path} ({', '.join(tops[:3])}) are domains,"
            " splits or classes; give layout='domain/class' or 'split/class', or put the images"
            " directly into one folder per class"
        )
    raise UserError(
        f"{example[depth]} lies too deep in {path}; expected class/*.jpg, domain/class/*.jpg or"
        f" split/class/*.jpg: perhaps it is {path / tops[0]} that you mean"
    )


def _empty(folders: Sequence[_Folder], level: int) -> list[str]:
    """Names without images at a level; one of the folders of a name is enough to have some."""
    filled = {folder.names[level] for folder in folders if folder.images}
    return [name for name in _names(folders, level) if name not in filled]


def _left_out(name: str) -> str:
    return f"class {name!r} has no usable image and is left out"


def _with_domains(listing: Listing, leaves: Sequence[_Folder]) -> Listing:
    names = _names(leaves, 0)
    return replace(
        listing,
        domains=_per_file(leaves, [names.index(leaf.names[0]) for leaf in leaves]),
        domain_names=names,
        notes=tuple(
            f"domain {name!r} has no images of {', '.join(missing)}"
            for name in names
            if (missing := _missing(leaves, listing.class_names, [name]))
        ),
    )


def _with_test_part(path: Path, listing: Listing, leaves: Sequence[_Folder]) -> Listing:
    tops = _names(leaves, 0)
    for top in tops:
        if top.lower() not in SPLITS:
            raise UserError(f"expected {path / top} to be a split ({', '.join(SPLITS)})")
    split_of = {top: SPLITS[top.lower()] for top in tops}
    test_split = "test" if "test" in split_of.values() else "val"
    test = [top for top in tops if split_of[top] == test_split]
    train = [top for top in tops if top not in test]
    if unlearnable := _missing(leaves, listing.class_names, train):
        raise UserError(
            f"class {unlearnable[0]!r} in {path} has no images to train on, only test ones;"
            " add some or remove it"
        )
    if not test:
        return listing
    notes = []
    if unscored := _missing(leaves, listing.class_names, test):
        notes.append(f"the test part has no images of {', '.join(unscored)}")
    if joined := [top for top in train if split_of[top] == "val"]:
        notes.append(
            f"{joined[0]!r} counts as training samples, since {test[0]!r} is the test part"
        )
    is_test = _per_file(leaves, [leaf.names[0] in test for leaf in leaves])
    return replace(listing, is_test=is_test.astype(bool), notes=tuple(notes))


def _missing(
    leaves: Iterable[_Folder], class_names: Sequence[str], tops: Sequence[str]
) -> list[str]:
    """The classes without images in any of these outer folders."""
    present = {leaf.names[1] for leaf in leaves if leaf.names[0] in tops}
    return [name for name in class_names if name not in present]


def _names(folders: Iterable[_Folder], level: int) -> tuple[str, ...]:
    """The different names at one level, sorted."""
    return tuple(sorted({folder.names[level] for folder in folders if len(folder.names) > level}))


def _per_file(leaves: Sequence[_Folder], per_leaf: Sequence[int]) -> np.ndarray:
    """One int64 per file from one per folder."""
    counts = [len(leaf.images) for leaf in leaves]
    return np.repeat(np.array(per_leaf, dtype=np.int64), counts)
