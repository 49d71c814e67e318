"""Brings the features of vectors to one scale, as measured on the first samples and never again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from driftwise.errors import UserError, unknown_name

ScalingKind = Literal["none", "standard", "signed-log"]

LIMIT = 10.0
"""deviations from the mean at which values are clipped: one broken reading must not count for more
than all others together"""

_AT_ONCE = 4096
"""vectors that are computed with in double precision at a time"""


class Scaling:
    """Scales feature vectors by the mean and deviation of those that it was fitted on.

    `standard` subtracts the mean of each feature and divides by its deviation; `signed-log` takes
    sign(x) log(1 + |x|) first, for features that range over powers of ten; `none` changes nothing. A
    feature that was constant gets the deviation 1. What lies further than `limit` deviations from
    the mean counts as so far (None: is not clipped).

    >>> scaling = Scaling().fit(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    >>> scaling(torch.tensor([[2.0, 5.0], [4.0, 6.0], [1000.0, 5.0]]))
    tensor([[ 0.,  0.],
            [ 2.,  1.],
            [10.,  0.]])
    """

    def __init__(self, kind: ScalingKind = "standard", *, limit: float | None = LIMIT) -> None:
        if kind not in get_args(ScalingKind):
            raise unknown_name("scaling", kind, get_args(ScalingKind))
        if limit is not None and not limit > 0:
            raise UserError(f"limit must be above 0 deviations, or None; got {limit}")
        self.kind = kind
        self.limit = limit
        self.mean: Tensor | None = None
        """float64 (features,); None: not fitted yet"""
        self.deviation: Tensor | None = None
        """float64 (features,)"""

    @property
    def is_fitted(self) -> bool:
        """Whether it knows the mean and deviation, where it needs them."""
        return self.kind == "none" or self.mean is not None

    def fit(self, vectors: Tensor) -> Scaling:
        """Measure the mean and deviation of vectors, (samples, features); returns itself.

        UserError where there are none, or where they hold a value that is not finite.
        """
        _check(vectors)
        if self.kind == "none":
            return self
        if not len(vectors):
            raise UserError("a scaling is fitted on at least one vector; got none")
        total = torch.zeros(vectors.shape[1], dtype=torch.float64)
        for part in torch.split(vectors, _AT_ONCE):
            total += self._bent(part).sum(dim=0)
        mean = total / len(vectors)
        squares = torch.zeros_like(total)
        for part in torch.split(vectors, _AT_ONCE):
            squares += (self._bent(part) - mean).square_().sum(dim=0)
        deviation = (squares / len(vectors)).sqrt()
        # A feature that is always the same deviates by no more than its rounding.
        deviation[deviation <= 1e-6 * mean.abs()] = 1.0
        self.mean, self.deviation = mean, deviation
        return self

    def __call__(self, vectors: Tensor) -> Tensor:
        """The scaled vectors, (samples, features) -> float32 of the same shape."""
        _check(vectors)
        if self.kind == "none":
            return vectors.float()
        if self.mean is None or self.deviation is None:
            raise UserError(f"the scaling {self.kind} was not fitted yet; call fit(vectors) first")
        if vectors.shape[1] != len(self.mean):
            raise UserError(
                f"expected vectors of {len(self.mean)} features, as the scaling was fitted on; got "
                f"{vectors.shape[1]}"
            )
        scaled = torch.empty(vectors.shape)
        for begin in range(0, len(vectors), _AT_ONCE):
            part = (self._bent(vectors[begin : begin + _AT_ONCE]) - self.mean) / self.deviation
            if self.limit is not None:
                part.clamp_(-self.limit, self.limit)
            scaled[begin : begin + _AT_ONCE] = part
        return scaled

    def _bent(self, vectors: Tensor) -> Tensor:
        """The vectors in double precision; their signed logarithms where the kind says so."""
        exact = vectors.double()
        return exact.sign() * exact.abs().log1p() if self.kind == "signed-log" else exact

    def state_dict(self) -> dict[str, Any]:
        """What was measured, and how it is applied."""
        return {
            "kind": self.kind,
            "limit": self.limit,
            "mean": self.mean,
            "deviation": self.deviation,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Scale as the one whose state it is; ValueError where it is a state of another kind."""
        mean, deviation = state["mean"], state["deviation"]
        if (state["kind"], state["limit"]) != (self.kind, self.limit):
            raise ValueError(
                f"expected the state of a scaling {self.kind} with limit {self.limit}; got "
                f"{state['kind']!r} with {state['limit']!r}"
            )
        columns = (mean, deviation)
        is_blank = columns == (None, None)
        if not is_blank and not all(
            isinstance(each, Tensor) and each.dtype == torch.float64 and each.ndim == 1
            for each in columns
        ):
            raise ValueError("expected the mean and deviation of each feature")
        if not is_blank and not (
            mean.shape == deviation.shape and mean.isfinite().all() and (deviation > 0).all()
        ):
            raise ValueError("expected finite means and deviations above 0, one of each a feature")
        self.mean, self.deviation = mean, deviation


def _check(vectors: Tensor) -> None:
    """UserError for anything but finite floats, (samples, features)."""
    if vectors.ndim != 2 or not vectors.is_floating_point():
        raise UserError(
            "expected vectors of floats, (samples, features); got "
            f"{str(vectors.dtype).removeprefix('torch.')} of shape {tuple(vectors.shape)}"
        )
    # A sum is finite only if all values are: one pass, where nothing is wrong.
    if torch.isfinite(vectors.sum(dtype=torch.float64)):
        return
    bad = (~vectors.isfinite()).any(dim=0).nonzero().squeeze(1).tolist()
    if bad:
        named = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
        raise UserError(
            f"vectors hold values that are not finite, in {len(bad)} of {vectors.shape[1]} "
            f"features (number {named}); fill the gaps, or leave these out"
        )
