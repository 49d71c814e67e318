"""What is lost where monitored samples have no labels: given, predicted and unknown labels compared.

    python benchmarks/detect_labels.py [--data fashion-mnist] [--num-seeds 3] [--json PATH]

A learner that has never seen a drifted sample is checked with 100 current samples of each class against
50 reference samples of each, all new to it. Half of the classes have drifted, by one transform at one
severity, or none has. The combined detector with Holm's correction at 0.05 checks the groups: by
true labels, by predicted class (on both sides), or all samples as one. Shares are of
classes: found (a drifted class is flagged), false (a class that has not drifted is), and of whole
checks: alarm (any class is flagged).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import torch
from detect_common import (
    LEVEL,
    NUM_CURRENT,
    common_arguments,
    drawn,
    encoded,
    encoder_named,
    images_of,
    load_data,
    say,
    say_load,
    trained,
    trained_and_fresh,
    write_json,
)

from driftwise import rng
from driftwise.detect.base import KnownLabels
from driftwise.detect.class_tests import ClassTests, ComparisonOptions
from driftwise.detect.detectors import WHOLE, group_of_samples
from driftwise.detect.two_sample import all_three, merging
from driftwise.streams import transforms
from driftwise.types import Encoding

NUM_REFERENCE = 50
KINDS: tuple[KnownLabels, ...] = ("given", "predicted", "unknown")
TRANSFORMS = tuple(name for name in transforms.TRANSFORMS if name != "identity")


def sides(
    known: KnownLabels,
    kept: tuple[Encoding, torch.Tensor],
    now: tuple[Encoding, torch.Tensor],
    classes: range,
) -> dict[int, tuple[Encoding, Encoding]]:
    """Reference and current samples of each group."""
    names = (WHOLE,) if known == "unknown" else tuple(classes)
    by_side = []
    for encoding, labels in (kept, now):
        groups = group_of_samples(labels, encoding.logits, classes, known)
        by_side.append([encoding[groups == group] for group in names])
    return dict(zip(names, zip(*by_side, strict=True), strict=True))


def main() -> int:
    parser = common_arguments(__doc__, "learner")
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--num-seeds", type=int, default=3)
    parser.add_argument("--redraws", type=int, default=4)
    parser.add_argument("--train-samples", type=int, default=1000, help="per class")
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    say_load()
    dataset = load_data(arguments.data)
    classes = range(len(dataset.class_names))
    tests = ClassTests(
        all_three(999), ComparisonOptions(level=LEVEL), merge=merging("cauchy"), seed=0
    )
    counts: dict[tuple[KnownLabels, str, int], dict[str, list[bool]]] = defaultdict(
        lambda: defaultdict(list)
    )
    check = 0
    for seed in range(arguments.num_seeds):
        learned, fresh = trained_and_fresh(dataset, arguments.train_samples, seed)
        learner = trained(dataset, learned, epochs=arguments.epochs, seed=seed)
        encoder = encoder_named("learner", learner, dataset.images.shape[1:], seed)
        rows = np.concatenate(fresh)
        place = {int(row): number for number, row in enumerate(rows)}
        images = images_of(dataset, rows)
        plain = encoded(encoder, images)
        drifts = [("none", 0), *((name, strength) for name in TRANSFORMS for strength in (1, 3, 5))]
        for transform, severity in drifts:
            changed = plain
            if severity:
                changed = encoded(encoder, transforms.apply(images, transform, severity, seed=seed))
            for redraw in range(arguments.redraws if severity else 10 * arguments.redraws):
                check += 1
                draw = rng.fork(seed, "labels", transform, severity, redraw)
                drifting = set(
                    torch.randperm(len(classes), generator=draw)[: len(classes) // 2].tolist()
                )
                kept_parts, now_parts, labels = [], [], []
                for label in classes:
                    chosen = drawn(fresh[label], NUM_REFERENCE + NUM_CURRENT, draw)
                    places = torch.tensor([place[int(row)] for row in chosen])
                    concept = changed if severity and label in drifting else plain
                    kept_parts.append(plain[places[:NUM_REFERENCE]])
                    now_parts.append(concept[places[NUM_REFERENCE:]])
                    labels.append(label)
                kept = Encoding.concat(kept_parts), _repeated(labels, kept_parts)
                now = Encoding.concat(now_parts), _repeated(labels, now_parts)
                for known in KINDS:
                    verdicts = tests.verdicts(check, sides(known, kept, now, classes))
                    flagged = {each.label for each in verdicts if each.drifted}
                    if known == "unknown" and flagged:
                        flagged = set(classes)
                    into = counts[known, transform, severity]
                    into["alarm"].append(bool(flagged))
                    for label in classes:
                        kind = "found" if severity and label in drifting else "false"
                        into[kind].append(label in flagged)
        say(f"seed {seed} done")
    _print(counts)
    write_json(
        arguments.json,
        {
            "data": arguments.data,
            "cells": [
                {
                    "labels": known,
                    "transform": transform,
                    "severity": severity,
                    **{kind: float(np.mean(answers)) for kind, answers in cell.items()},
                }
                for (known, transform, severity), cell in counts.items()
            ],
        },
    )
    return 0


def _repeated(labels: list[int], parts: list[Encoding]) -> torch.Tensor:
    return torch.tensor(labels).repeat_interleave(torch.tensor([len(part) for part in parts]))


def _print(counts: Mapping[tuple[KnownLabels, str, int], Mapping[str, list[bool]]]) -> None:
    say(f"{'':<20}" + "".join(f"{known:>24}" for known in KINDS))
    say(f"{'drift':<20}" + "".join(f"{'found':>10}{'false':>7}{'alarm':>7}" for _ in KINDS))
    for transform, severity in dict.fromkeys((key[1], key[2]) for key in counts):
        line = f"{transform} {severity or ''}".ljust(20)
        for known in KINDS:
            cell = counts[known, transform, severity]
            shares = [cell.get(kind) for kind in ("found", "false", "alarm")]
            texts = ["" if not some else f"{np.mean(some):.2f}" for some in shares]
            line += f"{texts[0]:>10}{texts[1]:>7}{texts[2]:>7}"
        say(line)


if __name__ == "__main__":
    raise SystemExit(main())
