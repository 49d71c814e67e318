"""The two-sample Kolmogorov-Smirnov test, exact, for all classes of a check in one go.

Order the pooled scores: a sample of the first sample is a step up, a sample of the second a step to the
right, and the order is a path on a lattice from (0, 0) to (n, m). When nothing has drifted, all
paths are equally likely: the p-value is the share of paths that stray from the diagonal at least as
far as the one observed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import compress

import numpy as np
import numpy.typing as npt
from scipy import special, stats
from torch import Tensor

from driftwise.errors import UserError
from driftwise.stats.permutation import Evidence

__all__ = [
    "Evidence",
    "asymptotic_kolmogorov_smirnov",
    "kolmogorov_smirnov",
    "largest_gaps",
    "smallest_asymptotic_p_value",
    "smallest_p_value",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Question = tuple[int, int, int]
"""(n, m, reach), n <= m: what share of paths to (n, m) has a point with |i m - j n| >= reach?"""

MAX_EXACT = 10_000
"""samples of a sample beyond which scipy, and so this, gives the limit distribution's p-value"""

MAX_LATTICE = 50_000
"""points of a lattice beyond which scipy's compiled loop, call by call, is as fast as numpy's samples;
up to it, doubles hold the number of paths"""

_MAX_TOGETHER = 64
_MAX_REMEMBERED = 1 << 16
_remembered: dict[Question, float] = {}
"""answers hold for ever, and the same sizes come back from check to check"""


