"""The tables in docs/explanations/results.md are what the committed results say."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import keep_results
import pytest
import results_page
import table_budget

from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.report.sweeps import read_sweep
from driftwise.reproduce.grids import TABLES, TARGETS
from driftwise.reproduce.published import find
from driftwise.sweeps.plan import run_id
from driftwise.sweeps.shared import tree_of

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "results" / "table1-small"
TEXT = (ROOT / "docs" / "explanations" / "results.md").read_text()
Cell = tuple[str, str, int]
"""method, adaptation, drifts"""


@pytest.fixture(scope="module")
def cells() -> dict[Cell, list[dict[str, Any]]]:
    """The results of each cell, by seed."""
    found: dict[Cell, list[dict[str, Any]]] = defaultdict(list)
    for file in sorted(FOLDER.glob("runs/*/result.json")):
        result = json.loads(file.read_text())
        found[result["method"], result["adaptation"], result["num_drifts"]].append(result)
    for cell in found.values():
        cell.sort(key=lambda result: result["seed"])
    return found


def test_every_line_of_the_table_is_what_the_results_and_the_paper_say(
    cells: dict[Cell, list[dict[str, Any]]],
) -> None:
    for (method, adaptation, drifts), results in cells.items():
        assert [result["seed"] for result in results] == [0, 1, 2]
        paper = find(
            benchmark="fmnist-cd",
            buffer_size=500,
            method=method,
            adaptation=adaptation,
            num_drifts=drifts,
        )
        assert paper is not None
        here = [result["faa"] for result in results]
        (labels,) = {result["labels"]["adaptation"] for result in results}
        assert (
            f"| {method} | {adaptation} | {drifts} | {statistics.mean(here):.1f} ± "
            f"{statistics.stdev(here):.1f} | {paper.faa:.1f} ± {paper.faa_std:.1f} | {labels} |"
        ) in TEXT
    assert TEXT.count("\n| er |") + TEXT.count("\n| der++ |") == len(cells)


@pytest.mark.parametrize("method", ["er", "der++"])
def test_the_differences_in_the_text_are_those_of_the_pairs(
    cells: dict[Cell, list[dict[str, Any]]], method: str
) -> None:
    def pairs(one: str, other: str) -> list[float]:
        sides = cells[method, one, 1], cells[method, other, 1]
        return [a["faa"] - b["faa"] for a, b in zip(*sides, strict=True)]

    gained, against = pairs("amr", "vanilla"), pairs("amr", "fr")
    assert f"{statistics.mean(gained):.1f} ± {statistics.stdev(gained):.1f}" in TEXT
    assert f"{statistics.mean(against):+.1f} ± {statistics.stdev(against):.1f}" in TEXT
    assert min(gained) > 0
    calm, drifted = (
        statistics.mean(result["faa"] for result in cells[method, "vanilla", drifts])
        for drifts in (0, 1)
    )
    assert f"{calm - drifted:.1f}" in TEXT


@pytest.mark.parametrize("method", ["er", "der++"])
def test_where_the_accuracy_lies_is_said_right(
    cells: dict[Cell, list[dict[str, Any]]], method: str
) -> None:
    def mean(adaptation: str, key: str) -> float:
        values: list[float] = [result[key] for result in cells[method, adaptation, 1]]
        return statistics.mean(values)

    for better, worse, key in (("fr", "amr", "faa_drifted"), ("amr", "fr", "faa_stable")):
        assert mean(better, key) > mean(worse, key)
        assert f"{mean(better, key):.1f} against {mean(worse, key):.1f}" in TEXT
    flops = [
        sum(sum(result["flops"].values()) for result in cells[method, adaptation, 1])
        for adaptation in ("fr", "amr")
    ]
    assert f"{flops[0] / flops[1]:.1f} times the FLOPs" in TEXT


def test_all_drifts_were_found(cells: dict[Cell, list[dict[str, Any]]]) -> None:
    found = {
        (result["detection"]["num_detected"], result["detection"]["num_drifts"])
        for (_, _, drifts), results in cells.items()
        for result in results
        if drifts
    }
    assert found == {(4, 4)}


# The four tables


def test_the_page_is_what_the_kept_results_say() -> None:
    assert results_page.page_of(TEXT, results_page.RESULTS) == TEXT


def test_the_commands_of_today_find_every_kept_run() -> None:
    for file in sorted((ROOT / "results" / "tables" / "runs").glob("*/config.json")):
        config = RunConfig(**json.loads(file.read_text()))
        assert run_id(resolve(config)) == file.parent.name, "see LATER_OPTIONS in sweeps/plan.py"


def test_kept_results_are_shortened_and_count_as_finished(tmp_path: Path) -> None:
    source = FOLDER
    assert keep_results.keep(source, tmp_path) == len(list((source / "runs").iterdir()))
    assert keep_results.keep(source, tmp_path) == 0
    ours, theirs = (read_sweep(f / "sweeps" / "table1-small.json") for f in (tmp_path, source))
    assert ours.num_done == theirs.num_done
    for kept, whole in zip(ours.entries, theirs.entries, strict=True):
        if kept.run is None or whole.run is None:
            continue
        for name in ("faa", "faa_stable", "labels", "flops", "detection", "verdicts", "matrix"):
            if hasattr(whole.run, name):
                assert repr(getattr(kept.run, name)) == repr(getattr(whole.run, name))
    sizes = [
        sum(f.stat().st_size for f in folder.rglob("result.json")) for folder in (tmp_path, source)
    ]
    assert sizes[0] < 0.9 * sizes[1]


def _evidence(scale: str) -> dict[tuple[str, int], dict[str, Any]]:
    """What was measured of a scale, by table and number of drifts."""
    entries = json.loads((ROOT / "results" / "scale_validity.json").read_text()).get(scale, [])
    return {(entry["table"], entry["num_drifts"]): entry for entry in entries}


@pytest.mark.parametrize("scale", ["tables", "smoke"])
def test_a_scale_counts_as_valid_by_its_rule_alone(scale: str) -> None:
    for entry in _evidence(scale).values():
        assert entry["seed"] >= 100  # a development seed
        shares = entry["share_of_published_without_drift"].values()
        differ = len({*entry["faa"].values()}) == len(entry["faa"]) == 3
        assert entry["valid"] == (entry["tpr"] >= 0.9 and min(shares) >= 0.6 and differ)


def test_the_scale_of_the_tables_was_measured_for_every_table_and_number_of_drifts() -> None:
    asked = {(name, d) for name in TABLES for d in TARGETS[name].axes()["num_drifts"] if d}
    assert {*_evidence("tables")} == asked


def test_every_table_on_the_page_has_a_valid_scale() -> None:
    valid = {place for place, entry in _evidence("tables").items() if entry["valid"]}
    shown = results_page.found_in(results_page.RESULTS)[1]
    asked = {(name, drifts) for name in shown for drifts in TARGETS[name].axes()["num_drifts"]}
    assert {place for place in asked if place[1]} <= valid


def test_the_budget_in_the_docs_is_what_was_measured_and_within_the_limit() -> None:
    found = json.loads(table_budget.FILE.read_text())["tables"]
    page = (ROOT / "docs" / "how-to" / "sweeps.md").read_text()
    assert "\n".join(table_budget.lines(found)) in page
    hours = sum(each["processor_hours"] for each in found.values()) / table_budget.CORES
    assert hours <= table_budget.MOST_HOURS
    for table, each in found.items():
        tree = tree_of(table_budget.plan_of(table, "tables").runs)
        assert tree.num_tasks == (each["tasks"], each["tasks_separately"])
