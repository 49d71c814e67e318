"""How fast a set drifts: batched torch against one picture at a time in numpy and scipy.

python benchmarks/bench_transforms.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import scipy.ndimage
import torch

from recollect.streams import transforms

NUM_IMAGES = 10_000
NUM_SLOW_IMAGES = 500
NUM_REPEATS = 3
NUM_THREADS = 2
SEVERITY = 5

OneImage = Callable[[np.ndarray], np.ndarray]


def permute_one(image: np.ndarray) -> np.ndarray:
    pixels = image.reshape(-1, image.shape[2])
    order = drawn_order(len(pixels))
    return np.take(pixels, order, axis=0).reshape(image.shape)


@cache
def drawn_order(num_pixels: int) -> np.ndarray:
    rs = np.random.RandomState(42)
    moved = rs.choice(num_pixels, num_pixels, replace=False)
    order = np.arange(num_pixels)
    order[moved] = rs.permutation(moved)
    return order


def rotate_one(image: np.ndarray) -> np.ndarray:
    height, width, channels = image.shape
    angle = math.radians(transforms.ROTATION_DEGREES[SEVERITY - 1])
    backwards = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    centre = np.array([height // 2, width // 2])
    turned = [
        scipy.ndimage.affine_transform(
            image[..., c], backwards, centre - backwards @ centre, order=1, mode="nearest"
        )
        for c in range(channels)
    ]
    return np.stack(turned, axis=-1)


def blur_one(image: np.ndarray) -> np.ndarray:
    kernel = transforms.defocus_kernel(*transforms.DEFOCUS_RADIUS_AND_SIGMA[SEVERITY - 1])
    x = image / 255
    channels = [
        scipy.ndimage.correlate(x[..., c], kernel, mode="mirror") for c in range(image.shape[2])
    ]
    return to_uint8(np.stack(channels, axis=-1))


def noisy_one(transform: str) -> OneImage:
    rs = np.random.RandomState(0)
    step = SEVERITY - 1

    def gaussian(image: np.ndarray) -> np.ndarray:
        return to_uint8(image / 255 + rs.normal(size=image.shape) * transforms.GAUSSIAN_SIGMA[step])

    def shot(image: np.ndarray) -> np.ndarray:
        rate = transforms.SHOT_RATE[step]
        return to_uint8(rs.poisson(image / 255 * rate) / rate)

    def speckle(image: np.ndarray) -> np.ndarray:
        x = image / 255
        return to_uint8(x + x * rs.normal(size=image.shape) * transforms.SPECKLE_SIGMA[step])

    return {"gaussian-noise": gaussian, "shot-noise": shot, "speckle-noise": speckle}[transform]


def to_uint8(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(x, 0, 1) * 255, dtype=np.uint8)


def one_by_one(transform: str) -> OneImage:
    if transform.endswith("noise"):
        return noisy_one(transform)
    return {
        "permutation": permute_one,
        "rotation": rotate_one,
        "defocus-blur": blur_one,
    }[transform]


def apply_one_by_one(sample: np.ndarray, transform: str) -> list[np.ndarray]:
    one = one_by_one(transform)
    return [one(image) for image in sample]


def best_seconds(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(NUM_REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    torch.set_num_threads(NUM_THREADS)
    images = torch.randint(
        256, (NUM_IMAGES, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    sample = images[:NUM_SLOW_IMAGES].numpy()
    print(f"{NUM_IMAGES} images of 32x32x3, severity {SEVERITY}, {NUM_THREADS} threads")
    print(f"{'':16}{'batched':>12}{'one by one':>12}   (ms per 1000 images)")
    for transform in transforms.TRANSFORMS:
        if transform == "identity":
            continue
        fast = best_seconds(partial(transforms.apply, images, transform, SEVERITY, seed=42))
        slow = best_seconds(partial(apply_one_by_one, sample, transform))
        fast_ms, slow_ms = fast / NUM_IMAGES * 1e6, slow / NUM_SLOW_IMAGES * 1e6
        print(f"{transform:16}{fast_ms:12.1f}{slow_ms:12.1f}{slow_ms / fast_ms:10.1f}x")


if __name__ == "__main__":
    main()
