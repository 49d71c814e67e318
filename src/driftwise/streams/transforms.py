"""Drift transforms: what drift does to the images of a class, at five severities.

A drifted set is computed once and frozen, so equal arguments must give equal pixels: no result here
depends on the chunk size, on the number of threads, or on the samples that follow in the batch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.special import ndtr, pdtr
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError, unknown_name

NOISES = ("gaussian-noise", "shot-noise", "speckle-noise")
"""The transforms that draw for every image."""

SEVERITIES = (1, 2, 3, 4, 5)

PERMUTED_PERCENT = (10, 25, 50, 75, 100)
ROTATION_DEGREES = (45, 90, 135, 180, 270)
DEFOCUS_RADIUS_AND_SIGMA = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))
GAUSSIAN_SIGMA = (0.08, 0.12, 0.18, 0.26, 0.38)
SHOT_RATE = (500, 250, 100, 75, 50)
SPECKLE_SIGMA = (0.06, 0.10, 0.12, 0.16, 0.20)

TRANSFORMS: tuple[str, ...] = (
    "identity",
    "permutation",
    "rotation",
    "defocus-blur",
    "gaussian-noise",
    "shot-noise",
    "speckle-noise",
)
UNITS = ("pixel", "row")

_CHUNK_SAMPLES = 256  # bounds the float copies and keeps them in cache
_LEVELS = 256
_KEEP_BITS = 31 - 8  # a draw fills 31 bits of an int32, and the lowest 8 choose a column

_OnChunk = Callable[[Tensor], Tensor]
"""uint8 (samples, height, width, channels) -> the same shape; called on the chunks in order"""


def apply(
    images: Tensor, transform: str, severity: int, *, seed: int, unit: str = "pixel"
) -> Tensor:
    """A drifted copy of a batch, uint8 (samples, height, width, channels) -> the same shape.

    Equal arguments give equal pixels; identity gives the batch itself. `seed` draws the noise and
    the permutation; `unit` is what a permutation moves: single pixels (all channels together) or
    whole rows of the image.

    >>> grey = torch.full((1, 2, 2, 1), 100, dtype=torch.uint8)
    >>> apply(grey, "defocus-blur", 5, seed=0).flatten().tolist()
    [100, 100, 100, 100]
    """
    _check(images, transform, severity, unit)
    if transform == "identity":
        return images
    on_chunk = _prepare(tuple(images.shape[1:]), transform, severity, seed=seed, unit=unit)
    drifted = torch.empty(images.shape, dtype=torch.uint8)
    for start in range(0, len(images), _CHUNK_SAMPLES):
        chunk = images[start : start + _CHUNK_SAMPLES]
        drifted[start : start + len(chunk)] = on_chunk(chunk)
    return drifted


def _check(images: Tensor, transform: str, severity: int, unit: str) -> None:
    if transform not in TRANSFORMS:
        raise unknown_name("transform", transform, TRANSFORMS)
    if unit not in UNITS:
        raise unknown_name("unit", unit, UNITS)
    if severity not in SEVERITIES:
        raise UserError(f"severity must be 1 to 5; got {severity}")
    if images.dtype != torch.uint8 or images.ndim != 4 or 0 in images.shape[1:]:
        raise ValueError(
            "images must be uint8 (samples, height, width, channels) with at least one pixel; "
            f"got {str(images.dtype).removeprefix('torch.')} {tuple(images.shape)}"
        )


def _prepare(
    shape: tuple[int, ...], transform: str, severity: int, *, seed: int, unit: str
) -> _OnChunk:
    """Everything that is the same for all samples, done once; what is left is the work per chunk."""
    height, width, channels = shape
    step = severity - 1
    if transform == "permutation":
        num_positions = height if unit == "row" else height * width
        source = permuted(num_positions, PERMUTED_PERCENT[step], seed)
        return _pick(source, size=math.prod(shape) // num_positions)
    if transform == "rotation":
        return _rotation(height, width, channels, ROTATION_DEGREES[step])
    if transform == "defocus-blur":
        return _blur(height, width, defocus_kernel(*DEFOCUS_RADIUS_AND_SIGMA[step]))
    return _noise(transform, severity, rng.fork(seed, transform))


def _pick(source: np.ndarray, size: int) -> _OnChunk:
    """Read every position of `size` values from another position of the same image."""
    index = torch.from_numpy((source[:, None] * size + np.arange(size)).ravel())

    def on_chunk(chunk: Tensor) -> Tensor:
        # By single values, with an expanded index: several times faster than by whole positions.
        return chunk.flatten(1).gather(1, index.expand(len(chunk), -1)).view(chunk.shape)

    return on_chunk


# Permutation


def permuted(num_positions: int, percent: int, seed: int) -> np.ndarray:
    """Where each position reads from when `percent` of them are shuffled among themselves."""
    # This order of draws from the legacy generator is the published one; seed 42 gives its pixels.
    generator = rng.legacy(seed)
    moved = generator.choice(num_positions, num_positions * percent // 100, replace=False)
    source = np.arange(num_positions)
    source[moved] = generator.permutation(moved)
    return source


# Rotation


def _rotation(height: int, width: int, channels: int, degrees: int) -> _OnChunk:
    """Turn counter-clockwise about the pixel (width // 2, height // 2), bilinear, edges replicated.

    On even sizes that pixel is not the middle, so a quarter turn also shifts by one pixel.
    """
    corners = []
    for source, weight in _rotation_corners(height, width, degrees):
        # written out for every channel: twice as fast as a product that has to repeat them
        per_value = torch.from_numpy(weight).float().repeat_interleave(channels)
        corners.append((_pick(source, channels), per_value.view(height, width, channels)))
    if len(corners) == 1:  # a quarter turn only moves pixels
        return corners[0][0]

    def on_chunk(chunk: Tensor) -> Tensor:
        turned = torch.zeros(chunk.shape)
        for pick, weight in corners:
            turned.addcmul_(pick(chunk).float(), weight)
        # Rounded, unlike the other transforms: a turn only moves grey levels, and truncation would
        # darken an image by a level wherever float weights sum to a hair below 1.
        return turned.add_(0.5).to(torch.uint8)

    return on_chunk


def _rotation_corners(height: int, width: int, degrees: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The source pixels of each output pixel and their weights, each (height * width,).

    Four as a rule; a quarter turn reads whole pixels and has but one, of weight 1.
    """
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    right = np.arange(width)[None, :] - width // 2
    down = np.arange(height)[:, None] - height // 2
    # Backwards from output to source; rows count downwards, hence the sign of the sine.
    source_x = (cos * right - sin * down + width // 2).clip(0, width - 1).ravel()
    source_y = (sin * right + cos * down + height // 2).clip(0, height - 1).ravel()
    # or float dust would give a quarter turn four corners, three of them without weight
    source_x, source_y = source_x.round(9), source_y.round(9)
    left, top = np.floor(source_x).astype(np.int64), np.floor(source_y).astype(np.int64)
    x_part, y_part = source_x - left, source_y - top

    corners = []
    for x, x_weight in ((left, 1 - x_part), (np.minimum(left + 1, width - 1), x_part)):
        for y, y_weight in ((top, 1 - y_part), (np.minimum(top + 1, height - 1), y_part)):
            if (weight := x_weight * y_weight).any():
                corners.append((y * width + x, weight))
    return corners


# Defocus blur


def defocus_kernel(radius: float, alias_sigma: float) -> np.ndarray:
    """A disk smoothed by a 3x3 Gaussian, (size, size) with odd size; sums to 1."""
    reach = math.floor(radius) + 1  # the disk, and the one pixel by which smoothing widens it
    offsets = np.arange(-reach, reach + 1)
    in_disk = offsets[:, None] ** 2 + offsets[None, :] ** 2 <= radius**2
    side = math.exp(-1 / (2 * alias_sigma**2))
    gaussian = np.array([side, 1.0, side]) / (1 + 2 * side)
    # Separable, and the disk leaves a border of zeros, so nothing is lost at the ends.
    smooth = sum(np.eye(len(offsets), k=k) * gaussian[k + 1] for k in (-1, 0, 1))
    kernel: np.ndarray = smooth @ (in_disk / in_disk.sum()) @ smooth.T
    return kernel


def _blur(height: int, width: int, kernel: np.ndarray) -> _OnChunk:
    """Correlate every channel with a kernel, the border mirrored without repeating the edge."""
    reach = len(kernel) // 2
    rows, columns = _mirrored(height, reach), _mirrored(width, reach)
    # The border of the kernel is empty but for float dust: what is left out stays far below slack.
    taps = [(y, x, float(kernel[y, x])) for y, x in np.argwhere(kernel > 1e-9)]
    slack = 1e-3  # for float error, or a flat area would lose a grey level to truncation

    def on_chunk(chunk: Tensor) -> Tensor:
        padded = chunk.float().index_select(1, rows).index_select(2, columns)
        blurred = torch.zeros(chunk.shape)
        # A sum of shifted images beats conv2d here: no change of layout, one channel per kernel.
        for y, x, weight in taps:
            blurred.add_(padded[:, y : y + height, x : x + width], alpha=weight)
        return blurred.add_(slack).to(torch.uint8)  # a mean of grey levels needs no clipping

    return on_chunk


def _mirrored(size: int, reach: int) -> Tensor:
    """Which of `size` positions to read at -reach ... size - 1 + reach; any reach, any size."""
    if size == 1:
        return torch.zeros(1 + 2 * reach, dtype=torch.int64)
    period = 2 * (size - 1)
    position = torch.arange(-reach, size + reach) % period
    return torch.minimum(position, period - position)


# Noise
#
# A pixel has 256 levels before and 256 after, so a noise *is* a table of 256 x 256 chances, with
# clipping and truncation included. Drawing from the table (Walker's alias method) takes exactly one
# integer per pixel whatever the noise, so no chunk shifts the draws of another, and is several
# times faster than torch.poisson. Every chance is met to within 2 ** -24.


def noise_chances(transform: str, severity: int) -> np.ndarray:
    """The chance of each level after the noise, by the level before: (256, 256), rows sum to 1.

    With x in [0, 1] the noisy pixel is floor(255 * clip(y, 0, 1)), where y is x + N(0, sigma)
    (gaussian), x + x * N(0, sigma) (speckle) or Poisson(x * rate) / rate (shot).
    """
    before = np.arange(_LEVELS)[:, None]
    after = np.arange(1, _LEVELS)[None, :]
    step = severity - 1
    below: np.ndarray  # the chance to stay under each level 1 ... 255
    if transform == "gaussian-noise":
        below = ndtr((after - before) / (255 * GAUSSIAN_SIGMA[step]))
    elif transform == "speckle-noise":
        # black has no speckle: any tiny spread keeps it at 0 and out of a division by zero
        below = ndtr((after - before) / np.maximum(before * SPECKLE_SIGMA[step], 1e-9))
    elif transform == "shot-noise":
        rate = SHOT_RATE[step]
        most_counts = -(-after * rate // 255) - 1  # the largest with counts / rate * 255 < after
        below = pdtr(most_counts, before * (rate / 255))
    else:
        raise AssertionError(f"no noise is named {transform!r}")
    # The ends take what clipping brings them.
    return np.diff(below, axis=1, prepend=0.0, append=1.0)


@functools.cache
def _alias_table(transform: str, severity: int) -> Tensor:
    """Walker's table of a noise: 256 * keep + alias by level before and column, (256 * 256,).

    A draw picks one of 256 equal columns, and in it the column's own level with chance
    keep / 2 ** 23, else the alias.
    """
    mass = noise_chances(transform, severity) * _LEVELS  # 1 is what a column holds
    keep = np.ones_like(mass)
    alias = np.tile(np.arange(_LEVELS), (_LEVELS, 1))
    every = np.arange(_LEVELS)
    while True:
        poorest, richest = mass.argmin(axis=1), mass.argmax(axis=1)
        # far above rounding error, far below a draw's resolution: a filled column is never reopened
        row = every[mass[every, poorest] < 1 - 1e-10]
        if not len(row):
            break
        poor, rich = poorest[row], richest[row]
        keep[row, poor] = mass[row, poor]
        alias[row, poor] = rich
        mass[row, rich] -= 1 - mass[row, poor]
        mass[row, poor] = 1
    # A full column may lose the last of its 2 ** 23 parts: it is its own alias.
    parts = np.rint(keep * 2**_KEEP_BITS).clip(max=2**_KEEP_BITS - 1)
    return torch.from_numpy((parts * _LEVELS + alias).astype(np.int32).ravel())


def _noise(transform: str, severity: int, generator: torch.Generator) -> _OnChunk:
    """Replace every pixel by a draw from its row of the noise's table."""
    table = _alias_table(transform, severity)

    def on_chunk(chunk: Tensor) -> Tensor:
        draw = torch.empty(chunk.numel(), dtype=torch.int32).random_(generator=generator)
        column = draw.to(torch.uint8)  # the lowest 8 bits, here and in the table
        entry = table.index_select(0, chunk.reshape(-1).int().mul_(_LEVELS).add_(column))
        alias = entry.to(torch.uint8)
        kept = draw < entry.sub_(alias)  # the upper bits alone decide, whatever the column
        # Modulo 256 this picks one of the two; torch.where takes 15 times as long on random masks.
        return alias.add_(column.sub_(alias).mul_(kept)).view(chunk.shape)

    return on_chunk
