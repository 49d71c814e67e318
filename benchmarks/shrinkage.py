"""Ways to choose the shrinkage of SLDA without test data, on development data.

    python benchmarks/shrinkage.py [--gas gas-sensor.npz]

Digits, digits through 512 random features, and the first batch of gas sensors (an .npz with features,
labels and batch). Of each class some samples are learned, the others are predicted; 5 random splits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from driftwise.datasets.readers.digits import load_digits
from driftwise.memory.statistics import ClassStatistics
from driftwise.methods import SLDA

GRID = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
SPLITS = 5


def estimated(statistics: ClassStatistics) -> float:
    """The estimate of Chen et al., as SLDA makes it."""
    scatter, freedom = statistics.pooled()
    return SLDA(shrinkage=None).fraction(scatter / max(freedom, 1.0), freedom)


def least_error(statistics: ClassStatistics) -> float:
    """The least error between pairs of classes that random matrix theory predicts.

    Zollanvari and Dougherty (2015): corrected for the noise of the means and of the covariance.
    """
    scatter, freedom = statistics.pooled()
    values, vectors = np.linalg.eigh((scatter / freedom).numpy())
    values = values.clip(0)
    means = statistics.means().numpy() @ vectors
    counts = np.array(list(statistics.counts().values()))
    apart = (means[:, None] - means[None]) ** 2

    def error(share: float) -> float:
        ratio = (1 - share) / (share * values.mean())
        kept = 1 / (1 + ratio * values)
        trace = (kept * values).sum() / freedom
        if ratio * trace >= 1:
            return np.inf
        noise = trace / (1 - ratio * trace)
        distance = (apart * kept).sum(axis=-1) / 2 - noise * freedom / counts[:, None]
        spread = (apart * kept**2 * values).sum(axis=-1) * (1 + ratio * noise) ** 2
        errors = norm.sf(distance / np.sqrt(spread + 1e-300))
        np.fill_diagonal(errors, 0)
        return float(errors.sum())

    return min(GRID, key=error)


def likelihood(statistics: ClassStatistics) -> float:
    """That under which classes fit the covariance of the others best, in five groups."""
    labels = statistics.labels
    scores = np.zeros(len(GRID))
    for group in range(min(5, len(labels))):
        inside, outside = ClassStatistics(), ClassStatistics()
        for number, label in enumerate(labels):
            (inside if number % 5 == group else outside).replace(label, statistics.moments(label))
        (out, known), (own, freedom) = outside.pooled(), inside.pooled()
        values, vectors = np.linalg.eigh((out / max(known, 1.0)).numpy())
        squares = ((vectors.T @ own.numpy()) * vectors.T).sum(axis=1)
        for number, share in enumerate(GRID):
            variances = (1 - share) * values.clip(0) + share * values.mean()
            scores[number] += freedom * np.log(variances).sum() + (squares / variances).sum()
    return GRID[int(scores.argmin())]


WAYS: dict[str, Callable[[ClassStatistics], float]] = {
    "0.1": lambda _: 0.1,
    "oas": estimated,
    "error": least_error,
    "likelihood": likelihood,
}


def accuracy(statistics: ClassStatistics, share: float, x: Tensor, y: Tensor) -> float:
    scores = SLDA(shrinkage=share).classifier(statistics)(x)
    found = torch.tensor(statistics.labels)[scores.argmax(dim=1)]
    return 100 * float((found == y).double().mean())


def compare(name: str, x: Tensor, y: Tensor, per_class: int) -> None:
    grid = np.zeros((SPLITS, len(GRID)))
    found = np.zeros((SPLITS, len(WAYS)))
    chosen = np.zeros((SPLITS, len(WAYS)))
    for split in range(SPLITS):
        order = torch.from_numpy(np.random.default_rng(split).permutation(len(y)))
        of_class = [order[y[order] == label] for label in torch.unique(y)]
        train = torch.cat([each[:per_class] for each in of_class])
        test = torch.cat([each[per_class:] for each in of_class])
        std, mean = torch.std_mean(x[train], dim=0, correction=0)
        scaled = ((x - mean) / torch.where(std > 1e-9, std, 1.0)).clamp(-10, 10)
        statistics = ClassStatistics()
        statistics.add(scaled[train], y[train])
        grid[split] = [accuracy(statistics, each, scaled[test], y[test]) for each in GRID]
        chosen[split] = [way(statistics) for way in WAYS.values()]
        found[split] = [accuracy(statistics, s, scaled[test], y[test]) for s in chosen[split]]
    ways = "  ".join(
        f"{way} {np.median(chosen[:, i]):.2g}: {found[:, i].mean():.1f}"
        for i, way in enumerate(WAYS)
    )
    print(
        f"{name:14} {per_class:>4} a class  best {grid.mean(axis=0).max():.1f}  {ways}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gas", help="an .npz with features, labels and batch")
    options = parser.parse_args()
    digits = load_digits()
    x = torch.from_numpy(digits.images.reshape(len(digits.images), -1)).double()
    y = torch.from_numpy(digits.labels)
    for per_class in (3, 5, 10, 20, 50, 100):
        compare("digits", x, y, per_class)
    projection = torch.from_numpy(np.random.default_rng(0).normal(size=(x.shape[1], 512)))
    for per_class in (5, 20, 50):
        compare("random features", (x @ projection).relu(), y, per_class)
    if options.gas:
        with np.load(options.gas) as gas:
            first = gas["batch"] == gas["batch"].min()
            x, y = (torch.from_numpy(gas[name][first]) for name in ("features", "labels"))
        for per_class in (3, 5, 10, 20, 28):
            compare("gas, batch 1", x.double(), y.long(), per_class)


if __name__ == "__main__":
    main()
