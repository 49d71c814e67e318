"""Features from the disk against features computed: images in a second, and the memory of looking up.

OMP_NUM_THREADS=1 python benchmarks/bench_embedding_cache.py
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time

import numpy as np
import torch

from driftwise.encoders import EmbeddingCache, Encoder, load
from driftwise.types import Encoding


class Quick:
    """1,280 numbers of an image, so that the cache alone is measured."""

    fixed, name, identity, networks = True, "quick", "quick", ()

    def encode(self, images: torch.Tensor) -> Encoding:
        """The first bytes of each image."""
        numbers = images.flatten(1)[:, :1280].float()
        return Encoding(logits=numbers, features=numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--encoder", default="efficientnet")
    parser.add_argument("--encoded", type=int, default=512, help="images that are encoded")
    arguments = parser.parse_args()
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (arguments.images, 64, 64, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        quick: Encoder = Quick()  # type: ignore[assignment]
        filled = rate(lambda: EmbeddingCache(quick, folder).features(images), len(images))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        opened = EmbeddingCache(quick, folder)
        first = rate(lambda: opened.features(images), len(images))
        again = rate(lambda: opened.features(images), len(images))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    encoder = load(arguments.encoder)
    some = torch.from_numpy(images[: arguments.encoded])
    encoded = rate(lambda: encoder.encode(some), len(some))
    print(
        f"{len(images)} images of 64x64x3, 1,280 features each, {torch.get_num_threads()} thread(s)"
    )
    print(f"write            {filled:10,.0f} images/s (the encoder costs next to nothing)")
    print(f"look up, opened  {first:10,.0f} images/s")
    print(f"look up, again   {again:10,.0f} images/s, {grown:.0f} MiB more memory at most")
    print(
        f"{arguments.encoder:16s} {encoded:10,.0f} images/s: {again / encoded:,.0f} times as long"
    )


def rate(work: object, count: int) -> float:
    begin = time.perf_counter()
    work()  # type: ignore[operator]
    return count / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
