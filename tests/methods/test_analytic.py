"""Analytic methods: exact, incremental, equal to scikit-learn's batch fits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from same_state import same
from sklearn.covariance import oas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge as BatchRidge

from driftwise.analytic_learner import AnalyticLearner
from driftwise.errors import UserError
from driftwise.learner import Learner
from driftwise.memory import ReplayBuffer
from driftwise.memory.statistics import ClassStatistics
from driftwise.methods import DERpp
from driftwise.methods.analytic import SLDA, AnalyticMethod, NearestMean, Ridge
from driftwise.scaling import Scaling
from driftwise.types import Samples

METHODS = {"ncm": NearestMean(), "slda": SLDA(), "ridge": Ridge(width=30), "plain": Ridge(width=0)}


def drawn(samples: int = 240, features: int = 8, classes: int = 4, seed: int = 0) -> Samples:
    """Overlapping classes of unequal size, far from the origin."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes**2, (samples,), generator=generator).float().sqrt().long()
    mixing = torch.randn(features, features, generator=generator)
    centres = 20 + torch.randn(classes, features, generator=generator)
    noise = torch.randn(samples, features, generator=generator)
    ids = torch.arange(samples)
    return Samples(
        images=centres[labels] + noise @ mixing, labels=labels, ids=ids, concepts=0 * ids
    )


def learned(method: AnalyticMethod, samples: Samples, *, batch: int = 16) -> AnalyticLearner:
    learner = AnalyticLearner(method)
    for part in samples.split(batch):
        learner.observe(part)
    return learner


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_any_order_and_any_batches_give_the_same_logits(method: AnalyticMethod) -> None:
    samples = drawn()
    expected = learned(method, samples, batch=len(samples)).logits(samples.images)
    by_class = samples[samples.labels.argsort(stable=True)]
    shuffled = samples[torch.randperm(len(samples), generator=torch.Generator().manual_seed(1))]
    for other, batch in ((by_class, 7), (shuffled, 1), (shuffled, 64)):
        found = learned(method, other, batch=batch).logits(samples.images)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_slda_is_the_batch_fit_of_scikit_learn_after_every_task() -> None:
    samples = drawn()
    learner = AnalyticLearner(SLDA(shrinkage=0.2))
    for classes in ((0, 1), (2,), (3,)):
        for label in classes:
            learner.observe(samples.of_class(label))
        seen = samples[samples.labels <= max(classes)]
        # Priors in proportion pool the covariances as here; the classes' own priors are equal.
        share = np.bincount(seen.labels.numpy()) / len(seen)
        batch = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2, priors=share)
        batch.fit(seen.images.double().numpy(), seen.labels.numpy())
        freedom = (len(seen) - len(share)) / len(seen)
        ours = learner.method.classifier(learner.statistics)
        coefficients = torch.as_tensor(batch.coef_)
        if len(share) == 2:  # scikit-learn gives the difference of two classes
            torch.testing.assert_close(
                (ours.weights[1] - ours.weights[0])[None], coefficients * freedom
            )
        else:
            torch.testing.assert_close(ours.weights, coefficients * freedom, rtol=1e-6, atol=1e-6)


def test_ridge_is_the_batch_fit_of_scikit_learn_after_every_task() -> None:
    samples = drawn()
    method = Ridge(width=20, penalty=0.01)
    learner = AnalyticLearner(method)
    for classes in ((0, 1), (2,), (3,)):
        for label in classes:
            learner.observe(samples.of_class(label))
        seen = samples[samples.labels <= max(classes)]
        features = method.features(seen.images).double().numpy()
        weight = 1 / np.bincount(seen.labels.numpy())[seen.labels.numpy()]
        second = (features.T * weight) @ features
        batch = BatchRidge(alpha=0.01 * np.linalg.eigvalsh(second).mean(), fit_intercept=False)
        batch.fit(features, np.eye(max(classes) + 1)[seen.labels.numpy()], sample_weight=weight)
        ours = learner.method.classifier(learner.statistics)
        torch.testing.assert_close(ours.weights.numpy(), batch.coef_, rtol=1e-5, atol=1e-6)


