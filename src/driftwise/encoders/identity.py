"""The encoder of samples that are feature vectors already."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import pad

from driftwise.encoders.base import EncoderContext
from driftwise.errors import UserError
from driftwise.types import Encoding


class IdentityEncoder:
    """Vectors as they are: features are the samples themselves, and so are logits beside a constant.

    Without the constant, which takes more than half of the probability where features have one scale,
    the entropy of the logits could not see a shift that all features have in common, nor anything of
    a single feature.

    >>> import driftwise as dw
    >>> detector = dw.DriftDetector(encoder=dw.encoders.IdentityEncoder())
    """

    fixed: ClassVar[bool] = True

    def __init__(self, context: EncoderContext | None = None) -> None:
        self.name = "identity"
        if context is not None:
            self._check(len(context.image_shape))
            self.name += f" {context.image_shape[0]}"
        self.networks: Sequence[nn.Module] = ()

    def encode(self, images: Tensor) -> Encoding:
        """(samples, features) -> logits (samples, features + 1), features (samples, features)."""
        self._check(images.ndim - 1)
        vectors = images.float()
        return Encoding(
            logits=pad(vectors, (0, 1), value=math.log(vectors.shape[1]) + 1), features=vectors
        )

    @staticmethod
    def _check(dimensions: int) -> None:
        if dimensions != 1:
            raise UserError(
                "the encoder identity takes feature vectors as they are, and the samples are images;"
                " use efficientnet, resnet18-imagenet or random"
            )
