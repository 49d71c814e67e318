"""How the settings of digits-cd were chosen: final average accuracy without drift and adaptation.

The choice so knows nothing of what is compared. Development seeds 1000 to 1004, which no test and
no claim uses. `python benchmarks/tune_digits.py [METHOD ...]` prints a line per setting.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from driftwise import RunConfig, run

SEEDS = range(1000, 1005)
RATES = (0.03, 0.1, 0.3)
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "er": [{}],
    "er-ace": [{}],
    "der++": [{"alpha": alpha, "beta": beta} for alpha in (0.1, 0.2) for beta in (0.5, 1.0)],
    "ser": [{"alpha": each, "beta": each} for each in (0.05, 0.2, 0.5)],
    "cls-er": [
        {
            "reg_weight": weight,
            "stable_update_freq": often,
            "stable_alpha": 0.99,
            "plastic_update_freq": 1.0,
            "plastic_alpha": 0.99,
        }
        for weight, often in itertools.product((0.15, 1.0), (0.1, 0.9))
    ],
    "finetune": [{}],
    "joint": [{}],
}


def settings(method: str) -> Iterator[tuple[float, dict[str, Any]]]:
    """Every rate with every set of options."""
    return itertools.product(RATES, OPTIONS[method])


def accuracies(method: str, rate: float, options: dict[str, Any], folder: Path) -> list[float]:
    """FAA of each development seed."""
    found = []
    for seed in SEEDS:
        config = RunConfig(
            method=method,
            adaptation="vanilla",
            detector="never",
            num_drifts=0,
            lr=rate,
            seed=seed,
            options={"method": options} if options else {},
        )
        result = run(config, folder / f"{method}-{seed}", overwrite=True)
        found.append(result["faa"])
    return found


def main(methods: list[str]) -> None:
    """A line per setting, the best of each method marked."""
    with tempfile.TemporaryDirectory() as folder:
        for method in methods or list(OPTIONS):
            lines = []
            for rate, options in settings(method):
                found = accuracies(method, rate, options, Path(folder))
                mean, spread = statistics.mean(found), statistics.stdev(found)
                named = " ".join(f"{name}={value}" for name, value in options.items())
                lines.append((mean, f"{method} lr={rate} {named}: {mean:.1f} +- {spread:.1f}"))
            best = max(mean for mean, _ in lines)
            for mean, line in lines:
                print(f"{line}{'   <- best' if mean == best else ''}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
