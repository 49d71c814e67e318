"""A stream is checked again and again: how much of its level each check may spend.

However many checks there are, what they spend adds up to the level of the whole stream at most, so
that the chance of any false alarm in all of it stays below that level.
"""

from __future__ import annotations

import math

from driftwise.errors import UserError


def inverse_square(level: float, check: int) -> float:
    """For a stream without end: check 1, 2, 3, ... spends in proportion to 1, 1/4, 1/9, ...

    >>> round(inverse_square(0.05, 1), 4), round(inverse_square(0.05, 10), 6)
    (0.0304, 0.000304)
    """
    if not 0 < level < 1:
        raise UserError(f"the level of a stream must lie between 0 and 1; got {level}")
    if check < 1:
        raise UserError(f"checks are counted from 1; got {check}")
    return level * 6 / (math.pi * check) ** 2
