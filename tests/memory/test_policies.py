"""The laws of the slot policies, against exact probabilities and versions that place one sample at a time."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from scipy import stats

from driftwise import rng
from driftwise.memory import POLICIES, Balanced, ReplayBuffer, Reservoir, policies
from driftwise.memory.policies import RANGE, Draws, Slots
from driftwise.types import Samples

# Seeds are fixed, so a test passes always or never. Had they been drawn, each test of a
# distribution would fail a right memory with at most this probability.
FALSE_FAILURE = 1e-7


def samples(ids: list[int], labels: list[int] | None = None) -> Samples:
    number = torch.tensor(ids)
    return Samples(
        images=number[:, None].float(),
        labels=torch.zeros_like(number) if labels is None else torch.tensor(labels),
        ids=number,
        concepts=torch.zeros_like(number),
    )


def kept_ids(memory: ReplayBuffer) -> list[int]:
    return [i for label in memory.counts() for i in memory.samples_of(label).ids.tolist()]


def offer_in_batches(memory: ReplayBuffer, stream: Samples, batch_size: int) -> None:
    for start in range(0, len(stream), batch_size):
        memory.offer(stream[start : start + batch_size])


def assert_distribution(
    observed: Counter[frozenset[int]], law: dict[frozenset[int], float]
) -> None:
    """Chi-square of outcomes against their exact probabilities."""
    assert set(observed) <= set(law)
    repeats = observed.total()
    expected = np.array([law[outcome] * repeats for outcome in law])
    assert expected.min() > 5
    counts = np.array([observed[outcome] for outcome in law])
    assert stats.chisquare(counts, expected).pvalue > FALSE_FAILURE


def assert_frequencies(hits: np.ndarray, trials: int, probability: np.ndarray | float) -> None:
    """Each of several binomial counts within its exact two-sided bounds, together FALSE_FAILURE."""
    level = FALSE_FAILURE / hits.size
    low, high = stats.binom.interval(1 - level, trials, probability)
    assert (hits >= low).all(), (hits, low)
    assert (hits <= high).all(), (hits, high)


@pytest.mark.parametrize("name", sorted(POLICIES))
@pytest.mark.parametrize("batch_size", [3, 7, 60])
def test_batching_changes_nothing_bit_for_bit(name: str, batch_size: int) -> None:
    labels = torch.randint(5, (120,), generator=rng.fork(2, "labels")).tolist()
    stream = samples(list(range(120)), labels)
    single, batched = (ReplayBuffer(9, policy=POLICIES[name](), seed=3) for _ in range(2))
    for part, drifted in ((stream[:60], 1), (stream[60:], 2)):
        offer_in_batches(single, part, batch_size=1)
        offer_in_batches(batched, part, batch_size)
        for label in range(5):
            assert torch.equal(single.samples_of(label).ids, batched.samples_of(label).ids)
        assert torch.equal(single.sample(4).samples.ids, batched.sample(4).samples.ids)
        assert single.drop(drifted) == batched.drop(drifted) > 0


# Reservoir


def test_reservoir_keeps_every_subset_of_the_stream_equally_often() -> None:
    observed: Counter[frozenset[int]] = Counter()
    for seed in range(1500):
        memory = ReplayBuffer(2, policy=Reservoir(), seed=seed)
        offer_in_batches(memory, samples([0, 1, 2, 3]), batch_size=3)
        observed[frozenset(kept_ids(memory))] += 1
    assert_distribution(observed, {frozenset(s): 1 / 6 for s in combinations(range(4), 2)})


@pytest.mark.parametrize("batch_size", [1, 3, 7, 40])
def test_reservoir_equals_algorithm_r_sample_by_sample_bit_for_bit(batch_size: int) -> None:
    length, capacity, seed = 40, 6, 11
    generator = rng.fork(seed, "memory", "offer")
    slots: list[int | None] = [None] * capacity
    for n in range(length):
        j = int(torch.randint(2**62, (1,), generator=generator)) % (n + 1)
        slot = n if n < capacity else j
        if slot < capacity:
            slots[slot] = n
    memory = ReplayBuffer(capacity, policy=Reservoir(), seed=seed)
    offer_in_batches(memory, samples(list(range(length))), batch_size)
    assert memory.samples_of(0).ids.tolist() == slots


def test_reservoir_law_survives_a_drop_and_a_smaller_put() -> None:
    """Stream samples stay at capacity / seen; a put sample lives on like any incumbent of its time."""
    repeats, capacity, before, length, renewed = 1000, 4, 8, 16, 99
    hits = np.zeros(length)
    puts = survivors = 0
    for seed in range(repeats):
        memory = ReplayBuffer(capacity, policy=Reservoir(), seed=seed)
        stream = samples(
            list(range(length)), labels=[n % 2 if n < before else 2 for n in range(length)]
        )
        offer_in_batches(memory, stream[:before], batch_size=3)
        freed = memory.drop(0)
        if freed >= 2:
            puts += 1
            memory.put(samples([renewed], labels=[0]))
            assert memory.free == freed - 1
        offer_in_batches(memory, stream[before:], batch_size=3)
        kept = kept_ids(memory)
        survivors += renewed in kept
        hits[[i for i in kept if i != renewed]] += 1
    dropped = np.arange(0, before, 2)
    assert hits[dropped].sum() == 0
    assert_frequencies(np.delete(hits, dropped), repeats, capacity / length)
    assert puts > 600
    assert_frequencies(np.array([survivors]), puts, before / length)


def test_reservoir_law_survives_a_drop_before_the_buffer_is_full() -> None:
    repeats, capacity, before, length = 400, 6, 4, 12
    stream = samples(list(range(length)), labels=[0, 1, 0, 1] + [2] * 8)
    hits = np.zeros(length)
    for seed in range(repeats):
        memory = ReplayBuffer(capacity, policy=Reservoir(), seed=seed)
        memory.offer(stream[:before])
        assert memory.drop(0) == 2
        offer_in_batches(memory, stream[before:], batch_size=5)
        hits[kept_ids(memory)] += 1
    assert hits[[0, 2]].sum() == 0
    assert_frequencies(np.delete(hits, [0, 2]), repeats, capacity / length)


def test_reservoir_leaves_holes_to_the_draw() -> None:
    memory = ReplayBuffer(4, policy=Reservoir(), seed=0)
    memory.offer(samples([0, 1, 2], labels=[0, 1, 0]))
    memory.drop(0)
    memory.offer(samples([3], labels=[1]))
    # Sample 3 goes to slot 3 although slots 0 and 2 are free: that is where algorithm R sends it.
    assert memory.samples_of(1).ids.tolist() == [1, 3]
    assert memory.free == 2
    memory.put(samples([7], labels=[1]))
    assert memory.samples_of(1).ids.tolist() == [7, 1, 3]


# Balanced


def balanced_law(labels: tuple[int, ...], capacity: int) -> dict[frozenset[int], float]:
    """The exact probability of every kept set, from the definition, one sample after the other."""

    @cache
    def after(n: int) -> dict[frozenset[int], Fraction]:
        if n == 0:
            return {frozenset(): Fraction(1)}
        law: dict[frozenset[int], Fraction] = {}
        sample, accept = n - 1, min(Fraction(1), Fraction(capacity, n))
        for held, p in after(n - 1).items():
            law[held] = law.get(held, Fraction(0)) + p * (1 - accept)
            if len(held) < capacity:
                leave: list[tuple[frozenset[int], Fraction]] = [(frozenset(), Fraction(1))]
            else:
                sizes = Counter(labels[i] for i in held)
                largest = [label for label in sizes if sizes[label] == max(sizes.values())]
                leave = [
                    (frozenset([i]), Fraction(1, len(largest) * sizes[labels[i]]))
                    for i in held
                    if labels[i] in largest
                ]
            for gone, q in leave:
                new = held - gone | {sample}
                law[new] = law.get(new, Fraction(0)) + p * accept * q
        return law

    law = {held: float(p) for held, p in after(len(labels)).items() if p > 0}
    assert abs(sum(law.values()) - 1) < 1e-12
    return law


@pytest.mark.parametrize(
    ("capacity", "labels"),
    [(3, [0, 0, 1, 0, 1, 0]), (2, [0, 1, 2, 0, 1]), (4, [0, 0, 1, 1, 2])],  # without, with ties
)
def test_balanced_follows_its_definition_exactly(capacity: int, labels: list[int]) -> None:
    observed: Counter[frozenset[int]] = Counter()
    for seed in range(800):
        memory = ReplayBuffer(capacity, policy=Balanced(), seed=seed)
        memory.offer(samples(list(range(len(labels))), labels))
        observed[frozenset(kept_ids(memory))] += 1
    assert_distribution(observed, balanced_law(tuple(labels), capacity))


def test_balanced_fills_free_slots_first() -> None:
    memory = ReplayBuffer(4, policy=Balanced(), seed=0)
    memory.offer(samples([0, 1, 2, 3], labels=[0, 1, 0, 1]))
    memory.drop(0)
    memory.put(samples([4], labels=[2]))
    n = 5
    while memory.free:  # until the first sample is accepted
        memory.offer(samples([n], labels=[3]))
        n += 1
    assert memory.counts() == {1: 2, 2: 1, 3: 1}


# Slots and the catalogue


@pytest.mark.parametrize("with_members", [False, True])
def test_slots_keep_every_slot_once_whatever_is_written_and_released(with_members: bool) -> None:
    generator = rng.fork(0, "slots")
    slots = Slots(12)
    held: dict[int, int] = {}
    for _ in range(300):
        count = int(torch.randint(1, 6, (1,), generator=generator))
        where = torch.randint(12, (count,), generator=generator).numpy()  # some more than once
        labels = torch.randint(4, (count,), generator=generator).numpy()
        slots.write(where, labels)
        held.update(zip(where.tolist(), labels.tolist(), strict=True))
        label = int(torch.randint(8, (1,), generator=generator))
        slots.release(slots.of_class(label))
        held = {slot: own for slot, own in held.items() if own != label}
        assert sorted(slots.order.tolist()) == list(range(12))
        assert sorted(slots.occupied.tolist()) == sorted(held)
        for own in range(4):
            mine = sorted(s for s in held if held[s] == own)
            assert slots.of_class(own).tolist() == mine
            if with_members:
                assert sorted(slots.members.get(own, [])) == mine


# Random numbers


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


@pytest.mark.parametrize(("count", "out_of"), [(2, 5), (3, 5)])
def test_every_ordered_choice_is_equally_likely(count: int, out_of: int) -> None:
    source = Draws(rng.fork(0, "picks", count, out_of))
    outcomes = list(permutations(range(out_of), count))
    observed = Counter(
        tuple(source.choose(count, out_of).tolist()) for _ in range(40 * len(outcomes))
    )
    assert set(observed) <= set(outcomes)
    # Had the seed been drawn, a right sampler would fail once in ten million times.
    assert stats.chisquare([observed[outcome] for outcome in outcomes]).pvalue > 1e-7


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
