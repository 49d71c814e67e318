"""An adversary who knows the detector: how long drift stays hidden, and how much of it.

    python benchmarks/adversary.py [--seeds 5] [--json results/adversary.json]
    python benchmarks/adversary.py --figure docs/images/adversary.png    # from the saved results

One class of Fashion-MNIST, features of a random network, 300 reference samples, then 300 samples without
drift, then drifted ones (all pixels permuted) are mixed in. Checks take 50 samples.

1. Constant fractions: samples until the alarm of `sequential`, beside the bound of
   `stats.hiding.longest_hidden` at 99 %, and of the paper's KS test on entropy (level 0.05 at each check).
2. The adaptive adversary: at each check the largest number of drifted samples, of 50, for which the test
   stays below its threshold, tried out on a copy of the detector. The fraction that it hides over 1,500
   samples is its damage: a learner that loses h points on drifted samples loses that fraction of h.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from detect_common import LEVEL, by_class, drawn, load_data, write_json
from sequential_delay import Known, encodings_of, numbered
from torch import Tensor

from driftwise import rng
from driftwise.detect import Detector, DetectorContext, HeldOutReference
from driftwise.detect.detectors import KS
from driftwise.detect.sequential import Sequential
from driftwise.report import style
from driftwise.report.facets import to_png
from driftwise.stats.hiding import longest_hidden

ROOT = Path(__file__).resolve().parents[1]
FRACTIONS = (0.1, 0.2, 0.3, 0.5, 1.0)
REFERENCE = QUIET = 300
CHECK, LONG, KEPT = 50, 1500, 2000


def detector_named(name: str, num_logits: int, seed: int) -> Detector:
    context = DetectorContext(encoder=lambda: Known(num_logits), drifting=lambda _: (), seed=seed)
    if name == "ks":
        return KS(level=LEVEL).bind(context)
    return Sequential(level=LEVEL, kept_rows=KEPT).bind(context)


class Attack:
    """A detector, samples of both concepts, and where the stream is."""

    def __init__(self, name: str, clean: Tensor, drifted: Tensor, logits: int, seed: int) -> None:
        draw = rng.fork(seed, "attack")
        self.clean = clean[torch.randperm(len(clean), generator=draw)]
        self.drifted = drifted[torch.randperm(len(drifted), generator=draw)]
        self.coin = np.random.default_rng(seed)
        self.detector = detector_named(name, logits, seed)
        self.kept = HeldOutReference()
        self.kept.renew(0, numbered(self.clean[:REFERENCE], 10**6))
        self.used = [REFERENCE, 0]
        self.checks = 1
        if name == "sequential":
            for _ in range(QUIET // CHECK):
                self.found(self.batch(np.zeros(CHECK, dtype=bool)))

    def batch(self, which: np.ndarray) -> Tensor:
        """The next samples; which of them have drifted, bool (samples,)."""
        mark = torch.from_numpy(which)
        samples = self.clean[self.used[0] : self.used[0] + len(which)].clone()
        samples[mark] = self.drifted[self.used[1] : self.used[1] + int(mark.sum())]
        return samples

    def found(self, samples: Tensor, *, taken: int = 0) -> bool:
        """Whether a check of these samples, so many of them drifted, finds drift."""
        self.used = [self.used[0] + len(samples), self.used[1] + taken]
        self.checks += 1
        (verdict,) = self.detector.check(
            self.checks, (0,), numbered(samples, self.checks * 10_000), self.kept
        )
        return bool(verdict.drifted)


def delay(attack: Attack, fraction: float, rows: int) -> int | None:
    """Samples until the alarm; None: none within 1,500."""
    for end in range(rows, LONG + 1, rows):
        which = attack.coin.random(rows) < fraction
        if attack.found(attack.batch(which), taken=int(which.sum())):
            return end
    return None


def adapt_to(attack: Attack) -> list[int]:
    """Drifted samples of each check that the adaptive adversary hides."""
    hidden = []
    for _ in range(LONG // CHECK):
        low, high = 0, CHECK
        while low < high:  # the largest number that stays hidden, taking larger ones to be found
            middle = (low + high + 1) // 2
            trial = copy.deepcopy(attack)
            found = trial.found(trial.batch(np.arange(CHECK) < middle), taken=middle)
            low, high = (low, middle - 1) if found else (middle, high)
        attack.found(attack.batch(np.arange(CHECK) < low), taken=low)
        hidden.append(low)
    return hidden


def draw(saved: dict[str, Any], file: Path) -> None:
    """Delays of every seed and the bound, by fraction drifted; a cross: not found."""
    with matplotlib.rc_context(style.RC):
        figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
        known = [(float(f), each) for f, each in saved["constant"].items()]
        bounds = [(f, each["bound"]) for f, each in known if each["bound"] is not None]
        axes.plot(*zip(*bounds, strict=True), color="black", marker="_", label="bound, 99 %")
        for name, shift, colour in (("sequential", 0.985, "C0"), ("ks", 1.015, "C1")):
            points = [(f * shift, d) for f, each in known for d in each[name] if d is not None]
            x, y = zip(*points, strict=True)
            axes.scatter(x, y, s=14, color=colour, label=f"{name}, a seed each")
            missed = [f * shift for f, each in known for d in each[name] if d is None]
            axes.scatter(missed, [2000] * len(missed), marker="x", s=18, color=colour)
        axes.axhline(LONG, color="grey", linewidth=0.6)
        axes.text(1.0, 2600, "crosses: not found within 1,500", ha="right", fontsize=7)
        axes.set(xscale="log", yscale="log", ylim=(1, 3500))
        axes.set_xticks(FRACTIONS, [f"{f:g}" for f in FRACTIONS])
        axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        axes.minorticks_off()
        axes.set_xlabel("fraction of drifted samples mixed in")
        axes.set_ylabel("samples until the alarm")
        axes.legend(loc="lower left", fontsize=7)
        file.write_bytes(to_png(figure))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "adversary.json")
    parser.add_argument("--figure", type=Path, help="draw the saved results, and stop")
    asked = parser.parse_args()
    if asked.figure is not None:
        draw(json.loads(asked.json.read_text()), asked.figure)
        return
    torch.set_num_threads(1)
    dataset = load_data("fmnist")
    of_class = by_class(dataset.labels, np.arange(len(dataset.labels)), len(dataset.class_names))
    rows = drawn(of_class[0], 4500, rng.fork(0, "rows"))
    clean, logits = encodings_of(dataset, rows[:2800], "random", None)
    drifted, _ = encodings_of(dataset, rows[2800:], "random", ("permutation", 5))
    settings = {
        "level": LEVEL,
        "num_reference": REFERENCE,
        "num_quiet": QUIET,
        "kept_rows": KEPT,
    }
    table: dict[str, Any] = {}
    for fraction in FRACTIONS:
        bound = longest_hidden(fraction, most=LONG, **settings)  # type: ignore[arg-type]
        delays: dict[str, list[int | None]] = {
            name: [
                delay(Attack(name, clean, drifted, logits, seed), fraction, step)
                for seed in range(asked.seeds)
            ]
            for name, step in (("sequential", 1), ("ks", CHECK))
        }
        table[str(fraction)] = {"bound": bound, **delays}
        print(fraction, bound, delays, flush=True)
        write_json(asked.json, {"settings": settings, "constant": table})
    adaptive = {}
    for name in ("ks", "sequential"):
        adaptive[name] = [
            adapt_to(Attack(name, clean, drifted, logits, seed)) for seed in range(asked.seeds)
        ]
        print(name, [sum(each) / LONG for each in adaptive[name]], flush=True)
        write_json(asked.json, {"settings": settings, "constant": table, "adaptive": adaptive})


if __name__ == "__main__":
    main()
