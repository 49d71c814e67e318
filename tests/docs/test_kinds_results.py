"""The numbers of docs/explanations/kinds.md are those of results/kinds."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanations/kinds.md").read_text()


def kept(name: str, source: str = "reported") -> Any:
    return json.loads((ROOT / f"results/kinds/{source}-{name}.json").read_text())


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("reported", ("given", "predicted", "none")),
        ("gas-sensor", ("given", "predicted", "none")),
        ("pacs", ("given", "predicted")),
    ],
)
def test_the_tables_of_kinds_are_those_of_the_results(source: str, names: tuple[str, ...]) -> None:
    results = [kept(name, source) for name in names]
    averages = " | ".join(f"**{100 * each['macro_average']:.1f}**" for each in results)
    assert f"| **macro-average** | {averages} |" in PAGE
    for kind in results[0]["right_by_kind"]:
        rates = " | ".join(f"{100 * each['right_by_kind'][kind]:.0f}" for each in results)
        shown = f"{kind} (far)" if kind == "new class" and source != "reported" else kind
        assert f"| {shown} | {rates} |" in PAGE


def test_the_confusion_matrix_is_that_of_the_results() -> None:
    kinds = ("none", "drift", "new mode", "recurring", "new class", "mix", "corrupted")
    for change, found in kept("given")["windows"].items():
        if change != "several":
            cells = " | ".join(str(found.get(kind, "")) for kind in kinds)
            assert f"| {change} ({sum(found.values())}) | {cells} |" in PAGE


def test_the_gain_of_acting_on_the_kind_is_that_of_the_results() -> None:
    with (ROOT / "results/kinds_stream.csv").open(newline="") as lines:
        runs = list(csv.DictReader(lines))
    for labels, budget in {(each["labels"], each["budget"]) for each in runs}:
        cells = []
        for way in ("nothing", "amr", "auto"):
            some = [
                each
                for each in runs
                if (each["labels"], each["budget"], each["way"]) == (labels, budget, way)
            ]
            assert len({each["seed"] for each in some}) == len(some) == 5
            means = [
                sum(float(each[column]) for each in some) / len(some)
                for column in ("accuracy", "adaptation")
            ]
            cells.append("{:.1f} ({:.0f})".format(*means))
        assert f"| {' | '.join(cells)} |" in PAGE


@pytest.mark.parametrize("change", ["near", "far"])
def test_the_areas_are_those_of_the_results(change: str) -> None:
    for mean, low, high in kept("auroc")["auroc"][f"new class {change}"].values():
        assert f"{mean:.3f} ({low:.3f} to {high:.3f})" in PAGE
    whole = kept("auroc")["auroc_of_windows"]
    for score in whole["new class near"]:
        areas = " and ".join(
            f"{whole[f'new class {each}'][score]:.2f}" + (f" for {each}" if score[0] == "c" else "")
            for each in ("near", "far")
        )
        assert areas in PAGE
