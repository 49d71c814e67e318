"""The scaling of feature vectors: fitted once, saved, refused where it does not fit."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from driftwise.errors import UserError
from driftwise.scaling import Scaling, ScalingKind

VECTORS = 100 * torch.randn(5000, 3, generator=torch.Generator().manual_seed(0)) + 1000


def test_standard_is_the_textbook_standardisation() -> None:
    scaled = Scaling(limit=None).fit(VECTORS)(VECTORS)
    exact = VECTORS.double()
    expected = (exact - exact.mean(dim=0)) / exact.std(dim=0, correction=0)
    torch.testing.assert_close(scaled, expected.float())


def test_signed_log_standardises_signed_logarithms() -> None:
    vectors = torch.tensor([[-math.expm1(1.0)], [math.expm1(1.0)], [math.expm1(3.0)]])
    scaled = Scaling("signed-log").fit(vectors[:2])(vectors)
    torch.testing.assert_close(scaled, torch.tensor([[-1.0], [1.0], [3.0]]))


def test_none_leaves_vectors_as_they_are() -> None:
    assert torch.equal(Scaling("none")(VECTORS), VECTORS)


@pytest.mark.parametrize("constant", [0.0, 7.0, 1e8])
def test_a_constant_feature_gets_the_deviation_one(constant: float) -> None:
    vectors = torch.full((10, 1), constant)
    scaling = Scaling().fit(vectors)
    assert scaling(vectors).abs().max() == 0
    assert scaling(vectors + 8) == pytest.approx(torch.full((10, 1), 8.0))


def test_one_broken_reading_counts_for_ten_deviations() -> None:
    scaled = Scaling().fit(VECTORS)(torch.tensor([[1e30, -1e30, 1000.0]]))
    assert scaled[0, :2].tolist() == [10.0, -10.0]
    assert scaled[0, 2].abs() < 1


@pytest.mark.parametrize("kind", ["none", "standard", "signed-log"])
def test_a_loaded_state_scales_bit_for_bit_the_same(kind: ScalingKind) -> None:
    fitted, loaded = Scaling(kind).fit(VECTORS), Scaling(kind)
    loaded.load_state_dict(fitted.state_dict())
    assert torch.equal(loaded(VECTORS), fitted(VECTORS))
    assert loaded.is_fitted


def gaps(*places: tuple[int, int]) -> torch.Tensor:
    vectors = VECTORS[:4].clone()
    for place in places:
        vectors[place] = math.nan
    return vectors


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: Scaling("log"), "unknown scaling 'log'"),  # type: ignore[arg-type]
        (lambda: Scaling(limit=0), "limit must be above 0 deviations, or None; got 0"),
        (lambda: Scaling()(VECTORS), "was not fitted yet; call fit"),
        (lambda: Scaling().fit(VECTORS[:0]), "at least one vector; got none"),
        (lambda: Scaling().fit(VECTORS)(VECTORS[:, :2]), "expected vectors of 3 features.*got 2"),
        (lambda: Scaling().fit(VECTORS.long()), "expected vectors of floats.*got int64"),
        (lambda: Scaling().fit(VECTORS[0]), r"of shape \(3,\)"),
        (lambda: Scaling().fit(gaps((0, 1))), r"in 1 of 3 features \(number 1\)"),
        (lambda: Scaling("none")(gaps((0, 0), (3, 2))), r"in 2 of 3 features \(number 0, 2\)"),
    ],
)
def test_refusals(act: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        act()


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "signed-log"},
        {"limit": None},
        {"mean": None},
        {"deviation": torch.zeros(3, dtype=torch.float64)},
        {"deviation": torch.ones(2, dtype=torch.float64)},
        {"mean": torch.full((3,), math.nan, dtype=torch.float64)},
    ],
)
def test_a_state_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    state = Scaling().fit(VECTORS).state_dict()
    with pytest.raises(ValueError, match="expected"):
        Scaling().load_state_dict(state | change)
