"""What the speed benchmarks share: sides that take turns, ratios with their goals, saved findings.

The sides of a comparison run in one process tree and take turns, so that whatever else the machine
does meets all of them. A ratio is the median of the turns' own ratios: a slow moment spoils a turn,
not the comparison. A goal counts as reached or missed only if the whole 95 % interval of that
median lies on one side of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from scipy import stats

RESULTS = Path(__file__).resolve().parents[1] / "runs" / "bench"
"""Where findings are saved for `performance_page.py`."""

Measure = Literal["overhead", "speedup", "seconds"]
Verdict = Literal["", "reached", "missed", "undecided"]


def processor_seconds() -> float:
    """Of this process, and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


CLOCKS = {"wall": time.perf_counter, "cpu": processor_seconds}
"""cpu: for machines that are busy with other things; one thread only"""
_clock = "wall"


def now() -> float:
    """Seconds by the clock that was chosen; only differences mean something."""
    return CLOCKS[_clock]()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One comparison, or one time by itself."""

    group: str
    """what was done, e.g. `step`"""
    case: str
    """in which case, e.g. `er, MLP`"""
    against: str | None
    """what it was compared with; None: with nothing but the clock"""
    ours: float
    """seconds, median"""
    other: float | None
    """seconds, median"""
    measure: Measure
    """overhead: ours / other - 1; speedup: other / ours; seconds: ours"""
    value: float
    low: float
    """lower end of the 95 % interval of the median over turns"""
    high: float
    """its upper end"""
    goal: float | None
    """at most so much overhead or so many seconds, at least so many times faster; None: no goal"""

    @property
    def verdict(self) -> Verdict:
        """Whether the goal was reached, as far as the turns show."""
        if self.goal is None:
            return ""
        worst, best = (
            (self.low, self.high) if self.measure == "speedup" else (-self.high, -self.low)
        )
        goal = self.goal if self.measure == "speedup" else -self.goal
        return "reached" if worst >= goal else "missed" if best < goal else "undecided"

    @property
    def shown(self) -> str:
        """The value as a person reads it."""
        return in_words(self.measure, self.value)


def in_words(measure: Measure, value: float) -> str:
    """A value with its unit.

    >>> in_words("overhead", 0.021), in_words("speedup", 23.04), in_words("seconds", 0.21)
    ('+2.1 %', '23.0x', '0.21 s')
    """
    match measure:
        case "overhead":
            return f"{100 * value:+.1f} %"
        case "speedup":
            return f"{value:.1f}x" if value >= 9.95 else f"{value:.2f}x"
    return f"{value:.2f} s"


def goal_in_words(finding: Finding) -> str:
    """The goal with its unit; empty if there is none."""
    if finding.goal is None:
        return ""
    bound = "at least" if finding.measure == "speedup" else "at most"
    return f"{bound} {in_words(finding.measure, finding.goal)}"


def compare(
    group: str,
    case: str,
    against: str,
    *,
    ours: Sequence[float],
    other: Sequence[float],
    measure: Measure,
    goal: float | None = None,
) -> Finding:
    """A finding from the seconds that each side took in each turn."""
    ratios = [
        mine / theirs - 1 if measure == "overhead" else theirs / mine
        for mine, theirs in zip(ours, other, strict=True)
    ]
    low, middle, high = around_the_median(ratios)
    return Finding(
        group=group,
        case=case,
        against=against,
        ours=statistics.median(ours),
        other=statistics.median(other),
        measure=measure,
        value=middle,
        low=low,
        high=high,
        goal=goal,
    )


def clocked(group: str, case: str, seconds: Sequence[float], goal: float | None = None) -> Finding:
    """A finding that stands by itself."""
    low, middle, high = around_the_median(seconds)
    return Finding(
        group=group,
        case=case,
        against=None,
        ours=middle,
        other=None,
        measure="seconds",
        value=middle,
        low=low,
        high=high,
        goal=goal,
    )


def around_the_median(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, between the ends of its 95 % interval (by ranks, whatever the distribution).

    >>> around_the_median([5.0, 1.0, 2.0, 4.0, 3.0, 6.0, 7.0])
    (1.0, 4.0, 7.0)
    """
    ordered = sorted(values)
    # The rank of the median among n turns is that of n tosses of a coin.
    rank = max(0, int(stats.binom.ppf(0.025, len(ordered), 0.5)) - 1)
    return ordered[rank], statistics.median(ordered), ordered[-1 - rank]


