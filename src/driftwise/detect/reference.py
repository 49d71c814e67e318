"""References: what is kept of each class as it was last learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from driftwise import rng
from driftwise.encoders.base import Encoder
from driftwise.errors import UserError
from driftwise.types import Encoding, Samples

EARLIER = 3
"""references of a class that are archived: a concept may return"""


class HeldOutReference:
    """Samples that are never trained on: a valid reference for an encoder that learns.

    They are encoded anew at every check, as the encoder may learn.

    >>> reference = HeldOutReference()
    """

    def __init__(self) -> None:
        self._samples: dict[int, Samples] = {}
        self._earlier: dict[int, list[Samples]] = {}

    def renew(self, label: int, samples: Samples) -> None:
        """From now on `samples` are the reference of the class; the one before is archived."""
        if label in self._samples:
            archived = self._earlier.setdefault(label, [])
            archived.append(self._samples[label])
            del archived[:-EARLIER]
        self._samples[label] = samples

    def earlier_of(self, label: int) -> Sequence[Samples]:
        """The references that a class had before, the newest last."""
        return tuple(self._earlier.get(label, ()))

    def samples_of(self, label: int) -> Samples:
        """The samples kept for a class; none for one that has not been learned."""
        if label in self._samples:
            return self._samples[label]
        none = torch.empty(0, dtype=torch.int64)
        return Samples(images=none.to(torch.uint8), labels=none, ids=none, concepts=none)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        state: dict[str, Any] = {str(c): dict(vars(kept)) for c, kept in self._samples.items()}
        if self._earlier:
            state["earlier"] = {
                str(c): [dict(vars(each)) for each in kept] for c, kept in self._earlier.items()
            }
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._samples = {
            int(label): Samples.restored(samples)
            for label, samples in state.items()
            if label != "earlier"
        }
        self._earlier = {
            int(label): [Samples.restored(each) for each in kept]
            for label, kept in state.get("earlier", {}).items()
        }


class FingerprintReference:
    """Encodings of learned samples, at most `size` per class: small, independent of the buffer.

    Valid for a fixed encoder only, for which learned samples are like fresh ones. Encodings are
    kept in half precision, so that a class takes a few kilobytes.

    >>> import driftwise as dw
    >>> from driftwise.streams import Task
    >>> stream = dw.streams.class_incremental(dw.datasets.load("digits"), num_tasks=5, num_drifts=1)
    >>> samples = Task(stream, 1).train()
    >>> reference = FingerprintReference(dw.encoders.load("random"), size=50, seed=0)
    >>> for _ in range(2):  # as after learning it, and after a realignment
    ...     reference.renew(0, samples)
    >>> [features.shape for features in reference.earlier_of(0)]
    [torch.Size([50, 128])]
    """

    def __init__(self, encoder: Encoder, *, size: int, seed: int) -> None:
        if size < 2:
            raise UserError(f"a fingerprint needs at least 2 samples per class; got {size}")
        self._encoder = encoder
        self._size = size
        self._seed = seed
        self._kept: dict[int, dict[str, Any]] = {}
        self._earlier: dict[int, list[Tensor]] = {}
        self._came: dict[int, int] = {}

    def renew(self, label: int, samples: Samples) -> None:
        """From now on `samples` are the reference of the class; without any, the old one stays."""
        if not len(samples):
            return
        encoding = self._encoder.encode(samples.images)
        draw = rng.fork(self._seed, "fingerprint", label, 0)
        # The samples with the smallest of independent random keys are a uniform sample of all.
        keys = torch.rand(len(encoding), dtype=torch.float64, generator=draw)
        chosen = keys.argsort(stable=True)[: self._size].sort().values
        half = _in_half(encoding[chosen])
        if label in self._kept:
            archived = self._earlier.setdefault(label, [])
            archived.append(self._kept[label]["features"])
            del archived[:-EARLIER]
        self._kept[label] = {
            "seen": len(encoding),
            "keys": keys[chosen],
            "rows": chosen,
            "logits": half.logits,
            "features": half.features,
        }
        # An adaptation asks for few samples of a class, however frequent it is.
        self._came[label] = max(len(samples), self._came.get(label, 0))

    def encoding_of(self, label: int) -> Encoding:
        """The encodings kept of a class; none for one that has not been learned."""
        if label not in self._kept:
            return Encoding(logits=torch.empty(0, 1), features=torch.empty(0, 1))
        kept = self._kept[label]
        return Encoding(logits=kept["logits"].float(), features=kept["features"].float())

    def earlier_of(self, label: int) -> Sequence[Tensor]:
        """The features that were kept of a class before, each (samples, d), the newest last."""
        return tuple(each.float() for each in self._earlier.get(label, ()))

    def like_the_stream(self, classes: Sequence[int]) -> dict[int, Encoding]:
        """What is kept of the classes, thinned to the mix in which they were learned.

        As many samples of a rare class are kept as of a frequent one: compared with a stream whose
        classes are unknown, a changed class mix alone would count as drift.
        """
        kept = {label: some for label in classes if len(some := self.encoding_of(label))}
        share = min((len(some) / self._came[label] for label, some in kept.items()), default=0)
        thinned = {}
        for label, some in kept.items():
            order = torch.randperm(len(some), generator=rng.fork(self._seed, "thinned", label))
            thinned[label] = some[order[: round(share * self._came[label])].sort().values]
        return thinned

    def rounded(self, encoding: Encoding) -> Encoding:
        """An encoding as coarse as those that are kept."""
        half = _in_half(encoding)
        return Encoding(logits=half.logits.float(), features=half.features.float())

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        classes = {label: dict(kept) for label, kept in self._kept.items()}
        state = {"encoder": self._encoder.name, "classes": classes, "came": self._came}
        if self._earlier:
            state["earlier"] = {label: list(kept) for label, kept in self._earlier.items()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; encodings by another encoder are refused."""
        if state["encoder"] != self._encoder.name:
            raise UserError(
                f"the fingerprints were made with the encoder {state['encoder']}; this one is "
                f"{self._encoder.name}, and their numbers cannot be compared"
            )
        self._kept = {label: dict(kept) for label, kept in state["classes"].items()}
        self._came = dict(state["came"])
        self._earlier = {label: list(kept) for label, kept in state.get("earlier", {}).items()}


def _in_half(encoding: Encoding) -> Encoding:
    """In half precision; what does not fit is refused, since infinities cannot be compared."""
    half = Encoding(logits=encoding.logits.half(), features=encoding.features.half())
    if not (half.logits.isfinite().all() and half.features.isfinite().all()):
        raise UserError(
            "the encoder's numbers exceed 65,504, the most that a fingerprint can hold; use"
            ' reference="held-out" or reference="memory"'
        )
    return half
