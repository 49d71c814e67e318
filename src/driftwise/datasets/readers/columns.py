"""The columns of a table, whatever holds it: a file, a data frame, arrays, a Hugging Face data set.

A column has one entry per sample: a number, a text, a date, or a vector of numbers.
"""

from __future__ import annotations

import csv
import importlib
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from driftwise.errors import UserError

SUFFIXES = (".csv", ".parquet", ".npz", ".npy")
VECTORS, LABELS = "features", "labels"
"""what the columns of plain arrays are called"""
_SPLIT = "split is test"
"""and the column that the splits of a Hugging Face data set make"""
INSTALL = "pip install 'driftwise[tables]'"

_LINES = 8192
"""lines of a .csv file that are turned into numbers at once: memory stays near the result's"""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns by name, read when they are asked for."""

    source: str
    """what messages call it"""
    names: Sequence[str]
    read: Callable[[Collection[str], Collection[str]], Mapping[str, np.ndarray]]
    """the columns of numbers and the other columns of these names"""
    vectors: Collection[str] = ()
    """columns with a vector per sample"""
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """of columns of class numbers, the names that came with them"""
    roles: Mapping[str, str] = field(default_factory=dict)
    """columns that have a role unless another is named"""


def open_table(source: Any) -> Table:
    """The table in a path, a data frame, a Hugging Face data set or a mapping; else a UserError."""
    from driftwise.array_checks import columns_of

    if isinstance(source, str | Path):
        return _open_path(Path(source).expanduser())
    if _is_huggingface(source):
        return huggingface_table(source, "data")
    if isinstance(source, Mapping):
        splits = list(source.values())
        if splits and all(map(_is_huggingface, splits)):
            return huggingface_table(source, "data")
        return in_memory(source, "data")
    if columns_of(source) is not None:
        return _frame(source, "data")
    raise UserError(
        "expected the path of a .csv, .parquet, .npz or .npy file, a data frame, a Hugging Face data"
        f" set or columns by name; got {type(source).__name__}"
    )


def _open_path(path: Path) -> Table:
    if path.is_dir():
        from driftwise.datasets.readers.huggingface import load_saved

        return huggingface_table(load_saved(path), str(path))
    if not path.is_file():
        raise UserError(f"{path}: expected a .csv, .parquet, .npz or .npy file, found none")
    opener = {".parquet": _open_parquet, ".npz": _open_npz, ".npy": _open_npy}
    return opener.get(path.suffix.lower(), _open_csv)(path)


def in_memory(columns: Mapping[Any, Any], source: str, **more: Any) -> Table:
    """A table of columns that are arrays, lists or tensors."""
    values: dict[str, np.ndarray] = {}
    for key, column in columns.items():
        if (name := str(key)) in values:
            raise UserError(f"{source}: two columns are called {name!r}; rename one of them")
        values[name] = _array(column, name, source)
    lengths = {name: len(column) for name, column in values.items()}
    if not lengths or not min(lengths.values()):
        raise UserError(f"{source}: the table has no samples")
    if len(set(lengths.values())) > 1:
        raise UserError(f"{source}: columns must be of one length; got {lengths}")
    return Table(
        source=source,
        names=list(values),
        read=lambda *wanted: {name: values[name] for name in itertools.chain(*wanted)},
        vectors=[name for name, column in values.items() if column.ndim == 2],
        **more,
    )


def _array(values: Any, name: str, source: str) -> np.ndarray:
    """(samples,), or (samples, d) where each entry is a list or an array of numbers."""
    from driftwise.array_checks import refuse_odd

    refuse_odd(values, f"{source}: column {name!r}")
    try:
        array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
        if array.dtype == object and array.ndim == 1 and _is_vector(_first(array)):
            array = np.stack([np.array(list(each)) for each in array])
    except (TypeError, ValueError) as error:  # numpy's and torch's words for uneven entries
        raise UserError(
            f"{source}: column {name!r} holds vectors of different lengths, or vectors and gaps;"
            " expected one length"
        ) from error
    if array.ndim not in (1, 2):
        raise UserError(
            f"{source}: column {name!r} is {array.shape}; expected one number, text or vector per"
            " sample"
        )
    return array


def _first(array: np.ndarray) -> object:
    return next((each for each in array if each is not None), None)


def _is_vector(value: object) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _frame(frame: Any, source: str) -> Table:
    """A pandas or polars data frame."""
    names = [str(name) for name in frame.columns]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UserError(f"{source}: two columns are called {twice[0]!r}; rename one of them")
    for name in frame.columns:  # polars makes vectors of them
        if str(getattr(frame[name], "dtype", "")).startswith("Struct"):
            raise UserError(
                f"{source}: column {name!r} holds structures; make a column of each of their fields "
                "(in polars: unnest)"
            )
    return in_memory({name: frame[name].to_numpy() for name in frame.columns}, source)


# --- files ----------------------------------------------------------------------------------------


def _open_csv(path: Path) -> Table:
    names = next(_csv_lines(path), [])
    if not names:
        raise UserError(f"{path}: expected a line of column names; the file begins with none")
    if len(names) == 1 and (other := next((each for each in ";\t|" if each in names[0]), None)):
        raise UserError(
            f"{path}: columns are separated by {other!r}, expected commas; or read it with pandas and "
            "give the data frame to datasets.from_table"
        )
    if "" in names:
        raise UserError(
            f"{path}: column {names.index('') + 1} has no name; give it one, or leave it out: an index "
            "that pandas has written (index=False writes none) is no feature"
        )
    if len(set(names)) != len(names):
        raise UserError(f"{path}: the first line must name every column once; got {names}")

    def read(numbers: Collection[str], texts: Collection[str]) -> dict[str, np.ndarray]:
        wanted = {name: place for place, name in enumerate(names) if name in {*numbers, *texts}}
        parts: dict[str, list[np.ndarray]] = {name: [] for name in wanted}
        for block in _csv_blocks(path, len(names)):
            for name, place in wanted.items():
                cells = block[place]
                # Texts as objects: an array of text has room for the longest one everywhere.
                parts[name].append(
                    _parsed(cells) if name in numbers else np.array(cells, dtype=object)
                )
        if not all(parts.values()):
            raise UserError(f"{path}: the table has no samples")
        return {name: np.concatenate(part) for name, part in parts.items()}

    return Table(source=str(path), names=names, read=read)


def _csv_lines(path: Path) -> Iterator[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield from csv.reader(file, strict=True)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{path}: cannot be read as CSV ({error}); save it as text in UTF-8, or read it with pandas "
            "and give the data frame to datasets.from_table"
        ) from error


def _csv_blocks(path: Path, width: int) -> Iterator[Sequence[tuple[str, ...]]]:
    """The columns of some lines after the first, again and again."""

    def whole(numbered: tuple[int, list[str]]) -> bool:
        number, line = numbered
        if line and len(line) != width:
            raise UserError(f"{path}: line {number} has {len(line)} values, expected {width}")
        return bool(line)

    numbered = enumerate(_csv_lines(path), start=1)
    next(numbered)
    lines = (line for _, line in filter(whole, numbered))
    while block := list(itertools.islice(lines, _LINES)):
        yield list(zip(*block, strict=True))


def _parsed(cells: Sequence[str]) -> np.ndarray:
    """Numbers, NaN where there is nothing; the texts themselves where one is no number."""
    try:
        return np.array(cells, dtype=np.float64)  # a third of the time of numpy's own texts
    except ValueError:
        pass
    try:
        return np.array([cell or "nan" for cell in cells], dtype=np.float64)
    except ValueError:
        return np.array(cells)


def _open_parquet(path: Path) -> Table:
    for library in ("polars", "pandas"):
        try:
            frame = importlib.import_module(library).read_parquet(path)
        except ImportError:  # of the library, or of what it reads Parquet with
            continue
        except Exception as error:  # each engine has errors of its own
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: cannot be read as Parquet ({reason})") from error
        # What pandas has written as the index of its lines is no column to pandas either.
        kept = [name for name in frame.columns if not str(name).startswith("__index_level_")]
        return _frame(frame[kept], str(path))
    raise UserError(f"{path}: reading Parquet needs pandas or polars: {INSTALL}")


def _open_npz(path: Path) -> Table:
    from driftwise.datasets.readers.npz import SPLIT_KEYS, Arrays

    with Arrays.opened(path) as arrays:
        shapes = arrays.shapes()
    named = {"domain": ("domain", "year"), "test": SPLIT_KEYS}
    roles = {role: [key for key in keys if key in shapes] for role, keys in named.items()}
    if len(roles["domain"]) > 1:
        raise UserError(f"{path}: holds both domain and year; save the one to go by")

    def read(numbers: Collection[str], texts: Collection[str]) -> dict[str, np.ndarray]:
        with Arrays.opened(path) as arrays:
            return {name: arrays.values(name) for name in (*numbers, *texts)}

    return Table(
        source=str(path),
        names=list(shapes),
        read=read,
        vectors=[name for name, shape in shapes.items() if len(shape) == 2],
        roles={role: keys[0] for role, keys in roles.items() if keys},
    )


def _open_npy(path: Path) -> Table:
    """Vectors, mapped from the file, and the labels in the file beside it."""
    columns = {VECTORS: _mapped(path)}
    if (labels := _labels_beside(path)) is not None:
        columns[LABELS] = _mapped(labels)
    return in_memory(columns, str(path))


def _mapped(path: Path) -> np.ndarray:
    try:
        # Copy on write ("c"): torch warns about arrays that may not be written to.
        array: np.ndarray = np.load(path, mmap_mode="c", allow_pickle=False)
    except Exception as error:  # a header is parsed as Python text: it may raise anything
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path}: no array of numbers or text that numpy.save wrote ({reason})"
        ) from error
    return array


def _labels_beside(path: Path) -> Path | None:
    """`NAME_labels.npy`, or `labels.npy` where the folder holds nothing else it could belong to."""
    own = path.with_name(f"{path.stem}_labels.npy")
    if own.is_file():
        return own
    shared = path.with_name("labels.npy")
    others = {each.name for each in path.parent.glob("*.npy")} - {path.name, shared.name}
    return shared if shared.is_file() and shared != path and not others else None


# --- Hugging Face ---------------------------------------------------------------------------------


def _is_huggingface(source: object) -> bool:
    return all(hasattr(source, name) for name in ("column_names", "with_format", "features"))


def huggingface_table(loaded: Any, source: str) -> Table:
    """A `datasets.Dataset`, or the splits of a `DatasetDict`: those to train on, then the test part."""
    from driftwise.datasets.readers.huggingface import in_order

    splits = in_order(loaded if isinstance(loaded, Mapping) else {"": loaded})
    if not all(hasattr(table, "__len__") for table, _ in splits):
        raise UserError(f"{source}: the data set is streamed; load it with streaming=False")
    is_test = np.repeat([test for _, test in splits], [len(table) for table, _ in splits])
    tables = [table.with_format("numpy") for table, _ in splits]
    features = tables[0].features
    for table in tables[1:]:
        if list(table.features) != list(features):
            raise UserError(f"{source}: the splits have different columns; expected the same")
    if not len(is_test):
        raise UserError(f"{source}: the table has no samples")
    split = {_SPLIT: is_test} if is_test.any() else {}
    first = tables[0][0]

    def read(numbers: Collection[str], texts: Collection[str]) -> dict[str, np.ndarray]:
        return {
            name: split[name]
            if name in split
            else np.concatenate([_array(table[name], name, source) for table in tables])
            for name in (*numbers, *texts)
        }

    return Table(
        source=source,
        names=[*features, *split],
        read=read,
        vectors=[name for name in features if np.ndim(first[name]) == 1],
        class_names={
            name: names
            for name, kind in features.items()
            if (names := getattr(kind, "names", None)) is not None
        },
        roles=dict.fromkeys(["test"] if split else [], _SPLIT),
    )