def test_the_penalty_is_chosen_by_generalised_cross_validation() -> None:
    """Against the definition, computed from the samples."""
    samples = drawn(60)
    counts = torch.bincount(samples.labels)
    features = torch.cat([samples.images, torch.ones(len(samples), 1)], dim=1).double()
    rooted = features * counts[samples.labels].double().rsqrt()[:, None]
    targets = torch.eye(4).double()[samples.labels] * counts[samples.labels].rsqrt()[:, None]
    unit = float(torch.linalg.eigvalsh(rooted.T @ rooted).mean())

    def error(penalty: float) -> float:
        inverse = torch.linalg.inv(rooted.T @ rooted + penalty * torch.eye(9))
        hat = rooted @ inverse @ rooted.T
        residual = (targets - hat @ targets).square().sum()
        return float(residual / (1 - hat.trace() / len(samples)) ** 2)

    best = min((10.0**e * unit for e in range(-4, 5)), key=error)
    statistics = ClassStatistics()
    statistics.add(features, samples.labels)
    expected = Ridge(width=0, penalty=best / unit).classifier(statistics)
    found = Ridge(width=0).classifier(statistics)
    torch.testing.assert_close(found.weights, expected.weights)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("whole_class", [True, False], ids=["a class", "samples"])
def test_forgetting_equals_never_having_seen(method: AnalyticMethod, whole_class: bool) -> None:
    samples = drawn()
    gone = samples.labels == 3 if whole_class else samples.ids % 3 == 0
    learner = learned(method, samples)
    if whole_class:
        learner.forget(label=3)
    else:
        learner.forget(samples[gone])
    never = learned(method, samples[~gone])
    torch.testing.assert_close(
        learner.logits(samples.images), never.logits(samples.images), rtol=0, atol=1e-3
    )


