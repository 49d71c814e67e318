"""The leaderboard: who is ranked, by what, and what the intervals are over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paper_sweep_builders import Place, asked, places_of, write_sweep
from run_tools import complaint

from driftwise.report.sweeps import Sweep
from driftwise.reproduce.evidence import interval_of
from driftwise.reproduce.leaderboard import board, standings

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
    entries, pool = standings([sweep])
    assert pool.scale == "smoke"
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
    text = board([sweep]).markdown()
    assert "| 1 | ser | fr |" in text.replace("  ", " ") or "ser | fr" in text


def test_only_entries_that_nothing_is_preferable_to_are_marked(sweep: Sweep) -> None:
    rows = {(row[1].text, row[2].text): row[10].text for row in board([sweep]).rows}
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
    last = [row for row in board([sweep, own]).rows if row[1].text == "mine:Best"]
    assert [row[0].text for row in last] == ["–", "–"]
    assert {row[11].text for row in last} == {"1 of 4"}
    assert board([sweep, own]).rows[0][1].text == "ser"


def test_a_folder_without_drift_has_no_leaderboard(tmp_path: Path) -> None:
    plain = [place for place in places_of("table1") if not place["num_drifts"]]
    sweep = write_sweep(tmp_path, plain, lambda place, seed: {"faa": 50.0 + seed})
    assert "reproduce a table first" in complaint(lambda: board([sweep]))
