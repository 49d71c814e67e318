"""Encodings kept by content: an image that comes again is not encoded again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from driftwise.encoders.base import Encoder, Encodes, RawSamples
from driftwise.encoders.digests import identity_of
from driftwise.errors import UserError
from driftwise.types import Encoding

PORTION = 32
"""samples that the encoder is given at a time, never more and never fewer"""

KEY_BYTES = 16
BOOKKEEPING = 200
"""bytes that Python needs for an entry: two objects and their place in the dict"""


class Cached:
    """A fixed encoder that encodes each image once, as long as there is room.

    It depends on the image alone (`encode_in_portions`), not on what the cache held: a resumed run
    is as one that was never stopped.
    """

    fixed: ClassVar[bool] = True

    def __init__(self, encoder: Encoder, *, max_bytes: int = 64 * 2**20) -> None:
        """At most `max_bytes` are kept; then the oldest encodings make room."""
        if not encoder.fixed:
            raise UserError(
                f"the encoder {encoder.name} learns, so that its encoding of an image expires;"
                " expected one that is fixed"
            )
        if max_bytes < 1:
            raise UserError(f"a cache needs room for something; got {max_bytes} bytes")
        self.name = encoder.name
        self.identity = identity_of(encoder)
        self.networks: Sequence[nn.Module] = encoder.networks
        self._encoder = encoder
        self._max_bytes = max_bytes
        self._kept: dict[bytes, bytes] = {}
        self._like = Encoding(logits=torch.empty(0, 0), features=torch.empty(0, 0))

    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, channels) -> logits and features, in the order of the samples."""
        if not len(images):
            return self._encoder.encode(images)
        keys = keys_of(images)
        first = {key: place for place, key in reversed(list(enumerate(keys)))}
        found = {key: self._kept[key] for key in first if key in self._kept}
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        if missing:
            samples = torch.tensor([first[key] for key in missing])
            fresh = encode_in_portions(self._encoder, images.index_select(0, samples))
            found |= self._put(missing, fresh)
        return self._unpacked([found[key] for key in keys])

    def _put(self, keys: Sequence[bytes], encoding: Encoding) -> dict[bytes, bytes]:
        """Keep these, of which none is kept yet; the oldest make room. Returns them by key."""
        self._like = encoding[:0]
        columns = [
            each.contiguous().view(torch.uint8) for each in (encoding.logits, encoding.features)
        ]
        packed = {
            key: sample.tobytes()
            for key, sample in zip(keys, torch.cat(columns, dim=1).numpy(), strict=True)
        }
        self._kept |= packed
        sample_bytes = BOOKKEEPING + len(packed[keys[0]])
        excess = len(self._kept) - max(1, self._max_bytes // sample_bytes)
        for key in list(self._kept)[: max(0, excess)]:
            del self._kept[key]
        return packed

    def _unpacked(self, samples: Sequence[bytes]) -> Encoding:
        both = torch.frombuffer(bytearray(b"".join(samples)), dtype=torch.uint8)
        both = both.view(len(samples), -1)
        logits, features = self._like.logits, self._like.features
        end = logits.shape[1] * logits.element_size()
        return Encoding(
            logits=both[:, :end].contiguous().view(logits.dtype),
            features=both[:, end:].contiguous().view(features.dtype),
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes. Verdicts do not depend on it, but the FLOPs still to come do."""
        keys = torch.tensor(list(b"".join(self._kept)), dtype=torch.uint8)
        kept = self._unpacked(list(self._kept.values())) if self._kept else None
        return {
            "encoder": self.name,
            "keys": keys.reshape(-1, KEY_BYTES),
            "logits": kept.logits if kept else None,
            "features": kept.features if kept else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`, with the youngest if there is less room."""
        if state["encoder"] != self.name:
            raise UserError(
                f"the cache was filled by the encoder {state['encoder']}; this one is {self.name}"
            )
        self._kept = {}
        keys = [bytes(key) for key in state["keys"].tolist()]
        if keys:
            self._put(keys, Encoding(logits=state["logits"], features=state["features"]))


def encode_in_portions(encoder: Encodes, images: Tensor) -> Encoding:
    """Encode at least one sample so that each one's encoding depends on that sample alone.

    How many samples a network is given at once shows in the last digits of each output: the fastest
    way to multiply depends on it. So it is always given `PORTION` of them, filled up with blank ones.
    """
    parts = []
    for part in torch.split(images, PORTION):
        blank = part.new_zeros(PORTION - len(part), *part.shape[1:])
        parts.append(encoder.encode(torch.cat([part, blank]))[: len(part)])
    return Encoding.concat(parts)


def keys_of(images: RawSamples) -> list[bytes]:
    """A digest of each sample's content, equal only for equal samples of equal shape and type."""
    if not isinstance(images, Tensor):
        texts = (str(text).encode(errors="surrogatepass") for text in images)
        return [
            hashlib.blake2b(each, digest_size=KEY_BYTES, key=b"text").digest() for each in texts
        ]
    if not len(images):
        return []
    kind = f"{images.dtype} {tuple(images.shape[1:])}".encode()
    samples = images.contiguous().reshape(len(images), -1).view(torch.uint8).numpy()
    return [hashlib.blake2b(sample, digest_size=KEY_BYTES, key=kind).digest() for sample in samples]