def test_a_scaling_goes_on_to_be_fitted_after_some_of_its_samples_were_forgotten() -> None:
    samples = drawn()
    learner, never = (AnalyticLearner(SLDA(), scaling=Scaling()) for _ in range(2))
    learner.observe(samples[:10])
    learner.forget(samples[:6])
    assert learner.predictor is learner.network, "not one that knows what was forgotten"
    never.observe(samples[6:10])
    torch.testing.assert_close(learner.statistics.counts(), never.statistics.counts())
    for part in samples[10:].split(40):
        learner.observe(part)
        never.observe(part)
    torch.testing.assert_close(learner.scaling.mean, never.scaling.mean)
    torch.testing.assert_close(
        learner.logits(samples.images), never.logits(samples.images), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("scatter", ["class", "shared"])
@pytest.mark.parametrize("factor", [0.0, 0.25, 0.5])
def test_what_is_scaled_away_leaves_its_shape_at_the_weight_of_d_samples(
    scatter: str, factor: float
) -> None:
    """Against the definition, computed from the samples."""
    samples = drawn()
    statistics = ClassStatistics(scatter=scatter)  # type: ignore[arg-type]
    statistics.add(samples.images, samples.labels)
    before, freedom = statistics.pooled()
    kept = statistics.moments(3)
    statistics.scale(3, factor)
    if factor:
        assert statistics.counts()[3] == pytest.approx(factor * kept.count)
        torch.testing.assert_close(statistics.moments(3).mean, kept.mean)
    else:
        assert 3 not in statistics.labels
    own = samples.of_class(3).images.double()
    scattered = (own - own.mean(dim=0)).T @ (own - own.mean(dim=0))
    if scatter == "shared":  # the part of a class is in proportion to its samples
        scattered = before * (kept.count / len(samples))
    gone, going = (1 - factor) * scattered, (1 - factor) * (len(own) - 1)
    weight = min(1.0, 8 / going)
    assert weight < 1
    found, left = statistics.pooled()
    torch.testing.assert_close(found, before - gone + weight * gone)
    others = freedom - (len(own) - 1)
    assert left == pytest.approx(others + max(0.0, factor * len(own) - 1) + weight * going)


def test_the_shape_of_dropped_classes_never_weighs_more_than_d_samples() -> None:
    samples = drawn()
    statistics = ClassStatistics()
    statistics.add(samples.images, samples.labels)
    for label in range(4):
        statistics.drop(label)
        fresh = samples.of_class(label)[:1]
        statistics.add(fresh.images, fresh.labels)
    scatter, freedom = statistics.pooled()
    assert freedom == pytest.approx(8), "one sample of a class has no shape of its own"
    assert torch.linalg.eigvalsh(scatter).min() > 0
    torch.testing.assert_close(
        statistics.means(),
        torch.stack([samples.of_class(c).images[0] for c in range(4)]).double(),
    )


def test_the_estimated_shrinkage_is_that_of_scikit_learn() -> None:
    samples = drawn(60)
    statistics = ClassStatistics()
    statistics.add(samples.images, samples.labels)
    scatter, freedom = statistics.pooled()
    # Samples around zero with that scatter, as many as there are degrees of freedom.
    values, vectors = torch.linalg.eigh(scatter)
    equivalent = torch.zeros(int(freedom), 8).double()
    equivalent[:8] = (vectors * values.clamp(min=0).sqrt()).T
    _, expected = oas(equivalent.numpy(), assume_centered=True)
    found = SLDA(shrinkage=None).fraction(scatter / freedom, freedom)
    assert found == pytest.approx(expected, rel=1e-9)
    fixed = SLDA(shrinkage=found).classifier(statistics)
    torch.testing.assert_close(SLDA(shrinkage=None).classifier(statistics).weights, fixed.weights)


def test_shrinkage_is_estimated_to_be_less_with_more_samples() -> None:
    fractions = []
    for count in (8, 40, 400, 4000):
        statistics = ClassStatistics()
        samples = drawn(count)
        statistics.add(samples.images, samples.labels)
        scatter, freedom = statistics.pooled()
        fractions.append(SLDA(shrinkage=None).fraction(scatter / max(freedom, 1), freedom))
    assert 1 >= fractions[0] > fractions[1] > fractions[2] > fractions[3] > 0


@pytest.mark.parametrize("scatter", ["class", "shared", "none"])
def test_a_saved_state_goes_on_bit_for_bit(scatter: str) -> None:
    samples = drawn()
    method = NearestMean() if scatter == "none" else SLDA()
    one, never_saved, other = (
        AnalyticLearner(method, scatter=scatter)  # type: ignore[arg-type]
        for _ in range(3)
    )
    first, second = samples[:150], samples[150:]
    for learner in (one, never_saved):
        learner.observe(first)
        learner.statistics.drop(1)
    other.load_state_dict(one.state_dict())
    for learner in (one, other, never_saved):
        learner.observe(second)
    expected = never_saved.logits(samples.images)
    assert torch.equal(one.logits(samples.images), expected)
    assert torch.equal(other.logits(samples.images), expected)
    assert same(other.state_dict(), never_saved.state_dict())


def test_a_shared_scatter_is_the_sum_of_the_classes_own() -> None:
    samples = drawn()
    own, shared = ClassStatistics(), ClassStatistics(scatter="shared")
    for part in samples.split(11):
        own.add(part.images, part.labels)
        shared.add(part.images, part.labels)
    torch.testing.assert_close(own.pooled()[0], shared.pooled()[0])
    assert own.pooled()[1] == shared.pooled()[1] == len(samples) - 4
    waiting = shared.nbytes() - 8 * (8 * 8 + 4 * 8)
    assert 0 <= waiting < 8 * 8 * 32, "fewer than 32 vectors wait to be summed"
    assert own.nbytes() == 4 * 8 * (8 * 8 + 8), "each class its mean and its scatter"


def test_reading_or_saving_a_shared_scatter_changes_no_digit_of_what_follows() -> None:
    samples = drawn()
    quiet, read, saved = (ClassStatistics(scatter="shared") for _ in range(3))
    for part in samples.split(1):
        for statistics in (quiet, read, saved):
            statistics.add(part.images, part.labels)
        read.pooled()
        again = ClassStatistics(scatter="shared")
        again.load_state_dict(saved.state_dict())
        saved = again
    assert same(read.state_dict(), quiet.state_dict())
    assert same(saved.state_dict(), quiet.state_dict())
    whole = shared(samples).pooled()[0]
    torch.testing.assert_close(quiet.pooled()[0], whole, rtol=1e-12, atol=1e-9)


def test_hopeless_samples_still_give_finite_logits() -> None:
    """One sample of a class, constant features, fewer samples than features."""
    few = drawn(6, features=50)
    constant = Samples(
        images=torch.ones(4, 5), labels=torch.tensor([0, 0, 1, 1]), ids=torch.arange(4),
        concepts=torch.zeros(4, dtype=torch.int64),
    )  # fmt: skip
    for method in METHODS.values():
        for samples in (few, few[:1], constant):
            logits = learned(method, samples).logits(samples.images)
            assert logits.isfinite().all()
            assert logits.shape == (len(samples), 1 + int(samples.labels.max()))


def test_a_task_from_scratch_keeps_the_statistics_which_are_the_memory() -> None:
    """Full relearning from scratch would otherwise lose every class that has not drifted."""
    samples = drawn()
    learner = learned(SLDA(), samples)
    before = learner.logits(samples.images)
    learner.begin_task((), from_scratch=True)
    assert torch.equal(learner.logits(samples.images), before)


def test_a_shared_scatter_serves_every_method() -> None:
    samples = drawn()
    for method in METHODS.values():
        learner = AnalyticLearner(method, scatter="shared")
        learner.observe(samples)
        right = learner.logits(samples.images).argmax(dim=1) == samples.labels
        assert right.float().mean() > 0.5


def test_predictions_between_steps_are_behind_by_one_in_a_hundred_samples_at_most() -> None:
    samples = drawn(1000)
    learner = AnalyticLearner(SLDA())
    learner.observe(samples[:995])
    computed = learner.predictor.weights.clone()
    learner.observe(samples[995:])
    assert torch.equal(learner.predictor.weights, computed)
    learner.observe(samples[:6])
    assert not torch.equal(learner.predictor.weights, computed), "eleven of 1,006"
    before = learner.predictor.weights.clone()
    learner.buffer.drop(1, torch.arange(20) < 5)
    learner.observe(samples[:1])
    assert not torch.equal(learner.predictor.weights, before), "what is dropped shows at once"
    learner.observe(samples[:1])
    stranger = Samples(**{**vars(samples[:1]), "labels": torch.tensor([6])})
    learner.observe(stranger)
    assert learner.predictor(samples.images[:1]).shape == (1, 7), "and so does a new class"
    learner.observe(samples[1:2])
    behind = AnalyticLearner(SLDA())
    behind.load_state_dict(learner.state_dict())
    assert torch.equal(behind.predictor.weights, learner.predictor.weights)
    assert torch.equal(behind.network.weights, learner.network.weights)


def test_a_second_epoch_changes_nothing() -> None:
    samples = drawn()
    learner = AnalyticLearner(SLDA())
    learner.begin_task((0, 1, 2, 3))
    for epoch in (1, 2):
        learner.begin_epoch(epoch, 2)
        learner.observe(samples)
    assert sum(learner.buffer.counts().values()) == len(samples)


def with_value(samples: Samples, value: float) -> Samples:
    images = samples.images.clone()
    images[2, 3] = value
    return replace(samples, images=images)


def shared(samples: Samples) -> ClassStatistics:
    statistics = ClassStatistics(scatter="shared")
    statistics.add(samples.images, samples.labels)
    statistics.remove(samples.images[:0], samples.labels[:0])
    return statistics


REFUSED = {
    "a name": (lambda x: AnalyticLearner("slda"), "such as methods.SLDA\\(\\); got slda"),  # type: ignore[arg-type]
    "a method of a network": (
        lambda x: AnalyticLearner(DERpp()),  # type: ignore[arg-type]
        "expected an analytic method, .* got DERpp",
    ),
    "a network's learner": (
        lambda x: Learner(torch.nn.Linear(8, 4), SLDA(), buffer=ReplayBuffer(4), lr=0.1),  # type: ignore[arg-type]
        "got SLDA .analytic methods are for AnalyticLearner",
    ),
    "nothing to forget": (lambda x: AnalyticLearner(SLDA()).forget(), "either samples or a label"),
    "shrinkage": (lambda x: SLDA(shrinkage=2), "shrinkage must be 0 to 1; got 2"),
    "penalty": (lambda x: Ridge(penalty=0), "penalty must be above 0; got 0"),
    "width": (lambda x: Ridge(width=-1), "width must be 0 or more random features; got -1"),
    "bytes": (
        lambda x: AnalyticLearner(SLDA()).logits(torch.zeros(2, 4, 4, 1, dtype=torch.uint8)),
        "give an encoder",
    ),
    "no scatter": (
        lambda x: AnalyticLearner(SLDA(), scatter="none"),
        "SLDA needs a scatter; got scatter='none'",
    ),
    "scatter": (lambda x: ClassStatistics(scatter="some"), "scatter must be one of"),  # type: ignore[arg-type]
    "dimension": (
        lambda x: learned(SLDA(), x).observe(drawn(features=9)),
        "expected vectors of 8 features, as before; got 9",
    ),
    "dimension of random features": (
        lambda x: learned(Ridge(width=5), x).logits(torch.zeros(2, 9)),
        "expected vectors of 8 features, as before; got 9",
    ),
    "not a number": (
        lambda x: learned(SLDA(), x).observe(with_value(x, math.nan)),
        "vectors must be finite; got nan as feature 3 of sample 2: leave such samples out",
    ),
    "infinite, predicted": (
        lambda x: learned(SLDA(), x).logits(with_value(x, math.inf).images),
        "vectors must be finite; got inf as feature 3 of sample 2",
    ),
    "more than came": (
        lambda x: learned(SLDA(), x[:10]).forget(x),
        "as many as were added",
    ),
    "strangers": (
        lambda x: learned(SLDA(), x).forget(with_value(x, 1e3)[:5]),
        "expected samples to forget that were learned",
    ),
    "strangers, of a shared scatter": (
        lambda x: shared(x).remove(x.images[:5] + 1e3, x.labels[:5]),
        "expected samples to forget that were learned",
    ),
    "a class that never came": (
        lambda x: learned(SLDA(), x).forget(label=77),
        "class 77 is not among those that were learned",
    ),
    "no label": (
        lambda x: learned(SLDA(), x).observe(replace(x, labels=x.labels - 1)),
        "labels as whole numbers from 0 on",
    ),
    "fresh": (lambda x: AnalyticLearner(SLDA(), fresh_samples=0), "fresh_samples must be"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(call: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call(drawn())  # type: ignore[operator]


def test_a_foreign_state_is_refused() -> None:
    state = learned(SLDA(), drawn()).state_dict()
    broken = {
        "kind": {**state, "statistics": {**state["statistics"], "kind": "none"}},
        "twice": {**state, "statistics": {**state["statistics"], "labels": [0, 0, 1, 2]}},
        "means": {**state, "statistics": {**state["statistics"], "means": torch.zeros(4, 3)}},
        "steps": {**state, "steps": -1},
    }
    for other in broken.values():
        with pytest.raises(ValueError, match="expected"):
            AnalyticLearner(SLDA()).load_state_dict(other)


def test_where_a_class_has_drifted_is_remembered_across_a_state() -> None:
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 2
    first, later = (torch.randn(40, 3, generator=draw) + 5 * labels[:, None] for _ in range(2))
    later[:, 2] += 30
    statistics, again = ClassStatistics(), ClassStatistics()
    statistics.add(first, labels)
    for label in (0, 1):
        statistics.drop(label)
    again.load_state_dict(statistics.state_dict())
    for each in (statistics, again):
        each.add(later, labels)
    scatter, _ = statistics.pooled()
    torch.testing.assert_close(again.pooled()[0], scatter)
    assert scatter[2, 2] > 10 * max(scatter[0, 0], scatter[1, 1]), "the third feature is not stable"
    statistics.clear()
    statistics.add(later, labels)
    assert statistics.pooled()[0][2, 2] < scatter[2, 2] / 10, "from scratch nothing is left"
