"""The cache: the same encodings to the last bit, whatever it held, and fewer passes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from detect_builders import encoder_context
from hypothesis import given, settings
from hypothesis import strategies as st
from run_tools import complaint
from same_state import same
from torch import Tensor, nn

from driftwise import rng
from driftwise.detect import Encoder, LearnerEncoder, RandomEncoder
from driftwise.encoders.encoding_cache import BOOKKEEPING, PORTION, Cached, keys_of
from driftwise.metrics import FlopMeter
from driftwise.runs import checkpoint
from driftwise.types import Encoding

ROW_BYTES = BOOKKEEPING + 4 * (1 + 2)
"""of an encoding by `Counting`"""


class Counting:
    """Encodes a sample by the numbers it begins with, and records what it was given."""

    fixed: ClassVar[bool] = True

    def __init__(self) -> None:
        self.name = "counting"
        self.networks: Sequence[nn.Module] = ()
        self.portions: list[Tensor] = []

    def encode(self, images: Tensor) -> Encoding:
        self.portions.append(images)
        numbers = images.flatten(1).float()
        return Encoding(logits=numbers[:, :1], features=numbers[:, :2])

    def asked(self) -> list[int]:
        """The first byte of every sample so far that was not blank."""
        samples = torch.cat(self.portions).flatten(1)
        self.portions.clear()
        return [int(sample[0]) for sample in samples if sample.any()]


def numbered(*numbers: int) -> Tensor:
    """Images of 2x2 that begin with their number and do not end in 0."""
    images = torch.ones(len(numbers), 2, 2, 1, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.tensor(numbers)
    return images


def make_images(count: int, *shape: int, seed: int = 0) -> Tensor:
    draw = rng.fork(seed, "pictures")
    return torch.randint(256, (count, *shape), generator=draw, dtype=torch.uint8)


def equal(first: Encoding, second: Encoding) -> bool:
    """To the last bit."""
    return bool(same(vars(first), vars(second)))


def test_only_new_samples_are_encoded_once_in_whole_portions_and_in_their_order() -> None:
    counting = Counting()
    cached = Cached(counting)
    assert cached.encode(numbered(3, 1, 3, 2)).logits.flatten().tolist() == [3, 1, 3, 2]
    assert counting.asked() == [3, 1, 2]
    cached.encode(numbered(4, 2, 5, 3)).logits.zero_()  # the result is the caller's to change
    assert counting.asked() == [4, 5]
    assert cached.encode(numbered(5, 4)).features.tolist() == [[5, 1], [4, 1]]
    assert not counting.portions
    cached.encode(numbered(*range(10, PORTION + 13)))
    assert [len(portion) for portion in counting.portions] == [PORTION] * 2
    nothing = cached.encode(numbered())
    assert (nothing.logits.shape, nothing.features.shape) == ((0, 1), (0, 2))


def test_it_passes_for_its_encoder_and_other_encoders_are_refused() -> None:
    random, other = random_8(), random_8(seed=1)
    cached: Encoder = Cached(random)
    assert (cached.name, cached.networks, cached.fixed) == (random.name, random.networks, True)
    assert "the encoder learner learns" in complaint(
        lambda: Cached(LearnerEncoder(encoder_context()))
    )
    assert "got 0 bytes" in complaint(lambda: Cached(Counting(), max_bytes=0))
    line = complaint(lambda: Cached(other).load_state_dict(Cached(random).state_dict()))
    assert random.name in line
    assert other.name in line


# --- bounded memory -----------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    calls=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=9), max_size=12),
    room=st.integers(1, 6),
)
def test_it_keeps_what_a_plain_queue_would_keep(calls: list[list[int]], room: int) -> None:
    counting = Counting()
    cached = Cached(counting, max_bytes=room * ROW_BYTES)
    queue: list[int] = []
    for call in calls:
        new = [number for number in dict.fromkeys(call) if number not in queue]
        assert cached.encode(numbered(*call)).logits.flatten().tolist() == call
        assert (counting.asked() if counting.portions else []) == new
        queue = [*queue, *new][-room:]
        kept = cached.state_dict()["logits"]
        assert kept.flatten().tolist() == queue, "the oldest first"


# --- keys ---------------------------------------------------------------------------------------


def test_every_single_bit_counts_and_so_does_every_swap_of_two_pixels() -> None:
    sample = make_images(1, 4, 4, 1)
    flipped = sample.repeat(128, 1, 1, 1).reshape(128, 16)
    flipped[torch.arange(128), torch.arange(128) // 8] ^= 2 ** (torch.arange(128) % 8).byte()
    pixels = sample.reshape(16).tolist()
    swapped = []
    for i in range(16):
        for j in range(i):
            other = list(pixels)
            other[i], other[j] = other[j], other[i]
            swapped.append(other)
    samples = torch.cat([sample.reshape(1, 16), flipped, torch.tensor(swapped, dtype=torch.uint8)])
    assert len(set(keys_of(samples))) == len({tuple(each) for each in samples.tolist()})


def test_shape_and_type_are_part_of_the_content_and_the_layout_is_not() -> None:
    square = torch.zeros(1, 4, 4, 1, dtype=torch.uint8)
    others = [square.reshape(1, 2, 8, 1), square.reshape(1, 16), square.view(torch.int8)]
    others.append(torch.zeros(1, 4))  # as many bytes
    assert len({keys_of(each)[0] for each in [square, *others]}) == 5
    images = make_images(4, 3, 5, 3)
    turned = images.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert not turned.is_contiguous()
    assert keys_of(turned) == keys_of(images) == keys_of(torch.cat([images, images]))[4:]
    assert keys_of(images[:0]) == []


# --- to the last bit ----------------------------------------------------------------------------


def random_8(seed: int = 0) -> Encoder:
    return RandomEncoder(encoder_context((8, 8, 1), seed=seed))


@pytest.mark.parametrize("shape", [(8, 8, 1), (32, 32, 3)])
def test_equal_pixels_have_equal_encodings_whatever_the_cache_held(shape: tuple[int, ...]) -> None:
    encoder = RandomEncoder(encoder_context(shape))
    images = make_images(PORTION + 8, *shape)
    afresh = Cached(encoder).encode(images)
    filled = Cached(encoder)
    for samples in ([5], [3, 17, 4], list(range(39, 20, -1))):  # other company, other places
        filled.encode(images[samples])
    assert equal(filled.encode(images), afresh)
    order = torch.randperm(len(images), generator=rng.fork(0, "order"))
    assert equal(Cached(encoder).encode(images[order]), afresh[order])
    tight = Cached(encoder, max_bytes=10 * (BOOKKEEPING + 4 * afresh.logits.shape[1]))
    tight.encode(images)
    assert equal(tight.encode(images), afresh)
    plain = encoder.encode(images)
    assert torch.allclose(afresh.logits, plain.logits, atol=1e-3)
    assert torch.allclose(afresh.features, plain.features, atol=1e-3)


# --- saving and going on ------------------------------------------------------------------------


def test_going_on_from_a_saved_state_equals_never_having_stopped(tmp_path: Path) -> None:
    booked: list[int] = []

    def monitored() -> Cached:
        encoder = random_8()
        FlopMeter(booked.append).attach(encoder.networks[0], (1, 8, 8))
        return Cached(encoder, max_bytes=60 * 840)

    first, second = make_images(50, 8, 8, 1), make_images(45, 8, 8, 1, seed=1)
    cached = monitored()
    cached.encode(first)
    cached.encode(second)  # more than there is room for
    checkpoint.write(tmp_path / "cache", cached.state_dict(), format=1)
    booked.clear()
    coming = (torch.cat([second, first[-20:]]), first)
    undisturbed = [cached.encode(images) for images in coming]
    flops = sum(booked)
    resumed = monitored()
    resumed.load_state_dict(checkpoint.read(tmp_path / "cache", format=1))
    booked.clear()
    assert all(map(equal, undisturbed, [resumed.encode(images) for images in coming]))
    assert sum(booked) == flops > 0
    assert same(resumed.state_dict(), cached.state_dict())
    checkpoint.write(tmp_path / "empty", Cached(random_8()).state_dict(), format=1)
    resumed.load_state_dict(checkpoint.read(tmp_path / "empty", format=1))
    assert len(resumed.state_dict()["keys"]) == 0
