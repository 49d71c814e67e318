"""Puts what `beyond.py` has saved into docs/explanations/beyond.md, as tables, and draws its figures.

    python benchmarks/beyond_page.py

The text of the page is written by hand; what stands between its marks is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from beyond_outcomes import RESULTS, Outcome, saved
from beyond_trials import (
    BEYOND,
    CONTROL,
    FLUSHED,
    GROUPS,
    MAIN,
    REALIGNED,
    REHEARSED,
    RELEARNED,
    UNCERTAIN,
)
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from driftwise.report import style

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanations" / "beyond.md"
IMAGES = ROOT / "docs" / "images"
FEWEST = 3
"""seeds that a line of a table rests on"""
SLACK = 1.0
"""points below relearning that are allowed"""
STREAMS = {
    "f1": "fmnist-cd, 1 drift",
    "f2": "fmnist-cd, 2 drifts",
    "c1": "cifar10-cd, 1 drift",
    "pacs": "pacs-cd",
    "partial": "half of a class drifts",
    "gradual": "a class drifts over three tasks",
    "recurring": "concepts recur, three times",
    "alarms": "a class drifts over three tasks, every check an alarm",
}
NAMES = {CONTROL: "fr-flush, rehearsed as well", UNCERTAIN: "amr-chosen, by uncertainty"}


What = Callable[[Outcome], float]


def faa(run: Outcome) -> float:
    return run.faa


def faa_drifted(run: Outcome) -> float:
    return run.faa_drifted


def faa_stable(run: Outcome) -> float:
    assert run.faa_stable is not None, f"in {run.cell} every class drifts"
    return run.faa_stable


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Of two adaptations, seed by seed, with the 95 % interval of its mean."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(pairs: Sequence[tuple[float, float]]) -> Difference:
        """The first of each pair minus the second."""
        differences = np.array([one - other for one, other in pairs])
        mean = float(differences.mean())
        half = float(stats.t.ppf(0.975, len(pairs) - 1) * stats.sem(differences))
        return Difference(mean=mean, low=mean - half, high=mean + half)

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ({self.low:+.1f} to {self.high:+.1f})"

    def beyond(self, limit: float) -> str:
        """Whether it is shown to lie above a limit."""
        if self.low > limit:
            return "yes"
        return "**no**" if self.high < limit else "undecided"


class Runs:
    """Finished runs, by cell, adaptation and budget."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self._by: dict[tuple[str, str, int | None], dict[int, Outcome]] = {}
        for each in outcomes:
            seeds = self._by.setdefault((each.cell, each.adaptation, each.budget), {})
            assert each.seed not in seeds, f"run twice: {each.trial}"
            seeds[each.seed] = each

    def of(self, cell: str, adaptation: str, budget: int | None = None) -> list[Outcome]:
        """The seeds of one of them, in order."""
        seeds = self._by.get((cell, adaptation, budget), {})
        return [seeds[seed] for seed in sorted(seeds)]

    def only_common_seeds(self, cell: str, adaptations: Iterable[str]) -> Runs | None:
        """These of a cell, without seeds that not all have run; None: fewer than three are left."""
        found = {name: self.of(cell, name) for name in adaptations}
        seeds = set.intersection(*({run.seed for run in each} for each in found.values()))
        some = [run for each in found.values() for run in each if run.seed in seeds]
        return Runs(some) if len(seeds) >= FEWEST else None

    def difference(self, cell: str, one: str, other: str, what: What = faa) -> Difference:
        """Of their final average accuracies, or of something else."""
        pairs = zip(self.of(cell, one), self.of(cell, other), strict=True)
        return Difference.of([(what(a), what(b)) for a, b in pairs])

    def mean(self, cell: str, adaptation: str, what: What) -> float:
        """Over seeds."""
        return float(np.mean([what(run) for run in self.of(cell, adaptation)]))

    def accuracy(self, cell: str, adaptation: str) -> str:
        """Mean and sample standard deviation over seeds."""
        values = [run.faa for run in self.of(cell, adaptation)]
        return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"


def in_words(cell: str) -> str:
    stream, method, buffer = cell.split("-")
    return f"{STREAMS[stream]}, {method.upper()}, buffer {buffer}"


