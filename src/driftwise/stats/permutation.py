"""The result of a two-sample test, and the common parts of permutation tests."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from driftwise.errors import UserError

Pair = tuple[Tensor, Tensor]
"""reference samples and current samples of one class"""

_ROUNDING = 1e-10
"""statistics closer than this tie: equal splits must, in whatever order they were summed"""


class Evidence(NamedTuple):
    """The result of a two-sample test."""

    statistic: float
    p_value: float


def smallest_permutation_p_value(permutations: int, num_reference: int, num_current: int) -> float:
    """The smallest p-value possible, since the observed split counts as one of the splits.

    Of few samples there are few splits, and with sides of equal size every split has its mirror image,
    which is as good.

    >>> smallest_permutation_p_value(99, 20, 30)
    0.01
    >>> smallest_permutation_p_value(999, 4, 4) == 2 / 70
    True
    """
    splits = math.comb(num_reference + num_current, num_reference)
    mirrored = 2 if num_reference == num_current else 1
    return max(1 / (1 + permutations), mirrored / splits)


def permutation_evidence(statistics: Tensor) -> list[Evidence]:
    """Evidence of each class, from statistics (classes, 1 + permutations), the observed one first.

    Under the null hypothesis the observed split is as good as any other, so that its rank among all
    of them is a valid p-value only when it is counted itself.
    """
    observed = statistics[:, :1]
    p_values = at_least(statistics, observed).double() / statistics.shape[1]
    return [
        Evidence(*both) for both in zip(observed[:, 0].tolist(), p_values.tolist(), strict=True)
    ]


def at_least(statistics: Tensor, observed: Tensor) -> Tensor:
    """How many reach the observed one, (classes,), given (classes, splits) and (classes, 1)."""
    return (statistics >= observed - _ROUNDING).sum(dim=1)


def observed_split(classes: int, sizes: tuple[int, int]) -> Tensor:
    """Whether a sample is current, (classes, 1, samples), of classes pooled reference first."""
    num_reference, num_current = sizes
    samples = num_reference + num_current
    return (torch.arange(samples) >= num_reference).expand(classes, 1, samples)


def random_splits(
    classes: int, permutations: int, sizes: tuple[int, int], generator: torch.Generator
) -> Tensor:
    """Whether a sample is current, (classes, 1 + permutations, samples): as observed, then at random.

    A class's samples are pooled, reference first. Every split has as many current samples as observed.
    """
    num_reference, samples = sizes[0], sum(sizes)
    parts = [observed_split(classes, sizes)]
    step = _splits_at_once(classes, samples)
    for start in range(0, permutations, step):
        shape = classes, min(step, permutations - start), samples
        # No two keys of a split are equal, so that as many as are current reach the threshold.
        keys = torch.randint(2**62 // samples, shape, generator=generator) * samples + torch.arange(
            samples
        )
        # Numpy selects several times as fast as torch.
        thresholds = np.partition(keys.numpy(), num_reference, axis=2)[:, :, num_reference, None]
        parts.append(keys >= torch.from_numpy(thresholds))
    return torch.cat(parts, dim=1)


def by_blocks(statistic: Callable[[Tensor], Tensor], splits: Tensor) -> Tensor:
    """A statistic of all splits, (classes, splits), from few at a time: memory stays bounded.

    The splits are (classes, splits, samples), and so are those that `statistic` is given.
    """
    step = _splits_at_once(len(splits), splits.shape[2])
    return torch.cat([statistic(part) for part in torch.split(splits, step, dim=1)], dim=1)


def _splits_at_once(classes: int, samples: int) -> int:
    return max(1, _MAX_CELLS // (classes * samples))


def batches_of_equal_sizes(
    pairs: Sequence[Pair], permutations: int
) -> Iterator[tuple[list[int], Tensor, tuple[int, int]]]:
    """Pairs of equal sizes together: where they stand, their pooled samples, their two sizes.

    The pooled samples are (classes, reference + current samples, features). A batch holds no more classes
    than keep its matrices within the processor's caches.
    """
    alike: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for place, (reference, current) in enumerate(pairs):
        _refuse_bad_shapes(reference, current)
        alike[len(reference), len(current), reference.shape[1]].append(place)
    for (num_reference, num_current, width), places in alike.items():
        samples = num_reference + num_current
        step = max(1, _MAX_CELLS // (samples * max(samples, width, permutations)))
        for start in range(0, len(places), step):
            batch = places[start : start + step]
            pooled = torch.stack([torch.cat(pairs[place]) for place in batch])
            yield batch, pooled, (num_reference, num_current)


_MAX_CELLS = 1 << 18
"""of a batch's matrices, 8 bytes each"""


def _refuse_bad_shapes(reference: Tensor, current: Tensor) -> None:
    shapes = tuple(reference.shape), tuple(current.shape)
    if any(len(shape) != 2 for shape in shapes) or shapes[0][1] != shapes[1][1]:
        raise UserError(f"expected features (samples, features) of one width; got {shapes}")
    if min(len(reference), len(current)) < 2:
        raise UserError(f"a test on features needs at least two samples on each side; got {shapes}")


def refuse_infinite(norms: Tensor) -> None:
    """Given the features' squared norms: a NaN would be taken for the strongest evidence."""
    if not norms.isfinite().all():
        raise UserError(
            "features hold NaN or huge numbers: leave such samples out, or fix the encoder"
        )
