"""A whole run from the command line beside a bare script that trains and tests the same.

    python benchmarks/bench_run.py [--threads 1] [--turns 5]

Fresh processes by the clock, importing torch included: `driftwise run` on the digits (experience
replay; nothing drifts, nothing is monitored) with all it does about a run (config, events, checkpoint
after each task, checksums, FLOPs, scores of every kind), and `bare_run.py`, which prints one
number. How much of the difference is start-up shows in the first line of each pair, a run of one
epoch, against the second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from ratios import Finding, arguments, begin, compare, finish, head, show, take_turns

BARE = Path(__file__).with_name("bare_run.py")
RUNS = {
    "MLP, 1 epoch": ["--backbone", "mlp", "--epochs", "1"],
    "MLP, 20 epochs": ["--backbone", "mlp", "--epochs", "20"],
    "ResNet-18 width 20, 3 epochs": ["--backbone", "resnet18", "--epochs", "3"],
}
NOTHING_DRIFTS = ["--num-drifts", "0", "--detector", "never", "--adaptation", "vanilla"]
SETTING = ["--batch-size", "10", "--minibatch-size", "10", "--buffer-size", "100", "--lr", "0.3"]


def final_accuracy(words: list[str]) -> float:
    """Carry out a command; the final average accuracy that it prints as JSON."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["faa"])


def whole_run(case: str, words: list[str], options: argparse.Namespace) -> Finding:
    """Both sides in turns; how well they learned is printed, to show that they do the same."""
    faa: dict[str, float] = {}
    common = [*words, "--threads", str(options.threads)]
    width = ["--backbone.width", "20"] if "resnet18" in words else []
    command = ["-m", "driftwise", "run", "--method", "er", "--json", *SETTING, *NOTHING_DRIFTS]

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            faa["ours"] = final_accuracy([*command, *common, *width, "--out", f"{folder}/run"])

    def bare() -> None:
        faa["bare"] = final_accuracy([str(BARE), *common])

    times = take_turns({"ours": run, "bare": bare}, turns=options.turns)
    finding = compare(
        "run",
        case,
        "a bare script",
        ours=times["ours"],
        other=times["bare"],
        measure="overhead",
    )
    show(finding)
    print(f"{'':10}final average accuracy {faa['ours']:.1f}; the bare script: {faa['bare']:.1f}")
    return finding


def main() -> None:
    options = arguments(__doc__, turns=5).parse_args()
    begin(options)
    head("script")
    findings = [whole_run(case, words, options) for case, words in RUNS.items()]
    finish("run", findings, options)


if __name__ == "__main__":
    main()
