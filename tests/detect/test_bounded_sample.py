"""A bounded sample of different images, against the set of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy import stats

from driftwise.detect.bounded_sample import DistinctSample
from driftwise.types import Encoding

IMAGES = [bytes([number]) * 16 for number in range(30)]


def fill(sample: DistinctSample, contents: Sequence[bytes], *, step: int = 7) -> DistinctSample:
    """Offer samples in parts; the encoding of a sample is the number of its image."""
    for start in range(0, len(contents), step):
        part = contents[start : start + step]
        coming = sample.offer(part, 5)
        numbers = torch.tensor([[part[place][0]] for place in coming.tolist()]).reshape(-1, 1)
        sample.put(Encoding(logits=numbers, features=numbers), start + coming)
    return sample


def shuffled(seed: int, *, most: int = 9) -> list[bytes]:
    """Every image, one of them once, others several times."""
    draw = np.random.default_rng(seed)
    samples = np.repeat(np.arange(30), draw.integers(1, most + 1, 30))
    return [IMAGES[sample] for sample in draw.permutation(samples)]


def test_every_image_is_kept_equally_often_however_often_it_comes() -> None:
    counts: Counter[bytes] = Counter()
    contents = shuffled(0, most=40)
    for seed in range(300):
        counts.update(fill(DistinctSample(str(seed).encode()), contents, step=300).contents)
    assert sum(counts.values()) == 300 * 5
    assert stats.chisquare([counts[image] for image in IMAGES]).pvalue > 1e-3


@pytest.mark.parametrize("seed", range(2))
def test_samples_encodings_and_counts_are_those_of_the_images_kept(seed: int) -> None:
    contents = shuffled(seed)
    sample = fill(DistinctSample(b"salt"), contents)
    times = Counter(contents)
    assert sample.seen == len(contents)
    assert sample.num_copies == sum(times[image] - 1 for image in sample.contents)
    assert sample.samples.tolist() == [contents.index(image) for image in sample.contents]
    assert sample.encoding.features[:, 0].tolist() == [each[0] for each in sample.contents]


def test_neither_the_order_of_samples_nor_their_parts_make_a_difference() -> None:
    contents = shuffled(0)
    expected = set(fill(DistinctSample(b"salt"), contents).contents)
    assert set(fill(DistinctSample(b"salt"), contents[::-1], step=1).contents) == expected
    assert set(fill(DistinctSample(b"salt"), contents, step=1000).contents) == expected


def test_samples_with_different_salts_meet_by_chance_only() -> None:
    met = [
        len(
            fill(DistinctSample(f"a{seed}".encode()), IMAGES, step=30).contents
            & fill(DistinctSample(f"b{seed}".encode()), IMAGES, step=30).contents
        )
        for seed in range(400)
    ]
    expected = stats.hypergeom(30, 5, 5)
    assert abs(np.mean(met) - expected.mean()) < 4 * expected.std() / 20


def test_a_restored_sample_is_the_same() -> None:
    sample = fill(DistinctSample(b"salt"), shuffled(0))
    restored = DistinctSample.restored(sample.state_dict())
    assert list(restored.contents) == list(sample.contents)
    assert (restored.seen, restored.num_copies) == (sample.seen, sample.num_copies)
    assert torch.equal(restored.samples, sample.samples)
    empty = DistinctSample.restored(DistinctSample().state_dict())
    assert (len(empty.contents), empty.num_copies) == (0, 0)