def line(*entries: object) -> str:
    return "| " + " | ".join(map(str, entries)) + " |"


def head(*entries: str) -> list[str]:
    return [line(*entries), "|" + "---|" * len(entries)]


def main_table(everything: Runs) -> list[str]:
    """Cell by cell: accuracies, paired differences, and what they show."""
    others = (REALIGNED, RELEARNED, FLUSHED)
    lines = head("cell", "seeds", *others, BEYOND, *(f"- {name}" for name in others), "holds")
    verdicts: list[str] = []
    above: list[list[Difference]] = []
    by_cell: dict[str, Runs] = {}
    for cell in MAIN:
        if (runs := everything.only_common_seeds(cell, (*others, BEYOND))) is None:
            continue
        gains = [runs.difference(cell, BEYOND, other) for other in others]
        holds = {gain.beyond(-SLACK) for gain in gains[1:]}
        verdict = next(word for word in ("**no**", "undecided", "yes") if word in holds)
        verdicts.append(verdict)
        above.append(gains)
        by_cell[cell] = runs
        accuracies = [runs.accuracy(cell, each) for each in (*others, BEYOND)]
        seeds = len(runs.of(cell, BEYOND))
        lines.append(line(in_words(cell), seeds, *accuracies, *gains, verdict))
    if not verdicts:
        return lines
    over_all = [over_cells(by_cell, other) for other in others]
    return [*lines, "", _summary(verdicts, above, over_all)]


def over_cells(by_cell: Mapping[str, Runs], other: str) -> Difference:
    """Of the means over all cells, seed by seed: those that all cells have run."""
    pairs: dict[int, list[tuple[float, float]]] = {}
    for cell, runs in by_cell.items():
        for one, its in zip(runs.of(cell, BEYOND), runs.of(cell, other), strict=True):
            pairs.setdefault(one.seed, []).append((one.faa, its.faa))
    whole = [np.mean(each, axis=0) for each in pairs.values() if len(each) == len(by_cell)]
    return Difference.of([(float(one), float(its)) for one, its in whole])


def _summary(
    verdicts: Sequence[str], gains: Sequence[Sequence[Difference]], over_all: Sequence[Difference]
) -> str:
    """What the lines of the main table come to."""
    count = {word: verdicts.count(word) for word in ("yes", "undecided", "**no**")}
    means = [sum(each[k].mean > limit for each in gains) for k, limit in ((0, 0), (2, -SLACK))]
    return (
        f"Shown to hold in {count['yes']} of {len(verdicts)} cells, undecided in "
        f"{count['undecided']}, shown not to in {count['**no**']}. The mean lies above "
        f"`{REALIGNED}` in {means[0]}, and no more than a point below `{FLUSHED}` in {means[1]}. "
        f"Averaged over all cells, seed by seed: {over_all[0]} to `{REALIGNED}`, {over_all[1]} to "
        f"`{RELEARNED}`, {over_all[2]} to `{FLUSHED}`."
    )


def where_table(everything: Runs) -> list[str]:
    """In which classes the differences to relearning lie."""
    lines = head(
        "cell",
        *(f"drifted classes: {name}" for name in (FLUSHED, BEYOND, "difference")),
        *(f"other classes: {name}" for name in (FLUSHED, BEYOND, "difference")),
    )
    for cell in MAIN:
        if (runs := everything.only_common_seeds(cell, (FLUSHED, BEYOND))) is None:
            continue
        entries: list[object] = []
        for what in (faa_drifted, faa_stable):
            entries += [f"{runs.mean(cell, name, what):.1f}" for name in (FLUSHED, BEYOND)]
            entries.append(runs.difference(cell, BEYOND, FLUSHED, what))
        lines.append(line(in_words(cell), *entries))
    return lines


