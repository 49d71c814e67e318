"""Pools of features for `kinds.py`: CIFAR-100 by superclass, and PACS by domain.

CIFAR-100's superclasses are cut into two halves that share no class: one to choose thresholds on,
one to report. In each half six superclasses are known, by two of their subclasses; two other
subclasses of each are new modes or new near classes; subclasses of the four other superclasses are
new far classes. Features come from a frozen EfficientNet-Lite0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from driftwise.encoders.embedding_cache import EmbeddingCache
from driftwise.encoders.pretrained import EfficientNetEncoder
from driftwise.paths import VARIABLE, environment
from driftwise.streams.changes import Windows
from driftwise.streams.faults import break_sensor
from driftwise.streams.transforms import apply

HALVES = ("development", "reported")
CONCEPTS = {
    "noise": ("gaussian-noise", 2),
    "blur": ("defocus-blur", 5),
    "rotation": ("rotation", 2),
}
KNOWN, SEEN = 6, 2
"""superclasses of a half that are known, and their subclasses that are"""
CLEAN, SIBLING, STRANGER, CONCEPT, SHIFTED = 230, 120, 100, 115, 50
"""images of a subclass in its pools"""


@dataclass(frozen=True, kw_only=True)
class Half:
    """One half of the superclasses, in features."""

    pools: dict[str, dict[int, np.ndarray]]
    classes: list[list[int]]
    siblings: dict[int, list[int]]
    strangers: list[int]

    def windows(
        self, *, size: int, seed: int, new_fraction: tuple[float, float] = (0.4, 0.6)
    ) -> Windows:
        """What makes windows of this half."""
        return Windows(
            self.pools,
            self.classes,
            siblings=self.siblings,
            strangers=self.strangers,
            concepts=tuple(CONCEPTS),
            size=size,
            new_fraction=new_fraction,
            seed=seed,
        )


def cifar_half(half: str, cache: Path | None) -> Half:
    """The features of one half; images that were encoded before are not encoded again."""
    raw = np.fromfile(
        Path(environment(VARIABLE)) / "cifar-100-binary" / "train.bin", dtype=np.uint8
    )
    raw = raw.reshape(-1, 3074)
    superclass, fine = raw[:, 0], raw[:, 1].astype(np.int64)
    images = torch.from_numpy(raw[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy())
    order = np.random.default_rng(0).permutation(20).reshape(2, 10)[HALVES.index(half)]
    subclasses = [np.unique(fine[superclass == each]).tolist() for each in order]
    classes = [each[:SEEN] for each in subclasses[:KNOWN]]
    siblings = {c: subclasses[c][SEEN : 2 * SEEN] for c in range(KNOWN)}
    strangers = [s for each in subclasses[KNOWN:] for s in each[:SEEN]]
    encoder = EmbeddingCache(EfficientNetEncoder(), None if cache is None else cache / half)
    pools: dict[str, dict[int, np.ndarray]] = {"clean": {}, "shifted": {}, "black": {}}
    pools |= {concept: {} for concept in CONCEPTS}
    known = [s for each in classes for s in each]
    sizes = dict.fromkeys(known, CLEAN) | dict.fromkeys(strangers, STRANGER)
    sizes |= {s: SIBLING for each in siblings.values() for s in each}
    for subclass, size in sizes.items():
        rows = np.flatnonzero(fine == subclass)
        pools["clean"][subclass] = encoder.features(images[rows[:size]]).numpy()
    for subclass in known:
        rows = np.flatnonzero(fine == subclass)[CLEAN:]
        for concept, (transform, severity) in CONCEPTS.items():
            drifted = apply(images[rows[:CONCEPT]], transform, severity, seed=0)
            pools[concept][subclass] = encoder.features(drifted).numpy()
        broken = break_sensor(images[rows[CONCEPT : CONCEPT + SHIFTED]], "shifted", seed=subclass)
        pools["shifted"][subclass] = encoder.features(broken).numpy()
    black = break_sensor(images[:1], "black", seed=0)
    pools["black"][0] = encoder.features(black).numpy()
    return Half(pools=pools, classes=classes, siblings=siblings, strangers=strangers)
