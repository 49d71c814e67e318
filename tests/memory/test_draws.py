"""Making random numbers ahead changes nothing about them."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats

from driftwise import rng
from driftwise.memory import POLICIES, ReplayBuffer, draws
from driftwise.memory.draws import RANGE, Draws, Picks
from driftwise.types import Samples

small_blocks = pytest.mark.parametrize("block", [1, 7, 4096])


def one_by_one(count: int) -> list[int]:
    generator = rng.fork(0, "draws")
    return [int(torch.randint(RANGE, (), generator=generator)) for _ in range(count)]


@small_blocks
def test_numbers_are_the_generators_however_they_are_taken(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draws, "BLOCK", block)
    expected = one_by_one(60)
    source = Draws(rng.fork(0, "draws"))
    assert source.take(3).tolist() == expected[:3]
    assert source.ahead(9).tolist() == expected[3:12]
    assert source.take(0).tolist() == []
    source.skip(17)  # past what has been made
    assert source.take_below(5, 4).tolist() == [expected[20 + i] % (5 + i) for i in range(4)]
    assert source.take_below(9, 6).tolist() == [expected[24 + i] % (9 + i) for i in range(6)]
    assert source.take_below(2, 5).tolist() == [expected[30 + i] % (2 + i) for i in range(5)]
    assert source.take(25).tolist() == expected[35:]


@small_blocks
def test_a_state_is_that_of_a_generator_which_made_what_was_taken(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draws, "BLOCK", block)
    plain, source = rng.fork(0, "draws"), Draws(rng.fork(0, "draws"))
    for count in (1, 5, 0, 32, 700):
        torch.randint(RANGE, (count,), generator=plain)
        source.take(count)
        source.ahead(3)
        assert torch.equal(source.get_state(), plain.get_state())
    other = Draws(rng.fork(1, "draws"))
    other.take_below(1, 20)
    other.set_state(plain.get_state())
    assert other.take_below(1, 9).tolist() == source.take_below(1, 9).tolist()


CHOICES = [
    (2, 900),
    (2, 900),
    (2, 901),
    (12, 300),
    (12, 300),
    (40, 100),
    (12, 300),
    (3, 3),
    (0, 5),
    (0, 0),
]
"""several of a kind, a change of kind and the first again; few, many and most of the numbers"""


@small_blocks
def test_choices_do_not_depend_on_what_was_made_ahead(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draws, "BLOCK", block)
    going_on = Picks(rng.fork(0, "picks"))
    state = going_on.get_state()
    for turn, choice in enumerate(CHOICES * 30):
        fresh = Picks(rng.fork(1, "picks"))
        fresh.set_state(state)  # it has nothing ready
        assert fresh.take(*choice).tolist() == going_on.take(*choice).tolist()
        state = fresh.get_state()
        if turn % 3 == 0:
            assert torch.equal(going_on.get_state(), state)


@pytest.mark.parametrize(("count", "out_of"), [(2, 5), (3, 5), (1, 4), (3, 6)])
def test_every_ordered_choice_is_equally_likely(count: int, out_of: int) -> None:
    picks = Picks(rng.fork(0, "picks", count, out_of))
    outcomes = list(permutations(range(out_of), count))
    observed = Counter(tuple(picks.take(count, out_of).tolist()) for _ in range(40 * len(outcomes)))
    assert set(observed) <= set(outcomes)
    # Had the seed been drawn, a right sampler would fail once in ten million times.
    assert stats.chisquare([observed[outcome] for outcome in outcomes]).pvalue > 1e-7


@pytest.mark.parametrize(("count", "out_of"), [(9, 18), (12, 60), (7, 13)])
def test_every_number_stands_at_every_place_equally_often(count: int, out_of: int) -> None:
    """By each of the three ways in which a choice is made: few, many and most of the numbers."""
    picks, repeats = Picks(rng.fork(0, "picks", count, out_of)), 1500
    hits = np.zeros((count, out_of))
    for _ in range(repeats):
        chosen = picks.take(count, out_of)
        assert len(set(chosen.tolist())) == count
        hits[np.arange(count), chosen] += 1
    low, high = stats.binom.interval(1 - 1e-7 / hits.size, repeats, 1 / out_of)
    assert low <= hits.min() <= hits.max() <= high


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_memory_does_not_show_how_many_numbers_are_made_ahead(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def history(block: int) -> list[list[int]]:
        monkeypatch.setattr(draws, "BLOCK", block)
        memory, said = ReplayBuffer(40, policy=POLICIES[policy](), seed=0), list[list[int]]()
        for start in range(0, 400, 8):
            ids = torch.arange(start, start + 8)
            memory.offer(Samples(images=ids[:, None], labels=ids % 3, ids=ids, concepts=ids * 0))
            said += [memory.sample(4).samples.ids.tolist(), memory.recall(6)[1].tolist()]
        return [*said, memory.samples_of(0).ids.tolist()]

    assert history(5) == history(64) == history(4096)
