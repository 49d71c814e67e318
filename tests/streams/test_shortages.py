"""Parts of small groups, and classes that lack samples."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from run_tools import complaint

from driftwise.datasets.validate import check_dataset, identity_of
from driftwise.streams.split import cut, make_parts, shortages
from driftwise.types import Dataset, Parts


def dataset(
    labels: list[int],
    *,
    domains: list[int] | None = None,
    is_test: list[bool] | None = None,
    names: tuple[str, ...] | None = None,
) -> Dataset:
    samples = len(labels)
    images = np.arange(samples * 4, dtype=np.int64).astype(np.uint8).reshape(samples, 2, 2, 1)
    return Dataset(
        images=images,
        labels=np.array(labels, dtype=np.int64),
        class_names=names or tuple("abcdefgh"[: max(labels) + 1]),
        is_test=None if is_test is None else np.array(is_test),
        domains=None if domains is None else np.array(domains, dtype=np.int64),
        domain_names=() if domains is None else tuple(map(str, range(max(domains) + 1))),
    )


@pytest.mark.parametrize("samples_each", [1, 2, 3, 5, 8])
def test_small_groups_starve_no_part_of_a_class(samples_each: int) -> None:
    labels = [label for label in range(3) for _ in range(20 * samples_each)]
    domains = [sample % 20 for sample in range(len(labels))]
    data = dataset(labels, domains=domains)
    parts = make_parts(data, monitor_test=False, keep_reference=True, seed=0)
    per_class = 20 * samples_each
    for part, share in (("train", 0.6), ("monitored", 0.1), ("reference", 0.1), ("test", 0.2)):
        counts = np.bincount(data.labels[getattr(parts, part)], minlength=3)
        assert np.abs(counts - share * per_class).max() <= 1, part


@given(
    samples=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), min_size=1, max_size=60),
    seed=st.integers(0, 5),
)
def test_groups_come_into_every_part_by_their_share_of_the_class(
    samples: list[tuple[int, int]], seed: int
) -> None:
    classes, groups = (np.array(column, dtype=np.int64) for column in zip(*samples, strict=True))
    fractions = (0.6, 0.2, 0.2)
    parts = cut(classes, fractions, torch.Generator().manual_seed(seed), groups)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(samples)))
    for part, fraction in zip(parts, fractions, strict=True):
        for label in np.unique(classes):
            size = int((classes == label).sum())
            assert abs(int((classes[part] == label).sum()) - fraction * size) <= 1
            for group in np.unique(groups[classes == label]):
                of_group = (classes == label) & (groups == group)
                here = int(of_group[part].sum())
                # a stretch of the order holds a group's share up to one sample at either end, and as
                # much again because the other groups' samples are whole as well
                assert abs(here - fraction * of_group.sum()) <= 3


def test_one_group_is_cut_as_if_there_were_none() -> None:
    classes = np.array([0, 1] * 15)
    with_group = cut(classes, (0.5, 0.5), torch.Generator().manual_seed(1), np.zeros(30, int))
    without = cut(classes, (0.5, 0.5), torch.Generator().manual_seed(1))
    assert all(np.array_equal(a, b) for a, b in zip(with_group, without, strict=True))


def parts(train: list[int], test: list[int]) -> Parts:
    none = np.empty(0, dtype=np.int64)
    return Parts(
        train=np.array(train, dtype=np.int64),
        monitored=none,
        reference=none,
        test=np.array(test, dtype=np.int64),
    )


def test_a_class_without_training_or_any_test_samples_is_refused_before_the_run() -> None:
    data = dataset([0, 0, 1, 1])
    assert shortages(data, parts([0, 2], [1, 3]), [0, 1]) == ()
    assert shortages(data, parts([0, 2], [1]), [0, 1]) == (
        "class 'b' has no test images and is not scored",
    )
    assert shortages(data, parts([0], [1]), [0]) == (), "classes that never come may lack anything"
    assert complaint(lambda: shortages(data, parts([0], [1, 2, 3]), [0, 1])) == (
        "class 'b' has no images to train on; add some, or leave the class out"
    )
    assert complaint(lambda: shortages(data, parts([0, 2], []), [0, 1])) == (
        "no class has test images, so that nothing can be scored; add some"
    )


def test_a_class_name_without_a_single_image_is_refused_by_name() -> None:
    data = dataset([0, 2], names=("cat", "dog", "owl"))
    assert complaint(lambda: check_dataset(data, source="photos")) == (
        "photos: class 'dog' has no images; add some, or leave the class out"
    )


def test_the_identity_of_data_changes_with_every_part_of_them() -> None:
    data = dataset([0, 0, 1, 1], domains=[0, 1, 0, 1], is_test=[False, True, False, True])
    seen = {identity_of(data)}
    assert identity_of(dataset([0, 0, 1, 1], domains=[0, 1, 0, 1], is_test=[False, True] * 2)) in (
        seen
    )
    brighter = data.images.copy()
    brighter[2, 0, 0, 0] += 1
    for change in (
        {"images": brighter},
        {"labels": np.array([0, 1, 1, 1])},
        {"class_names": ("x", "y")},
        {"is_test": None},
        {"domains": np.array([1, 0, 0, 1])},
        {"domain_names": ("x", "y")},
        {"images": data.images.reshape(4, 4, 1, 1)},
    ):
        values = {**vars(data), **change}
        seen.add(identity_of(Dataset(**values)))
    assert len(seen) == 8


def test_the_identity_of_data_covers_every_image_of_many() -> None:
    images = np.zeros((1200, 2, 2, 1), np.uint8)
    labels = np.zeros(1200, np.int64)
    seen = set()
    for number in range(1200):
        images[number, 1, 1] = 1
        seen.add(identity_of(Dataset(images=images, labels=labels, class_names=("a",))))
        images[number, 1, 1] = 0
    assert len(seen) == 1200


def test_the_identity_of_data_is_that_of_their_bytes_wherever_they_lie() -> None:
    data = dataset([0, 0, 1, 1])
    turned = np.asfortranarray(data.images)
    digest = hashlib.sha256(data.images.tobytes()).hexdigest()
    assert identity_of(dataclasses.replace(data, images=turned)) == identity_of(data)
    assert identity_of(data, digest) == identity_of(data)
