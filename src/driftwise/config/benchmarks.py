"""The data of a benchmark, by name: local first, then a download, decoded once and cached."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from driftwise.datasets import library
from driftwise.datasets.catalogue import BENCHMARKS, known_set
from driftwise.datasets.own import load_own
from driftwise.datasets.readers.decode import Fit
from driftwise.datasets.readers.folders import Layout
from driftwise.datasets.readers.tabular import from_table
from driftwise.datasets.reading import Progress, Warn
from driftwise.datasets.validate import group_domains
from driftwise.errors import UserError
from driftwise.types import Dataset


@dataclass(frozen=True, kw_only=True)
class Notify:
    """What is called while data are downloaded, unpacked and decoded."""

    progress: Progress | None = None
    warn: Warn | None = None


QUIET = Notify()


def known(path: Path | None = None, *, name: str, notify: Notify = QUIET) -> Dataset:
    """The data of a benchmark that is made of a known data set."""
    found, groups = known_set(name), BENCHMARKS[name].domain_groups
    if found.is_embedded and path is not None:
        raise UserError(
            f"{name} comes inside a package and is read from nowhere else; for images "
            f'of your own: benchmark="{"npz" if path.is_file() else "folder"}", data="{path}"'
        )
    dataset = library.load(found.name, path, progress=notify.progress, warn=notify.warn)
    return group_domains(dataset, groups) if groups else dataset


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """How a folder of images is read."""

    size: int | None = None
    """side that every image is brought to; None: they must all have one size already"""
    channels: int | None = None
    """1 for grey, 3 for colour; None: grey if all images are"""
    layout: Layout = "auto"
    """what the levels of folders stand for"""
    fit: Fit = "crop"
    """how an image is brought to the size"""


def folder(path: Path | None = None, *, notify: Notify = QUIET, **options: Any) -> Dataset:
    """Your own images in folders."""
    if path is None:
        raise UserError('benchmark folder needs data="FOLDER", the folder with your images')
    if path.is_file():
        raise UserError(f"benchmark folder reads folders and {path} is a file; for .npz: npz")
    given = asdict(FolderOptions(**options))
    return load_own(path, **given, progress=notify.progress, warn=notify.warn)


@dataclass(frozen=True, kw_only=True)
class NpzOptions:
    """How an .npz file is read."""

    group_years: int | None = None
    """years that make one domain, where the file has years (10: decades)"""


def npz(path: Path | None = None, *, notify: Notify = QUIET, **options: Any) -> Dataset:
    """Your own images or vectors in an .npz file."""
    if path is None:
        raise UserError('benchmark npz needs data="FILE.npz", the file with your images')
    if path.is_dir():
        raise UserError(f"benchmark npz reads a file and {path} is a folder; for folders: folder")
    given = asdict(NpzOptions(**options))
    return load_own(path, **given, progress=notify.progress, warn=notify.warn)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Which columns of a table are features, the class, the domain."""

    label: str = "label"
    """the column of classes"""
    features: tuple[str, ...] | None = None
    """the columns of features; None: all that have no other use"""
    text: str | None = None
    """a column of texts, instead of features; a frozen encoder of texts turns them into vectors"""
    leave_out: tuple[str, ...] = ()
    """columns that are not used"""
    domain: str | None = None
    """the column that says where or when a sample was taken"""
    time: str | None = None
    """a column of numbers or dates to sort by; samples become periods of equal size, the domains"""
    periods: int = 8
    """domains that time makes"""
    test: str | None = None
    """the column that is true (1) for samples of the test part"""
    class_names: tuple[str, ...] | None = None
    """the order of the class names, or one name per class number"""


def table(path: Path | None = None, *, notify: Notify = QUIET, **options: Any) -> Dataset:
    """Your own feature vectors in a table."""
    del notify
    if path is None:
        raise UserError(
            'benchmark table needs data="FILE", a .csv, .parquet, .npz or .npy file, or a folder '
            "that Hugging Face's save_to_disk wrote"
        )
    if not path.expanduser().exists():
        raise UserError(f"there is no table at {path}; expected a file, or a Hugging Face folder")
    return from_table(path.expanduser(), **asdict(TableOptions(**options)))


def own(path: Path | None = None, *, notify: Notify = QUIET) -> Dataset:
    """Stands for a data set that was given from Python."""
    del path, notify
    raise UserError(
        "the run was made with a data set given from Python: give it again, as "
        'driftwise.run(config, out, data=...), or read yours with benchmark="folder", data="FOLDER"'
    )
