"""Feature vectors from the columns of a table: which column is a feature, the class, the domain."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from driftwise.datasets.readers.columns import Table, open_table
from driftwise.errors import UserError

if TYPE_CHECKING:
    from driftwise.types import Dataset

EVERYTHING = "all samples"
"""the one class of samples without labels"""

_CHUNK = 1 << 20
"""numbers that are checked at once: vectors may be mapped from a file larger than memory"""


def from_table(
    source: Any,
    *,
    label: str | None = "label",
    features: Sequence[str] | None = None,
    text: str | None = None,
    leave_out: Sequence[str] = (),
    domain: str | None = None,
    time: str | None = None,
    periods: int = 8,
    test: str | None = None,
    class_names: Sequence[str] | None = None,
) -> Dataset:
    """A data set of feature vectors from the columns of a table, one sample per line.

    Args:
        source: the path of a .csv file (with a line of names), a .parquet file (needs pandas or
            polars), an .npz file (an array per column), an .npy file of vectors (labels beside it in
            `NAME_labels.npy` or `labels.npy`; float32 is mapped, not read) or a folder that Hugging
            Face's `save_to_disk` wrote; a pandas or polars data frame; a Hugging Face data set; or
            columns by name.
        label: the column of class names or whole numbers (`labels` where there is no `label`).
            None: there are no labels; all samples become one class.
        features: the columns of features, in this order. None: where columns hold a vector per
            sample, those; else all columns that have no other use here.
        text: a column of texts, instead of features: the data set then holds texts, which a frozen
            encoder of texts turns into vectors.
        leave_out: columns that are not used.
        domain: the column that says where or when a sample was taken.
        time: a column of numbers or dates to sort by; the samples become `periods` domains of
            equal size.
        periods: domains that `time` makes.
        test: the column that is true (1) for samples of the test part.
        class_names: one name per class number, or the order of the names.

    Raises:
        UserError: a column is missing, holds text where numbers belong, or holds gaps.

    A constant column is taken as it is: it may begin to vary.

    >>> columns = {"width": [1.0, 2.0], "height": [3.0, 5.0], "label": ["cat", "dog"]}
    >>> from_table(columns).images.tolist()
    [[1.0, 3.0], [2.0, 5.0]]
    """
    from driftwise.datasets.arrays import domain_numbers
    from driftwise.datasets.validate import check_dataset
    from driftwise.types import Dataset

    table = open_table(source)
    name = table.source
    if domain is not None and time is not None:
        raise UserError(f"{name}: give domain or time, not both: either makes the domains")
    if label == "label" and "label" not in table.names and "labels" in table.names:
        label = "labels"
    if time is None:
        domain = domain or table.roles.get("domain")
    test = test or table.roles.get("test")
    roles = [each for each in (label, domain, time, test) if each is not None]
    if text is not None and features is not None:
        raise UserError(f"{name}: give text or features, not both: either makes the samples")
    chosen = _chosen(table, roles, features if text is None else [text], leave_out)
    columns = table.read(*((chosen, roles) if text is None else ((), [text, *roles])))
    if text is None:
        samples = _vectors({each: columns[each] for each in chosen}, name)
    else:
        samples = _texts(columns[text], name, text)
    labels = np.zeros(len(samples), dtype=np.int64)
    names: tuple[str, ...] = (EVERYTHING,)
    if label is not None:
        values, known = columns[label], class_names
        if not known and label in table.class_names:
            values, known = _named(values, table.class_names[label])
        labels, names = _classes(values, known, name, label)
    domains: np.ndarray | None = None
    domain_names: tuple[str, ...] = ()
    if domain is not None:
        domains, domain_names = domain_numbers(_names_or_numbers(columns[domain], name, domain))
    elif time is not None:
        domains, domain_names = _periods(columns[time], periods, name, time)
    is_test = None if test is None else _numbers(columns[test], test, name)
    if is_test is not None and not np.isin(is_test, (0, 1)).all():
        raise UserError(f"{name}: {test} must be true or false (1 or 0) for each sample")
    dataset = Dataset(
        images=samples,
        labels=labels,
        class_names=names,
        is_test=None if is_test is None else is_test.astype(bool),
        domains=domains,
        domain_names=domain_names,
        feature_names=()
        if text is not None
        else _feature_names({each: columns[each] for each in chosen}),
    )
    return check_dataset(dataset, source=name)


def from_texts(
    texts: Sequence[str],
    labels: Sequence[str] | Sequence[int] | np.ndarray | None = None,
    *,
    domain: Any = None,
    time: Any = None,
    periods: int = 8,
    is_test: Any = None,
    class_names: Sequence[str] | None = None,
) -> Dataset:
    """A data set of texts, which a frozen encoder of texts turns into vectors.

    Args:
        texts: (samples,).
        labels: (samples,) class names or whole numbers. None: all samples are one class.
        domain: (samples,) where or when each text was written, names or numbers.
        time: (samples,) numbers or dates to sort by; the samples become `periods` domains of equal
            size.
        periods: domains that `time` makes.
        is_test: (samples,) true where a text belongs to the test part.
        class_names: one name per class number, or the order of the names.

    >>> data = from_texts(["good film", "bad film"], ["praise", "blame"], time=[2001, 2002], periods=2)
    >>> data.images.tolist(), data.labels.tolist(), data.domains.tolist()
    (['good film', 'bad film'], [1, 0], [0, 1])
    """
    if isinstance(texts, str):
        raise UserError("texts must be a sequence of texts, one per sample; got one text")
    columns = {"labels": labels, "domain": domain, "time": time, "is_test": is_test}
    given = {name: column for name, column in columns.items() if column is not None}
    # As objects: an array of text has room for the longest one everywhere.
    return from_table(
        {"texts": np.array(list(texts), dtype=object), **given},
        text="texts",
        label="labels" if labels is not None else None,
        domain="domain" if domain is not None else None,
        time="time" if time is not None else None,
        periods=periods,
        test="is_test" if is_test is not None else None,
        class_names=class_names,
    )


def _texts(values: np.ndarray, source: str, column: str) -> np.ndarray:
    """Texts as objects (samples,); gaps and numbers are refused."""
    plain: list[object] = values.tolist()
    bad = [place for place, each in enumerate(plain) if not isinstance(each, str)]
    if bad:
        raise UserError(
            f"{source}: column {column!r} holds no text in {len(bad)} of {len(plain)} samples, the "
            f"first of them {bad[0]} ({plain[bad[0]]!r:.40}); fill the gaps or leave these out"
        )
    return np.array(plain, dtype=object)


def _chosen(
    table: Table, roles: Sequence[str], features: Sequence[str] | None, leave_out: Sequence[str]
) -> list[str]:
    """The columns of features; UserError where a column that was named is missing."""
    for option, given in (("features", features), ("leave_out", leave_out)):
        if isinstance(given, str):
            raise UserError(f"{option} must be a list of columns; got {given!r}")
    if missing := [
        each for each in (*roles, *(features or ()), *leave_out) if each not in table.names
    ]:
        listed = ", ".join(table.names[:20]) + (" ..." if len(table.names) > 20 else "")
        what_to_do = ": say by `label` which one holds the classes" if missing[0] == "label" else ""
        raise UserError(
            f"{table.source}: has no column {missing[0]!r}; it has {listed}{what_to_do}"
        )
    if features is not None:
        chosen = list(features)
        if twice := [each for each in chosen if chosen.count(each) > 1]:
            raise UserError(f"{table.source}: features names {twice[0]!r} twice")
    else:
        free = [each for each in table.names if each not in {*roles, *leave_out}]
        chosen = [each for each in free if each in table.vectors] or free
    if not chosen:
        raise UserError(f"{table.source}: no column is left for features beside {', '.join(roles)}")
    return chosen


def _vectors(columns: dict[str, np.ndarray], source: str) -> np.ndarray:
    """float32 (samples, features); a single column of float32 vectors is taken as it is."""
    parts = [_numbers(values, name, source) for name, values in columns.items()]
    if len(parts) == 1 and parts[0].ndim == 2:
        return parts[0]
    vectors = np.empty((len(parts[0]), sum(part[:1].size for part in parts)), dtype=np.float32)
    begin = 0
    for part in parts:
        wide = part.reshape(len(part), -1)
        vectors[:, begin : begin + wide.shape[1]] = wide
        begin += wide.shape[1]
    return vectors


def _feature_names(columns: dict[str, np.ndarray]) -> tuple[str, ...]:
    """Of each feature; () where all are the entries of one vector, which have no names."""
    if len(columns) == 1 and all(values.ndim == 2 for values in columns.values()):
        return ()
    return tuple(
        each
        for name, values in columns.items()
        for each in (
            [name] if values.ndim == 1 else [f"{name}[{place}]" for place in range(values.shape[1])]
        )
    )


def _numbers(values: np.ndarray, column: str, source: str) -> np.ndarray:
    """A column of numbers or vectors as float32; text and gaps are refused."""
    if values.dtype.kind not in "biuf":
        try:
            if values.dtype.kind == "M":
                raise ValueError("a date is no number")
            flat = [np.nan if _is_gap(each) else each for each in values.ravel().tolist()]
            values = np.array(flat, dtype=float).reshape(values.shape)
        except (TypeError, ValueError) as error:
            odd = next(each for each in values.ravel().tolist() if not _is_number(each))
            kind = "text" if isinstance(odd, str) else f"a {type(odd).__name__}"
            raise UserError(
                f"{source}: column {column!r} holds {kind} such as {str(odd)[:40]!r} where "
                "numbers are expected; leave it out (option leave-out) or make it numbers"
            ) from error
    with np.errstate(over="ignore"):  # infinite then, and refused
        numbers = values.astype(np.float32, copy=False)
    step = max(1, _CHUNK // max(1, numbers[:1].size))
    wide = numbers.reshape(len(numbers), -1)
    finite = [np.isfinite(wide[i : i + step]).all(axis=1) for i in range(0, len(wide), step)]
    gaps = np.flatnonzero(~np.concatenate(finite))
    if len(gaps):
        if wide.shape[1] > 1:
            column += f"[{np.argmin(np.isfinite(wide[gaps[0]]))}]"
        raise UserError(
            f"{source}: column {column!r} has no finite number in {len(gaps)} of {len(values)} "
            f"samples, the first of them {gaps[0]}; fill the gaps or leave the column out"
            + ("; single precision ends at 3.4e38" if np.isfinite(values[gaps[0]]).all() else "")
        )
    return numbers


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return _is_gap(value)
    return True


def _is_gap(value: object) -> bool:
    """Nothing, however it is written: pandas alone has three ways."""
    if isinstance(value, str):
        return value == ""
    return value is None or str(value) in ("nan", "NaT", "<NA>", "inf", "-inf")


def _names_or_numbers(values: np.ndarray, source: str, column: str) -> np.ndarray:
    """int64 where every value is a whole number, as in 1 and 1.0; else text. Gaps are refused."""
    if values.ndim != 1:
        raise UserError(
            f"{source}: column {column!r} holds vectors where one name or number is expected"
        )
    if values.dtype.kind in "biu":
        return values.astype(np.int64)
    plain = values.tolist()
    gaps = [place for place, each in enumerate(plain) if _is_gap(each)]
    if gaps:
        raise UserError(
            f"{source}: column {column!r} has no entry in {len(gaps)} of {len(plain)} samples, the "
            f"first of them {gaps[0]}; fill the gaps or leave these samples out"
        )
    texts = np.array([str(each) for each in plain])
    with contextlib.suppress(ValueError):
        return texts.astype(np.int64)
    with contextlib.suppress(ValueError):  # whole numbers that once stood beside a gap
        numbers = texts.astype(np.float64)
        if (np.abs(numbers) < 2**53).all() and (numbers == np.floor(numbers)).all():
            return numbers.astype(np.int64)
    return texts


def _named(values: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, Sequence[str] | None]:
    """Class numbers among the classes that have samples, and their names; None: not of these."""
    if values.dtype.kind not in "iu" or not 0 <= values.min() <= values.max() < len(names):
        return values, None
    numbers, positions = np.unique(values, return_inverse=True)
    return positions, [names[number] for number in numbers]


def _classes(
    values: np.ndarray, class_names: Sequence[str] | None, source: str, column: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as positions in the class names; without names, any numbers from 0 may be missing."""
    from driftwise.datasets.arrays import class_numbers

    labels = _names_or_numbers(values, source, column)
    kinds = set(labels.tolist()) if labels.dtype.kind == "U" else set()
    if len(kinds) > len(labels) / 2 >= 10 and all(map(_is_number, kinds)):
        raise UserError(
            f"{source}: column {column!r} holds {len(kinds)} different numbers such as {labels[0]} "
            f"in {len(labels)} samples; expected classes: cut the numbers into ranges first"
        )
    if class_names is not None or labels.dtype.kind == "U":
        return class_numbers(labels, class_names, source)
    if labels.min() < 0:
        raise UserError(
            f"{source}: column {column!r} holds {labels.min()}, expected classes from 0 on; -1 marks"
            " samples without a label: leave them out"
        )
    numbers, positions = np.unique(labels, return_inverse=True)
    return positions.astype(np.int64), tuple(map(str, numbers.tolist()))


def _periods(
    values: np.ndarray, periods: int, source: str, column: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Samples in order of time, cut into parts of equal size: positions and names."""
    if not 2 <= periods <= len(values):
        raise UserError(f"{source}: periods must be 2 to {len(values)}; got {periods}")
    if values.dtype.kind == "M":
        values = values.astype("datetime64[us]")  # which tolist makes dates of
    try:
        moments = np.array([_moment(each) for each in values.tolist()])
    except (TypeError, ValueError):
        moments = _numbers(values, column, source).astype(np.float64)  # it says what it holds
    gaps = np.flatnonzero(~np.isfinite(moments))
    if len(gaps):
        raise UserError(
            f"{source}: column {column!r} has no time in {len(gaps)} of {len(moments)} samples, the "
            f"first of them {gaps[0]}; fill the gaps or leave these samples out"
        )
    order = np.argsort(moments, kind="stable")
    positions = np.empty(len(values), dtype=np.int64)
    positions[order] = np.arange(len(values)) * periods // len(values)
    return positions, tuple(f"period {number}" for number in range(1, periods + 1))


def _moment(value: Any) -> float:
    """Seconds, or any number, to sort by; NaN where there is no time; ValueError for other text."""
    if _is_gap(value):
        return math.nan
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return float(value)
