"""Figures of the measured theorems, from numbers made up here."""

from __future__ import annotations

from typing import Any

import matplotlib
import pytest
from figure_checks import check_drawn_and_uncut

from driftwise.reproduce.theory_figures import draw_theory


def made_up(seeds: int = 2, **changes: Any) -> dict[str, Any]:
    moment = {
        "num_stale": 10,
        "cosine": 0.25,
        "same_look_cosine": 0.75,
        "formula": [0.7, 1.0],
        "measured": [0.6, 0.9],
        "mixture_formula": [0.25, 1.0],
        "mixture": [0.2, 0.8],
        **changes,
    }
    moments = [
        {
            "seed": seed,
            "adaptation": branch,
            "step": step,
            "class": label,
            "offered": 10 * step,
            "stale_left": 10 - step,
            **moment,
        }
        for seed in range(seeds)
        for branch in ("vanilla", "amr")
        for step in (0, 5)
        for label in (0, 1)
    ]
    simulated = {"replaced": [0.1, 0.5], "error": [0.01, 0.01], "all_replaced": [0.0, 0.0]}
    return {
        "config": {"buffer_policy": "reservoir"},
        "event": {"classes": [0, 1], "class_names": ["T-shirt/top and a long name", "b"]},
        "shares": [0.0, 1.0],
        "moments": moments,
        "reservoir": {
            "capacity": 20,
            "stale": 10,
            "seen": 100,
            "event_rows": 50,
            "rows": [10, 100],
            "repeats": 5,
            "paper": [0.4, 0.99],
            "exact": [0.09, 0.5],
            "paper_all": [1e-3, None],
            "exact_all": [0.0, 1e-5],
            "simulated": {"reservoir": simulated, "balanced": simulated},
        },
    }


@pytest.mark.parametrize("seeds", [1, 3])
def test_every_figure_is_drawn_and_uncut(seeds: int) -> None:
    before = dict(matplotlib.rcParams)
    images = draw_theory(made_up(seeds))
    assert dict(matplotlib.rcParams) == before
    assert [image.kind for image in images] == ["cosine", "efficiency", "replacement"]
    check_drawn_and_uncut(*images)


def test_alt_texts_carry_the_numbers() -> None:
    cosine, efficiency, replacement = (image.alt for image in draw_theory(made_up()))
    assert "mean 0.25" in cosine
    assert "mixture: 0.20 at 0, 0.80 at 1" in efficiency
    assert "paper 0.99, exact 0.50" in replacement


def test_unknown_numbers_leave_gaps_and_drawing_again_gives_equal_files() -> None:
    gaps = made_up(cosine=None, measured=None, mixture=None)
    first, again = draw_theory(gaps), draw_theory(gaps)
    assert [p.svg for p in first] == [p.svg for p in again]
    assert b"mathdefault" not in first[2].svg
