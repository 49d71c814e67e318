"""Tiny-ImageNet in its official layout: 200 classes, 64x64, its validation part is the test part.

    wnids.txt  words.txt  train/WNID/images/*.JPEG  val/images/*.JPEG  val/val_annotations.txt

The official test images come without labels and are left alone. Classes are numbered in the order
in which `wnids.txt` lists them, which is no sorted one: tasks of the official order mix cats, reels
and volleyballs, tasks of sorted ids hold classes that are alike. The published experiments used the
official order; `tiny_imagenet_classes.txt` has it, id and name line by line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from driftwise.datasets.readers.decode import decode_all
from driftwise.datasets.readers.folders import images_in
from driftwise.datasets.reading import Allocate, StageProgress, empty, must_be_folder, silent
from driftwise.errors import UserError
from driftwise.types import Dataset

SIDE = 64


def read_tiny_imagenet(
    path: Path, *, allocate: Allocate = empty, progress: StageProgress = silent
) -> Dataset:
    """All labelled images, (samples, 64, 64, 3): training samples class by class, then test samples."""
    must_be_folder(path)
    wnids = [line.strip() for line in _lines(path / "wnids.txt")]
    twice = [wnid for wnid, count in Counter(wnids).items() if count > 1]
    if twice:
        raise UserError(f"{path / 'wnids.txt'} names {twice[0]!r} twice; expected each class once")
    files: list[Path] = []
    labels: list[int] = []
    for label, wnid in enumerate(wnids):
        folder = must_be_folder(path / "train" / wnid / "images")
        here = images_in(folder)
        if not here:
            raise UserError(f"{folder} holds no images; unpack the archive again")
        files += here
        labels += [label] * len(here)
    num_train = len(files)
    for file, label in _validation(path / "val", wnids):
        files.append(file)
        labels.append(label)
    images = allocate((len(files), SIDE, SIDE, 3))
    decode_all(files, images, fit="exact", progress=progress)
    return Dataset(
        images=images,
        labels=np.array(labels, dtype=np.int64),
        class_names=_class_names(path / "words.txt", wnids),
        is_test=np.arange(len(files)) >= num_train,
    )


def difference_from_published(class_names: Sequence[str]) -> str | None:
    """In a phrase, how the classes differ from those of the published order; None: they do not.

    >>> difference_from_published(["goldfish"])
    'it has 1 class, not 200'
    """
    lines = _lines(Path(__file__).with_name("tiny_imagenet_classes.txt"))
    expected = [line.split(maxsplit=1) for line in lines]
    if len(class_names) != len(expected):
        plural = "" if len(class_names) == 1 else "es"
        return f"it has {len(class_names)} class{plural}, not {len(expected)}"
    for label, (found, (wnid, name)) in enumerate(zip(class_names, expected, strict=True)):
        if found.lower().replace(" ", "_") != name.lower():
            return f"class {label} is {found}, not {name} ({wnid})"
    return None


def _validation(folder: Path, wnids: list[str]) -> list[tuple[Path, int]]:
    """The annotated images with their labels, in the order of the annotations."""
    annotations = folder / "val_annotations.txt"
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    images = {file.name: file for file in images_in(must_be_folder(folder / "images"))}
    samples = []
    for number, line in enumerate(_lines(annotations), start=1):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0].strip()
        where = f"{annotations}, line {number}"
        if wnid not in label_of:
            raise UserError(f"{where}: expected a class of wnids.txt, got {wnid!r}")
        if name not in images:
            raise UserError(
                f"{where}: there is no {folder / 'images' / name}, or it is named twice"
            )
        samples.append((images.pop(name), label_of[wnid]))
    if images:
        raise UserError(f"{min(images.values())} has no label in {annotations}")
    return samples


def _class_names(words: Path, wnids: list[str]) -> tuple[str, ...]:
    """The first synonym of each class; with the id where two classes share it."""
    synonyms = dict(line.split("\t", 1) for line in _lines(words) if "\t" in line)
    unnamed = [wnid for wnid in wnids if wnid not in synonyms]
    if unnamed:
        raise UserError(f"{words} has no words for {unnamed[0]!r}; unpack the archive again")
    names = [synonyms[wnid].split(",")[0].strip() for wnid in wnids]
    count = Counter(names)
    return tuple(
        name if count[name] == 1 else f"{name} ({wnid})"
        for name, wnid in zip(names, wnids, strict=True)
    )


def _lines(file: Path) -> list[str]:
    """The lines of a text file that are not blank, at least one."""
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise UserError(
            f"cannot read {file} ({error.strerror}); expected the folder tiny-imagenet-200"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is damaged: it is not text; unpack the archive again") from error
    if not lines:
        raise UserError(f"{file} is empty; unpack the archive again")
    return lines
