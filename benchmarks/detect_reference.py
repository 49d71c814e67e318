"""What drift is found by: samples in the replay memory, or a fingerprint; and a reference gone bad.

    python benchmarks/detect_reference.py [--data fashion-mnist] [--seeds 10] [--json PATH]

First, ten classes are learned two at a time, and after the last one every class is checked at level
0.05 by the combination of tests on a fixed random network: against the samples that the memory still
has of it, for memories of 100 to 5,000 samples, and against a fingerprint of 50 samples, which does not
depend on the memory. Second, a share of the reference shows another concept than it should: the new
one, which hides drift, or an old one, which raises false alarms.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from driftwise import rng
from driftwise.datasets.library import load
from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import EncoderContext, FingerprintReference, RandomEncoder
from driftwise.detect.two_sample import all_three, merging
from driftwise.files import write_json
from driftwise.memory import ReplayBuffer
from driftwise.memory.policies import Balanced, Reservoir
from driftwise.streams.transforms import apply
from driftwise.types import Dataset, Encoding, Samples

LEVEL = 0.05
NUM_CURRENT = 100
MIN_ROWS = 5
BUFFERS = (100, 200, 500, 1000, 2000, 5000)
DRIFTS = (("gaussian-noise", 1), ("defocus-blur", 2), ("shot-noise", 5))
SHARES = (0.0, 0.1, 0.25, 0.5)
PERMUTATIONS = 199

Pairs = Sequence[tuple[Encoding, Encoding]]


class World:
    """Samples that were learned from and monitored samples, encoded in every concept."""

    def __init__(self, dataset: Dataset, *, num_learned: int) -> None:
        labels = torch.from_numpy(dataset.labels)
        learned, monitored = [], []
        for label in range(len(dataset.class_names)):
            rows = (labels == label).nonzero().squeeze(1)
            rows = rows[torch.randperm(len(rows), generator=rng.fork(0, "world", label))]
            learned.append(rows[:num_learned])
            monitored.append(rows[num_learned : 2 * num_learned])
        self.learned, self.monitored = learned, monitored
        self.num_classes = len(learned)
        shape = dataset.images.shape[1:]
        encoder = RandomEncoder(EncoderContext(learner=_nobody, image_shape=shape, seed=0))
        images = torch.from_numpy(np.ascontiguousarray(dataset.images))
        self.concepts: dict[str, Encoding] = {"as learned": encoder.encode(images)}
        for transform, severity in DRIFTS:
            drifted = apply(images, transform=transform, severity=severity, seed=0)
            self.concepts[f"{transform} {severity}"] = encoder.encode(drifted)
        self.encoder, self.images = encoder, images

    def samples(self, rows: Tensor, label: int) -> Samples:
        """Learned samples of a class."""
        labels = torch.full_like(rows, label)
        concepts = torch.zeros_like(rows)
        return Samples(images=self.images[rows], labels=labels, ids=rows, concepts=concepts)

    def current(self, label: int, concept: str, draw: torch.Generator) -> Encoding:
        """Monitored samples of a class in a concept."""
        rows = self.monitored[label]
        return self.concepts[concept][rows[torch.randperm(len(rows), generator=draw)[:NUM_CURRENT]]]


def _nobody(images: Tensor) -> Encoding:
    raise AssertionError(f"a random encoder asks no learner about {len(images)} samples")


def rates(pairs: Pairs, draw: torch.Generator) -> float:
    """Share of the pairs in which the combination finds drift; with too few samples it finds none."""
    testable = [pair for pair in pairs if min(map(len, pair)) >= MIN_ROWS]
    if not testable:
        return 0.0
    merge = merging("cauchy")
    by_test = [
        [
            e.p_value
            for e in test.test.run([(test.measure(a), test.measure(b)) for a, b in testable], draw)
        ]
        for test in all_three(PERMUTATIONS)
    ]
    flagged = sum(merge(p_values) <= LEVEL for p_values in zip(*by_test, strict=True))
    return flagged / len(pairs)


def memory_rows(world: World, buffer_size: int, policy: str, seed: int) -> list[Tensor]:
    """What a memory has of each class once all have gone by, two classes at a time."""
    chooser = Reservoir() if policy == "reservoir" else Balanced()
    memory = ReplayBuffer(buffer_size, policy=chooser, seed=seed)
    for first in range(0, world.num_classes, 2):
        both = torch.cat(world.learned[first : first + 2])
        labels = torch.cat([torch.full((len(world.learned[c]),), c) for c in (first, first + 1)])
        order = torch.randperm(len(both), generator=rng.fork(seed, "stream", first))
        for part in torch.split(order, 100):
            memory.offer(
                Samples(
                    images=torch.zeros(len(part), 1),
                    labels=labels[part],
                    ids=both[part],
                    concepts=torch.zeros(len(part), dtype=torch.int64),
                )
            )
    return [memory.samples_of(label).ids for label in range(world.num_classes)]


def fingerprint_of(world: World, seed: int) -> list[Encoding]:
    """What fingerprints keep of each class."""
    prints = FingerprintReference(world.encoder, size=50, seed=seed)
    for label, rows in enumerate(world.learned):
        prints.renew(label, world.samples(rows, label))
    return [prints.encoding_of(label) for label in range(world.num_classes)]


def by_source(world: World, seeds: int, redraws: int) -> list[dict[str, object]]:
    """False alarms and power of each reference."""
    table: list[dict[str, object]] = []
    sources = [("fingerprint", 0)] + [
        (policy, size) for policy in ("reservoir", "balanced") for size in BUFFERS
    ]
    for source, size in sources:
        pairs: dict[str, list[tuple[Encoding, Encoding]]] = {
            concept: [] for concept in world.concepts
        }
        counts: list[int] = []
        for seed in range(seeds):
            if source == "fingerprint":
                kept = fingerprint_of(world, seed)
            else:
                kept = [
                    world.concepts["as learned"][rows]
                    for rows in memory_rows(world, size, source, seed)
                ]
            counts += map(len, kept)
            draw = rng.fork(seed, "current", source, size)
            for concept, into in pairs.items():
                for label, reference in enumerate(kept):
                    into += [
                        (reference, world.current(label, concept, draw)) for _ in range(redraws)
                    ]
        line: dict[str, object] = {
            "reference": source,
            "buffer_size": size or None,
            "rows_per_class": [min(counts), float(np.mean(counts)), max(counts)],
            "untestable": float(np.mean([count < MIN_ROWS for count in counts])),
            "checks": len(pairs["as learned"]),
        }
        for concept, some in pairs.items():
            line[concept] = rates(some, rng.fork(0, "permutations", source, size, concept))
        table.append(line)
        _tell(line)
    return table


def contaminated(
    world: World, seeds: int, redraws: int, *, rows: int = 50
) -> list[dict[str, object]]:
    """What a share of wrong samples in the reference does."""
    table: list[dict[str, object]] = []
    before = world.concepts["as learned"]
    for share in SHARES:
        num_wrong = round(share * rows)
        for transform, severity in DRIFTS:
            concept = f"{transform} {severity}"
            hidden, invented = [], []
            for seed in range(seeds):
                draw = rng.fork(seed, "contaminated", num_wrong, concept)
                for label in range(world.num_classes):
                    for _ in range(redraws):
                        mine = world.learned[label]
                        chosen = mine[torch.randperm(len(mine), generator=draw)[:rows]]
                        wrong, right = chosen[:num_wrong], chosen[num_wrong:]
                        # The class has drifted, and part of the reference is of the new concept.
                        leaked = Encoding.concat([world.concepts[concept][wrong], before[right]])
                        hidden.append((leaked, world.current(label, concept, draw)))
                        # The class was realigned, and part of the reference is of the old concept.
                        stale = Encoding.concat([before[wrong], world.concepts[concept][right]])
                        invented.append((stale, world.current(label, concept, draw)))
            line: dict[str, object] = {
                "drift": concept,
                "share": share,
                "checks": len(hidden),
                "power": rates(hidden, rng.fork(1, concept, num_wrong)),
                "false_alarms": rates(invented, rng.fork(2, concept, num_wrong)),
            }
            table.append(line)
            _tell(line)
    return table


def _tell(line: Mapping[str, object]) -> None:
    shown = {
        key: f"{value:.3f}" if isinstance(value, float) else value for key, value in line.items()
    }
    print(json.dumps(shown), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="fashion-mnist", help="a known data set, or digits")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--redraws", type=int, default=4, help="current samples per class and seed")
    parser.add_argument("--json", type=Path, help="write the numbers there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    digits = arguments.data == "digits"
    dataset = load_digits() if digits else _part(load(arguments.data), per_class=2000)
    world = World(dataset, num_learned=80 if digits else 1000)
    print(
        f"{arguments.data}, level {LEVEL}, {NUM_CURRENT} current samples, encoder {world.encoder.name}"
    )
    outcome = {
        "data": arguments.data,
        "by_source": by_source(world, arguments.seeds, arguments.redraws),
        "contaminated": contaminated(world, arguments.seeds, arguments.redraws),
    }
    if arguments.json is not None:
        write_json(arguments.json, outcome)
    return 0


def _part(dataset: Dataset, *, per_class: int) -> Dataset:
    """The first samples of every class."""
    rows = np.concatenate(
        [np.flatnonzero(dataset.labels == c)[:per_class] for c in range(len(dataset.class_names))]
    )
    return Dataset(
        images=dataset.images[rows], labels=dataset.labels[rows], class_names=dataset.class_names
    )


if __name__ == "__main__":
    raise SystemExit(main())
