"""The tests of all classes: as many random splits as a check needs, and no untested class is clear."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch

from driftwise.detect import ClassTests, Comparison, ComparisonOptions, class_tests
from driftwise.detect.two_sample import (
    TwoSampleTest,
    all_three,
    by_c2st,
    by_mmd,
    ks_on,
    merging,
)
from driftwise.stats.multiplicity import inverse_square
from driftwise.stats.permutation import Evidence, Pair
from driftwise.types import Encoding, Verdict

Sides = dict[int, tuple[Encoding, Encoding]]


class Counting:
    """Draws nothing: the first feature of a class's first current sample is its drift, 0 to 1."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        """(classes, splits) of every call"""

    def comparison(self, splits: int) -> Comparison:
        return Comparison(
            name="counting", measure=lambda encoding: encoding.features, test=self.test(splits)
        )

    def test(self, splits: int) -> TwoSampleTest:
        def run(pairs: Sequence[Pair], generator: torch.Generator) -> list[Evidence]:
            del generator
            self.asked.append((len(pairs), splits))
            drift = [float(now[0, 0]) for _, now in pairs]
            return [Evidence(by, max(1 - by, 1 / (1 + splits))) for by in drift]

        return TwoSampleTest(
            run=run,
            smallest_p_value=lambda kept, now: 1 / (1 + splits),
            splits=splits,
            with_splits=self.test,
        )


def sides(drifts: Sequence[float], samples: int = 30) -> Sides:
    """Classes whose entropy never drifts; features by `Counting`."""
    logits = torch.arange(samples).double()[:, None] * torch.tensor([1.0, -1.0])
    return {
        label: (
            Encoding(logits=logits, features=torch.zeros(samples, 1)),
            Encoding(logits=logits, features=torch.full((samples, 1), by)),
        )
        for label, by in enumerate(drifts)
    }


def one_drifts(classes: int) -> Sides:
    return sides([1.0] + [0.0] * (classes - 1))


def noise(classes: int, *, drifted: int = 0, seed: int = 0, samples: int = 20) -> Sides:
    """Features of which those of the first classes lie elsewhere."""
    draw = torch.Generator().manual_seed(seed)

    def encoding(by: float) -> Encoding:
        logits = torch.randn(samples, 4, generator=draw)
        return Encoding(logits=logits, features=torch.randn(samples, 3, generator=draw) + by)

    return {c: (encoding(0), encoding(9.0 * (c < drifted))) for c in range(classes)}


def flags(verdicts: list[Verdict]) -> list[bool | None]:
    return [each.drifted for each in verdicts]


@pytest.mark.parametrize("correction", ["holm", "bonferroni", "benjamini-hochberg"])
def test_a_lone_drift_is_found_among_many_classes(correction: str) -> None:
    options = ComparisonOptions(correction=correction)  # type: ignore[arg-type]
    found = ClassTests([Counting().comparison(1000)], options).verdicts(2, one_drifts(300))
    assert flags(found) == [True] + [False] * 299


def test_splits_are_as_many_as_half_of_the_strictest_threshold_asks_for() -> None:
    """Few classes need no more than their own; only a class close to drift gets more."""
    for classes, extra in ((10, []), (100, [(1, 2 * 100 * 20 - 1)])):
        counting = Counting()
        tests = ClassTests([counting.comparison(1000)], ComparisonOptions())
        tests.verdicts(2, one_drifts(classes))
        assert counting.asked == [(classes, 1000), *extra]


def test_a_stream_that_spends_its_level_gets_finer_p_values_from_check_to_check() -> None:
    counting = Counting()
    tests = ClassTests([counting.comparison(99)], ComparisonOptions(spending="inverse-square"))
    for task in (3, 9):
        assert tests.verdicts(task, one_drifts(10))[0].drifted
        level = inverse_square(0.05, task - 1)
        assert counting.asked[-1] == (1, math.ceil(2 * 10 / level) - 1)


@pytest.mark.parametrize("method", ["cauchy", "harmonic", "bonferroni"])
def test_drift_of_features_alone_is_found_by_the_combination_among_many_classes(
    method: str,
) -> None:
    three = [ks_on("entropy"), Counting().comparison(1000), Counting().comparison(1000)]
    tests = ClassTests(three, ComparisonOptions(), merge=merging(method))
    assert flags(tests.verdicts(2, one_drifts(80))) == [True] + [False] * 79


