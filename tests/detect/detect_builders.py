"""Surroundings for encoders."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from recollect.detect import Surroundings


def around(
    image_shape: tuple[int, ...] = (8, 8, 1),
    *,
    seed: int = 0,
    logits: Callable[[Tensor], Tensor] = lambda images: images,
) -> Surroundings:
    """What an encoder is given."""
    return Surroundings(learner_logits=logits, image_shape=image_shape, seed=seed)
