"""The label source: no sample twice, every label booked, concepts up to date."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams_builders import PARTS, placed

from driftwise import rng
from driftwise.datasets.readers.digits import load_digits
from driftwise.metrics import Ledger
from driftwise.streams import Stream, TaskLabels, WrongAnswers
from driftwise.streams.split import cut
from driftwise.types import Parts, Samples

EVENT = 3
"""the task at which classes 0 to 3 drift"""


@functools.cache
def stream(*, recurring_in_training: bool = False) -> Stream:
    digits = load_digits()
    pieces = cut(digits.labels, (0.1, 0.3, 0.3, 0.3), rng.fork(0, "parts"))
    parts = Parts(**dict(zip(PARTS, pieces, strict=True)))
    schedule = placed(recurring_in_training=recurring_in_training)
    return Stream(digits, parts, schedule, batch_size=10, seed=0)


def labels_of(
    task: int = EVENT,
    *,
    ledger: Ledger | None = None,
    seed: int = 0,
    recurring: bool = False,
    wrong: WrongAnswers | None = None,
) -> TaskLabels:
    books = ledger or Ledger()
    return TaskLabels(
        stream(recurring_in_training=recurring).task(task),
        allowance=books.allowance,
        book=lambda count: books.book_labels("adaptation", count),
        seed=seed,
        wrong=wrong or WrongAnswers(),
    )


def ids(samples: Samples) -> list[int]:
    return samples.ids.tolist()


def pool(label: int) -> list[int]:
    """All samples of a class whose label can be asked for."""
    return ids(stream().samples("train", [label], EVENT))


questions = st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 25)), max_size=8)
"""(class, count) asked one after the other"""


@settings(max_examples=30)
@given(questions, st.none() | st.integers(0, 60))
def test_answers_are_bounded_by_the_question_the_samples_and_the_budget_and_booked(
    asked: list[tuple[int, int | None]], budget: int | None
) -> None:
    ledger = Ledger(label_budget=budget)
    labels = labels_of(ledger=ledger)
    given: dict[int, list[int]] = {label: [] for label in range(4)}
    for label, count in asked:
        left = len(pool(label)) - len(given[label])
        may = left if count is None else min(count, left)
        if budget is not None:
            may = min(may, budget - sum(map(len, given.values())))
        answer = labels.ask(label, count)
        assert len(answer) == may
        assert set(answer.labels.tolist()) <= {label}
        given[label] += ids(answer)
        assert ledger.labels["adaptation"] == sum(map(len, given.values()))
    for label, samples in given.items():
        assert len(samples) == len(set(samples))  # no sample twice
        assert set(samples) <= set(pool(label))


def test_a_request_for_all_gives_every_incoming_sample_once_and_then_nothing() -> None:
    before = torch.get_rng_state()
    labels = labels_of()
    assert sorted(ids(labels.ask(1, None))) == pool(1)
    assert len(labels.ask(1, None)) == len(labels.ask(1, 5)) == 0
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ValueError, match="3 different positions"):
        labels.ask(0, 3, choose=lambda images, count: torch.zeros(count, dtype=torch.int64))


def test_the_budget_is_honoured_over_tasks_and_the_refusal_is_booked() -> None:
    ledger = Ledger(label_budget=12)
    assert len(labels_of(3, ledger=ledger).ask(0, 10)) == 10
    later = labels_of(4, ledger=ledger)
    assert len(later.ask(0, 10)) == 2
    assert len(later.ask(1, None)) == 0
    assert ledger.labels["adaptation"] == 12
    assert ledger.refused == 8 + len(pool(1))


@settings(max_examples=30)
@given(
    st.dictionaries(st.integers(0, 3), st.none() | st.integers(0, 25), min_size=1),
    st.none() | st.integers(0, 60),
)
def test_a_budget_is_spread_over_the_classes_in_proportion_and_can_be_asked_for(
    wanted: dict[int, int | None], budget: int | None
) -> None:
    ledger = Ledger(label_budget=budget)
    labels = labels_of(ledger=ledger)
    full = {c: len(pool(c)) if n is None else min(n, len(pool(c))) for c, n in wanted.items()}
    total = sum(full.values())
    may = total if budget is None else min(budget, total)
    spread = labels.spread(wanted)
    assert ledger.labels["adaptation"] == 0
    assert ledger.refused == total - may
    if may == total:
        assert spread == wanted
    given = {label: len(labels.ask(label, count)) for label, count in spread.items()}
    assert sum(given.values()) == may
    for label, count in given.items():
        assert abs(count - full[label] * may / max(1, total)) < 1


def test_samples_that_the_budget_refused_can_still_be_given_when_it_allows() -> None:
    allowed = iter([0, 3])
    labels = TaskLabels(
        stream().task(EVENT), allowance=lambda _: next(allowed), book=lambda _: None, seed=0
    )
    assert len(labels.ask(0, 3)) == 0
    assert ids(labels.ask(0, 3)) == ids(labels_of().ask(0, 3))


def test_samples_show_the_present_concept_of_the_class() -> None:
    for task, concept in ((2, 0), (EVENT, 1), (5, 1)):
        samples = labels_of(task).ask(0, None)
        now = stream().samples("train", [0], task)
        order = torch.argsort(samples.ids)
        assert torch.equal(samples.images[order], now.images)
        assert set(samples.concepts.tolist()) == {concept}


def test_the_draw_depends_on_seed_task_and_class_and_on_nothing_asked_before() -> None:
    first = ids(labels_of().ask(0, 8))
    busy = labels_of()
    busy.ask(1, 4)
    assert ids(busy.ask(0, 5)) + ids(busy.ask(0, 3)) == first
    assert ids(labels_of(seed=1).ask(0, 8)) != first
    assert ids(labels_of(4).ask(0, 8)) != first  # a fresh draw at every task


def test_every_incoming_sample_is_equally_likely_to_be_given() -> None:
    times = dict.fromkeys(pool(0), 0)
    for seed in range(300):
        for sample in ids(labels_of(seed=seed).ask(0, 6)):
            times[sample] += 1
    share = 6 / len(times)
    five_deviations = 5 * (300 * share * (1 - share)) ** 0.5
    assert max(abs(count - 300 * share) for count in times.values()) < five_deviations


def test_labels_that_the_task_brings_anyway_cost_nothing() -> None:
    ledger = Ledger(label_budget=0)
    labels = labels_of(ledger=ledger, recurring=True)
    assert len(labels.ask(0, 4)) == 4
    assert len(labels.ask(4, 4)) == 0  # this class does not return by itself
    assert ledger.labels["adaptation"] == 0


def truth(samples: Samples) -> list[int]:
    """The classes that the data have for these samples."""
    return [int(label) for label in load_digits().labels[samples.ids.numpy()]]


@pytest.mark.parametrize("hostile", [False, True])
def test_the_stated_share_of_answers_is_of_another_known_class_in_its_present_concept(
    hostile: bool,
) -> None:
    wrong = WrongAnswers(share=0.3, hostile=hostile)
    strangers, total = set(), 0
    for seed in range(10):
        labels = labels_of(wrong=wrong, seed=seed)
        answer = labels.ask(0, None)
        assert set(answer.labels.tolist()) == {0}
        assert len(set(ids(answer))) == len(answer) == len(pool(0))
        others = [each for each in truth(answer) if each != 0]
        total += len(others)
        assert len(set(others)) <= 1 or not hostile
        strangers |= set(others)
        again = labels_of(wrong=wrong, seed=seed).ask(0, None)
        assert ids(again) == ids(answer)
    assert total / (10 * len(pool(0))) == pytest.approx(0.3, abs=0.07)
    assert strangers == {1, 2, 3}
    assert set(answer.concepts.tolist()) == {1}


def test_a_second_answer_confirms_right_labels_and_careless_errors_hardly_ever() -> None:
    confirmed: dict[bool, list[bool]] = {True: [], False: []}
    for seed in range(10):
        ledger = Ledger()
        labels = labels_of(wrong=WrongAnswers(share=0.2), seed=seed, ledger=ledger)
        answer = labels.ask(0, None)
        says_so = labels.ask_again(0, answer)
        assert ledger.labels["adaptation"] == 2 * len(answer)
        for is_same, label in zip(says_so.tolist(), truth(answer), strict=True):
            confirmed[label == 0].append(is_same)
    assert sum(confirmed[True]) / len(confirmed[True]) == pytest.approx(0.8, abs=0.05)
    assert sum(confirmed[False]) / len(confirmed[False]) < 0.2


def test_a_hostile_second_answer_repeats_the_first_and_the_budget_bounds_it() -> None:
    labels = labels_of(
        wrong=WrongAnswers(share=0.3, hostile=True), ledger=Ledger(label_budget=len(pool(0)) + 5)
    )
    answer = labels.ask(0, None)
    assert labels.ask_again(0, answer).tolist() == [True] * 5 + [False] * (len(answer) - 5)


def test_labels_that_come_with_the_task_are_right() -> None:
    labels = labels_of(wrong=WrongAnswers(share=0.5), recurring=True)
    assert set(truth(labels.ask(0, None))) == {0}
