"""Multiple testing: thresholds over the classes of a check, levels over the checks of a stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from driftwise.errors import UserError

Correction = Callable[[Sequence[float], float], float]
"""p-values of one check and the level -> the threshold: a class is flagged where p <= threshold."""


def uncorrected(p_values: Sequence[float], level: float) -> float:
    """Every test at the full level: the family-wise error grows with the number of classes."""
    del p_values
    return level


def bonferroni(p_values: Sequence[float], level: float) -> float:
    """Family-wise error at most the level, under any dependence:  p <= level / m."""
    return level / max(1, len(p_values))


def holm(p_values: Sequence[float], level: float) -> float:
    """Bonferroni's guarantee with more power: rejected hypotheses no longer count.

    p_(i) is rejected if p_(j) <= level / (m - j + 1) for all j <= i.

    Reference:
        S. Holm. A simple sequentially rejective multiple test procedure. Scandinavian Journal of
        Statistics, 6(2), 1979.

    >>> holm([0.001, 0.012, 0.2], 0.03), holm([0.2], 0.05)
    (0.03, 0.05)
    """
    count = len(p_values)
    flagged = 0
    for p_value in sorted(p_values):
        if p_value > level / (count - flagged):
            break
        flagged += 1
    return level / max(1, count - flagged)


def benjamini_hochberg(p_values: Sequence[float], level: float) -> float:
    """False discovery rate at most the level, for independent or positively dependent tests.

    The threshold is  max {i : p_(i) <= i level / m} level / m.

    Reference:
        Y. Benjamini, Y. Hochberg. Controlling the false discovery rate. Journal of the Royal
        Statistical Society B, 57(1), 1995.
    """
    count = max(1, len(p_values))
    below = [
        rank for rank, p_value in enumerate(sorted(p_values), 1) if p_value <= rank * level / count
    ]
    return max(below, default=1) * level / count


CORRECTIONS: dict[str, Correction] = {
    "none": uncorrected,
    "bonferroni": bonferroni,
    "holm": holm,
    "benjamini-hochberg": benjamini_hochberg,
}


def inverse_square(level: float, check: int) -> float:
    """Alpha spending: the level of check k of an infinite stream,  6 level / (pi k)^2.

    The levels of all checks sum to the level of the stream, which then bounds the probability of
    any false alarm in it (union bound).

    >>> round(inverse_square(0.05, 1), 4), round(inverse_square(0.05, 10), 6)
    (0.0304, 0.000304)
    """
    if not 0 < level < 1 or check < 1:
        raise UserError(
            f"expected a level between 0 and 1, and checks counted from 1; got {level} and {check}"
        )
    return level * 6 / (math.pi * check) ** 2