def take_turns(
    sides: Mapping[str, Callable[[], object]], *, turns: int, calls: int = 1
) -> dict[str, list[float]]:
    """Seconds per call of each side in each turn, a first turn left out.

    A turn makes `calls` calls of every side; who begins changes from turn to turn.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(-1, turns):
        for name in names if turn % 2 else reversed(names):
            call = sides[name]
            start = now()
            for _ in range(calls):
                call()
            taken = (now() - start) / calls
            if turn >= 0:
                seconds[name].append(taken)
    return seconds


def arguments(about: str | None, *, turns: int) -> argparse.ArgumentParser:
    """The options of every speed benchmark."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of torch, on every side")
    parser.add_argument("--turns", type=int, default=turns, help="turns of each comparison")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: on a busy machine")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the findings")
    return parser


def begin(options: argparse.Namespace) -> None:
    """Set the threads and the clock, and say where things stand."""
    global _clock
    _clock = options.clock
    torch.set_num_threads(options.threads)
    print(
        f"torch {torch.__version__}, {options.threads} thread(s), {os.cpu_count()} cores, "
        f"{options.clock} clock, load {os.getloadavg()[0]:.1f} before"
    )


def show(finding: Finding) -> None:
    """A line of the table."""
    other = "" if finding.other is None else _time(finding.other)
    spread = "" if finding.measure == "seconds" else _spread(finding)
    verdict = finding.verdict.upper() if finding.verdict == "missed" else finding.verdict
    print(
        f"{finding.group:9} {finding.case:34} {_time(finding.ours):>10} {other:>10}  "
        f"{finding.shown:>8} {spread:20} {goal_in_words(finding):17} {verdict}".rstrip(),
        flush=True,
    )


def head(against: str) -> None:
    """The line above the table."""
    print(f"{'':44} {'ours':>10} {against:>10}  {'ratio':>8} {'(95 % interval)':20} goal")


def finish(name: str, findings: Sequence[Finding], options: argparse.Namespace) -> None:
    """Save the findings, and end with 1 where a goal was missed."""
    options.out.mkdir(parents=True, exist_ok=True)
    saved = {
        "threads": options.threads,
        "clock": options.clock,
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": processor(),
        "findings": [asdict(finding) for finding in findings],
    }
    (options.out / f"{name}.json").write_text(json.dumps(saved, indent=1) + "\n")
    missed = [finding for finding in findings if finding.verdict == "missed"]
    if missed:
        print(f"{len(missed)} goal(s) missed")
        sys.exit(1)


def machine_seconds() -> float | None:
    """Processor seconds that the machine has worked, whatever for; None where nobody says."""
    about = Path("/proc/stat")
    if not about.exists():
        return None
    user, nice, system, _, _, *interrupts = map(int, about.read_text().split()[1:8])
    return float(user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


CALM = 0.1
"""the part of all cores that other programs may use in a turn that counts"""


def calm(turns: Sequence[dict[str, Any]], at_least: int = 0) -> Sequence[dict[str, Any]]:
    """Turns whose `others` are few; all turns, if those are fewer than `at_least`."""
    found = [turn for turn in turns if turn["others"] <= CALM]
    return found if len(found) >= at_least else turns


def moment() -> tuple[float, float | None, float]:
    """Where `used_by_others` begins to look."""
    return time.perf_counter(), machine_seconds(), processor_seconds()


def used_by_others(since: tuple[float, float | None, float]) -> float | None:
    """The part of all cores that other programs have used since; None where nobody says."""
    (wall, before, own), (end, after, mine) = since, moment()
    if before is None or after is None:
        return None
    others = max(0.0, (after - before) - (mine - own))
    return round(others / (end - wall) / (os.cpu_count() or 1), 3)


def processor() -> str:
    """The processor's name, as far as it is known."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.machine()


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _spread(finding: Finding) -> str:
    ends = in_words(finding.measure, finding.low), in_words(finding.measure, finding.high)
    return f"({ends[0]} to {ends[1]})"
