"""The numbers of docs/explanations/kinds.md are those of results/kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanations/kinds.md").read_text()


def kept(name: str) -> Any:
    return json.loads((ROOT / f"results/kinds/reported-{name}.json").read_text())


def test_the_table_of_kinds_is_that_of_the_results() -> None:
    results = [kept(name) for name in ("given", "predicted", "none")]
    averages = " | ".join(f"**{100 * each['macro_average']:.1f}**" for each in results)
    assert f"| **macro-average** | {averages} |" in PAGE
    for kind in results[0]["right_by_kind"]:
        rates = " | ".join(f"{100 * each['right_by_kind'][kind]:.0f}" for each in results)
        assert f"| {kind} | {rates} |" in PAGE


def test_the_confusion_matrix_is_that_of_the_results() -> None:
    kinds = ("none", "drift", "new mode", "recurring", "new class", "mix", "corrupted")
    for change, found in kept("given")["windows"].items():
        if change != "several":
            cells = " | ".join(str(found.get(kind, "")) for kind in kinds)
            assert f"| {change} ({sum(found.values())}) | {cells} |" in PAGE


@pytest.mark.parametrize("change", ["near", "far"])
def test_the_areas_are_those_of_the_results(change: str) -> None:
    for mean, low, high in kept("auroc")["auroc"][f"new class {change}"].values():
        assert f"{mean:.3f} ({low:.3f} to {high:.3f})" in PAGE
