"""Data of one's own: images in a folder or a file, decoded once, or vectors in a table.

To add a format, write its reader in `readers/` and an entry in `READERS`.
"""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from driftwise.datasets.library import cache_name
from driftwise.datasets.reading import Allocate, Progress, Warn, read_with, stage
from driftwise.errors import UserError

if TYPE_CHECKING:
    from driftwise.datasets.readers.decode import BadImage, Fit
    from driftwise.datasets.readers.folders import Layout
    from driftwise.types import Dataset

VERSION = 1
"""Goes up when the readers give other pixels for the same files."""

FOLDER = "a folder of images"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How one kind of files is recognised and read."""

    matches: Callable[[Path], bool]
    """whether an existing path is of this kind"""
    function: str
    """the function in `readers/` that reads it, `module:name`"""
    options: tuple[str, ...] = ()
    """the arguments of `load_own` that it takes"""


def _is_huggingface(path: Path) -> bool:
    """Whether Hugging Face's `save_to_disk` wrote a folder."""
    return (path / "dataset_dict.json").is_file() or all(
        # Either of these alone may well lie in a folder of images.
        (path / name).is_file()
        for name in ("dataset_info.json", "state.json")
    )


TABLE = "a table"


class TableOptions(TypedDict, total=False):
    """The arguments of `from_table`."""

    label: str | None
    features: Sequence[str] | None
    text: str | None
    leave_out: Sequence[str]
    domain: str | None
    time: str | None
    periods: int
    test: str | None
    class_names: Sequence[str] | None


def holds_vectors(path: Path) -> bool:
    """Whether a file or a folder holds vectors instead of images."""
    if path.suffix.lower() in (".csv", ".parquet", ".npy"):
        return path.is_file()
    if _is_huggingface(path):
        from driftwise.datasets.readers.huggingface import column_names

        return "image" not in column_names(path, unknown=["image"])
    if not path.is_file():
        return False
    from driftwise.datasets.readers.npz import Arrays

    try:
        with Arrays.opened(path) as arrays:
            shapes = arrays.shapes()
    except UserError:
        return False  # its reader will report what is wrong
    if "images" in shapes:
        return len(shapes["images"]) == 2
    return any(len(shape) == 2 for shape in shapes.values())


def _is_npz(path: Path) -> bool:
    return path.is_file() and (path.suffix.lower() == ".npz" or zipfile.is_zipfile(path))


