"""Random numbers of the buffer: which generator they come from, and what they are made into."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats

from driftwise import rng
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.memory.draws import RANGE, choose, draw
from driftwise.types import Samples


def test_numbers_are_the_generators_however_they_are_taken() -> None:
    one_by_one, in_pieces = rng.fork(0, "draws"), rng.fork(0, "draws")
    expected = [int(torch.randint(RANGE, (), generator=one_by_one)) for _ in range(60)]
    pieces = [draw(in_pieces, count) for count in (3, 0, 1, 17, 39)]
    assert np.concatenate(pieces).tolist() == expected
    assert torch.equal(in_pieces.get_state(), one_by_one.get_state())


@pytest.mark.parametrize(("count", "out_of"), [(2, 5), (3, 5), (1, 4), (3, 6)])
def test_every_ordered_choice_is_equally_likely(count: int, out_of: int) -> None:
    generator = rng.fork(0, "picks", count, out_of)
    outcomes = list(permutations(range(out_of), count))
    observed = Counter(
        tuple(choose(generator, count, out_of).tolist()) for _ in range(40 * len(outcomes))
    )
    assert set(observed) <= set(outcomes)
    # Had the seed been drawn, a right sampler would fail once in ten million times.
    assert stats.chisquare([observed[outcome] for outcome in outcomes]).pvalue > 1e-7


@pytest.mark.parametrize(("count", "out_of"), [(9, 18), (12, 60), (7, 13), (3, 30)])
def test_every_number_stands_at_every_place_equally_often(count: int, out_of: int) -> None:
    """By each of the three ways in which a choice is made: few, many and most of the numbers."""
    generator, repeats = rng.fork(0, "picks", count, out_of), 1500
    hits = np.zeros((count, out_of))
    for _ in range(repeats):
        chosen = choose(generator, count, out_of)
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
