"""The two-sample Kolmogorov-Smirnov test, one class after the other."""

from __future__ import annotations

import math
import warnings
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
    with warnings.catch_warnings():
        # Samples of equal size that hardly differ have an exact p-value of 1, which rounding can
        # push past 1; scipy then warns, and falls back to one that is as good.
        warnings.filterwarnings(
            "ignore", "ks_2samp: Exact calculation unsuccessful", RuntimeWarning
        )
        results = [stats.ks_2samp(first.numpy(), second.numpy()) for first, second in pairs]
    return [Evidence(float(result.statistic), float(result.pvalue)) for result in results]


def smallest_p_value(num_reference: int, num_current: int) -> float:
    """The p-value of two samples that do not overlap at all: no test of such sizes gets below it.

    >>> round(smallest_p_value(5, 5), 4)
    0.0079
    """
    return min(1.0, 2 / math.comb(num_reference + num_current, num_reference))
