"""How a run's samples are divided: every part has one job, and no sample has two."""

from __future__ import annotations

import numpy as np
import pytest

from driftwise.streams.split import HELD_OUT, make_parts
from driftwise.types import Dataset, Parts

CLASSES, DOMAINS, PER_CELL = 3, 2, 30


def dataset(*, with_test: bool = True) -> Dataset:
    labels = np.repeat(np.arange(CLASSES), DOMAINS * PER_CELL)
    domains = np.tile(np.repeat(np.arange(DOMAINS), PER_CELL), CLASSES)
    return Dataset(
        images=np.zeros((len(labels), 1, 1, 1), dtype=np.uint8),
        labels=labels,
        class_names=("a", "b", "c"),
        is_test=np.arange(len(labels)) % 5 == 0 if with_test else None,
        domains=domains,
        domain_names=("then", "now"),
    )


def parts_of(*, with_test: bool = True, monitor_test: bool = False, seed: int = 0) -> Parts:
    data = dataset(with_test=with_test)
    return make_parts(data, monitor_test=monitor_test, keep_reference=True, seed=seed)


@pytest.mark.parametrize("with_test", [True, False])
def test_parts_are_disjoint_and_cover_everything(with_test: bool) -> None:
    parts = parts_of(with_test=with_test)
    together = np.concatenate([parts.train, parts.monitored, parts.reference, parts.test])
    assert sorted(together) == list(range(CLASSES * DOMAINS * PER_CELL))


def test_a_test_part_that_came_with_the_data_is_kept() -> None:
    flags = dataset().is_test
    assert flags is not None
    for seed in range(3):
        assert np.array_equal(parts_of(seed=seed).test, np.flatnonzero(flags))


def test_a_sixth_of_the_training_samples_is_held_out_in_every_class_and_domain() -> None:
    data, parts = dataset(), parts_of()
    assert data.domains is not None
    held_out = np.concatenate([parts.monitored, parts.reference])
    for label in range(CLASSES):
        for domain in range(DOMAINS):
            cell = (data.labels == label) & (data.domains == domain)
            others = cell.sum() - cell[parts.test].sum()
            assert abs(cell[held_out].sum() - HELD_OUT * others) <= 1
            assert abs(int(cell[parts.monitored].sum()) - int(cell[parts.reference].sum())) <= 1


def test_watching_the_test_holds_nothing_out_of_training() -> None:
    parts = parts_of(monitor_test=True)
    monitored = np.sort(np.concatenate([parts.monitored, parts.reference]))
    assert np.array_equal(monitored, parts.test)
    assert len(parts.train) + len(parts.test) == CLASSES * DOMAINS * PER_CELL


@pytest.mark.parametrize("with_test", [True, False])
@pytest.mark.parametrize("monitor_test", [True, False])
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

    few, all_ = parts(24), parts(None)
    learned = few.train if monitor_test else np.concatenate([few.train, few.monitored])
    assert np.bincount(data.labels[learned]).tolist() == [24] * CLASSES
    assert abs(np.bincount(data.domains[learned])[0] - 36) <= CLASSES
    assert np.bincount(data.labels[few.test]).tolist() == [6] * CLASSES
    assert len(np.unique(np.concatenate([few.train, few.test]))) == len(few.train) + len(few.test)
    more_than_there_are = parts(10**6)
    assert np.array_equal(more_than_there_are.train, all_.train)
    assert np.array_equal(more_than_there_are.test, all_.test)
