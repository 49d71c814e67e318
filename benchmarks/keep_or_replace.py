"""What becomes of old samples at a drift: dropped, kept, or kept as far as the fresh labels support.

    DRIFTWISE_DATA=... python benchmarks/keep_or_replace.py [STREAM ...] [--seeds 0 1 2 3 4]
    python benchmarks/keep_or_replace.py --table    # of results/keep_or_replace.csv, paired intervals

Streams, statistics (SLDA) and detection without labels of `natural.py`; every way asks for the same labels:

    nothing     no labels
    amr         the statistics of a drifted class are replaced
    added       fresh samples join them
    weighed     `amr-weighed`: leave-one-out comparison on the fresh labels (`stats.old_weight`)

The rule was written on electricity, outdoor and gas sensors with seeds 100 to 104; nothing in it is set by
hand for a stream. Yearbook, iWildCam and PACS were not looked at.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import natural
import numpy as np
import torch
from natural_page import CLASS_INCREMENTAL, interval

import driftwise as dw
from driftwise.adapt import Realign

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "keep_or_replace.csv"
COLUMNS = ("stream", "fresh", "way", "seed", "labels", "accuracy")
STREAMS = {
    "yearbook-frozen-cd": (10, 30),
    "gas-sensor": (4,),
    "outdoor": (10,),
    "electricity": (20,),
    "pacs-frozen-cd": (12,),
    "iwildcam-cd": (17,),
}
WAYS = {"nothing": "nothing", "amr": "realigned", "added": "added", "weighed": "realigned"}


def measure(stream: str, fresh: int, way: str, seed: int) -> tuple[int, float]:
    """Labels for adaptation, and accuracy in percent."""
    made = natural.stream_of(stream, seed)
    loop: dw.DriftLoop = natural.loop_of(made, WAYS[way], fresh, seed)
    if way == "weighed":
        loop.adaptation = Realign(weigh=True)
    loop.bind(made)
    records = list(loop.run(loop.stream))
    points = [each for each in records[-1].scores.accuracy if each is not None]
    if stream not in CLASS_INCREMENTAL:
        points = [natural.accuracy_of_samples(each) for each in records[1:]]
    return records[-1].labels["adaptation"], round(float(np.mean(points)), 2)


def saved() -> list[dict[str, str]]:
    """Finished runs."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as lines:
        return list(csv.DictReader(lines))


def table() -> Iterator[str]:
    """Accuracies, and what weighing is above each other way, paired by seed, with 95 % intervals."""
    found = {tuple(line[name] for name in COLUMNS[:4]): float(line["accuracy"]) for line in saved()}
    for stream, levels in STREAMS.items():
        for fresh in levels:
            key = (stream, str(fresh))
            seeds = [
                seed
                for seed in sorted({each[3] for each in found if each[:2] == key}, key=int)
                if all((*key, way, seed) in found for way in WAYS)
            ]
            if len(seeds) < 2:
                continue
            mine = np.array([found[*key, "weighed", seed] for seed in seeds])
            cells = [f"{stream}, {fresh} labels a class", f"{mine.mean():.1f}"]
            for way in ("nothing", "amr", "added"):
                theirs = np.array([found[*key, way, seed] for seed in seeds])
                above, half = interval(list(mine - theirs))
                cells.append(f"{theirs.mean():.1f} ({above:+.1f} ± {half:.1f})")
            yield "| " + " | ".join([*cells, str(len(seeds))]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("streams", nargs="*", default=list(STREAMS), metavar="STREAM")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--table", action="store_true", help="print what has been measured")
    asked = parser.parse_args()
    if asked.table:
        print("\n".join(table()))
        return
    torch.set_num_threads(1)
    done = {tuple(line[name] for name in COLUMNS[:4]) for line in saved()}
    trials = [
        (stream, fresh, way, seed)
        for seed in asked.seeds
        for stream in asked.streams
        for fresh in STREAMS[stream]
        for way in WAYS
    ]
    for trial in trials:
        if tuple(map(str, trial)) in done:
            continue
        line = (*trial, *measure(*trial))
        is_new = not RESULTS.exists()
        with RESULTS.open("a", newline="") as to:
            writer = csv.writer(to, lineterminator="\n")
            if is_new:
                writer.writerow(COLUMNS)
            writer.writerow(line)
        print(*line, flush=True)


if __name__ == "__main__":
    main()
