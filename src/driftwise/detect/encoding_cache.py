"""Encodings kept by content: an image that comes back is not encoded again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from driftwise.detect.encoders import Encoder
from driftwise.errors import UserError
from driftwise.types import Encoding

PORTION = 32
"""Samples that the encoder is asked about at a time, never more and never fewer."""

KEY_BYTES = 16
BOOKKEEPING = 200
"""bytes that Python needs for a key: the object, its place in the index and in the order"""


class Cached:
    """A fixed encoder that is asked about each image once, as long as there is room.

    How many samples a network is given at once shows in the last digits of what it says of each: the
    fastest way to multiply depends on it. Were only the samples that are missing passed on, an
    encoding would depend on what the cache held, and a resumed run could differ from one that was
    never stopped. So the encoder is always asked about `PORTION` samples, filled up with blank ones.
    """

    fixed: ClassVar[bool] = True

    def __init__(self, encoder: Encoder, *, max_bytes: int = 64 * 2**20) -> None:
        """At most `max_bytes` are kept; then the oldest encodings make room."""
        if not encoder.fixed:
            raise UserError(
                f"the encoder {encoder.name} learns, so that what it said of an image expires;"
                " expected one that is fixed"
            )
        if max_bytes < 1:
            raise UserError(f"a cache needs room for something; got {max_bytes} bytes")
        self.name = encoder.name
        self.networks: Sequence[nn.Module] = encoder.networks
        self._encoder = encoder
        self._kept = _Kept(max_bytes)

    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, channels) -> logits and features, in the order of the samples."""
        if not len(images):
            return self._encoder.encode(images)
        keys = keys_of(images)
        first_sample: dict[bytes, int] = {}
        for sample, key in enumerate(keys):
            first_sample.setdefault(key, sample)
        known = [key for key in first_sample if key in self._kept]
        missing = [key for key in first_sample if key not in self._kept]
        parts = [self._kept.get(known)] if known else []
        if missing:
            samples = torch.tensor([first_sample[key] for key in missing])
            fresh = self._encode(images.index_select(0, samples))
            self._kept.put(missing, fresh)  # after `get`: it may push out what is known
            parts.append(fresh)
        place = {key: number for number, key in enumerate([*known, *missing])}
        return Encoding.concat(parts)[torch.tensor([place[key] for key in keys])]

    def _encode(self, images: Tensor) -> Encoding:
        """In portions of one size, so that each sample's encoding depends on that sample alone."""
        parts = []
        for part in torch.split(images, PORTION):
            blank = part.new_zeros(PORTION - len(part), *part.shape[1:])
            parts.append(self._encoder.encode(torch.cat([part, blank]))[: len(part)])
        return Encoding.concat(parts)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes. Verdicts do not depend on it, but the FLOPs still to come do."""
        return {"encoder": self.name, **self._kept.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off; what another encoder made is refused."""
        if state["encoder"] != self.name:
            raise UserError(
                f"the cache was filled by the encoder {state['encoder']}; this one is {self.name}"
            )
        self._kept.load_state_dict(state)


def keys_of(images: Tensor) -> list[bytes]:
    """A name for each sample's content: equal for equal samples of equal shape and type, and only then.

    A cryptographic digest: no two images that anybody has made share one.
    """
    kind = f"{images.dtype} {tuple(images.shape[1:])}".encode()
    samples = images.contiguous().reshape(len(images), -1).view(torch.uint8).numpy()
    return [hashlib.blake2b(sample, digest_size=KEY_BYTES, key=kind).digest() for sample in samples]


class _Kept:
    """Encodings by key in a ring of slots: when all are taken, the oldest is the next to go."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._slot_of: dict[bytes, int] = {}
        self._keys: list[bytes] = []  # by slot
        self._next = 0  # the slot to be filled, once all are taken that of the oldest
        self._encoding: Encoding | None = (
            None  # by slot; made when the first samples tell its shape
        )

    def __contains__(self, key: bytes) -> bool:
        return key in self._slot_of

    def get(self, keys: Sequence[bytes]) -> Encoding:
        """A copy of what is kept of these."""
        assert self._encoding is not None, "what is known has been put"
        return self._encoding[torch.tensor([self._slot_of[key] for key in keys])]

    def put(self, keys: Sequence[bytes], encoding: Encoding) -> None:
        """Keep these, of which none is kept yet; of too many the last ones."""
        if self._encoding is None:
            self._encoding = self._room_for(encoding)
        capacity = len(self._encoding)
        keys, encoding = keys[-capacity:], encoding[-capacity:]
        slots = [(self._next + number) % capacity for number in range(len(keys))]
        for slot, key in zip(slots, keys, strict=True):
            if slot < len(self._keys):
                del self._slot_of[self._keys[slot]]
                self._keys[slot] = key
            else:
                self._keys.append(key)
            self._slot_of[key] = slot
        self._encoding.logits[slots] = encoding.logits
        self._encoding.features[slots] = encoding.features
        self._next = (slots[-1] + 1) % capacity

    def _room_for(self, like: Encoding) -> Encoding:
        """Room for as many such samples as may be kept; the system lends it as it is filled."""
        sample_bytes = BOOKKEEPING + sum(
            tensor[0].numel() * tensor.element_size() for tensor in (like.logits, like.features)
        )
        capacity = max(1, self._max_bytes // sample_bytes)
        return Encoding(
            logits=like.logits.new_empty(capacity, *like.logits.shape[1:]),
            features=like.features.new_empty(capacity, *like.features.shape[1:]),
        )

    def state_dict(self) -> dict[str, Any]:
        """What is kept, the oldest first."""
        count = len(self._keys)
        oldest = self._next if self._encoding is not None and count == len(self._encoding) else 0
        keys = self._keys[oldest:] + self._keys[:oldest]
        kept = self.get(keys) if keys else None
        return {
            "keys": torch.tensor(list(b"".join(keys)), dtype=torch.uint8).reshape(count, KEY_BYTES),
            "logits": kept.logits if kept else None,
            "features": kept.features if kept else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep what was kept, or the youngest of it if there is less room."""
        self.clear()
        keys = [bytes(key) for key in state["keys"].tolist()]
        if keys:
            self.put(keys, Encoding(logits=state["logits"], features=state["features"]))
