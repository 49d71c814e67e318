"""Our training step beside Avalanche's, for the methods that both have.

    python benchmarks/bench_avalanche.py [--threads 1] [--turns 30] [--environment FOLDER]

Avalanche runs in a virtual environment and a process of its own, which computes only while it is
its turn; network definition, sizes of batch and draw, optimiser and threads are equal. Its side is
given every advantage: images are floats that are ready (ours are bytes), nothing is logged, and
the memory is filled between tasks only (ours is offered every batch). Its methods: `Naive` with
`ReplayPlugin`, `ER_ACE`, `DER`.

Its DER++ makes one forward over the stream and a single draw, 20 samples; the published method makes
three over the stream and two draws, 30 samples. Both are compared like with like: ours with
`one_forward`, which does what Avalanche does, and as published against Avalanche with a draw of
twice the size, which puts 30 samples through the network, but still in one forward.

Convolutions are also run with `--memory-format channels-last` on our side, a setting that Avalanche
does not have.
"""

from __future__ import annotations

from itertools import product
from typing import Literal

from avalanche_side import Avalanche, Missing, add_environment
from ratios import Finding, arguments, begin, compare, finish, head, show
from step_cases import CAPACITY, CASES, LR, Case, assembled, take_turns_with

METHODS = ("er", "er-ace", "der++")
LAYOUTS: tuple[Literal["contiguous", "channels-last"], ...] = ("contiguous", "channels-last")
"""of images and weights; the second one for convolutions only"""
WHERE_THE_NETWORK_DOES_NOT_DOMINATE = 1.5
"""times faster at least"""


def beside(
    avalanche: Avalanche,
    case: Case,
    method: str,
    turns: int,
    *,
    draws: int,
    layout: Literal["contiguous", "channels-last"],
) -> Finding:
    height, width, channels = case.image_shape
    like_theirs = method == "der++" and draws == 1
    options = {"one_forward": True} if like_theirs else {}
    steps = (turns + 2) * case.steps
    assembly = assembled(case, method, steps, memory_format=layout, of_method=options)
    avalanche.open(
        "steps",
        method=method,
        width=case.width,
        shape=(channels, height, width),
        batch_size=case.batch_size,
        draw=draws * case.batch_size,
        capacity=CAPACITY,
        lr=LR,
    )
    turn = take_turns_with(assembly, case, avalanche.steps, turns)
    avalanche.close()
    expected = (1 + draws) * case.batch_size
    assert avalanche.rows_per_step == expected, (avalanche.rows_per_step, expected)
    forwards = " in one forward" if like_theirs else ""
    setting = "" if layout == "contiguous" else f", {layout}"
    return compare(
        "step",
        f"{method}{forwards}, {case.name}{setting}",
        f"Avalanche {avalanche.version}"
        + (", one forward of as many samples" if draws > 1 else ""),
        ours=turn.ours,
        other=turn.others,
        measure="speedup",
        goal=WHERE_THE_NETWORK_DOES_NOT_DOMINATE if case.width is None else 1.0,
    )


def main() -> None:
    parser = arguments(__doc__, turns=30)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--networks", nargs="+", default=[case.name for case in CASES])
    add_environment(parser)
    options = parser.parse_args()
    begin(options)
    findings = []
    try:
        with Avalanche(options.environment, options) as avalanche:
            head("Avalanche")
            for case in (case for case in CASES if case.name in options.networks):
                turns = options.turns if case.width != 64 else max(6, options.turns // 3)
                for layout, method in product(LAYOUTS[: 1 + bool(case.width)], options.methods):
                    for draws in (1, 2) if method == "der++" else (1,):
                        finding = beside(avalanche, case, method, turns, draws=draws, layout=layout)
                        findings.append(finding)
                        show(finding)
    except Missing as missing:
        print(f"skipped, Avalanche cannot be had here: {missing}")
        return
    finish("avalanche", findings, options)


if __name__ == "__main__":
    main()
