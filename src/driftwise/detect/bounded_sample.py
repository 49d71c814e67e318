"""A uniform sample of the different images of a class, of bounded size, however many come."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from driftwise.encoders.encoding_cache import KEY_BYTES
from driftwise.types import Encoding


class DistinctSample:
    """A uniform sample of the different images of one class: copies of one count once.

    Kept are encodings and sample numbers, never images. The images with the smallest of independent
    random keys are a uniform sample of all. The key of an image is made of its content, so that a
    copy has its original's: either that is still kept, or neither of them ever will be.
    """

    def __init__(self, salt: bytes = b"", *, others: Set[bytes] = frozenset()) -> None:
        """Samples with different salts are drawn independently.

        `others`: digests of other images; those that come here too are counted.
        """
        self.seen = 0
        self.samples = torch.empty(0, dtype=torch.int64)
        self.encoding = Encoding(logits=torch.empty(0, 1), features=torch.empty(0, 1))
        self.statistics = torch.empty(0, 0)
        """(samples, statistics) of the images, one row for each that is kept; vectors have no columns"""
        self._salt = salt
        self._keys = torch.empty(0, dtype=torch.float64)
        self._staying = torch.empty(0, dtype=torch.int64)
        self._times: dict[bytes, int] = {}
        self._others = others
        self._shared: set[bytes] = set()

    @property
    def num_shared(self) -> int:
        """Of the other images, those that came here too, kept or not."""
        return len(self._shared)

    @property
    def contents(self) -> Set[bytes]:
        """The digests of the kept images, without what was appended to them."""
        return dict.fromkeys(each[:KEY_BYTES] for each in self._times).keys()

    @property
    def num_copies(self) -> int:
        """Samples that came and are copies of a kept one."""
        return sum(self._times.values()) - len(self._times)

    def offer(self, contents: Sequence[bytes], max_samples: int) -> Tensor:
        """Which of further samples, given their digests, are to be `put`, and nothing but them.

        Where samples count each by itself, something of their own is appended to their digests.
        """
        self.seen += len(contents)
        times = Counter(contents)
        if self._others:
            self._shared |= self._others & {each[:KEY_BYTES] for each in times}
        fresh = [content for content in times if content not in self._times]
        keys = torch.cat([self._keys, self._keys_of(fresh)])
        chosen = keys.argsort(stable=True)[:max_samples].sort().values
        is_kept = chosen < len(self._keys)
        self._staying = chosen[is_kept]
        coming = [fresh[place] for place in (chosen[~is_kept] - len(self._keys)).tolist()]
        self._keys = keys[chosen]
        kept = list(self._times)
        staying = [kept[place] for place in self._staying.tolist()]
        self._times = {each: self._times.get(each, 0) + times[each] for each in staying + coming}
        first = {content: place for place, content in reversed(list(enumerate(contents)))}
        return torch.tensor([first[content] for content in coming], dtype=torch.int64)

    def put(self, encoding: Encoding, samples: Tensor, statistics: Tensor | None = None) -> None:
        """The encodings, numbers and image statistics of the samples that `offer` chose."""
        if statistics is None:
            statistics = torch.empty(len(samples), 0)
        if len(self.samples):
            statistics = torch.cat([self.statistics[self._staying], statistics])
            encoding = Encoding.concat([self.encoding[self._staying], encoding])
            samples = torch.cat([self.samples[self._staying], samples])
        self.encoding, self.samples, self.statistics = encoding, samples, statistics

    def _keys_of(self, contents: Sequence[bytes]) -> Tensor:
        """Uniform numbers in [0, 1), as good as random, (samples,)."""
        digests = [
            hashlib.blake2b(each, digest_size=8, key=self._salt).digest() for each in contents
        ]
        return torch.from_numpy(np.frombuffer(b"".join(digests), dtype="<u8") / 2.0**64)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        key_bytes = len(next(iter(self._times), bytes(KEY_BYTES)))
        names = np.frombuffer(b"".join(self._times), dtype=np.uint8).reshape(-1, key_bytes)
        return {
            "seen": self.seen,
            "keys": self._keys,
            "rows": self.samples,
            "logits": self.encoding.logits,
            "features": self.encoding.features,
            "statistics": self.statistics,
            "contents": torch.from_numpy(names.copy()),
            "times": torch.tensor(list(self._times.values()), dtype=torch.int64),
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """As `state_dict` left it."""
        sample = cls()
        sample.seen, sample.samples, sample._keys = state["seen"], state["rows"], state["keys"]
        sample.encoding = Encoding(logits=state["logits"], features=state["features"])
        unknown = torch.empty(len(sample.samples), 0)  # of an earlier version
        sample.statistics = state.get("statistics", unknown)
        names = [bytes(name) for name in state["contents"].tolist()]
        sample._times = dict(zip(names, state["times"].tolist(), strict=True))
        return sample
