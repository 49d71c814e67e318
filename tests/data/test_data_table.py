"""Feature vectors of every source: columns, files, data frames, arrays and data sets of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from driftwise.datasets import from_arrays, from_table, from_torch, load_own
from driftwise.datasets.own import holds_vectors
from driftwise.errors import UserError
from driftwise.types import Dataset

TABLE: dict[str, list[Any]] = {
    "width": [1.5, 2, 3, 4],
    "height": [4, 3, 2, 1],
    "kind": ["cat", "dog", "cat", "dog"],
    "when": ["2021-05-01", "2020-01-01", "2022-01-01", "2019-01-01"],
    "held out": [0, 1, 0, 1],
}
ROLES: dict[str, Any] = {"label": "kind", "time": "when", "periods": 2, "test": "held out"}


class Frame:
    """What pandas and polars have in common."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = list(columns)
        self._values = columns

    def __getitem__(self, name: str) -> Any:
        return Series(self._values[name])


class Series:
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def to_numpy(self) -> np.ndarray:
        return np.array(self._values, dtype=object)


def written(path: Path, table: Mapping[str, Sequence[Any] | np.ndarray]) -> Path:
    lines = [
        ",".join(table),
        *(",".join(map(str, line)) for line in zip(*table.values(), strict=False)),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("form", ["columns", "frame", "csv"])
def test_columns_become_vectors_labels_domains_and_a_test_part(form: str, tmp_path: Path) -> None:
    forms: dict[str, Any] = {"columns": TABLE, "frame": Frame(TABLE)}
    source = forms.get(form) or written(tmp_path / "table.csv", TABLE)
    data = from_table(source, **ROLES)
    assert data.images.dtype == np.float32
    assert data.images.tolist() == [[1.5, 4], [2, 3], [3, 2], [4, 1]]
    assert (data.labels.tolist(), data.class_names) == ([0, 1, 0, 1], ("cat", "dog"))
    assert data.domains is not None
    assert data.is_test is not None
    assert data.domains.tolist() == [1, 0, 1, 0], "the earlier half, the later half"
    assert data.domain_names == ("period 1", "period 2")
    assert data.is_test.tolist() == [False, True, False, True]


def test_features_can_be_chosen_and_domains_named() -> None:
    data = from_table(TABLE, label="held out", features=["height"], domain="kind")
    assert data.images.tolist() == [[4], [3], [2], [1]]
    assert data.domain_names == ("cat", "dog")


TIMES: dict[str, Any] = {
    "dates": ["2021-05-01", "2020-01-01", "2022-01-01", "2019-01-01"],
    "moments of zones": [
        *("2020-01-01T12:00:00+00:00", "2020-01-01T12:30:00+02:00"),
        *("2020-01-01T12:00:00Z", "2020-01-01 11:59:59"),
    ],
    "numbers": ["10", "9", "1e2", "-3"],
    "numpy": np.array(["2021-05-01", "2020-01-01", "2022-01-01", "2019-01-01"], "datetime64[D]"),
    "durations": [timedelta(hours=each) for each in (3, 2, 4, 1)],
    "python": [
        datetime(2021, 5, 1, tzinfo=UTC),
        *(date(year, 1, 1) for year in (2020, 2022, 2019)),
    ],
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_times_of_any_kind_are_sorted(times: Any) -> None:
    domains = from_table({**TABLE, "when": times}, **ROLES).domains
    assert domains is not None
    assert domains.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("kind", [["1", "2.0", "2", "1.0"], [1.0, 2.0, 2.0, 1.0]])
def test_whole_numbers_are_classes_however_they_are_written(kind: list[Any]) -> None:
    data = from_table({**TABLE, "kind": kind}, **ROLES)
    assert (data.labels.tolist(), data.class_names) == ([0, 1, 1, 0], ("1", "2"))


def test_fractions_are_classes_only_if_samples_share_them(tmp_path: Path) -> None:
    ratings = {"x": np.arange(40.0), "label": np.arange(40) % 10 / 2}
    assert len(from_table(ratings).class_names) == 10
    readings = {"x": np.arange(40.0), "label": np.arange(40) / 8}
    for source in (readings, written(tmp_path / "readings.csv", readings)):
        with pytest.raises(
            UserError, match=r"40 different numbers such as 0\.0 in 40 samples; .* range"
        ):
            from_table(source)


REFUSED: dict[str, tuple[dict[Any, Any], dict[str, Any], str]] = {
    "label twice": ({}, {**ROLES, "features": ["width", "width"]}, "features names 'width' twice"),
    "a text, not a list": (
        {},
        {**ROLES, "features": "width"},
        "features must be a list of columns",
    ),
    "nothing of that name to leave out": (
        {},
        {**ROLES, "leave_out": ["id"]},
        "has no column 'id'; it has",
    ),
    "dates": (
        {"when": np.array(["2020-01-01"] * 4, dtype="datetime64[D]")},
        {"label": "kind"},
        "column 'when' holds a date such as '2020-01-01' where numbers are expected",
    ),
    "class gap": (
        {"kind": ["cat", None, "", float("nan")]},
        ROLES,
        "column 'kind' has no entry in 3 of 4 samples, the first of them 1",
    ),
    "class -1": ({"kind": [0, -1, 1, 1]}, ROLES, "column 'kind' holds -1, .* leave them out"),
    "class of vectors": (
        {"kind": [[0, 1], [1, 1], [0, 0], [1, 1]]},
        {**ROLES, "features": ["width"]},
        "column 'kind' holds vectors where one name or number is expected",
    ),
    "uneven vectors": (
        {"width": [[1], [2, 3], [4], [5]]},
        ROLES,
        "column 'width' holds vectors of different lengths",
    ),
    "vectors and gaps": (
        {"width": np.array([[1], None, [4], [5]], dtype=object)},
        ROLES,
        "column 'width' holds vectors of different lengths, or vectors and gaps",
    ),
    "gap in a vector": (
        {"width": [[1, 2], [3, np.inf], [1, 2], [1, 2]]},
        ROLES,
        r"column 'width\[1\]' has no finite number in 1 of 4 samples, the first of them 1",
    ),
    "more than single precision holds": ({"width": [1e300, 1, 1, 1]}, ROLES, "no finite number"),
    "images": ({"width": np.zeros((4, 2, 2))}, ROLES, r"'width' is \(4, 2, 2\); expected one"),
    "two of a name": ({"1": [1] * 4, 1: [2] * 4}, ROLES, "two columns are called '1'"),
    "no such column": ({}, {"label": "species"}, "has no column 'species'; it has width"),
    "text": ({}, {"label": "kind"}, "column 'when' holds text such as '2021-05-01'"),
    "gap": (
        {"width": [1, None, 3, 4]},
        ROLES,
        "column 'width' has no finite number in 1 of 4 samples, the first of them 1",
    ),
    "nan": ({"width": [1, float("nan"), 3, 4]}, ROLES, "no finite number in 1 of 4"),
    "both": ({}, {**ROLES, "domain": "kind"}, "give domain or time, not both"),
    "periods": ({}, {**ROLES, "periods": 9}, "periods must be 2 to 4; got 9"),
    "test part": ({"held out": [0, 1, 2, 1]}, ROLES, "held out must be true or false"),
    "lengths": ({"width": [1.0]}, ROLES, "columns must be of one length"),
    "no features": ({}, {**ROLES, "features": []}, "no column is left for features"),
    "no time": (
        {"when": ["2020-01-01", "", None, float("nan")]},
        ROLES,
        "column 'when' has no time in 3 of 4 samples, the first of them 1",
    ),
    "hours": ({"when": [time(hour) for hour in range(4)]}, ROLES, "'when' holds a time such as"),
    "infinite class": ({"kind": [1, 2, float("inf"), 1]}, ROLES, "'kind' has no entry in 1 of 4"),
    "time": ({"when": ["now", "then", "soon", ""]}, ROLES, "column 'when' holds text such as"),
}


@pytest.mark.parametrize(("changes", "roles", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_tables_are_refused(
    changes: dict[Any, Any], roles: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        from_table({**TABLE, **changes}, **roles)


def test_bad_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "table.csv"
    for content, message in {
        "a,label\n1,2,3\n": "line 2 has 3 values, expected 2",
        "a,a\n1,2\n": "must name every column once",
        "a,label\n": "has no samples",
        "": "expected a line of column names; the file begins with none",
        "a;label\n1,5;2\n": "columns are separated by ';', expected commas; or read it with pandas",
        ",a,label\n0,1,2\n": r"column 1 has no name; .* an index that pandas has written \(index=False",
    }.items():
        file.write_text(content)
        with pytest.raises(UserError, match=message):
            from_table(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"cannot be read as CSV .*; save it as text in UTF-8, or"):
        from_table(file)
    with pytest.raises(UserError, match=r"expected a \.csv, .* file, found none"):
        from_table(tmp_path / "none.csv")
    with pytest.raises(UserError, match="expected the path of"):
        from_table(3)
    with pytest.raises(UserError, match=r"got a lazy frame; give it as collect\(\) makes it"):
        from_table(SimpleNamespace(collect=None))
    with pytest.raises(UserError, match="the data set is streamed; load it with streaming=False"):
        from_table(SimpleNamespace(column_names=None, with_format=None, features=None))
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(UserError, match=r"needs pandas or polars: pip install 'driftwise\[tables"):
        from_table(tmp_path / "table.parquet")
    np.save(tmp_path / "objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'")
    for name in ("objects.npy", "torn.npy"):
        with pytest.raises(UserError, match="no array of numbers or text"):
            from_table(tmp_path / name)
    np.savez(tmp_path / "objects.npz", features=np.array([[{}], [1]], dtype=object))
    with pytest.raises(UserError, match="an array of Python objects, which is never loaded"):
        from_table(tmp_path / "objects.npz")


def test_gaps_of_pandas_are_gaps_in_every_column() -> None:
    pandas = pytest.importorskip("pandas")
    for name in ("width", "kind", "when"):
        frame = pandas.DataFrame(TABLE).astype({name: object})
        frame.loc[2, name] = pandas.NA
        with pytest.raises(UserError, match=rf"column '{name}' has no .* in 1 of 4 .* of them 2"):
            from_table(frame, **ROLES)


def test_structures_are_no_vectors_and_lists_of_lists_neither() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({**TABLE, "both": [{"left": 1.0, "right": 2.0}] * 4})
    with pytest.raises(
        UserError, match=r"column 'both' holds structures; .* \(in polars: unnest\)"
    ):
        from_table(frame, **ROLES)
    for nested in ([[[1.0], [2.0]]] * 4, [[[1.0, 2.0], [3.0, 4.0]]] * 4):
        with pytest.raises(
            UserError, match=r"column 'both' .* expected one number, text or vector"
        ):
            from_table(polars.DataFrame({**TABLE, "both": nested}), **ROLES)


# --- one mechanism for every source ---------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
Y = np.array(["argon", "neon", "xenon"])[np.arange(12) % 3]
NAMES = ("a", "b", "c")


class HuggingFace:
    """As much of `datasets.Dataset` as is used."""

    def __init__(self, columns: dict[str, np.ndarray], classes: list[str] | None = None) -> None:
        self._columns = columns
        self.column_names = list(columns)
        self.features = {name: SimpleNamespace() for name in columns}
        if classes:
            self.features["label"] = SimpleNamespace(names=classes)

    def __len__(self) -> int:
        return len(self._columns["label"])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        return {name: column[key] for name, column in self._columns.items()}

    def with_format(self, kind: str) -> HuggingFace:
        assert kind == "numpy"
        return self


def columns() -> dict[str, np.ndarray]:
    return {name: X[:, place] for place, name in enumerate(NAMES)} | {"label": Y}


def saved(folder: Path) -> tuple[Path, Path]:
    np.save(folder / "x.npy", X)
    np.save(folder / "labels.npy", Y)
    np.savez(folder / "x.npz", embeddings=X.astype(np.float64), labels=Y, batch=np.arange(12))
    np.savez(folder / "by columns.npz", x=np.asfortranarray(X), labels=Y)  # as pandas keeps a frame
    return folder / "x.npy", folder / "x.npz"


def parquet(library: str) -> Callable[[Path], Dataset]:
    def read(folder: Path) -> Dataset:
        frame = pytest.importorskip(library).DataFrame(columns())
        assert from_table(frame).feature_names == NAMES
        file = folder / "x.parquet"
        if library == "pandas":
            pytest.importorskip("pyarrow")
        frame.write_parquet(file) if library == "polars" else frame.to_parquet(file)
        return load_own(file)

    return read


def embeddings(library: str) -> Callable[[Path], Dataset]:
    def read(folder: Path) -> Dataset:
        return from_table(
            pytest.importorskip(library).DataFrame({"vector": X.tolist(), "label": Y})
        )

    return read


def own_huggingface(folder: Path) -> Dataset:
    package = pytest.importorskip("datasets")
    plain = {"vector": X.tolist(), "label": (np.arange(12) % 3).tolist()}
    names = package.ClassLabel(names=["argon", "neon", "xenon"])
    data = package.Dataset.from_dict(plain).cast_column("label", names)
    data.save_to_disk(folder / "hf")
    np.testing.assert_array_equal(from_table(data).images, X)
    return load_own(folder / "hf")


SOURCES: dict[str, Callable[[Path], Dataset]] = {
    "columns": lambda _: from_table(columns()),
    "csv": lambda folder: load_own(written(folder / "x.csv", columns())),
    "npy": lambda folder: load_own(saved(folder)[0]),
    "npz": lambda folder: load_own(saved(folder)[1]),
    "npz by columns": lambda folder: load_own(saved(folder)[1].with_name("by columns.npz")),
    "arrays": lambda _: from_arrays(X.astype(np.float64), Y.tolist()),
    "tensors": lambda _: from_arrays(torch.from_numpy(X), Y, feature_names=NAMES),
    "torch": lambda _: from_torch([(torch.from_numpy(x), y) for x, y in zip(X, Y, strict=True)]),
    "numbers": lambda _: from_torch(
        TensorDataset(torch.from_numpy(X), torch.arange(12) % 3),
        class_names=["argon", "neon", "xenon"],
    ),
    "hugging face": lambda _: from_table(HuggingFace(columns())),
    "list column": lambda _: from_table(
        HuggingFace({"vector": X, "label": Y, "id": np.arange(12)})
    ),
    "class label": lambda _: from_table(
        HuggingFace({"x": X, "label": np.arange(12) % 3}, ["argon", "neon", "xenon"])
    ),
    "a class without samples": lambda _: from_table(
        HuggingFace(
            {"x": X, "label": np.array([0, 1, 3] * 4)}, ["argon", "neon", "helium", "xenon"]
        )
    ),
    "polars": parquet("polars"),
    "pandas": parquet("pandas"),
    "polars lists": embeddings("polars"),
    "pandas lists": embeddings("pandas"),
    "saved hugging face": own_huggingface,
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_vectors_and_classes(source: str, tmp_path: Path) -> None:
    if (library := source.split()[0]) in ("polars", "pandas"):
        pytest.importorskip(library)
    data = SOURCES[source](tmp_path)
    assert data.images.dtype == np.float32
    np.testing.assert_array_equal(data.images, X)
    assert data.class_names == ("argon", "neon", "xenon")
    assert data.labels.tolist() == [0, 1, 2] * 4
    assert data.feature_names in (NAMES, ())


def test_the_index_that_pandas_writes_is_no_feature(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    table = {"__index_level_0__": range(12), **columns()}
    polars.DataFrame(table).write_parquet(tmp_path / "x.parquet")
    assert load_own(tmp_path / "x.parquet").feature_names == NAMES


def test_large_files_of_vectors_are_mapped_and_not_read(tmp_path: Path) -> None:
    data = load_own(saved(tmp_path)[0])
    assert isinstance(data.images.base, np.memmap)


def test_labels_beside_a_file_are_taken_only_where_they_must_belong_to_it(tmp_path: Path) -> None:
    np.save(tmp_path / "last.npy", X)
    np.save(tmp_path / "this.npy", X[:6])
    np.save(tmp_path / "labels.npy", Y)
    with pytest.raises(UserError, match=r"has no column 'label'; it has features"):
        load_own(tmp_path / "last.npy")
    np.save(tmp_path / "this_labels.npy", Y[:6])
    assert len(load_own(tmp_path / "this.npy").labels) == 6
    assert load_own(tmp_path / "last.npy", label=None).class_names == ("all samples",)


def test_numbers_of_classes_may_begin_anywhere_and_have_gaps() -> None:
    data = from_table({"x": [1.0, 2.0, 3.0], "label": [6.0, 2.0, 6.0]})
    assert (data.labels.tolist(), data.class_names) == ([1, 0, 1], ("2", "6"))


def test_splits_of_hugging_face_become_the_test_part() -> None:
    both = {"test": HuggingFace({"x": X[:3], "label": Y[:3]})}
    both["train"] = HuggingFace({"x": X[3:], "label": Y[3:]})
    data = from_table(both)
    assert data.is_test is not None
    assert data.is_test.tolist() == [False] * 9 + [True] * 3
    np.testing.assert_array_equal(data.images, X[[*range(3, 12), 0, 1, 2]])
    both["test"] = HuggingFace({"y": X[:3], "label": Y[:3]})
    with pytest.raises(UserError, match="the splits have different columns"):
        from_table(both)


def test_the_domains_and_test_part_of_an_npz_file_are_taken(tmp_path: Path) -> None:
    years = np.repeat([1990, 2000], 6)
    file = tmp_path / "x.npz"
    np.savez(file, features=X, labels=Y, year=years, is_test=years > 1990, batch=np.arange(12) // 4)
    data = load_own(file)
    assert data.domain_names == ("1990", "2000")
    assert data.is_test is not None
    assert data.is_test.sum() == 6
    assert load_own(file, domain="batch").domain_names == ("0", "1", "2")
    assert load_own(file, time="batch", periods=2).domain_names == ("period 1", "period 2")


def test_what_holds_vectors_is_known_before_it_is_read(tmp_path: Path) -> None:
    for file in saved(tmp_path):
        assert holds_vectors(file)
    np.savez(tmp_path / "images.npz", images=np.zeros((2, 8, 8), np.uint8), labels=[0, 1])
    (tmp_path / "broken.npz").write_bytes(b"PK")
    for name in ("images.npz", "broken.npz", "none.csv", "."):
        assert not holds_vectors(tmp_path / name)


VECTORS_REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "lengths": (
        lambda: from_torch([(X[0], 0), (X[0, :2], 1)]),
        r"sample 1 is \(2,\), sample 0 \(3,\); expected vectors of one length",
    ),
    "text": (lambda: from_torch([(["a", "b"], 0)]), "sample 0 is no vector of numbers"),
    "names": (lambda: from_arrays(X, Y, feature_names=["a"]), "must name each feature of"),
    "same names": (lambda: from_arrays(X, Y, feature_names=["a"] * 3), "must name each feature of"),
    "labels": (lambda: from_arrays(X, Y[:5]), "columns must be of one length"),
    "objects": (lambda: from_arrays(np.full((12, 3), "x", dtype=object), Y), "holds text such as"),
    "gap": (lambda: from_arrays(np.where(X > 1, np.nan, X), Y), "has no finite number in"),
}


@pytest.mark.parametrize(("call", "message"), VECTORS_REFUSED.values(), ids=VECTORS_REFUSED)
def test_bad_vectors_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_image_settings_are_refused_for_tables_and_columns_for_images(tmp_path: Path) -> None:
    npy, _ = saved(tmp_path)
    with pytest.raises(UserError, match="is a table; size can be set for a folder of images only"):
        load_own(npy, size=8)
    np.savez(tmp_path / "images.npz", images=np.zeros((2, 8, 8), np.uint8), labels=[0, 1])
    with pytest.raises(UserError, match=r"is an \.npz file; label can be set for a table only"):
        load_own(tmp_path / "images.npz", label="kind")
