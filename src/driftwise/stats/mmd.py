"""Maximum mean discrepancy (MMD) between two sets of features, with a permutation p-value.

    MMD^2 = E k(x, x') + E k(y, y') - 2 E k(x, y)

Reference:
    A. Gretton, K. Borgwardt, M. Rasch, B. Schoelkopf, A. Smola. A kernel two-sample test. JMLR 13,
    2012.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from driftwise.stats.permutation import (
    Evidence,
    Pair,
    batches_of_equal_sizes,
    by_blocks,
    permutation_evidence,
    random_splits,
    refuse_infinite,
)


def mmd(
    pairs: Sequence[Pair], *, permutations: int = 100, generator: torch.Generator
) -> list[Evidence]:
    """Squared MMD of each pair of features, (samples, features) on either side.

    The estimate is unbiased, so that it may be negative; the kernel is exp(-distance^2 / median),
    with the median of the squared distances within the pooled samples. The p-value is the rank of the
    observed split among itself and `permutations` random ones, valid for samples of any size.
    """
    evidence: dict[int, Evidence] = {}
    for places, pooled, sizes in batches_of_equal_sizes(pairs, permutations):
        splits = random_splits(len(places), permutations, sizes, generator)
        statistics = discrepancies(kernel_matrices(pooled), splits, sizes)
        evidence |= zip(places, permutation_evidence(statistics), strict=True)
    return [evidence[place] for place in range(len(pairs))]


def kernel_matrices(pooled: Tensor) -> Tensor:
    """Kernel values between the samples of a class, (classes, samples, samples), zero on the diagonal.

    Single precision is enough for features that come in it, and halves the time; what is summed
    over many kernels is not.
    """
    squared = _squared_distances(pooled if pooled.dtype == torch.float32 else pooled.double())
    kernels = squared.div_(-_bandwidths(squared)[:, None, None]).exp_().double()
    kernels.diagonal(dim1=1, dim2=2).zero_()
    return kernels


class KernelSums(NamedTuple):
    """Sums of kernel values over pairs of samples, either order counted, (classes, splits) each."""

    reference: Tensor
    """both reference samples, not one with itself"""
    current: Tensor
    across: Tensor
    """one order only"""


def kernel_sums(kernels: Tensor, splits: Tensor) -> KernelSums:
    """The three blocks of every split, given kernels with a zero diagonal and splits by class.

    With `inside` the current samples' sum of kernels and `touching` their sum with all samples, the sums
    of the two other blocks follow from the total: one matrix product serves all splits.
    """
    current = splits.to(kernels.dtype)
    to_current = current @ kernels
    inside = (to_current * current).sum(dim=2)
    touching = to_current.sum(dim=2)
    across = touching - inside
    reference = kernels.sum(dim=(1, 2))[:, None] - touching - across
    return KernelSums(reference, inside, across)


def discrepancies(kernels: Tensor, splits: Tensor, sizes: tuple[int, int]) -> Tensor:
    """Unbiased squared MMD of every split, (classes, splits), given kernels and splits by class."""
    num_reference, num_current = sizes

    def of_block(block: Tensor) -> Tensor:
        reference, current, across = kernel_sums(kernels, block)
        return (
            reference / (num_reference * (num_reference - 1))
            + current / (num_current * (num_current - 1))
            - 2 * across / (num_reference * num_current)
        )

    return by_blocks(of_block, splits)


def _squared_distances(pooled: Tensor) -> Tensor:
    """(classes, samples, features) -> (classes, samples, samples), symmetric; 0 between equal samples."""
    centred = pooled - pooled.mean(dim=1, keepdim=True)
    # A feature that varies by rounding alone is constant.
    rounding = max(1e-12, torch.finfo(pooled.dtype).eps) * pooled.abs().amax(dim=1, keepdim=True)
    centred.masked_fill_(centred.abs().amax(dim=1, keepdim=True) <= rounding, 0)
    products = centred @ centred.mT
    norms = products.diagonal(dim1=1, dim2=2)
    refuse_infinite(norms)
    norms = norms[:, :, None] + norms[:, None, :]
    squared = norms - (products + products.mT)
    # What lies below the rounding of the norms is no distance.
    return squared.masked_fill_(squared < norms.mul_(100 * torch.finfo(norms.dtype).eps), 0)


def _bandwidths(squared: Tensor) -> Tensor:
    """Median squared distance of each class, (classes,); never 0.

    Where most samples are equal it is the mean; where all are, whatever it is changes nothing.
    """
    samples = squared.shape[1]
    num_distances = samples * (samples - 1) // 2
    # Sorted, the matrix holds its diagonal of zeros, then every distance twice.
    lower_median = samples + 2 * ((num_distances - 1) // 2)
    flat = squared.flatten(start_dim=1)
    # Numpy selects several times as fast as torch.
    medians = torch.from_numpy(np.partition(flat.numpy(), lower_median, axis=1)[:, lower_median])
    found = torch.where(medians > 0, medians, flat.mean(dim=1))
    return torch.where(found > 0, found, 1.0)
