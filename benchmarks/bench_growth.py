"""How cost grows: steps with the memory, evaluation with tasks, checks, the report with runs.

    python benchmarks/bench_growth.py [--only step whole] [--draw]

Every point is measured in a process of its own (`growth_cases.py`), by processor time on one
thread; meanwhile its memory is read from outside, anonymous pages and pages of files apart: the
system can take the latter back at any time. Ends with 1 where a training step with a memory of
1,000,000 samples takes more than 1.3 times what it takes with 100, or where such a memory's life
(filled, drawn from, a class dropped and put anew, saved, restored) needs 0.6 GB of anonymous
memory. Points are saved as they come; `--draw` only puts saved ones into
docs/explanations/performance-growth.md
and its figure.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from ratios import RESULTS, processor

from driftwise.report import style

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanations" / "performance-growth.md"
FIGURE = ROOT / "docs" / "images" / "performance-growth.png"
BEGIN, END = "<!-- points -->", "<!-- end of points -->"
FLAT = 1.3
"""a step with the largest memory takes at most so many times one with the smallest"""
MOST_ANONYMOUS = 600e6
"""bytes, with 1,000,000 samples"""
LARGEST = 1_000_000
FITTED = 3
"""sizes, the largest ones, that an exponent is fitted to: small ones measure constant work"""

CAPACITIES = (100, 1_000, 10_000, 100_000, LARGEST)
SIZES = {
    "memory": CAPACITIES,
    "step": CAPACITIES,
    "whole": CAPACITIES,
    "evaluation": (2, 5, 10, 20, 50, 100),
    "ks by classes": (10, 30, 100, 300, 1000),
    "combined by classes": (10, 30, 100, 300),
    "ks by samples": (50, 100, 300, 1000, 3000, 10_000),
    "combined by samples": (50, 100, 200, 400, 800),
    "report": (10, 100, 300, 1000),
}
WORDS = {
    "memory": ("add and draw 32 samples", "samples of capacity"),
    "step": ("a training step, MLP", "samples of capacity"),
    "whole": ("a memory's life", "samples of capacity"),
    "evaluation": ("evaluation of all tasks", "tasks"),
    "ks by classes": ("a check, ks", "classes, 50 + 50 samples each"),
    "combined by classes": ("a check, combined", "classes, 50 + 50 samples each"),
    "ks by samples": ("a check, ks", "samples a side, 10 classes"),
    "combined by samples": ("a check, combined", "samples a side, 10 classes"),
    "report": ("the index page", "runs"),
}

Point = dict[str, float]
Points = dict[str, dict[int, Point]]


def pages(process: int) -> dict[str, int]:
    """Resident bytes of a process by kind; nothing once it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    kinds = {"RssAnon": "anonymous", "RssFile": "file", "RssShmem": "shared"}
    return {
        kinds[name]: 1024 * int(rest.split()[0])
        for name, _, rest in (line.partition(":") for line in lines)
        if name in kinds
    }


