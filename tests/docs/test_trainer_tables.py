"""The tables of docs/how-to/trainers.md and distributed.md are those of the saved measurements."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict

import cost_pages
from pages import PAGES, ROOT
from scipy import stats

TRAINERS = PAGES["docs/how-to/trainers.md"]
LOOPS = {
    "own loop": "our own",
    "lightning": "Lightning",
    "transformers": "transformers",
    "avalanche": "Avalanche",
    "own loop, vanilla": "our own, without adaptation",
}


def outcomes() -> dict[str, list[tuple[float, int]]]:
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    with (ROOT / "results" / "trainers.csv").open() as file:
        for line in csv.DictReader(file):
            found[line["loop"]].append((float(line["faa"]), int(line["labels"])))
    return found


def gap(name: str, seeds: int) -> tuple[float, float]:
    """Mean of the paired differences from our own loop, and half of its 95 % interval."""
    pairs = zip(outcomes()[name][:seeds], outcomes()["own loop"][:seeds], strict=True)
    gaps = [mine - ours for (mine, _), (ours, _) in pairs]
    half = statistics.stdev(gaps) / len(gaps) ** 0.5 * stats.t.ppf(0.975, len(gaps) - 1)
    return statistics.mean(gaps), half


def test_accuracy_in_each_trainer_is_that_of_the_saved_runs() -> None:
    for name, shown in LOOPS.items():
        faa = [accuracy for accuracy, _ in outcomes()[name]]
        seeds = len(faa)
        assert seeds == (5 if name == "avalanche" else 20)
        text = f"| {shown} | {seeds} | {statistics.mean(faa):.1f} "
        text += f"({min(faa):.1f} to {max(faa):.1f}) |"
        mean, half = gap(name, seeds)
        text += "  |" if name == "own loop" else f" {mean:+.1f} ± {half:.1f} |"
        labels = statistics.mean(labels for _, labels in outcomes()[name])
        assert f"{text} {labels:.0f} |" in TRAINERS, text


def test_no_trainer_is_shown_to_be_below_our_own_loop_but_by_five_seeds_as_the_page_says() -> None:
    for name in ("lightning", "transformers"):
        mean, half = gap(name, 20)
        assert mean + half > 0, name
    first = [gap(name, 5) for name in ("lightning", "transformers", "avalanche")]
    words = " ".join(TRAINERS.split())
    for mean, half in first:
        assert f"{mean:+.1f} ± {half:.1f} (" in words


def test_costs_are_the_saved_ones() -> None:
    for path, text in cost_pages.pages().items():
        assert path.read_text() == text, f"{path.name}: python benchmarks/cost_pages.py"
