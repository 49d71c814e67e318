"""The laws of the memory, whatever its policy."""

from __future__ import annotations

import copy
from collections import Counter
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from scipy import stats
from torch import Tensor

from driftwise.errors import UserError
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.protocols import Replay
from driftwise.types import Samples

every_policy = pytest.mark.parametrize("policy", sorted(POLICIES))


def memory_of(capacity: int, policy: str = "reservoir", seed: int = 0) -> ReplayBuffer:
    return ReplayBuffer(capacity, policy=POLICIES[policy](), seed=seed)


def samples(ids: list[int], labels: list[int] | None = None) -> Samples:
    """Samples whose pixels and concept follow from their id; three classes in turn by default."""
    number = torch.tensor(ids, dtype=torch.int64)
    return Samples(
        images=pixels(number),
        labels=number % 3 if labels is None else torch.tensor(labels, dtype=torch.int64),
        ids=number,
        concepts=number % 7,
    )


def pixels(ids: Tensor) -> Tensor:
    """uint8 (samples, 2, 2, 3), another image for each of the first 65,536 ids."""
    pair = torch.stack([ids % 256, ids // 256], dim=1).to(torch.uint8)
    return pair.repeat(1, 6).view(-1, 2, 2, 3)


def logits(ids: Tensor) -> Tensor:
    return ids[:, None] * torch.tensor([1.0, -0.5])


def assert_equal_states(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, dict):
            assert_equal_states(value, other[key])
        elif isinstance(value, Tensor):
            assert value.dtype == other[key].dtype
            assert torch.equal(value, other[key])
        else:
            assert type(value) in (int, str)
            assert value == other[key]


# Sampling


@pytest.mark.parametrize(("held", "count"), [(5, 2), (5, 3)])  # below and past half of the samples
def test_every_subset_is_sampled_equally_often_with_holes_among_the_slots(
    held: int, count: int
) -> None:
    memory = memory_of(8)
    memory.offer(samples(list(range(8)), labels=[0, 1, 0, 1, 0, 1, 1, 1]))
    memory.drop(0)
    assert len(memory) == held
    observed = Counter(frozenset(memory.sample(count).samples.ids.tolist()) for _ in range(2000))
    subsets = [frozenset(s) for s in combinations([1, 3, 5, 6, 7], count)]
    assert set(observed) == set(subsets)
    # Had the seed been drawn, a uniform sampler would fail this once in ten million times.
    assert stats.chisquare([observed[s] for s in subsets]).pvalue > 1e-7


@every_policy
def test_offering_does_not_shift_sampling_nor_sampling_offering(policy: str) -> None:
    memory = memory_of(6, policy)
    memory.offer(samples(list(range(20))))
    start = memory.state_dict()["generators"]
    memory.offer(samples(list(range(20, 50))))
    offered = memory.state_dict()["generators"]
    memory.sample(3)
    sampled = memory.state_dict()["generators"]
    assert torch.equal(start["sample"], offered["sample"])
    assert not torch.equal(start["offer"], offered["offer"])
    assert torch.equal(offered["offer"], sampled["offer"])
    assert not torch.equal(offered["sample"], sampled["sample"])


def test_a_sample_has_no_repeats_and_no_more_samples_than_there_are() -> None:
    memory = memory_of(50)
    memory.offer(samples(list(range(40))))
    for count in (0, 1, 7, 20, 21, 39, 40, 41, 1000):
        ids = memory.sample(count).samples.ids.tolist()
        assert len(ids) == len(set(ids)) == min(count, 40)


def test_a_sample_is_a_copy() -> None:
    memory = memory_of(4)
    memory.offer(samples([1, 2, 3]))
    before = memory.state_dict()
    drawn = memory.sample(3)
    drawn.samples.images.zero_()
    drawn.samples.labels.fill_(9)
    after = memory.state_dict()
    del before["generators"], after["generators"]
    assert_equal_states(before, after)


# What travels with a sample


@every_policy
def test_pixels_concepts_and_extras_travel_with_their_samples(policy: str) -> None:
    memory = memory_of(16, policy)
    for step in range(30):
        ids = torch.arange(4 * step, 4 * step + 4)
        memory.offer(samples(ids.tolist()), {"logits": logits(ids), "flag": ids % 2 == 0})
    memory.drop(1)
    fresh = torch.tensor([1001, 1004])
    memory.put(
        samples(fresh.tolist(), labels=[1, 1]),
        {"logits": logits(fresh), "flag": fresh % 2 == 0},
    )
    drawn = memory.sample(16)
    ids = drawn.samples.ids
    assert len(ids) == len(memory)
    assert torch.equal(drawn.samples.images, pixels(ids))
    assert torch.equal(drawn.samples.concepts, ids % 7)
    assert torch.equal(drawn.extras["logits"], logits(ids))
    assert torch.equal(drawn.extras["flag"], ids % 2 == 0)
    assert memory.samples_of(1).ids.tolist() == [1001, 1004]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_float_samples_come_back_as_they_went_in(dtype: torch.dtype) -> None:
    vectors = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    zeros = torch.zeros(5, dtype=torch.int64)
    memory = memory_of(8)
    memory.offer(Samples(images=vectors, labels=zeros, ids=torch.arange(5), concepts=zeros))
    kept = memory.samples_of(0)
    assert kept.images.dtype == dtype
    assert torch.equal(kept.images, vectors)


def test_samples_laid_out_otherwise_are_kept_the_same() -> None:
    channels_last = samples([3, 4, 5])
    strided = Samples(
        images=channels_last.images.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1),
        labels=torch.zeros(6, dtype=torch.int64)[::2],
        ids=torch.tensor([3, 0, 4, 0, 5, 0])[::2],
        concepts=channels_last.concepts,
    )
    memory = memory_of(6)
    memory.offer(strided)
    memory.put(strided)
    kept = memory.samples_of(0)
    assert torch.equal(kept.images, pixels(kept.ids))
    assert kept.ids.tolist() == [3, 4, 5, 3, 4, 5]


# Dropping and putting


@every_policy
def test_drop_then_put_restores_the_class_counts(policy: str) -> None:
    memory = memory_of(20, policy)
    memory.offer(samples(list(range(100))))
    before, seen = memory.counts(), memory.seen
    freed = memory.drop(1)
    assert freed == before[1] == memory.free
    assert 1 not in memory.counts()
    assert len(memory.samples_of(1)) == 0
    memory.put(samples(list(range(200, 200 + freed)), labels=[1] * freed))
    assert memory.counts() == before
    assert list(memory.counts()) == [0, 1, 2]
    assert memory.seen == seen


def test_some_samples_of_a_class_can_be_dropped() -> None:
    memory = memory_of(6)
    memory.offer(samples([0, 1, 2, 3], labels=[0, 1, 0, 0]))
    assert memory.drop(0, only=torch.tensor([True, False, True])) == 2
    assert memory.samples_of(0).ids.tolist() == [2]
    assert memory.counts() == {0: 1, 1: 1}


def test_put_fills_the_lowest_free_slots() -> None:
    memory = memory_of(6)
    memory.offer(samples([0, 1, 2, 3, 4], labels=[5, 0, 0, 5, 0]))
    memory.drop(0)
    memory.put(samples([10, 11], labels=[5, 5]))
    assert memory.samples_of(5).ids.tolist() == [0, 10, 11, 3]


def test_putting_more_samples_than_there_are_free_slots_is_refused_and_changes_nothing() -> None:
    memory = memory_of(3)
    memory.offer(samples([0, 1]))
    before = memory.state_dict()
    with pytest.raises(ValueError, match=r"^expected at most 1 samples, one per free slot; got 2"):
        memory.put(samples([2, 3]))
    assert_equal_states(memory.state_dict(), before)


def test_an_empty_buffer_gives_empty_answers() -> None:
    memory = memory_of(3)
    memory.offer(samples([]))
    memory.put(samples([]))
    shown: Replay = memory
    assert (len(memory), memory.free, memory.seen, memory.counts()) == (0, 3, 0, {})
    assert len(memory.sample(5)) == len(shown.samples_of(0)) == 0


# What is refused


def test_a_capacity_alone_makes_a_reservoir_of_seed_0() -> None:
    plain, spelled_out = ReplayBuffer(5), memory_of(5)
    for each in (plain, spelled_out):
        each.offer(samples(list(range(30))))
    assert_equal_states(plain.state_dict(), spelled_out.state_dict())


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_buffer_without_room_is_a_users_mistake(capacity: int) -> None:
    with pytest.raises(UserError, match=f"^capacity must be at least 1 sample; got {capacity}$"):
        memory_of(capacity)


@pytest.mark.parametrize("way", ["offer", "put"])
def test_samples_unlike_the_first_are_refused_and_change_nothing(way: str) -> None:
    memory = memory_of(10)
    first = samples([0, 1])
    memory.offer(first, {"logits": torch.zeros(2, 3)})
    before = memory.state_dict()
    take = getattr(memory, way)
    floats = Samples(
        images=torch.zeros(2, 4), labels=first.labels, ids=first.ids, concepts=first.concepts
    )
    with pytest.raises(ValueError, match=r"expected the columns .*extras.logits.*; got images"):
        take(first)
    expected = r"expected extras.logits of torch.float32 and shape \(2, 3\), .*got .* \(2, 4\)"
    with pytest.raises(ValueError, match=expected):
        take(first, {"logits": torch.zeros(2, 4)})
    with pytest.raises(
        ValueError, match=r"expected images of torch.uint8 and shape \(2, 2, 2, 3\)"
    ):
        take(floats, {"logits": torch.zeros(2, 3)})
    with pytest.raises(ValueError, match=r"extras.logits .* shape \(2, 3\), .*got .* \(5, 3\)"):
        take(first, {"logits": torch.zeros(5, 3)})
    assert_equal_states(memory.state_dict(), before)


@pytest.mark.parametrize("way", ["offer", "put"])
def test_columns_that_cannot_be_fetched_change_nothing(way: str) -> None:
    """As when a device fails that they lie on."""
    memory = memory_of(10)
    memory.offer(samples([0, 1]), {"logits": torch.zeros(2, 3)})
    before = memory.state_dict()
    with pytest.raises(NotImplementedError, match="meta"):
        getattr(memory, way)(samples([2, 3]), {"logits": torch.zeros(2, 3, device="meta")})
    assert_equal_states(memory.state_dict(), before)


@pytest.mark.parametrize("way", ["offer", "put"])
def test_first_samples_that_are_refused_decide_nothing(way: str) -> None:
    memory = memory_of(10)
    for strange in (torch.zeros(2, 3, device="meta"), torch.zeros(2, 3, dtype=torch.complex128)):
        with pytest.raises((NotImplementedError, ValueError)):
            getattr(memory, way)(samples([2, 3]), {"logits": strange})
    memory.offer(samples([0, 1]))
    assert len(memory) == 2


def test_a_negative_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0 samples; got -1"):
        memory_of(3).sample(-1)


# Saving


@pytest.mark.parametrize("seed", range(6))
def test_a_buffer_emptied_class_by_class_goes_on_the_same_after_loading(seed: int) -> None:
    memory, loaded = memory_of(6, "balanced", seed), memory_of(6, "balanced", seed)
    memory.offer(samples(list(range(12))))
    for label in range(3):
        memory.drop(label)
    loaded.load_state_dict(copy.deepcopy(memory.state_dict()))
    for start in range(20, 140, 4):
        for each in (memory, loaded):
            each.offer(samples(list(range(start, start + 4))))
        for label in range(3):
            assert torch.equal(memory.samples_of(label).ids, loaded.samples_of(label).ids)


def feed(memory: ReplayBuffer, start: int) -> list[list[int]]:
    """A little of everything; the ids that were sampled."""
    drawn = []
    for step in range(20):
        ids = torch.arange(start + 5 * step, start + 5 * step + 5)
        memory.offer(samples(ids.tolist()), {"logits": logits(ids)})
        drawn.append(memory.sample(4).samples.ids.tolist())
        if step == 15 and memory.drop(2):
            memory.put(samples([start + 900]), {"logits": logits(torch.tensor([start + 900]))})
    return drawn


@every_policy
def test_a_saved_buffer_goes_on_as_if_never_stopped(policy: str) -> None:
    memory = memory_of(30, policy, seed=4)
    feed(memory, start=0)
    memory.drop(1)  # holes must survive too
    state = memory.state_dict()
    again = memory_of(30, policy, seed=5)
    feed(again, start=5000)  # what it held before is forgotten
    again.load_state_dict(state)
    assert_equal_states(again.state_dict(), state)
    assert feed(again, start=1000) == feed(memory, start=1000)
    assert_equal_states(again.state_dict(), memory.state_dict())


@every_policy
def test_a_state_is_a_snapshot(policy: str) -> None:
    memory = memory_of(12, policy)
    feed(memory, start=0)
    state = memory.state_dict()
    same = copy.deepcopy(state)
    feed(memory, start=1000)
    assert_equal_states(state, same)
    memory.load_state_dict(state)
    feed(memory, start=1000)
    assert_equal_states(state, same)


def test_buffers_without_samples_can_be_saved() -> None:
    untouched, emptied = memory_of(4), memory_of(4)
    emptied.offer(samples([0, 3]))
    emptied.drop(0)
    for memory in (untouched, emptied):
        again = memory_of(4, seed=1)
        again.load_state_dict(memory.state_dict())
        assert_equal_states(again.state_dict(), memory.state_dict())
        for one in (memory, again):
            one.offer(samples([3, 4, 5]))
        assert len(again) >= 2
        assert_equal_states(again.state_dict(), memory.state_dict())


def test_a_state_of_an_earlier_version_is_taken_up() -> None:
    """It also has the steps at which its samples came, which nobody read."""
    memory, again = memory_of(4), memory_of(4, seed=1)
    memory.offer(samples([0, 1, 2]))
    again.load_state_dict({**memory.state_dict(), "step": 7, "steps": torch.tensor([5, 6, 7])})
    assert_equal_states(again.state_dict(), memory.state_dict())


def test_a_state_of_another_buffer_is_refused_and_changes_nothing() -> None:
    memory = memory_of(4)
    memory.offer(samples([0, 1, 2]))
    state = memory.state_dict()
    slots = state["slots"]
    broken = {
        "policy 'reservoir'; got 'balanced'": memory_of(4, "balanced").state_dict(),
        "capacity 4; got 5": memory_of(5).state_dict(),
        r"expected buffer state \[": {k: v for k, v in state.items() if k != "seen"},
        "each of the 4 slots once": {
            **state,
            "slots": {**slots, "order": torch.tensor([0, 1, 1, 3])},
        },
        "each occupied slot once": {**state, "slots": {**slots, "lists": torch.tensor([0, 1, 1])}},
        r"expected ids of torch.int64 and shape \(3,\)": {
            **state,
            "columns": {**state["columns"], "ids": torch.tensor([0])},
        },
    }
    for message, other in broken.items():
        with pytest.raises(ValueError, match=message):
            memory.load_state_dict(other)
        assert_equal_states(memory.state_dict(), state)


# Any sequence of calls


class AnySequence(RuleBasedStateMachine):
    """Invariants under arbitrary offers, drops, puts, samples and reloads."""

    @initialize(
        capacity=st.integers(1, 12),
        policy=st.sampled_from(sorted(POLICIES)),
        seed=st.integers(0, 9),
    )
    def start(self, capacity: int, policy: str, seed: int) -> None:
        self.memory = memory_of(capacity, policy, seed)
        self.policy = policy
        self.label_of: dict[int, int] = {}  # of every id that ever came
        self.gone: set[int] = set()  # ids known to have left
        self.offered = 0

    def come(self, labels: list[int]) -> tuple[Samples, dict[str, Tensor]]:
        """Samples with ids that never were before."""
        ids = range(len(self.label_of), len(self.label_of) + len(labels))
        self.label_of.update(zip(ids, labels, strict=True))
        return samples(list(ids), labels), {"logits": logits(torch.tensor(list(ids)))}

    def held(self) -> set[int]:
        return {i for c in self.memory.counts() for i in self.memory.samples_of(c).ids.tolist()}

    @rule(labels=st.lists(st.integers(0, 3), max_size=20))
    def offer(self, labels: list[int]) -> None:
        before = self.held()
        self.memory.offer(*self.come(labels))
        self.offered += len(labels)
        self.gone |= before - self.held()

    @rule(label=st.integers(0, 4))
    def drop(self, label: int) -> None:
        leaving = {i for i in self.held() if self.label_of[i] == label}
        assert self.memory.drop(label) == len(leaving)
        self.gone |= leaving

    @rule(label=st.integers(0, 3), share=st.floats(0, 1))
    def put(self, label: int, share: float) -> None:
        before, count = self.held(), int(share * self.memory.free)
        incoming, extras = self.come([label] * count)
        self.memory.put(incoming, extras)
        assert self.held() == before | set(incoming.ids.tolist())

    @rule(count=st.integers(0, 15))
    def sample(self, count: int) -> None:
        drawn = self.memory.sample(count)
        ids = drawn.samples.ids.tolist()
        assert len(set(ids)) == len(ids) == min(count, len(self.memory))
        assert set(ids) <= self.held()
        assert drawn.samples.labels.tolist() == [self.label_of[i] for i in ids]
        if ids:
            assert torch.equal(drawn.samples.images, pixels(drawn.samples.ids))
            assert torch.equal(drawn.extras["logits"], logits(drawn.samples.ids))

    @rule()
    def reload(self) -> None:
        state = self.memory.state_dict()
        self.memory = memory_of(self.memory.capacity, self.policy, seed=-1)
        self.memory.load_state_dict(state)

    @invariant()
    def counts_add_up(self) -> None:
        counts = self.memory.counts()
        assert sum(counts.values()) == len(self.memory) <= self.memory.capacity
        assert all(counts.values())
        assert self.memory.free == self.memory.capacity - len(self.memory)
        assert self.memory.seen == self.offered

    @invariant()
    def every_sample_is_one_that_came_and_did_not_leave(self) -> None:
        held = self.held()
        assert len(held) == len(self.memory)  # ids are unique: no sample sits in two slots
        assert held <= self.label_of.keys() - self.gone
        for label, count in self.memory.counts().items():
            mine = self.memory.samples_of(label)
            assert len(mine) == count
            assert torch.equal(mine.images, pixels(mine.ids))
            assert all(self.label_of[i] == label for i in mine.ids.tolist())


def test_invariants_hold_under_any_sequence_of_calls() -> None:
    run_state_machine_as_test(
        AnySequence,
        settings=settings(
            max_examples=40, stateful_step_count=20, deadline=None, derandomize=True, database=None
        ),
    )
