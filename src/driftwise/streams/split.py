"""Cuts a data set's samples into disjoint parts, each class (and domain) in the same proportions.

Samples of one group (`Dataset.groups`) stay together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from driftwise import rng
from driftwise.errors import UserError
from driftwise.types import Dataset, Parts

TRAIN, MONITORED, TEST = 0.6, 0.2, 0.2
"""How a data set without a test part of its own is cut."""

HELD_OUT = 1 / 6
"""The fraction of the training samples held out for monitoring, where there is a test part."""


def cut(
    classes: np.ndarray,
    fractions: Sequence[float],
    generator: torch.Generator,
    domains: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    """Disjoint, stratified parts of the samples, one per fraction, as ascending sample numbers.

    A class is cut at the rounded cumulative fractions, so that none of its parts is off by more
    than one sample. Domains are spread over the parts in the same proportions as far as whole
    samples allow: however small they are, no part of the class goes short because of them. Samples
    of one group go to one part; the fractions then hold as far as whole groups allow. Fractions
    must add up to one.

    >>> labels = np.array([0] * 10 + [1] * 10)
    >>> [len(part) for part in cut(labels, (0.6, 0.2, 0.2), torch.Generator().manual_seed(0))]
    [12, 4, 4]
    """
    if abs(sum(fractions) - 1) > 1e-9 or min(fractions) < 0:
        raise ValueError(f"fractions must be positive and add up to 1; got {tuple(fractions)}")
    if groups is not None:
        return _whole_groups(classes, fractions, generator, domains, groups)
    pieces: list[list[np.ndarray]] = [[] for _ in fractions]
    for label in np.unique(classes):
        samples = np.flatnonzero(classes == label)
        samples = samples[torch.randperm(len(samples), generator=generator).numpy()]
        if domains is not None:
            samples = _interleaved(samples, domains[samples], generator)
        edges = np.rint(np.cumsum(fractions)[:-1] * len(samples)).astype(int)
        for piece, part in zip(pieces, np.split(samples, edges), strict=True):
            piece.append(part)
    empty = np.empty(0, dtype=np.int64)
    return tuple(np.sort(np.concatenate([empty, *piece])) for piece in pieces)


def _interleaved(
    samples: np.ndarray, domains: np.ndarray, generator: torch.Generator
) -> np.ndarray:
    """The samples in an order in which every stretch holds each domain in the same proportion."""
    names, domain, sizes = np.unique(domains, return_inverse=True, return_counts=True)
    if len(names) == 1:
        return samples
    position = np.empty(len(samples))
    by_domain = np.argsort(domain, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    position[by_domain] = np.arange(len(samples)) - starts[domain[by_domain]]
    # A domain of few samples must not always have them at the same places.
    offset = torch.rand(len(names), generator=generator).numpy()
    return samples[np.argsort((position + offset[domain]) / sizes[domain], kind="stable")]


def _whole_groups(
    classes: np.ndarray,
    fractions: Sequence[float],
    generator: torch.Generator,
    domains: np.ndarray | None,
    groups: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Parts of whole groups: each goes, large ones first, where its classes are scarcest."""
    strata = classes if domains is None else classes * (int(domains.max(initial=0)) + 1) + domains
    _, stratum = np.unique(strata, return_inverse=True)
    names, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    counts = np.zeros((len(names), int(stratum.max(initial=-1)) + 1))
    np.add.at(counts, (group, stratum), 1)
    wanted = np.outer(fractions, counts.sum(axis=0))
    left = wanted.copy()
    part_of = np.zeros(len(names), dtype=np.int64)
    shuffled = torch.randperm(len(names), generator=generator).numpy()
    for number in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        here = counts[number] > 0
        scarcity = (left[:, here] / np.maximum(wanted[:, here], 1e-9)) @ counts[number, here]
        part_of[number] = np.argmax(np.where(np.array(fractions) > 0, scarcity, -np.inf))
        left[part_of[number]] -= counts[number]
    return tuple(np.flatnonzero(part_of[group] == part) for part in range(len(fractions)))


