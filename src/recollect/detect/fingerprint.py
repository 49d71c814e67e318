"""What is kept of a class so that it can be compared later: a bounded sample of its encodings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from recollect import rng
from recollect.errors import UserError
from recollect.types import Encoding


class Fingerprints:
    """A uniform sample of at most `size` encoded rows per class, whatever number went by.

    Only a fixed encoder's encodings stay comparable; they are kept in half precision, so that a
    class takes a few kilobytes.
    """

    def __init__(self, encoder: str, *, size: int = 50, seed: int = 0) -> None:
        """`encoder`: what made the encodings; others are refused."""
        if size < 2:
            raise UserError(f"a fingerprint needs at least 2 rows per class; got {size}")
        self._encoder = encoder
        self._size = size
        self._seed = seed
        self._kept: dict[int, Encoding] = {}
        self._keys: dict[int, Tensor] = {}
        self._seen: dict[int, int] = {}

    @property
    def classes(self) -> tuple[int, ...]:
        """The classes that something is known of."""
        return tuple(sorted(self._kept))

    def seen(self, label: int) -> int:
        """Rows of a class that went by since it was last forgotten."""
        return self._seen.get(label, 0)

    def add(self, label: int, encoding: Encoding) -> None:
        """More rows of a class; each row so far is kept with the same chance."""
        draw = rng.fork(self._seed, "fingerprint", label, self.seen(label))
        keys = torch.rand(len(encoding), dtype=torch.float64, generator=draw)
        small = Encoding(logits=encoding.logits.half(), features=encoding.features.half())
        if label in self._kept:
            small = Encoding.concat([self._kept[label], small])
            keys = torch.cat([self._keys[label], keys])
        # The rows with the smallest of independent random keys are a uniform sample of all.
        first = keys.argsort()[: self._size]
        self._kept[label], self._keys[label] = small[first], keys[first]
        self._seen[label] = self.seen(label) + len(encoding)

    def forget(self, label: int) -> None:
        """The class is to be learned anew."""
        for kept in (self._kept, self._keys, self._seen):
            kept.pop(label, None)

    def encoding_of(self, label: int) -> Encoding | None:
        """The rows kept of a class, in single precision; None: nothing is known of it."""
        kept = self._kept.get(label)
        if kept is None:
            return None
        return Encoding(logits=kept.logits.float(), features=kept.features.float())

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "encoder": self._encoder,
            "classes": {
                label: {
                    "logits": kept.logits,
                    "features": kept.features,
                    "keys": self._keys[label],
                    "seen": self._seen[label],
                }
                for label, kept in self._kept.items()
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off; what another encoder made is refused."""
        if state["encoder"] != self._encoder:
            raise UserError(
                f"the fingerprints were made with the encoder {state['encoder']}; this one is "
                f"{self._encoder}, and their numbers cannot be compared"
            )
        self._kept, self._keys, self._seen = {}, {}, {}
        for label, kept in state["classes"].items():
            self._kept[label] = Encoding(logits=kept["logits"], features=kept["features"])
            self._keys[label], self._seen[label] = kept["keys"], kept["seen"]
