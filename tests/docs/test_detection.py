"""docs/explanations/detection.md says of the published detector what results/published_detector.csv says."""

from __future__ import annotations

from pathlib import Path

from published_detector import read, table, turned

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_the_published_detector_is_that_of_the_saved_checks() -> None:
    lines = read(ROOT / "results" / "published_detector.csv")
    text = (ROOT / "docs" / "explanations" / "detection.md").read_text()
    rows = table(lines)
    assert len(rows) > 4
    assert "\n".join(rows) in text
    differing, checks = turned(lines)
    assert f"{differing} of {checks:,} checks" in text
