"""Class statistics and a trained network together: both learn, both are realigned."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bench_tools import context, verdicts
from same_state import same
from test_analytic import drawn
from test_analytic_loop import sensors

import driftwise as dw
from driftwise.adapt import PartialRealign, Realign, RecurringConcepts
from driftwise.config.registry import CATALOGUE
from driftwise.errors import UserError
from driftwise.hybrid_learner import HybridLearner, HybridNetwork, add_scores
from driftwise.types import Samples


def parts(
    features: int = 8, *, slots: int = 40, method: Any = None
) -> tuple[dw.AnalyticLearner, dw.Learner]:
    head = dw.models.seeded(dw.models.MLP, input_shape=(features, 1, 1), num_classes=5, seed=0)
    trained = dw.Learner(head, method or dw.methods.DERpp(), buffer=dw.ReplayBuffer(slots), lr=0.02)
    return dw.AnalyticLearner(dw.methods.SLDA(), fresh_samples=7, scaling=dw.Scaling()), trained


def hybrid(features: int = 8, **options: Any) -> HybridLearner:
    return HybridLearner(*parts(features, **options))


def test_it_adds_the_scores_of_its_parts_which_learn_as_they_do_alone() -> None:
    samples, both, (analytic, trained) = drawn(), hybrid(), parts()
    for batch in samples.split(30):
        for learner in (both, analytic, trained):
            learner.observe(batch)
    posteriors = analytic.logits(samples.images) / 3
    expected = posteriors.softmax(dim=1) * trained.logits(samples.images)[:, :4].softmax(dim=1)
    found = both.logits(samples.images)
    assert found.shape == (len(samples), 5)
    assert bool((found[:, 4] < -1000).all()), "a class that never came"
    torch.testing.assert_close(
        found.softmax(dim=1)[:, :4], expected / expected.sum(dim=1, keepdim=True)
    )
    network = both.predictor
    assert isinstance(network, HybridNetwork)
    torch.testing.assert_close(both.logits_of(network, samples.images), found)


def test_one_part_that_knows_nothing_leaves_the_decision_to_the_other() -> None:
    sure = torch.tensor([[0.0, -30.0, -30.0]])
    unsure = torch.zeros(1, 3)
    assert int(add_scores(sure.log_softmax(dim=1), unsure, 3.0).argmax()) == 0
    assert int(add_scores(unsure.log_softmax(dim=1), sure, 3.0).argmax()) == 0


@pytest.mark.parametrize("partial", [False, True])
def test_what_is_dropped_and_put_goes_to_both_memories(partial: bool) -> None:
    samples, both = drawn(), hybrid()
    both.observe(samples)

    def mean_of(images: torch.Tensor) -> torch.Tensor:
        return both.analytic.scaling(images).double().mean(dim=0)

    held = both.buffer.samples_of(3)
    assert both.buffer.slots_of(3) == len(held) > 8
    mask = torch.arange(len(held)) < (len(held) // 2 if partial else len(held))
    fresh = Samples(
        images=torch.full((len(held), 8), 50.0) + torch.randn(len(held), 8),
        labels=torch.full((len(held),), 3),
        ids=torch.arange(len(held)) + 10_000,
        concepts=torch.ones(len(held), dtype=torch.int64),
    )[: int(mask.sum())]
    assert both.buffer.drop(3, mask) == int(mask.sum())
    assert both.analytic.statistics.counts().get(3, 0.0) == pytest.approx(int((~mask).sum()))
    both.buffer.put(fresh, both.annotate(fresh))
    assert both.buffer.counts()[3] == len(held) == len(both.buffer.samples_of(3))
    before = mean_of(samples.of_class(3).images)
    share = float(mask.double().mean())
    expected = (1 - share) * before + share * mean_of(fresh.images)
    found = both.analytic.statistics.moments(3).mean
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_a_class_that_the_buffer_has_lost_is_realigned_in_the_statistics() -> None:
    samples, both = drawn(), hybrid(slots=3)
    both.observe(samples)
    lost = next(label for label in range(4) if not len(both.buffer.samples_of(label)))
    assert both.buffer.slots_of(lost) == 7
    both.buffer.drop(lost, torch.ones(7, dtype=torch.bool))
    assert lost not in both.analytic.statistics.labels
    fresh = samples.of_class(lost)[:7]
    both.buffer.put(fresh, both.annotate(fresh))
    assert both.buffer.counts()[lost] == 7
    assert len(both.trained.buffer) == 3, "which has no free slot"


@pytest.mark.parametrize("name", sorted(CATALOGUE["adaptation"]))
def test_every_adaptation_takes_both_memories(name: str) -> None:
    samples, both = drawn(), hybrid()
    both.observe(samples)
    counts = {label: len(both.buffer.samples_of(label)) for label in range(4)}

    class Source:
        def ask(self, label: int, count: int | None, *, choose: Any = None) -> Samples:
            del choose
            return drawn(seed=5).of_class(label)[:count]

        def spread(self, wanted: Any) -> dict[int, int | None]:
            return dict(wanted)

        def unlabelled(self) -> Samples:
            return samples[:0]

    where = context(both.buffer, Source(), both.annotate, monitored=drawn(seed=6))
    object.__setattr__(where, "rehearse", both.rehearse)
    object.__setattr__(where, "encode", both.encode)
    CATALOGUE["adaptation"][name].make().adapt(verdicts([3], share=0.9), where)
    for label in (0, 1, 2):
        assert len(both.buffer.samples_of(label)) == counts[label]
        assert both.buffer.counts()[label] == int((samples.labels == label).sum())
    if name.startswith("amr"):
        assert both.buffer.counts()[3] == len(both.buffer.samples_of(3)) <= counts[3]
        assert len(both.buffer.samples_of(3)) == counts[3] or name == "amr-robust"


@pytest.mark.parametrize("adaptation", [Realign(), PartialRealign(), RecurringConcepts(Realign())])
def test_it_follows_drift_and_resumes_exactly(adaptation: Any) -> None:
    def loop() -> dw.DriftLoop:
        return dw.DriftLoop(
            hybrid(6), encoder=dw.detect.RandomEncoder, adaptation=type(adaptation)(
                *([Realign()] if isinstance(adaptation, RecurringConcepts) else [])
            )
        )  # fmt: skip

    whole = loop()
    records = [record.accuracy for record in whole.run(sensors(), epochs=2)]
    assert records[-1] > 85
    first, second = loop(), loop()
    next(iter(first.run(sensors(), epochs=2)))
    second.bind(stream := sensors())
    second.load_state_dict(first.state_dict())
    assert [record.accuracy for record in second.run(stream, epochs=2, after=1)] == records[1:]
    assert same(second.learner.state_dict(), whole.learner.state_dict())
    assert whole.result["method"] == "driftwise.hybrid_learner:HybridMethod"


def test_forgotten_samples_leave_both_memories() -> None:
    samples, both = drawn(), hybrid()
    both.observe(samples)
    gone = both.buffer.samples_of(2)[:3]
    both.forget(gone)
    assert not torch.isin(both.buffer.samples_of(2).ids, gone.ids).any()
    assert both.buffer.counts()[2] == int((samples.labels == 2).sum()) - 3


def test_a_pair_of_other_learners_is_refused() -> None:
    analytic, _ = parts()
    with pytest.raises(UserError, match="got AnalyticLearner and AnalyticLearner"):
        HybridLearner(analytic, analytic)  # type: ignore[arg-type]


def test_a_temperature_must_be_positive() -> None:
    with pytest.raises(UserError, match="temperature must be above 0; got 0"):
        HybridLearner(*parts(), temperature=0)
