"""What scoring all tasks costs beside the forward pass over their tests.

    python benchmarks/bench_evaluate.py [--threads 1] [--turns 15]

Our side is what the loop calls after the last task: the tests are gathered in their present concept, turned
into floats, put through the network, and everything that is said about a task is computed. The bare
side is `network(x)` over the same images as floats that are ready, in portions of the same size,
in evaluation mode and without gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from bench_step import plain_copy
from ratios import Finding, arguments, begin, compare, finish, head, show, take_turns
from step_cases import CASES, Case, assembled
from torch import Tensor

from driftwise.drift_loop import DriftLoop
from driftwise.models.inputs import to_input

GOAL = 0.05
"""overhead at most"""
PORTION = 512
"""samples that the learner puts through its network at once"""
STEPS = {"MLP": 200, "ResNet-18 width 20": 60, "ResNet-18 width 64": 30}
"""how much data the stream has, in training steps: the tests are about a sixth of it"""


@dataclass(frozen=True)
class Evaluating:
    """Both sides over one stream's tests."""

    assembly: DriftLoop
    portions: list[Tensor]

    def ours(self) -> None:
        """As the loop does."""
        with self.assembly.ledger.phase("evaluate"):
            self.assembly.evaluate(self.assembly.stream.task(len(self.assembly.stream)))


def evaluation(case: Case, turns: int) -> Finding:
    assembly = assembled(case, "er", STEPS[case.name])
    tests = assembly.stream.task(len(assembly.stream)).tests()
    portions = [to_input(part) for part in torch.split(tests.images, PORTION)]
    sides = Evaluating(assembly, portions)
    network = plain_copy(assembly.learner.network).eval()

    @torch.no_grad()
    def bare() -> None:
        for portion in portions:
            network(portion)

    times = take_turns({"ours": sides.ours, "bare": bare}, turns=turns)
    return compare(
        "evaluate",
        f"{len(tests):,} tests, {case.name}",
        "a bare forward pass",
        ours=times["ours"],
        other=times["bare"],
        measure="overhead",
        # Of an MLP, whose forward takes as long as reading the pixels, it is only reported.
        goal=None if case.width is None else GOAL,
    )


def main() -> None:
    options = arguments(__doc__, turns=15).parse_args()
    begin(options)
    head("forward")
    findings = []
    for case in CASES:
        findings.append(evaluation(case, options.turns))
        show(findings[-1])
    finish("evaluate", findings, options)


if __name__ == "__main__":
    main()
