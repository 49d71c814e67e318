from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from paper_sweep_builders import Place, asked, places_of, write_sweep

from driftwise.errors import UserError
from driftwise.reproduce.detector_table import as_csv, detector_table

RATES = (0.0, 0.5, 1.0)
PLACES = [
    {"benchmark": "digits-cd", "method": "er", "adaptation": name, "tpr": tpr, "fpr": fpr}
    for name in ("amr", "fr")
    for tpr in RATES
    for fpr in (0.0, 0.2)
]


def by_rates(place: Place, seed: int) -> dict[str, Any] | None:
    if place["adaptation"] == "fr" and place["tpr"] == 1.0:
        return None
    return {
        "faa": 50 + 40 * place["tpr"] - 10 * place["fpr"] + 2 * seed,
        "labels": asked(place["adaptation"], 100, 10),
        "detection": {"tpr": place["tpr"], "fpr": place["fpr"]},
    }


def test_rows_are_true_positive_rates_and_columns_false_ones(tmp_path: Path) -> None:
    found = detector_table(write_sweep(tmp_path, PLACES, by_rates, reproduces=None))
    assert [head.title for head in found.heads] == ["adaptation", "TPR", "FPR 0", "FPR 0.2"]
    assert [[item.text for item in row] for row in found.rows] == [
        ["fr", "0", "51.0 ± 1.4", "49.0 ± 1.4"],
        ["fr", "0.5", "71.0 ± 1.4", "69.0 ± 1.4"],
        ["fr", "1", "not run", "not run"],
        ["amr", "0", "51.0 ± 1.4", "49.0 ± 1.4"],
        ["amr", "0.5", "71.0 ± 1.4", "69.0 ± 1.4"],
        ["amr", "1", "91.0 ± 1.4", "89.0 ± 1.4"],
    ]
    assert found.breaks == {3}
    for text in (found.text(), found.markdown(), found.html()):
        assert "scale smoke" in text
        assert "FPR 0.2" in text


def test_csv_has_a_line_per_cell_with_the_rates_that_were_reached(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, PLACES, by_rates, reproduces=None)
    rows = list(csv.DictReader(io.StringIO(as_csv(sweep))))
    assert len(rows) == len(PLACES)
    for row, place in zip(rows, PLACES, strict=True):
        assert (float(row["tpr"]), float(row["fpr"])) == (place["tpr"], place["fpr"])
        if row["seeds"] == "2":
            assert float(row["tpr_reached"]) == place["tpr"]
            assert float(row["labels_adaptation"]) == (10 if row["adaptation"] == "amr" else 100)
    assert sum(row["faa"] == "" for row in rows) == 2


def test_a_sweep_without_rates_is_refused(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, places_of("table1")[:1], lambda *_: {})
    with pytest.raises(UserError, match="tpr and fpr"):
        detector_table(sweep)
