"""How fast a set drifts: batched torch against the per-image code one would otherwise write.

    python benchmarks/bench_transforms.py

The best of many repeats in which both sides take turns: what else the machine does only ever adds
time, and adds most where threads wait for one another. The per-image side is what the transforms'
published form does for each image it is given:

- permutation: makes its `RandomState(42)`, draws and moves the pixels, anew for every image
- rotation: OpenCV's warpAffine, bilinear, edges replicated
- defocus blur: builds the disk kernel (17x17, mostly empty) and filters each channel with it
- noises: numpy draws on [0, 1] floats, then clips and truncates

Without OpenCV in the running interpreter scipy stands in for it, and rotation has no goal.
"""

from __future__ import annotations

import importlib
import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.ndimage
import torch

from driftwise.streams import transforms

NUM_IMAGES = 10_000
NUM_SLOW_IMAGES = 500
NUM_REPEATS = 15
NUM_THREADS = 2
DRIFTS = (
    ("permutation", 5),
    ("rotation", 1),  # 45 degrees, which mixes pixels
    ("rotation", 5),  # 270 degrees, which moves them
    ("defocus-blur", 5),
    ("gaussian-noise", 5),
    ("speckle-noise", 5),
    ("shot-noise", 5),
)
"""transform and severity"""
GOALS = {
    "permutation": 20.0,
    "rotation": 1.0,
    "defocus-blur": 5.0,
    "gaussian-noise": 4.0,
    "speckle-noise": 4.0,
}
"""times faster than one by one; shot noise is only reported"""

OneImage = Callable[[np.ndarray], np.ndarray]


def import_opencv() -> Any:
    try:
        return importlib.import_module("cv2")
    except ImportError:
        return None


cv2 = import_opencv()


def permute_one(image: np.ndarray, severity: int) -> np.ndarray:
    rs = np.random.RandomState(42)
    x = image.reshape(-1, image.shape[2]).copy()
    s = rs.choice(len(x), len(x) * transforms.PERMUTED_PERCENT[severity - 1] // 100, replace=False)
    x[s] = x[rs.permutation(s)]
    return x.reshape(image.shape)


def rotate_one(image: np.ndarray, severity: int) -> np.ndarray:
    height, width, channels = image.shape
    degrees = transforms.ROTATION_DEGREES[severity - 1]
    if cv2 is not None:
        turn = cv2.getRotationMatrix2D((width // 2, height // 2), degrees, 1.0)
        turned: np.ndarray = cv2.warpAffine(
            image, turn, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
        )
        return turned
    angle = math.radians(degrees)
    backwards = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    centre = np.array([height // 2, width // 2])
    planes = [
        scipy.ndimage.affine_transform(
            image[..., c], backwards, centre - backwards @ centre, order=1, mode="nearest"
        )
        for c in range(channels)
    ]
    return np.stack(planes, axis=-1)


def blur_one(image: np.ndarray, severity: int) -> np.ndarray:
    radius, alias_sigma = transforms.DEFOCUS_RADIUS_AND_SIGMA[severity - 1]
    x, y = np.meshgrid(np.arange(-8, 9), np.arange(-8, 9))
    disk = np.array(x**2 + y**2 <= radius**2, dtype=np.float32)
    disk /= disk.sum()
    planes = np.moveaxis(image / 255, -1, 0)
    if cv2 is not None:
        kernel = cv2.GaussianBlur(disk, ksize=(3, 3), sigmaX=alias_sigma)
        blurred = [cv2.filter2D(plane, -1, kernel) for plane in planes]
    else:
        kernel = scipy.ndimage.gaussian_filter(disk, alias_sigma, radius=1)
        blurred = [scipy.ndimage.correlate(plane, kernel, mode="mirror") for plane in planes]
    return to_uint8(np.stack(blurred, axis=-1))


def noisy_one(transform: str, severity: int) -> OneImage:
    rs = np.random.RandomState(0)
    step = severity - 1

    def gaussian(image: np.ndarray) -> np.ndarray:
        x = image / 255
        return to_uint8(x + rs.normal(size=x.shape, scale=transforms.GAUSSIAN_SIGMA[step]))

    def shot(image: np.ndarray) -> np.ndarray:
        rate = transforms.SHOT_RATE[step]
        return to_uint8(rs.poisson(image / 255 * rate) / rate)

    def speckle(image: np.ndarray) -> np.ndarray:
        x = image / 255
        return to_uint8(x + x * rs.normal(size=x.shape, scale=transforms.SPECKLE_SIGMA[step]))

    return {"gaussian-noise": gaussian, "shot-noise": shot, "speckle-noise": speckle}[transform]


def to_uint8(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(x, 0, 1) * 255, dtype=np.uint8)


def one_by_one(transform: str, severity: int) -> OneImage:
    if transform.endswith("noise"):
        return noisy_one(transform, severity)
    one = {"permutation": permute_one, "rotation": rotate_one, "defocus-blur": blur_one}[transform]
    return lambda image: one(image, severity)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(transform: str, severity: int, images: torch.Tensor) -> tuple[float, float]:
    """Microseconds per image at best, batched and one by one."""
    one = one_by_one(transform, severity)
    sample = images[:NUM_SLOW_IMAGES].numpy()
    fast, slow = [], []
    for _ in range(NUM_REPEATS):
        fast.append(seconds(lambda: transforms.apply(images, transform, severity, seed=42)))
        slow.append(seconds(lambda: [one(image) for image in sample]))
    return min(fast) / NUM_IMAGES * 1e6, min(slow) / NUM_SLOW_IMAGES * 1e6


def verdict(transform: str, ratio: float) -> str:
    goal = GOALS.get(transform)
    if goal is None or (transform == "rotation" and cv2 is None):
        return ""
    return f"at least {goal:g}x: {'reached' if ratio >= goal else 'MISSED'}"


def main() -> None:
    torch.set_num_threads(NUM_THREADS)
    by = "scipy and numpy (no OpenCV here)"
    if cv2 is not None:
        cv2.setNumThreads(NUM_THREADS)
        by = f"OpenCV {cv2.__version__} and numpy"
    images = torch.randint(
        256, (NUM_IMAGES, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    load, cores = os.getloadavg()[0], os.cpu_count()
    print(f"{NUM_IMAGES:,} images of 32x32x3, {NUM_THREADS} threads")
    print(f"load before: {load:.1f} on {cores} cores (threads need idle ones)")
    print(f"one by one: {by}")
    print(f"{'best us/image':16}{'batched':>9}{'one by one':>12}{'faster':>9}   goal")
    for transform, severity in DRIFTS:
        batched, single = compare(transform, severity, images)
        ratio = single / batched
        line = f"{transform:15}{severity}{batched:9.1f}{single:12.1f}{ratio:8.1f}x"
        print(f"{line}   {verdict(transform, ratio)}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
