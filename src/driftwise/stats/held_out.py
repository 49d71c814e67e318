"""A score is learned on some samples and tested on the others: exact, and without permutations.

What a permutation test can say ends at one over the number of its permutations. Where a level is so
small that it would take too many of them, a third of the samples of either side may say what to look
at. The others, which that score never saw, are compared by the exact Kolmogorov-Smirnov test, whose
p-values get as small as samples allow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from driftwise.stats import ks
from driftwise.stats.permutation import Evidence, Pair

Score = Callable[[Tensor], Tensor]
"""(samples, features) -> (samples,): how much each looks like a current sample"""

Learn = Callable[[Tensor, Tensor], Score]
"""reference and current features, (samples, features) each -> what tells them apart"""


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
    """No test of such sizes gets below it."""
    learned_from = _num_to_learn(num_reference), _num_to_learn(num_current)
    return ks.smallest_p_value(num_reference - learned_from[0], num_current - learned_from[1])


def witness(reference: Tensor, current: Tensor) -> Score:
    """The function whose means MMD compares: how near current samples are, less how near others."""
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
    """Samples to learn from, and samples to judge by, at random."""
    order = torch.randperm(len(samples), generator=generator)
    samples = samples[order]
    return samples[: _num_to_learn(len(samples))], samples[_num_to_learn(len(samples)) :]


def _num_to_learn(samples: int) -> int:
    return max(1, samples // 3)
