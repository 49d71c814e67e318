"""The laws of fingerprints: a uniform, bounded sample of what went by, for one encoder only."""

from __future__ import annotations

import numpy as np
import torch
from detect_builders import around
from run_tools import complaint
from same_state import same
from scipy import stats

from recollect.detect import FingerprintReference, Judge, RandomEncoder, TwoSampleDetector
from recollect.detect.detectors import ks_on
from recollect.detect.fingerprint import Fingerprints
from recollect.detect.judge import ComparisonOptions
from recollect.experiment import state
from recollect.types import Encoding, Rows


def numbered(start: int, count: int) -> Encoding:
    """Rows whose features are their number."""
    numbers = torch.arange(start, start + count, dtype=torch.float32)[:, None]
    return Encoding(logits=numbers.expand(-1, 3), features=numbers.expand(-1, 4))


def kept(prints: Fingerprints, label: int = 0) -> list[int]:
    encoding = prints.encoding_of(label)
    assert encoding is not None
    assert torch.equal(encoding.logits[:, :1], encoding.features[:, :1]), "rows stay whole"
    return sorted(int(row) for row in encoding.features[:, 0])


def test_all_rows_are_kept_until_there_is_no_room() -> None:
    prints = Fingerprints("random", size=6)
    assert prints.encoding_of(0) is None
    prints.add(0, numbered(0, 4))
    assert kept(prints) == [0, 1, 2, 3]
    prints.add(0, numbered(4, 5))
    assert len(kept(prints)) == 6
    assert prints.seen(0) == 9
    assert prints.classes == (0,)


def test_every_row_that_went_by_is_kept_equally_often() -> None:
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
        t.numel() * t.element_size() for t in state.flatten(prints.state_dict())[0].values()
    )
    assert taken <= 10_400


def test_saving_loading_and_going_on_equals_never_having_stopped() -> None:
    whole, first, second = (Fingerprints("random", size=5, seed=3) for _ in range(3))
    for prints in (whole, first):
        prints.add(0, numbered(0, 20))
        prints.add(7, numbered(0, 3))
    tensors, tree = state.flatten(first.state_dict())
    second.load_state_dict(state.unflatten(tensors, tree))
    for prints in (whole, second):
        prints.add(0, numbered(20, 20))
    assert same(second.state_dict(), whole.state_dict())


def test_what_another_encoder_made_is_refused() -> None:
    made = Fingerprints("random 1", size=5)
    made.add(0, numbered(0, 3))
    told = complaint(lambda: Fingerprints("random 2", size=5).load_state_dict(made.state_dict()))
    assert told.startswith("the fingerprints were made with the encoder random 1; this one is")


def test_a_fingerprint_of_one_row_is_refused() -> None:
    assert "at least 2 rows" in complaint(lambda: Fingerprints("random", size=1))


def test_a_picture_does_not_differ_from_its_own_fingerprint() -> None:
    encoder = RandomEncoder(around((8, 8, 1)))
    equal = Rows(
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
