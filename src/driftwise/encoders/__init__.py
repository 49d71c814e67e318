"""Encoders: samples to the logits and features that are learned and compared."""

from driftwise.encoders.base import (
    Encoder,
    Encodes,
    LearnerEncoder,
    OwnEncoder,
    RandomEncoder,
    Surroundings,
)

__all__ = ["Encoder", "Encodes", "LearnerEncoder", "OwnEncoder", "RandomEncoder", "Surroundings"]
