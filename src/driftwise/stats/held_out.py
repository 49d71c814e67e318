"""A score is learned on some rows and tested on the others: exact, and without permutations.

What a permutation test can say ends at one over the number of its permutations. Where a level is so
small that it would take too many of them, a third of the rows of either side may say what to look
at. The others, which that score never saw, are compared by the exact Kolmogorov-Smirnov test, whose
p-values get as small as rows allow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from driftwise.stats import ks
from driftwise.stats.permutation import Evidence, Pair

Score = Callable[[Tensor], Tensor]
"""(rows, features) -> (rows,): how much each looks like a current row"""

Learn = Callable[[Tensor, Tensor], Score]
"""reference and current features, (rows, features) each -> what tells them apart"""


def by_held_out_rows(
    pairs: Sequence[Pair], *, learn: Learn, generator: torch.Generator
) -> list[Evidence]:
    """Kolmogorov-Smirnov on a score of the rows that it was not learned from, for each pair."""
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
    """The function whose means MMD compares: how near current rows are, less how near others."""
    pooled = torch.cat([reference, current])
    distances = torch.cdist(pooled, pooled).square()
    apart = distances[distances > 0]
    bandwidth = apart.median() if len(apart) else 1.0

    def score(rows: Tensor) -> Tensor:
        near = [
            (-torch.cdist(rows, side).square() / bandwidth).exp().mean(dim=1)
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
    return lambda rows: ((rows - mean) / deviation) @ weights


def _parted(rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows to learn from, and rows to judge by, at random."""
    order = torch.randperm(len(rows), generator=generator)
    rows = rows[order]
    return rows[: _num_to_learn(len(rows))], rows[_num_to_learn(len(rows)) :]


def _num_to_learn(rows: int) -> int:
    return max(1, rows // 3)
