"""An adversary who knows the detector: how long drift stays hidden, how much of it, and what it costs.

    python benchmarks/adversary.py [--seeds 5] [--json results/adversary.json]
    python benchmarks/adversary.py --figure docs/images/adversary.png    # from the saved results

One class of Fashion-MNIST, features of a random network, 300 reference samples, then 300 samples without
drift, then drifted ones (all pixels permuted) are mixed in. Checks take 50 samples. Three detectors:

    sequential     evidence adds up; level 0.05 for the whole stream
    ks-entropy     the paper's test, level 0.05 at each check, on the entropy of a trained learner: softmax
                   regression on the same features, trained on 200 images of each of the ten classes
    ks-distance    the same test on the distance from the class mean, in units of its variances: the score
                   that `sequential` ranks by, so that only the way of adding evidence up differs

1. Constant fractions: samples until the alarm, beside the bound of `stats.hiding.longest_hidden` at 99 %.
2. The adaptive adversary: at each check the largest number of drifted samples, of 50, for which the test
   stays below its threshold, tried out on a copy of the detector, over 1,500 samples.

Damage is what the learner loses on the class while nothing is found: the hidden fraction times the
accuracy that it loses on drifted samples.
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


NAMES = ("sequential", "ks-entropy", "ks-distance")


def detector_named(name: str, num_logits: int, seed: int) -> Detector:
    context = DetectorContext(encoder=lambda: Known(num_logits), drifting=lambda _: (), seed=seed)
    if name == "sequential":
        return Sequential(level=LEVEL, kept_rows=KEPT).bind(context)
    return KS(level=LEVEL, score="entropy" if name == "ks-entropy" else "energy").bind(context)


def trained(features: Tensor, labels: Tensor) -> torch.nn.Linear:
    """Softmax regression on standardised features."""
    with rng.as_global(rng.fork(0, "softmax regression")):
        learner = torch.nn.Linear(features.shape[1], int(labels.max()) + 1)
    optimiser = torch.optim.Adam(learner.parameters(), lr=0.01)
    for _ in range(300):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(learner(features), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return learner


class Material:
    """Samples of a class in both concepts as each detector sees them, and what a learner loses."""

    def __init__(self) -> None:
        dataset = load_data("fmnist")
        of_class = by_class(dataset.labels, np.arange(len(dataset.labels)), 10)
        rows = drawn(of_class[0], 4700, rng.fork(0, "rows"))
        train = np.concatenate([drawn(some, 200, rng.fork(1, "train")) for some in of_class])
        train = np.concatenate([train[~np.isin(train, rows)], rows[4500:]])

        def features(some: np.ndarray, concept: tuple[str, int] | None) -> Tensor:
            values, num_logits = encodings_of(dataset, some, "random", concept)
            return values[:, num_logits:]

        fitted = features(train, None)
        mean, deviation = fitted.mean(dim=0), fitted.std(dim=0) + 1e-6
        labels = torch.from_numpy(dataset.labels[train])
        learner = trained((fitted - mean) / deviation, labels)
        own = fitted[labels == 0]
        self.values: dict[str, tuple[Tensor, Tensor]] = {}
        self.num_logits = {"sequential": 1, "ks-entropy": 10, "ks-distance": 1}
        sides = features(rows[:2800], None), features(rows[2800:4500], ("permutation", 5))
        with torch.no_grad():
            logits = [learner((each - mean) / deviation) for each in sides]
        far = [((each - own.mean(0)) / (own.std(0) + 1e-6)).square().sum(1) for each in sides]
        for name in NAMES:
            made = [each.new_zeros(len(each), 1) for each in sides]
            if name == "ks-entropy":
                made = logits
            elif name == "ks-distance":  # the energy of one logit is minus it
                made = [-each[:, None] for each in far]
            both = [torch.cat(pair, dim=1) for pair in zip(made, sides, strict=True)]
            self.values[name] = both[0], both[1]
        right = [100 * float((each.argmax(dim=1) == 0).float().mean()) for each in logits]
        self.lost = right[0] - right[1]
        """points of accuracy that the learner loses on a drifted sample of the class"""


class Attack:
    """A detector, samples of both concepts, and where the stream is."""

    def __init__(self, name: str, material: Material, seed: int) -> None:
        clean, drifted = material.values[name]
        draw = rng.fork(seed, "attack")
        self.clean = clean[torch.randperm(len(clean), generator=draw)]
        self.drifted = drifted[torch.randperm(len(drifted), generator=draw)]
        self.coin = np.random.default_rng(seed)
        self.detector = detector_named(name, material.num_logits[name], seed)
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
    """Left: delays of every seed and the bound. Right: what the adaptive adversary hides, by check."""
    colours = dict(zip(NAMES, ("C0", "C1", "C2"), strict=True))
    with matplotlib.rc_context(style.RC):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4), layout="constrained")
        known = [(float(f), each) for f, each in saved["constant"].items()]
        bounds = [(f, each["bound"]) for f, each in known if each["bound"] is not None]
        left.plot(*zip(*bounds, strict=True), color="black", marker="_", label="bound, 99 %")
        for shift, (name, colour) in zip((0.97, 1.0, 1.03), colours.items(), strict=True):
            points = [(f * shift, d) for f, each in known for d in each[name] if d is not None]
            left.scatter(*zip(*points, strict=True), s=12, color=colour, label=name)
            missed = [f * shift for f, each in known for d in each[name] if d is None]
            left.scatter(missed, [2000] * len(missed), marker="x", s=16, color=colour)
        left.axhline(LONG, color="grey", linewidth=0.6)
        left.text(1.0, 2600, "crosses: not found within 1,500", ha="right", fontsize=7)
        left.set(xscale="log", yscale="log", ylim=(1, 3500), ylabel="samples until the alarm")
        left.set_xticks(FRACTIONS, [f"{f:g}" for f in FRACTIONS])
        left.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        left.minorticks_off()
        left.set_xlabel("fraction of drifted samples mixed in")
        left.legend(loc="lower left", fontsize=7)
        for name, colour in colours.items():
            hidden = np.cumsum(np.array(saved["adaptive"][name]), axis=1)
            samples = CHECK * np.arange(1, hidden.shape[1] + 1)
            for line in hidden:
                right.plot(samples, line, color=colour, linewidth=0.9)
        right.plot([0, LONG], [0, LONG], color="grey", linewidth=0.6, linestyle=":")
        right.set_xlabel("samples of the class")
        right.set_ylabel("of them drifted and hidden")
        right.text(LONG, LONG, "all", fontsize=7, ha="right", va="bottom")
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
    material = Material()
    settings = {
        "level": LEVEL,
        "num_reference": REFERENCE,
        "num_quiet": QUIET,
        "kept_rows": KEPT,
    }
    kept: dict[str, Any] = {"settings": settings, "lost": round(material.lost, 2)}
    kept |= {"constant": {}, "adaptive": {}}
    print("points lost on a drifted sample:", kept["lost"], flush=True)
    for name in NAMES:
        kept["adaptive"][name] = []
        for seed in range(asked.seeds):
            hidden = adapt_to(Attack(name, material, seed))
            kept["adaptive"][name].append(hidden)
            damage = material.lost * sum(hidden) / LONG
            print(name, seed, f"hidden {sum(hidden) / LONG:.3f}, {damage:.1f} points", flush=True)
            write_json(asked.json, kept)
    for fraction in FRACTIONS:
        bound = longest_hidden(fraction, most=LONG, **settings)  # type: ignore[arg-type]
        delays: dict[str, Any] = {"bound": bound}
        for name in NAMES:
            rows = 1 if name == "sequential" else CHECK
            seeds = range(asked.seeds)
            delays[name] = [delay(Attack(name, material, seed), fraction, rows) for seed in seeds]
        kept["constant"][str(fraction)] = delays
        print(fraction, delays, flush=True)
        write_json(asked.json, kept)


if __name__ == "__main__":
    main()
