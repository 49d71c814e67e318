"""What an encoder is, and what it is given: samples to logits and features."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from torch import Tensor, nn

from driftwise.errors import UserError
from driftwise.types import Encoding


@dataclass(frozen=True, kw_only=True)
class EncoderContext:
    """What an encoder is given to work with.

    >>> context = EncoderContext(learner=no_learner, image_shape=(8, 8, 1), seed=0)
    >>> context.image_shape
    (8, 8, 1)
    """

    learner: Callable[[Tensor], Encoding]
    """the learner's own network, which encoding does not change"""
    image_shape: tuple[int, ...]
    """(height, width, channels)"""
    seed: int


RawSamples: TypeAlias = "Tensor | np.ndarray | Sequence[str]"
"""uint8 images (samples, height, width, channels), float vectors (samples, features), or texts"""


class Encodes(Protocol):
    """Anything that encodes samples without changing by it."""

    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, channels) -> logits and features, on the CPU, no gradients."""
        ...


class Encoder(Encodes, Protocol):
    """A part of the catalogue, made from `EncoderContext`.

    It may also have an `identity`, a digest of weights and preprocessing: only then are features kept
    on disk.
    """

    name: str
    """what it is, exactly: encodings of another one cannot be compared"""
    fixed: ClassVar[bool]
    """whether it never learns: only then may samples that the learner trained on be a reference"""
    networks: Sequence[nn.Module]
    """networks of its own, whose FLOPs are to be counted"""


def import_library(module: str, encoder: str, install: str) -> Any:
    """A library that is installed by choice; UserError says how."""
    try:
        return importlib.import_module(module)
    except Exception as error:  # as of a torchvision that was built for another torch
        # transformers raises ModuleNotFoundError, without a name, for whatever fails inside it.
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            missing = error.name.partition(".")[0]
            raise UserError(f"the encoder {encoder} needs {missing}: {install}") from error
        details = " ".join(str(error).split())[:200]
        raise UserError(
            f"the encoder {encoder} needs {module}, which is installed but cannot be imported"
            f" ({details}); install it anew with torch, {install}"
        ) from error


def check_samples(encoder: Encodes, samples: RawSamples) -> None:
    """Refuse texts where numbers are expected, and the other way round."""
    name = getattr(encoder, "name", type(encoder).__name__)
    takes_texts = getattr(encoder, "accepts", "images") == "texts"
    if takes_texts and are_numbers(samples):
        raise UserError(f"the encoder {name} takes texts; these samples are numbers")
    is_list = not are_numbers(samples) and not hasattr(samples, "columns")
    if not are_numbers(samples) and not (is_list and all(isinstance(t, str) for t in samples[:1])):
        raise UserError(
            f"the encoder {name} takes arrays, tensors or a list of texts; got "
            f"{type(samples).__name__}: give an array of its numbers"
        )
    if not takes_texts and not are_numbers(samples):
        raise UserError(
            f"the encoder {name} takes numbers; these samples are texts: use"
            " sentence-transformers:NAME, or a function with load(function, accepts='texts')"
        )


def are_numbers(samples: RawSamples) -> bool:
    """Whether samples are images or vectors, not texts."""
    if isinstance(samples, np.ndarray):
        return samples.dtype.kind not in "OUST"
    return isinstance(samples, Tensor)


def no_learner(images: Tensor) -> Encoding:
    """Stands in for the learner that a fixed encoder does not use."""
    raise AssertionError(f"a fixed encoder has no learner to encode {len(images)} samples")


class LearnerEncoder:
    """The learner's own network as it stands when a check is made.

    >>> import torch
    >>> from driftwise.types import Encoding
    >>> def learner(images):  # a run gives that of its learner
    ...     flat = images.flatten(1).float()
    ...     return Encoding(logits=flat[:, :10], features=flat)
    >>> context = EncoderContext(learner=learner, image_shape=(8, 8, 1), seed=0)
    >>> LearnerEncoder(context).encode(torch.zeros(5, 8, 8, 1)).features.shape
    torch.Size([5, 64])
    """

    fixed: ClassVar[bool] = False

    def __init__(self, context: EncoderContext) -> None:
        self.name = "learner"
        self.networks: Sequence[nn.Module] = ()
        self.encode = context.learner
