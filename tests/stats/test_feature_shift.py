"""Which features moved, against the definitions."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from driftwise.stats.feature_shift import feature_shifts


def test_shift_spread_and_distance_follow_their_definitions() -> None:
    draw = np.random.default_rng(0)
    before, after = draw.normal(3, 2, (40, 5)), draw.normal(4, 1, (60, 5))
    found = feature_shifts(torch.from_numpy(before), torch.from_numpy(after))
    for place in range(5):
        old, new = before[:, place], after[:, place]
        expected = stats.ks_2samp(old, new, method="asymp")
        np.testing.assert_allclose(found.shift[place], (new.mean() - old.mean()) / old.std())
        np.testing.assert_allclose(found.spread[place], new.std() / old.std())
        np.testing.assert_allclose(found.ks[place], expected.statistic)
        np.testing.assert_allclose(found.p_value[place], expected.pvalue)


def test_a_constant_reference_has_no_scale_but_a_distance() -> None:
    before = torch.full((10, 3), 7.0)
    after = torch.stack([before[:, 0], before[:, 0] + 1, torch.arange(10.0)], dim=1)
    found = feature_shifts(before, after)
    assert np.isnan(found.shift).all()
    assert np.isnan(found.spread).all()
    assert found.ks.tolist() == [0, 1, 0.7]
    assert found.order().tolist() == [1, 2, 0]
