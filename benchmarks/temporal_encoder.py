"""An encoder that sees time: does training on the unlabelled stream help to find drift?

    DRIFTWISE_DATA=... python benchmarks/temporal_encoder.py [STREAM ...] [--seeds 100]
    python benchmarks/temporal_encoder.py --table    # of results/temporal_encoder.csv

A small network learns from the stream so far without labels: two samples that came close together in
time, of one predicted class, are to have similar features, and all others of the batch are not
(InfoNCE). It goes on learning at every checkpoint, from where it was. Beside it: a random network, the
learner that predicts the classes, and two networks trained on ImageNet.

    temporal             trained on the stream up to the last domain before the samples that are tested
    temporal, refreshed  and on the first half of theirs, which is tested by the other half

Streams: Yearbook by decade from the 1930s, iWildCam by group of cameras, PACS by kind of picture.
Reference and tested samples are never trained on by any encoder. Each class is tested by itself at
level 0.05 with MMD and a classifier, merged as in the detector `combined`, but on features alone. Power:
samples of the first domain against a later one (and, on Yearbook, of a decade against the next). False
alarms: the first domain against itself, drawn anew each time. No setting was chosen by what they led to.
"""

from __future__ import annotations

import argparse
import copy
import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from detect_common import (
    LEVEL,
    Learner,
    drawn,
    encoded,
    encoder_named,
    images_of,
    p_values,
    trained,
)
from natural_page import interval
from torch import Tensor, nn

from driftwise import rng
from driftwise.datasets import library
from driftwise.datasets.readers.npz import read_npz
from driftwise.detect.two_sample import by_c2st, by_mmd
from driftwise.encoders.embedding_cache import EmbeddingCache
from driftwise.models.cnn import SmallCNN
from driftwise.stats.combine import COMBINATIONS
from driftwise.types import Dataset, Encoding

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "temporal_encoder.csv"
COLUMNS = ("stream", "encoder", "seed", "story", "target", "samples", "mmd", "c2st", "both")
STREAMS = {
    "yearbook": ("1930s", "1940s", "1950s", "1960s", "1970s", "1980s", "1990s", "2000s", "2010s"),
    "iwildcam": ("cameras-a", "cameras-b", "cameras-c", "cameras-d"),
    "pacs": ("photo", "art_painting", "cartoon", "sketch"),
}
ENCODERS = ("random", "learner", "efficientnet", "resnet18-imagenet", "temporal")
REFRESHED = "temporal, refreshed"
SIZES = (50, 200)
REDRAWS, CONTROL_REDRAWS = 4, 25
"""of each class and size, where samples differ, and where they do not"""
POOL = 300
"""samples of a class and domain to draw from, at most; twice as many of the first domain"""
PERMUTATIONS = 99
SIDE, WIDTH = 32, 16
"""of the images that the temporal encoder reads, and of its first layer"""
FIRST_STEPS, STEPS, PAIRS = 200, 100, 128
"""gradient steps before the first check and at each later checkpoint; pairs in a step"""
NEAR = 10
"""a positive is among so many samples of its class before or after"""
TEMPERATURE = 0.2


@dataclass(frozen=True, kw_only=True)
class Material:
    """One stream: what is trained on, and what is tested, by domain."""

    data: Dataset
    passed: list[np.ndarray]
    """samples in the order in which they came"""
    pools: list[list[np.ndarray]]
    """samples by class that no encoder trains on"""


def material_of(name: str) -> Material:
    """Each domain cut into two halves: one that is learned from, one that is tested."""
    data = library.load(name)
    assert data.domains is not None
    when = np.arange(len(data.labels)) if data.groups is None else data.groups
    if name == "yearbook":
        file = library.find("yearbook")
        assert file is not None
        by_year = read_npz(file, class_names=data.class_names, group_years=1)
        assert by_year.domains is not None
        when = by_year.domains
    draw = np.random.default_rng(0)
    units = np.arange(len(data.labels)) if data.groups is None else data.groups
    is_tested = (draw.random(int(units.max()) + 1) < 0.5)[units]
    passed, pools = [], []
    for place, domain in enumerate(STREAMS[name]):
        mine = draw.permutation(np.flatnonzero(data.domains == data.domain_names.index(domain)))
        learned = mine[~is_tested[mine]]
        # What came at the same time comes in any order; PACS has no times within a domain.
        order = np.argsort(when[learned], kind="stable") if name != "pacs" else slice(None)
        passed.append(learned[order])
        most = POOL * (2 if place == 0 else 1)
        tested = mine[is_tested[mine]]
        pools.append(
            [tested[data.labels[tested] == c][:most] for c in range(len(data.class_names))]
        )
    return Material(data=data, passed=passed, pools=pools)


