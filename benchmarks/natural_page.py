"""Puts what `natural.py` has saved into docs/explanations/natural.md, as tables, and draws its figure.

    python benchmarks/natural_page.py

The text of the page is written by hand; what stands between its marks is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import beyond_outcomes
import matplotlib as mpl
import numpy as np
from beyond_trials import BEYOND, CONTROL
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from natural import COURSES, OTHERS, ROOT, Outcome, saved
from scipy import stats

from driftwise.report import style

PAGE = ROOT / "docs" / "explanations" / "natural.md"
FIGURE = ROOT / "docs" / "images" / "natural-labels.png"
FEWEST = 5
"""seeds that a line of a table, or a point of the figure, rests on"""
TITLES = {
    "gas-sensor": "gas sensors, 36 months",
    "pacs-frozen-cd": "PACS, photo to sketch",
    "iwildcam-cd": "iWildCam, other cameras",
    "iwildcam-random-split": "iWildCam, frames split at random",
    "yearbook-frozen-cd": "Yearbook, 1930s to 2000s",
    "electricity": "electricity, 1996 to 1998",
    "outdoor": "outdoor objects",
    "spam": "mails, 2001 to 2002",
    "cifar100-frozen-cd": "CIFAR-100, drift simulated",
}
CLASS_INCREMENTAL = (
    "pacs-frozen-cd",
    "iwildcam-cd",
    "iwildcam-random-split",
    "outdoor",
    "cifar100-frozen-cd",
)
"""Streams that bring classes: the final average accuracy counts, else the mean over later tasks."""
ARMS = {
    "nothing": "nothing is done",
    "realigned": "**realigned, drift detected without labels**",
    "diverse": "realigned, labels on diverse samples, old statistics weighed, 200 labels at most",
    "by-class": "realigned, drift detected by class, with labels",
    "known": "realigned, drift known",
    "added": "labels added, nothing dropped",
    "window": "sliding window",
    "all": "realigned with all labels",
    "shrunk-nothing": "shrinkage 0.1: nothing is done",
    "shrunk-realigned": "**shrinkage 0.1: realigned, drift detected without labels**",
    "shrunk-added": "shrinkage 0.1: labels added, nothing dropped",
    "shrunk-all": "shrinkage 0.1: realigned with all labels",
    "ncm-nothing": "nearest class mean: nothing is done",
    "ncm-realigned": "nearest class mean, realigned",
    "ridge-nothing": "ridge regression: nothing is done",
    "ridge-realigned": "ridge regression, realigned",
    "hybrid-nothing": "LDA and a network: nothing is done",
    "hybrid-realigned": "LDA and a network, realigned",
    "capymoa-slda": "CapyMOA, SLDA",
    "capymoa-arf": "CapyMOA, adaptive random forest",
    "capymoa-arf-sorted": "CapyMOA, adaptive random forest, samples class by class",
    "river-arf": "river, adaptive random forest with ADWIN",
    "river-arf-sorted": "river, adaptive random forest with ADWIN, samples class by class",
    "replay-nothing": "network from scratch, replay, nothing is done",
    "replay-realigned": "network from scratch, replay, `amr-plus`",
    "replay-all": "network from scratch, relearned and rehearsed with all labels",
    "replay-fr": "network from scratch, `fr` with all labels",
    "replay-flush": "network from scratch, `fr-flush` with all labels",
}
ALL_LABELS = ("replay-all", "replay-fr", "replay-flush")
"""arms that learn from scratch with all labels"""
GOALS = (
    ("gas-sensor", "realigned", 4, 200, 95.0),
    ("gas-sensor", "diverse", 5, 200, 95.0),
    ("pacs-frozen-cd", "realigned", 12, 150, 68.0),
    ("pacs-frozen-cd", "realigned", 83, 1000, 75.0),
    ("iwildcam-cd", "shrunk-realigned", 17, 300, 64.0),
    ("iwildcam-cd", "shrunk-realigned", 58, 1000, 76.0),
)
"""Stream, arm, labels of a drifted class, labels in all that may be asked for, accuracy to be
reached."""
SHORT = {"diverse": ", diverse samples", "shrunk-realigned": ", shrinkage 0.1"}
"""what an arm that is not plain realignment is called beside its stream"""


class Runs:
    """Saved runs by stream, arm and labels of a drifted class."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self._runs: dict[tuple[str, str, int], dict[int, Outcome]] = {}
        for each in outcomes:
            self._runs.setdefault((each.stream, each.arm, each.fresh), {})[each.seed] = each

    def of(self, stream: str, arm: str, fresh: int) -> dict[int, Outcome]:
        """By seed."""
        return self._runs.get((stream, arm, fresh), {})

    def levels(self, stream: str, arm: str) -> list[int]:
        """The labels of a drifted class for which there are runs enough."""
        found = [
            fresh
            for (name, kind, fresh), runs in self._runs.items()
            if (name, kind) == (stream, arm) and len(runs) >= FEWEST
        ]
        return sorted(found, key=lambda fresh: float("inf") if fresh < 0 else fresh)


