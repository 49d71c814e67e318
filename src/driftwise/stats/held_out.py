"""Sample splitting: a score is fitted to some samples and tested on the others, without permutations.

The p-value of a permutation test is at least one over the number of permutations. Where the level
would need too many of them, the score is fitted to a third of the samples of either side, and the
others are compared by the exact Kolmogorov-Smirnov test, whose p-values have no such bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from driftwise.stats import ks
from driftwise.stats.permutation import Evidence, Pair

Score = Callable[[Tensor], Tensor]
"""(samples, features) -> (samples,), larger for samples more like the current ones"""

Learn = Callable[[Tensor, Tensor], Score]
"""reference and current features, (samples, features) each -> a score that separates them"""


def by_held_out_samples(
    pairs: Sequence[Pair], *, learn: Learn, generator: torch.Generator
) -> list[Evidence]:
    """Kolmogorov-Smirnov on a score of the samples that it was not learned from, for each pair."""
    judged = []
    for pair in pairs:
        (to_learn, to_judge), (now_to_learn, now_to_judge) = (
            _parted(side.double(), generator) for side in pair
        )
        score = learn(to_learn, now_to_learn)
        judged.append((score(to_judge), score(now_to_judge)))
    return ks.kolmogorov_smirnov(judged)


def smallest_held_out_p_value(num_reference: int, num_current: int) -> float:
    """The smallest p-value possible for such sizes."""
    learned_from = _num_to_learn(num_reference), _num_to_learn(num_current)
    return ks.smallest_p_value(num_reference - learned_from[0], num_current - learned_from[1])


def witness(reference: Tensor, current: Tensor) -> Score:
    """The witness function of MMD: mean kernel to current samples minus mean kernel to reference."""
    pooled = torch.cat([reference, current])
    distances = torch.cdist(pooled, pooled).square()
    apart = distances[distances > 0]
    bandwidth = apart.median() if len(apart) else 1.0

    def score(samples: Tensor) -> Tensor:
        near = [
            (-torch.cdist(samples, side).square() / bandwidth).exp().mean(dim=1)
            for side in (current, reference)
        ]
        return near[0] - near[1]

    return score


def separating(reference: Tensor, current: Tensor, *, ridge: float = 0.01) -> Score:
    """Ridge regression on standardised features, as the classifier test has it."""
    pooled = torch.cat([reference, current])
    mean, deviation = pooled.mean(dim=0), pooled.std(dim=0, correction=0)
    deviation = torch.where(deviation > 0, deviation, 1.0)
    standard = (pooled - mean) / deviation
    labels = torch.cat([torch.zeros(len(reference)), torch.ones(len(current))]).double()
    products = standard @ standard.mT
    penalty = (ridge * products.diagonal().mean()).clamp(min=1e-12)
    products.diagonal().add_(penalty)
    weights = standard.mT @ torch.linalg.solve(products, labels - labels.mean())
    return lambda samples: ((samples - mean) / deviation) @ weights


def _parted(samples: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A random third to fit to, and the others to test."""
    order = torch.randperm(len(samples), generator=generator)
    samples = samples[order]
    return samples[: _num_to_learn(len(samples))], samples[_num_to_learn(len(samples)) :]


def _num_to_learn(samples: int) -> int:
    return max(1, samples // 3)
