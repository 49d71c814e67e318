"""Try every encoder that `encoders.load` knows, and print what came of it.

Encoders of libraries that the tests do not install (timm, open_clip, sentence-transformers) and those
whose weights are not at hand run here. `--no-weights` tries models of timm and open_clip as they are
drawn, without their weights. `--stand-ins` defines the two operators of torchvision that its wheels
miss beside a CPU build of torch, so that timm and open_clip can be imported there.

    python benchmarks/try_encoders.py --no-weights --stand-ins
"""

from __future__ import annotations

import argparse
import tempfile
import time

import numpy as np
import torch

from driftwise.encoders import EmbeddingCache, load
from driftwise.errors import UserError
from driftwise.models.inputs import to_input

TEXTS = np.array(
    [
        "a cat sits on the mat",
        "a kitten lies on the rug",
        "the central bank raised interest rates",
        "",
    ],
    dtype=object,
)
IMAGES = ("efficientnet", "resnet18-imagenet", "mobilenetv2", "random")
LIBRARIES = (
    "timm:resnet18",
    "timm:vit_tiny_patch16_224",
    "timm:convnext_atto",
    "open-clip:RN50/openai",
    "open-clip:ViT-B-32/laion2b_s34b_b79k",
)


def main() -> None:
    arguments = _arguments()
    if arguments.stand_ins:
        _define_operators()
    images = np.random.default_rng(0).integers(0, 256, (64, 48, 64, 3), dtype=np.uint8)
    for name in IMAGES:
        report(name, {}, images)
    for name in LIBRARIES:
        report(name, {"pretrained": not arguments.no_weights}, images)
    report("sentence-transformers:all-MiniLM-L6-v2", {}, TEXTS)
    try:
        embedded = load("sentence-transformers:all-MiniLM-L6-v2").encode(TEXTS).features  # type: ignore[arg-type]
    except UserError:
        return
    near, far = (torch.cosine_similarity(embedded[0], embedded[k], dim=0).item() for k in (1, 2))
    print(f"cosine of a cat and a kitten {near:.2f}, of a cat and interest rates {far:.2f}")


def report(name: str, options: dict[str, bool], samples: np.ndarray) -> None:
    """Load, encode, look up, load again; or the line that says why not."""
    begin = time.perf_counter()
    try:
        encoder = load(name, **options)
    except UserError as error:
        print(f"{name}: NOT TRIED ({time.perf_counter() - begin:.1f} s): {error}")
        return
    loading = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        features = EmbeddingCache(encoder, folder).features(samples)
        rate = len(samples) / (time.perf_counter() - begin)
        begin = time.perf_counter()
        again = EmbeddingCache(encoder, folder).features(samples)
        cached = len(samples) / (time.perf_counter() - begin)
        alone = EmbeddingCache(encoder, f"{folder}/alone").features(samples[1:2])
    assert torch.equal(features, again)
    assert torch.equal(features[1:2], alone), "depends on the company it is in"
    assert features.isfinite().all()
    same = getattr(load(name, **options), "identity", None) == getattr(encoder, "identity", None)
    if isinstance(samples, np.ndarray) and samples.ndim == 4:
        grey = encoder.encode(torch.from_numpy(samples[:2, :, :, :1].copy()))
        assert grey.features.shape[1] == features.shape[1]
        assert to_input(torch.from_numpy(samples[:1].copy())).max() <= 1
    print(
        f"{name}: {features.shape[1]} features, loaded in {loading:.1f} s, {rate:.0f} samples/s,"
        f" from the cache {cached:.0f} samples/s, same identity when loaded again: {same},"
        f" {encoder.name}"
    )


def _define_operators() -> None:
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-weights", action="store_true", help="do not look for weights")
    parser.add_argument("--stand-ins", action="store_true", help="define torchvision's operators")
    return parser.parse_args()


if __name__ == "__main__":
    main()
