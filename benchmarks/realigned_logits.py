"""What the mode in which realigned samples get their stored logits changes, in short runs.

    python benchmarks/realigned_logits.py [--seeds 5] [--max-per-class 300]

The published stream of Fashion-MNIST with one drift (permuted rows of pixels, the first four classes at task
3), ResNet-18 of width 8, one epoch, a buffer of 100, perfect detection, `amr`. DER++ and SER keep
logits; `evaluation` and `training` differ in nothing but `realigned_logits`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import warnings
from pathlib import Path
from typing import Literal

from detect_common import say, say_load

import driftwise
from driftwise import RunConfig

MODES: tuple[Literal["evaluation", "training"], ...] = ("evaluation", "training")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--max-per-class", type=int, default=300)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    say_load()
    for method in ("der++", "ser"):
        differences = []
        for seed in range(args.seeds):
            faa = {}
            for mode in MODES:
                config = RunConfig(
                    benchmark="fmnist-cd",
                    preset="published",
                    method=method,
                    detector="oracle",
                    realigned_logits=mode,
                    max_per_class=args.max_per_class,
                    buffer_size=100,
                    options={"backbone": {"width": 8}},
                    threads=1,
                    seed=seed,
                )
                with tempfile.TemporaryDirectory() as folder:
                    result = driftwise.run(config, Path(folder) / "run")
                faa[mode] = result["faa"]
                drifted, stable = result["faa_drifted"], result["faa_stable"]
                say(f"{method} seed {seed} {mode}: {faa[mode]:.2f} ({drifted:.2f}, {stable:.2f})")
            differences.append(faa["training"] - faa["evaluation"])
        mean, spread = statistics.mean(differences), statistics.stdev(differences)
        say(f"{method}: training - evaluation {mean:+.2f} ± {spread:.2f} over {args.seeds} seeds")


if __name__ == "__main__":
    main()