def measured(case: str, size: int) -> Point:
    """One point, and the most memory of each kind that it took."""
    command = [sys.executable, str(Path(__file__).with_name("growth_cases.py")), case, str(size)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    peak: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        while child.poll() is None:
            for kind, now in pages(child.pid).items():
                peak[kind] = max(now, peak.get(kind, 0))
            time.sleep(0.01)
        assert child.stdout is not None
        said = child.stdout.read()
    if child.returncode:
        raise SystemExit(f"{case} {size} ended with {child.returncode}")
    point: Point = json.loads(said)
    return {**point, **peak}


def exponent(points: dict[int, Point]) -> float:
    """Of the power of the size that seconds grow with, over the largest sizes."""
    sizes = sorted(points)[-FITTED:]
    seconds = [points[size]["seconds"] for size in sizes]
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def plain(value: float) -> str:
    """A tick.

    >>> plain(0.001), plain(100_000), plain(1e6)
    ('0.001', '100k', '1M')
    """
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def shown(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


# What was found, for a reader


def table(points: Points) -> list[str]:
    lines = [
        "| what | against | from | to | exponent | most memory, anonymous + file pages |",
        "|---|---|---|---|---|---|",
    ]
    for case, of_case in points.items():
        what, against = WORDS[case]
        least, most = min(of_case), max(of_case)
        few, many = of_case[least], of_case[most]
        ratio = f" ({many['ratio']:.2f}x)" if "ratio" in many else ""
        lines.append(
            f"| {what} | {against} | {least:,}: {shown(few['seconds'])} | "
            f"{most:,}: {shown(many['seconds'])}{ratio} | {exponent(of_case):.2f} | "
            f"{many['anonymous'] / 1e6:,.0f} + {many['file'] / 1e6:,.0f} MB |"
        )
    return lines


def life(points: Points) -> list[str]:
    """What each part of the largest memory's life took."""
    whole = points.get("whole", {}).get(LARGEST)
    if whole is None:
        return []
    apart = {"seconds", "anonymous", "file", "shared"}
    parts = [f"{name} {shown(value)}" for name, value in whole.items() if name not in apart]
    return ["", f"A memory of {LARGEST:,} samples by the clock:", f"{', '.join(parts)}."]


def panel(
    axes: Axes, points: Points, cases: dict[str, tuple[str, str]], what: str, title: str
) -> None:
    for case, (label, colour) in cases.items():
        if case not in points:
            continue
        sizes = sorted(points[case])
        seconds = [points[case][size]["seconds"] for size in sizes]
        marker = "o" if colour == "#0072B2" else "s"
        axes.plot(sizes, seconds, color=colour, marker=marker, ms=4, lw=1.4, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(what)
    axes.set_title(title)
    axes.grid()


def memory_panel(axes: Axes, points: Points) -> None:
    whole = points.get("whole", {})
    sizes = sorted(whole)
    for kind, colour, marker in (("anonymous", "#D55E00", "o"), ("file", "#56B4E9", "s")):
        values = [whole[size][kind] / 1e6 for size in sizes]
        axes.plot(sizes, values, color=colour, marker=marker, ms=4, lw=1.4, label=f"{kind} pages")
    axes.axhline(MOST_ANONYMOUS / 1e6, color=style.INK, lw=0.9, ls="--")
    axes.annotate("anonymous at most", (100, MOST_ANONYMOUS / 1e6), xytext=(0, 3),
                  textcoords="offset points", fontsize=8)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("samples of capacity, 32x32x3")
    axes.set_ylabel("most memory, MB")
    axes.set_title("A memory's life")
    axes.legend(frameon=False)
    axes.grid()


def draw(points: Points) -> None:
    """Seconds against size, double logarithmic; the memory's pages beside them."""
    blue, orange = "#0072B2", "#E69F00"
    both = {
        by: {f"ks by {by}": ("ks", blue), f"combined by {by}": ("combined", orange)}
        for by in ("classes", "samples")
    }
    steps = {"step": ("training step, MLP", blue), "memory": ("add and draw alone", orange)}
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(9.0, 5.4), layout="constrained")
        top, bottom = figure.subplots(2, 3)
        panel(top[0], points, steps, "samples of capacity", "A step")
        top[0].set_ylim(1e-5, 1e-1)
        memory_panel(top[1], points)
        panel(top[2], points, {"evaluation": ("", blue)}, "tasks", "Evaluation")
        panel(bottom[0], points, both["classes"], "classes (50 + 50 samples each)", "A check")
        panel(bottom[1], points, both["samples"], "samples a side (10 classes)", "A check")
        panel(bottom[2], points, {"report": ("", blue)}, "runs", "The index page")
        for axes in (top[0], top[2], *bottom):
            axes.set_ylabel("seconds")
        for axes in (top[0], bottom[0], bottom[1]):
            axes.legend(frameon=False)
        for axes in (*top, *bottom):
            for axis in (axes.xaxis, axes.yaxis):  # the project's figures do not parse formulas
                axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
                axis.set_minor_formatter(NullFormatter())
        FIGURE.parent.mkdir(exist_ok=True)
        figure.savefig(FIGURE, dpi=160, facecolor="white")


def write_page(saved: dict[str, Any], points: Points) -> None:
    """Replace what stands between the page's marks."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    about = f"{saved['processor']}; one thread, processor time."
    lines = "\n".join([about, "", *table(points), *life(points)])
    PAGE.write_text(f"{before}{BEGIN}\n\n{lines}\n\n{END}{after}")


def broken(points: Points) -> list[str]:
    """The promises that do not hold."""
    found = []
    ratio = points.get("step", {}).get(LARGEST, {}).get("ratio", 0.0)
    if ratio > FLAT:
        found.append(
            f"a step with {LARGEST:,} samples takes {ratio:.2f}x one with 100, above {FLAT}x"
        )
    anonymous = points.get("whole", {}).get(LARGEST, {}).get("anonymous", 0.0)
    if anonymous >= MOST_ANONYMOUS:
        found.append(f"{LARGEST:,} samples take {anonymous / 1e6:.0f} MB of anonymous memory")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the points")
    options = parser.parse_args()
    file = options.out / "growth.json"
    saved = json.loads(file.read_text()) if file.exists() else {"points": {}}
    for case in () if options.draw else options.only:
        of_case = saved["points"][case] = {}
        for size in SIZES[case]:
            point = of_case[str(size)] = measured(case, size)
            ratio = f", {point['ratio']:.2f}x the smallest" if "ratio" in point else ""
            print(
                f"{case:20} {size:>9,}  {shown(point['seconds']):>8}{ratio}; "
                f"{point['anonymous'] / 1e6:,.0f} MB anonymous, {point['file'] / 1e6:,.0f} MB file",
                flush=True,
            )
            saved["processor"] = processor()
            options.out.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(saved, indent=1) + "\n")
    points = {
        case: {int(size): point for size, point in saved["points"][case].items()}
        for case in SIZES
        if case in saved["points"]
    }
    write_page(saved, points)
    draw(points)
    for promise in broken(points):
        print(promise)
    return 1 if broken(points) else 0


if __name__ == "__main__":
    sys.exit(main())
