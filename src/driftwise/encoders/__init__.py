"""Encoders: samples to the logits and features that are learned and compared.

- `load("efficientnet")`: by name; also `timm:NAME`, `open-clip:NAME/TAG`, `sentence-transformers:NAME`
- `load(network, preprocess=...)`: a torch module or a function of one's own
- `EmbeddingCache(encoder).features(samples)`: features kept on disk, computed once for each sample
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftwise.encoders.base import Encoder, EncoderContext, Encodes, LearnerEncoder
    from driftwise.encoders.embedding_cache import EmbeddingCache
    from driftwise.encoders.identity import IdentityEncoder
    from driftwise.encoders.loading import load
    from driftwise.encoders.own_network import OwnEncoder
    from driftwise.encoders.random_network import RandomEncoder

_HOMES = {
    "EmbeddingCache": "embedding_cache",
    "Encoder": "base",
    "EncoderContext": "base",
    "Encodes": "base",
    "IdentityEncoder": "identity",
    "LearnerEncoder": "base",
    "OwnEncoder": "own_network",
    "RandomEncoder": "random_network",
    "load": "loading",
}

__all__ = [
    "EmbeddingCache",
    "Encoder",
    "EncoderContext",
    "Encodes",
    "IdentityEncoder",
    "LearnerEncoder",
    "OwnEncoder",
    "RandomEncoder",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the names of encoders must stay quick to import."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
