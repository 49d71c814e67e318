"""The laws of randomness: named, reproducible, and never at anybody else's expense."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from driftwise import rng

paths = st.lists(st.sampled_from(["memory", "shuffle", "a", "b"]) | st.integers(0, 20), max_size=3)


def global_states() -> tuple[bytes, bytes]:
    numpy_state = np.random.get_state()  # noqa: NPY002  # only looked at
    return torch.get_rng_state().numpy().tobytes(), repr(numpy_state).encode()


@given(st.integers(0, 2**32), paths)
def test_derive_is_the_head_of_a_sha256_over_the_name(seed: int, path: list[str | int]) -> None:
    digest = hashlib.sha256("/".join([str(seed), *map(str, path)]).encode()).hexdigest()
    assert rng.derive(seed, *path) == int(digest[:16], 16) // 2


def test_derived_seeds_are_the_same_on_every_machine_and_in_every_release() -> None:
    assert rng.derive(0, "memory", "offer") == 2174604981251637582
    assert rng.derive(42, "drift", 1) == 2583154801267726846


def test_forking_and_drawing_leave_the_global_states_alone() -> None:
    before = global_states()
    torch.rand(3, generator=rng.fork(0, "x"))
    rng.legacy(0).rand(3)
    assert global_states() == before


def test_legacy_draws_are_numpys_frozen_ones_for_any_seed() -> None:
    assert rng.legacy(42).permutation(5).tolist() == [1, 4, 2, 0, 3]
    assert rng.legacy(2**63 - 1).randint(1000) == np.random.RandomState(2**32 - 1).randint(1000)


def test_as_global_lends_the_generator_and_puts_the_global_state_back() -> None:
    before = torch.get_rng_state()
    lent, direct = rng.fork(0, "net"), rng.fork(0, "net")
    with rng.as_global(lent):
        drawn = torch.rand(4)
    assert torch.equal(drawn, torch.rand(4, generator=direct))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(lent.get_state(), direct.get_state())  # and it has moved on


def test_as_global_puts_the_global_state_back_after_an_error_too() -> None:
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="negative"), rng.as_global(rng.fork(0, "net")):
        torch.cat([torch.rand(4), torch.rand(-1)])
    assert torch.equal(torch.get_rng_state(), before)
