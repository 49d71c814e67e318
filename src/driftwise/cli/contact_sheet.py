"""A contact sheet of a data set: what each transform makes of a few classes, and how domains differ."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from driftwise.cli.tile_page import Block, Group, draw
from driftwise.errors import UserError
from driftwise.files import replacing, writing
from driftwise.streams.transforms import SEVERITIES, TRANSFORMS, apply
from driftwise.types import Dataset

TILE = 72
"""Pixels that the longer side of an image takes, roughly: small ones grow by a whole factor."""
PER_BLOCK = 3
"""Transforms side by side; six of them at five severities would make a sheet too wide to read."""
MAX_PER_DOMAIN = 4
"""Images of one class in one domain."""
MAX_ACROSS = 16
"""Images across all domains; of more domains than that some are taken at even steps."""

_BLANK = 235
"""grey where a domain has no image of a class"""


def contact_sheet(dataset: Dataset, *, classes: int = 10, seed: int = 0, out: Path) -> Path:
    """Draw a PNG of up to that many classes under every transform and severity, and by domain.

    Of more classes some are taken at even steps. `seed` draws the noise and the permutation.
    """
    if out.suffix.lower() != ".png":
        raise UserError(f"a contact sheet is a .png file; got {out}")
    if classes < 1:
        raise UserError(f"a contact sheet needs at least one class; got {classes}")
    chosen = _spread(np.unique(dataset.labels), classes)
    blocks = [*_domain_blocks(dataset, chosen), *_transform_blocks(dataset, chosen, seed)]
    figure = draw(blocks)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as file, warnings.catch_warnings():
        # A class name in a script that the font lacks is drawn as boxes; that is not worth a line.
        warnings.filterwarnings("ignore", message="Glyph")
        # Without the version of matplotlib equal images are equal files.
        figure.savefig(file, format="png", dpi="figure", metadata={"Software": None})
    return out


def _spread(values: np.ndarray, count: int) -> np.ndarray:
    """Up to `count` of the values at even steps, the first and the last among them."""
    if len(values) <= count:
        return values
    picked: np.ndarray = values[np.linspace(0, len(values) - 1, count).round().astype(int)]
    return picked


def _transform_blocks(dataset: Dataset, chosen: np.ndarray, seed: int) -> Iterator[Block]:
    """The first image of each class as it is and under every transform."""
    samples = [int(np.argmax(dataset.labels == label)) for label in chosen]
    originals = torch.from_numpy(dataset.images[samples])
    original = Group(heading="original", captions=("",), columns=(tiles_of(originals.numpy()),))
    transforms = [name for name in TRANSFORMS if name != "identity"]
    for start in range(0, len(transforms), PER_BLOCK):
        groups = [
            Group(
                heading=name,
                captions=tuple(map(str, SEVERITIES)),
                columns=tuple(
                    tiles_of(apply(originals, name, severity, seed=seed).numpy())
                    for severity in SEVERITIES
                ),
            )
            for name in transforms[start : start + PER_BLOCK]
        ]
        yield Block(
            title="Transforms" if start == 0 else "",
            captions_mean="severity",
            row_names=tuple(dataset.class_names[label] for label in chosen),
            groups=(original, *groups),
        )


def _domain_blocks(dataset: Dataset, chosen: np.ndarray) -> Iterator[Block]:
    """Some images of each class in each domain; nothing for a data set without domains."""
    if dataset.domains is None:
        return
    shown = _spread(np.arange(len(dataset.domain_names)), MAX_ACROSS)
    columns_each = min(MAX_PER_DOMAIN, MAX_ACROSS // len(shown))
    groups = []
    for domain in shown:
        name = dataset.domain_names[domain]
        tiles = [_examples(dataset, label, domain, columns_each) for label in chosen]
        columns = tuple(np.stack([row[k] for row in tiles]) for k in range(columns_each))
        groups.append(Group(heading=name, captions=("",) * columns_each, columns=columns))
    yield Block(
        title="Domains",
        row_names=tuple(dataset.class_names[label] for label in chosen),
        groups=tuple(groups),
    )


def _examples(dataset: Dataset, label: int, domain: int, count: int) -> np.ndarray:
    """Tiles of one class in one domain, blank ones where there are too few images."""
    assert dataset.domains is not None
    mine = (dataset.labels == label) & (dataset.domains == domain)
    samples = _spread(np.flatnonzero(mine), count)
    shape = tiles_of(dataset.images[:1]).shape[1:]
    tiles = np.full((count, *shape), _BLANK, dtype=np.uint8)
    if len(samples):
        tiles[: len(samples)] = tiles_of(dataset.images[samples])
    return tiles


def tiles_of(images: np.ndarray, longer_side: int = TILE) -> np.ndarray:
    """Images at about the size they are shown in, always in colour."""
    height, width = images.shape[1:3]
    side = max(height, width)
    coloured = np.broadcast_to(images, (*images.shape[:3], 3))
    if side <= longer_side:
        factor = max(1, round(longer_side / side))
        # Pixels are repeated, not smoothed: what a transform does to them must stay visible.
        return coloured.repeat(factor, axis=1).repeat(factor, axis=2)
    size = (max(1, round(width * longer_side / side)), max(1, round(height * longer_side / side)))
    shrunk = [Image.fromarray(image).resize(size, Image.Resampling.BOX) for image in coloured]
    return np.stack([np.asarray(image) for image in shrunk])
