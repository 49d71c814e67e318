"""Pools of features for `kinds.py`: CIFAR-100 by superclass, PACS by domain, gas sensors by month.

CIFAR-100's superclasses are cut into two halves that share no class: one to choose thresholds on,
one to report. In each half six superclasses are known, by two of their subclasses; two other
subclasses of each are new modes or new near classes; subclasses of the four other superclasses are
new far classes. Features come from a frozen EfficientNet-Lite0.

PACS: sketches of four animals are known; photos, paintings and cartoons are their other concepts; new
classes (all far) are sketches of two other kinds, and other kinds in another domain. Gas sensors, vectors:
three gases as the sensors read them in one period are known, two earlier periods are other concepts, and
two other gases new classes. No threshold was chosen on either.

Outdoor objects, vectors to develop on: a class is five objects, in the light of the first three quarters of
the time; the last quarter is another concept, ten other objects are new classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from driftwise.datasets.library import load
from driftwise.encoders.embedding_cache import EmbeddingCache
from driftwise.encoders.pretrained import EfficientNetEncoder
from driftwise.paths import VARIABLE, environment
from driftwise.streams.changes import Windows
from driftwise.streams.faults import break_sensor
from driftwise.streams.transforms import apply

HALVES = ("development", "reported")
SOURCES = (*HALVES, "pacs", "gas-sensor", "outdoor")
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
    """One half of the superclasses, or another source of windows, in features."""

    pools: dict[str, dict[int, np.ndarray]]
    classes: list[list[int]]
    siblings: dict[int, list[int]]
    strangers: list[int]
    concepts: tuple[str, ...] = tuple(CONCEPTS)
    archived: int | None = None
    """samples of an earlier concept; None: as many as of the others"""
    unit_length: bool = True
    """whether features are brought to length 1, as those of image encoders"""

    def windows(
        self, *, size: int, seed: int, new_fraction: tuple[float, float] = (0.4, 0.6)
    ) -> Windows:
        """What makes windows of this half."""
        return Windows(
            self.pools,
            self.classes,
            siblings=self.siblings,
            strangers=self.strangers,
            concepts=self.concepts,
            size=size,
            archived=self.archived,
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


def source_named(name: str, cache: Path | None) -> Half:
    """Where windows come from."""
    if name == "pacs":
        return pacs(cache)
    if name in ("gas-sensor", "outdoor"):
        return gas_sensors() if name == "gas-sensor" else outdoor()
    return cifar_half(name, cache)


def pacs(cache: Path | None) -> Half:
    """Sketches of four animals; of other kinds, and in other domains, what is new."""
    data = load("pacs")
    assert data.domains is not None
    encoder = EmbeddingCache(EfficientNetEncoder(), None if cache is None else cache / "pacs")
    draw = np.random.default_rng(0)

    def images(domain: str, name: str, most: int | None = None) -> torch.Tensor:
        assert data.domains is not None
        is_it = data.labels == data.class_names.index(name)
        is_it &= data.domains == data.domain_names.index(domain)
        rows = draw.permutation(np.flatnonzero(is_it))[:most]
        return torch.from_numpy(np.ascontiguousarray(data.images[rows]))

    def features(samples: torch.Tensor) -> np.ndarray:
        return encoder.features(samples).numpy()

    known, others = ("dog", "elephant", "giraffe", "horse"), ("photo", "art_painting", "cartoon")
    pools: dict[str, dict[int, np.ndarray]] = {"clean": {}, "shifted": {}, "black": {}}
    pools |= {domain: {} for domain in others}
    for c, name in enumerate(known):
        sketches = images("sketch", name, 2 * CLEAN + 60)
        broken = break_sensor(sketches[2 * CLEAN :], "shifted", seed=c)
        pools["clean"][c], pools["shifted"][c] = features(sketches[: 2 * CLEAN]), features(broken)
        for domain in others:
            pools[domain][c] = features(images(domain, name))
    pools["black"][0] = features(break_sensor(sketches[:1], "black", seed=0))
    new = [("sketch", "guitar"), ("sketch", "person")]
    new += [(domain, name) for domain in others for name in ("guitar", "house", "person")]
    for number, (domain, name) in enumerate(new, len(known)):
        pools["clean"][number] = features(images(domain, name, STRANGER))
    return Half(
        pools=pools,
        classes=[[c] for c in range(len(known))],
        siblings={},
        strangers=list(range(len(known), len(known) + len(new))),
        concepts=others,
        archived=50,
    )


def gas_sensors() -> Half:
    """Three gases in one period; two earlier periods, and two other gases."""
    data = load("gas-sensor")
    assert data.domains is not None
    values = np.sign(data.images) * np.log1p(np.abs(data.images))
    periods = [int("".join(filter(str.isdigit, name))) for name in data.domain_names]
    period, draw = np.array(periods)[data.domains], np.random.default_rng(0)
    now = values[period == 6]
    mean, deviation = now.mean(axis=0), now.std(axis=0) + 1e-6

    def readings(gas: int, when: int, raw: bool = False) -> np.ndarray:
        rows = draw.permutation(np.flatnonzero((data.labels == gas) & (period == when)))
        found: np.ndarray = data.images[rows] if raw else (values[rows] - mean) / deviation
        return found

    known = (0, 1, 4)
    pools: dict[str, dict[int, np.ndarray]] = {"clean": {}, "shifted": {}}
    pools |= {
        f"period {when}": {c: readings(g, when) for c, g in enumerate(known)} for when in (2, 3)
    }
    for c, gas in enumerate(known):
        own = readings(gas, 6, raw=True)
        both = {
            "clean": own[:-60],
            "shifted": break_sensor(torch.tensor(own[-60:]), "shifted", seed=c),
        }
        for pool, raw in both.items():
            x = np.asarray(raw)
            pools[pool][c] = ((np.sign(x) * np.log1p(np.abs(x)) - mean) / deviation).astype(
                np.float32
            )
    pools["black"] = {0: (-mean / deviation)[None].astype(np.float32)}
    pools["clean"] |= {3: readings(5, 6), 4: readings(2, 6)}
    return Half(
        pools=pools,
        classes=[[0], [1], [2]],
        siblings={},
        strangers=[3, 4],
        concepts=("period 2", "period 3"),
        archived=30,
        unit_length=False,
    )


def outdoor() -> Half:
    """Six classes of five objects each; ten others."""
    data = load("outdoor")
    values = (data.images - data.images.mean(axis=0)) / (data.images.std(axis=0) + 1e-6)
    draw = np.random.default_rng(0)
    early, late = {}, {}
    for c in range(40):
        mine = np.flatnonzero(data.labels == c)  # in time order
        early[c] = values[draw.permutation(mine[:75])].astype(np.float32)
        late[c] = values[draw.permutation(mine[75:])].astype(np.float32)
    return Half(
        pools={"clean": early, "late": late},
        classes=[list(range(5 * c, 5 * c + 5)) for c in range(6)],
        siblings={},
        strangers=list(range(30, 40)),
        concepts=("late",),
        archived=20,
        unit_length=False,
    )
