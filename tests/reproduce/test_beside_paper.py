"""Measured beside published cells: which are paired, and what of the paper's order is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper_sweep_builders import Place, places_of, write_sweep

from driftwise.reproduce.beside_paper import STRATEGIES, Beside, beside
from driftwise.reproduce.published import find, table


def published(place: Place) -> float:
    cell = find(**{key: place[key] for key in place})
    return -1.0 if cell is None else cell.faa


def sweep_with(tmp_path: Path, faa: Any) -> Beside:
    places = [place for place in places_of("table2") if place["method"] == "er"]
    made = write_sweep(
        tmp_path, places, lambda place, seed: faa(place, seed), reproduces="table2", seeds=2
    )
    return beside(made)


def test_a_line_of_the_published_numbers_correlates_fully_and_keeps_every_order(
    tmp_path: Path,
) -> None:
    both = sweep_with(tmp_path, lambda place, seed: {"faa": published(place) / 2 + seed})
    assert len(both.cells) == len(both.pairs) == 14
    assert both.correlation == pytest.approx(1.0)
    assert both.same_order(*STRATEGIES) == (4, 4)
    for theirs, ours in both.recovery():
        assert ours == pytest.approx(theirs / 2)


def test_correlation_is_pearsons_and_the_order_may_be_lost(tmp_path: Path) -> None:
    noise = iter(np.random.default_rng(0).normal(50, 5, 100))
    both = sweep_with(tmp_path, lambda place, seed: {"faa": next(noise)})
    theirs, ours = zip(*both.pairs, strict=True)
    assert both.correlation == pytest.approx(np.corrcoef(theirs, ours)[0, 1])
    kept, of = both.same_order(*STRATEGIES)
    assert kept < of == 4


def test_groups_need_all_strategies(tmp_path: Path) -> None:
    def some(place: Place, seed: int) -> dict[str, float] | None:
        return None if (place["adaptation"], place["num_drifts"]) == ("fr", 2) else {"faa": 40.0}

    both = sweep_with(tmp_path, some)
    assert {group["amr"].place["num_drifts"] for group in both.groups} == {1}
    assert both.correlation is None  # nothing varies here
    assert len(table("table2")) == 70
