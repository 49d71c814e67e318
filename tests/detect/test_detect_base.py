"""The laws of the per-class detector: what is tested, what is not, and how often it errs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from detect_builders import around
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.nn.functional import cross_entropy

from driftwise import rng
from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import (
    ComparisonOptions,
    Encodes,
    HeldOutReference,
    Judge,
    LearnerEncoder,
    RandomEncoder,
    Setting,
    TwoSampleDetector,
)
from driftwise.detect.detectors import KSOptions, ks, ks_on
from driftwise.detect.grouping import KnownLabels
from driftwise.errors import RunFailure, UserError
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.models.inputs import to_input
from driftwise.stats.multiplicity import CORRECTIONS
from driftwise.streams import Stream, make_schedule
from driftwise.streams.split import cut
from driftwise.types import Encoding, Parts, Samples, Verdict


class PassOn:
    """An encoder whose logits are the samples themselves; counts what it is given."""

    fixed = True

    def __init__(self) -> None:
        self.calls: list[int] = []

    def encode(self, images: Tensor) -> Encoding:
        self.calls.append(len(images))
        return Encoding(logits=images, features=images)


def samples(values: Sequence[float], label: int, *, ids: Sequence[int] | None = None) -> Samples:
    """Samples of one class whose score is their only feature; no two classes share an id."""
    count = len(values)
    numbers = torch.arange(count) if ids is None else torch.tensor(ids, dtype=torch.int64)
    return Samples(
        images=torch.tensor(values, dtype=torch.float64).view(count, 1),
        labels=torch.full((count,), label),
        ids=numbers + 10_000 * label,
        concepts=torch.zeros(count, dtype=torch.int64),
    )


def reference_of(sides: dict[int, Samples]) -> HeldOutReference:
    reference = HeldOutReference()
    for label, kept in sides.items():
        reference.renew(label, kept)
    return reference


def detector(encoder: Encodes | None = None, **options: Any) -> TwoSampleDetector:
    """Compares the only feature of the samples."""
    return TwoSampleDetector(
        encoder or PassOn(),
        Judge(
            [replace(ks_on("entropy"), measure=lambda encoding: encoding.logits[:, 0])],
            KSOptions(**options),
        ),
    )


def check(
    sides: dict[int, tuple[Samples, Samples]], encoder: Encodes | None = None, **options: Any
) -> list[Verdict]:
    """Verdicts on classes that come as (reference, current)."""
    return detector(encoder, **options).check(
        4,
        tuple(sides),
        Samples.concat([current for _, current in sides.values()]),
        reference_of({label: kept for label, (kept, _) in sides.items()}),
    )


def shifted(label: int, by: float, count: int = 12) -> tuple[Samples, Samples]:
    """A reference, and current samples that lie `by` higher."""
    draw = rng.fork(label, "shifted", count)
    kept, current = torch.randn(2, count, generator=draw, dtype=torch.float64)
    return samples(kept.tolist(), label), samples((current + by).tolist(), label)


# What a verdict says


def test_every_class_gets_its_own_test_in_the_order_asked() -> None:
    sides = {7: shifted(7, 0.0), 2: shifted(2, 5.0), 4: shifted(4, 0.5)}
    verdicts = check(sides)
    assert [verdict.label for verdict in verdicts] == [7, 2, 4]
    for verdict in verdicts:
        kept, current = (side.images[:, 0] for side in sides[verdict.label])
        theirs = stats.ks_2samp(kept.numpy(), current.numpy())
        assert verdict.score == theirs.statistic
        assert verdict.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
        assert (verdict.task, verdict.num_reference, verdict.num_current) == (4, 12, 12)
        assert verdict.reason is None
    assert [verdict.drifted for verdict in verdicts] == [False, True, False]


@settings(deadline=None, max_examples=40)
@given(
    shifts=st.lists(st.sampled_from([0.0, 0.5, 0.8, 1.0, 1.2, 3.0]), min_size=1, max_size=6),
    correction=st.sampled_from(sorted(CORRECTIONS)),
    level=st.sampled_from([0.01, 0.05, 0.2]),
)
def test_drifted_is_exactly_where_the_p_value_meets_the_threshold_of_the_correction(
    shifts: list[float], correction: str, level: float
) -> None:
    verdicts = check(
        {label: shifted(label, by) for label, by in enumerate(shifts)},
        correction=correction,
        level=level,
    )
    p_values = [verdict.p_value for verdict in verdicts]
    assert None not in p_values
    threshold = CORRECTIONS[correction]([p for p in p_values if p is not None], level)
    for verdict in verdicts:
        assert verdict.p_value is not None
        assert verdict.threshold == threshold
        assert verdict.drifted is (verdict.p_value <= threshold)


def test_the_statistic_rule_goes_by_the_gap_alone() -> None:
    half = (samples([1, 2, 3, 4, 5, 6], 0), samples([4, 5, 6, 7, 8, 9], 0))  # gap 3/6, p 0.47
    for bound, drifted in ((0.49, True), (0.5, False)):
        (verdict,) = check({0: half}, max_statistic=bound)
        assert verdict.drifted is drifted
        assert (verdict.score, verdict.threshold) == (0.5, bound)


# What cannot be tested


@pytest.mark.parametrize(
    ("num_reference", "num_current", "few"),
    [(4, 9, "reference"), (9, 4, "current"), (0, 9, "reference"), (9, 0, "current")],
)
def test_a_class_with_too_few_samples_is_not_testable_which_is_not_no_drift(
    num_reference: int, num_current: int, few: str
) -> None:
    (verdict,) = check({3: (samples([0] * num_reference, 3), samples([99] * num_current, 3))})
    assert verdict.drifted is None
    assert (verdict.num_reference, verdict.num_current) == (num_reference, num_current)
    assert verdict.reason == f"fewer than 5 distinct {few} samples"
    assert (verdict.score, verdict.p_value, verdict.threshold) == (None, None, None)


def test_repeats_of_a_sample_do_not_count_as_samples() -> None:
    repeated = samples([1.0] * 50, 0, ids=[1, 2, 3, 4, 1] * 10)
    fresh = samples(range(50), 0)
    for sides in ((repeated, fresh), (fresh, repeated)):
        (verdict,) = check({0: sides})
        assert verdict.drifted is None
        assert min(verdict.num_reference, verdict.num_current) == 4


def test_repeats_on_either_side_change_no_verdict() -> None:
    plain = {0: shifted(0, 0.9), 1: shifted(1, 0.0)}
    often = {
        label: (Samples.concat([kept] * 3), Samples.concat([current, current[2:5]]))
        for label, (kept, current) in plain.items()
    }
    assert check(often) == check(plain)


def test_as_many_samples_as_asked_for_are_enough() -> None:
    (verdict,) = check({0: shifted(0, 9.0, count=5)}, min_rows=5)
    assert verdict.drifted is True


def test_untestable_classes_do_not_weigh_on_the_correction_of_the_others() -> None:
    alone = check({0: shifted(0, 1.0)})
    crowd = check(
        {0: shifted(0, 1.0), **{c: (samples([], c), samples([1], c)) for c in range(1, 9)}}
    )
    assert crowd[0] == alone[0]
    assert [verdict.drifted for verdict in crowd[1:]] == [None] * 8


def test_a_memory_that_has_seen_nothing_makes_classes_untestable_not_undrifted() -> None:
    memory = ReplayBuffer(10, policy=POLICIES["reservoir"](), seed=0)
    (verdict,) = detector().check(2, [0], samples(range(9), 0), memory)
    assert verdict.drifted is None


# What it costs and touches


def test_one_check_is_one_encoding_pass_over_the_distinct_samples() -> None:
    encoder = PassOn()
    repeated = Samples.concat([shifted(1, 0.0)[0]] * 2)
    check(
        {0: shifted(0, 0.0), 1: (repeated, repeated), 2: (samples([1], 2), samples(range(30), 2))},
        encoder,
    )
    assert encoder.calls == [4 * 12 + 31]
    detector(encoder).check(4, (5,), samples([], 5), HeldOutReference())
    assert encoder.calls == [4 * 12 + 31], "no samples, nothing to encode"


def test_scores_that_are_not_finite_stop_the_run() -> None:
    with pytest.raises(RunFailure, match="scores are not finite"):
        check({0: (samples([float("nan")] * 5, 0, ids=range(5)), samples(range(5), 0))})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"level": 0.0}, "level must lie between 0 and 1; got 0.0"),
        ({"level": 1.0}, "level must lie between 0 and 1; got 1.0"),
        ({"min_rows": 1}, "min_rows must be at least 2; got 1"),
        ({"min_rows": 0, "of": KSOptions}, "min_rows must be at least 1; got 0"),
        ({"correction": "hol"}, "unknown correction 'hol'; did you mean 'holm'?"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], words: str) -> None:
    kind = options.pop("of", ComparisonOptions)
    with pytest.raises(UserError) as caught:
        kind(**options)
    assert words in str(caught.value)


@pytest.mark.parametrize("calibration", ["test", "asymptotic"])
def test_the_published_ks_tests_a_class_with_one_reference_sample(calibration: str) -> None:
    spread = torch.linspace(0, 1, 1000).tolist()
    sides = {
        0: (samples([9.0], 0, ids=[5000]), samples(spread, 0)),
        1: (samples([0.5], 1, ids=[5000]), samples(spread, 1)),
    }
    outside, inside = check(sides, min_rows=1, calibration=calibration, correction="none")
    assert (outside.drifted, inside.drifted) == (True, False)
    assert outside.share is None, "one sample cannot say how much of a class has moved"


# How often it errs


class Remembered:
    """A random encoder that has seen every digit once; samples are their numbers in the data set."""

    fixed = True

    def __init__(self) -> None:
        digits = torch.from_numpy(load_digits().images)
        self._encoding = RandomEncoder(around(), width=8, outputs=10).encode(digits)

    def encode(self, images: Tensor) -> Encoding:
        return self._encoding[images[:, 0].long()]


def papers(encoder: Encodes, **options: Any) -> TwoSampleDetector:
    return ks(Setting(encoder=lambda: encoder, drifting=lambda _: ()), KSOptions(**options))


def test_false_alarms_stay_at_their_level_when_nothing_drifts() -> None:
    num_checks, classes, per_side = 400, range(6), 20
    labels = torch.from_numpy(load_digits().labels)
    of_class = [(labels == label).nonzero().squeeze(1) for label in classes]
    draw = rng.fork(0, "false-alarms")
    holm = papers(Remembered())
    alarms, p_values = 0, []
    for _ in range(num_checks):
        reference, monitored = HeldOutReference(), []
        for label in classes:  # both sides drawn anew, and disjoint
            mixed = of_class[label][torch.randperm(len(of_class[label]), generator=draw)]
            kept, current = mixed[:per_side], mixed[per_side : 2 * per_side]
            reference.renew(label, samples(kept.tolist(), label, ids=kept.tolist()))
            monitored.append(samples(current.tolist(), label, ids=current.tolist()))
        verdicts = holm.check(2, classes, Samples.concat(monitored), reference)
        alarms += any(verdict.drifted for verdict in verdicts)
        p_values += [verdict.p_value or 0.0 for verdict in verdicts]

    # At a true rate of 5 % one in a thousand such counts of 400 would exceed 35.
    bound = stats.binom.ppf(0.999, num_checks, 0.05)
    assert bound == 35
    assert 0 < alarms <= bound
    single = sum(p_value <= 0.05 for p_value in p_values) / len(p_values)
    assert 0.02 < single < 0.06  # one class at a time: the level, less what steps of 1/20 cost
    families = [p_values[i : i + 6] for i in range(0, len(p_values), 6)]
    assert sum(min(family) <= 0.05 for family in families) > bound  # why there is a correction


def digits_stream(transform: str, seed: int) -> Stream:
    """Classes 0 to 3 drift at task 3 of 5."""
    digits = load_digits()
    pieces = cut(digits.labels, (0.4, 0.2, 0.2, 0.2), rng.fork(seed, "parts"))
    names = ("train", "monitored", "reference", "test")
    return Stream(
        digits,
        Parts(**dict(zip(names, pieces, strict=True))),
        make_schedule(
            [(2 * i, 2 * i + 1) for i in range(5)],
            num_drifts=1,
            transform=transform,
            severity=5,
            seed=seed,
        ),
        batch_size=10,
        seed=seed,
    )


def trained_classifier(stream: Stream) -> LearnerEncoder:
    """Softmax regression on the undrifted training samples of all classes."""
    train = stream.samples("train", range(10), 1)
    x = to_input(train.images).flatten(1)
    weight = torch.zeros(64, 10, requires_grad=True)
    for _ in range(60):
        (gradient,) = torch.autograd.grad(cross_entropy(x @ weight, train.labels), weight)
        weight = (weight - gradient).detach().requires_grad_()
    fitted = weight.detach()

    def encode(images: Tensor) -> Encoding:
        features = to_input(images).flatten(1)
        return Encoding(logits=features @ fitted, features=features)

    return LearnerEncoder(around(learner=encode))


def verdicts_at(stream: Stream, task: int) -> list[Verdict]:
    """On classes 0 to 7, compared with how they looked at first."""
    reference = reference_of({c: stream.samples("reference", [c], 1) for c in range(8)})
    current = stream.samples("monitored", range(8), task)
    return papers(trained_classifier(stream)).check(task, range(8), current, reference)


@pytest.mark.parametrize("seed", range(4))
def test_a_permutation_of_all_pixels_is_found_and_classes_that_stay_are_left_alone(
    seed: int,
) -> None:
    verdicts = verdicts_at(digits_stream("permutation", seed), 3)
    assert [verdict.drifted for verdict in verdicts] == [True] * 4 + [False] * 4


def test_identity_gives_the_very_verdicts_of_no_drift() -> None:
    stream = digits_stream("identity", 0)
    assert stream.samples("monitored", [0], 3).concepts[0] != 0
    before, after = verdicts_at(stream, 2), verdicts_at(stream, 3)
    assert [(v.score, v.p_value) for v in after] == [(v.score, v.p_value) for v in before]


def test_silence_that_could_not_be_otherwise_is_not_called_no_drift() -> None:
    """Five against five samples reach p = 0.0079 at best: never enough among seven classes."""

    def apart(count: int) -> dict[int, tuple[Samples, Samples]]:
        return {c: (samples([0, 1, 2, 3, 4], c), samples([5, 6, 7, 8, 9], c)) for c in range(count)}

    assert [verdict.drifted for verdict in check(apart(6))] == [True] * 6
    many = check(apart(7))
    assert [verdict.drifted for verdict in many] == [None] * 7
    assert all("cannot reach the level among 7" in (verdict.reason or "") for verdict in many)
    assert [v.drifted for v in check(apart(7), correction="none")] == [True] * 7


# What a change costs


@pytest.mark.parametrize("known", ["given", "predicted", "unknown"])
def test_a_class_without_a_reference_takes_its_samples_and_costs_the_others_nothing(
    known: KnownLabels,
) -> None:
    """The learner is sure and right about all three classes; nobody kept samples of the last."""
    labels = torch.tensor([0] * 8 + [1] * 16 + [2] * 12)
    images = 9.0 * torch.eye(3)[labels] + 0.01 * torch.arange(36.0)[:, None]
    ids = torch.arange(36)
    now = Samples(images=images, labels=labels, ids=ids, concepts=torch.zeros_like(ids))
    monitored = now if known == "given" else replace(now, labels=torch.full_like(labels, -1))
    watcher = TwoSampleDetector(
        LearnerEncoder(around()), Judge([ks_on("entropy")], ComparisonOptions()), labels=known
    )
    reference = reference_of({c: now.of_class(c) for c in (0, 1)})
    harms = {v.label: v.harm_unlabelled for v in watcher.check(2, (0, 1, 2), monitored, reference)}
    assert [harms[c] for c in (0, 1)] == pytest.approx([0, 0], abs=0.1)
    assert harms[2] is None
