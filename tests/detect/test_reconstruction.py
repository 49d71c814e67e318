"""The detector by reconstruction: what it learns, compares, leaves alone and refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from detect_builders import encoder_context
from scipy import stats
from torch import Tensor

from driftwise import rng
from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import DetectorContext, FingerprintReference, HeldOutReference, RandomEncoder
from driftwise.detect.reconstruction import (
    Reconstruction,
    ReconstructionDetector,
    fit,
)
from driftwise.errors import UserError
from driftwise.models.inputs import to_input
from driftwise.types import Samples, Verdict


def refused() -> Any:
    raise AssertionError("the detector by reconstruction asks no encoder")


def detector(*, seed: int = 0, **options: Any) -> ReconstructionDetector:
    context = DetectorContext(encoder=refused, drifting=lambda _: (), seed=seed)
    return Reconstruction(**{"steps": 30, **options}).bind(context)


def samples(images: Tensor, label: int = 0, *, start: int = 0) -> Samples:
    count = len(images)
    return Samples(
        images=images,
        labels=torch.full((count,), label),
        ids=torch.arange(start, start + count) + 10_000 * label,
        concepts=torch.zeros(count, dtype=torch.int64),
    )


DIGITS = load_digits()


def digits(label: int, count: int, draw: torch.Generator) -> Tensor:
    of_class = torch.from_numpy(DIGITS.images[np.flatnonzero(DIGITS.labels == label)])
    return of_class[torch.randperm(len(of_class), generator=draw)[:count]]


def check(
    sides: dict[int, tuple[Tensor, Tensor]], *, task: int = 2, seed: int = 0, **options: Any
) -> list[Verdict]:
    """Verdicts on classes that come as images (reference, current)."""
    reference = HeldOutReference()
    for label, (kept, _) in sides.items():
        reference.renew(label, samples(kept, label))
    current = [samples(now, label, start=5_000) for label, (_, now) in sides.items()]
    return detector(seed=seed, **options).check(
        task, list(sides), Samples.concat(current), reference
    )


def digit_sides(seed: int, classes: int = 3) -> dict[int, tuple[Tensor, Tensor]]:
    draw = rng.fork(seed, "digit-sides")
    sides = {}
    for label in range(classes):
        images = digits(label, 100, draw)
        sides[label] = images[:40], images[40:]
    return sides


def test_a_class_whose_pixels_change_places_is_found_and_the_others_are_left_alone() -> None:
    sides = digit_sides(0)
    places = torch.randperm(64, generator=rng.fork(0, "places"))
    kept, now = sides[1]
    sides[1] = kept, now.flatten(1)[:, places].view(now.shape)
    assert [verdict.drifted for verdict in check(sides, steps=100)] == [False, True, False]


def test_false_alarms_stay_at_their_level_when_nothing_drifts() -> None:
    p_values = [
        verdict.p_value or 0.0
        for seed in range(30)
        for verdict in check(digit_sides(seed), seed=seed, steps=8)
    ]
    assert sum(p <= 0.05 for p in p_values) <= stats.binom.ppf(0.999, len(p_values), 0.05)
    assert min(p_values) < 0.2 < max(p_values)


def test_errors_on_learned_samples_are_too_small_to_compare_with() -> None:
    """Why half of the reference is not learned."""
    draw = rng.fork(0, "by-heart")
    images = torch.randint(256, (40, 8, 8, 1), generator=draw, dtype=torch.uint8)
    fitted = fit(images[:20], steps=250, width=16, generator=draw)
    assert fitted.errors(images[:20]).mean() < 0.8 * fitted.errors(images[20:]).mean()


def test_verdicts_compare_the_errors_of_the_unseen_half_by_kolmogorov_and_smirnov() -> None:
    sides = digit_sides(3, classes=2)
    sides[1] = sides[1][0][:31], sides[1][1]
    found = check(sides, seed=5, task=4, steps=30, width=4)

    draw = rng.fork(5, "autoencoder", 4)
    learned, unseen = [], []
    for kept, _ in sides.values():
        order = torch.randperm(len(kept), generator=draw)
        learned.append(kept[order[: len(kept) // 2]])
        unseen.append(kept[order[len(kept) // 2 :]])
    fitted = fit(torch.cat(learned), steps=30, width=4, generator=draw)
    for verdict, kept, (_, now) in zip(found, unseen, sides.values(), strict=True):
        expected = stats.ks_2samp(fitted.errors(kept).numpy(), fitted.errors(now).numpy())
        assert verdict.score == pytest.approx(expected.statistic)
        assert verdict.p_value == pytest.approx(expected.pvalue, rel=1e-6)
    assert [(v.num_reference, v.num_current) for v in found] == [(20, 60), (16, 60)]


def test_an_error_is_the_mean_square_of_standardized_differences() -> None:
    images = digits(0, 30, rng.fork(0, "error"))
    fitted = fit(images, steps=5, width=4, generator=rng.fork(0, "error", "fit"))
    x = to_input(images)
    deviation = (x - x.mean(dim=0)).square().mean().sqrt()
    assert fitted.deviation.item() == pytest.approx(deviation.item())
    scaled = (x - x.mean(dim=0)) / deviation
    with torch.no_grad():
        expected = (fitted.network(scaled) - scaled).square().mean(dim=(1, 2, 3))
    assert fitted.errors(images).tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def test_training_lowers_the_error_of_samples_that_were_not_trained_on() -> None:
    draw = rng.fork(0, "lower")
    images = digits(3, 120, draw)
    errors = [
        fit(images[:60], steps=steps, width=8, generator=rng.fork(1, "lower"))
        .errors(images[60:])
        .mean()
        .item()
        for steps in (1, 30, 100)
    ]
    assert errors[0] > 1.2 * errors[1] > 1.2 * 1.2 * errors[2]


@pytest.mark.parametrize("shape", [(4, 4, 1), (5, 9, 3)])
def test_images_of_any_size_and_colour_come_back_in_their_shape(shape: tuple[int, ...]) -> None:
    draw = rng.fork(0, "shapes")
    images = torch.randint(256, (12, *shape), generator=draw, dtype=torch.uint8)
    fitted = fit(images, steps=2, width=3, generator=draw)
    assert fitted.network(to_input(images)).shape == to_input(images).shape
    assert fitted.errors(images).shape == (12,)
    assert fitted.errors(images[:0]).shape == (0,)


def test_tables_are_learned_column_by_column_in_their_own_units() -> None:
    draw = rng.fork(0, "tables")
    units = torch.tensor([1e-3, 1.0, 1e4, 1.0, 0.0])

    def table(count: int, *, coupled: bool) -> Tensor:
        hidden = torch.randn(count, 1, generator=draw)
        other = hidden if coupled else torch.randn(count, 1, generator=draw)
        noise = 0.1 * torch.randn(count, 5, generator=draw)
        return (torch.cat([hidden, other, hidden, other, hidden], dim=1) + noise) * units

    same = table(80, coupled=True), table(80, coupled=True)
    uncoupled = table(80, coupled=True), table(80, coupled=False)
    verdicts = check({0: same, 1: uncoupled}, steps=150, width=2)
    assert [verdict.drifted for verdict in verdicts] == [False, True]


def test_a_class_with_few_samples_or_none_is_not_testable_beside_one_that_is() -> None:
    kept, now = digit_sides(1)[0]
    sides = {0: (kept, now), 1: (kept[:8], now), 2: (kept, now[:4]), 3: (kept[:1], now[:1])}
    verdicts = check(sides)
    assert verdicts[0].drifted is False
    assert [verdict.drifted for verdict in verdicts[1:]] == [None] * 3
    assert (verdicts[1].num_reference, verdicts[1].reason) == (
        4,
        "fewer than 5 distinct reference samples",
    )
    unknown = detector().check(2, [7, 0], samples(now), HeldOutReference())
    assert [verdict.drifted for verdict in unknown] == [None, None]
    assert detector().check(2, [], samples(now), HeldOutReference()) == []
    reason = "fewer than 5 distinct reference samples"
    assert detector().obstacles(2, {0: (8, 50), 1: (20, 50)}) == {0: reason}


@pytest.mark.parametrize("surroundings", [torch.inference_mode])
def test_it_trains_where_nobody_needs_gradients_and_leaves_the_global_state(
    surroundings: Any,
) -> None:
    """Repeated as well: the draws of earlier checks make no difference."""
    sides = digit_sides(5, classes=1)
    before = torch.get_rng_state()
    expected = check(sides, steps=10)
    with surroundings():
        found = check(sides, steps=10)
        assert not torch.is_grad_enabled()
    assert found == expected
    assert torch.equal(torch.get_rng_state(), before)


def test_p_values_may_be_calibrated_by_splits() -> None:
    kept, now = digit_sides(7)[0]
    (by_test,) = check({0: (kept, now)}, steps=10)
    (by_splits,) = check({0: (kept, now)}, steps=10, calibration="split")
    assert by_splits.score == by_test.score
    assert by_splits.p_value == pytest.approx(by_test.p_value, abs=0.15)


def test_impossible_settings_are_refused() -> None:
    for steps, width in ((0, 8), (200, 0)):
        with pytest.raises(UserError, match="steps and width must be at least 1; got"):
            Reconstruction(steps=steps, width=width)
    unlabelled = DetectorContext(encoder=refused, drifting=lambda _: (), labels="predicted")
    with pytest.raises(UserError, match="goes by given labels, not predicted ones"):
        Reconstruction().bind(unlabelled)
    fingerprints = FingerprintReference(RandomEncoder(encoder_context()), size=10, seed=0)
    with pytest.raises(UserError, match="learns from samples, and fingerprints hold none"):
        detector().check(2, [0], samples(digit_sides(6)[0][0]), fingerprints)
