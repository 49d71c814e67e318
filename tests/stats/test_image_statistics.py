from __future__ import annotations

import torch

from driftwise.stats.image_statistics import NAMES, image_statistics

DRAW = torch.Generator().manual_seed(0)
IMAGES = torch.randint(40, 120, (300, 8, 8, 3), generator=DRAW, dtype=torch.uint8)


def column(name: str, images: torch.Tensor) -> torch.Tensor:
    return image_statistics(images)[:, NAMES.index(name)]


def test_each_statistic_moves_with_what_it_is_named_after() -> None:
    assert (column("brightness", IMAGES * 2) > column("brightness", IMAGES)).all()
    assert (column("contrast", IMAGES * 2) > column("contrast", IMAGES)).all()
    grey = IMAGES.float().mean(dim=3, keepdim=True).to(torch.uint8).expand_as(IMAGES)
    assert (column("saturation", grey) == 0).all()
    warm = IMAGES.clone()
    warm[..., 0] += 50
    assert (column("warmth", warm) > column("warmth", IMAGES)).all()
    wide = IMAGES.float().permute(0, 3, 1, 2)
    blurred = torch.nn.functional.avg_pool2d(wide, 3, stride=1, padding=1)
    pixels = blurred.permute(0, 2, 3, 1).to(torch.uint8)
    assert (column("sharpness", pixels) < column("sharpness", IMAGES)).all()


def test_darker_images_are_not_called_blurred() -> None:
    change = column("sharpness", IMAGES // 2) - column("sharpness", IMAGES)
    assert change.abs().max() < 0.1


def test_grey_and_tiny_images_have_the_first_three_and_no_nan() -> None:
    for side in (1, 2, 5):
        found = image_statistics(torch.zeros(2, side, side, 1, dtype=torch.uint8))
        assert found.shape == (2, 3)
        assert found.isfinite().all()
