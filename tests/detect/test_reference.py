"""References: a uniform, bounded sample of what was learned, for one fixed encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from detect_builders import encoder_context
from run_tools import complaint
from same_state import same
from scipy import stats
from torch import Tensor, nn

from driftwise.detect import (
    ClassTests,
    ComparisonOptions,
    FingerprintReference,
    RandomEncoder,
    TwoSampleDetector,
)
from driftwise.detect.two_sample import by_mmd, ks_on
from driftwise.encoders.encoding_cache import Cached
from driftwise.runs import checkpoint
from driftwise.types import Encoding, Samples

ENCODER = RandomEncoder(encoder_context((8, 8, 1)))


class Numbers:
    """An encoder of samples that are numbers."""

    fixed: ClassVar[bool] = True

    def __init__(self, name: str = "numbers") -> None:
        self.name = name
        self.networks: Sequence[nn.Module] = ()

    def encode(self, images: Tensor) -> Encoding:
        return Encoding(logits=images.float(), features=images.float().expand(-1, 4))


def numbered(start: int, count: int) -> Samples:
    numbers = torch.arange(start, start + count)
    zeros = torch.zeros_like(numbers)
    return Samples(images=numbers[:, None], labels=zeros, ids=numbers, concepts=zeros)


def kept(reference: FingerprintReference, label: int = 0) -> list[int]:
    encoding = reference.encoding_of(label)
    assert torch.equal(encoding.logits[:, :1], encoding.features[:, :1]), "samples stay whole"
    return [int(sample) for sample in encoding.features[:, 0]]


def test_a_renewed_class_is_kept_anew_and_leaves_the_others_alone() -> None:
    reference = FingerprintReference(Numbers(), size=6, seed=0)
    assert kept(reference) == []
    reference.renew(0, numbered(0, 4))
    reference.renew(1, numbered(100, 9))
    others = kept(reference, 1)
    assert (kept(reference), len(others)) == ([0, 1, 2, 3], 6)
    reference.renew(0, numbered(50, 2))
    reference.renew(0, numbered(0, 0))  # without samples the old ones stay
    assert (kept(reference), kept(reference, 1)) == ([50, 51], others)


def test_every_learned_sample_is_kept_equally_often() -> None:
    counts = np.zeros(30)
    for seed in range(1000):
        reference = FingerprintReference(Numbers(), size=5, seed=seed)
        reference.renew(0, numbered(0, 30))
        counts[kept(reference)] += 1
    assert stats.chisquare(counts).pvalue > 1e-4
    assert counts.sum() == 5 * 1000


def test_a_saved_reference_is_small_and_loads_as_it_was_for_its_encoder_only() -> None:
    reference, other = (FingerprintReference(ENCODER, size=50, seed=0) for _ in range(2))
    for label in (0, 1):
        reference.renew(label, stream(200, 40, 0).of_class(label))
    tensors, tree = checkpoint.flatten(reference.state_dict())
    assert sum(each.numel() * each.element_size() for each in tensors.values()) <= 37_000
    other.load_state_dict(checkpoint.unflatten(tensors, tree))
    assert same(other.state_dict(), reference.state_dict())
    state = FingerprintReference(Numbers("random 1"), size=5, seed=0).state_dict()
    strange = FingerprintReference(Numbers("random 2"), size=5, seed=0)
    assert complaint(lambda: strange.load_state_dict(state)).startswith(
        "the fingerprints were made with the encoder random 1; this one is random 2"
    )


def test_impossible_fingerprints_are_refused() -> None:
    assert "at least 2 samples" in complaint(
        lambda: FingerprintReference(Numbers(), size=1, seed=0)
    )
    reference = FingerprintReference(Numbers(), size=3, seed=0)
    assert "65,504" in complaint(lambda: reference.renew(0, numbered(100_000, 3)))


def test_an_image_does_not_differ_from_its_own_fingerprint() -> None:
    zeros = torch.zeros(50, dtype=torch.int64)
    images = torch.full((50, 8, 8, 1), 77, dtype=torch.uint8)
    equal = Samples(images=images, labels=zeros, ids=torch.arange(50), concepts=zeros)
    reference = FingerprintReference(Cached(ENCODER), size=50, seed=0)
    reference.renew(0, equal)
    tests = ClassTests([ks_on("entropy")], ComparisonOptions())
    (verdict,) = TwoSampleDetector(ENCODER, tests).check(2, [0], equal, reference)
    assert (verdict.drifted, verdict.p_value) == (False, 1.0)


# A stream without labels


def stream(frequent: int, rare: int, seed: int) -> Samples:
    """Images of two classes, one dark and one bright, so many of each."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.tensor([0] * frequent + [1] * rare)
    images = torch.randint(100, (len(labels), 8, 8, 1), generator=draw)
    return Samples(
        images=(images + 150 * labels[:, None, None, None]).to(torch.uint8),
        labels=labels,
        ids=torch.arange(len(labels)) + 1000 * seed,
        concepts=torch.zeros_like(labels),
    )


def fingerprints_of(samples: Samples) -> FingerprintReference:
    reference = FingerprintReference(ENCODER, size=50, seed=0)
    for label in (0, 1):
        reference.renew(label, samples.of_class(label))
    return reference


def sizes(reference: FingerprintReference, *classes: int) -> dict[int, int]:
    return {label: len(kept) for label, kept in reference.like_the_stream(classes).items()}


def test_fingerprints_are_thinned_to_the_mix_that_was_learned() -> None:
    reference = fingerprints_of(stream(200, 40, 0))
    assert sizes(reference, 0, 1, 7) == {0: 50, 1: 10}
    every = {tuple(sample) for sample in reference.encoding_of(1).features.tolist()}
    thinned = reference.like_the_stream((0, 1))[1].features.tolist()
    assert {tuple(sample) for sample in thinned} < every
    assert reference.like_the_stream((7,)) == {}


def test_an_adaptation_with_few_samples_does_not_make_a_class_rare() -> None:
    reference = fingerprints_of(stream(200, 200, 0))
    reference.renew(1, stream(0, 20, 5))
    restored = fingerprints_of(stream(9, 9, 1))
    restored.load_state_dict(checkpoint.unflatten(*checkpoint.flatten(reference.state_dict())))
    assert sizes(reference, 0, 1) == sizes(restored, 0, 1) == {0: 20, 1: 20}


def test_an_uneven_mix_is_no_drift_of_a_stream_without_labels() -> None:
    reference = fingerprints_of(stream(200, 40, 0))
    tests = ClassTests([by_mmd(199)], ComparisonOptions())
    detector = TwoSampleDetector(ENCODER, tests, labels="unknown")
    same_mix, changed = (
        detector.check(2, (0, 1), stream(*mix, 2), reference)[0] for mix in ((100, 20), (20, 100))
    )
    assert (same_mix.drifted, same_mix.num_reference) == (False, 60)
    assert changed.drifted, "a changed mix cannot be distinguished from drift"