def points(stream: str, run: Outcome) -> float:
    """What counts on a stream."""
    return run.faa if stream in CLASS_INCREMENTAL else run.accuracy


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the half width of its 95 % interval."""
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1)) * spread


def _shown(values: Sequence[float], form: str = ".1f") -> str:
    mean, half = interval(values)
    return f"{mean:{form}} ± {half:.1f}"


def table(runs: Runs, stream: str) -> str:
    """All arms of a stream at the levels at which they are compared."""
    lines = [
        "| | accuracy | above doing nothing | labels: adaptation | monitoring | drifts found | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm, name in ARMS.items():
        kind = arm.partition("-")[0] if arm in OTHERS else ""
        idle = runs.of(stream, f"{kind}-nothing" if kind else "nothing", 0)
        for fresh in runs.levels(stream, arm):
            if fresh > 0 and fresh not in COURSES[stream].compared:
                continue
            here = runs.of(stream, arm, fresh)
            tested = arm.rpartition("-")[2] in ("realigned", "diverse", "class", "added", "all")
            tested &= not arm.startswith("replay")
            drifts = [each.found + each.missed + each.untestable for each in here.values()]
            lines.append(
                f"| {name} | {_shown([points(stream, each) for each in here.values()])} | "
                + (_gain(stream, here, idle) if here != idle else "")
                + f" | {_mean(here, 'adaptation')} | {_mean(here, 'monitoring')} | "
                + (f"{_mean(here, 'found')} of {np.mean(drifts):.0f}" if tested else "")
                + f" | {len(here)} |"
            )
    return "\n".join(lines)


def goals(runs: Runs) -> str:
    """What was to be reached with how many labels, and what was."""
    lines = [
        "| | labels | goal | reached | above doing nothing | above adding the same labels |"
        " above the best from scratch with all labels |",
        "|---|---|---|---|---|---|---|",
    ]
    for stream, arm, fresh, budget, goal in GOALS:
        kind = "shrunk-" if arm.startswith("shrunk-") else ""
        here = runs.of(stream, arm, fresh)
        reached = [points(stream, each) for each in here.values()]
        others = (runs.of(stream, f"{kind}nothing", 0), runs.of(stream, f"{kind}added", fresh))
        met = "reached" if np.mean(reached) >= goal else "missed"
        lines.append(
            f"| {TITLES[stream]}{SHORT.get(arm, '')} | "
            f"{_mean(here, 'adaptation')} of {budget:,} | {goal:.0f} | {_shown(reached)}: {met} | "
            f"{_gain(stream, here, others[0])} | {_gain(stream, here, others[1])} | "
            f"{_beside_scratch(runs, stream, reached)} |"
        )
    return "\n".join(lines)


def _gain(stream: str, here: dict[int, Outcome], other: dict[int, Outcome]) -> str:
    """The difference on the seeds that both have, with its 95 % interval."""
    both = sorted(set(here) & set(other))
    if len(both) < FEWEST:
        return ""
    return _shown([points(stream, here[s]) - points(stream, other[s]) for s in both], "+.1f")


def _beside_scratch(runs: Runs, stream: str, reached: Sequence[float]) -> str:
    """The difference from the best network from scratch with all labels, by Welch's interval."""
    found = [
        [points(stream, each) for each in runs.of(stream, arm, -1).values()] for arm in ALL_LABELS
    ]
    if stream == "pacs-frozen-cd":
        found = [[each.faa for each in _pacs_runs(arm)] for arm in ("fr", "fr-flush", CONTROL)]
    found = [each for each in found if len(each) >= FEWEST]
    if not found:
        return "not measured"
    best = max(found, key=lambda each: float(np.mean(each)))
    bounds = stats.ttest_ind(reached, best, equal_var=False).confidence_interval()
    half = (bounds.high - bounds.low) / 2
    return f"{np.mean(reached) - np.mean(best):+.1f} ± {half:.1f} (it has {np.mean(best):.1f})"


