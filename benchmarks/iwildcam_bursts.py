"""How near two frames of a camera must be to count as one burst, from pixels alone.

    python benchmarks/iwildcam_bursts.py

Prints the threshold that parts the distances of frames to the nearest one of their camera best into near
and far ones (Otsu's criterion on logarithms), and, for a few thresholds, how many frames and how many
pairs of frames of different cameras lie below. Accuracy plays no part.
"""

from __future__ import annotations

import re

import numpy as np
import torch

from driftwise.datasets import library
from driftwise.datasets.readers.folders import list_folder

FRAMES = 200
"""frames that are compared with all others, drawn at random"""


def otsu(values: np.ndarray) -> float:
    """The value that splits the others into two groups with the largest variance between them."""
    ordered = np.sort(values)
    count = np.arange(1, len(ordered))
    sums = np.cumsum(ordered)[:-1]
    below, above = sums / count, (ordered.sum() - sums) / (len(ordered) - count)
    return float(ordered[np.argmax(count * (len(ordered) - count) * (below - above) ** 2)])


def main() -> None:
    data = library.load("iwildcam-cd")
    path = library.find("iwildcam")
    assert path is not None
    names = [file.name for file in list_folder(path, "domain/class").files]
    cameras = np.array([int(re.findall(r"\d+", name)[0]) for name in names])
    frames = torch.from_numpy(data.images.mean(axis=3).reshape(len(cameras), -1).astype(np.float32))
    nearest, strangers = [], []
    for one in np.random.default_rng(0).permutation(len(cameras))[:FRAMES]:
        distances = (frames - frames[one]).abs().mean(dim=1).numpy()
        same = cameras == cameras[one]
        strangers.append(distances[~same])
        same[one] = False
        if same.any():
            nearest.append(distances[same].min())
    near, far = np.array(nearest), np.concatenate(strangers)
    print(f"best threshold: {np.exp(otsu(np.log(near + 0.1))) - 0.1:.1f} grey levels")
    for threshold in (2, 4, 6, 8):
        print(
            f"below {threshold}: {(near < threshold).mean():.0%} of frames have a near one,"
            f" {(far < threshold).mean():.2%} of pairs of different cameras"
        )


if __name__ == "__main__":
    main()