def test_where_the_most_splits_are_too_few_the_reason_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(class_tests, "MAX_SPLITS", 60 * 500)
    single = ClassTests([Counting().comparison(500)], ComparisonOptions())
    three = [ks_on("entropy"), Counting().comparison(500), Counting().comparison(500)]
    merged = ClassTests(three, ComparisonOptions(), merge=merging("cauchy"))
    for tests in (single, merged):
        found = tests.verdicts(2, one_drifts(60))
        assert flags(found) == [None] * 60, "the combination is not testable either"
        assert found[0].reason == (
            "too few permutations to reach the level among 60: compare fewer classes, or raise "
            "the detector's level or its permutations"
        )
    more = ClassTests([Counting().comparison(5000)], ComparisonOptions())
    assert more.verdicts(2, one_drifts(60))[0].drifted, "what was asked for is drawn"


@pytest.mark.parametrize("by", [by_mmd, by_c2st])
def test_a_stream_that_has_hardly_any_level_left_is_by_held_out_samples(
    by: Callable[[int], Comparison],
) -> None:
    """However many checks there have been: no permutation is drawn that would be one too few."""
    options = ComparisonOptions(spending="inverse-square")
    tests = ClassTests([by(99)], options, quick_splits=40_000)
    for task in (20, 300):
        found = tests.verdicts(task, noise(10, drifted=2, samples=60))
        assert flags(found) == [True] * 2 + [False] * 8
        assert found[0].p_value is not None
        assert found[0].p_value < 1e-8


def test_few_samples_are_permuted_where_too_few_could_be_held_out() -> None:
    options = ComparisonOptions(spending="inverse-square")
    few = {c: (kept[:12], now[:12]) for c, (kept, now) in noise(10, drifted=2).items()}
    found = ClassTests([by_mmd(99)], options, quick_splits=99).verdicts(5, few)
    assert flags(found) == [True] * 2 + [False] * 8


def test_few_samples_are_blamed_where_no_number_of_permutations_helps() -> None:
    few = {c: (kept[:5], now[:5]) for c, (kept, now) in noise(12).items()}
    found = ClassTests([by_mmd(99)], ComparisonOptions()).verdicts(2, few)
    assert {each.reason for each in found} == {
        "5 against 5 distinct samples cannot reach the level among 12"
    }


def test_drift_of_the_entropy_is_found_where_features_are_not_testable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(class_tests, "MAX_SPLITS", 1)
    given = sides([0.0] * 60)
    kept, now = given[0]
    given[0] = kept, Encoding(logits=now.logits * 0 + 1.0, features=now.features)
    three = [ks_on("entropy"), Counting().comparison(99), Counting().comparison(99)]
    tests = ClassTests(three, ComparisonOptions(), merge=merging("cauchy"))
    found = tests.verdicts(2, given)
    assert flags(found) == [True] + [None] * 59


def test_by_benjamini_hochberg_a_class_is_testable_where_the_others_may_pull_it_along() -> None:
    """Five against five samples get down to 2/252, which is more than a tenth of the level."""
    options = ComparisonOptions(correction="benjamini-hochberg")
    for drifted, expected in ((10, [True] * 10), (1, [None] * 10)):
        few = {c: (kept[:5], now[:5]) for c, (kept, now) in noise(10, drifted=drifted).items()}
        assert flags(ClassTests([by_mmd(999)], options).verdicts(2, few)) == expected


def test_p_values_that_are_made_finer_stay_valid() -> None:
    """At rates on both sides of what gets more digits."""
    test = by_mmd(19).refined(199)
    draw = torch.Generator().manual_seed(6)
    pairs = [
        (torch.randn(8, 2, generator=draw), torch.randn(8, 2, generator=draw)) for _ in range(1500)
    ]
    p_values = torch.tensor([each.p_value for each in test.test.run(pairs, draw)])
    assert p_values.min() < 1 / 20, "finer than the first p-values"
    for rate in (0.01, 0.03, 0.1, 0.15, 0.5):
        sigma = math.sqrt(rate * (1 - rate) / len(pairs))
        assert (p_values <= rate + 1e-9).double().mean() <= rate + 3 * sigma


def test_memory_stays_bounded_and_the_answer_the_same_however_many_splits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = noise(1, drifted=1)
    whole = ClassTests(all_three(999), ComparisonOptions(), merge=merging("cauchy")).verdicts(
        2, given
    )
    monkeypatch.setattr("driftwise.stats.permutation._MAX_CELLS", 40 * 100)
    blocks = ClassTests(all_three(999), ComparisonOptions(), merge=merging("cauchy")).verdicts(
        2, given
    )
    assert blocks == whole
