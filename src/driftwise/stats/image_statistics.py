"""Plain statistics of images, in which a person looks for the cause of a drift."""

from __future__ import annotations

import torch
from torch import Tensor

NAMES = ("brightness", "contrast", "sharpness", "saturation", "warmth")
"""In the order of the columns; grey images have the first three."""

_LUMA = torch.tensor([0.299, 0.587, 0.114])
_CHUNK = 256


def image_statistics(images: Tensor) -> Tensor:
    """Statistics of uint8 images (n, h, w, 1 or 3), float32 (n, 3 or 5), columns as in `NAMES`.

    Brightness: mean of the grey values, 0 to 1. Contrast: their standard deviation. Sharpness: the
    logarithm of the mean size of the Laplacian, by the contrast. Saturation: mean difference between
    the largest and the smallest channel. Warmth: mean red less mean blue.

    >>> grey = torch.full((1, 4, 4, 1), 51, dtype=torch.uint8)
    >>> [round(value, 3) for value in image_statistics(grey)[0, :2].tolist()]
    [0.2, 0.0]
    """
    return torch.cat([_of_chunk(chunk) for chunk in torch.split(images, _CHUNK)])


def _of_chunk(images: Tensor) -> Tensor:
    pixels = images.float() / 255
    grey = pixels[..., 0] if pixels.shape[-1] == 1 else pixels @ _LUMA
    columns = [grey.mean(dim=(1, 2)), grey.std(dim=(1, 2), correction=0), _sharpness(grey)]
    if pixels.shape[-1] == 3:
        columns.append((pixels.amax(dim=3) - pixels.amin(dim=3)).mean(dim=(1, 2)))
        columns.append((pixels[..., 0] - pixels[..., 2]).mean(dim=(1, 2)))
    return torch.stack(columns, dim=1)


def _sharpness(grey: Tensor) -> Tensor:
    if min(grey.shape[1:]) < 3:
        return torch.zeros(len(grey))
    centre = grey[:, 1:-1, 1:-1]
    around = grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:]
    contrast = grey.std(dim=(1, 2), correction=0)
    return ((4 * centre - around).abs().mean(dim=(1, 2)) / (contrast + 1e-3) + 1e-3).log()