def kolmogorov_smirnov(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[Evidence]:
    """Largest gap between two empirical distributions, with its exact two-sided p-value.

    Each pair holds the scores of the reference samples and of the current samples of one class, (samples,).
    Beyond 10,000 samples in a sample the p-value is asymptotic.
    """
    samples = _samples(pairs)
    countable = [_is_countable(len(first), len(second)) for first, second in samples]
    counted = iter(_counted(list(compress(samples, countable))))
    return [
        next(counted) if is_countable else _by_scipy(first, second)
        for is_countable, (first, second) in zip(countable, samples, strict=True)
    ]


def asymptotic_kolmogorov_smirnov(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[Evidence]:
    """The same statistic with the p-value of its limit distribution, as published.

    It is scipy's `ks_2samp(method="asymp")`: exact for large samples only. Of one score against one
    other, which have no limit, it is 1.
    """
    samples = _samples(pairs)
    if not samples:
        return []
    sizes = _sizes(samples)
    gaps = _reaches(samples, sizes) / sizes.prod(axis=1)
    effective = _effective_sizes(sizes)
    p_values = np.where(effective > 0, stats.kstwo.sf(gaps, effective.clip(min=1)), 1.0)
    both = zip(gaps.tolist(), p_values.clip(0, 1).tolist(), strict=True)
    return [Evidence(gap, p_value) for gap, p_value in both]


def largest_gaps(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[float]:
    """The statistics of `kolmogorov_smirnov` alone."""
    samples = _samples(pairs)
    if not samples:
        return []
    sizes = _sizes(samples)
    gaps: list[float] = (_reaches(samples, sizes) / sizes.prod(axis=1)).tolist()
    return gaps


def smallest_p_value(num_reference: int, num_current: int) -> float:
    """The p-value of two samples that do not overlap at all: no test of such sizes gets below it.

    >>> round(smallest_p_value(5, 5), 4)
    0.0079
    """
    return min(1.0, 2 / math.comb(num_reference + num_current, num_reference))


def smallest_asymptotic_p_value(num_reference: int, num_current: int) -> float:
    """The same for the p-value of the limit distribution, which ends at a gap of 1."""
    effective = _effective_sizes(np.array([[num_reference, num_current]]))
    return 0.0 if effective.item() > 0 else 1.0


def _effective_sizes(sizes: Integers) -> Floats:
    """Size of the one sample that two are worth, (classes,), given (classes, 2)."""
    n, m = sizes.T.astype(np.float64)
    rounded: Floats = np.round(n * m / (n + m))
    return rounded


def _samples(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[Floats, Floats]]:
    samples = [(first.double().numpy(), second.double().numpy()) for first, second in pairs]
    if any(min(len(first), len(second)) == 0 for first, second in samples):
        raise UserError("a sample is empty: the test needs at least one score on either side")
    return samples


def _sizes(samples: Sequence[tuple[Floats, Floats]]) -> Integers:
    """(classes, 2)"""
    return np.array([(len(first), len(second)) for first, second in samples])


def _is_countable(n: int, m: int) -> bool:
    """Whether paths to (n, m) are counted here."""
    return max(n, m) <= MAX_EXACT and (n == m or n * m <= MAX_LATTICE)


def _by_scipy(first: Floats, second: Floats) -> Evidence:
    """One large pair: exact up to 10,000 samples, then asymptotic."""
    _refuse_nan(first)
    _refuse_nan(second)
    result = stats.ks_2samp(first, second)
    return Evidence(float(result.statistic), float(result.pvalue))


def _refuse_nan(scores: Floats) -> None:
    if np.isnan(scores).any():
        raise UserError("scores hold NaN: leave such samples out, or mend the encoder")


def _counted(samples: Sequence[tuple[Floats, Floats]]) -> list[Evidence]:
    """The test of all classes together."""
    if not samples:
        return []
    sizes = _sizes(samples)
    reaches = _reaches(samples, sizes)
    statistics = reaches / sizes.prod(axis=1)
    fewer, more = np.sort(sizes, axis=1).T
    questions = list(zip(fewer.tolist(), more.tolist(), reaches.tolist(), strict=True))
    return [Evidence(*both) for both in zip(statistics.tolist(), _answers(questions), strict=True)]


def _reaches(samples: Sequence[tuple[Floats, Floats]], sizes: Integers) -> Integers:
    """Largest |m #first - n #second| up to any score, (classes,), in whole numbers."""
    # Padding sorts to the end, where the path has arrived, and takes no step.
    scores = np.full((len(samples), sizes.sum(axis=1).max()), np.inf)
    for sample, both in zip(scores, samples, strict=True):
        pooled = np.concatenate(both)
        sample[: len(pooled)] = pooled
    _refuse_nan(scores)
    order = scores.argsort(axis=1)
    scores = np.take_along_axis(scores, order, axis=1)
    n, m = sizes.T[:, :, None]
    heights = np.where(order < n, m, np.where(order < n + m, -n, 0)).cumsum(axis=1)
    # Tied scores have no order among them: the path is looked at where a run of ties ends.
    heights[:, :-1][scores[:, 1:] == scores[:, :-1]] = 0
    farthest: Integers = np.abs(heights).max(axis=1)
    return farthest


def _answers(questions: Sequence[Question]) -> list[float]:
    """Shares of paths; those that are not remembered are counted together."""
    answers: dict[Question, float] = {}
    alike: dict[tuple[int, int], list[Question]] = defaultdict(list)
    for question in dict.fromkeys(questions):
        n, m, reach = question
        if question in _remembered:
            answers[question] = _remembered[question]
        elif reach == 0:
            answers[question] = 1.0
        elif n == m:
            answers[question] = _share_to_square(n, reach // n)
        else:
            # Lattices of about one size waste little on one another.
            alike[n.bit_length(), m.bit_length()].append(question)
    for group in alike.values():
        for start in range(0, len(group), _MAX_TOGETHER):
            part = group[start : start + _MAX_TOGETHER]
            answers |= zip(part, _shares(np.array(part)).tolist(), strict=True)
    if len(_remembered) > _MAX_REMEMBERED:
        _remembered.clear()
    _remembered.update(answers)
    return [answers[question] for question in questions]


def _share_to_square(n: int, h: int) -> float:
    """Paths to (n, n) that reach |i - j| = h, by reflection: 2 (C_h - C_2h + C_3h - ...) / C_0.

    C_k is the number of paths that end k off the diagonal's end, choose(2n, n - k).
    """
    k = np.arange(n)
    ratios = np.cumprod((n - k) / (n + k + 1))[h - 1 :: h]
    return min(1.0, 2 * float(ratios[::2].sum() - ratios[1::2].sum()))


def _shares(questions: Integers) -> Floats:
    """Paths to (n, m) that stray, as a share of all, for questions (classes, 3).

    Sample by sample of the lattice, counts grow by cumulative sums: N(i, j) = N(i, j-1) + N(i-1, j), and
    at a point beyond the reach every path has strayed. Sums of positive numbers lose no digits,
    however small the share.
    """
    n, m, _ = questions.T
    lows, highs = _corridors(questions)
    # Every sum begins at the first column, so that an answer does not depend in its last digit on
    # what else is asked together with it. Column -1 stands before it and holds nothing.
    columns = np.arange(-1, highs[1:].max())
    all_below = _all_paths_below(len(lows) - 1, columns.clip(max=m.max()))
    # Left of the corridor, sums over all paths below give all paths; right of the last sample's, sums
    # have run on where they have no meaning.
    replaced = columns < lows[1:, :, None]
    replaced |= columns >= highs[:-1, :, None]
    strayed = np.zeros((len(questions), len(columns)))
    arriving = defaultdict(list)
    for line, sample in enumerate(n.tolist()):
        arriving[sample].append(line)
    arrived = np.empty(len(questions))
    for i in range(len(all_below)):
        np.copyto(strayed, all_below[i], where=replaced[i])
        np.add.accumulate(strayed, axis=1, out=strayed)
        for line in arriving.get(i + 1, ()):
            arrived[line] = strayed[line, m[line] + 1]
    shares: Floats = arrived / special.binom(n + m, n)
    return shares.clip(max=1)


def _corridors(questions: Integers) -> tuple[Integers, Integers]:
    """In sample i a path has not strayed where low <= j < high, (samples, classes) each."""
    n, m, reach = questions.T
    i = np.arange(n.max() + 1)[:, None]
    lows = ((i * m - reach) // n + 1).clip(0, m)
    highs = np.minimum(-((-i * m - reach) // n), m + 1)
    arrived = i > n
    return np.where(arrived, m.max(), lows), np.where(arrived, 0, highs)


def _all_paths_below(samples: int, columns: Integers) -> Floats:
    """Numbers of paths to the columns in samples 0, 1, ..., each sample's first one sample higher.

    Sums over a sample then go on from the first.
    """
    i = np.repeat(np.arange(samples)[:, None], len(columns), axis=1)
    i[:, 0] += 1
    log_factorials = special.gammaln(np.arange(1, i.max() + columns.max() + 2))
    logs = log_factorials[i + columns] - log_factorials[i] - log_factorials[columns]
    return np.where(columns < 0, 0.0, np.exp(logs))
