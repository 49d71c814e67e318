"""Sequential evidence: exact while nothing drifts, soon where something does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, permutations
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from run_tools import complaint
from same_state import same
from scipy import stats
from torch import Tensor, nn

from driftwise import rng
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.detect import DetectorContext, FingerprintReference, HeldOutReference
from driftwise.detect.sequential import MAX_KEPT, Sequential, SequentialDetector
from driftwise.errors import RunFailure
from driftwise.runs import checkpoint
from driftwise.stats.e_values import EPSILONS, EProcess, left_after, share_of
from driftwise.stats.rank_p_values import TEACH_EVERY, Ranker
from driftwise.types import Encoding, Samples, Verdict

# E-values


def literal_e_value(p_values: list[float], *, both_ends: bool) -> float:
    """The formula, sum by sum: weights that begin at each sample, in equal parts on each calibrator."""
    ends = [p_values, [1 - p for p in p_values]] if both_ends else [p_values]
    evidence = [(eps, end) for end in ends for eps in EPSILONS]
    total = 1 - sum(share_of(j + 1) for j in range(len(p_values)))
    for j in range(len(p_values)):
        for eps, end in evidence:
            gains = math.prod(eps * p ** (eps - 1) for p in end[j:])
            total += share_of(j + 1) * gains / len(evidence)
    return total


def e_process_of(p_values: list[float], *, both_ends: bool) -> EProcess:
    evidence = EProcess(both_ends=both_ends)
    for sample, p_value in enumerate(p_values):
        evidence.update(p_value, sample)
    return evidence


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0.001, 0.999), max_size=25), st.booleans())
def test_the_recursion_is_the_mixture_over_starting_samples_and_calibrators(
    p_values: list[float], both_ends: bool
) -> None:
    evidence = e_process_of(p_values, both_ends=both_ends)
    assert evidence.log_e_value == pytest.approx(
        math.log(literal_e_value(p_values, both_ends=both_ends)), abs=1e-9
    )
    most = max(literal_e_value(p_values[:n], both_ends=both_ends) for n in range(len(p_values) + 1))
    assert evidence.log_most == pytest.approx(math.log(most), abs=1e-9)


@pytest.mark.parametrize("eps", EPSILONS)
def test_a_calibrator_has_mean_one_under_the_null(eps: float) -> None:
    # The integral over [0, 1], with p = q ** (1 / eps), which makes the integrand flat.
    q = (np.arange(1000) + 0.5) / 1000
    p = q ** (1 / eps)
    gains = eps * p ** (eps - 1)
    assert (gains * q ** (1 / eps - 1) / eps).mean() == pytest.approx(1, abs=1e-9)


def test_shares_are_positive_fall_and_add_up_to_one() -> None:
    shares = [share_of(n) for n in range(1, 2000)]
    assert all(now > later > 0 for now, later in pairwise(shares))
    assert sum(shares) + left_after(1999) == pytest.approx(1)
    assert share_of(1000) == pytest.approx(24 * 6 / (math.pi * 1000) ** 2, rel=0.02)


@pytest.mark.parametrize("both_ends", [False, True])
def test_false_alarms_over_many_samples_stay_at_their_level(both_ends: bool) -> None:
    repeats, samples, level = 1000, 2000, 0.05
    draw = np.random.default_rng(int(both_ends))
    ends = 2 if both_ends else 1
    started = np.zeros((ends, len(EPSILONS), repeats))
    eps = np.array(EPSILONS)[:, None]
    most = np.zeros(repeats)
    first = EProcess(both_ends=both_ends)
    for sample in range(1, samples + 1):
        p = draw.random(repeats).clip(1e-15, 1 - 1e-15)
        logs = np.log(np.stack([p, 1 - p])[:ends])[:, None]
        started = eps * np.exp((eps - 1) * logs) * (started + share_of(sample))
        e_values = started.mean(axis=(0, 1)) + left_after(sample)
        most = np.maximum(most, e_values)
        if sample <= 300:
            first.update(float(p[0]), sample)
            assert first.log_e_value == pytest.approx(math.log(e_values[0]), abs=1e-9)
    alarms = int((most >= 1 / level).sum())
    assert alarms <= stats.binom.ppf(0.999, repeats, level)
    assert alarms > 0, "a bound that is never reached promises nothing"


def test_a_change_after_long_quiet_costs_only_the_logarithm_of_its_sample() -> None:
    draw = np.random.default_rng(0)
    evidence = e_process_of(draw.uniform(0, 1, 4000).clip(1e-9, 1 - 1e-9).tolist(), both_ends=False)
    for sample in range(4000, 4040):
        evidence.update(float(draw.uniform(1e-9, 0.02)), sample)
        if evidence.log_e_value > math.log(1000):
            break
    assert sample < 4012
    assert 3996 <= (evidence.onset[1] or 0) <= 4004


# Ranking


def draws(seed: int) -> torch.Generator:
    return rng.fork(seed, "ranks")


def ranked(samples: np.ndarray, seed: int = 0, *, kept_rows: int = 20) -> np.ndarray:
    """p-values, (ranked samples, scores)."""
    ranker, draw = Ranker(samples.shape[1], kept_rows=kept_rows), draws(seed)
    found = [ranker.take(sample, draw) for sample in samples]
    return np.array([p for p in found if p is not None])


def test_p_values_are_uniform_and_independent_though_few_samples_are_kept_and_scores_learn() -> (
    None
):
    world = np.random.default_rng(1)
    # Skewed and dependent features; far more samples than are kept.
    streams = [np.exp(world.normal(size=(60, 3))) @ world.normal(size=(3, 3)) for _ in range(200)]
    p_values = np.stack([ranked(samples, seed) for seed, samples in enumerate(streams)])
    assert p_values.shape == (200, 40, 2)
    for score in range(2):
        mine = p_values[:, :, score]
        assert stats.kstest(mine.ravel(), "uniform").pvalue > 1e-3
        for place in (0, 1, 5, 39):
            assert stats.kstest(mine[:, place], "uniform").pvalue > 1e-4
        for lag in (1, 2, 10):
            pairs = mine[:, :-lag].ravel(), mine[:, lag:].ravel()
            assert abs(stats.spearmanr(*pairs).statistic) < 4 / math.sqrt(len(pairs[0]))
        # Sums over a stream vary as those of independent numbers do.
        spread = mine.sum(axis=1).var() / (40 / 12)
        assert 0.7 < spread < 1.35


def test_each_order_of_the_ranked_samples_gives_each_rank_equally_often() -> None:
    world = np.random.default_rng(2)
    samples = world.normal(size=(8, 2))
    places = [place for place in range(8) if place % TEACH_EVERY]
    counts: dict[int, int] = {}
    for order in permutations(places):
        mixed = samples.copy()
        mixed[places] = samples[list(order)]
        last = ranked(mixed)[-1, 1]
        rank = math.floor(last * 5)
        counts[rank] = counts.get(rank, 0) + 1
    assert counts == dict.fromkeys(range(5), math.factorial(5) // 5)


def test_ranks_are_those_of_the_newest_among_all_kept() -> None:
    samples = np.random.default_rng(3).normal(size=(60, 2))
    train_step = np.arange(60) % TEACH_EVERY == 0
    samples[~train_step, 0] = np.arange(40) * 100.0 + 1000  # each farther than all before it
    distance = ranked(samples, kept_rows=100)[2:, 1]
    assert (distance <= 1 / np.arange(3, 41)).all()


def test_the_newcomer_goes_as_often_as_any_other_sample() -> None:
    went = np.zeros(5)
    for seed in range(400):
        ranker, draw = Ranker(1, kept_rows=4), draws(seed)
        ranked_samples = 0
        for value in range(12):
            sample = np.array([float(value)])
            if ranker.take(sample, draw) is not None:
                ranked_samples += 1
            if ranked_samples == 5:
                break
        kept = set(ranker.state_dict()["kept"][:, 0].tolist())
        went += [value not in kept for value in (1, 2, 4, 5, 7)]
    assert went.sum() == 400
    assert stats.chisquare(went).pvalue > 1e-3


def test_samples_that_are_all_alike_tie_and_their_p_values_are_chance() -> None:
    p_values = np.concatenate(
        [ranked(np.full((60, 3), 0.1), seed, kept_rows=30) for seed in range(30)]
    )
    for score in range(2):
        assert stats.kstest(p_values[:, score], "uniform").pvalue > 1e-3
    few = np.random.default_rng(4).integers(0, 2, (60 * 30, 2)).astype(float)
    tied = np.concatenate([ranked(part, seed) for seed, part in enumerate(np.split(few, 30))])
    assert stats.kstest(tied.ravel(), "uniform").pvalue > 1e-3


# The detector


class PassOn:
    """An encoder whose features are the samples themselves; counts what it is given."""

    def __init__(self) -> None:
        self.samples = 0

    def encode(self, images: Tensor) -> Encoding:
        self.samples += len(images)
        return Encoding(logits=images, features=images)


class Named(PassOn):
    fixed: ClassVar[bool] = True
    name = "pass on"
    networks: Sequence[nn.Module] = ()


def detector(
    seed: int = 0, encoder: Any = None, labels: Any = "given", **options: Any
) -> SequentialDetector:
    context = DetectorContext(
        encoder=lambda: encoder or PassOn(), drifting=lambda _: (), seed=seed, labels=labels
    )
    return Sequential(**options).bind(context)


def samples(values: np.ndarray, label: int = 0, first: int = 0) -> Samples:
    count = len(values)
    return Samples(
        images=torch.from_numpy(np.asarray(values, dtype=np.float32)),
        labels=torch.full((count,), label),
        ids=torch.arange(first, first + count),
        concepts=torch.zeros(count, dtype=torch.int64),
    )


def gaussian(count: int, seed: int, *, shift: float = 0.0, width: int = 4) -> np.ndarray:
    values: np.ndarray = np.random.default_rng([seed, count]).normal(size=(count, width))
    values[:, 0] += shift
    return values


def reference_of(parts: dict[int, Samples]) -> HeldOutReference:
    kept = HeldOutReference()
    for label, part in parts.items():
        kept.renew(label, part)
    return kept


def only(verdicts: list[Verdict]) -> Verdict:
    (verdict,) = verdicts
    return verdict


def test_false_alarms_of_streams_with_a_reference_stay_at_their_level() -> None:
    level, streams = 0.5, 40
    alarms = 0
    for seed in range(streams):
        mine = detector(seed, level=level, kept_rows=20)
        kept = reference_of({0: samples(gaussian(12, seed))})
        verdict = only(mine.check(1, [0], samples(gaussian(100, seed), first=100), kept))
        alarms += bool(verdict.drifted)
        assert verdict.threshold == level * share_of(1)
    assert alarms <= stats.binom.ppf(0.999, streams, level * share_of(1))


@pytest.mark.parametrize("change", ["shift", "spread", "narrow"])
def test_a_planted_change_is_found_soon_and_dated(change: str) -> None:
    delays, dates = [], []
    for seed in range(3):
        mine = detector(seed)
        kept = reference_of({0: samples(gaussian(60, seed, width=8))})
        now = gaussian(300, seed + 50, width=8)
        if change == "shift":
            now[150:, 0] += 4
        else:
            now[150:] *= 4 if change == "spread" else 0.2
        for place in range(300):
            verdict = only(mine.check(1, [0], samples(now[place : place + 1], 0, place), kept))
            if verdict.drifted:
                break
        assert place >= 150, "nothing had changed yet"
        delays.append(place - 150)
        dates.append(mine.onset(0) or 0)
    assert np.median(delays) < 40
    assert all(130 <= date <= 175 for date in dates)


def test_what_drifted_stays_drifted_until_it_is_renewed() -> None:
    mine = detector()
    kept = reference_of({0: samples(gaussian(60, 0))})
    assert only(mine.check(1, [0], samples(gaussian(80, 1, shift=6), 0, 100), kept)).drifted
    again = only(mine.check(2, [0], samples(gaussian(1, 2), 0, 900), kept))
    assert again.drifted
    fresh = samples(gaussian(60, 3, shift=6), 0, 1000)
    mine.renew([0], fresh)
    kept = reference_of({0: samples(gaussian(40, 4, shift=6), 0, 2000)})
    after = only(mine.check(3, [0], samples(gaussian(80, 5, shift=6), 0, 3000), kept))
    assert after.drifted is False
    assert after.threshold == 0.05 * share_of(2), "a second test spends the second share"


def test_every_test_that_begins_spends_a_share_of_its_own() -> None:
    mine = detector(level=0.1)
    kept = reference_of({c: samples(gaussian(10, c), c, 100 * c) for c in range(4)})
    each = Samples.concat([samples(gaussian(1, 9), c, 1000 + c) for c in range(4)])
    first = mine.check(1, [2, 0], each, kept)
    later = mine.check(2, [0, 1, 2, 3], each, kept)
    assert [v.threshold for v in first] == [0.1 * share_of(1), 0.1 * share_of(2)]
    assert [v.threshold for v in later] == [0.1 * share_of(k) for k in (2, 3, 1, 4)]


def test_a_class_is_not_testable_before_its_first_monitored_sample() -> None:
    mine, kept = detector(), reference_of({0: samples(gaussian(30, 0))})
    nothing = samples(gaussian(1, 0)[:0])
    before = only(mine.check(1, [0], nothing, kept))
    assert (before.drifted, before.p_value) == (None, None)
    assert "no new monitored sample counts" in (before.reason or "")
    assert only(mine.check(2, [0], samples(gaussian(5, 1), 0, 100), kept)).drifted is False
    assert only(mine.check(3, [0], nothing, kept)).drifted is False, "evidence is kept"


def test_a_copy_of_an_image_is_no_new_evidence() -> None:
    encoder = PassOn()
    mine = detector(encoder=encoder)
    past, now = samples(gaussian(30, 0)), samples(gaussian(40, 1), 0, 100)
    kept = reference_of({0: past})
    first = only(mine.check(1, [0], Samples.concat([now, past]), kept))
    assert (first.num_current, encoder.samples) == (40, 70)
    before = mine.state_dict()
    again = only(mine.check(2, [0], Samples.concat([past, now]), kept))
    assert (again.num_current, again.p_value, encoder.samples) == (0, first.p_value, 70)
    assert same(mine.state_dict(), before)


def test_learned_samples_count_as_reference_unless_others_are_ranked_among_them() -> None:
    mine = detector()
    past = samples(gaussian(30, 0))
    mine.renew([0], Samples.concat([past, samples(gaussian(50, 1), 0, 100)]))
    mine.check(1, [0], past[:0], reference_of({0: past}))
    ranker = mine.state_dict()["tests"]["0"]["ranker"]
    assert (ranker["came"], len(ranker["kept"]), ranker["taught"]) == (30, 20, 50 + 10)
    assert mine.state_dict()["lessons"] == {}


@settings(deadline=None, max_examples=10)
@given(st.lists(st.integers(0, 25), min_size=2, max_size=5), st.integers(0, 3))
def test_saved_and_loaded_it_goes_on_bit_for_bit(sizes: list[int], stop: int) -> None:
    kept = reference_of({c: samples(gaussian(12, c), c, 1000 * c) for c in (0, 1)})

    def part(number: int) -> Samples:
        count = sizes[number]
        return Samples.concat(
            [samples(gaussian(count, 9 * number + c), c, 100 * number + 5000 * c) for c in (0, 1)]
        )

    mine, other = detector(kept_rows=20), detector(kept_rows=20)
    for number in range(len(sizes)):
        if number == stop:
            mine.renew([1], part(0))
            other.load_state_dict(checkpoint.unflatten(*checkpoint.flatten(mine.state_dict())))
        verdicts = mine.check(number, [0, 1], part(number), kept)
        if number >= stop:
            assert other.check(number, [0, 1], part(number), kept) == verdicts
            assert same(other.state_dict(), mine.state_dict())


def test_what_is_kept_of_a_long_stream_is_bounded() -> None:
    mine = detector(kept_rows=50)
    kept = reference_of({0: samples(gaussian(60, 0))})
    sizes = []
    for number in range(3):
        mine.check(number, [0], samples(gaussian(1000, number + 7), 0, 1000 * number), kept)
        tensors, _ = checkpoint.flatten(mine.state_dict())
        sizes.append(sum(each.numel() for each in tensors.values()))
    assert len(mine.state_dict()["tests"]["0"]["ranker"]["kept"]) == 50
    assert len(mine.state_dict()["tests"]["0"]["known"]) == MAX_KEPT
    assert sizes[1] == sizes[2]


def test_wide_features_are_projected_and_drift_is_still_found() -> None:
    mine = detector()
    kept = reference_of({0: samples(gaussian(60, 0, width=1280))})
    quiet = only(mine.check(1, [0], samples(gaussian(60, 1, width=1280), 0, 100), kept))
    moved = gaussian(80, 2, width=1280) + 0.5
    assert quiet.drifted is False
    assert only(mine.check(2, [0], samples(moved, 0, 200), kept)).drifted
    assert mine.state_dict()["tests"]["0"]["ranker"]["kept"].shape[1] == 256


def with_nan() -> HeldOutReference:
    values = gaussian(20, 0)
    values[3, 1] = np.nan
    return reference_of({0: samples(values)})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Sequential(level=0.0), "level must lie between 0 and 1; got 0.0"),
        (lambda: Sequential(min_rows=1), "min_rows must be at least 2; got 1"),
        (lambda: Sequential(kept_rows=5), "kept_rows must be 20 to 2000; got 5"),
        (lambda: detector(labels="unknown"), "goes by given labels, not unknown ones"),
        (
            lambda: resolve(RunConfig(detector="sequential", encoder="learner")),
            "the detector sequential needs an encoder that never learns",
        ),
    ],
)
def test_impossible_settings_are_refused(call: Any, words: str) -> None:
    assert words in complaint(call)


def test_an_untestable_class_begins_when_it_has_a_reference_and_features_must_be_finite() -> None:
    mine, now = detector(), samples(gaussian(9, 0))
    verdict = only(mine.check(1, [0], now, HeldOutReference()))
    reason = "fewer than 5 distinct reference samples"
    assert (verdict.drifted, verdict.reason, mine.onset(0)) == (None, reason, None)
    assert mine.obstacles(1, {0: (4, 99), 1: (5, 0)}) == {0: reason}
    begun = only(mine.check(2, [0], now, reference_of({0: samples(gaussian(6, 1))})))
    assert begun.num_current == 9
    prints = FingerprintReference(Named(), size=20, seed=0)
    prints.renew(0, samples(gaussian(20, 3)))
    assert only(detector().check(1, [0], now, prints)).num_current == 9
    with pytest.raises(RunFailure, match="features are not finite"):
        detector().check(1, [0], now, with_nan())
