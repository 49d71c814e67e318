"""Puts the measured costs into docs/how-to/distributed.md and trainers.md, between `<!-- measured -->` marks.

python benchmarks/cost_pages.py      # from results/distributed.json and results/trainer_cost.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- measured -->\n", "<!-- end -->"
NAMES = {"resnet64": "ResNet-18", "resnet": "ResNet-18, width 20", "mlp": "MLP"}
SLOWER, SHARE = 5.0, 3.0
"""goals: percent by which a step may be slower, and percent of it that may be the buffer's"""


def spread(values: list[float]) -> str:
    """A median with its interval, in percent."""
    low, middle, high = (100 * each for each in values)
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


def part(values: list[float] | float) -> str:
    """The same, of a part; earlier findings have no interval."""
    if isinstance(values, float):
        return f"{100 * values:.1f} %"
    return spread(values).replace("+", "")


def verdict(values: list[float] | float, goal: float) -> str:
    """Whether a goal of at most so many percent was reached, as far as the interval shows."""
    if isinstance(values, float):
        return "reached by the median" if 100 * values <= goal else "missed by the median"
    low, middle, high = (100 * each for each in values)
    if high <= goal:
        return "reached"
    if low > goal:
        return "missed"
    side = "within the goal" if middle <= goal else "above the goal"
    return f"undecided (the interval contains the goal, the median is {side})"


def of_processes() -> str:
    """The table of distributed.md, and what follows from it."""
    findings = json.loads((ROOT / "results" / "distributed.json").read_text())["findings"]
    heads = ("network, layout, processes", "step: wall", "step: processor", "buffer: wall")
    lines = [f"| {' | '.join(heads)} | buffer: processor |", "|---|---|---|---|---|"]
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for each in findings:
        found[each["case"], each["layout"], each["processes"]] = each
    order = sorted(found, key=lambda key: ([*NAMES].index(key[0]), key[2], key[1] != "sharded"))
    for case, layout, processes in order:
        each = found[case, layout, processes]
        if processes > 1:
            steps = " | ".join(spread(each[key]) for key in ("slower_wall", "slower_processor"))
            shares = " | ".join(part(each[key]) for key in ("buffer", "buffer_processor"))
            lines.append(f"| {NAMES[case]}, {layout}, {processes} | {steps} | {shares} |")
    others = [each["others"] for each in found.values() if each.get("others") is not None]
    turns = [each["turns"] for each in found.values()]
    if others:
        lines.append("")
        lines.append(
            f"Other programs used at most {100 * max(others):.1f} % of the two cores "
            f"meanwhile. Medians of {min(turns)} to {max(turns)} turns, with 95 % intervals."
        )
    lines += ["", "With the default layout and two processes:", ""]
    for case in ("resnet64", "resnet"):
        default = found[case, "sharded", 2]
        lines += [
            f"- {NAMES[case]}, a step at most {SLOWER:.0f} % slower: by wall time "
            f"{verdict(default['slower_wall'], SLOWER)}; by processor time "
            f"{verdict(default['slower_processor'], SLOWER)}.",
            f"- {NAMES[case]}, the buffer at most {SHARE:.0f} % of a step: by wall time "
            f"{verdict(default['buffer'], SHARE)}; by processor time "
            f"{verdict(default['buffer_processor'], SHARE)}.",
        ]
    return "\n".join(lines) + "\n"


def of_lightning() -> str:
    """The sentence of trainers.md."""
    found = json.loads((ROOT / "results" / "trainer_cost.json").read_text())["lightning"]
    return (
        "A ResNet-18 step in Lightning (width 20, 64 samples) is slower with the callback by "
        f"{spread(found['slower_wall'])} of wall time\nand {spread(found['slower_processor'])} of "
        f"processor time. The callback's own code is {100 * found['share']:.1f} % of a step. Goal, at "
        f"most {SHARE:.0f} % slower:\n{verdict(found['slower_wall'], SHARE)} by wall time "
        "(`python benchmarks/bench_trainers.py`, `results/trainer_cost.json`).\n"
    )


def pages() -> dict[Path, str]:
    """The pages, with the numbers of the results as they are."""
    made = {}
    for name, measured in (("distributed", of_processes()), ("trainers", of_lightning())):
        path = ROOT / "docs" / "how-to" / f"{name}.md"
        before, rest = path.read_text().split(BEGIN)
        made[path] = f"{before}{BEGIN}\n{measured}\n{END}{rest.partition(END)[2]}"
    return made


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
