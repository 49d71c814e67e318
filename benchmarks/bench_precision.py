"""What bfloat16 and channels-last bring: the same training steps in four ways, taking turns.

    python benchmarks/bench_precision.py [--threads 1] [--turns 30]

A step of ER on ResNet-18 as the learner makes it, on 10 + 10 and on 32 + 32 samples, against the same
step in float32 with images in torch's own order. On processors without instructions for bfloat16
it is emulated, many times slower, and no goal is set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ratios import Finding, arguments, begin, compare, finish, head, show, take_turns
from step_cases import CASES, FIRST_TASK, NUM_CLASSES, Case, assembled

Precision = Literal["fp32", "bf16"]
Layout = Literal["contiguous", "channels-last"]

PLAIN: tuple[Precision, Layout] = ("fp32", "contiguous")
OTHERS: tuple[tuple[Precision, Layout], ...] = (
    ("fp32", "channels-last"),
    ("bf16", "contiguous"),
    ("bf16", "channels-last"),
)
GOALS = {("bf16", "channels-last"): 1.8}
"""times faster at least, where the processor knows bfloat16"""


def knows_bfloat16() -> bool:
    """Whether this processor multiplies in bfloat16 by itself."""
    about = Path("/proc/cpuinfo")
    flags = about.read_text().split() if about.exists() else []
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags)


def step_of(case: Case, precision: Precision, layout: Layout) -> Callable[[], object]:
    """One step of a second task, to be made as often as wanted."""
    assembly = assembled(case, "er", 1, memory_format=layout, precision=precision)
    learner, ledger = assembly.learner, assembly.ledger
    _, second = assembly.stream.tasks()
    batch = next(iter(second.batches(second.train(), epoch=1)))
    learner.begin_task(FIRST_TASK)
    learner.begin_task(range(len(FIRST_TASK), NUM_CLASSES))

    def step() -> None:
        with ledger.phase("train"):
            learner.observe(batch)

    return step


def compared(case: Case, turns: int) -> list[Finding]:
    sides = {way: step_of(case, *way) for way in (PLAIN, *OTHERS)}
    named = {", ".join(way): side for way, side in sides.items()}
    seconds = take_turns(named, turns=turns)
    goals = GOALS if knows_bfloat16() else {}
    return [
        compare(
            "step",
            f"{', '.join(way)}, {case.batch_size} + {case.batch_size} samples, {case.name}",
            ", ".join(PLAIN),
            ours=seconds[", ".join(way)],
            other=seconds[", ".join(PLAIN)],
            measure="speedup",
            goal=goals.get(way),
        )
        for way in OTHERS
    ]


def main() -> None:
    options = arguments(__doc__, turns=30).parse_args()
    begin(options)
    print("bfloat16 is " + ("known to this processor" if knows_bfloat16() else "emulated here"))
    head("plain")
    findings = []
    for case in CASES[1:]:
        for rows in (10, 32):
            turns = options.turns if case.width != 64 else max(8, options.turns // 3)
            for finding in compared(replace(case, batch_size=rows), turns):
                findings.append(finding)
                show(finding)
    finish("precision", findings, options)


if __name__ == "__main__":
    main()
