"""The data of each benchmark, by name: local first, then a download, decoded once and cached."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recollect.data import library
from recollect.data.decode import Fit
from recollect.data.folders import Layout
from recollect.data.own import load_own
from recollect.errors import UserError
from recollect.types import Dataset


def fashion_mnist(path: Path | None = None) -> Dataset:
    """60,000 + 10,000 grey pictures of clothes, 28x28."""
    return library.load("fashion-mnist", path)


def cifar10(path: Path | None = None) -> Dataset:
    """50,000 + 10,000 colour pictures, 32x32."""
    return library.load("cifar-10", path)


def cifar100(path: Path | None = None) -> Dataset:
    """50,000 + 10,000 colour pictures, 32x32, in 100 classes."""
    return library.load("cifar-100", path)


def tiny_imagenet(path: Path | None = None) -> Dataset:
    """100,000 + 10,000 colour pictures, 64x64, in 200 classes."""
    return library.load("tiny-imagenet", path)


def clear10(path: Path | None = None) -> Dataset:
    """The first two and the last two buckets of ten years of photos, 224x224."""
    dataset = library.load("clear-10", path)
    early, late = "buckets 1-2", "buckets 9-10"
    eras = {"1": early, "2": early, "9": late, "10": late}
    return group_domains(dataset, eras)


def pacs(path: Path | None = None) -> Dataset:
    """9,991 pictures of 7 classes as photos, art paintings, cartoons and sketches, 64x64."""
    return library.load("pacs", path)


def yearbook(path: Path | None = None) -> Dataset:
    """27,849 portraits from American yearbooks by decade, 32x32."""
    return library.load("yearbook", path)


def group_domains(dataset: Dataset, groups: dict[str, str]) -> Dataset:
    """Each group of `groups` (domain -> group) as one domain, all other rows as one more.

    Nothing is left out: dropping rows would copy pixels that may be larger than memory, and a
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
    """How a folder of pictures is read."""

    size: int | None = None
    """side that every picture is brought to; None: they must all have one size already"""
    channels: int | None = None
    """1 for grey, 3 for colour; None: grey if all pictures are"""
    layout: Layout = "auto"
    """what the levels of folders stand for"""
    fit: Fit = "crop"
    """how a picture is brought to the size"""


def folder(
    path: Path | None = None,
    *,
    size: int | None = None,
    channels: int | None = None,
    layout: Layout = "auto",
    fit: Fit = "crop",
) -> Dataset:
    """Pictures of one's own in folders."""
    if path is None:
        raise UserError("benchmark folder needs --data FOLDER, the folder with your pictures")
    return load_own(path, size=size, channels=channels, layout=layout, fit=fit)


@dataclass(frozen=True, kw_only=True)
class NpzOptions:
    """How an .npz file is read."""

    group_years: int | None = None
    """years that make one domain, where the file has years (10: decades)"""


def npz(path: Path | None = None, *, group_years: int | None = None) -> Dataset:
    """Pictures of one's own in an .npz file."""
    if path is None:
        raise UserError("benchmark npz needs --data FILE.npz, the file with your pictures")
    return load_own(path, group_years=group_years)
