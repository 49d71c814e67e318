"""What encoders are given."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from driftwise.detect import EncoderContext
from driftwise.types import Encoding


def encoder_context(
    image_shape: tuple[int, ...] = (8, 8, 1),
    *,
    seed: int = 0,
    learner: Callable[[Tensor], Encoding] = lambda images: Encoding(logits=images, features=images),
) -> EncoderContext:
    """What an encoder is given."""
    return EncoderContext(learner=learner, image_shape=image_shape, seed=seed)
