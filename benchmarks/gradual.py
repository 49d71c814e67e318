"""Gradual drift: delay, flapping and staleness of each detector and adaptation, over 1 to 40 checks.

    python benchmarks/gradual.py [--seeds 3] [--skip NAME ...] [--json results/gradual.json]
    python benchmarks/gradual.py --table            # of the saved results

One class of Fashion-MNIST, features of a random network and logits of a trained learner (as in
`adversary.py`), 50 samples a check, 60 checks: 10 without drift, then the drifted fraction rises evenly
over 1, 5, 10, 20 or 40 checks, from there on all samples have drifted. The reference is 100 samples.
An adaptation answers an alarm by labelling what comes:

    amr        all of the class's memory is replaced by 100 samples of the present mixture, and so is the
               reference
    partial    `adapt.PartialRealign`: the estimated fraction of the memory is replaced, from 0.8 on all of
               it; the reference is renewed
    gradual    `adapt.Hysteresis` and `PartialRealign`: nothing below an estimated fraction of 0.3 (0.15
               once it has begun); then as `partial`

Measured: checks from the onset to the first adaptation; adaptations (more than a few: flapping); labels; the
mean distance, over all checks, of the drifted fraction in memory from that of the stream (staleness: what a
learner that follows its memory has wrong); adaptations in the ten checks without drift. All detectors at
their defaults.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from adversary import Material
from detect_common import LEVEL, write_json
from sequential_delay import Known, numbered
from torch import Tensor

from driftwise.detect import Detector, DetectorContext, HeldOutReference
from driftwise.detect.base import Accumulates
from driftwise.detect.detectors import C2ST, KS, MMD, Combined
from driftwise.detect.reconstruction import Reconstruction
from driftwise.detect.sequential import Sequential
from driftwise.stats.fraction import estimate_shares

ROOT = Path(__file__).resolve().parents[1]
RAMPS = (1, 5, 10, 20, 40)
CHECK, REFERENCE, QUIET, CHECKS = 50, 100, 10, 60
BEGIN, END, FULL = 0.3, 0.15, 0.8
"""the defaults of `amr-gradual`"""
DETECTORS: dict[str, Any] = {
    "ks": KS(level=LEVEL),
    "mmd": MMD(level=LEVEL, permutations=200),
    "c2st": C2ST(level=LEVEL, permutations=200),
    "combined": Combined(level=LEVEL, permutations=200),
    "reconstruction": Reconstruction(level=LEVEL),
    "sequential": Sequential(level=LEVEL),
}
ADAPTATIONS = ("amr", "partial", "gradual")


def fraction_at(check: int, ramp: int) -> float:
    """Of the samples of a check, counted from 0, the fraction that has drifted."""
    return min(1.0, max(0, check - QUIET + 1) / ramp)


def play(name: str, adaptation: str, ramp: int, seed: int, material: Material) -> dict[str, Any]:
    """One stream."""
    sides, draw = material.values["ks-entropy"], np.random.default_rng([seed, ramp])
    orders = [draw.permutation(len(side)) for side in sides]
    used = [0, 0]

    def taken(count: int, fraction: float) -> tuple[Tensor, float]:
        """So many samples of the present mixture; the fraction of them that has drifted."""
        is_drifted = draw.random(count) < fraction
        rows = []
        for drifted in is_drifted.astype(int):
            rows.append(sides[drifted][orders[drifted][used[drifted] % len(orders[drifted])]])
            used[drifted] += 1
        return torch.stack(rows), float(is_drifted.mean())

    context = DetectorContext(encoder=lambda: Known(10), drifting=lambda _: (), seed=seed)
    detector: Detector = DETECTORS[name].bind(context)
    kept, outdated = HeldOutReference(), 0.0
    reference, _ = taken(REFERENCE, 0.0)
    kept.renew(0, numbered(reference, 10**6))
    adapted, labels, stale, is_drifting = [], 0, [], False
    for check in range(CHECKS):
        fraction = fraction_at(check, ramp)
        current, _ = taken(CHECK, fraction)
        (verdict,) = detector.check(check + 2, (0,), numbered(current, 100 * check), kept)
        replaced = float(bool(verdict.drifted))
        if adaptation != "amr":
            if verdict.drifted:
                (share,) = estimate_shares([(reference[:, 10:], current[:, 10:])])
                least = 0.0 if adaptation == "partial" else END if is_drifting else BEGIN
                is_drifting = share.share >= least
                replaced = 1.0 if share.share >= FULL else share.share
            replaced = replaced if verdict.drifted and is_drifting else 0.0
            is_drifting = is_drifting and bool(verdict.drifted)
        if replaced:
            fresh, drifted = taken(REFERENCE, fraction)
            # Old samples of the other concept go first: those that fit worst.
            if adaptation != "amr":
                outdated = min(1.0, outdated + replaced) if drifted > outdated else drifted
            else:
                outdated = drifted
            adapted.append(check)
            labels += round(REFERENCE * replaced)
            reference = fresh
            learned = numbered(reference, 10**6 + 1000 * check)
            if isinstance(detector, Accumulates):
                detector.renew([0], learned)
            kept.renew(0, learned)
        stale.append(abs(fraction - outdated))
    after = [check for check in adapted if check >= QUIET]
    return {
        "delay": after[0] - QUIET if after else None,
        "adaptations": len(after),
        "false": len(adapted) - len(after),
        "labels": labels,
        "stale": round(float(np.mean(stale)), 4),
    }


def table(saved: dict[str, Any]) -> Iterator[str]:
    """A line of each detector and adaptation: delay, adaptations and staleness by ramp."""
    for name in DETECTORS:
        for adaptation in ADAPTATIONS:
            cells = [name, adaptation]
            runs_of = saved.get(name, {}).get(adaptation)
            if runs_of is None:  # not measured yet
                continue
            for ramp in map(str, RAMPS):
                runs = runs_of[ramp]
                delays = [run["delay"] for run in runs if run["delay"] is not None]
                shown = f"{np.mean(delays):.1f}" if len(delays) == len(runs) else "-"
                counts = np.mean([run["adaptations"] for run in runs])
                cells.append(f"{shown} / {counts:.1f} / {np.mean([r['stale'] for r in runs]):.2f}")
            everything = [run for ramp in runs_of.values() for run in ramp]
            cells.append(f"{np.mean([run['false'] for run in everything]):.1f}")
            cells.append(f"{np.mean([run['labels'] for run in everything]):.0f}")
            yield "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--skip", nargs="*", default=[], choices=DETECTORS)
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "gradual.json")
    parser.add_argument("--table", action="store_true", help="print what has been measured")
    asked = parser.parse_args()
    if asked.table:
        print("\n".join(table(json.loads(asked.json.read_text()))))
        return
    torch.set_num_threads(1)
    material = Material()
    found: dict[str, Any] = json.loads(asked.json.read_text()) if asked.json.exists() else {}
    names = [name for name in DETECTORS if name not in asked.skip]
    for seed, name, adaptation in product(range(asked.seeds), names, ADAPTATIONS):
        by_ramp = found.setdefault(name, {}).setdefault(adaptation, {})
        for ramp in RAMPS:
            runs = by_ramp.setdefault(str(ramp), [])
            if len(runs) == seed:  # others were measured before
                runs.append(play(name, adaptation, ramp, seed, material))
        print(seed, name, adaptation, flush=True)
        write_json(asked.json, found)


if __name__ == "__main__":
    main()
