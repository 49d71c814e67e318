"""How long an adversary can hide drifted samples from evidence that accumulates.

The adversary knows the detector and its level, and mixes drifted samples into a class: each sample is
one with probability f. Let phi be the fraction of drifted samples among those that the detector
keeps to rank others among, the newcomer included. Where drifted samples lie farther out than all others,
their ranks are uniform among themselves, and so are those of the others:

    p = phi U               of a drifted sample
    p = phi + (1 - phi) U   of another one,     U uniform on (0, 1)

p-values are uniform again once phi = f: the drift has become part of what is normal. Until then they
are too small, the more the smaller f is against 1, and the evidence grows by about
f log(f / phi) + (1 - f) log((1 - f) / (1 - phi)), a divergence, for each ranked sample. Both phi and the
evidence are Markov chains whose laws depend on f and on the detector's settings alone, not on the data.
`longest_hidden` follows them and returns the number of samples within which the alarm has come with the
stated probability. Small fractions are absorbed before the evidence suffices: no finite bound exists
for them, and None says so.

The bound is for drift that shows: the detector's distance score must rank drifted samples first.
Where it does so only for a part of them, that part of f counts.
"""

from __future__ import annotations

import math

import numpy as np

from driftwise.errors import UserError
from driftwise.stats.e_values import EPSILONS, left_after, share_of
from driftwise.stats.rank_p_values import SCORES, TEACH_EVERY

__all__ = ["longest_hidden"]


def longest_hidden(
    fraction: float,
    *,
    level: float = 0.05,
    num_reference: int = 100,
    num_quiet: int = 0,
    kept_rows: int = 300,
    number: int = 1,
    confidence: float = 0.99,
    most: int = 5000,
    paths: int = 400,
    seed: int = 0,
) -> int | None:
    """Samples of a class within which a drifted fraction is found; None: not within `most`.

    Args:
        fraction: of the class's samples that have drifted, from the first one on.
        level: of the detector, for the whole stream.
        num_reference: reference samples of the class.
        num_quiet: samples that came before the first drifted one.
        kept_rows: samples that the detector ranks others among.
        number: of the class's test among all tests that the detector has begun.
        confidence: probability with which the bound holds.
        most: samples after which it is given up.
        paths: simulated streams.
        seed: of their randomness.

    >>> longest_hidden(1.0) < longest_hidden(0.7) < longest_hidden(0.5)
    True
    """
    if not 0 < fraction <= 1 or not 0 < level < 1 or not 0 < confidence < 1:
        raise UserError(
            "expected a fraction in (0, 1], a level and a confidence in (0, 1); got "
            f"{fraction}, {level}, {confidence}"
        )
    draw = np.random.default_rng(seed)
    threshold = math.log(len(SCORES) / (level * share_of(number)))
    chain = _Chain(paths, clean=_ranked(num_reference), kept_rows=kept_rows, draw=draw)
    chain.skip_quiet(_ranked(num_reference + num_quiet) - _ranked(num_reference))
    found = np.full(paths, most + 1)
    came = num_reference + num_quiet
    for sample in range(1, most + 1):
        came += 1
        if came % TEACH_EVERY == 1:  # fitted to, not ranked
            continue
        chain.step(draw.random(paths) < fraction)
        found[(chain.log_e_value >= threshold) & (found > most)] = sample
        if (found <= most).all():
            break
    # The smallest number of samples that at least the stated share of all paths has not exceeded.
    bound = int(np.sort(found)[min(paths - 1, math.ceil(confidence * paths) - 1)])
    return bound if bound <= most else None


def _ranked(samples: int) -> int:
    """Of the first samples of a class, those that are ranked."""
    return samples - -(-samples // TEACH_EVERY)


class _Chain:
    """The kept samples' drifted fraction and the evidence, of several streams at once."""

    def __init__(
        self, paths: int, *, clean: int, kept_rows: int, draw: np.random.Generator
    ) -> None:
        self._draw = draw
        self._max_kept = kept_rows
        self._drifted = np.zeros(paths)
        self._kept = min(clean, kept_rows)
        self._count = 0
        # Both ends of the distance score: farther out than usual, or nearer.
        self._powers = np.tile(np.array(EPSILONS) - 1, 2)
        self._constants = np.tile(np.log(EPSILONS), 2)
        self._logs = np.full((paths, 2 * len(EPSILONS)), -np.inf)

    @property
    def log_e_value(self) -> np.ndarray:
        """Of each stream, (paths,)."""
        started = np.logaddexp.reduce(self._logs, axis=1) - math.log(self._logs.shape[1])
        log_e: np.ndarray = np.logaddexp(started, math.log(left_after(self._count)))
        return log_e

    def skip_quiet(self, samples: int) -> None:
        """So many ranked samples, of which none has drifted."""
        for _ in range(samples):
            self.step(np.zeros(len(self._drifted), dtype=bool))

    def step(self, is_drifted: np.ndarray) -> None:
        """The next ranked sample of each stream, bool (paths,)."""
        drifted, kept = self._drifted + is_drifted, self._kept + 1
        phi = drifted / kept
        uniform = self._draw.random(len(phi))
        p = np.where(is_drifted, phi * uniform, phi + (1 - phi) * uniform)
        p = p.clip(2.0**-53, 1 - 2.0**-53)
        self._count += 1
        ends = np.repeat(np.stack([p, 1 - p], axis=1), len(EPSILONS), axis=1)
        gains = self._constants + self._powers * np.log(ends)
        self._logs = gains + np.logaddexp(self._logs, math.log(share_of(self._count)))
        if kept > self._max_kept:  # one is removed at random
            drifted = drifted - (self._draw.random(len(phi)) < phi)
            kept -= 1
        self._drifted, self._kept = drifted, kept
