from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from learn_builders import (
    as_floats,
    assert_pauses_change_nothing,
    batch,
    make_learner,
    state_of,
    two_tasks_and_a_restart,
)
from same_state import same
from torch import Tensor

from driftwise import rng
from driftwise.methods import ER, DERpp, Method
from driftwise.models.inputs import Augmentation, augment
from driftwise.types import Samples

KINDS: tuple[Augmentation, ...] = get_args(Augmentation)


def generator(seed: int = 0) -> torch.Generator:
    return rng.fork(seed, "test")


def make_images(samples: int, channels: int = 3, height: int = 16, width: int = 9) -> Tensor:
    """No two pixels alike, and none of them black."""
    count = samples * channels * height * width
    order = torch.randperm(count, generator=generator(9))
    return (order.reshape(samples, channels, height, width) + 1).float()


def moved(image: Tensor, down: int, right: int, *, mirrored: bool) -> list[Any]:
    """(channels, height, width): shifted, black coming in, then mirrored; pixel by pixel."""
    _, height, width = image.shape
    result = []
    for plane in image.tolist():
        lines = [[0.0] * width for _ in range(height)]
        for h in range(max(0, down), height + min(0, down)):
            for w in range(max(0, right), width + min(0, right)):
                lines[h][width - 1 - w if mirrored else w] = plane[h - down][w - right]
        result.append(lines)
    return result


def explanation(image: Tensor, seen: Tensor, margin: int) -> tuple[int, int, bool]:
    """The one shift within the margin, and mirroring, that make `seen` out of the image."""
    shifts = range(-margin, margin + 1)
    found = [
        (down, right, mirrored)
        for down in shifts
        for right in shifts
        for mirrored in (False, True)
        if moved(image, down, right, mirrored=mirrored) == seen.tolist()
    ]
    assert len(found) == 1, "no shift and mirroring explains it, or several do"
    return found[0]


@pytest.mark.parametrize("how", KINDS)
def test_every_sample_is_shifted_and_mirrored_as_named_and_nothing_else(how: Augmentation) -> None:
    x = make_images(40, channels=2, height=16, width=7)
    seen = augment(x, how, generator())
    assert seen.shape == x.shape
    assert seen.dtype == x.dtype
    found = [explanation(one, other, 2) for one, other in zip(x, seen, strict=True)]
    shifts = set(range(-2, 3)) if "crop" in how else {0}
    assert {down for down, _, _ in found} == shifts
    assert {right for _, right, _ in found} == shifts
    assert {mirrored for *_, mirrored in found} == ({True, False} if "flip" in how else {False})
    if "crop" in how:
        assert any(down != right for down, right, _ in found), "both directions of their own"


@pytest.mark.parametrize(("height", "margin"), [(8, 1), (15, 1), (32, 4), (7, 0)])
def test_a_shift_reaches_an_eighth_of_the_height(height: int, margin: int) -> None:
    x = torch.ones(300, 1, height, height)
    seen = augment(x, "crop", generator())
    black = (seen == 0).all(dim=3).sum(dim=2).max(), (seen == 0).all(dim=2).sum(dim=2).max()
    assert [int(each) for each in black] == [margin, margin]


def test_shifts_and_mirrorings_are_all_equally_likely() -> None:
    samples = 4000
    x = torch.zeros(samples, 1, 8, 8)
    x[:, 0, 4, 3] = 1.0  # off the middle: its place tells everything
    seen = augment(x, "crop-flip", generator())
    places = seen.flatten(1).argmax(dim=1).bincount(minlength=64)
    expected = {
        8 * (4 + down) + (7 - (3 + right) if mirrored else 3 + right)
        for down in (-1, 0, 1)
        for right in (-1, 0, 1)
        for mirrored in (False, True)
    }
    # Columns 2, 3, 4 as they are and 5, 4, 3 mirrored: two of the four are reached in both ways.
    assert set(places.nonzero().flatten().tolist()) == expected
    for place in expected:
        chance = (2 if place % 8 in (3, 4) else 1) / 18
        sigma = (samples * chance * (1 - chance)) ** 0.5
        assert abs(int(places[place]) - samples * chance) < 4 * sigma