class TemporalEncoder:
    """Learns which samples came close together; everything that changes is in `state_dict`."""

    def __init__(self, channels: int, seed: int) -> None:
        self._seed, self._steps = seed, 0
        with rng.as_global(rng.fork(seed, "temporal")):
            self._network = SmallCNN(
                input_shape=(channels, SIDE, SIDE), num_classes=64, width=WIDTH
            )
            self._network.head = nn.Sequential(  # type: ignore[assignment]
                nn.Linear(4 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 64)
            )
        self._optimiser = torch.optim.Adam(self._network.parameters(), lr=3e-3)

    def learn(self, images: Tensor, predicted: Tensor, steps: int) -> None:
        """Go on for so many steps, given all samples so far in their order."""
        where = torch.empty(len(predicted), dtype=torch.int64)
        members = []
        for c in range(int(predicted.max()) + 1):
            members.append((predicted == c).nonzero().squeeze(1))
            where[members[-1]] = torch.arange(len(members[-1]))
        self._network.train()
        for _ in range(steps):
            draw = rng.fork(self._seed, "temporal", "step", self._steps)
            anchors = torch.randperm(len(images), generator=draw)[:PAIRS]
            shift = torch.randint(1, NEAR + 1, (len(anchors),), generator=draw)
            shift *= 2 * torch.randint(0, 2, (len(anchors),), generator=draw) - 1
            near = [
                int(members[c][(where[i] + by).clamp(0, len(members[c]) - 1)])
                for i, c, by in zip(anchors, predicted[anchors].tolist(), shift, strict=True)
            ]
            both = images[torch.cat([anchors, torch.tensor(near)])]
            flipped = torch.rand(len(both), generator=draw) < 0.5
            both = torch.where(flipped[:, None, None, None], both.flip(3), both)
            out = F.normalize(self._network(both), dim=1)
            similar = out @ out.T / TEMPERATURE
            similar.fill_diagonal_(-torch.inf)
            partner = torch.arange(len(both)).roll(len(anchors))
            self._optimiser.zero_grad()
            F.cross_entropy(similar, partner).backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
            self._steps += 1

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """(samples, channels, side, side) -> (samples, 4 width)."""
        self._network.eval()
        return torch.cat([self._network.features(part) for part in torch.split(images, 256)])

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "network": self._network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "steps": self._steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self._network.load_state_dict(state["network"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._steps = state["steps"]


def small(images: Tensor) -> Tensor:
    """uint8 (samples, height, width, channels) -> floats (samples, channels, side, side)."""
    x = images.permute(0, 3, 1, 2).float() / 255
    return F.interpolate(x, (SIDE, SIDE), mode="area") - 0.5


Features = dict[int, Tensor]
"""by sample number"""


def numbered(rows: np.ndarray, features: Tensor) -> Features:
    return dict(zip(rows.tolist(), features, strict=True))


def seen_by(
    name: str, material: Material, learner: Learner, seed: int
) -> Iterator[tuple[str, int, Features]]:
    """The name of an encoder, the domain that is tested (0: the control), and features."""
    everything = np.concatenate([rows for pool in material.pools for rows in pool])
    if name != "temporal":
        images = images_of(material.data, everything)
        encoder: Any = encoder_named(name, learner, material.data.images.shape[1:], seed)
        if name in ("efficientnet", "resnet18-imagenet"):
            features = EmbeddingCache(encoder).features(images)
        else:
            features = encoded(encoder, images).features
        found = numbered(everything, features.float())
        for domain in range(len(material.pools)):
            yield name, domain, found
        return
    x = {
        "passed": [small(images_of(material.data, rows)) for rows in material.passed],
        "tested": [
            small(images_of(material.data, np.concatenate(pool))) for pool in material.pools
        ],
    }
    predicted = [
        encoded(learner, images_of(material.data, rows)).logits.argmax(dim=1)
        for rows in material.passed
    ]
    temporal = TemporalEncoder(x["passed"][0].shape[1], seed)

    def now(domain: int) -> Features:
        found: Features = {}
        for place in {0, max(0, domain - 1), domain}:
            rows = np.concatenate(material.pools[place])
            found |= numbered(rows, temporal.features(x["tested"][place]))
        return found

    temporal.learn(x["passed"][0], predicted[0], FIRST_STEPS)
    yield "temporal", 0, now(0)
    for domain in range(1, len(material.pools)):
        yield "temporal", domain, now(domain)
        so_far = torch.cat(x["passed"][: domain + 1]), torch.cat(predicted[: domain + 1])
        temporal.learn(*so_far, STEPS)
        yield REFRESHED, domain, now(domain)
    # False alarms of the encoder as it is at the end.
    yield REFRESHED, 0, now(0)


def pairs_of(
    material: Material, domain: int, source: int, size: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Reference and tested samples of each class, drawn several times."""
    draw = rng.fork(seed, "temporal", "pairs", domain, source, size)
    found = []
    for c in range(len(material.data.class_names)):
        kept, now = material.pools[source][c], material.pools[domain][c]
        for _ in range(REDRAWS if domain else CONTROL_REDRAWS):
            if domain:
                found.append((drawn(kept, size, draw), drawn(now, size, draw)))
            else:
                mixed = drawn(kept, len(kept), draw)
                each = min(size, len(mixed) // 2)
                found.append((mixed[:each], mixed[each : 2 * each]))
    return found


def learner_of(material: Material, seed: int) -> Learner:
    """Trained on the labelled half of the first domain."""
    labels = material.data.labels
    first = [material.passed[0][labels[material.passed[0]] == c] for c in range(labels.max() + 1)]
    return trained(material.data, first, epochs=20, seed=seed)


def measure(
    stream: str, material: Material, learner: Learner, name: str, seed: int
) -> Iterator[tuple[Any, ...]]:
    """The lines of one encoder."""
    tests = [by_mmd(PERMUTATIONS), by_c2st(PERMUTATIONS)]
    for shown, domain, features in seen_by(name, material, learner, seed):
        sources = {"control": 0} if not domain else {"first domain": 0}
        if stream == "yearbook" and domain > 1:
            sources["decade before"] = domain - 1
        for story, source in sources.items():
            for size in SIZES:
                pairs = [
                    tuple(
                        Encoding(logits=each, features=each)
                        for each in (torch.stack([features[i] for i in s.tolist()]) for s in both)
                    )
                    for both in pairs_of(material, domain, source, size, seed)
                ]
                found = p_values(tests, pairs, seed, stream, domain, size)  # type: ignore[arg-type]
                found["both"] = COMBINATIONS["cauchy"](
                    np.stack([found["mmd"], found["c2st"]], axis=-1)
                )
                shares = [round(float((found[t] <= LEVEL).mean()), 4) for t in COLUMNS[6:]]
                target = STREAMS[stream][domain]
                yield stream, shown, seed, story, target, size, *shares


def saved() -> list[dict[str, str]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as lines:
        return list(csv.DictReader(lines))


def table() -> Iterator[str]:
    """Power and false alarms: means over targets, 95 % intervals over seeds; the least target."""
    cells: dict[tuple[str, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in saved():
        key = (line["stream"], line["story"], line["samples"], line["encoder"])
        cells[key][line["seed"]].append(100 * float(line["both"]))
    for (stream, story, samples, encoder), by_seed in sorted(cells.items()):
        means = [float(np.mean(each)) for each in by_seed.values()]
        mean, half = interval(means) if len(means) > 1 else (means[0], float("nan"))
        yield f"| {stream} | {story} | {samples} | {encoder} | {mean:.1f} ± {half:.1f} | {len(means)} |"


def resumes_exactly() -> bool:
    """Whether an encoder saved and loaded between two checkpoints ends up with the same weights."""
    draw = torch.Generator().manual_seed(0)
    images, predicted = torch.rand(300, 1, SIDE, SIDE, generator=draw), torch.arange(300) % 3
    one, other = TemporalEncoder(1, 0), TemporalEncoder(1, 1)
    one.learn(images, predicted, 3)
    other._seed = 0
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for each in (one, other):
        each.learn(images, predicted, 3)
    return torch.equal(one.features(images), other.features(images))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("streams", nargs="*", default=list(STREAMS), metavar="STREAM")
    parser.add_argument("--encoders", nargs="+", default=list(ENCODERS), choices=ENCODERS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    parser.add_argument("--out", type=Path, help="another file than results/temporal_encoder.csv")
    parser.add_argument("--table", action="store_true", help="print what has been measured")
    asked = parser.parse_args()
    global RESULTS
    RESULTS = asked.out or RESULTS
    if asked.table:
        print("\n".join(table()))
        return
    torch.set_num_threads(1)
    print("saved and loaded, the encoder goes on alike:", resumes_exactly())
    done = {(line["stream"], line["encoder"], line["seed"]) for line in saved()}
    for stream in asked.streams:
        material = material_of(stream)
        for seed in asked.seeds:
            names = [each for each in asked.encoders if (stream, each, str(seed)) not in done]
            learner = learner_of(material, seed) if names else None
            for name in names:
                assert learner is not None
                lines = list(measure(stream, material, learner, name, seed))
                is_new = not RESULTS.exists()
                with RESULTS.open("a", newline="") as to:
                    writer = csv.writer(to, lineterminator="\n")
                    if is_new:
                        writer.writerow(COLUMNS)
                    writer.writerows(lines)
                print(stream, name, seed, len(lines), flush=True)


if __name__ == "__main__":
    main()
