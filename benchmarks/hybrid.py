"""Class statistics, replay of vectors, and both together: does the hybrid help over either part?

    python benchmarks/hybrid.py [--gas gas-sensor.npz] [--seeds 5]

The first period is labelled; at the beginning of each later one every class has drifted, and that is
known. A few labelled samples of each class realign it; the others are predicted. Digits: three periods,
their pixels in another order in each. Gas: eight batches over 36 months (an .npz with features, labels
and batch), vectors as they are or their signed logarithms. Vectors are scaled by the first period. The
network is an MLP of 100 and 100 units with DER++ and 300 slots, 10 epochs over the first period and 100
steps on the buffer after each realignment.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import driftwise as dw
from driftwise.datasets.readers.digits import load_digits
from driftwise.learner import TrainSettings
from driftwise.scaling import ScalingKind
from driftwise.types import Samples

Periods = list[tuple[Tensor, Tensor]]
AnyLearner = dw.AnalyticLearner | dw.Learner | dw.HybridLearner
EPOCHS, STEPS, SLOTS = 10, 100, 300


def digits(seed: int) -> Periods:
    data, draw = load_digits(), np.random.default_rng(seed)
    order = draw.permutation(len(data.labels))
    x = torch.from_numpy(data.images[order].reshape(len(order), -1)).float()
    y = torch.from_numpy(data.labels[order])
    pixels = [np.arange(64), draw.permutation(64), draw.permutation(64)]
    parts = torch.arange(len(y)).chunk(3)
    return [(x[part][:, each], y[part]) for part, each in zip(parts, pixels, strict=True)]


def gas(path: str, seed: int) -> Periods:
    draw, periods = np.random.default_rng(seed), []
    with np.load(path) as data:
        for batch in np.unique(data["batch"]):
            some = draw.permutation(np.flatnonzero(data["batch"] == batch))
            labels = torch.from_numpy(data["labels"][some]).long() - int(data["labels"].min())
            periods.append((torch.from_numpy(data["features"][some]).float(), labels))
    return periods


def analytic(fresh: int) -> dw.AnalyticLearner:
    return dw.AnalyticLearner(dw.methods.SLDA(), fresh_samples=fresh)


def trained(features: int, classes: int, seed: int) -> dw.Learner:
    shape = (features, 1, 1)
    return dw.Learner(
        dw.models.seeded(dw.models.MLP, input_shape=shape, num_classes=classes, seed=seed),
        dw.methods.DERpp(alpha=0.2, beta=0.5),
        buffer=dw.ReplayBuffer(SLOTS, seed=seed),
        lr=0.05,
        settings=TrainSettings(max_gradient=10.0),
        seed=seed,
    )


def accuracy(learner: AnyLearner, periods: Periods, fresh: int, seed: int) -> float:
    """Mean over the later periods, in percent."""
    found = []
    for number, (x, y) in enumerate(periods):
        ids = torch.arange(len(y)) + 100_000 * number
        samples = Samples(images=x, labels=y, ids=ids, concepts=0 * ids)
        if not number:
            learner.begin_task(sorted(set(y.tolist())))
            for epoch in range(EPOCHS):
                draw = torch.Generator().manual_seed(100 * seed + epoch)
                learner.begin_epoch(epoch + 1, EPOCHS)
                for batch in samples[torch.randperm(len(y), generator=draw)].split(32):
                    learner.observe(batch)
            continue
        classes = sorted(set(y.tolist()))
        chosen = torch.cat([(y == label).nonzero().flatten()[:fresh] for label in classes])
        for label in classes:
            learner.buffer.drop(label)
        for label in classes:
            some = samples[chosen].of_class(label)
            learner.buffer.put(some, learner.annotate(some))
        for _ in range(STEPS):
            learner.rehearse()
        rest = torch.ones(len(y), dtype=torch.bool)
        rest[chosen] = False
        right = learner.logits(x[rest]).argmax(dim=1) == y[rest]
        found.append(100 * float(right.float().mean()))
    return sum(found) / len(found)


def scaled(periods: Periods, kind: ScalingKind) -> Periods:
    scaling = dw.Scaling(kind).fit(periods[0][0])
    return [(scaling(x), y) for x, y in periods]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gas", help="an .npz with features, labels and batch")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    streams: dict[str, tuple[Callable[[int], Periods], ScalingKind]] = {
        "digits": (digits, "standard")
    }
    if options.gas:
        streams["gas"] = (lambda seed: gas(options.gas, seed), "standard")
        streams["gas, logarithms"] = (lambda seed: gas(options.gas, seed), "signed-log")
    for name, (read, kind) in streams.items():
        for fresh in (5, 20):
            rows: list[list[float]] = []
            for seed in range(options.seeds):
                periods = scaled(read(seed), kind)
                size, classes = periods[0][0].shape[1], 1 + int(periods[0][1].max())
                learners: list[AnyLearner] = [
                    analytic(fresh),
                    trained(size, classes, seed),
                    dw.HybridLearner(analytic(fresh), trained(size, classes, seed)),
                ]
                rows.append([accuracy(each, periods, fresh, seed) for each in learners])
            found = np.array(rows)
            means = "  ".join(
                f"{way} {mean:.1f}"
                for way, mean in zip(("slda", "der++", "hybrid"), found.mean(axis=0), strict=True)
            )
            best = found[:, 2] - found[:, :2].max(axis=1)
            gains = found[:, 2] - found[:, 0]
            print(
                f"{name:16} {fresh:>3} labels a class  {means}  hybrid - slda {gains.mean():+.1f} "
                f"({gains.min():+.1f} to {gains.max():+.1f}), - the better part {best.mean():+.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
