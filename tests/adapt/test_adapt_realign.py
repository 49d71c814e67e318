"""Adaptive Memory Realignment: as many fresh samples as there were outdated ones, and no other change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from adapt_builders import (
    HELD,
    NOW,
    OLD,
    Shop,
    annotate,
    assert_same,
    contents,
    memory_with,
    samples,
)
from bench_tools import context, verdicts
from torch import Tensor

from driftwise import rng
from driftwise.adapt import Realign
from driftwise.datasets.readers.digits import load_digits
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.metrics import Ledger
from driftwise.protocols import AdaptationContext, Choose
from driftwise.streams import Stream, TaskLabels, make_schedule
from driftwise.streams.split import cut
from driftwise.types import Extras, Parts, Samples, Verdict


@pytest.mark.parametrize("drifted", [[0], [2, 1, 0]])
def test_realigning_keeps_the_counts_and_asks_for_exactly_as_many_labels_as_slots(
    drifted: list[int],
) -> None:
    memory, shop = memory_with(), Shop()
    annotated: list[Samples] = []

    def record(samples: Samples) -> Extras:
        annotated.append(samples)
        return annotate(samples)

    result = Realign().adapt(verdicts(drifted), context(memory, shop, record))
    assert memory.counts() == HELD
    assert (memory.free, memory.seen) == (0, sum(HELD.values()))
    assert shop.asked == [(label, HELD[label]) for label in drifted]
    assert result.renewed == tuple(drifted)
    assert (result.extra, result.from_scratch, result.notes) == (None, False, ())
    assert result.refilled is not None
    assert_same(vars(result.refilled), vars(Samples.concat(shop.given)))
    # The method's columns are made for the fresh samples alone, and stored with them.
    assert [each.ids.tolist() for each in annotated] == [each.ids.tolist() for each in shop.given]
    for label, fresh in zip(drifted, shop.given, strict=True):
        assert set(fresh.concepts.tolist()) == {NOW}
        assert_same(contents(memory, label), {**vars(fresh), **annotate(fresh)})


def test_fewer_samples_than_slots_are_all_kept_and_the_shortage_is_noted() -> None:
    memory = memory_with()
    result = Realign().adapt(verdicts([2]), context(memory, Shop(stock=3), annotate))
    assert memory.counts() == {**HELD, 2: 3}
    assert set(contents(memory, 2)["concepts"].tolist()) == {NOW}
    assert result.renewed == (2,)
    assert result.notes == ("class 2: 3 fresh samples were granted for 5 slots",)


def test_a_class_without_samples_in_the_buffer_costs_no_label_and_is_noted() -> None:
    memory, shop = memory_with(), Shop()
    result = Realign().adapt(verdicts([9]), context(memory, shop, annotate))
    assert shop.asked == []
    assert result.renewed == ()
    assert result.notes == ("class 9 has no samples in memory: nothing to realign",)


def test_without_a_fresh_sample_the_old_ones_stay_rather_than_lose_the_class() -> None:
    memory = memory_with()
    before = contents(memory, 0)
    result = Realign().adapt(verdicts([0]), context(memory, Shop(stock=0), annotate))
    assert_same(contents(memory, 0), before)
    assert result.renewed == ()
    assert result.notes == ("class 0: no fresh samples were granted, its 4 old ones stay",)


def test_a_short_budget_is_spread_over_all_drifted_classes() -> None:
    memory = memory_with()
    result = Realign().adapt(verdicts([0, 1, 2]), context(memory, Shop(budget=6), annotate))
    assert result.renewed == (0, 1, 2)
    assert memory.counts() == {0: 2, 1: 2, 2: 2}  # 4, 3 and 5 were wanted
    assert result.notes[0] == "class 0: 2 fresh samples were granted for 4 slots"
    memory = memory_with()
    result = Realign().adapt(verdicts([0, 1, 2]), context(memory, Shop(budget=2), annotate))
    assert result.renewed == (0, 2)
    assert memory.counts() == {0: 1, 1: HELD[1], 2: 1}
    assert set(contents(memory, 1)["concepts"].tolist()) == {OLD}, "without a share it stays"


def test_fresh_samples_that_the_buffer_keeps_already_are_not_there_twice() -> None:
    """A live learner has trained on recent samples: some of them are what need not go."""

    class First(Realign):
        def outdated(self, verdict: Verdict, held: Samples, context: AdaptationContext) -> Tensor:
            return torch.arange(len(held)) == 0

    memory = memory_with()
    memory.drop(0)
    recent = Samples.concat([samples(0, 1, OLD), samples(0, 3, NOW)])
    memory.put(recent, annotate(recent))
    First().adapt(verdicts([0]), context(memory, Shop(), annotate))
    assert memory.samples_of(0).ids.tolist() == samples(0, 3, NOW).ids.tolist()


def test_samples_of_another_concept_than_fresh_ones_are_others() -> None:
    class Again(Shop):
        """The same ids come again, of another concept."""

        def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
            return replace(samples(label, count or 0, OLD), concepts=torch.full((count or 0,), NOW))

    class LastTwo(Realign):
        def outdated(self, verdict: Verdict, held: Samples, context: AdaptationContext) -> Tensor:
            return held.ids >= 2

    memory = memory_with()
    LastTwo().adapt(verdicts([0]), context(memory, Again(), annotate))
    assert memory.counts() == HELD


# With a real stream


def digits_stream() -> Stream:
    """Classes 0 to 3 drift at task 3 of 5; some 18 training samples a class."""
    digits = load_digits()
    pieces = cut(digits.labels, (0.1, 0.3, 0.3, 0.3), rng.fork(0, "parts"))
    names = ("train", "monitored", "reference", "test")
    return Stream(
        digits,
        Parts(**dict(zip(names, pieces, strict=True))),
        make_schedule(
            [(2 * i, 2 * i + 1) for i in range(5)],
            num_drifts=1,
            transform="permutation",
            severity=5,
            seed=0,
        ),
        batch_size=10,
        seed=0,
    )


def offers(stream: Stream, up_to: int) -> Iterator[Samples]:
    """What a learner offers its memory in two epochs of each task: samples come more than once."""
    for task in (stream.task(number) for number in range(1, up_to + 1)):
        for epoch in (1, 2):
            yield from task.batches(task.train(), epoch=epoch)


def test_realigning_a_stream_leaves_no_sample_of_an_earlier_concept() -> None:
    stream = digits_stream()
    memory = ReplayBuffer(30, policy=POLICIES["reservoir"](), seed=0)
    for batch in offers(stream, 2):
        memory.offer(batch)
    before = {label: memory.samples_of(label) for label in memory.counts()}
    counts, ledger = memory.counts(), Ledger()
    labels = TaskLabels(
        stream.task(3),
        allowance=ledger.allowance,
        book=lambda count: ledger.book_labels("adaptation", count),
        seed=0,
    )
    Realign().adapt(verdicts([1, 3]), context(memory, labels, lambda _: {}))

    assert memory.counts() == counts
    assert ledger.labels["adaptation"] == counts[1] + counts[3]
    for label in (1, 3):
        kept, now = memory.samples_of(label), stream.samples("train", [label], 3)
        position = {sample: i for i, sample in enumerate(now.ids.tolist())}
        current = now[torch.tensor([position[sample] for sample in kept.ids.tolist()])]
        assert torch.equal(kept.images, current.images)
        assert torch.equal(kept.concepts, current.concepts)
        assert len(kept.distinct()) == len(kept)  # fresh samples, no repeats
    for label in (0, 2):  # drifted, but not reported
        assert_same(vars(memory.samples_of(label)), vars(before[label]))
