"""Well known streams of feature vectors in the files in which they are given out."""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftwise.datasets.reading import Allocate, StageProgress, empty, silent
from driftwise.errors import UserError
from driftwise.types import Dataset

GASES = ("ethanol", "ethylene", "ammonia", "acetaldehyde", "acetone", "toluene")
_GAS_FEATURES = 128

ELECTRICITY_FEATURES = ("period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer")
_HALF_HOURS = 48
_ELECTRICITY_PERIODS = 10

_APPROACH = 10
"""images of an object that is approached once"""


def read_gas_sensor(
    path: Path, *, allocate: Allocate = empty, progress: StageProgress = silent
) -> Dataset:
    """Readings of 16 gas sensors over 36 months: `batch1.dat` ... `batch10.dat`, or an `.npz` file.

    A line of a `.dat` file is a gas (1 to 6, a concentration may follow after a semicolon) and 128
    features, each with its number. An `.npz` file has `features`, `labels` from 0 and `batch`.
    Every batch is a domain.
    """
    del allocate
    if path.is_file():
        columns = _npz(path, "features", "labels", "batch")
        vectors, labels, batches = columns["features"], columns["labels"], columns["batch"]
        progress(len(labels), len(labels))
    else:
        numbered = {number: file for file in path.iterdir() if (number := _batch_of(file))}
        if not numbered:
            raise UserError(f"expected batch1.dat, batch2.dat, ... in {path}, found none of them")
        parts = []
        for done, number in enumerate(sorted(numbered), start=1):
            parts.append((*_sparse(numbered[number]), number))
            progress(done, len(numbered))
        vectors = np.concatenate([part[0] for part in parts])
        labels = np.concatenate([part[1] for part in parts])
        batches = np.concatenate([np.full(len(part[1]), part[2]) for part in parts])
    numbers, domains = np.unique(batches, return_inverse=True)
    return _dataset(
        path,
        vectors,
        labels,
        GASES,
        domains=domains.astype(np.int64),
        domain_names=tuple(f"batch {number}" for number in numbers.tolist()),
    )


def _batch_of(file: Path) -> int | None:
    found = re.fullmatch(r"batch(\d+)\.dat", file.name)
    return int(found[1]) if found else None


