"""Wrong answers to label requests: what they cost realignment, and what screening saves.

    python benchmarks/wrong_answers.py [STREAM ...] [--seeds 0 1 2 3 4]
    python benchmarks/wrong_answers.py --table     # of results/wrong_answers.csv, with paired intervals

Drift is known (an oracle), so that only answers differ. One in five answers is wrong: careless (any other
class, a second answer errs independently) or hostile (always the same other class, a second answer
repeats the first). All ways ask for as many labels:

    amr           realignment, all answers count
    amr-robust    answers that lie nearer to another class are set aside
    ask again     the same, with 15 labels in 115 for second answers on doubtful samples

digits-cd and fmnist-cd: experience replay with a buffer of 100 and 200, two drifts. The others: class
statistics (SLDA) on vectors or frozen features, as in `natural.py`. Nothing was chosen on these seeds.
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
from driftwise import encoders
from driftwise.adapt import Realign, Screen
from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.datasets import library
from driftwise.streams import WrongAnswers

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "wrong_answers.csv"
COLUMNS = ("stream", "way", "wrong", "kind", "seed", "labels", "accuracy")
REPLAY = {
    "digits-cd": {"buffer_size": 100},
    "fmnist-cd": {"buffer_size": 200, "max_per_class": 200},
}
STATISTICS = {"gas-sensor": 10, "outdoor": 10, "pacs-frozen-cd": 25, "iwildcam-cd": 17}
WAYS: dict[str, Screen | None] = {
    "amr": None,
    "amr-robust": Screen(),
    "ask again": Screen(again=0.15),
}
CASES = (
    ("amr", 0.0, "careless"),
    ("amr-robust", 0.0, "careless"),
    *((way, 0.2, kind) for kind in ("careless", "hostile") for way in WAYS),
)


def loop_of(stream: str, way: str, wrong: WrongAnswers, seed: int) -> dw.DriftLoop:
    """The loop, bound to its stream."""
    adaptation = Realign(screen=WAYS[way])
    if stream in STATISTICS:
        learner = dw.AnalyticLearner(
            dw.methods.SLDA(shrinkage=None), fresh_samples=STATISTICS[stream]
        )
        return dw.DriftLoop(
            learner,
            detector=dw.detect.Oracle(),
            adaptation=adaptation,
            encoder=encoders.IdentityEncoder,
            reference="fingerprint",
            monitor_labels="unknown",
            wrong_answers=wrong,
            seed=seed,
        ).bind(natural.stream_of(stream, seed))
    given: dict[str, int] = REPLAY[stream]
    config = resolve(
        dw.RunConfig(
            benchmark=stream,
            detector="oracle",
            adaptation="amr" if way == "amr" else "amr-robust",
            options={"adaptation": {"ask_again": 0.15}} if way == "ask again" else {},
            num_drifts=2,
            wrong_answers=wrong.share,
            hostile_answers=wrong.hostile,
            threads=1,
            seed=seed,
            **given,  # type: ignore[arg-type]
        )
    )
    return assemble(config, library.load(stream))


def measure(stream: str, way: str, wrong: float, kind: str, seed: int) -> tuple[int, float]:
    """Labels for adaptation, and accuracy in percent."""
    loop = loop_of(stream, way, WrongAnswers(share=wrong, hostile=kind == "hostile"), seed)
    epochs = 1 if loop.built_from is None else (loop.built_from.epochs or 1)
    records = list(loop.run(loop.stream, epochs=epochs))
    points = [each for each in records[-1].scores.accuracy if each is not None]
    if stream in STATISTICS and stream not in CLASS_INCREMENTAL:
        points = [natural.accuracy_of_samples(each) for each in records[1:]]
    return records[-1].labels["adaptation"], round(float(np.mean(points)), 2)


def saved() -> list[dict[str, str]]:
    """Finished runs."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as lines:
        return list(csv.DictReader(lines))


def table() -> Iterator[str]:
    """A line of each stream and way: what it loses against realignment with right answers, paired."""
    found = {tuple(line[name] for name in COLUMNS[:5]): float(line["accuracy"]) for line in saved()}
    for stream in (*REPLAY, *STATISTICS):
        seeds = sorted({key[4] for key in found if key[0] == stream}, key=int)
        for way, wrong, kind in CASES:
            rows = [
                (found[key], found[right])
                for seed in seeds
                if (key := (stream, way, str(wrong), kind, seed)) in found
                and (right := (stream, "amr", "0.0", "careless", seed)) in found
            ]
            if len(rows) < 2:
                continue
            lost, half = interval([mine - theirs for mine, theirs in rows])
            yield (
                f"| {stream} | {way} | {100 * wrong:.0f} % {kind if wrong else ''} "
                f"| {np.mean([mine for mine, _ in rows]):.1f} "
                f"| {lost:+.1f} ± {half:.1f} | {len(rows)} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("streams", nargs="*", default=[*REPLAY, *STATISTICS], metavar="STREAM")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--table", action="store_true", help="print what has been measured")
    asked = parser.parse_args()
    if asked.table:
        print("\n".join(table()))
        return
    torch.set_num_threads(1)
    done = {tuple(line[name] for name in COLUMNS[:5]) for line in saved()}
    for seed in asked.seeds:
        for stream in asked.streams:
            for case in CASES:
                key = (stream, *map(str, case), str(seed))
                if key in done:
                    continue
                labels, accuracy = measure(stream, *case, seed)
                is_new = not RESULTS.exists()
                with RESULTS.open("a", newline="") as to:
                    writer = csv.writer(to, lineterminator="\n")
                    if is_new:
                        writer.writerow(COLUMNS)
                    writer.writerow((*key, labels, accuracy))
                print(*key, labels, accuracy, flush=True)


if __name__ == "__main__":
    main()
