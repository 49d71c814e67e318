"""What SER saves in later epochs, in which the frozen network need not be asked again.

    python benchmarks/bench_epochs.py [--threads 1] [--turns 30]

Both sides learn from the same batches of a second task. To one of them they come again, as in an
epoch after the first; to the other, as in a task of a single epoch, they are always new.
"""

from __future__ import annotations

from collections.abc import Callable

from ratios import Finding, arguments, begin, compare, finish, head, show, take_turns
from step_cases import CASES, FIRST_TASK, NUM_CLASSES, Case, assembled


def steps_of_an_epoch(case: Case, *, epochs: int) -> Callable[[], None]:
    """A task's second epoch, or its only one, to be learned as often as wanted."""
    assembly = assembled(case, "ser", case.steps)
    learner, ledger = assembly.learner, assembly.ledger
    first, second = assembly.stream.tasks()
    rows = second.train()
    batches = list(second.batches(rows, epoch=1))[: case.steps]

    def learn() -> None:
        with ledger.phase("train"):
            for batch in batches:
                learner.observe(batch)

    with ledger.phase("train"):
        learner.begin_task(first.new_classes)
        learner.observe(next(iter(first.batches(first.train(), epoch=1))))
        learner.end_task()
        learner.begin_task(range(len(FIRST_TASK), NUM_CLASSES))
        learner.begin_epoch(1, epochs)
    learn()
    with ledger.phase("train"):
        learner.begin_epoch(epochs, epochs)
    return learn


def later_epochs(case: Case, turns: int) -> Finding:
    sides = {"kept": steps_of_an_epoch(case, epochs=2), "asked": steps_of_an_epoch(case, epochs=1)}
    times = take_turns(sides, turns=turns)
    return compare(
        "step",
        f"ser, {case.name}, epochs after the first",
        "asking the frozen network",
        ours=[seconds / case.steps for seconds in times["kept"]],
        other=[seconds / case.steps for seconds in times["asked"]],
        measure="speedup",
        goal=1.0,
    )


def main() -> None:
    options = arguments(__doc__, turns=30).parse_args()
    begin(options)
    head("asking")
    findings = []
    for case in CASES:
        turns = options.turns if case.width != 64 else max(6, options.turns // 3)
        findings.append(later_epochs(case, turns))
        show(findings[-1])
    finish("epochs", findings, options)


if __name__ == "__main__":
    main()
