"""Every adaptation on class statistics: what it does to counts, means and shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from adapt_builders import adaptation_named
from bench_tools import context, verdicts
from same_state import same

from driftwise.analytic_learner import AnalyticLearner
from driftwise.config.registry import CATALOGUE
from driftwise.methods import SLDA, NearestMean, Ridge
from driftwise.protocols import AdaptationContext, Choose
from driftwise.types import AdaptationResult, Samples

OLD, NOW = 0.0, 10.0
"""where classes were, and where they are"""
HELD, SLOTS, FEATURES = 100, 20, 4


def samples(label: int, count: int, centre: float, seed: int = 0) -> Samples:
    draw = torch.Generator().manual_seed(1000 * label + seed + int(centre))
    ids = torch.arange(count) + 1000 * label + int(100_000 * centre)
    vectors = torch.randn(count, FEATURES, generator=draw) + centre + 3 * label
    return Samples(images=vectors, labels=torch.full((count,), label), ids=ids, concepts=(ids * 0))


class Source:
    """Labelled samples of the current concepts, at most `stock` of a class."""

    def __init__(self, stock: int = 60, centre: float = NOW) -> None:
        self.stock, self.centre = stock, centre
        self.given: dict[int, Samples] = {}

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        del choose
        pool = samples(label, self.stock, self.centre)
        self.given[label] = pool if count is None else pool[:count]
        return self.given[label]

    def spread(self, wanted: Any) -> dict[int, int | None]:
        return dict(wanted)

    def unlabelled(self) -> Samples:
        return samples(0, 0, NOW)


def learner(method: Any = None) -> AnalyticLearner:
    made = AnalyticLearner(method or SLDA(), fresh_samples=SLOTS)
    for label in range(3):
        made.observe(samples(label, HELD, OLD))
    return made


def adapt(
    name: str, mine: AnalyticLearner, source: Source, labels: list[int], **verdict: float
) -> AdaptationResult:
    return adaptation_named(name).adapt(verdicts(labels, **verdict), around(mine, source))


def around(mine: AnalyticLearner, source: Source) -> AdaptationContext:
    return context(mine.buffer, source, mine.annotate, monitored=samples(1, 30, source.centre, 7))


def mean(some: Samples) -> torch.Tensor:
    return some.images.double().mean(dim=0)


@pytest.mark.parametrize("stock", [1, 2, 7, 60])
@pytest.mark.parametrize("method", [SLDA(), NearestMean(), Ridge(width=9)])
def test_amr_estimates_a_class_anew_from_the_samples_that_were_granted(
    stock: int, method: Any
) -> None:
    mine, source = learner(method), Source(stock)
    result = adapt("amr", mine, source, [1])
    fresh = source.given[1]
    assert len(fresh) == min(stock, SLOTS)
    assert result.renewed == (1,)
    moments = mine.statistics.moments(1)
    assert moments.count == len(fresh)
    torch.testing.assert_close(
        moments.mean, method.features(fresh.images).double().mean(dim=0), rtol=0, atol=1e-5
    )
    assert mine.buffer.counts() == {0: HELD, 1: len(fresh), 2: HELD}


@pytest.mark.parametrize("stock", [1, 2, 5])
def test_few_fresh_samples_give_a_mean_and_the_covariance_is_that_of_all(stock: int) -> None:
    """Against the definition: own deviations, those of dropped samples as if they were d, shifts."""
    mine, source = learner(), Source(stock)
    before = [mine.statistics.moments(label) for label in range(3)]
    adapt("amr", mine, source, [0, 1, 2])
    fresh = [source.given[label].images.double() for label in range(3)]
    own = sum((each - each.mean(dim=0)).T @ (each - each.mean(dim=0)) for each in fresh)
    shape, freedom = torch.zeros(FEATURES, FEATURES, dtype=torch.float64), 0.0
    for old, new in zip(before, fresh, strict=True):  # one class after the other
        shift = new.mean(dim=0) - old.mean
        apart = torch.outer(shift, shift) * HELD * stock / (HELD + stock)
        for scatter, more in ((old.scatter, HELD - 1), (apart, 1)):
            shape, freedom = shape + scatter, freedom + more  # type: ignore[operator]
            shape, freedom = shape * min(1, FEATURES / freedom), min(FEATURES, freedom)
    found, known = mine.statistics.pooled()
    torch.testing.assert_close(found, own + shape)
    assert known == pytest.approx(3 * (stock - 1) + FEATURES)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_amr_partial_mixes_old_and_fresh_samples_as_the_fraction_says(share: float) -> None:
    mine, source = learner(), Source()
    adapt("amr-partial", mine, source, [1], share=share)
    fresh = source.given[1]
    assert len(fresh) == round(share * SLOTS)
    moments = mine.statistics.moments(1)
    assert moments.count == pytest.approx(SLOTS)
    expected = (1 - share) * mean(samples(1, HELD, OLD)) + share * mean(fresh)
    torch.testing.assert_close(moments.mean, expected, rtol=0, atol=1e-5)
    whole = learner()
    adapt("amr-partial", whole, source, [1], share=0.9)
    assert whole.statistics.moments(1).count == SLOTS == len(source.given[1])


def test_a_class_with_fewer_samples_than_slots_is_scaled_by_the_fraction() -> None:
    mine = AnalyticLearner(SLDA(), fresh_samples=SLOTS)
    mine.observe(samples(1, 8, OLD))
    assert mine.buffer.drop(1, torch.arange(SLOTS) < SLOTS // 4) == 2
    assert mine.statistics.counts()[1] == pytest.approx(6)


def test_amr_gradual_forgets_by_a_factor_at_every_check() -> None:
    """Like an exponential average: after k checks the first concept weighs (1 - share)^k."""
    mine, adaptation = learner(), adaptation_named("amr-gradual")
    expected = mean(samples(1, HELD, OLD))
    for number, centre in enumerate((2.0, 4.0, 6.0), start=1):
        source = Source(centre=centre)
        adaptation.adapt(verdicts([1], share=0.4), around(mine, source))
        assert len(source.given[1]) == 8, "labels in proportion to the fraction"
        expected = 0.6 * expected + 0.4 * mean(source.given[1])
        torch.testing.assert_close(
            mine.statistics.moments(1).mean, expected, rtol=0, atol=1e-5, msg=str(number)
        )
    small = adaptation.adapt(verdicts([2], share=0.1), around(mine, Source()))
    assert small.renewed == ()
    assert "10 % drifted, not adapted" in small.notes[0]


def test_amr_remembered_restores_the_archived_statistics_as_they_were() -> None:
    mine, adaptation = learner(), adaptation_named("amr-remembered")
    archived = mine.statistics.moments(1)
    adaptation.adapt(verdicts([1]), around(mine, Source()))
    twin = adaptation_named("amr-remembered")
    twin.load_state_dict(adaptation.state_dict())
    result = twin.adapt(verdicts([1]), around(mine, source := Source(centre=OLD)))
    assert source.given == {}
    assert "its statistics restored without labels" in result.notes[0]
    assert same(dict(vars(mine.statistics.moments(1))), dict(vars(archived)))


@pytest.mark.parametrize(("name", "left"), [("fr", HELD), ("fr-flush", 0), ("fr-scratch", HELD)])
def test_full_relearning_takes_every_sample(name: str, left: int) -> None:
    mine, source = learner(), Source()
    others = {label: mine.statistics.moments(label) for label in (0, 2)}
    result = adapt(name, mine, source, [1])
    assert result.extra is not None
    assert len(result.extra) == source.stock
    mine.begin_task((), from_scratch=result.from_scratch)
    for batch in result.extra.split(16):
        mine.observe(batch)
    moments = mine.statistics.moments(1)
    assert moments.count == left + source.stock
    both = [samples(1, left, OLD), source.given[1]]
    torch.testing.assert_close(moments.mean, mean(Samples.concat(both)), rtol=0, atol=1e-5)
    for label, before in others.items():
        assert mine.statistics.moments(label) is before, "classes that did not drift stay"


@pytest.mark.parametrize("name", ["amr-recovery", "amr-free-labels", "amr-plus"])
def test_what_needs_stored_samples_says_once_that_it_does_nothing(name: str) -> None:
    mine, source, adaptation = learner(), Source(), adaptation_named(name)
    steps: list[object] = []
    where = around(mine, source)
    object.__setattr__(where, "rehearse", lambda *args, **kwargs: steps.append(args))
    first = adaptation.adapt(verdicts([1]), where)
    assert first.renewed == (1,)
    assert sum("no samples to rehearse" in note for note in first.notes) == 1
    twin = adaptation_named(name)
    twin.load_state_dict(adaptation.state_dict())
    second = twin.adapt(verdicts([2]), where)
    assert second.renewed == (2,)
    assert not any("rehearse" in note for note in second.notes)
    assert twin.follow_up(where) == ()
    assert steps == []


@pytest.mark.parametrize("name", sorted(CATALOGUE["adaptation"]))
def test_a_class_that_is_not_known_changes_nothing(name: str) -> None:
    mine, source = learner(), Source(0)
    before = mine.state_dict()
    adapt(name, mine, source, [1, 9])
    assert same(before, mine.state_dict())
