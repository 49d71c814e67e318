"""Tables of feature vectors: columns, files and data frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftwise.datasets import from_table
from driftwise.errors import UserError

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


def written(path: Path, table: dict[str, list[Any]]) -> Path:
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


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
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
    "time": ({"when": ["now", "then", "soon", ""]}, ROLES, "column 'when' holds text such as"),
}


@pytest.mark.parametrize(("changes", "roles", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_tables_are_refused(
    changes: dict[str, Any], roles: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        from_table({**TABLE, **changes}, **roles)


def test_bad_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "table.csv"
    for content, message in {
        "a,b\n1,2,3\n": "line 2 has 3 values, expected 2",
        "a,a\n1,2\n": "must name every column once",
        "a,label\n": "has no samples",
        "": "must name every column once",
    }.items():
        file.write_text(content)
        with pytest.raises(UserError, match=message):
            from_table(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read as CSV"):
        from_table(file)
    with pytest.raises(UserError, match=r"expected a \.csv or \.parquet file, found none"):
        from_table(tmp_path / "none.csv")
    with pytest.raises(UserError, match="expected the path of"):
        from_table(3)
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(UserError, match="needs pandas or polars"):
        from_table(tmp_path / "table.parquet")
