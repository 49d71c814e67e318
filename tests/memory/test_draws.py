"""Random numbers of the buffer: which generator they come from, and what they are made into."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from driftwise import rng
from driftwise.memory import POLICIES, ReplayBuffer, policies
from driftwise.memory.policies import RANGE, Draws
from driftwise.types import Samples


@pytest.mark.parametrize("block", [1, 7, 1024])
def test_numbers_and_states_are_the_generators_however_they_are_taken(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "BLOCK", block)
    plain, source = rng.fork(0, "draws"), Draws(rng.fork(0, "draws"))
    for count in (1, 5, 0, 32, 3, 700):
        expected = [int(torch.randint(RANGE, (), generator=plain)) for _ in range(count)]
        assert source.take(count).tolist() == expected
        if count != 5:  # asking for a state shifts nothing
            assert torch.equal(source.get_state(), plain.get_state())
    other = Draws(rng.fork(1, "draws"))
    other.take(20)
    other.set_state(plain.get_state())
    assert other.take(9).tolist() == source.take(9).tolist()


@pytest.mark.parametrize(("count", "out_of"), [(9, 18), (12, 60), (7, 13), (3, 30)])
def test_every_number_stands_at_every_place_equally_often(count: int, out_of: int) -> None:
    """By each of the three ways in which a choice is made: few, many and most of the numbers."""
    source, repeats = Draws(rng.fork(0, "picks", count, out_of)), 1500
    hits = np.zeros((count, out_of))
    for _ in range(repeats):
        chosen = source.choose(count, out_of)
        assert len(set(chosen.tolist())) == count
        hits[np.arange(count), chosen] += 1
    low, high = stats.binom.interval(1 - 1e-7 / hits.size, repeats, 1 / out_of)
    assert low <= hits.min() <= hits.max() <= high


HISTORY = {
    "balanced": [
        [339, 221, 378, 23],
        [384, 399, 221, 238],
        [377, 180, 334, 316],
        [6, 87, 270, 138, 210, 15, 384, 180, 378, 369, 393, 399, 243, 339, 123],
    ],
    "reservoir": [
        [17, 214, 5, 278],
        [278, 369, 393, 180],
        [213, 214, 164, 276],
        [180, 393, 207, 174, 141, 369, 270, 72, 162, 213, 183, 276, 51],
    ],
}
"""the last draws of the three kinds, and the ids of class 0 at the end"""


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_draws_of_a_buffer_never_change(policy: str) -> None:
    """Saved runs and checkpoints depend on them."""
    buffer = ReplayBuffer(40, policy=POLICIES[policy](), seed=0)
    for start in range(0, 400, 8):
        ids = torch.arange(start, start + 8)
        buffer.offer(Samples(images=ids[:, None], labels=ids % 3, ids=ids, concepts=ids * 0))
        drawn = [buffer.sample(count).samples.ids.tolist() for count in (4, 15, 21)]
        if start == 200:
            buffer.drop(1)
            buffer.put(buffer.samples_of(0)[:4])
    assert [ids[:4] for ids in drawn] == HISTORY[policy][:3]
    assert buffer.samples_of(0).ids.tolist() == HISTORY[policy][3]
