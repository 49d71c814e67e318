"""P-values from the reference alone: how much do its own halves differ from one another?

What is observed between n reference and m current samples is ranked among random splits of the
reference into halves. Two things stand between such ranks and a promise, and both weigh more the
smaller the reference is.

Sizes: a half has fewer samples than the reference, and the current samples may be many more. Statistics
are therefore brought to a scale on which, when nothing has drifted, sizes do not show, or only so
that halves lie higher: `_gap_scale`, `_variance_ratios`, `_area_scale`.

What the reference has not shown: where its samples are equal, so are its halves, and the first current
sample that differs would be an alarm. Scores and the classifier's samples are therefore split together
with imagined ones, two pairs that are unlike all others; what adding two successes and two failures
is to the interval of a share, they are to a reference. A class with equal samples of features is
tested by permutations.

Samples must be independent, as for every test here: where they come in groups (one writer, one clip),
random halves hold samples of every group and differ too little.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress

import torch
from torch import Tensor

from driftwise.stats.c2st import c2st, held_out_areas
from driftwise.stats.ks import largest_gaps
from driftwise.stats.mmd import discrepancies, kernel_matrices, kernel_sums, mmd
from driftwise.stats.permutation import (
    Evidence,
    Pair,
    at_least,
    batches_of_equal_sizes,
    by_blocks,
    observed_split,
    random_splits,
)

_PAIR = 2
_IMAGINED = 2 * _PAIR
"""samples that are split together with a reference"""

_MAX_CELLS = 1 << 21
"""of the splits that are computed together"""


def smallest_split_p_value(num_reference: int, splits: int) -> float:
    """No reference of so many samples gives less: it has only so many different pairs of halves.

    >>> smallest_split_p_value(6, 999)  # ten ways to halve six samples
    0.09090909090909091
    """
    halves = math.comb(num_reference, num_reference // 2) // (2 - num_reference % 2)
    return 1 / (1 + min(splits, halves))


# --- scores -------------------------------------------------------------------------------------


def ks_by_splits(
    pairs: Sequence[Pair], *, splits: int = 999, generator: torch.Generator
) -> list[Evidence]:
    """Largest gap between two samples of scores, (samples,) on either side, with its split p-value.

    The exact p-value takes scores for continuous. This one knows of ties: where many samples have one
    score, gaps are smaller than that, and the exact test misses what this one finds.
    """
    gaps = largest_gaps(pairs)
    p_values: dict[int, float] = {}
    for places, scores in _sorted_references(pairs, splits):
        sizes = _halves(scores.shape[1] + _IMAGINED)
        halves = random_splits(len(places), splits, sizes, generator)[:, 1:]
        scaled = [gaps[place] * _gap_scale(*map(len, pairs[place])) for place in places]
        observed = scores.new_tensor(scaled)[:, None] / _gap_scale(*sizes)
        excess = by_blocks(partial(_half_gaps, scores), halves) - observed
        # A half's gap has steps of one sample, between which the observed one may lie: a split
        # within half a step of it counts in part.
        count = (excess * sizes[0] + 0.5).clamp_(0, 1).sum(dim=1)
        p_values |= zip(places, _p_values(count, scores.shape[1], splits), strict=True)
    return [Evidence(gap, p_values[place]) for place, gap in enumerate(gaps)]


def _gap_scale(n: int, m: int) -> float:
    """What gaps are multiplied by to have one distribution for all sizes.

    The root is the limit theorem's, the rest Stephens's (1970) for small samples.
    """
    root = math.sqrt(n * m / (n + m))
    return root + 0.12 + 0.11 / root


def _half_gaps(scores: Tensor, halves: Tensor) -> Tensor:
    """Gap between the halves of every split, (classes, splits), of sorted scores (classes, samples).

    The splits have an imagined pair before all samples and one after them.
    """
    first, second = _halves(halves.shape[2])
    heights = torch.where(halves, -first, second).cumsum_(dim=2).abs_()
    # Tied scores have no order among them: only the point after a run of ties counts.
    beyond = scores.new_full((len(scores), _PAIR), math.inf)
    every = torch.cat([-beyond, scores, beyond], dim=1)
    heights[:, :, :-1].masked_fill_((every[:, 1:] == every[:, :-1])[:, None], 0)
    return heights.amax(dim=2).double() / (first * second)


def _sorted_references(pairs: Sequence[Pair], splits: int) -> Iterator[tuple[list[int], Tensor]]:
    """References of equal sizes together: where they stand, their scores (classes, samples)."""
    alike: dict[int, list[int]] = defaultdict(list)
    for place, (reference, _) in enumerate(pairs):
        alike[len(reference)].append(place)
    for samples, places in alike.items():
        step = max(1, _MAX_CELLS // ((samples + _IMAGINED) * splits))
        for start in range(0, len(places), step):
            batch = places[start : start + step]
            scores = torch.stack([pairs[place][0].double() for place in batch])
            yield batch, scores.sort(dim=1).values


# --- features -----------------------------------------------------------------------------------


def mmd_by_splits(
    pairs: Sequence[Pair], *, splits: int = 999, generator: torch.Generator
) -> list[Evidence]:
    """Squared MMD of each pair of (samples, features), with its split p-value.

    Splits cost what the reference's samples cost: against many current samples, far less than
    permutations.
    """

    def of_batch(pooled: Tensor, sizes: tuple[int, int]) -> tuple[Tensor, Tensor]:
        kernels = kernel_matrices(pooled)
        as_observed = observed_split(len(pooled), sizes)
        own, half_sizes = kernels[:, : sizes[0], : sizes[0]], _halves(sizes[0])
        halves = random_splits(len(pooled), splits, half_sizes, generator)[:, 1:]
        count = at_least(
            _variance_ratios(own, halves, half_sizes), _variance_ratios(kernels, as_observed, sizes)
        )
        return discrepancies(kernels, as_observed, sizes), count

    def permuted(tied: Sequence[Pair]) -> list[Evidence]:
        return mmd(tied, permutations=splits, generator=generator)

    return _features_by_splits(pairs, splits, of_batch, permuted)


def _variance_ratios(kernels: Tensor, splits: Tensor, sizes: tuple[int, int]) -> Tensor:
    """Variance between two samples over variance within them, (classes, splits).

    1 on average when nothing has drifted, and the larger the larger the MMD. The MMD itself would
    be judged by the spread of few samples, and raise up to one and a half times the alarms; here each
    side of the comparison has its own spread below the line, and fewer samples make it vary more.
    """
    n, m = sizes

    def of_block(block: Tensor) -> Tensor:
        reference, current, across = kernel_sums(kernels, block)
        within = (n - 1 - reference / n) + (m - 1 - current / m)
        distance = (n + reference) / n**2 + (m + current) / m**2 - 2 * across / (n * m)
        return n * m / (n + m) * distance / (within / (n + m - 2))

    return by_blocks(of_block, splits)


def c2st_by_splits(
    pairs: Sequence[Pair],
    *,
    splits: int = 999,
    folds: int = 10,
    ridge: float = 0.01,
    generator: torch.Generator,
) -> list[Evidence]:
    """Held-out area of a linear classifier on (samples, features), with its split p-value."""

    areas = partial(held_out_areas, folds=folds, ridge=ridge, generator=generator)

    def of_batch(pooled: Tensor, sizes: tuple[int, int]) -> tuple[Tensor, Tensor]:
        observed = areas(pooled, observed_split(len(pooled), sizes))
        own, half_sizes = _with_imagined(pooled[:, : sizes[0]]), _halves(sizes[0] + _IMAGINED)
        halves = random_splits(len(pooled), splits, half_sizes, generator)[:, 1:]
        count = at_least(
            (areas(own, halves) - 0.5) * _area_scale(*half_sizes),
            (observed - 0.5) * _area_scale(*sizes),
        )
        return observed, count

    def permuted(tied: Sequence[Pair]) -> list[Evidence]:
        return c2st(tied, permutations=splits, folds=folds, ridge=ridge, generator=generator)

    return _features_by_splits(pairs, splits, of_batch, permuted)


def _with_imagined(reference: Tensor) -> Tensor:
    """(classes, samples, features) with the imagined samples, and a feature that each pair has alone.

    In all other features they are average.
    """
    classes, samples, width = reference.shape
    pairs = _IMAGINED // _PAIR
    extended = reference.new_zeros(classes, samples + _IMAGINED, width + pairs)
    extended[:, :samples, :width] = reference
    extended[:, samples:, :width] = reference.mean(dim=1, keepdim=True)
    extended[:, samples:, width:] = torch.eye(pairs).repeat_interleave(_PAIR, dim=0)
    return extended


def _area_scale(n: int, m: int) -> float:
    """One over the standard deviation of the area that ranks without meaning have."""
    return math.sqrt(12 * n * m / (n + m + 1))


def _features_by_splits(
    pairs: Sequence[Pair],
    splits: int,
    of_batch: Callable[[Tensor, tuple[int, int]], tuple[Tensor, Tensor]],
    permuted: Callable[[Sequence[Pair]], list[Evidence]],
) -> list[Evidence]:
    """Evidence of each pair.

    `of_batch` makes the observed statistics (classes, 1) of pooled samples of two sizes, and how many
    splits reach them, (classes,); `permuted` takes the pairs whose reference has equal samples.
    """
    evidence: dict[int, Evidence] = {}
    tied: list[int] = []
    for places, pooled, sizes in batches_of_equal_sizes(pairs, splits):
        has_ties = (kernel_matrices(pooled[:, : sizes[0]]) >= 1).flatten(start_dim=1).any(dim=1)
        tied += compress(places, has_ties.tolist())
        if has_ties.all():
            continue
        statistics, count = of_batch(pooled[~has_ties], sizes)
        found = map(Evidence, statistics[:, 0].tolist(), _p_values(count, sizes[0], splits))
        evidence |= zip(compress(places, (~has_ties).tolist()), found, strict=True)
    evidence |= zip(tied, permuted([pairs[place] for place in tied]), strict=True)
    return [evidence[place] for place in range(len(pairs))]


def _halves(samples: int) -> tuple[int, int]:
    """Their sizes."""
    return samples // 2, samples - samples // 2


def _p_values(count: Tensor, num_reference: int, splits: int) -> list[float]:
    """From how many splits reach what was observed, (classes,)."""
    shares = (1 + count.double()) / (1 + splits)
    p_values: list[float] = shares.clamp(min=smallest_split_p_value(num_reference, splits)).tolist()
    return p_values
