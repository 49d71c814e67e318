"""Copies the finished runs of a folder of sweeps into another one, without what only single runs show.

usage: python benchmarks/keep_results.py FROM TO

TO holds what tables, figures, claims and the leaderboard are drawn from, and is a folder of sweeps
itself: the command of a sweep with `--out TO` finds these runs done and goes on with the others.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from driftwise.runs.store import CONFIG, RESULT, is_finished
from driftwise.sweeps.plan import RUNS, SWEEPS

LEFT_OUT = ("confusion_matrix", "calibration")
"""of a result; drawn on the pages of single runs alone"""
ALWAYS = ("task", "class", "drifted", "score", "p_value", "threshold")
"""of a verdict"""


def shortened(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what tables do not need."""
    kept = {key: value for key, value in result.items() if key not in LEFT_OUT}
    kept["verdicts"] = [
        {key: value for key, value in verdict.items() if key in ALWAYS or not _is_blank(value)}
        for verdict in result["verdicts"]
    ]
    return kept


def _is_blank(value: object) -> bool:
    """Whether readers take a missing entry for the same; a number is never blank."""
    return value is None or value is False or value in ("", [])


def keep(source: Path, target: Path) -> int:
    """Copy what is not there yet; how many runs that were."""
    count = 0
    for folder in sorted((source / RUNS).iterdir()):
        kept = target / RUNS / folder.name
        if not is_finished(folder) or is_finished(kept):
            continue
        kept.mkdir(parents=True, exist_ok=True)
        result = shortened(json.loads((folder / RESULT).read_text()))
        config = json.loads((folder / CONFIG).read_text())
        for name, content in ((CONFIG, config), (RESULT, result)):
            (kept / name).write_text(json.dumps(content, separators=(",", ":")) + "\n")
        count += 1
    (target / SWEEPS).mkdir(parents=True, exist_ok=True)
    for plan in (source / SWEEPS).glob("*.json"):
        shutil.copyfile(plan, target / SWEEPS / plan.name)
    return count


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(f"{keep(Path(sys.argv[1]), Path(sys.argv[2]))} runs copied")
