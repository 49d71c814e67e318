"""Bets against p-values: what they have won is evidence that may be looked at after every sample.

While nothing changes, p-values are independent and uniform. A bet pays `eps * p ** (eps - 1)`,
which is 1 on average, so that what one unit of money has become is a martingale. By Ville's
inequality it ever reaches 1 / level with a chance of at most the level, however often one looks.

Nobody knows when a change begins, nor how strong it is. So the unit is shared out beforehand: sample j
is given `share_of(j)`, which bets from that sample on, in equal parts on several eps and, where either
end may matter, on p and on 1 - p. A sum of martingales is one. One number per kind of bet is all
that has to be remembered.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

EPSILONS = (0.1, 0.2, 0.35, 0.55, 0.8)
"""the smaller, the bolder: bold bets see clear changes within samples, timid ones faint changes"""


def share_of(number: int) -> float:
    """What the first, second, third, ... of endlessly many is given; all together 1.

    The shares fall hardly faster than 1 / number, so that those who come late get much more than by
    inverse squares: the thousandth 24 times as much.

    >>> round(share_of(1), 3), round(share_of(10), 4)
    (0.369, 0.0101)
    """
    return left_after(number - 1) - left_after(number)


def left_after(number: int) -> float:
    """What is left for all others when so many have been given their share.

    >>> left_after(0), left_after(2)
    (1.0, 0.5)
    """
    return 1 / math.log2(number + 2)


class Bets:
    """One unit of money, betting that p-values are small, or else not uniform at either end."""

    def __init__(self, *, both_ends: bool) -> None:
        self._both_ends = both_ends
        kinds = len(EPSILONS) * (2 if both_ends else 1)
        self._count = 0
        self._logs = np.full(kinds, -np.inf)
        self._log_most = 0.0
        self._runs = np.zeros(kinds)
        self._began = np.full(kinds, -1)

    @property
    def log_wealth(self) -> float:
        """The logarithm of what it has become."""
        bet = float(np.logaddexp.reduce(self._logs)) - math.log(len(self._logs))
        return float(np.logaddexp(bet, math.log(left_after(self._count))))

    @property
    def log_most(self) -> float:
        """The logarithm of the most that it ever was."""
        return self._log_most

    @property
    def onset(self) -> tuple[float, int | None]:
        """The logarithm of what the best single bet has won, and the sample with which it began.

        Where a change is likely to have begun, if there is one; None: no sample has come.
        """
        best = int(self._runs.argmax())
        return float(self._runs[best]), int(self._began[best]) if self._count else None

    def bet(self, p_value: float, sample: int) -> None:
        """A sample, by its number, has come with this p-value, between 0 and 1, neither included."""
        self._count += 1
        share = math.log(share_of(self._count))
        ends = (p_value, 1 - p_value) if self._both_ends else (p_value,)
        pays = np.concatenate([_LOGS + _POWERS * math.log(end) for end in ends])
        self._logs = pays + np.logaddexp(self._logs, share)
        self._began[self._runs <= 0] = sample
        self._runs = pays + np.maximum(self._runs, 0)
        self._log_most = max(self._log_most, self.log_wealth)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "count": self._count,
            "most": torch.tensor(self._log_most, dtype=torch.float64),
            "logs": torch.from_numpy(self._logs.copy()),
            "runs": torch.from_numpy(self._runs.copy()),
            "began": torch.from_numpy(self._began.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._count = state["count"]
        self._log_most = float(state["most"])
        self._logs = state["logs"].numpy().copy()
        self._runs = state["runs"].numpy().copy()
        self._began = state["began"].numpy().copy()


_LOGS = np.log(EPSILONS)
_POWERS = np.array(EPSILONS) - 1
