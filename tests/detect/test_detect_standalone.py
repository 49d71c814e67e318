"""Fit and check, on real digits."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas
import pytest
import torch
from detect_builders import encoder_context
from run_tools import complaint
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import LearnerEncoder, RandomEncoder, incoming
from driftwise.detect.standalone import DriftDetector as AnyDriftDetector
from driftwise.detect.standalone import DriftReport
from driftwise.encoders.own_network import OwnEncoder
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
    checks = 40
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


def test_effect_sizes_follow_their_definitions() -> None:
    before, after = draw(classes=1)
    detector = DriftDetector().fit(before)
    (same,) = detector.check(after).classes
    (drifted,) = detector.check(invert(after, (0,))).classes
    assert same.auc is not None
    assert drifted.auc is not None
    assert abs(same.auc - 0.5) < 0.2
    assert drifted.auc > 0.99
    encoder = RandomEncoder(encoder_context())
    old, new = (
        entropy(encoder.encode(torch.from_numpy(images)).logits).numpy()
        for images, _ in (before, after)
    )
    assert same.ks_gap == pytest.approx(stats.ks_2samp(old, new).statistic, abs=1e-6)


def test_the_most_typical_samples_are_mostly_those_that_have_changed() -> None:
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
    few = [*np.flatnonzero(after[1] == 1).tolist(), 0]
    report = DriftDetector().fit(before).check((after[0][few], after[1][few]))
    assert verdicts(report) == {"0": "not testable", "1": "same", "2": "missing", "3": "missing"}
    assert report.classes[0].reason == "fewer than 5 distinct current samples"


def test_copies_of_an_image_are_no_evidence() -> None:
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


def test_a_self_check_reports_its_sizes() -> None:
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


def test_saved_and_loaded_it_gives_the_same_report(tmp_path: Path) -> None:
    before, after = draw()
    fitted = DriftDetector(max_samples=20).fit(before)
    files.write(tmp_path / "fitted", fitted.state_dict(), format=1)
    loaded = DriftDetector(max_samples=20)
    loaded.load_state_dict(files.read(tmp_path / "fitted", format=1))
    before_check = torch.get_rng_state()
    first = fitted.check(invert(after))
    assert loaded.check(invert(after)) == first == fitted.check(invert(after))
    assert torch.equal(torch.get_rng_state(), before_check), "a check changes nothing"
    assert first.as_dict()["drifted_classes"] == first.names("drifted") == ["1", "3"]
    loaded.load_state_dict(DriftDetector().state_dict())
    assert "fit(reference) first" in complaint(lambda: loaded.check(after))


IMAGES, LABELS = draw(classes=1, count=10)[0]
FITTED = DriftDetector().fit((IMAGES, LABELS))
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
        (TensorDataset(torch.zeros(3, 2), torch.arange(3)), "datasets.from_torch(data)"),
        ({"width": [1.0, 2.0], "kind": [0, 1]}, "datasets.from_table(table, label=NAME)"),
        (pandas.DataFrame({"width": [1.0], "kind": [0]}), "got a table, DataFrame"),
        ((pandas.DataFrame({"width": [1.0]}), [0]), "got a table, DataFrame"),
        ((IMAGES, np.array(["cat"] * 10)), "give datasets.from_arrays(samples, names)"),
    ],
)
def test_bad_input_is_refused_in_one_line(data: Any, expected: str) -> None:
    message = complaint(lambda: FITTED.check(data))
    assert expected in message


def test_tables_that_cannot_be_compared_are_refused() -> None:
    values, labels = table(0)
    detector = DriftDetector().fit((values, labels))
    with_nan = np.where(values == values[3, 1], np.nan, values)
    for wrong, words in (
        (values[:, :3], "vectors of 4, the current ones vectors of 3"),
        (with_nan, "the current samples: vectors hold NaN"),
        (values.astype(str), "vectors of numbers"),
        (torch.from_numpy(values).to(torch.complex64), "vectors of numbers"),
    ):
        assert words in complaint(lambda: detector.check((wrong, labels)))  # noqa: B023


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
    images = torch.from_numpy(DIGITS.images[:7])
    floats = images.permute(0, 3, 1, 2) / 255
    encoding = OwnEncoder(network).encode(images)
    torch.testing.assert_close(encoding.features, network[:3](floats))
    torch.testing.assert_close(encoding.logits, network(floats))
    assert OwnEncoder(network).name == OwnEncoder(network).name
    other = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 5))
    assert OwnEncoder(network).name != OwnEncoder(other).name, "other weights, another encoder"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: AnyDriftDetector(encoder="efficient"), "did you mean 'efficientnet'"),
        (lambda: AnyDriftDetector(encoder="learner"), "belongs to a run; use one of random"),
        (lambda: AnyDriftDetector(encoder=3), "encoder must be a name (random, identity"),  # type: ignore[arg-type]
        (lambda: DriftDetector(encoder=LearnerEncoder(encoder_context())), "learns"),
        (
            lambda: AnyDriftDetector(encoder=lambda x: x.sum()).fit((IMAGES, LABELS)),
            "must turn 10 samples into an array (10, d)",
        ),
        (lambda: DriftDetector(detector="combine"), "did you mean 'combined'"),
        (lambda: DriftDetector(level=1), "between 0 and 1"),
        (lambda: DriftDetector(max_samples=4), "at least 5"),
        (lambda: FITTED.self_check(0), "at least 1 round"),
        (lambda: FITTED.self_check(3, max_samples=4), "at least 5; got 4"),
        (lambda: DriftDetector().self_check(3), "fit(reference) first"),
        (lambda: DriftDetector().fit((IMAGES, LABELS), class_names=["a", "a"]), "one name"),
        (lambda: DriftDetector().fit((IMAGES, LABELS + 5), class_names=["a"]), "label 5"),
        (lambda: DriftDetector().fit((IMAGES, LABELS - 1)), "-1 marks a sample without one"),
        (lambda: DriftDetector().fit((IMAGES, LABELS[:3])), "the reference: 3 labels for 10"),
        (
            lambda: DriftDetector(seed=2).load_state_dict(FITTED.state_dict()),
            "seed 0; this detector's encoder is random 8x8x1 32 32 seed 2",
        ),
    ],
)
def test_impossible_settings_are_refused_in_one_line(call: Any, words: str) -> None:
    assert words in complaint(call)


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
    assert report.scaling == "standard"
    assert report.blind_to is not None
    assert "image" not in report.blind_to
    loaded = DriftDetector()
    loaded.load_state_dict(detector.state_dict())
    assert loaded.check(table(5, moved=1.5)) == report
