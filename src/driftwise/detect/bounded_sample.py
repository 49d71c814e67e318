"""Uniform samples of a class's samples, of bounded size, whatever number goes by."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from driftwise.detect.encoding_cache import KEY_BYTES
from driftwise.types import Encoding


class _Kept:
    """Samples with the smallest keys of all: encodings and sample numbers, never images."""

    def __init__(self) -> None:
        self.seen = 0
        self._keys = torch.empty(0, dtype=torch.float64)
        self._staying = torch.empty(0, dtype=torch.int64)
        self.samples = torch.empty(0, dtype=torch.int64)
        self.encoding = Encoding(logits=torch.empty(0, 1), features=torch.empty(0, 1))

    def _choose(self, keys: Tensor, max_samples: int) -> Tensor:
        """Which of further samples, whose keys these are, come in; `_staying` are not pushed out."""
        keys = torch.cat([self._keys, keys])
        # The samples with the smallest of independent random keys are a uniform sample of all.
        chosen = keys.argsort(stable=True)[:max_samples].sort().values
        is_kept = chosen < len(self._keys)
        self._staying, coming = chosen[is_kept], chosen[~is_kept] - len(self._keys)
        self._keys = keys[chosen]
        return coming

    def put(self, encoding: Encoding, samples: Tensor) -> None:
        """The samples that `offer` asked for, whatever they have pushed out being forgotten."""
        if len(self.samples):
            encoding = Encoding.concat([self.encoding[self._staying], encoding])
            samples = torch.cat([self.samples[self._staying], samples])
        self.encoding, self.samples = encoding, samples

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "seen": self.seen,
            "keys": self._keys,
            "rows": self.samples,
            "logits": self.encoding.logits,
            "features": self.encoding.features,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """As `state_dict` left it."""
        sample = cls()
        sample.seen, sample.samples, sample._keys = state["seen"], state["rows"], state["keys"]
        sample.encoding = Encoding(logits=state["logits"], features=state["features"])
        return sample


class Sample(_Kept):
    """A uniform sample of the samples of one class."""

    def offer(self, count: int, max_samples: int, draw: torch.Generator) -> Tensor:
        """Which of `count` further samples are to be `put`, and nothing but them."""
        self.seen += count
        return self._choose(torch.rand(count, dtype=torch.float64, generator=draw), max_samples)


class DistinctSample(_Kept):
    """A uniform sample of the different images of one class: copies of one count once.

    The random key of an image is made of its content, so that a copy has its original's: either
    that is still kept, or neither of them ever will be. What is kept is all that has to be
    remembered, and no copy passes for another image however much came between them.
    """

    def __init__(self, salt: bytes = b"") -> None:
        """Samples with different salts are drawn independently."""
        super().__init__()
        self._salt = salt
        self._times: dict[bytes, int] = {}

    @property
    def contents(self) -> Set[bytes]:
        """What the kept samples show, by name."""
        return self._times.keys()

    @property
    def num_copies(self) -> int:
        """Samples that came and show what a kept one shows."""
        return sum(self._times.values()) - len(self._times)

    def offer(self, contents: Sequence[bytes], max_samples: int) -> Tensor:
        """Which of further samples, given what they show, are to be `put`, and nothing but them."""
        self.seen += len(contents)
        times = Counter(contents)
        fresh = [content for content in times if content not in self._times]
        coming = [
            fresh[place] for place in self._choose(self._keys_of(fresh), max_samples).tolist()
        ]
        kept = list(self._times)
        staying = [kept[place] for place in self._staying.tolist()]
        self._times = {each: self._times.get(each, 0) + times[each] for each in staying + coming}
        first = dict(zip(reversed(contents), reversed(range(len(contents))), strict=True))
        return torch.tensor([first[content] for content in coming], dtype=torch.int64)

    def _keys_of(self, contents: Sequence[bytes]) -> Tensor:
        """Uniform numbers in [0, 1), as good as random, (samples,)."""
        digests = [
            hashlib.blake2b(each, digest_size=8, key=self._salt).digest() for each in contents
        ]
        return torch.from_numpy(np.frombuffer(b"".join(digests), dtype="<u8") / 2.0**64)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        names = np.frombuffer(b"".join(self._times), dtype=np.uint8).reshape(-1, KEY_BYTES)
        return {
            **super().state_dict(),
            "contents": torch.from_numpy(names.copy()),
            "times": torch.tensor(list(self._times.values()), dtype=torch.int64),
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """As `state_dict` left it."""
        sample = super().restored(state)
        names = [bytes(name) for name in state["contents"].tolist()]
        sample._times = dict(zip(names, state["times"].tolist(), strict=True))
        return sample
