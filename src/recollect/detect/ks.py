"""The two-sample Kolmogorov-Smirnov test, one class after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scipy import stats
from torch import Tensor


class Evidence(NamedTuple):
    """What a two-sample test says."""

    statistic: float
    p_value: float


def kolmogorov_smirnov(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[Evidence]:
    """Largest gap between two empirical distributions, with its exact two-sided p-value.

    Each pair holds the scores of the reference rows and of the current rows of one class.
    """
    results = [stats.ks_2samp(first.numpy(), second.numpy()) for first, second in pairs]
    return [Evidence(float(result.statistic), float(result.pvalue)) for result in results]