def _sparse(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels (from 0) of a `.dat` file; every feature must be in every line."""
    lines = _text(file).splitlines()
    vectors = np.empty((len(lines), _GAS_FEATURES), dtype=np.float32)
    labels = np.empty(len(lines), dtype=np.int64)
    for place, line in enumerate(lines):
        gas, *pairs = line.split()
        try:
            labels[place] = int(gas.split(";")[0]) - 1
            names, values = zip(*(pair.split(":") for pair in pairs), strict=True)
            if [int(name) for name in names] != [*range(1, _GAS_FEATURES + 1)]:
                raise ValueError
            vectors[place] = [float(value) for value in values]
        except ValueError:
            raise UserError(
                f"{file}, line {place + 1}: expected a gas and the features 1:... to "
                f"{_GAS_FEATURES}:...; got {line[:40]!r}; fetch the file again"
            ) from None
    return vectors, labels


def read_electricity(
    path: Path, *, allocate: Allocate = empty, progress: StageProgress = silent
) -> Dataset:
    """Half-hourly electricity prices in New South Wales, up or down, 1996 to 1998, in time order.

    An `.arff` or `.csv` file with the columns of `elecNormNew`, or an `.npz` file with `features`
    and `labels` (1: up). Date and day of the week are left out. Ten periods of equal length are the
    domains; the 48 samples of a day are a group.
    """
    del allocate
    if path.suffix == ".npz":
        columns = _npz(path, "features", "labels")
        vectors, labels = columns["features"], columns["labels"]
    else:
        table = _table(path)
        vectors = _features(path, table, ELECTRICITY_FEATURES)
        labels = _column(path, table, "class")
    day = np.arange(len(labels)) // _HALF_HOURS
    days = int(day.max(initial=0)) + 1
    progress(len(labels), len(labels))
    return _dataset(
        path,
        vectors,
        labels,
        ("DOWN", "UP"),
        domains=day * _ELECTRICITY_PERIODS // days,
        domain_names=tuple(f"period {number + 1}" for number in range(_ELECTRICITY_PERIODS)),
        groups=day,
    )


def read_outdoor(
    path: Path, *, allocate: Allocate = empty, progress: StageProgress = silent
) -> Dataset:
    """Colour features of 40 garden objects, each approached ten times under changing light.

    `outdoorStream.data` beside `outdoorStream.labels`, an `.arff` or `.csv` file whose last column
    is the object, or an `.npz` file with `features` and `labels`; in time order. The ten images of
    an approach are a group; the earlier half of an object's approaches is one domain, the later
    half the other.
    """
    del allocate
    if path.suffix == ".npz":
        columns = _npz(path, "features", "labels")
        vectors, labels = columns["features"], columns["labels"]
    elif path.suffix == ".data":
        vectors = _plain_numbers(path)
        labels = _plain_numbers(path.with_suffix(".labels"))[:, 0].astype(np.int64)
    else:
        table = _table(path)
        *names, last = table
        vectors = _features(path, table, names)
        labels = table[last].astype(np.float64).astype(np.int64)
    labels = np.unique(labels, return_inverse=True)[1].astype(np.int64)  # some files count from 1
    place = np.empty_like(labels)
    half = np.empty_like(labels)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        place[mine] = np.arange(len(mine)) // _APPROACH
        half[mine] = np.arange(len(mine)) >= len(mine) / 2
    progress(len(labels), len(labels))
    return _dataset(
        path,
        vectors,
        labels,
        tuple(f"object {number}" for number in range(int(labels.max(initial=0)) + 1)),
        domains=half,
        domain_names=("earlier approaches", "later approaches"),
        groups=labels * (int(place.max(initial=0)) + 1) + place,
    )


def _dataset(
    path: Path, vectors: np.ndarray, labels: np.ndarray, class_names: Sequence[str], **columns: Any
) -> Dataset:
    """A checked data set; labels are numbers from 0, or names."""
    from driftwise.datasets.arrays import class_numbers
    from driftwise.datasets.validate import check_dataset

    numbers, names = class_numbers(labels, class_names, str(path))
    dataset = Dataset(
        images=np.ascontiguousarray(vectors, dtype=np.float32),
        labels=numbers,
        class_names=names,
        **columns,
    )
    return check_dataset(dataset, source=str(path))


def _npz(path: Path, *names: str) -> dict[str, np.ndarray]:
    """Arrays of an `.npz` file; nothing in it is unpickled."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if missing := [name for name in names if name not in arrays]:
                raise UserError(
                    f"{path}: holds {', '.join(arrays) or 'nothing'}; expected {missing[0]!r}"
                )
            return {name: arrays[name] for name in names}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: cannot be read ({error}); save or fetch it again") from error


def _table(path: Path) -> dict[str, np.ndarray]:
    """The columns of an `.arff` file or of a `.csv` file with a line of names, as text."""
    lines = [line.strip() for line in _text(path).splitlines()]
    if path.suffix == ".arff":
        begin = next((i for i, line in enumerate(lines) if line.lower() == "@data"), len(lines))
        names = [
            line.split()[1].strip("'\"")
            for line in lines[:begin]
            if line.lower().startswith("@attribute") and len(line.split()) > 1
        ]
        rows = [line for line in lines[begin + 1 :] if line and not line.startswith("%")]
    else:
        names, rows = [name.strip("'\" ") for name in lines[0].split(",")], lines[1:]
    values = [line for line in csv.reader(rows, skipinitialspace=True, quotechar="'") if line]
    if not names or not values or {len(line) for line in values} != {len(names)}:
        raise UserError(
            f"{path}: expected {len(names)} values in every line, as many as there are columns"
        )
    columns = zip(*values, strict=True)
    return {name: np.array(column) for name, column in zip(names, columns, strict=True)}


def _column(path: Path, table: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in table:
        raise UserError(f"{path}: has no column {name!r}; it has {', '.join(table)}")
    return table[name]


def _features(path: Path, table: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    columns = []
    for name in names:
        try:
            columns.append(_column(path, table, name).astype(np.float32))
        except ValueError as error:
            raise UserError(f"{path}: column {name!r} holds text or gaps ({error})") from None
    return np.stack(columns, axis=1)


def _plain_numbers(path: Path) -> np.ndarray:
    """Numbers in lines, with blanks between them: (lines, numbers)."""
    lines = [line.split() for line in _text(path).splitlines() if line.strip()]
    try:
        numbers = np.array(lines, dtype=np.float32)
        if numbers.ndim == 2:
            return numbers
    except ValueError:
        pass
    raise UserError(f"{path}: expected equally many numbers in every line; fetch it again")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text ({error})") from error