READERS: dict[str, Reader] = {
    TABLE: Reader(
        matches=holds_vectors,
        function="table:from_table",
        options=tuple(TableOptions.__annotations__),
    ),
    "an .npz file": Reader(matches=_is_npz, function="npz:read_npz", options=("group_years",)),
    "a Hugging Face data set": Reader(
        matches=_is_huggingface, function="huggingface:read_huggingface"
    ),
    FOLDER: Reader(
        matches=Path.is_dir,
        function="folders:read_folder",
        options=("size", "channels", "layout", "fit"),
    ),
}
"""By the kind as messages call it; the first that matches is taken."""


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

    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("cat", "dog"):
    ...     (folder / name).mkdir()
    ...     Image.new("RGB", (8, 8)).save(folder / name / "1.png")
    >>> from_folder(folder).class_names
    ('cat', 'dog')
    """
    if (kind := kind_of(Path(path).expanduser())) != FOLDER:
        raise UserError(f"{path} is {kind}, expected {FOLDER}; load_own reads it")
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
    **table: Unpack[TableOptions],
) -> Dataset:
    """A data set of one's own, its pixels mapped from a file that the first use makes.

    Changed files, or other settings, make that file again. Vectors are read each time.

    Args:
        path: a folder of images, an `.npz` file (see `read_npz`), a folder that Hugging Face's
            `save_to_disk` wrote, or a table of feature vectors (see `from_table`): a `.csv`,
            `.parquet`, `.npz` or `.npy` file, or such a folder without a column of images.
        size: folders only: the side, or (height, width), that images are brought to. None: they
            must all have one size.
        channels: folders only: 1 (grey) or 3 (colour). None: grey if every image is.
        layout: folders only: what the levels of folders mean.
        fit: folders only: how an image is brought to the size.
        group_years: `.npz` files only: how many years make one domain.
        on_bad: folders only: called with each file that is no usable image; the file, and classes
            without any other, are left out. None: such a file is an error.
        progress: called while images are decoded.
        warn: called with messages for the user, such as classes without images in a domain.
        table: tables only: label, features, leave_out, domain, time, periods, test, class_names, as
            in `from_table`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("cat", "dog"):
    ...     (folder / name).mkdir()
    ...     Image.new("RGB", (8, 8)).save(folder / name / "1.png")
    >>> load_own(folder).class_names
    ('cat', 'dog')
    """
    from driftwise.datasets.cache import cached, source_of
    from driftwise.datasets.readers.folders import check_settings, list_folder
    from driftwise.datasets.readers.npz import check_group_years

    path = Path(path).expanduser()
    kind = kind_of(path)
    given = {
        "size": (size, None),
        "channels": (channels, None),
        "layout": (layout, "auto"),
        "fit": (fit, "crop"),
        "group_years": (group_years, None),
        **{name: (value, None) for name, value in table.items()},
    }
    for other, reader in READERS.items():
        changed = [
            name for name in reader.options if name in given and given[name][0] != given[name][1]
        ]
        if other != kind and changed:
            raise UserError(
                f"{path} is {kind}; {' and '.join(changed)} can be set for {other} only"
            )
    if kind == TABLE:
        from driftwise.datasets.readers.tabular import from_table

        return from_table(path, **table)
    # Before the name of the copy is made, in which "32" and 32 are the same.
    size = check_settings(size=size, channels=channels, layout=layout, fit=fit)
    check_group_years(group_years)
    tag = f"own {VERSION} {size} {channels} {layout} {fit} {group_years}"
    options: dict[str, Any] = {name: given[name][0] for name in READERS[kind].options}
    skip_bad = on_bad is not None
    if kind == FOLDER and (warn is not None or skip_bad):
        listing = list_folder(path, layout, skip_empty=skip_bad)
        left_out: set[Path] = set()
        if on_bad is not None:
            from driftwise.datasets.readers.decode import undecodable

            for bad in undecodable(listing.files, stage(progress, f"checking {path.name}")):
                left_out.add(bad.file)
                on_bad(bad)
        for remark in listing.without(left_out).remarks:
            if warn is not None:
                warn(remark)
        tag += " without bad images" if left_out else ""
        options |= {"left_out": left_out, "skip_empty": skip_bad}

    def read(allocate: Allocate) -> Dataset:
        decoding = stage(progress, f"decoding {path.name}")
        return read_with(READERS[kind].function, path, allocate, decoding, **options)

    return cached(copy_name(path), source_of([path], tag=tag), read, warn=warn)


def kind_of(path: Path) -> str:
    """What lies at a path; UserError where there is nothing that can be read."""
    if path.is_file():
        _refuse_archive(path)
    for kind, reader in READERS.items():
        if reader.matches(path):
            return kind
    found = "something else" if path.exists() else "nothing"
    if path.is_file():
        found += ": read it with pandas, and give the data frame to datasets.from_table"
    raise UserError(
        f"expected a folder of images, an .npz file or a table (.csv, .parquet, .npy) at {path},"
        f" found {found}"
    )


def _refuse_archive(path: Path) -> None:
    """An error for an archive of images: an .npz file is a zip, too, but holds arrays."""
    if path.suffix.lower() in (".xlsx", ".xlsm", ".ods"):
        raise UserError(
            f"{path} is a spreadsheet; save it as .csv, or read it with pandas and give the data frame"
            " to datasets.from_table"
        )
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
    """The name of the decoded copy of a path."""
    stem = "".join(letter for letter in path.resolve().stem if letter.isalnum())[:40]
    return cache_name(stem or "own", path)
