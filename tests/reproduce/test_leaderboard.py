"""The leaderboard: who is ranked, by what, and what the intervals are over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paper_sweep_builders import Place, asked, places_of, write_sweep
from run_tools import complaint

from driftwise.report.sweeps import Sweep
from driftwise.reproduce.evidence import interval_of
from driftwise.reproduce.leaderboard import CellName, board, comparisons, shared_cells

FAA = {"vanilla": 50.0, "fr": 70.0, "amr": 68.0}
FLOPS = {"vanilla": 1e12, "fr": 3e12, "amr": 1e12}


def result(place: Place, seed: int) -> dict[str, Any]:
    """Better with a larger buffer, with the second seed, and with ser."""
    adaptation = str(place["adaptation"])
    more = (place["buffer_size"] == 5000) * 10 + seed * 2 + (place["method"] == "ser")
    return {
        "faa": FAA[adaptation] + more,
        "labels": asked(adaptation, 900, 30),
        "flops": {"train": FLOPS[adaptation], "detect": 0, "adapt": 0, "evaluate": 1},
    }


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    places = [place for place in places_of("table1") if place["method"] in ("er", "ser")]
    return write_sweep(tmp_path, places, result)


def test_entries_are_ranked_by_accuracy_with_labels_and_compute_beside(sweep: Sweep) -> None:
    (found,), pool = comparisons([sweep])
    entries = found.ranked
    assert (pool.scale, found.name, found.others) == ("smoke", "fmnist-cd", [])
    assert [(each.method, each.adaptation) for each in entries] == [
        *(("ser", "fr"), ("er", "fr"), ("ser", "amr"), ("er", "amr")),
        *(("ser", "vanilla"), ("er", "vanilla")),
    ]
    amr = entries[3]
    assert len(amr.cells) == 4  # without the cells that have no drift
    assert amr.faa == interval_of([73.0, 75.0])  # over seeds
    assert amr.gain == interval_of([18.0] * 4)  # over cells
    assert (amr.labels, amr.flops, amr.num_seeds) == (30.0, 1e12, 2)
    assert entries[-1].gain is None
    assert "| 1 | fmnist-cd | ser | fr |" in board([sweep]).markdown()


def test_only_entries_that_nothing_is_preferable_to_are_marked(sweep: Sweep) -> None:
    rows = {(row[2].text, row[3].text): row[11].text for row in board([sweep]).rows}
    # er is as costly as ser and less accurate
    assert {key for key, mark in rows.items() if mark == "yes"} == {
        ("ser", "fr"),
        ("ser", "amr"),
        ("ser", "vanilla"),
    }


def test_entries_without_all_cells_follow_unranked(sweep: Sweep, tmp_path: Path) -> None:
    place = {**places_of("table1")[0], "method": "mine:Best", "num_drifts": 1}
    own = write_sweep(
        tmp_path,
        [{**place, "adaptation": name} for name in ("vanilla", "amr")],
        lambda place, seed: {**result(place, seed), "faa": 99.0},
        name="table1-smoke-mine",
    )
    rows = board([sweep, own]).rows
    assert [row[0].text for row in rows] == [*map(str, range(1, 7)), "–", "–"]
    assert {(row[2].text, row[12].text) for row in rows[6:]} == {("mine:Best", "1 of 4")}


def test_an_entry_does_not_lead_because_it_alone_has_all_cells(
    sweep: Sweep, tmp_path: Path
) -> None:
    places = [place for place in places_of("table2") if place["method"] == "er"]
    bare = [place for place in places if place["adaptation"] == "vanilla"]
    alone = write_sweep(tmp_path, bare, result, name="table2-smoke")
    found, _ = comparisons([sweep, alone])
    assert [each.name for each in found] == ["cifar10-cd", "fmnist-cd"]  # no two entries on both
    fashion = found[1].ranked
    assert [entry.adaptation for entry in fashion[-2:]] == ["vanilla", "vanilla"]
    both = write_sweep(tmp_path, places, result, name="table2-both")
    several = comparisons([sweep, both])[0][0]
    assert several.name == "cifar10-cd, fmnist-cd"
    assert [entry.adaptation for entry in several.ranked] == ["fr", "amr", "vanilla"]
    assert {entry.cells for entry in several.ranked} == {several.cells}


def test_the_cells_compared_are_those_that_most_entries_share() -> None:
    a, b, c = (CellName("fmnist-cd", 500, drifts) for drifts in (1, 2, 3))
    d = CellName("cifar10-cd", 500, 1)
    entries = [frozenset({a, b}), frozenset({a, b}), frozenset({a, b, c, d}), frozenset({c})]
    assert shared_cells(entries) == {a, b}  # three entries of two cells; four cells of one
    assert shared_cells(entries, at_least=2) == {a, b, c, d}
    assert shared_cells(entries, at_least=3) == frozenset()
    equals = [frozenset({cell}) for cell in (a, b, c, d)]
    assert shared_cells(equals) == shared_cells(equals[::-1]) == {d}  # the first by name


def test_a_folder_without_drift_has_no_leaderboard(tmp_path: Path) -> None:
    plain = [place for place in places_of("table1") if not place["num_drifts"]]
    sweep = write_sweep(tmp_path, plain, lambda place, seed: {"faa": 50.0 + seed})
    assert "reproduce a table first" in complaint(lambda: board([sweep]))
