"""The laws of the catalogue's detectors: what each compares, and how evidence is merged."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from detect_builders import around
from run_tools import complaint

from driftwise import rng
from driftwise.config.registry import CATALOGUE
from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import HeldOutReference, Judge, RandomEncoder, Setting, TwoSampleDetector
from driftwise.detect import detectors as catalogue
from driftwise.detect.detectors import by_c2st, by_mmd
from driftwise.detect.two_sample import Comparison
from driftwise.stats import scores as score_functions
from driftwise.stats.alpha_spending import inverse_square
from driftwise.stats.c2st import c2st
from driftwise.stats.combine import COMBINATIONS
from driftwise.stats.ks import kolmogorov_smirnov
from driftwise.stats.mmd import mmd
from driftwise.types import Encoding, Samples

TASK = 3
ENCODER = RandomEncoder(around((8, 8, 1)), width=8, outputs=10)


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


def made(name: str, **options: Any) -> TwoSampleDetector:
    entry = CATALOGUE["detector"][name]
    setting = Setting(encoder=lambda: ENCODER, drifting=lambda _: (), seed=5)
    detector: TwoSampleDetector = entry.make(options=options).bind(setting)
    return detector


def reference() -> HeldOutReference:
    kept = HeldOutReference()
    for label, samples in KEPT.items():
        kept.renew(label, samples)
    return kept


def verdicts(name: str, *, task: int = TASK, **options: Any) -> list[Any]:
    monitored = Samples.concat(list(NOW.values()))
    return made(name, **options).check(task, (0, 1, 2), monitored, reference())


def encoded(label: int) -> tuple[Any, Any]:
    return ENCODER.encode(KEPT[label].images), ENCODER.encode(NOW[label].images)


def draw(name: str) -> torch.Generator:
    return rng.fork(5, "permutations", name, TASK)


@pytest.mark.parametrize("score", ["entropy", "margin", "energy", "max-probability"])
def test_ks_compares_the_score_that_was_chosen(score: str) -> None:
    measure = getattr(score_functions, score.replace("-", "_"))
    pairs = [tuple(measure(side.logits) for side in encoded(label)) for label in range(3)]
    expected = kolmogorov_smirnov(pairs)
    found = verdicts("ks", score=score)
    assert [(v.score, v.p_value) for v in found] == [tuple(each) for each in expected]
    assert all(v.p_values is None for v in found)


@pytest.mark.parametrize(("name", "test"), [("mmd", mmd), ("c2st", c2st)])
def test_feature_tests_compare_what_the_encoders_last_layer_reads(name: str, test: Any) -> None:
    pairs = [tuple(side.features for side in encoded(label)) for label in range(3)]
    expected = test(pairs, permutations=99, generator=draw(name))
    found = verdicts(name, permutations=99, correction="none")
    assert [(v.score, v.p_value) for v in found] == [tuple(each) for each in expected]
    assert found[1].drifted


@pytest.mark.parametrize("method", ["cauchy", "harmonic", "bonferroni"])
def test_the_combination_merges_the_single_tests_by_the_method_that_was_chosen(method: str) -> None:
    found = verdicts("combined", method=method, permutations=999)
    single = {
        "ks-entropy": verdicts("ks"),
        "mmd": verdicts("mmd", permutations=999),
        "c2st": verdicts("c2st", permutations=999),
    }
    for place, verdict in enumerate(found):
        by_test = {name: of[place].p_value for name, of in single.items()}
        assert verdict.p_values == by_test
        merged = float(COMBINATIONS[method](np.array(list(by_test.values()))))
        assert verdict.p_value == pytest.approx(merged)
        assert verdict.score == pytest.approx(-np.log10(merged))
    assert [v.drifted for v in found] == [False, True, False]


@pytest.mark.parametrize("name", ["mmd", "c2st", "combined"])
def test_a_check_is_repeatable_and_knows_nothing_of_checks_before_it(name: str) -> None:
    detector = made(name, permutations=99)
    monitored = Samples.concat(list(NOW.values()))
    first = detector.check(TASK, (0, 1, 2), monitored, reference())
    detector.check(TASK + 1, (0, 1), monitored, reference())
    assert detector.check(TASK, (0, 1, 2), monitored, reference()) == first
    assert made(name, permutations=99).check(TASK, (0, 1, 2), monitored, reference()) == first


def test_a_stream_that_spends_its_level_once_asks_more_of_later_checks() -> None:
    for task in (2, 3, 9):
        found = verdicts("ks", task=task, spending="inverse-square", correction="none")
        assert {v.threshold for v in found} == {inverse_square(0.05, task - 1)}


def test_an_encoder_with_one_output_has_no_certainty_to_compare() -> None:
    column = torch.rand(6, 1)
    one = Encoding(logits=column, features=column)
    for score in ("entropy", "margin", "max-probability"):
        measure = catalogue.ks_on(score).measure
        told = complaint(functools.partial(measure, one))
        assert told.startswith(f"the encoder has one output, whose {score} is always the same")
    assert torch.equal(catalogue.ks_on("energy").measure(one), -column[:, 0].double())


def test_impossible_permutations_get_one_line() -> None:
    told = complaint(lambda: catalogue.PermutationOptions(permutations=5))
    assert told == "the detector's permutations must be 19 to 1000000; got 5"


def test_several_comparisons_need_to_be_merged_and_one_must_not() -> None:
    two = [catalogue.ks_on("entropy"), catalogue.by_mmd(99)]
    with pytest.raises(ValueError, match="merged"):
        Judge(two, catalogue.KS())
    with pytest.raises(ValueError, match="merged"):
        Judge(two[:1], catalogue.KS(), merge=min)


@pytest.mark.parametrize("test", [by_mmd(999), by_c2st(999)], ids=lambda test: test.name)
def test_few_samples_have_few_splits_whatever_the_permutations(test: Comparison) -> None:
    assert test.smallest_p_value(5, 5) == 2 / 252
    assert test.smallest_p_value(5, 6) == 1 / 462
    assert test.smallest_p_value(50, 100) == 1 / 1000
