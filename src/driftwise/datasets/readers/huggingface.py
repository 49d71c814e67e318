"""Data sets that Hugging Face's `save_to_disk` wrote."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftwise.datasets.arrays import collect
from driftwise.datasets.readers.folders import SPLITS
from driftwise.datasets.reading import Allocate, StageProgress, empty, must_be_folder, silent
from driftwise.errors import UserError
from driftwise.types import Dataset

INSTALL = "pip install 'driftwise[hf]'"


def read_huggingface(
    path: Path,
    *,
    image: str = "image",
    label: str = "label",
    allocate: Allocate = empty,
    progress: StageProgress = silent,
) -> Dataset:
    """The data set in a folder; `image` and `label` name its columns.

    Of its splits `test` is the test part, or `validation` where there is no `test`; the rest is
    for training.
    """
    loaded = load_saved(path)
    splits = in_order(loaded if isinstance(loaded, Mapping) else {"": loaded})
    for table, _ in splits:
        if missing := [column for column in (image, label) if column not in table.column_names]:
            raise UserError(
                f"{path}: has the columns {', '.join(table.column_names)}; expected {missing[0]!r}"
            )
    class_names = getattr(splits[0][0].features[label], "names", None)
    # One column at a time: a sample of the table would decode the image with its label.
    labels = [list(table[label]) for table, _ in splits]
    if class_names is None:
        class_names, labels = _numbered(path, labels)
    is_test = np.repeat([is_test for _, is_test in splits], list(map(len, labels)))
    return collect(
        (
            (table[index][image], number)
            for (table, _), column in zip(splits, labels, strict=True)
            for index, number in enumerate(column)
        ),
        len(is_test),
        str(path),
        class_names=class_names,
        is_test=is_test if is_test.any() else None,
        allocate=allocate,
        progress=progress,
    )


def load_saved(path: Path) -> Any:
    """What `save_to_disk` wrote into a folder, a `Dataset` or a `DatasetDict`."""
    try:
        load_from_disk = importlib.import_module("datasets").load_from_disk
    # Python takes any folder called datasets for a package, an empty one.
    except (ImportError, AttributeError) as error:
        raise UserError(f"reading {path} needs the package datasets: {INSTALL}") from error
    must_be_folder(path, "a folder that save_to_disk wrote")
    try:
        return load_from_disk(str(path))
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not a data set that save_to_disk wrote ({reason})") from error


def column_names(path: Path, *, unknown: Sequence[str]) -> Sequence[str]:
    """The columns in a folder that `save_to_disk` wrote, without opening them."""
    for file in sorted((*path.glob("dataset_info.json"), *path.glob("*/dataset_info.json"))):
        try:
            return list(json.loads(file.read_text(encoding="utf-8"))["features"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return unknown


def _numbered(path: Path, labels: list[list[Any]]) -> tuple[list[str], list[list[int]]]:
    """Class names and numbers for labels whose names the data set does not list."""
    found = {label for column in labels for label in column}
    if len(kinds := {type(label) for label in found}) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise UserError(f"{path}: labels are of several kinds ({names}); expected one")
    number_of = {label: number for number, label in enumerate(sorted(found))}
    return list(map(str, number_of)), [[number_of[label] for label in col] for col in labels]


def in_order(splits: Mapping[str, Any]) -> list[tuple[Any, bool]]:
    """The splits, those to train on first, and whether each is the test part."""
    role = {name: SPLITS.get(name.lower(), "train") for name in splits}
    test_role = "test" if "test" in role.values() else "val"
    if set(role.values()) == {test_role}:
        return [(table, False) for table in splits.values()]  # nothing else to train on
    chosen = [(table, role[name] == test_role) for name, table in splits.items()]
    return sorted(chosen, key=lambda pair: pair[1])