def _mean(runs: dict[int, Outcome], name: str) -> str:
    return f"{np.mean([getattr(each, name) for each in runs.values()]):,.0f}"


def page(text: str, runs: Runs) -> str:
    """The text of the page with its tables renewed."""
    tables = {"goals": lambda: goals(runs)} | {
        stream: lambda stream=stream: table(runs, stream) for stream in COURSES
    }
    for name, made in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if begin not in text:
            continue
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{made()}\n{end}{rest.partition(end)[2]}"
    return text


# The figure: three curves of each stream. Name, arms in the order of their labels, colour, marker.
CURVES = (
    ("frozen features or vectors, realigned", ("nothing", "realigned", "all"), "#0072B2", "o"),
    ("frozen features or vectors, labels added", ("nothing", "added"), "#E69F00", "s"),
    (
        "network from scratch, replay",
        ("replay-nothing", "replay-realigned", "replay-all"),
        "#000000",
        "^",
    ),
)


def curve(runs: Runs, stream: str, arms: Sequence[str]) -> list[tuple[float, float, float]]:
    """Labels for adaptation, accuracy and the half width of its interval, by labels."""
    found = []
    for arm in arms:
        for fresh in runs.levels(stream, arm):
            here = runs.of(stream, arm, fresh).values()
            labels = float(np.mean([each.adaptation for each in here]))
            found.append((labels, *interval([points(stream, each) for each in here])))
    if stream == "pacs-frozen-cd" and "replay-all" in arms:
        found += _pacs_from_scratch()
    return sorted(found)


def _pacs_from_scratch() -> list[tuple[float, float, float]]:
    """What `beyond.py` measured on the same stream from scratch."""
    found = []
    for adaptation in (BEYOND, CONTROL):
        here = _pacs_runs(adaptation)
        labels = float(np.mean([each.labels for each in here]))
        found.append((labels, *interval([each.faa for each in here])))
    return found


def _pacs_runs(adaptation: str) -> list[beyond_outcomes.Outcome]:
    saved_runs = beyond_outcomes.saved(beyond_outcomes.RESULTS)
    return [
        each
        for each in saved_runs
        if "pacs" in each.cell and each.adaptation == adaptation and each.budget is None
    ]


def draw(runs: Runs, file: Path) -> None:
    """Accuracy against labels on every natural stream that has been measured."""
    streams = [
        name
        for name in TITLES
        if len(curve(runs, name, CURVES[0][1])) > 1
        and name != "iwildcam-random-split"
        and not COURSES[name].simulated
    ]
    columns = 2
    rows = -(-len(streams) // columns)
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(7.4, 2.3 * rows + 0.7), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, stream in zip(grid, streams, strict=False):
            _panel(axes, runs, stream)
        for axes in grid[len(streams) :]:
            axes.set_axis_off()
        named: dict[str, Any] = {}
        for axes in grid[: len(streams)]:
            handles, names = axes.get_legend_handles_labels()
            named |= dict(zip(names, handles, strict=True))
        figure.supxlabel(
            "labels for adaptation, from none to all (logarithmic from 10 on)", fontsize=9
        )
        figure.supylabel("accuracy in percent, with 95 % intervals", fontsize=9)
        figure.legend(
            list(named.values()), list(named), loc="outside upper center", ncols=1, frameon=False
        )
        figure.savefig(file, dpi=160, facecolor="white")


def _panel(axes: Axes, runs: Runs, stream: str) -> None:
    for name, arms, colour, marker in CURVES:
        if found := curve(runs, stream, arms):
            labels, mean, half = zip(*found, strict=True)
            axes.errorbar(
                labels, mean, yerr=half, color=colour, marker=marker, ms=4, lw=1.4, label=name
            )
    axes.set_xscale("symlog", linthresh=10)
    axes.set_xlim(left=-1)
    _, most = axes.get_xlim()
    ticks = [0, *(10**power for power in range(1, 5) if 10**power <= most)]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_title(TITLES[stream], fontsize=9, loc="left")


def main() -> None:
    runs = Runs(saved())
    PAGE.write_text(page(PAGE.read_text(), runs))
    draw(runs, FIGURE)
    print(f"wrote {PAGE.relative_to(ROOT)} and its figure")


if __name__ == "__main__":
    main()
