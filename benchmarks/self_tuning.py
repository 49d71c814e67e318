"""Check interval, reference size and level: fixed ones, ones that a stream chooses, and none at all.

    DRIFTWISE_DATA=... python benchmarks/self_tuning.py [--seeds 6] [--json results/self_tuning.json]
    python benchmarks/self_tuning.py --table        # of the saved results

One class of Fashion-MNIST, features of a random network (as in `adversary.py`). Each way promises at most
5 % false alarms over the whole stream, however long it is:

    every 25 ... 400   a KS test each 25 to 400 samples against 100 reference samples, as a detector with
                       spending="inverse-square" makes it: check k may spend 6 level / (pi k)^2
    slow spending      the same each 50 samples, with weights that fall about as 1 / k (`share_of`)
    self-tuned         tests of the last 25, 50, 100, 200 and 400 samples, each as soon as a new block of
                       that size is full (so drift that is clear is found by short blocks, and faint drift
                       by long ones); weights as in slow spending; a quiet block of 200 joins the reference,
                       up to 1,000, once 400 samples have followed it without an alarm
    sequential         the detector of that name, which adds evidence up sample by sample

KS tests and `sequential` rank by the same score, the distance from the class mean. First, streams of 5,000
samples in which nothing changes; then, after 200 or 3,000 quiet samples, a fraction of the samples drifts
(all pixels permuted), at once or rising evenly over 1,000 samples: samples until the alarm, of 1,500.
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

from driftwise.detect import DetectorContext, HeldOutReference
from driftwise.detect.sequential import Sequential
from driftwise.stats.e_values import share_of
from driftwise.stats.ks import kolmogorov_smirnov
from driftwise.stats.multiplicity import inverse_square

ROOT = Path(__file__).resolve().parents[1]
REFERENCE, BLOCKS = 100, (25, 50, 100, 200, 400)
QUIETS, FRACTIONS, RAMPS, LONG, LONGEST = (200, 3000), (0.1, 0.2, 0.5, 1.0), (1, 1000), 5000, 1500
WAYS = (*(f"every {block}" for block in BLOCKS), "slow spending", "self-tuned", "sequential")


def fixed(scores: Tensor, block: int, *, slow: bool = False) -> int | None:
    """Samples that have come when a check of a block finds drift; the reference comes first."""
    kept, stream = scores[:REFERENCE], scores[REFERENCE:]
    for check, end in enumerate(range(block, len(stream) + 1, block), 1):
        level = LEVEL * share_of(check) if slow else inverse_square(LEVEL, check)
        if kolmogorov_smirnov([(kept, stream[end - block : end])])[0].p_value <= level:
            return end
    return None


def tuned(scores: Tensor) -> int | None:
    """The same with blocks, reference and level that follow the stream."""
    kept, stream = scores[:REFERENCE], scores[REFERENCE:]
    tests, joined = 0, 0
    for end in range(BLOCKS[0], len(stream) + 1, BLOCKS[0]):
        # What is to join the reference must have been tested, and what came after it, too.
        if end % 200 == 0 and end >= joined + 600 and len(kept) < 1000:
            kept = torch.cat([kept, stream[joined : joined + 200]])
            joined += 200
        for block in BLOCKS:
            if end % block:
                continue
            tests += 1
            now = stream[end - block : end]
            if kolmogorov_smirnov([(kept, now)])[0].p_value <= LEVEL * share_of(tests):
                return end
    return None


def sequential(features: Tensor, seed: int, *, rows: int, start: int) -> int | None:
    """The same by the detector that adds evidence up; before `start` samples come in blocks."""
    context = DetectorContext(encoder=lambda: Known(1), drifting=lambda _: (), seed=seed)
    detector = Sequential(level=LEVEL).bind(context)
    kept = HeldOutReference()
    kept.renew(0, numbered(features[:REFERENCE], 10**6))
    stream, end, number = features[REFERENCE:], 0, 1
    while end < len(stream):
        step = min(max(rows, 50 if end < start else rows), len(stream) - end)
        number += 1
        (verdict,) = detector.check(number, (0,), numbered(stream[end : end + step], end), kept)
        end += step
        if verdict.drifted:
            return end
    return None


def alarm(way: str, samples: Tensor, seed: int, start: int) -> int | None:
    """When a way finds drift in a stream of samples, energy (one logit) and features side by side."""
    if way == "sequential":
        return sequential(samples, seed, rows=10, start=start)
    scores = samples[:, 0]
    if way == "self-tuned":
        return tuned(scores)
    return fixed(scores, 50, slow=True) if way.startswith("slow") else fixed(scores, int(way[6:]))


def stream_of(
    material: Material, seed: int, quiet: int, fraction: float, ramp: int, length: int
) -> Tensor:
    """Reference and stream: samples are drawn with replacement, so that it may be long."""
    clean, drifted = material.values["ks-distance"]
    draw = np.random.default_rng([seed, quiet, int(100 * fraction), ramp])
    share = fraction * np.clip((np.arange(length) - quiet + 1) / ramp, 0, 1)
    is_drifted = draw.random(length) < share
    rows = clean[draw.integers(0, len(clean), REFERENCE + length)].clone()
    some = drifted[draw.integers(0, len(drifted), int(is_drifted.sum()))]
    rows[REFERENCE:][torch.from_numpy(is_drifted)] = some
    # Equal images would be known to be copies: real ones differ at least in noise.
    rows[:, 1:] += 1e-6 * torch.from_numpy(draw.standard_normal((len(rows), rows.shape[1] - 1)))
    return rows


def table(saved: dict[str, Any]) -> Iterator[str]:
    """A line of each way: false alarms, then found of all and median delay by case."""
    cases = [(str(q), str(f), str(r)) for q, r, f in product(QUIETS, RAMPS, FRACTIONS)]
    for way in WAYS:
        found = saved[way]
        cells = [way, f"{sum(found['quiet'])} of {len(found['quiet'])}"]
        for case in cases:
            delays = found["delays"]["/".join(case)]
            real = [np.inf if d is None or d <= 0 else d for d in delays]
            middle = float(np.median(real))
            cells.append("-" if np.isinf(middle) else f"{middle:.0f}")
        yield "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--quiet-streams", type=int, default=10)
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "self_tuning.json")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--table", action="store_true", help="print what has been measured")
    asked = parser.parse_args()
    if asked.table:
        print("\n".join(table(json.loads(asked.json.read_text()))))
        return
    torch.set_num_threads(1)
    material = Material()
    found: dict[str, Any] = {}
    for way in asked.ways:
        first = asked.first_seed
        found[way] = {"quiet": [], "delays": {}}
        for seed in range(first, first + asked.quiet_streams):
            unchanged = stream_of(material, seed, LONG, 0.0, 1, LONG)
            found[way]["quiet"].append(alarm(way, unchanged, seed, LONG) is not None)
        for quiet, ramp, fraction in product(QUIETS, RAMPS, FRACTIONS):
            delays = found[way]["delays"].setdefault(f"{quiet}/{fraction}/{ramp}", [])
            for seed in range(first, first + asked.seeds):
                stream = stream_of(material, seed, quiet, fraction, ramp, quiet + LONGEST)
                end = alarm(way, stream, seed, quiet)
                delays.append(None if end is None else end - quiet)
        print(way, sum(found[way]["quiet"]), flush=True)
        write_json(asked.json, found)


if __name__ == "__main__":
    main()