@pytest.mark.parametrize("how", KINDS)
def test_the_generator_is_the_only_randomness(how: Augmentation) -> None:
    x = make_images(20)
    before, untouched = torch.get_rng_state(), x.clone()
    first = augment(x, how, generator(1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(x, untouched)
    with torch.random.fork_rng():
        torch.rand(5)
        assert torch.equal(augment(x, how, generator(1)), first)
    if how != "none":
        assert not torch.equal(augment(x, how, generator(2)), first)
        going_on = generator(1)
        augment(x, how, going_on)
        assert not torch.equal(augment(x, how, going_on), first)


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [1, 8])
def test_the_layout_of_the_samples_is_kept(
    how: Augmentation, layout: torch.memory_format, channels: int
) -> None:
    x = make_images(20, channels=channels)
    expected = augment(x, how, generator())
    laid_out = x.clone(memory_format=layout)
    seen = augment(laid_out, how, generator())
    assert torch.equal(seen, expected)
    assert seen.stride() == laid_out.stride()


@pytest.mark.parametrize("how", KINDS)
def test_samples_that_are_no_images_are_left_alone(how: Augmentation) -> None:
    vectors = torch.rand(6, 10, generator=generator())
    chance = generator(1)
    before = chance.get_state()
    assert augment(vectors, how, chance) is vectors
    assert torch.equal(chance.get_state(), before)


# --- in the learner -----------------------------------------------------------------------------


def seen_by(how: Augmentation, batches: list[Samples], method: Method) -> list[Tensor]:
    """What the network is given at each forward."""
    learner = make_learner(method, augmentation=how)
    given: list[Tensor] = []
    learner.network.register_forward_hook(lambda module, inputs, out: given.append(inputs[0]))
    for samples in batches:
        learner.observe(samples)
    return given


@pytest.mark.parametrize(("method", "draws"), [(ER(), 1), (DERpp(), 2)])
def test_stream_samples_and_drawn_ones_are_augmented_each_time_they_are_seen(
    method: Method, draws: int
) -> None:
    samples = batch(0, samples=6)
    given = seen_by("flip", [samples, samples], method)
    known = as_floats(samples)
    mirrored = []
    for x in given:
        for sample in x:
            (which,) = [
                (i, flipped)
                for i in range(6)
                for flipped in (False, True)
                if torch.equal(sample, known[i].flip(-1) if flipped else known[i])
            ]
            mirrored.append(which)
    first, second, replayed = mirrored[:6], mirrored[6:12], mirrored[12:]
    assert len(replayed) == 4 * draws
    assert [i for i, _ in first] == [i for i, _ in second] == list(range(6))
    assert first != second
    assert {flipped for _, flipped in first + second} == {True, False}
    assert {flipped for _, flipped in replayed} == {True, False}


def test_the_buffer_keeps_samples_as_they_came() -> None:
    learner = make_learner(augmentation="crop-flip", capacity=100)
    learner.observe(batch(0))
    stored = learner.buffer.sample(5).samples
    assert torch.equal(stored.images[stored.ids.argsort()], batch(0).images)


def test_predictions_are_made_on_samples_as_they_are() -> None:
    learner = make_learner(augmentation="crop-flip")
    learner.observe(batch(0))
    plain = make_learner()
    plain.load_state_dict(learner.state_dict())
    before = state_of(learner)
    for _ in range(2):
        logits = learner.logits(batch(1, samples=30).images)
        assert torch.equal(logits, plain.logits(batch(1, samples=30).images))
    assert same(state_of(learner), before)


def test_a_pause_keeps_the_augmentations_to_come() -> None:
    assert_pauses_change_nothing(
        lambda: make_learner(augmentation="flip"), two_tasks_and_a_restart()
    )


def test_a_seed_decides_what_is_mirrored() -> None:
    samples = batch(0, samples=30)
    losses = [
        make_learner(augmentation="flip", seed=seed).observe(samples).loss for seed in (0, 0, 1)
    ]
    assert losses[0] == losses[1] != losses[2]
