"""The time line of classes in feature space: bands and points stand where their numbers say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from driftwise.report.saved_run import Verdict
from driftwise.report.time_line import MOST_CLASSES, UPPER, time_lines


def verdict(task: int, label: int, moved: float, **more: Any) -> Verdict:
    given = {"moved_band": 0.5, "spread": 1.0, "spread_band": 1.2, "drifted": False, **more}
    return Verdict(task=task, label=label, moved=moved, score=None, p_value=None, **given)


def run(*verdicts: Verdict) -> Any:
    return SimpleNamespace(verdicts=verdicts, num_tasks=4)


def heights(points: Any) -> list[float]:
    return [float(pair.split(",")[1]) for pair in str(points).split()]


def test_a_farther_mean_stands_higher_and_an_unmoved_one_on_the_line() -> None:
    (panel,) = time_lines(
        run(verdict(2, 3, 0.0), verdict(3, 3, 0.25), verdict(4, 3, 1.0, drifted=True))
    )
    first, second, third = heights(panel["moved"])
    assert first == UPPER
    assert third < second < first
    assert panel["found"] == [(float(str(panel["moved"]).split()[2].split(",")[0]), third)]
    # The band ends at half the height of the farthest point.
    assert abs((UPPER - heights(panel["band"])[0]) - (UPPER - third) / 2) < 0.2
    assert "class 3: 1.00 at the last check, band 0.50" in str(panel["name"])


def test_the_spread_lies_within_its_band_exactly_if_the_ratio_does() -> None:
    for ratio, is_inside in ((1.1, True), (0.9, True), (1.5, False), (0.5, False)):
        (panel,) = time_lines(run(verdict(2, 0, 0.1, spread=ratio), verdict(3, 0, 0.1)))
        band = heights(panel["spread_band"])
        assert (min(band) <= heights(panel["spread"])[0] <= max(band)) == is_inside


def test_classes_without_two_positions_have_no_panel_and_the_farthest_come_first() -> None:
    assert time_lines(run(verdict(2, 0, 0.3))) == []
    unknown = verdict(2, 1, 0.0)._replace(moved=None)
    assert time_lines(run(unknown, unknown)) == []
    many = [verdict(task, label, label / 10) for label in range(40) for task in (2, 3)]
    names = [str(panel["name"]) for panel in time_lines(run(*many))]
    assert len(names) == MOST_CLASSES
    assert names[0].startswith("class 16:")
