"""The table of live_measured.md is that of results/live_accuracy.csv, and so is what the text says."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict

from pages import PAGES, ROOT

LEARNERS = {
    "keeper": "live learner, defaults",
    "sgd": "`SGDClassifier`, log loss",
    "mlp": "`MLPClassifier`",
    "softmax": "river's softmax regression",
    "arf": "river's ARF",
    "no change": "no change",
}
STREAMS = ("digits", "fashion-mnist", "gas", "electricity")


def accuracies() -> dict[tuple[str, str], list[float]]:
    """By learner and stream, in the order of seeds."""
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    with (ROOT / "results" / "live_accuracy.csv").open() as file:
        for line in csv.DictReader(file):
            found[line["learner"], line["stream"]][int(line["seed"])] = float(line["accuracy"])
    assert {tuple(sorted(by_seed)) for by_seed in found.values()} == {(0, 1, 2, 3, 4)}
    return {key: [by_seed[seed] for seed in sorted(by_seed)] for key, by_seed in found.items()}


def test_the_table_is_that_of_the_saved_runs() -> None:
    measured = accuracies()
    for learner, name in LEARNERS.items():
        cells = []
        for stream in STREAMS:
            values = measured.get((learner, stream))
            text = "{:.1f} ({:.1f} to {:.1f})"
            cells.append(
                text.format(statistics.mean(values), min(values), max(values)) if values else ""
            )
        assert f"| {name} | {' | '.join(cells)} |" in PAGES["docs/explanations/live_measured.md"]


def test_the_live_learner_is_above_and_below_where_the_page_says_so() -> None:
    measured = accuracies()
    for stream in STREAMS[:3]:
        for other in ("sgd", "mlp", "softmax"):
            pairs = zip(measured["keeper", stream], measured[other, stream], strict=True)
            assert all(ours > theirs for ours, theirs in pairs)
    ours = statistics.mean(measured["keeper", "electricity"])
    for other in ("sgd", "mlp", "softmax", "arf", "no change"):
        assert ours < statistics.mean(measured[other, "electricity"])
