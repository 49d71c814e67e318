"""Known classes in a whitened space: left-out scores, conformal p-values, repeats, windows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from driftwise.errors import UserError
from driftwise.stats.novelty import KnownClasses, novelty_in_window, repeats


def normal(samples: int, width: int, seed: int, at: float = 0.0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(samples, width, generator=draw, dtype=torch.float64) + at


def test_a_reference_sample_is_scored_as_if_it_had_been_left_out() -> None:
    classes = {0: normal(30, 4, 0), 1: normal(25, 4, 1, at=3.0)}
    known = KnownClasses(classes)
    left_out = 7
    rest = torch.arange(30) != left_out
    without = KnownClasses({0: classes[0][rest], 1: classes[1]})
    scored = without.score(classes[0][left_out : left_out + 1])
    # The amount of shrinkage is not computed anew, nor the number of samples in its place.
    assert known.scored.distances[left_out, 0] == pytest.approx(
        float(scored.distances[0, 0]), rel=0.05
    )
    assert known.scored.distances[left_out, 1] == pytest.approx(
        float(scored.distances[0, 1]), rel=0.05
    )
    assert known.scored.neighbours[left_out] == pytest.approx(float(scored.neighbours[0]), rel=0.05)


def test_p_values_of_samples_like_the_reference_are_uniform_however_wide_the_features() -> None:
    p_values = []
    for seed in range(6):
        known = KnownClasses({c: normal(40, 100, 10 * seed + c, at=c) for c in range(3)})
        fresh = torch.cat([normal(100, 100, 500 + 10 * seed + c, at=c) for c in range(3)])
        p_values.append(known.p_values(known.score(fresh)))
    together = torch.cat(p_values)
    assert float((together <= 0.05).double().mean()) == pytest.approx(0.05, abs=0.03)
    assert float(together.mean()) == pytest.approx(0.5, abs=0.06)


def test_a_far_class_is_novel_and_a_known_one_is_not() -> None:
    known = KnownClasses({0: normal(60, 8, 0), 1: normal(60, 8, 1, at=4.0)})
    far = known.p_values(known.score(normal(50, 8, 2, at=-5.0)))
    assert float(far.max()) <= 1 / 121 + 1e-9  # the smallest possible
    assert known.score(normal(50, 8, 3, at=4.0)).nearest.tolist() == [1] * 50


def test_the_window_ranks_what_only_the_current_samples_have_above_what_distances_rank() -> None:
    # 200 features, of which the new samples differ in all, by 0.3 deviations each.
    reference = normal(300, 200, 0)
    current = torch.cat([normal(200, 200, 1), normal(60, 200, 2, at=0.3)])
    scores = novelty_in_window({0: reference}, current)
    new, old = scores[200:], scores[:200]
    area = (new[:, None] > old[None]).double().mean()
    known = KnownClasses({0: reference})
    distances = known.score(current).novelty
    by_distance = (distances[200:, None] > distances[None, :200]).double().mean()
    assert float(area) > 0.9 > float(by_distance) + 0.05


def test_a_far_class_stands_out_in_the_window_and_equal_samples_do_not() -> None:
    reference = {0: normal(40, 8, 0), 1: normal(40, 8, 1, at=4.0)}
    usual = torch.cat([normal(40, 8, 2), normal(40, 8, 3, at=4.0)])
    far = normal(25, 8, 4)
    far[:, :4] += 4.0  # as far from either class as they are from one another, or nearly
    scores = novelty_in_window(reference, torch.cat([usual, far]))
    assert float((scores[80:, None] > scores[None, :80]).double().mean()) > 0.95
    assert set(novelty_in_window(reference, torch.ones(30, 8)).tolist()) == {0.0}
    assert novelty_in_window(reference, torch.ones(0, 8)).tolist() == []


def test_repeats_are_readings_that_came_three_times() -> None:
    known = KnownClasses({0: normal(30, 5, 0)})
    once = normal(20, 5, 1)
    white = known.whitened(torch.cat([once, once[:1].expand(3, 5), once[1:2]]))
    expected = torch.zeros(24, dtype=torch.bool)
    expected[[0, 20, 21, 22]] = True  # of the second sample there are two only
    assert repeats(white, known).tolist() == expected.tolist()


def test_a_class_needs_two_samples() -> None:
    with pytest.raises(UserError, match="two reference samples"):
        KnownClasses({0: normal(1, 3, 0)})
