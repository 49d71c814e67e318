"""The laws of fingerprints: a uniform, bounded sample of what went by, for one encoder only."""

from __future__ import annotations

import numpy as np
import torch
from detect_builders import around
from run_tools import complaint
from same_state import same
from scipy import stats

from driftwise.detect import FingerprintReference, Judge, RandomEncoder, TwoSampleDetector
from driftwise.detect.class_tests import ComparisonOptions
from driftwise.detect.detectors import by_mmd, ks_on
from driftwise.detect.fingerprint import Fingerprints
from driftwise.runs import checkpoint
from driftwise.types import Encoding, Samples


def numbered(start: int, count: int) -> Encoding:
    """Samples whose features are their number."""
    numbers = torch.arange(start, start + count, dtype=torch.float32)[:, None]
    return Encoding(logits=numbers.expand(-1, 3), features=numbers.expand(-1, 4))


def kept(prints: Fingerprints, label: int = 0) -> list[int]:
    encoding = prints.encoding_of(label)
    assert encoding is not None
    assert torch.equal(encoding.logits[:, :1], encoding.features[:, :1]), "samples stay whole"
    return sorted(int(sample) for sample in encoding.features[:, 0])


def test_all_samples_are_kept_until_there_is_no_room() -> None:
    prints = Fingerprints("random", size=6)
    assert prints.encoding_of(0) is None
    prints.add(0, numbered(0, 4))
    assert kept(prints) == [0, 1, 2, 3]
    prints.add(0, numbered(4, 5))
    assert len(kept(prints)) == 6
    assert prints.seen(0) == 9


def test_every_sample_that_went_by_is_kept_equally_often() -> None:
    counts = np.zeros(30)
    for seed in range(3000):
        prints = Fingerprints("random", size=5, seed=seed)
        for start in (0, 3, 13):
            prints.add(0, numbered(start, {0: 3, 3: 10, 13: 17}[start]))
        counts[kept(prints)] += 1
    assert stats.chisquare(counts).pvalue > 1e-4
    assert counts.sum() == 5 * 3000


def test_classes_do_not_touch_each_other_and_a_forgotten_one_starts_anew() -> None:
    prints = Fingerprints("random", size=5)
    prints.add(0, numbered(0, 4))
    prints.add(1, numbered(100, 4))
    prints.forget(0)
    assert prints.encoding_of(0) is None
    assert prints.seen(0) == 0
    assert kept(prints, 1) == [100, 101, 102, 103]
    prints.add(0, numbered(50, 2))
    assert kept(prints) == [50, 51]


def test_a_class_takes_a_few_kilobytes() -> None:
    prints = Fingerprints("random", size=50)
    prints.add(0, Encoding(logits=torch.rand(400, 32), features=torch.rand(400, 64)))
    taken = sum(
        t.numel() * t.element_size() for t in checkpoint.flatten(prints.state_dict())[0].values()
    )
    assert taken <= 10_400


def test_saving_loading_and_going_on_equals_never_having_stopped() -> None:
    whole, first, second = (Fingerprints("random", size=5, seed=3) for _ in range(3))
    for prints in (whole, first):
        prints.add(0, numbered(0, 20))
        prints.add(7, numbered(0, 3))
    tensors, tree = checkpoint.flatten(first.state_dict())
    second.load_state_dict(checkpoint.unflatten(tensors, tree))
    for prints in (whole, second):
        prints.add(0, numbered(20, 20))
    assert same(second.state_dict(), whole.state_dict())


def test_what_another_encoder_made_is_refused() -> None:
    made = Fingerprints("random 1", size=5)
    made.add(0, numbered(0, 3))
    told = complaint(lambda: Fingerprints("random 2", size=5).load_state_dict(made.state_dict()))
    assert told.startswith("the fingerprints were made with the encoder random 1; this one is")


def test_a_fingerprint_of_one_sample_is_refused() -> None:
    assert "at least 2 samples" in complaint(lambda: Fingerprints("random", size=1))


def test_a_image_does_not_differ_from_its_own_fingerprint() -> None:
    encoder = RandomEncoder(around((8, 8, 1)))
    equal = Samples(
        images=torch.full((50, 8, 8, 1), 77, dtype=torch.uint8),
        labels=torch.zeros(50, dtype=torch.int64),
        ids=torch.arange(50),
        concepts=torch.zeros(50, dtype=torch.int64),
    )
    reference = FingerprintReference(encoder, size=50, seed=0)
    reference.renew(0, equal)
    judge = Judge([ks_on("entropy")], ComparisonOptions())
    (verdict,) = TwoSampleDetector(encoder, judge).check(2, [0], equal, reference)
    assert (verdict.drifted, verdict.p_value) == (False, 1.0)


def test_what_half_precision_cannot_hold_is_refused() -> None:
    huge = Encoding(logits=torch.full((3, 2), 1e5), features=torch.zeros(3, 2))
    prints = Fingerprints("huge", size=3)
    assert "65,504" in complaint(lambda: prints.add(0, huge))


# A stream that nobody tells apart by class


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


def fingerprints_of(samples: Samples, size: int = 50) -> FingerprintReference:
    reference = FingerprintReference(RandomEncoder(around((8, 8, 1))), size=size, seed=0)
    for label in (0, 1):
        reference.renew(label, samples.of_class(label))
    return reference


def test_fingerprints_are_thinned_to_the_mix_that_was_learned() -> None:
    reference = fingerprints_of(stream(200, 40, 0))
    thinned = reference.like_the_stream((0, 1, 7))
    assert {label: len(kept) for label, kept in thinned.items()} == {0: 50, 1: 10}
    every = {tuple(sample) for sample in reference.encoding_of(1).features.tolist()}
    assert {tuple(sample) for sample in thinned[1].features.tolist()} < every
    assert reference.like_the_stream((7,)) == {}


def test_a_repair_with_few_samples_does_not_make_a_class_rare() -> None:
    reference = fingerprints_of(stream(200, 200, 0))
    reference.renew(1, stream(0, 20, 5))
    restored = fingerprints_of(stream(9, 9, 1))
    restored.load_state_dict(checkpoint.unflatten(*checkpoint.flatten(reference.state_dict())))
    for each in (reference, restored):
        sizes = {label: len(kept) for label, kept in each.like_the_stream((0, 1)).items()}
        assert sizes == {0: 20, 1: 20}


def test_an_uneven_mix_is_no_drift_of_a_stream_of_which_nothing_is_known() -> None:
    reference = fingerprints_of(stream(200, 40, 0))
    detector = TwoSampleDetector(
        RandomEncoder(around((8, 8, 1))),
        Judge([by_mmd(199)], ComparisonOptions()),
        labels="unknown",
    )
    same, changed = (
        detector.check(2, (0, 1), stream(*mix, 2), reference)[0] for mix in ((100, 20), (20, 100))
    )
    assert (same.drifted, same.num_reference) == (False, 60)
    assert changed.drifted, "a mix that has changed cannot be told from drift"
