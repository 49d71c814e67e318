"""What the demo's setting shows over ten seeds: mean, spread, and paired tests.

The claim: `amr` ends at least 10 points of final average accuracy above `vanilla` and within 3
points of `fr`, with at most a quarter of its adaptation labels. "Within" means that the lower end
of the paired 95 % interval of the difference lies above -3. `fr-flush` stands beside `fr` because
published relearning leaves stale samples in memory, which makes it a weaker opponent.

    python benchmarks/demo_claim.py [--num-seeds 10] [--first-seed 0]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy import stats

import driftwise

ADAPTATIONS = ("vanilla", "fr", "fr-flush", "amr")


def paired(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float, float]:
    """Mean difference, its 95 % interval, and the p-value of a paired t-test."""
    test = stats.ttest_rel(first, second)
    interval = test.confidence_interval(0.95)
    return float((first - second).mean()), interval.low, interval.high, float(test.pvalue)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.num_seeds)
    torch.set_num_threads(1)

    faa: dict[str, np.ndarray] = {}
    labels: dict[str, np.ndarray] = {}
    print(f"digits-cd, er, buffer 100, 1 drift, seeds {seeds[0]} to {seeds[-1]}")
    print(f"{'adaptation':<11} {'FAA':>6} {'sd':>5} {'min':>6} {'labels':>7} {'steps':>6} tpr/fpr")
    with tempfile.TemporaryDirectory() as folder:
        for adaptation in ADAPTATIONS:
            results = [
                driftwise.run(
                    driftwise.RunConfig(adaptation=adaptation, seed=seed),
                    Path(folder) / f"{adaptation}-{seed}",
                )
                for seed in seeds
            ]
            faa[adaptation] = np.array([result["faa"] for result in results])
            labels[adaptation] = np.array([result["labels"]["adaptation"] for result in results])
            scores, asked = faa[adaptation], labels[adaptation]
            steps = np.mean([result["gradient_steps"] for result in results])
            tpr = np.mean([result["detection"]["tpr"] for result in results])
            fpr = np.mean([result["detection"]["fpr"] for result in results])
            print(
                f"{adaptation:<11} {scores.mean():6.2f} {scores.std(ddof=1):5.2f} "
                f"{scores.min():6.2f} {asked.mean():7.1f} {steps:6.0f} {tpr:.3f}/{fpr:.4f}"
            )

    print()
    intervals = {}
    for other in ("vanilla", "fr", "fr-flush"):
        mean, low, high, p_value = paired(faa["amr"], faa[other])
        intervals[other] = low
        print(
            f"amr - {other:<9} {mean:+6.2f} points, 95 % interval {low:+.2f} to {high:+.2f}, "
            f"p = {p_value:.2g}"
        )
    share = labels["amr"].mean() / labels["fr"].mean()
    print(f"adaptation labels, amr / fr: {share:.3f}")

    claims = {
        "at least 10 points above vanilla": intervals["vanilla"] >= 10,
        "within 3 points of fr": intervals["fr"] >= -3,
        "within 3 points of fr-flush": intervals["fr-flush"] >= -3,
        "at most a quarter of fr's labels": share <= 0.25,
    }
    for claim, holds in claims.items():
        print(f"{'holds' if holds else 'FAILS'}: {claim}")
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
