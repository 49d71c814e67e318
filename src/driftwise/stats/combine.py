"""Combining the p-values of several tests on the same samples into one.

The tests depend on one another in unknown ways. Each combination states its guarantee under that
dependence; all take p-values (..., tests) and give p-values (...).

References:
    V. Vovk, R. Wang. Combining p-values via averaging. Biometrika, 107(4), 2020.
    Y. Liu, J. Xie. Cauchy combination test. Journal of the American Statistical Association,
    115(529), 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from driftwise.errors import UserError

PValues = npt.NDArray[np.float64]
Combination = Callable[[PValues], PValues]

_LARGEST_IN_CAUCHY = 0.99
"""a discrete test can give exactly 1, whose quantile is minus infinity"""


def bonferroni(p_values: PValues) -> PValues:
    """m min(p): valid under every dependence; powerful when a single test detects the drift.

    >>> bonferroni(np.array([0.01, 0.4, 0.7])).item()
    0.03
    """
    _refuse_bad(p_values)
    return np.asarray(np.minimum(p_values.shape[-1] * p_values.min(axis=-1), 1))


def harmonic(p_values: PValues) -> PValues:
    """Harmonic mean, calibrated for the worst case: valid under every dependence.

    The factor is the smallest one that holds for every joint distribution (Vovk and Wang 2020): 2
    for two tests, below e log(tests) for more. More powerful than `bonferroni` when several tests
    detect the drift, less when only one does.

    >>> round(harmonic(np.array([0.01, 0.01])).item(), 3)
    0.02
    """
    _refuse_bad(p_values)
    with np.errstate(divide="ignore", over="ignore"):
        mean = 1 / (1 / p_values).mean(axis=-1)
    return np.asarray(np.minimum(worst_case_factor(p_values.shape[-1]) * mean, 1))


def cauchy(p_values: PValues) -> PValues:
    """Mean of Cauchy quantiles: close to the level under most dependences, the most powerful.

    Exact for independent and for equal p-values, and as the level goes to 0 whenever the statistics
    are pairwise normal (Liu and Xie 2020). At 0.05 it is an approximation: five equally correlated
    normal tests reach 0.06, ten 0.065. Where that is too much, use `bonferroni` or `harmonic`.

    >>> round(cauchy(np.array([0.01, 0.01])).item(), 3)
    0.01
    """
    _refuse_bad(p_values)
    quantiles = stats.cauchy.isf(np.minimum(p_values, _LARGEST_IN_CAUCHY))
    return np.asarray(stats.cauchy.sf(quantiles.mean(axis=-1)))


COMBINATIONS: dict[str, Combination] = {
    "bonferroni": bonferroni,
    "harmonic": harmonic,
    "cauchy": cauchy,
}


@lru_cache
def worst_case_factor(tests: int) -> float:
    """The factor that makes the harmonic mean of p-values a p-value under every dependence.

    >>> worst_case_factor(1), worst_case_factor(2), round(worst_case_factor(3), 3)
    (1.0, 2.0, 2.746)
    """
    if tests < 3:
        return float(tests)

    def balance(y: float) -> float:
        return y * y - tests * ((y + 1) * math.log1p(y) - y)

    # Near 0 the balance is negative by the second order; at tests^2 the square has won.
    y = float(optimize.brentq(balance, 1e-3, tests**2))
    return (y + tests) ** 2 / ((y + 1) * tests)


def _refuse_bad(p_values: PValues) -> None:
    if p_values.ndim == 0 or p_values.shape[-1] == 0:
        raise UserError(f"expected p-values (..., tests); got an array of shape {p_values.shape}")
    if not ((p_values >= 0) & (p_values <= 1)).all():
        raise UserError(
            f"expected p-values between 0 and 1; got {p_values.min()} to {p_values.max()}"
        )
