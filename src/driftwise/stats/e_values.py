"""E-values from a sequence of p-values: evidence of a change that is valid after every sample.

While nothing changes, p-values are independent and uniform. The power calibrator

    f(p) = eps * p ** (eps - 1)

has mean 1 then, so that products of its values are a martingale. By Ville's inequality an e-process
M with M_0 = 1 satisfies  P(M_t >= 1 / level for any t) <= level,  however often it is checked.

Neither the onset nor the strength of a change is known. The e-process is therefore a mixture: weight
`share_of(j)` starts at sample j, in equal parts for several eps and, for two-sided evidence, for p and
1 - p. A mixture of martingales is a martingale, and one number per component is all the state.

References:
    V. Vovk, I. Nouretdinov, A. Gammerman. Testing exchangeability on-line. ICML, 2003.
    J. Shin, A. Ramdas, A. Rinaldo. E-detectors: a nonparametric framework for sequential change
    detection. New England Journal of Statistics in Data Science, 2023.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

EPSILONS = (0.1, 0.2, 0.35, 0.55, 0.8)
"""small ones detect clear changes within a few samples, large ones faint changes"""


def share_of(number: int) -> float:
    """The weight of the first, second, third, ... of infinitely many; they sum to 1.

    w(n) = 1 / log2(n + 1) - 1 / log2(n + 2) falls hardly faster than 1 / n: the thousandth weight is
    24 times as large as with inverse squares.

    >>> round(share_of(1), 3), round(share_of(10), 4)
    (0.369, 0.0101)
    """
    return left_after(number - 1) - left_after(number)


def left_after(number: int) -> float:
    """The sum of all weights after the first `number`.

    >>> left_after(0), left_after(2)
    (1.0, 0.5)
    """
    return 1 / math.log2(number + 2)


class EProcess:
    """Evidence that p-values have become too small or, with `both_ends`, not uniform."""

    def __init__(self, *, both_ends: bool) -> None:
        self._both_ends = both_ends
        components = len(EPSILONS) * (2 if both_ends else 1)
        self._count = 0
        self._logs = np.full(components, -np.inf)
        self._log_most = 0.0
        self._runs = np.zeros(components)
        self._began = np.full(components, -1)

    @property
    def log_e_value(self) -> float:
        """The logarithm of the current e-value."""
        started = float(np.logaddexp.reduce(self._logs)) - math.log(len(self._logs))
        return float(np.logaddexp(started, math.log(left_after(self._count))))

    @property
    def log_most(self) -> float:
        """The logarithm of the largest e-value so far."""
        return self._log_most

    @property
    def onset(self) -> tuple[float, int | None]:
        """The largest log e-value of a single component, and the sample with which it began.

        That sample is the likely onset of a change, if there is one; None: no sample has come.
        """
        best = int(self._runs.argmax())
        return float(self._runs[best]), int(self._began[best]) if self._count else None

    def update(self, p_value: float, sample: int) -> None:
        """Add the p-value, in the open interval (0, 1), of the sample with this number."""
        self._count += 1
        weight = math.log(share_of(self._count))
        ends = (p_value, 1 - p_value) if self._both_ends else (p_value,)
        gains = np.concatenate([_LOGS + _POWERS * math.log(end) for end in ends])
        self._logs = gains + np.logaddexp(self._logs, weight)
        self._began[self._runs <= 0] = sample
        self._runs = gains + np.maximum(self._runs, 0)
        self._log_most = max(self._log_most, self.log_e_value)

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
        """Continue from `state_dict`."""
        self._count = state["count"]
        self._log_most = float(state["most"])
        self._logs = state["logs"].numpy().copy()
        self._runs = state["runs"].numpy().copy()
        self._began = state["began"].numpy().copy()


_LOGS = np.log(EPSILONS)
_POWERS = np.array(EPSILONS) - 1
