"""A number of things, split over those who want more of them than there are."""

from __future__ import annotations

from collections.abc import Mapping


def split_budget(wanted: Mapping[int, int], total: int) -> dict[int, int]:
    """Whole numbers that add up to `total`, or to all that is wanted, each in proportion.

    What rounding leaves over goes to those who lost most by it.

    >>> split_budget({0: 50, 1: 50, 2: 10}, 12)
    {0: 6, 1: 5, 2: 1}
    >>> split_budget({0: 3, 1: 0}, 4)
    {0: 3, 1: 0}
    """
    everything = sum(wanted.values())
    if total >= everything:
        return dict(wanted)
    shares = {who: count * total // everything for who, count in wanted.items()}
    lost = sorted(wanted, key=lambda who: -(wanted[who] * total % everything))
    for who in lost[: total - sum(shares.values())]:
        shares[who] += 1
    return shares