def cost_table(everything: Runs) -> list[str]:
    """What the same runs cost: means over seeds."""
    names = (REALIGNED, FLUSHED, BEYOND)
    costs: dict[str, What] = {
        "labels": lambda run: run.labels,
        "steps": lambda run: run.steps,
        "GFLOP": lambda run: run.gflops,
    }
    lines = head("cell", *(f"{cost}: {name}" for cost in costs for name in names))
    for cell in MAIN:
        if (runs := everything.only_common_seeds(cell, names)) is None:
            continue
        means = [f"{runs.mean(cell, a, cost):,.0f}" for cost in costs.values() for a in names]
        lines.append(line(in_words(cell), *means))
    return lines


def controls_table(everything: Runs) -> list[str]:
    """Beside what takes as many steps, or more, and lacks the rest."""
    lines = head("cell", "seeds", "adaptation", "accuracy", "steps", f"{BEYOND} - it")
    for cell in MAIN:
        for name in (REHEARSED, CONTROL):
            if (runs := everything.only_common_seeds(cell, (name, BEYOND))) is None:
                continue
            lines.append(
                line(
                    in_words(cell),
                    len(runs.of(cell, name)),
                    NAMES.get(name, name),
                    runs.accuracy(cell, name),
                    f"{runs.mean(cell, name, lambda run: run.steps):,.0f}",
                    runs.difference(cell, BEYOND, name),
                )
            )
    return lines


def gains_table(everything: Runs, group: str) -> list[str]:
    """Every adaptation of a group beside realignment."""
    lines = head(
        "cell", "adaptation", "seeds", "accuracy", "- amr", "labels", "labels amr", "steps"
    )
    for cell in GROUPS[group].cells:
        for name in GROUPS[group].adaptations:
            runs = everything.only_common_seeds(cell, (REALIGNED, name))
            if name == REALIGNED or runs is None:
                continue
            lines.append(
                line(
                    in_words(cell),
                    NAMES.get(name, name),
                    len(runs.of(cell, name)),
                    runs.accuracy(cell, name),
                    runs.difference(cell, name, REALIGNED),
                    f"{runs.mean(cell, name, lambda run: run.labels):,.0f}",
                    f"{runs.mean(cell, REALIGNED, lambda run: run.labels):,.0f}",
                    f"{runs.mean(cell, name, lambda run: run.steps):,.0f}",
                )
            )
    return lines


def labels_table(runs: Runs) -> list[str]:
    """Accuracy by how many labels may be asked for."""
    group = GROUPS["labels"]
    lines = head("cell", "adaptation", "labels asked for", "accuracy")
    for cell in group.cells:
        curves = label_curves(runs, cell)
        for name, points in curves.items() if "vanilla" in curves else ():
            for labels, mean, error in points:
                lines.append(
                    line(in_words(cell), name, f"{labels:,.0f}", f"{mean:.1f} ± {error:.1f}")
                )
    return lines


def label_curves(runs: Runs, cell: str) -> dict[str, list[tuple[float, float, float]]]:
    """(labels, mean accuracy, its sample standard deviation) of each adaptation, fewest first."""
    group = GROUPS["labels"]
    wanted: list[tuple[str, int | None]] = [("vanilla", None)]
    for name in group.adaptations:
        wanted += [(name, budget) for budget in (*group.budgets, None)]
    wanted += [(FLUSHED, budget) for name, budget in group.also if name == FLUSHED]
    wanted += [(FLUSHED, None), (RELEARNED, None)]
    points = {each: {run.seed: run for run in runs.of(cell, *each)} for each in wanted}
    points = {each: found for each, found in points.items() if len(found) >= FEWEST}
    seeds = set.intersection(*map(set, points.values())) if points else set()
    curves: dict[str, list[tuple[float, float, float]]] = {}
    for (name, _), by_seed in points.items() if len(seeds) >= FEWEST else ():
        found = [by_seed[seed] for seed in seeds]
        values = [run.faa for run in found]
        labels = float(np.mean([run.labels for run in found]))
        point = (labels, float(np.mean(values)), float(np.std(values, ddof=1)))
        curves.setdefault(name, []).append(point)
    return curves


TABLES: dict[str, Callable[[Runs], list[str]]] = {
    "main": main_table,
    "where": where_table,
    "costs": cost_table,
    "controls": controls_table,
    "schedules": lambda runs: gains_table(runs, "schedules"),
    "alarms": lambda runs: gains_table(runs, "alarms"),
    "parts": lambda runs: gains_table(runs, "parts"),
    "labels": labels_table,
}


