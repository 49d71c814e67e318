"""The samples kept of a stream, against the same written out sample by sample."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from same_state import same

from driftwise.live.settings import LiveSettings
from driftwise.live.window import (
    MAX_CHECKED,
    MonitoredSamples,
    SampleQueue,
    Window,
    no_samples,
    occurrences,
)
from driftwise.types import Samples

NOTHING = no_samples((2,), torch.float32)


def samples(labels: list[int], first: int = 0) -> Samples:
    ids = torch.arange(first, first + len(labels))
    return Samples(
        images=torch.stack([ids, ids], dim=1).float(),
        labels=torch.tensor(labels, dtype=torch.int64),
        ids=ids,
        concepts=ids * 0,
    )


def monitored_samples(*, together: bool = False) -> MonitoredSamples:
    return MonitoredSamples(NOTHING, reference_size=3, check_size=4, check_together=together)


@given(st.lists(st.lists(st.integers(0, 4), max_size=7), max_size=8))
def test_the_nth_sample_of_a_class_is_monitored_however_samples_are_batched(
    batches: list[list[int]],
) -> None:
    window = Window(NOTHING, LiveSettings(watch_every=3), trust_predictions=True)
    counts = [0] * 5
    first = 0
    for batch in batches:
        learn, monitored = window.split(samples(batch, first))
        expected = []
        for number, label in enumerate(batch, first):
            counts[label] += 1
            if counts[label] % 3 == 0:
                expected.append(number)
        assert monitored.ids.tolist() == expected
        assert sorted(learn.ids.tolist() + expected) == list(range(first, first + len(batch)))
        first += len(batch)
    assert [window.num_labelled(label) for label in range(6)] == [*counts, 0]


@given(st.lists(st.integers(0, 3), max_size=30))
def test_occurrences_count_equal_labels_before_each(labels: list[int]) -> None:
    expected = [labels[:place].count(label) for place, label in enumerate(labels)]
    assert occurrences(torch.tensor(labels, dtype=torch.int64)).tolist() == expected


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(1, 20), st.integers(0, 9))
def test_a_sample_of_a_queue_does_not_depend_on_how_its_samples_came(
    sizes: list[int], most: int, count: int
) -> None:
    parted, whole = SampleQueue(NOTHING, max_size=most), SampleQueue(NOTHING, max_size=most)
    first = 0
    for size in sizes:
        parted.add(samples([0] * size, first))
        first += size
    whole.add(samples([0] * first, 0))
    drawn, same = (
        queue.sample(count, torch.Generator().manual_seed(3)).ids.tolist()
        for queue in (parted, whole)
    )
    assert drawn == same
    assert len(set(drawn)) == min(count, most, sum(sizes))
    assert set(drawn) <= set(range(max(0, first - most), first))


@given(st.lists(st.sampled_from([0, 1, 2, 6, 1000]), max_size=8), st.integers(1, 9))
def test_a_queue_keeps_the_newest_samples_in_order(sizes: list[int], most: int) -> None:
    queue = SampleQueue(NOTHING, max_size=most)
    total = 0
    for size in sizes:
        queue.add(samples([0] * size, total))
        total += size
        newest = list(range(max(0, total - most), total))
        assert len(queue) == len(newest)
        assert queue.samples().ids.tolist() == newest
    kept = queue.samples().images
    assert total <= most or kept.untyped_storage().nbytes() <= (most + 6) * 8, "no memory of others"
    other = SampleQueue(NOTHING, max_size=most)
    other.load_state_dict(queue.state_dict())
    assert same(other.state_dict(), queue.state_dict())


def test_samples_taken_out_of_a_queue_are_returned_and_gone() -> None:
    queue = SampleQueue(NOTHING)
    queue.add(samples([0, 1, 0, 2]))
    assert queue.remove(torch.tensor([2, 9])).ids.tolist() == [2]
    assert queue.remove_classes([1, 7]).ids.tolist() == [1]
    assert queue.samples().ids.tolist() == [0, 3]
    assert len(queue) == 2


def test_the_first_samples_of_a_class_are_its_reference_and_later_ones_are_current() -> None:
    some = monitored_samples()
    some.add(samples([0, 0, 1, 0, 0, 0]))
    assert some.complete() == [0]
    assert some.take_reference(0).ids.tolist() == [0, 1, 3], (
        "exactly as many as asked for, the first ones"
    )
    assert some.classes == (0,)
    some.add(samples([0, 1, 0], 10))
    assert some.current([0]).ids.tolist() == [4, 5, 10, 12]
    assert some.due() == (0,)


def test_a_check_that_is_due_for_one_class_takes_along_those_that_have_half() -> None:
    some = monitored_samples()
    for label in (0, 1, 2):
        some.add(samples([label] * 3, 10 * label))
        some.take_reference(label)
    some.add(samples([0, 0, 0, 1, 1, 2], 100))
    assert some.due() == ()
    some.add(samples([0], 110))
    assert some.due() == (0, 1)
    some.end_check((0, 1))
    assert some.current([0, 1]).ids.tolist() == []
    assert some.current([2]).ids.tolist() == [105]
    assert some.due() == ()


def test_samples_grouped_by_predictions_are_checked_all_together() -> None:
    some = monitored_samples(together=True)
    for label in (0, 1):
        some.add(samples([label] * 3, 10 * label))
        some.take_reference(label)
    some.add(samples([0] * 4 + [1], 100))
    assert some.due() == (0, 1)
    assert some.current((0, 1)).ids.tolist() == [100, 101, 102, 103, 104]
    some.end_check((0, 1))
    assert len(some.current((0, 1))) == 0


def test_a_realigned_class_collects_a_new_reference() -> None:
    some = monitored_samples()
    some.add(samples([0] * 5))
    some.take_reference(0)
    some.reset(0)
    assert some.classes == ()
    assert len(some.current([0])) == 0
    some.add(samples([0, 0], 20))
    assert some.complete() == []
    some.add(samples([0], 30))
    assert some.take_reference(0).ids.tolist() == [20, 21, 30]


def test_removed_samples_make_room_for_others_and_reference_samples_stay() -> None:
    some = monitored_samples()
    some.add(samples([0, 0]))
    some.remove(torch.tensor([1]))
    some.add(samples([0, 0], 10))
    assert some.take_reference(0).ids.tolist() == [0, 10, 11]
    some.remove(torch.tensor([0]))
    assert some.is_reference(torch.tensor([0, 1, 10])).tolist() == [True, False, True]


def test_a_sample_that_got_its_label_is_no_longer_monitored_by_prediction() -> None:
    settings = LiveSettings(watch_every=100, reference_size=2, check_rows=9)
    window = Window(NOTHING, settings, trust_predictions=True)
    unlabelled = samples([-1] * 6)
    window.unlabelled.add(unlabelled)
    window.monitor_predicted(unlabelled, torch.tensor([0, 0, 0, 0, 1, 0]))
    window.predicted.take_reference(0)
    late = window.apply_labels(torch.tensor([1, 2, 4, 4]), torch.tensor([0, 3, 9, 3]))
    assert late.learn.ids.tolist() == [2, 4], "sample 1 is a reference, and never trained on"
    assert late.learn.labels.tolist() == [3, 3], "of two labels for a sample the last counts"
    assert window.predicted.current([0]).ids.tolist() == [3, 5]
    assert window.predicted.complete() == []
    assert window.unlabelled.samples().ids.tolist() == [0, 3, 5]
    window.labelled.add(samples([0], 50))
    assert window.labelled.take_reference(0).ids.tolist() == [1, 50], "it is monitored by its label"


def test_fresh_samples_are_those_since_the_last_check_without_drift() -> None:
    window = Window(NOTHING, LiveSettings(), trust_predictions=True)
    window.learned.add(samples([0, 1, 0, 0]))
    window.unchanged_until([0], 2)
    assert window.fresh(0).ids.tolist() == [2, 3]
    assert window.fresh(1).ids.tolist() == [1]
    window.reset(0, 4)
    assert window.fresh(0).ids.tolist() == []


def test_a_window_is_saved_and_loaded_as_it_is() -> None:
    settings = LiveSettings(watch_every=2, reference_size=2, check_rows=2)
    window, other = (Window(NOTHING, settings, trust_predictions=True) for _ in range(2))
    draw = np.random.default_rng(0)
    for number in range(6):
        learn, monitored = window.split(samples(draw.integers(0, 3, 10).tolist(), 100 * number))
        window.monitor(monitored)
        window.learned.add(learn)
        unlabelled = samples([-1] * 5, 100 * number + 50)
        window.unlabelled.add(unlabelled)
        window.monitor_predicted(unlabelled, torch.from_numpy(draw.integers(0, 3, 5)))
        for some in (window.labelled, window.predicted):
            for label in some.complete():
                some.take_reference(label)
    window.request(window.unlabelled_since(window.since(0))[:3])
    window.unchanged_until([1], 300)
    other.load_state_dict(window.state_dict())
    assert same(other.state_dict(), window.state_dict())
    late, again = (
        each.apply_labels(torch.tensor([50, 553, 9999]), torch.tensor([0, 1, 2]))
        for each in (window, other)
    )
    assert late.gone == again.gone >= 1
    assert same(other.state_dict(), window.state_dict())


def test_late_labels_for_samples_from_before_their_class_drifted_are_not_used() -> None:
    """Neither learned nor monitored; those from when it may have drifted already are used."""
    window = Window(NOTHING, LiveSettings(watch_every=100), trust_predictions=True)
    window.unlabelled.add(samples([-1] * 20))
    window.unchanged_until([0], 8)  # nothing was found in it up to here
    window.reset(0, 15)
    late = window.apply_labels(torch.arange(20), torch.tensor([0, 1] * 10))
    assert late.outdated == 4
    assert late.learn.ids.tolist() == [1, 3, 5, 7, *range(8, 20)]
    again = Window(NOTHING, LiveSettings(watch_every=2), trust_predictions=True)
    again.load_state_dict(window.state_dict())
    again.unlabelled.add(samples([-1] * 4))
    assert again.apply_labels(torch.arange(4), torch.tensor([0, 0, 0, 0])).outdated == 4
    assert not again.labelled.has_current
    assert again.labelled.complete() == []


def test_requested_samples_become_no_reference_samples() -> None:
    window = Window(NOTHING, LiveSettings(reference_size=5), trust_predictions=True)
    some = samples([-1] * 4)
    window.unlabelled.add(some)
    window.monitor_predicted(some, torch.ones(4, dtype=torch.int64))
    window.request(some[:3])
    window.monitor_predicted(samples([-1] * 3, 4), torch.ones(3, dtype=torch.int64))
    assert window.predicted.complete() == []
    window.monitor_predicted(samples([-1], 7), torch.ones(1, dtype=torch.int64))
    assert window.predicted.take_reference(1).ids.tolist() == [3, 4, 5, 6, 7]


def test_a_check_takes_the_newest_samples_of_a_class_and_not_any_number() -> None:
    mine = monitored_samples()
    mine.add(samples([0, 0, 0, 1, 1, 1]))
    mine.take_reference(0)
    mine.take_reference(1)
    mine.add(samples([0, 1, 1] * MAX_CHECKED, 6))
    current = mine.current([0, 1])
    assert current.labels.bincount().tolist() == [MAX_CHECKED, MAX_CHECKED]
    ones = [6 + n for n in range(3 * MAX_CHECKED) if n % 3]
    assert current.ids[current.labels == 1].tolist() == ones[-MAX_CHECKED:]
