"""Feature vectors in a table: a .csv or .parquet file, a data frame, or columns by name."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from driftwise.errors import UserError

if TYPE_CHECKING:
    from driftwise.types import Dataset


def from_table(
    source: Any,
    *,
    label: str = "label",
    features: Sequence[str] | None = None,
    domain: str | None = None,
    time: str | None = None,
    periods: int = 8,
    test: str | None = None,
    class_names: Sequence[str] | None = None,
) -> Dataset:
    """A data set of feature vectors from the columns of a table, one sample per line.

    Args:
        source: the path of a .csv file (with a line of names) or a .parquet file (needs pandas or
            polars), a pandas or polars data frame, or columns by name.
        label: the column of class names or numbers from 0.
        features: the columns of features, in this order. None: all that are not named here.
        domain: the column that says where or when a sample was taken.
        time: a column of numbers or dates to sort by; the samples become `periods` domains of
            equal size.
        periods: domains that `time` makes.
        test: the column that is true (1) for samples of the test part.
        class_names: one name per class number, or the order of the names.

    Raises:
        UserError: a column is missing, holds text where numbers belong, or holds gaps.

    >>> columns = {"width": [1.0, 2.0], "height": [3.0, 5.0], "label": ["cat", "dog"]}
    >>> from_table(columns).images.tolist()
    [[1.0, 3.0], [2.0, 5.0]]
    """
    from driftwise.datasets.arrays import class_numbers, domain_numbers
    from driftwise.datasets.validate import check_dataset
    from driftwise.types import Dataset

    name, columns = _columns(source)
    if domain is not None and time is not None:
        raise UserError(f"{name}: give domain or time, not both: either makes the domains")
    roles = [each for each in (label, domain, time, test) if each is not None]
    wanted = [*roles, *(features or ())]
    if missing := [each for each in wanted if each not in columns]:
        listed = ", ".join(list(columns)[:20]) + (" ..." if len(columns) > 20 else "")
        raise UserError(f"{name}: has no column {missing[0]!r}; it has {listed}")
    chosen = list(features) if features is not None else [c for c in columns if c not in roles]
    if not chosen:
        raise UserError(f"{name}: no column is left for features beside {', '.join(roles)}")
    vectors = np.stack([_numbers(columns[each], each, name) for each in chosen], axis=1)
    labels, names = class_numbers(_names_or_numbers(columns[label]), class_names, name)
    domains: np.ndarray | None = None
    domain_names: tuple[str, ...] = ()
    if domain is not None:
        domains, domain_names = domain_numbers(_names_or_numbers(columns[domain]))
    elif time is not None:
        domains, domain_names = _periods(columns[time], periods, name, time)
    is_test = None if test is None else _numbers(columns[test], test, name)
    if is_test is not None and not np.isin(is_test, (0, 1)).all():
        raise UserError(f"{name}: {test} must be true or false (1 or 0) for each sample")
    dataset = Dataset(
        images=vectors,
        labels=labels,
        class_names=names,
        is_test=None if is_test is None else is_test.astype(bool),
        domains=domains,
        domain_names=domain_names,
    )
    return check_dataset(dataset, source=name)


def _columns(source: Any) -> tuple[str, dict[str, np.ndarray]]:
    """What messages call the table, and its columns."""
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if not path.is_file():
            raise UserError(f"{path}: expected a .csv or .parquet file, found none")
        if path.suffix.lower() == ".parquet":
            return str(path), _columns(_read_parquet(path))[1]
        return str(path), _read_csv(path)
    if isinstance(source, Mapping):
        columns = {str(name): np.asarray(values) for name, values in source.items()}
    elif hasattr(source, "columns") and hasattr(source, "__getitem__"):
        columns = {str(each): np.asarray(source[each].to_numpy()) for each in source.columns}
    else:
        raise UserError(
            "expected the path of a .csv or .parquet file, a data frame or columns by name; got "
            f"{type(source).__name__}"
        )
    lengths = {each: len(values) for each, values in columns.items()}
    if not columns or not min(lengths.values()):
        raise UserError("data: the table has no samples")
    if len(set(lengths.values())) > 1:
        raise UserError(f"data: columns must be of one length; got {lengths}")
    return "data", columns


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            names = next(lines, [])
            if len(set(names)) != len(names) or not names:
                raise UserError(f"{path}: the first line must name every column once; got {names}")
            cells: list[list[str]] = []
            for number, line in enumerate(lines, start=2):
                if not line:
                    continue
                if len(line) != len(names):
                    raise UserError(
                        f"{path}: line {number} has {len(line)} values, expected {len(names)}"
                    )
                cells.append(line)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as CSV ({error})") from error
    if not cells:
        raise UserError(f"{path}: the table has no samples")
    return dict(zip(names, np.array(cells).T, strict=True))


def _read_parquet(path: Path) -> Any:
    for library in ("polars", "pandas"):
        try:
            module = importlib.import_module(library)
        except ImportError:
            continue
        try:
            return module.read_parquet(path)
        except Exception as error:  # each engine has errors of its own
            raise UserError(f"{path}: cannot be read as Parquet ({error})") from error
    raise UserError(f"{path}: reading Parquet needs pandas or polars: pip install polars")


def _numbers(values: np.ndarray, column: str, source: str) -> np.ndarray:
    """A column as float32; text and gaps are refused."""
    if values.dtype.kind not in "biuf":
        try:
            values = np.array([np.nan if each in ("", None) else each for each in values], float)
        except (TypeError, ValueError) as error:
            texts = [each for each in values.tolist() if not _is_number(each)]
            raise UserError(
                f"{source}: column {column!r} holds text such as {str(texts[0])[:40]!r} where "
                "numbers are expected; leave it out (features=[...]) or encode it first"
            ) from error
    gaps = np.flatnonzero(~np.isfinite(values))
    if len(gaps):
        raise UserError(
            f"{source}: column {column!r} has no finite number in {len(gaps)} of {len(values)} "
            f"samples, the first of them {gaps[0]}; fill the gaps or leave the column out"
        )
    return values.astype(np.float32)


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return value is None or value == ""
    return True


def _names_or_numbers(values: np.ndarray) -> np.ndarray:
    """int64 where every value is a whole number, else text."""
    if values.dtype.kind in "biu":
        return values.astype(np.int64)
    texts = np.array([str(each) for each in values.tolist()])
    try:
        return texts.astype(np.int64)
    except ValueError:
        return texts


def _periods(
    values: np.ndarray, periods: int, source: str, column: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Samples in order of time, cut into parts of equal size: positions and names."""
    if not 2 <= periods <= len(values):
        raise UserError(f"{source}: periods must be 2 to {len(values)}; got {periods}")
    if values.dtype.kind == "M":
        moments = values.astype("datetime64[us]").astype(np.float64)
    elif values.dtype.kind in "biuf":
        moments = values.astype(np.float64)
    else:
        try:
            moments = np.array(values.tolist(), dtype="datetime64[us]").astype(np.float64)
        except ValueError:
            moments = _numbers(values, column, source).astype(np.float64)
    if not np.isfinite(moments).all():
        raise UserError(f"{source}: column {column!r} has samples without a time")
    order = np.argsort(moments, kind="stable")
    positions = np.empty(len(values), dtype=np.int64)
    positions[order] = np.arange(len(values)) * periods // len(values)
    return positions, tuple(f"period {number}" for number in range(1, periods + 1))
