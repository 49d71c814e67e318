"""Many classes are tested at once: thresholds on the p-values that keep the promised error rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Correction = Callable[[Sequence[float], float], float]
"""p-values of one check and the level -> the threshold: a class is flagged where p <= threshold."""


def uncorrected(p_values: Sequence[float], level: float) -> float:
    """Every test at the full level: errors add up over the classes."""
    del p_values
    return level


def bonferroni(p_values: Sequence[float], level: float) -> float:
    """The chance of any false alarm in the check is at most the level."""
    return level / max(1, len(p_values))


def holm(p_values: Sequence[float], level: float) -> float:
    """Bonferroni's promise with more power: what is flagged already no longer counts as a test.

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
    """The expected share of false alarms among the flagged classes is at most the level."""
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
