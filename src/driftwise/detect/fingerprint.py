"""What is kept of a class so that it can be compared later: a bounded sample of its encodings."""

from __future__ import annotations

from typing import Any

import torch

from driftwise import rng
from driftwise.detect.bounded_sample import Sample
from driftwise.errors import UserError
from driftwise.types import Encoding


class Fingerprints:
    """A uniform sample of at most `size` encoded samples per class, whatever number went by.

    Only a fixed encoder's encodings stay comparable; they are kept in half precision, so that a
    class takes a few kilobytes.
    """

    def __init__(self, encoder: str, *, size: int = 50, seed: int = 0) -> None:
        """`encoder`: what made the encodings; others are refused."""
        if size < 2:
            raise UserError(f"a fingerprint needs at least 2 samples per class; got {size}")
        self._encoder = encoder
        self._size = size
        self._seed = seed
        self._samples: dict[int, Sample] = {}

    def seen(self, label: int) -> int:
        """Samples of a class that went by since it was last forgotten."""
        return self._samples[label].seen if label in self._samples else 0

    def add(self, label: int, encoding: Encoding) -> None:
        """More samples of a class; each sample so far is kept with the same chance."""
        draw = rng.fork(self._seed, "fingerprint", label, self.seen(label))
        sample = self._samples.setdefault(label, Sample())
        numbers = sample.seen + torch.arange(len(encoding))
        coming = sample.offer(len(encoding), self._size, draw)
        sample.put(in_half(encoding[coming]), numbers[coming])

    def forget(self, label: int) -> None:
        """The class is to be learned anew."""
        self._samples.pop(label, None)

    def encoding_of(self, label: int) -> Encoding | None:
        """The samples kept of a class, in single precision; None: nothing is known of it."""
        if label not in self._samples:
            return None
        return in_single(self._samples[label].encoding)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "encoder": self._encoder,
            "classes": {label: sample.state_dict() for label, sample in self._samples.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off; what another encoder made is refused."""
        if state["encoder"] != self._encoder:
            raise UserError(
                f"the fingerprints were made with the encoder {state['encoder']}; this one is "
                f"{self._encoder}, and their numbers cannot be compared"
            )
        self._samples = {label: Sample.restored(kept) for label, kept in state["classes"].items()}


def in_half(encoding: Encoding) -> Encoding:
    """In half precision; what does not fit is refused, since infinities cannot be compared."""
    small = Encoding(logits=encoding.logits.half(), features=encoding.features.half())
    if not (small.logits.isfinite().all() and small.features.isfinite().all()):
        raise UserError(
            "the encoder's numbers exceed 65,504, the most that a fingerprint can hold; use"
            ' reference="held-out" or reference="memory"'
        )
    return small


def in_single(encoding: Encoding) -> Encoding:
    """In single precision."""
    return Encoding(logits=encoding.logits.float(), features=encoding.features.float())
