"""Puts saved findings of speed benchmarks into docs/explanations/performance.md, and draws its figure.

    python benchmarks/performance_page.py [--findings runs/bench]

The text of the page is written by hand; what stands between its two marks is replaced.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from ratios import RESULTS, Finding, goal_in_words, in_words

from driftwise.report import style

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanations" / "performance.md"
FIGURE = ROOT / "docs" / "images" / "performance.png"
BEGIN, END = "<!-- findings -->", "<!-- end of findings -->"
BENCHMARKS = (
    "step",
    "epochs",
    "precision",
    "avalanche",
    "memory",
    "evaluate",
    "run",
    "keeper",
    "startup",
)
METHODS = ("finetune", "er", "er-ace", "der++", "ser", "cls-er")
NETWORKS = {"MLP": "#0072B2", "ResNet-18 width 20": "#E69F00", "ResNet-18 width 64": "#009E73"}
HATCHES = {"MLP": "", "ResNet-18 width 20": "//", "ResNet-18 width 64": ".."}


def read(folder: Path, name: str) -> tuple[dict[str, Any], list[Finding]]:
    """Under which conditions, and what was found; nothing where the benchmark has not run."""
    path = folder / f"{name}.json"
    if not path.exists():
        return {}, []
    saved = json.loads(path.read_text())
    return saved, [Finding(**finding) for finding in saved["findings"]]


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{1e3 * seconds:.3f}" if seconds < 0.01 else f"{1e3 * seconds:,.0f}"


def ends(finding: Finding) -> str:
    low, high = (in_words(finding.measure, end) for end in (finding.low, finding.high))
    return f"{low} to {high}"


def table(findings: list[Finding]) -> list[str]:
    lines = [
        "| what | case | against | ours, ms | other, ms | ratio (95 % interval) | goal | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in findings:
        verdict = f"**{each.verdict}**" if each.verdict == "missed" else each.verdict
        spread = "" if each.measure == "seconds" else f" ({ends(each)})"
        times = f"{milliseconds(each.ours)} | {milliseconds(each.other)}"
        lines.append(
            f"| {each.group} | {each.case} | {each.against or ''} | {times} | "
            f"{each.shown}{spread} | {goal_in_words(each)} | {verdict} |"
        )
    return lines


def conditions(saved: dict[str, Any]) -> str:
    clock = "by the clock" if saved["clock"] == "wall" else "processor time"
    return (
        f"{saved['processor']}; torch {saved['torch']}, {saved['threads']} thread(s), {clock}, "
        f"load {saved['load']:.1f}"
    )


def section(folder: Path) -> str:
    parts = []
    for name in BENCHMARKS:
        saved, findings = read(folder, name)
        if findings:
            lines = [f"`benchmarks/bench_{name}.py` ({conditions(saved)})", "", *table(findings)]
            parts.append("\n".join(lines))
    return "\n\n".join(parts)


def draw(folder: Path) -> None:
    """Overhead of a step on the left, times faster than Avalanche on the right."""
    _, steps = read(folder, "step")
    _, avalanche = read(folder, "avalanche")
    _, memory = read(folder, "memory")
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(8.6, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        height = 0.26
        for place, (network, colour) in enumerate(NETWORKS.items()):
            of_network = {f.case.split(",")[0]: f for f in steps if f.case.endswith(network)}
            for row, method in enumerate(METHODS):
                if (finding := of_network.get(method)) is None:
                    continue
                at = row + (place - 1) * height
                left.barh(
                    at,
                    100 * finding.value,
                    height,
                    color=colour,
                    hatch=HATCHES[network],
                    edgecolor="white",
                    label=network if row == 0 else None,
                )
                if finding.goal is not None:
                    goal = 100 * finding.goal
                    left.vlines(goal, at - height / 2, at + height / 2, color=style.INK, lw=1.6)
        left.set_yticks(range(len(METHODS)), METHODS)
        left.invert_yaxis()
        left.set_xlabel("% beyond the bare PyTorch loop (black: at most)")
        left.set_title("A training step")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=3)
        left.grid(axis="x")

        lines = [f for f in avalanche if "width 64" not in f.case]
        lines += [
            f for f in memory if (f.against or "").startswith("Avalanche") and "5,0" in f.case
        ]
        lines = [f for f in lines if "balanced" not in f.case]
        for row, finding in enumerate(lines):
            right.barh(row, finding.value, 0.7, color="#56B4E9", edgecolor="white")
            right.annotate(
                finding.shown,
                (max(finding.value, finding.goal or 0), row),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
            )
            if finding.goal is not None:
                right.vlines(finding.goal, row - 0.35, row + 0.35, color=style.INK, lw=1.6)
        right.set_xscale("log")
        right.set_xticks((1, 10, 100, 1000), ("1", "10", "100", "1000"))
        right.minorticks_off()
        right.set_yticks(
            range(len(lines)),
            [f"{f.group}: {f.case}".replace("width 20", "w20") for f in lines],
            fontsize=7.5,
        )
        right.invert_yaxis()
        right.set_xlim(0.5, 4 * max((f.value for f in lines), default=1))
        right.axvline(1, color=style.MUTED, lw=0.8, ls=":")
        right.set_xlabel("times faster (black: at least)")
        right.set_title("Beside Avalanche")
        right.grid(axis="x")
        FIGURE.parent.mkdir(exist_ok=True)
        figure.savefig(FIGURE, dpi=160, facecolor="white")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--findings", type=Path, default=RESULTS)
    folder = parser.parse_args().findings
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{section(folder)}\n\n{END}{after}")
    draw(folder)
    print(f"wrote {PAGE.relative_to(ROOT)} and {FIGURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
