"""Encoders: samples to the logits and features that are learned and compared."""

from driftwise.encoders.base import Encoder, EncoderContext, Encodes, LearnerEncoder
from driftwise.encoders.embedding_cache import EmbeddingCache
from driftwise.encoders.own_network import OwnEncoder
from driftwise.encoders.random_network import RandomEncoder

__all__ = [
    "EmbeddingCache",
    "Encoder",
    "EncoderContext",
    "Encodes",
    "LearnerEncoder",
    "OwnEncoder",
    "RandomEncoder",
]