def make_parts(
    dataset: Dataset,
    *,
    monitor_test: bool,
    keep_reference: bool,
    seed: int,
    max_per_class: int | None = None,
) -> Parts:
    """Which samples are for training, monitoring, reference and test.

    A test part that came with the data is kept, and a fraction of the other samples is held out for
    monitoring.

    Args:
        dataset: the data.
        monitor_test: monitor the scoring test instead, as the published experiments did, and hold
            nothing out.
        keep_reference: keep half of the monitored samples as reference samples.
        seed: decides which samples go where.
        max_per_class: at most so many samples of a class outside of the test, and the same fraction
            of its test samples.
    """

    def parts_of(
        samples: np.ndarray, fractions: Sequence[float], generator: torch.Generator
    ) -> list[np.ndarray]:
        columns = (
            None if column is None else column[samples]
            for column in (dataset.domains, dataset.groups)
        )
        return [
            samples[part] for part in cut(dataset.labels[samples], fractions, generator, *columns)
        ]

    samples = np.arange(len(dataset.labels))
    if max_per_class is not None:
        samples = _thinned(dataset, max_per_class, rng.fork(seed, "fewer rows"))
    draw = rng.fork(seed, "parts")
    if dataset.is_test is None:
        train, monitored, test = parts_of(samples, (TRAIN, MONITORED, TEST), draw)
    else:
        test = samples[dataset.is_test[samples]]
        train, monitored = parts_of(
            samples[~dataset.is_test[samples]], (1 - HELD_OUT, HELD_OUT), draw
        )
    if monitor_test:
        train, monitored = np.sort(np.concatenate([train, monitored])), test
    reference = np.empty(0, dtype=np.int64)
    if keep_reference:
        halves = parts_of(monitored, (0.5, 0.5), rng.fork(seed, "reference"))
        reference, monitored = halves
    return Parts(train=train, monitored=monitored, reference=reference, test=test)


def _thinned(dataset: Dataset, max_per_class: int, generator: torch.Generator) -> np.ndarray:
    """Sample numbers, ascending: of each class at most so many that are not for the test.

    The same fraction of its test samples stays; domains keep their fractions as far as whole
    samples allow.
    """
    is_test = dataset.is_test
    kept = []
    for label in np.unique(dataset.labels):
        mine = np.flatnonzero(dataset.labels == label)
        scored = np.zeros(len(mine), dtype=bool) if is_test is None else is_test[mine]
        learned = len(mine) * (1 - TEST) if is_test is None else np.count_nonzero(~scored)
        share = min(1.0, max_per_class / learned) if learned else 1.0
        for samples in (mine[~scored], mine[scored]):
            domains = None if dataset.domains is None else dataset.domains[samples]
            part, _ = cut(dataset.labels[samples], (share, 1 - share), generator, domains)
            kept.append(samples[part])
    return np.sort(np.concatenate(kept))


def shortages(dataset: Dataset, parts: Parts, classes: Sequence[int]) -> tuple[str, ...]:
    """Warnings about classes without test samples; UserError where nothing can be learned or scored."""
    train, test = (
        np.bincount(dataset.labels[samples], minlength=len(dataset.class_names))
        for samples in (parts.train, parts.test)
    )
    names = dataset.class_names
    if untrained := [names[label] for label in classes if not train[label]]:
        raise UserError(
            f"{_some(untrained)} has no images to train on; add some, or leave the class out"
        )
    unscored = [names[label] for label in classes if not test[label]]
    if len(unscored) == len(classes):
        raise UserError("no class has test images, so that nothing can be scored; add some")
    if unscored:
        return (f"{_some(unscored)} has no test images and is not scored",)
    return ()


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"class {shown}" + (f" (and {len(names) - 5} more)" if len(names) > 5 else "")
