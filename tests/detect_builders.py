"""Surroundings for encoders."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from driftwise.detect import Surroundings
from driftwise.types import Encoding


def around(
    image_shape: tuple[int, ...] = (8, 8, 1),
    *,
    seed: int = 0,
    learner: Callable[[Tensor], Encoding] = lambda images: Encoding(logits=images, features=images),
) -> Surroundings:
    """What an encoder is given."""
    return Surroundings(learner=learner, image_shape=image_shape, seed=seed)
