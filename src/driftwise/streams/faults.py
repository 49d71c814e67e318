"""Broken sensors and careless annotators: samples and labels that are wrong, not drifted.

Images are uint8 (samples, height, width, channels), vectors floats (samples, features).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError, unknown_name

FAULTS = ("black", "stuck", "shifted")
"""a dead sensor (all values 0); one that repeats a reading; one that lost its place: the lines of an
image, or the values of a vector, arrive at other positions, for each sample others"""


def break_sensor(samples: Tensor, fault: str, *, seed: int) -> Tensor:
    """A broken copy of samples, images or vectors; equal arguments give equal values.

    >>> break_sensor(torch.arange(4.0).view(2, 2), "stuck", seed=0).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    if fault not in FAULTS:
        raise unknown_name("fault", fault, FAULTS)
    if samples.ndim not in (2, 4):
        raise UserError(
            "a sensor is broken for images (samples, height, width, channels) or vectors (samples,"
            f" features); got {tuple(samples.shape)}"
        )
    if fault == "black" or not len(samples):
        return torch.zeros_like(samples)
    if fault == "stuck":
        return samples[:1].expand_as(samples).clone()
    # Lines of an image, or a vector: what is rolled lies along the last axis.
    lines = samples.movedim(2, -1) if samples.ndim == 4 else samples[:, None]
    length = lines.shape[-1]
    num_lines = lines.shape[1]
    draw = rng.fork(seed, "broken sensor")
    offsets = torch.randint(0, length, (len(lines), num_lines), generator=draw)
    places = (torch.arange(length) + offsets[..., None]) % length
    if samples.ndim == 2:
        return lines.gather(2, places)[:, 0]
    rolled = lines.gather(3, places[:, :, None].expand(lines.shape))
    return rolled.movedim(-1, 2).contiguous()


def careless_labels(
    labels: np.ndarray, wrong: float, classes: np.ndarray, *, seed: int
) -> np.ndarray:
    """The answers of an annotator who is wrong so often: another class at random instead."""
    if not 0 <= wrong <= 1:
        raise UserError(f"the fraction of wrong labels must be 0 to 1; got {wrong}")
    if len(classes) < 2:
        raise UserError(f"a label can only be wrong among two classes or more; got {classes}")
    draw = np.random.default_rng(rng.derive(seed, "careless labels"))
    others = np.stack([np.roll(classes, -shift) for shift in range(1, len(classes))])
    places = {int(label): place for place, label in enumerate(classes)}
    columns = np.array([places[int(label)] for label in labels], dtype=np.int64)
    answers = labels.copy()
    is_wrong = draw.random(len(labels)) < wrong
    rows = draw.integers(0, len(others), len(labels))
    answers[is_wrong] = others[rows, columns][is_wrong]
    return answers
