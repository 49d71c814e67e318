"""Alpha spending: the level of each of many checks of one stream.

The levels of all checks sum to at most the level of the stream, which then bounds the probability of
any false alarm in the stream (union bound).
"""

from __future__ import annotations

import math

from driftwise.errors import UserError


def inverse_square(level: float, check: int) -> float:
    """The level of check k of an infinite stream:  6 level / (pi k)^2.

    >>> round(inverse_square(0.05, 1), 4), round(inverse_square(0.05, 10), 6)
    (0.0304, 0.000304)
    """
    if not 0 < level < 1:
        raise UserError(f"the level of a stream must lie between 0 and 1; got {level}")
    if check < 1:
        raise UserError(f"checks are counted from 1; got {check}")
    return level * 6 / (math.pi * check) ** 2