def page(text: str, runs: Runs) -> str:
    """The page with its tables renewed."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        assert found, f"{PAGE.name} has no mark {begin}"
        assert closed, f"{PAGE.name} has no mark {end}"
        lines = table(runs)
        if len(lines) == len(head("")):
            lines = ["Not run yet."]
        text = f"{before}{begin}\n\n" + "\n".join(lines) + f"\n\n{end}{after}"
    return text


# Figures


def draw_gains(everything: Runs, file: Path) -> None:
    """Paired differences to the three others, cell by cell."""
    others = (REALIGNED, RELEARNED, FLUSHED)
    found = {cell: everything.only_common_seeds(cell, (*others, BEYOND)) for cell in MAIN}
    cells = {cell: runs for cell, runs in found.items() if runs is not None}
    styles = style.styles_of(others)
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(7.4, 0.34 * len(cells) + 1.3), layout="constrained")
        axes = figure.subplots()
        axes.axvspan(-SLACK, 0, color=style.FAINT, alpha=0.6, lw=0)
        axes.axvline(0, color=style.MUTED, lw=0.9)
        for place, other in enumerate(others):
            gains = [runs.difference(cell, BEYOND, other) for cell, runs in cells.items()]
            axes.errorbar(
                [each.mean for each in gains],
                [row + 0.22 * (place - 1) for row in range(len(cells))],
                xerr=np.array([(each.mean - each.low, each.high - each.mean) for each in gains]).T,
                fmt=styles[other].marker,
                color=styles[other].colour,
                ms=4.5,
                elinewidth=1.1,
                capsize=2,
                label=f"minus {other}",
            )
        axes.set_yticks(range(len(cells)), [in_words(cell) for cell in cells], fontsize=8)
        axes.set_ylim(len(cells) - 0.5, -0.5)
        axes.set_xlabel(f"final average accuracy of {BEYOND}, points (95 % interval of pairs)")
        axes.grid(axis="x")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)
        figure.savefig(file, dpi=160, facecolor="white")


def draw_labels(runs: Runs, file: Path) -> None:
    """Accuracy against labels, none to all."""
    cells = GROUPS["labels"].cells
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(7.4, 3.3), layout="constrained")
        for axes, cell in zip(figure.subplots(1, len(cells)), cells, strict=True):
            _draw_curves(axes, label_curves(runs, cell))
            axes.set_title(in_words(cell))
        axes = figure.axes[0]
        axes.set_ylabel("final average accuracy, %")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=5)
        figure.savefig(file, dpi=160, facecolor="white")


def _draw_curves(axes: Axes, curves: dict[str, list[tuple[float, float, float]]]) -> None:
    styles = style.styles_of(curves)
    for place, (name, points) in enumerate(curves.items()):
        labels, means, spreads = zip(*sorted(points), strict=True)
        # A little apart, so that bars of as many labels do not overlap.
        axes.errorbar(
            np.array(labels) * 1.05 ** (place - len(curves) // 2),
            means,
            yerr=spreads,
            marker=styles[name].marker,
            ls=styles[name].line,
            color=styles[name].colour,
            ms=5,
            capsize=2,
            elinewidth=0.9,
            label=name,
        )
    axes.set_xscale("symlog", linthresh=10, linscale=0.5)
    axes.set_xlim(-1, None)
    axes.set_xticks((0, 10, 100, 1000, 6000), ("0", "10", "100", "1,000", "6,000"))
    axes.minorticks_off()
    axes.set_xlabel("labels asked for")
    axes.grid()


def main() -> None:
    runs = Runs(saved(RESULTS))
    PAGE.write_text(page(PAGE.read_text(), runs))
    draw_gains(runs, IMAGES / "beyond-gains.png")
    if any(label_curves(runs, cell).get("vanilla") for cell in GROUPS["labels"].cells):
        draw_labels(runs, IMAGES / "beyond-labels.png")
    print(f"wrote {PAGE.relative_to(ROOT)} and its figures")


if __name__ == "__main__":
    main()
