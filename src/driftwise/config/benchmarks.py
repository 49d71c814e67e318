"""The data of each benchmark, by name: local first, then a download, decoded once and cached."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from driftwise.datasets import library
from driftwise.datasets.own import load_own
from driftwise.datasets.progress import Progress
from driftwise.datasets.readers.decode import Fit
from driftwise.datasets.readers.digits import load_digits
from driftwise.datasets.readers.folders import Layout
from driftwise.errors import UserError
from driftwise.types import Dataset


@dataclass(frozen=True, kw_only=True)
class Tell:
    """Whom to tell what is being done to the data: downloading, unpacking, decoding."""

    progress: Progress | None = None
    warn: library.Warn | None = None


QUIET = Tell()


def digits(path: Path | None = None, *, tell: Tell = QUIET) -> Dataset:
    """1,797 handwritten digits, 8x8, which come inside a package."""
    del tell
    if path is not None:
        raise UserError(
            f"digits-cd comes inside a package and is read from nowhere else; for images of your "
            f'own: benchmark="{"npz" if path.is_file() else "folder"}", data="{path}"'
        )
    return load_digits()


def fashion_mnist(path: Path | None = None, *, tell: Tell = QUIET) -> Dataset:
    """60,000 + 10,000 grey images of clothes, 28x28."""
    return library.load("fashion-mnist", path, progress=tell.progress, warn=tell.warn)


def cifar10(path: Path | None = None, *, tell: Tell = QUIET) -> Dataset:
    """50,000 + 10,000 colour images, 32x32."""
    return library.load("cifar-10", path, progress=tell.progress, warn=tell.warn)


def cifar100(path: Path | None = None, *, tell: Tell = QUIET) -> Dataset:
    """50,000 + 10,000 colour images, 32x32, in 100 classes."""
    return library.load("cifar-100", path, progress=tell.progress, warn=tell.warn)


def tiny_imagenet(path: Path | None = None, *, tell: Tell = QUIET) -> Dataset:
    """100,000 + 10,000 colour images, 64x64, in 200 classes."""
    return library.load("tiny-imagenet", path, progress=tell.progress, warn=tell.warn)


def clear10(path: Path | None = None, *, tell: Tell = QUIET) -> Dataset:
    """The first two and the last two buckets of ten years of photos, 224x224."""
    dataset = library.load("clear-10", path, progress=tell.progress, warn=tell.warn)
    early, late = "buckets 1-2", "buckets 9-10"
    eras = {"1": early, "2": early, "9": late, "10": late}
    return group_domains(dataset, eras)


def pacs(path: Path | None = None, *, tell: Tell = QUIET) -> Dataset:
    """9,991 images of 7 classes as photos, art paintings, cartoons and sketches, 64x64."""
    return library.load("pacs", path, progress=tell.progress, warn=tell.warn)


def yearbook(path: Path | None = None, *, tell: Tell = QUIET) -> Dataset:
    """27,849 portraits from American yearbooks by decade, 32x32."""
    return library.load("yearbook", path, progress=tell.progress, warn=tell.warn)


def group_domains(dataset: Dataset, groups: dict[str, str]) -> Dataset:
    """Each group of `groups` (domain -> group) as one domain, all other samples as one more.

    Nothing is left out: dropping samples would copy pixels that may be larger than memory, and a
    stream shows only the domains that its schedule names.
    """
    assert dataset.domains is not None, "only a data set with domains can be grouped"
    names = (*dict.fromkeys(groups.values()), "other")
    number_of = np.full(len(dataset.domain_names), len(names) - 1, dtype=np.int64)
    for domain, group in groups.items():
        if domain not in dataset.domain_names:
            known = ", ".join(dataset.domain_names)
            raise UserError(f"the data has no domain {domain!r}; it has {known}")
        number_of[dataset.domain_names.index(domain)] = names.index(group)
    return dataclasses.replace(dataset, domains=number_of[dataset.domains], domain_names=names)


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


def folder(
    path: Path | None = None,
    *,
    tell: Tell = QUIET,
    size: int | None = None,
    channels: int | None = None,
    layout: Layout = "auto",
    fit: Fit = "crop",
) -> Dataset:
    """Images of one's own in folders."""
    if path is None:
        raise UserError('benchmark folder needs data="FOLDER", the folder with your images')
    if path.is_file():
        raise UserError(f"benchmark folder reads folders and {path} is a file; for .npz: npz")
    return load_own(
        path,
        size=size,
        channels=channels,
        layout=layout,
        fit=fit,
        progress=tell.progress,
        warn=tell.warn,
    )


@dataclass(frozen=True, kw_only=True)
class NpzOptions:
    """How an .npz file is read."""

    group_years: int | None = None
    """years that make one domain, where the file has years (10: decades)"""


def npz(path: Path | None = None, *, tell: Tell = QUIET, group_years: int | None = None) -> Dataset:
    """Images of one's own in an .npz file."""
    if path is None:
        raise UserError('benchmark npz needs data="FILE.npz", the file with your images')
    if path.is_dir():
        raise UserError(f"benchmark npz reads a file and {path} is a folder; for folders: folder")
    return load_own(path, group_years=group_years, progress=tell.progress, warn=tell.warn)


def own(path: Path | None = None, *, tell: Tell = QUIET) -> Dataset:
    """Stands for a data set that only the Python that made the run has."""
    del path, tell
    raise UserError(
        "the run was made with a data set given from Python: give it again, as "
        'driftwise.run(config, out, data=...), or read yours with benchmark="folder", data="FOLDER"'
    )
