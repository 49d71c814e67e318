"""The paper's theorems as things that can be measured: gradient alignment, reservoir replacement.

Nothing here takes part in a run; `experiment/theory.py` measures with it.
"""

from driftwise.theory.alignment import (
    Pair,
    cosine,
    efficiency,
    efficiency_slope,
    mean_gradient,
    mixture_efficiency,
)
from driftwise.theory.reservoir import (
    Replacement,
    chance_all_replaced,
    chance_replaced,
    paper_chance_all_replaced,
    paper_chance_replaced,
    simulate,
)

__all__ = [
    "Pair",
    "Replacement",
    "chance_all_replaced",
    "chance_replaced",
    "cosine",
    "efficiency",
    "efficiency_slope",
    "mean_gradient",
    "mixture_efficiency",
    "paper_chance_all_replaced",
    "paper_chance_replaced",
    "simulate",
]
