"""Parts of a data set: disjoint, complete, stratified, reproducible; classes that lack samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwise import rng
from driftwise.datasets.readers.digits import load_digits
from driftwise.errors import UserError
from driftwise.streams.split import HELD_OUT, cut, make_parts, shortages
from driftwise.types import Dataset, Parts

CLASSES, DOMAINS, PER_CELL = 3, 2, 30
NONE = np.empty(0, dtype=np.int64)


@settings(max_examples=60)
@given(
    samples=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=60),
    weights=st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any),
    grouped=st.booleans(),
    seed=st.integers(0, 5),
)
def test_a_cut_puts_every_sample_in_one_part_and_no_class_off_by_more_than_one(
    samples: list[tuple[int, int]], weights: list[int], grouped: bool, seed: int
) -> None:
    classes, groups = np.array(samples, dtype=np.int64).reshape(-1, 2).T
    fractions = [weight / sum(weights) for weight in weights]
    parts = cut(classes, fractions, rng.fork(seed, "cut"), groups if grouped else None)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(samples)))
    for part, fraction in zip(parts, fractions, strict=True):
        assert np.array_equal(part, np.sort(part))
        for label in np.unique(classes):
            size = int((classes == label).sum())
            assert abs(int((classes[part] == label).sum()) - fraction * size) <= 1 + 1e-9
            for group in np.unique(groups[classes == label]) if grouped else ():
                of_group = (classes == label) & (groups == group)
                # a stretch of the order holds a group's share up to one sample at either end, and
                # as much again because the other groups' samples are whole as well
                assert abs(int(of_group[part].sum()) - fraction * of_group.sum()) <= 3


def test_the_seed_decides_and_the_global_generator_is_left_alone() -> None:
    labels = load_digits().labels
    before = torch.get_rng_state()
    one, same, other = (cut(labels, (0.6, 0.4), rng.fork(seed, "parts")) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b, c in zip(one, same, other, strict=True):
        assert np.array_equal(a, b)
        assert not np.array_equal(a, c)


@settings(max_examples=60)
@given(
    samples=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 20)), max_size=80
    ),
    weights=st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any),
    seed=st.integers(0, 5),
)
def test_a_group_is_never_cut_apart(
    samples: list[tuple[int, int, int]], weights: list[int], seed: int
) -> None:
    classes, domains, groups = np.array(samples, dtype=np.int64).reshape(-1, 3).T
    fractions = [weight / sum(weights) for weight in weights]
    parts = cut(classes, fractions, rng.fork(seed, "cut"), domains, groups)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(samples)))
    found = [set(groups[part].tolist()) for part in parts]
    assert sum(map(len, found)) == len(set(groups.tolist()))
    assert all(fraction or not each for fraction, each in zip(fractions, found, strict=True))


def test_small_groups_leave_the_fractions_of_every_class_and_domain() -> None:
    classes, domains = np.arange(1200) % 3, np.arange(1200) // 600
    groups = np.arange(1200) // 5  # each holds all classes
    parts = cut(classes, (0.6, 0.2, 0.2), rng.fork(0, "cut"), domains, groups)
    for part, fraction in zip(parts, (0.6, 0.2, 0.2), strict=True):
        for label in range(3):
            for domain in range(2):
                here = np.sum((classes[part] == label) & (domains[part] == domain))
                assert abs(here - 200 * fraction) <= 10


def test_parts_of_a_data_set_share_no_group() -> None:
    labels = np.arange(400) % 2
    data = Dataset(
        images=np.zeros((400, 2), dtype=np.float32),
        labels=labels,
        class_names=("a", "b"),
        groups=np.arange(400) // 8,
    )
    parts = make_parts(data, monitor_test=False, keep_reference=True, seed=0)
    found = [
        set((getattr(parts, name) // 8).tolist())
        for name in ("train", "monitored", "reference", "test")
    ]
    assert all(found)
    assert sum(map(len, found)) == 50


def test_one_group_is_cut_as_if_there_were_none() -> None:
    classes = np.array([0, 1] * 15)
    with_group = cut(classes, (0.5, 0.5), rng.fork(1), np.zeros(30, int))
    without = cut(classes, (0.5, 0.5), rng.fork(1))
    assert all(np.array_equal(a, b) for a, b in zip(with_group, without, strict=True))


def test_every_sample_is_equally_likely_to_land_in_each_part() -> None:
    generator = rng.fork(0, "often")
    times = np.zeros(10)
    for _ in range(1000):
        times[cut(np.zeros(10, dtype=np.int64), (0.3, 0.7), generator)[0]] += 1
    # binomial(1000, 0.3): mean 300, five standard deviations are 72
    assert np.abs(times - 300).max() < 72


@pytest.mark.parametrize("fractions", [(0.5, 0.4), (1.2, -0.2), ()])
def test_fractions_that_do_not_add_up_to_one_are_refused(fractions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        cut(np.zeros(4, dtype=np.int64), fractions, rng.fork(0))


def dataset(*, with_test: bool = True, domains: int = DOMAINS, per_cell: int = PER_CELL) -> Dataset:
    labels = np.repeat(np.arange(CLASSES), domains * per_cell)
    return Dataset(
        images=np.zeros((len(labels), 1, 1, 1), dtype=np.uint8),
        labels=labels,
        class_names=("a", "b", "c"),
        is_test=np.arange(len(labels)) % 5 == 0 if with_test else None,
        domains=np.tile(np.repeat(np.arange(domains), per_cell), CLASSES),
        domain_names=tuple(map(str, range(domains))),
    )


@pytest.mark.parametrize("with_test", [True, False])
def test_parts_are_disjoint_and_cover_everything_and_a_given_test_part_is_kept(
    with_test: bool,
) -> None:
    data = dataset(with_test=with_test)
    for seed in range(3):
        parts = make_parts(data, monitor_test=False, keep_reference=True, seed=seed)
        together = np.concatenate([parts.train, parts.monitored, parts.reference, parts.test])
        assert sorted(together) == list(range(CLASSES * DOMAINS * PER_CELL))
        if data.is_test is not None:
            assert np.array_equal(parts.test, np.flatnonzero(data.is_test))


def test_a_sixth_of_the_training_samples_is_held_out_in_every_class_and_domain() -> None:
    data = dataset()
    assert data.domains is not None
    parts = make_parts(data, monitor_test=False, keep_reference=True, seed=0)
    held_out = np.concatenate([parts.monitored, parts.reference])
    for label in range(CLASSES):
        for domain in range(DOMAINS):
            cell = (data.labels == label) & (data.domains == domain)
            others = cell.sum() - cell[parts.test].sum()
            assert abs(cell[held_out].sum() - HELD_OUT * others) <= 1
            assert abs(int(cell[parts.monitored].sum()) - int(cell[parts.reference].sum())) <= 1


@pytest.mark.parametrize("samples_each", [1, 3, 8])
def test_small_domains_leave_no_part_of_a_class_short(samples_each: int) -> None:
    data = dataset(with_test=False, domains=20, per_cell=samples_each)
    parts = make_parts(data, monitor_test=False, keep_reference=True, seed=0)
    for part, share in (("train", 0.6), ("monitored", 0.1), ("reference", 0.1), ("test", 0.2)):
        counts = np.bincount(data.labels[getattr(parts, part)], minlength=CLASSES)
        assert np.abs(counts - share * 20 * samples_each).max() <= 1, part


def test_monitoring_the_test_part_holds_nothing_out_of_training() -> None:
    parts = make_parts(dataset(), monitor_test=True, keep_reference=True, seed=0)
    assert np.array_equal(np.sort(np.concatenate([parts.monitored, parts.reference])), parts.test)
    assert len(parts.train) + len(parts.test) == CLASSES * DOMAINS * PER_CELL


@pytest.mark.parametrize(
    ("with_test", "monitor_test"), [(True, False), (False, True), (True, True)]
)
def test_fewer_images_keep_the_proportions_of_parts_and_domains(
    with_test: bool, monitor_test: bool
) -> None:
    data = dataset(with_test=with_test)
    assert data.domains is not None

    def parts(max_per_class: int | None) -> Parts:
        return make_parts(
            data,
            monitor_test=monitor_test,
            keep_reference=False,
            seed=0,
            max_per_class=max_per_class,
        )

    few, whole = parts(24), parts(None)
    learned = few.train if monitor_test else np.concatenate([few.train, few.monitored])
    assert np.bincount(data.labels[learned]).tolist() == [24] * CLASSES
    assert abs(np.bincount(data.domains[learned])[0] - 36) <= CLASSES
    assert np.bincount(data.labels[few.test]).tolist() == [6] * CLASSES
    assert not set(few.train) & set(few.test)
    more_than_there_are = parts(10**6)
    assert np.array_equal(more_than_there_are.train, whole.train)
    assert np.array_equal(more_than_there_are.test, whole.test)


@pytest.mark.parametrize(
    ("train", "test", "classes", "message"),
    [
        ([0, 2], [1, 3], [0, 1], ""),
        ([0, 2], [1], [0, 1], "class 'b' has no test images and is not scored"),
        ([0], [1], [0], ""),  # classes that never come may lack anything
        ([0], [1, 2, 3], [0, 1], "class 'b' has no images to train on; add some, or leave the"),
        ([0, 2], [], [0, 1], "no class has test images, so that nothing can be scored; add some"),
    ],
)
def test_classes_without_samples_are_warned_about_or_refused(
    train: list[int], test: list[int], classes: list[int], message: str
) -> None:
    data = Dataset(
        images=np.zeros((4, 1, 1, 1), np.uint8),
        labels=np.array([0, 0, 1, 1]),
        class_names=("a", "b"),
    )
    parts = Parts(
        train=np.array(train, dtype=np.int64),
        monitored=NONE,
        reference=NONE,
        test=np.array(test, dtype=np.int64),
    )
    if "add some" in message:
        with pytest.raises(UserError, match=message):
            shortages(data, parts, classes)
    else:
        assert shortages(data, parts, classes) == ((message,) if message else ())
