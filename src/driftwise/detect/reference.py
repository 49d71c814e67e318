"""References: what is kept of each class as it was last learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from driftwise import rng
from driftwise.detect.encoders import Encoder
from driftwise.detect.fingerprint import Fingerprints, in_half, in_single
from driftwise.types import Encoding, Samples


class HeldOutReference:
    """Samples that nobody trains on: a valid reference for an encoder that learns.

    They are encoded anew at every check, as the encoder may learn.
    """

    def __init__(self) -> None:
        self._samples: dict[int, Samples] = {}

    def renew(self, label: int, samples: Samples) -> None:
        """From now on `samples` are the reference of the class."""
        self._samples[label] = samples

    def samples_of(self, label: int) -> Samples:
        """The samples kept for a class; none for one that has not been learned."""
        if label in self._samples:
            return self._samples[label]
        none = torch.empty(0, dtype=torch.int64)
        return Samples(images=none.to(torch.uint8), labels=none, ids=none, concepts=none)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {str(label): dict(vars(samples)) for label, samples in self._samples.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._samples = {int(label): Samples.restored(samples) for label, samples in state.items()}


class FingerprintReference:
    """Encodings of samples that were learned from: small, and independent of the replay memory.

    Valid for a fixed encoder only, for which learned samples are like fresh ones.
    """

    def __init__(self, encoder: Encoder, *, size: int, seed: int) -> None:
        self._encoder = encoder
        self._seed = seed
        self._prints = Fingerprints(encoder.name, size=size, seed=seed)
        self._came: dict[int, int] = {}

    def renew(self, label: int, samples: Samples) -> None:
        """From now on `samples` are the reference of the class; without any, the old one stays."""
        if len(samples):
            self._prints.forget(label)
            self._prints.add(label, self._encoder.encode(samples.images))
            # An adaptation asks for few samples of a class, however frequent it is.
            self._came[label] = max(len(samples), self._came.get(label, 0))

    def encoding_of(self, label: int) -> Encoding:
        """What is kept of a class; no samples for one that has not been learned."""
        kept = self._prints.encoding_of(label)
        if kept is None:
            return Encoding(logits=torch.empty(0, 1), features=torch.empty(0, 1))
        return kept

    def like_the_stream(self, classes: Sequence[int]) -> dict[int, Encoding]:
        """What is kept of the classes, thinned to the mix in which they came to be learned.

        What is kept is as many samples of a rare class as of a frequent one: compared with a stream
        whose classes are unknown, a changed mix of classes alone would count as drift.
        """
        kept = {label: print_ for label in classes if len(print_ := self.encoding_of(label))}
        share = min((len(some) / self._came[label] for label, some in kept.items()), default=0)
        thinned = {}
        for label, some in kept.items():
            order = torch.randperm(len(some), generator=rng.fork(self._seed, "thinned", label))
            thinned[label] = some[order[: round(share * self._came[label])].sort().values]
        return thinned

    def rounded(self, encoding: Encoding) -> Encoding:
        """An encoding as coarse as those that are kept."""
        return in_single(in_half(encoding))

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {**self._prints.state_dict(), "came": self._came}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._prints.load_state_dict(state)
        self._came = dict(state["came"])
