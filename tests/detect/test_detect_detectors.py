"""Two-sample detectors: what is compared, what is not testable, and how often they err."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from detect_builders import encoder_context
from hypothesis import given, settings
from hypothesis import strategies as st
from run_tools import complaint
from scipy import stats
from torch import Tensor
from torch.nn.functional import cross_entropy

from driftwise import rng
from driftwise.config.registry import CATALOGUE
from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import (
    ClassTests,
    ComparisonOptions,
    DetectorContext,
    Encodes,
    FingerprintReference,
    HeldOutReference,
    LearnerEncoder,
    RandomEncoder,
    TwoSampleDetector,
)
from driftwise.detect.base import KnownLabels
from driftwise.detect.detectors import KS, WHOLE, PermutationOptions, group_of_samples
from driftwise.detect.two_sample import by_c2st, by_mmd, ks_on
from driftwise.errors import RunFailure
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.models.inputs import to_input
from driftwise.stats import scores as score_functions
from driftwise.stats.c2st import c2st
from driftwise.stats.combine import COMBINATIONS
from driftwise.stats.ks import kolmogorov_smirnov
from driftwise.stats.mmd import mmd
from driftwise.stats.multiplicity import CORRECTIONS, inverse_square
from driftwise.streams import Stream, make_schedule
from driftwise.streams.split import cut
from driftwise.types import Encoding, Parts, Samples, Verdict

Sides = dict[int, tuple[Samples, Samples]]
"""reference and current samples by class"""


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


def reference_of(kept: dict[int, Samples]) -> HeldOutReference:
    reference = HeldOutReference()
    for label, of_class in kept.items():
        reference.renew(label, of_class)
    return reference


def detector(encoder: Encodes | None = None, **options: Any) -> TwoSampleDetector:
    """Compares the only feature of the samples."""
    comparison = replace(ks_on("entropy"), measure=lambda encoding: encoding.logits[:, 0])
    return TwoSampleDetector(encoder or PassOn(), ClassTests([comparison], KS(**options)))


def check(sides: Sides, encoder: Encodes | None = None, **options: Any) -> list[Verdict]:
    current = Samples.concat([current for _, current in sides.values()])
    reference = reference_of({label: kept for label, (kept, _) in sides.items()})
    return detector(encoder, **options).check(4, tuple(sides), current, reference)


def shifted(label: int, by: float, count: int = 12) -> tuple[Samples, Samples]:
    """A reference, and current samples that lie `by` higher."""
    draw = rng.fork(label, "shifted", count)
    kept, current = torch.randn(2, count, generator=draw, dtype=torch.float64)
    return samples(kept.tolist(), label), samples((current + by).tolist(), label)


# Verdicts


def test_every_class_gets_its_own_test_in_the_order_asked() -> None:
    sides = {7: shifted(7, 0.0), 2: shifted(2, 5.0), 4: shifted(4, 0.5)}
    verdicts = check(sides)
    assert [verdict.label for verdict in verdicts] == [7, 2, 4]
    for verdict in verdicts:
        kept, current = (side.images[:, 0] for side in sides[verdict.label])
        theirs = stats.ks_2samp(kept.numpy(), current.numpy())
        # The newest scipy (1.18) rounds the last digit in another way.
        assert verdict.score == pytest.approx(theirs.statistic, rel=1e-12)
        assert verdict.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
        assert (verdict.task, verdict.num_reference, verdict.num_current) == (4, 12, 12)
        assert verdict.reason is None
    assert [verdict.drifted for verdict in verdicts] == [False, True, False]


@settings(deadline=None, max_examples=25)
@given(
    shifts=st.lists(st.sampled_from([0.0, 0.5, 0.8, 1.0, 1.2, 3.0]), min_size=1, max_size=6),
    correction=st.sampled_from(sorted(CORRECTIONS)),
    level=st.sampled_from([0.01, 0.05, 0.2]),
)
def test_drifted_is_exactly_where_the_p_value_meets_the_threshold_of_the_correction(
    shifts: list[float], correction: str, level: float
) -> None:
    sides = {label: shifted(label, by) for label, by in enumerate(shifts)}
    verdicts = check(sides, correction=correction, level=level)
    p_values = [verdict.p_value for verdict in verdicts if verdict.p_value is not None]
    threshold = CORRECTIONS[correction](p_values, level)
    for verdict, p_value in zip(verdicts, p_values, strict=True):
        assert verdict.threshold == threshold
        assert verdict.drifted is (p_value <= threshold)


def test_the_statistic_rule_goes_by_the_gap_alone() -> None:
    half = (samples([1, 2, 3, 4, 5, 6], 0), samples([4, 5, 6, 7, 8, 9], 0))  # gap 3/6, p 0.47
    for bound, drifted in ((0.49, True), (0.5, False)):
        (verdict,) = check({0: half}, max_statistic=bound)
        assert verdict.drifted is drifted
        assert (verdict.score, verdict.threshold) == (0.5, bound)


# What is not testable


@pytest.mark.parametrize(("sizes", "few"), [((4, 9), "reference"), ((9, 0), "current")])
def test_a_class_with_too_few_samples_is_not_testable_which_is_not_no_drift(
    sizes: tuple[int, int], few: str
) -> None:
    (verdict,) = check({3: (samples([0] * sizes[0], 3), samples([99] * sizes[1], 3))})
    assert verdict.kind == "not testable"
    assert verdict.kind_evidence == {
        "missing_reference": 20 - sizes[0],
        "missing_current": 20 - sizes[1],
    }
    verdict = replace(verdict, kind=None, kind_evidence=None, stream_kind=None)
    assert verdict == Verdict(
        task=4,
        label=3,
        drifted=None,
        num_reference=sizes[0],
        num_current=sizes[1],
        reason=f"fewer than 5 distinct {few} samples",
    )
    (enough,) = check({0: shifted(0, 9.0, count=5)}, min_rows=5)
    assert enough.drifted


def test_an_empty_reference_makes_classes_untestable_not_undrifted() -> None:
    memory = ReplayBuffer(10, policy=POLICIES["reservoir"](), seed=0)
    prints = FingerprintReference(RandomEncoder(encoder_context()), size=5, seed=0)
    for reference in (memory, prints):
        (verdict,) = detector().check(2, [0], samples(range(9), 0), reference)
        assert (verdict.drifted, verdict.num_current) == (None, 9)


def test_repeats_of_a_sample_count_once() -> None:
    repeated = samples([1.0] * 50, 0, ids=[1, 2, 3, 4, 1] * 10)
    fresh = samples(range(50), 0)
    for sides in ((repeated, fresh), (fresh, repeated)):
        (verdict,) = check({0: sides})
        assert verdict.drifted is None
        assert min(verdict.num_reference, verdict.num_current) == 4
    plain = {0: shifted(0, 0.9), 1: shifted(1, 0.0)}
    often = {
        label: (Samples.concat([kept] * 3), Samples.concat([current, current[2:5]]))
        for label, (kept, current) in plain.items()
    }
    assert check(often) == check(plain)


def test_untestable_classes_do_not_weigh_on_the_correction_of_the_others() -> None:
    alone = check({0: shifted(0, 1.0)})
    crowd = check(
        {0: shifted(0, 1.0), **{c: (samples([], c), samples([1], c)) for c in range(1, 9)}}
    )
    assert crowd[0] == alone[0]
    assert [verdict.drifted for verdict in crowd[1:]] == [None] * 8


def test_a_class_that_could_not_have_been_flagged_is_not_called_undrifted() -> None:
    """Five against five samples reach p = 0.0079 at best: never enough among seven classes."""

    def apart(count: int) -> Sides:
        return {c: (samples([0, 1, 2, 3, 4], c), samples([5, 6, 7, 8, 9], c)) for c in range(count)}

    assert [verdict.drifted for verdict in check(apart(6))] == [True] * 6
    many = check(apart(7))
    assert [verdict.drifted for verdict in many] == [None] * 7
    assert all("cannot reach the level among 7" in (verdict.reason or "") for verdict in many)
    assert [v.drifted for v in check(apart(7), correction="none")] == [True] * 7


@pytest.mark.parametrize("calibration", ["test", "asymptotic"])
def test_the_published_ks_tests_a_class_with_one_reference_sample(calibration: str) -> None:
    spread = torch.linspace(0, 1, 1000).tolist()
    sides = {
        0: (samples([9.0], 0, ids=[5000]), samples(spread, 0)),
        1: (samples([0.5], 1, ids=[5000]), samples(spread, 1)),
    }
    outside, inside = check(sides, min_rows=1, calibration=calibration, correction="none")
    assert (outside.drifted, inside.drifted) == (True, False)
    assert outside.share is None, "one sample is too few to estimate a fraction"


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
    with pytest.raises(RunFailure, match="values that are not finite"):
        check({0: (samples([float("nan")] * 5, 0, ids=range(5)), samples(range(5), 0))})


ONE_OUTPUT = Encoding(logits=torch.rand(6, 1), features=torch.rand(6, 1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ComparisonOptions(level=0.0), "level must lie between 0 and 1; got 0.0"),
        (lambda: ComparisonOptions(min_rows=1), "min_rows must be at least 2; got 1"),
        (lambda: KS(min_rows=0), "min_rows must be at least 1; got 0"),
        (lambda: ComparisonOptions(correction="hol"), "unknown correction 'hol'; did you mean"),  # type: ignore[arg-type]
        (lambda: ComparisonOptions(spending="no"), "unknown spending 'no'"),  # type: ignore[arg-type]
        (lambda: ComparisonOptions(calibration="tes"), "unknown calibration 'tes'"),  # type: ignore[arg-type]
        (lambda: PermutationOptions(permutations=5), "permutations must be 19 to 1000000; got 5"),
        (lambda: by_mmd(99).calibrated("asymptotic"), "mmd has no calibration asymptotic"),
        (lambda: ks_on("entropy").measure(ONE_OUTPUT), "one output, whose entropy is always the"),
    ],
)
def test_impossible_options_are_refused(call: Any, words: str) -> None:
    assert words in complaint(call)


def test_a_single_output_has_an_energy_and_may_grow() -> None:
    assert torch.equal(ks_on("energy").measure(ONE_OUTPUT), -ONE_OUTPUT.logits[:, 0].double())
    assert ks_on("entropy", grows=True).measure(ONE_OUTPUT).tolist() == [0] * 6


def test_several_comparisons_need_to_be_merged_and_one_must_not() -> None:
    two = [ks_on("entropy"), by_mmd(99)]
    for comparisons, merge in ((two, None), (two[:1], min)):
        with pytest.raises(ValueError, match="merged"):
            ClassTests(comparisons, KS(), merge=merge)


# Which samples are compared with which

LABELS = torch.tensor([2, 0, 2, 5])
UNKNOWN = torch.full((4,), -1)
LOGITS = torch.tensor(
    [
        [0.0, 9.0, 1.0, 0.0, 0.0, 2.0],
        [3.0, 0.0, 1.0, 0.0, 0.0, 2.0],
        [0.0, 0.0, 4.0, 9.0, 9.0, 2.0],
        [0.0, 0.0, 1.0, 9.0, 9.0, 0.5],
    ]
)


def test_groups_are_labels_predictions_among_known_classes_or_one() -> None:
    assert group_of_samples(LABELS, LOGITS, [0, 2, 5], "given").tolist() == LABELS.tolist()
    assert group_of_samples(UNKNOWN, LOGITS, [5, 0, 2], "predicted").tolist() == [5, 0, 2, 2]
    # A class without an output is never predicted.
    narrow = group_of_samples(UNKNOWN, LOGITS[:, :3], [5, 0, 2], "predicted")
    assert narrow.tolist() == [2, 0, 2, 2]
    assert group_of_samples(LABELS, None, [0, 2, 5], "unknown").tolist() == [WHOLE] * 4
    message = complaint(lambda: group_of_samples(UNKNOWN, LOGITS[:, :3], [4, 5], "predicted"))
    assert message.startswith("the learner has 3 outputs, none of them for the classes 4, 5")
    with pytest.raises(ValueError, match="predictions that were not made"):
        group_of_samples(UNKNOWN, None, [0], "predicted")


@pytest.mark.parametrize("known", ["given", "predicted", "unknown"])
def test_a_class_without_a_reference_takes_its_samples_and_costs_the_others_nothing(
    known: KnownLabels,
) -> None:
    """The learner is sure and right about all three classes; the last has no reference."""
    labels = torch.tensor([0] * 8 + [1] * 16 + [2] * 12)
    images = 9.0 * torch.eye(3)[labels] + 0.01 * torch.arange(36.0)[:, None]
    ids = torch.arange(36)
    now = Samples(images=images, labels=labels, ids=ids, concepts=torch.zeros_like(ids))
    monitored = now if known == "given" else replace(now, labels=torch.full_like(labels, -1))
    tests = ClassTests([ks_on("entropy")], ComparisonOptions())
    by_learner = TwoSampleDetector(LearnerEncoder(encoder_context()), tests, labels=known)
    reference = reference_of({c: now.of_class(c) for c in (0, 1)})
    harms = [v.harm_unlabelled for v in by_learner.check(2, (0, 1, 2), monitored, reference)]
    assert harms[:2] == pytest.approx([0, 0], abs=0.1)
    assert harms[2] is None
    prints = FingerprintReference(RandomEncoder(encoder_context()), size=5, seed=0)
    if known == "predicted":
        message = complaint(lambda: by_learner.check(2, (0, 1, 2), monitored, prints))
        assert "a fingerprint holds no images" in message


def test_groups_of_predicted_classes_are_compared_under_one_class_mix() -> None:
    """Class 1 is taken for class 0 half of the time, and comes four times as often as before."""
    draw = rng.fork(0, "mix")

    def side(counts: tuple[int, int], start: int) -> Samples:
        labels = torch.tensor([0] * counts[0] + [1] * counts[1])
        taken_for_1 = labels * (torch.rand(len(labels), generator=draw) < 0.5)
        logits = torch.eye(2)[taken_for_1] * (2 + 4 * labels[:, None])
        images = logits + torch.rand(len(labels), 2, generator=draw)
        ids = torch.arange(start, start + len(labels))
        return Samples(images=images, labels=labels, ids=ids, concepts=torch.zeros_like(ids))

    kept, now = side((100, 100), 0), side((50, 200), 1000)
    reference = reference_of({c: kept.of_class(c) for c in (0, 1)})
    monitored = replace(now, labels=torch.full_like(now.labels, -1))
    drifted = []
    for usual in (None, lambda _: 1.0):
        by_mix = TwoSampleDetector(
            LearnerEncoder(encoder_context()),
            ClassTests([ks_on("entropy")], ComparisonOptions()),
            labels="predicted",
            usual=usual,
        )
        drifted.append([v.drifted for v in by_mix.check(2, (0, 1), monitored, reference)])
    assert drifted == [[True, False], [False, False]]


def test_classes_without_labels_are_untestable_together() -> None:
    tests = ClassTests([ks_on("entropy")], ComparisonOptions())
    whole = TwoSampleDetector(PassOn(), tests, labels="unknown")
    assert whole.obstacles(2, {0: (3, 3), 1: (3, 3)}) == {}
    reason = "fewer than 5 distinct reference samples"
    assert whole.obstacles(2, {0: (2, 3), 1: (2, 3)}) == {0: reason, 1: reason}
    assert detector().obstacles(2, {0: (3, 9), 1: (9, 9)}) == {0: reason}


# The detectors of the catalogue

TASK = 3
ENCODER = RandomEncoder(encoder_context((8, 8, 1)), width=8, outputs=10)


def digits(label: int, start: int, count: int, *, inverted: bool = False) -> Samples:
    """Samples of a digit; inverted ones have drifted."""
    data = load_digits()
    # Shuffled: the data set has its writers one after the other, which is drift of its own.
    of_class = torch.from_numpy(np.flatnonzero(data.labels == label))
    shuffled = of_class[torch.randperm(len(of_class), generator=rng.fork(label, "digits"))]
    ids = shuffled[start : start + count]
    images = torch.from_numpy(data.images)[ids]
    return Samples(
        images=255 - images if inverted else images,
        labels=torch.full((count,), label),
        ids=ids,
        concepts=torch.full((count,), int(inverted)),
    )


KEPT = {label: digits(label, 0, 25) for label in range(3)}
NOW = {label: digits(label, 60, 40, inverted=label == 1) for label in range(3)}
MONITORED = Samples.concat(list(NOW.values()))


def made(name: str, **options: Any) -> TwoSampleDetector:
    context = DetectorContext(encoder=lambda: ENCODER, drifting=lambda _: (), seed=5)
    detector: TwoSampleDetector = CATALOGUE["detector"][name].make(options=options).bind(context)
    return detector


def verdicts(name: str, *, task: int = TASK, **options: Any) -> list[Any]:
    return made(name, **options).check(task, (0, 1, 2), MONITORED, reference_of(KEPT))


def pairs_of(measure: Any) -> list[Any]:
    return [
        tuple(measure(ENCODER.encode(side[label].images)) for side in (KEPT, NOW))
        for label in range(3)
    ]


@pytest.mark.parametrize("score", ["entropy", "margin", "energy", "max-probability"])
def test_ks_compares_the_score_that_was_chosen(score: str) -> None:
    function = getattr(score_functions, score.replace("-", "_"))
    expected = kolmogorov_smirnov(pairs_of(lambda encoding: function(encoding.logits)))
    found = verdicts("ks", score=score)
    assert [(v.score, v.p_value) for v in found] == [tuple(each) for each in expected]
    assert all(v.p_values is None for v in found)


@pytest.mark.parametrize(("name", "test"), [("mmd", mmd), ("c2st", c2st)])
def test_feature_tests_compare_the_inputs_of_the_encoders_last_layer(name: str, test: Any) -> None:
    draw = rng.fork(5, "permutations", name, TASK)
    expected = test(pairs_of(lambda each: each.features), permutations=99, generator=draw)
    found = verdicts(name, permutations=99, correction="none")
    assert [(v.score, v.p_value) for v in found] == [tuple(each) for each in expected]
    assert found[1].drifted


@functools.cache
def single_tests() -> dict[str, list[Any]]:
    return {
        "ks-entropy": verdicts("ks"),
        "mmd": verdicts("mmd", permutations=999),
        "c2st": verdicts("c2st", permutations=999),
    }


@pytest.mark.parametrize("method", ["cauchy", "harmonic", "bonferroni"])
def test_the_combination_merges_the_single_tests_by_the_method_that_was_chosen(method: str) -> None:
    found = verdicts("combined", method=method, permutations=999)
    for place, verdict in enumerate(found):
        by_test = {name: of[place].p_value for name, of in single_tests().items()}
        assert verdict.p_values == by_test
        merged = float(COMBINATIONS[method](np.array(list(by_test.values()))))
        assert verdict.p_value == pytest.approx(merged)
        assert verdict.score == pytest.approx(-np.log10(merged))
    assert [v.drifted for v in found] == [False, True, False]


@pytest.mark.parametrize("name", ["mmd", "combined"])
def test_a_check_is_repeatable_and_independent_of_checks_before_it(name: str) -> None:
    repeated = made(name, permutations=99)
    first = repeated.check(TASK, (0, 1, 2), MONITORED, reference_of(KEPT))
    repeated.check(TASK + 1, (0, 1), MONITORED, reference_of(KEPT))
    assert repeated.check(TASK, (0, 1, 2), MONITORED, reference_of(KEPT)) == first
    assert verdicts(name, permutations=99) == first


def test_a_stream_that_spends_its_level_once_asks_more_of_later_checks() -> None:
    for task in (2, 3, 9):
        found = verdicts("ks", task=task, spending="inverse-square", correction="none")
        assert {v.threshold for v in found} == {inverse_square(0.05, task - 1)}


@pytest.mark.parametrize("comparison", [by_mmd(999), by_c2st(999)], ids=lambda each: each.name)
def test_few_samples_have_few_splits_whatever_the_permutations(comparison: Any) -> None:
    smallest = comparison.test.smallest_p_value
    assert (smallest(5, 5), smallest(5, 6), smallest(50, 100)) == (2 / 252, 1 / 462, 1 / 1000)


# How often they err


class Remembered:
    """A random encoder that has encoded every digit once; samples are their numbers."""

    fixed = True

    def __init__(self) -> None:
        digits = torch.from_numpy(load_digits().images)
        self._encoding = RandomEncoder(encoder_context(), width=8, outputs=10).encode(digits)

    def encode(self, images: Tensor) -> Encoding:
        return self._encoding[images[:, 0].long()]


def papers(encoder: Encodes) -> TwoSampleDetector:
    return KS().bind(DetectorContext(encoder=lambda: encoder, drifting=lambda _: ()))


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
        found = holm.check(2, classes, Samples.concat(monitored), reference)
        alarms += any(verdict.drifted for verdict in found)
        p_values += [verdict.p_value or 0.0 for verdict in found]

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
    tasks = [(2 * i, 2 * i + 1) for i in range(5)]
    schedule = make_schedule(tasks, num_drifts=1, transform=transform, severity=5, seed=seed)
    parts = Parts(**dict(zip(names, pieces, strict=True)))
    return Stream(digits, parts, schedule, batch_size=10, seed=seed)


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

    return LearnerEncoder(encoder_context(learner=encode))


def verdicts_at(stream: Stream, task: int) -> list[Verdict]:
    """On classes 0 to 7, compared with their first concept."""
    reference = reference_of({c: stream.samples("reference", [c], 1) for c in range(8)})
    current = stream.samples("monitored", range(8), task)
    return papers(trained_classifier(stream)).check(task, range(8), current, reference)


@pytest.mark.parametrize("seed", range(3))
def test_a_permutation_of_all_pixels_is_found_and_stable_classes_are_left_alone(seed: int) -> None:
    found = verdicts_at(digits_stream("permutation", seed), 3)
    assert [verdict.drifted for verdict in found] == [True] * 4 + [False] * 4


def test_identity_gives_the_very_verdicts_of_no_drift() -> None:
    stream = digits_stream("identity", 0)
    assert stream.samples("monitored", [0], 3).concepts[0] != 0
    before, after = verdicts_at(stream, 2), verdicts_at(stream, 3)
    assert [(v.score, v.p_value) for v in after] == [(v.score, v.p_value) for v in before]
