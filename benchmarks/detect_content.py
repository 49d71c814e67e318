"""Other content among a class's own: elephants among the dogs of PACS' photographs.

    python benchmarks/detect_content.py [--splits 20]

Half of the dogs are the reference, the other half the current side, with 40 elephants among them or
without. By encoder: in how many random splits `DriftDetector` calls the class drifted, at its
defaults, and how long encoding takes. Images are brought to 96 x 96 first.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from driftwise.datasets.library import find
from driftwise.datasets.readers.folders import read_folder
from driftwise.detect import EncoderContext
from driftwise.detect.standalone import DriftDetector
from driftwise.encoders.base import no_learner
from driftwise.encoders.encoding_cache import Cached
from driftwise.encoders.loading import maker_of
from driftwise.errors import UserError

SIZE, NUM_ELEPHANTS = 96, 40


def main() -> None:
    """Print a line for each encoder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--splits", type=int, default=20)
    splits = parser.parse_args().splits
    pacs = find("pacs")
    if pacs is None:
        raise SystemExit("PACS was not found; see driftwise data fetch pacs")
    photos = read_folder(pacs / "photo", size=SIZE, channels=3, layout="class")
    dogs, elephants = (
        photos.images[photos.labels == photos.class_names.index(name)]
        for name in ("dog", "elephant")
    )
    context = EncoderContext(learner=no_learner, image_shape=dogs.shape[1:], seed=0)
    for name in ("random", "efficientnet", "resnet18-imagenet"):
        try:
            encoder = Cached(maker_of(name)(context))
        except UserError as error:
            print(f"{name}: {error}")
            continue
        begin = time.process_time()
        encoder.encode(torch.from_numpy(np.concatenate([dogs, elephants])))
        each = (time.process_time() - begin) / (len(dogs) + len(elephants))
        found = {"among": 0, "none": 0}
        for split in range(splits):
            draw = np.random.default_rng(split)
            mixed = draw.permutation(dogs)
            half = len(mixed) // 2
            strangers = draw.permutation(elephants)[:NUM_ELEPHANTS]
            sides = {"none": mixed[half:], "among": np.concatenate([mixed[half:], strangers])}
            detector = DriftDetector(encoder=encoder, seed=split).fit(labelled(mixed[:half]))
            for kind, current in sides.items():
                found[kind] += detector.check(labelled(current)).drifted
        print(
            f"{name}: drifted in {found['among']} of {splits} splits with elephants, in"
            f" {found['none']} without; {1000 * each:.1f} ms of processor time an image"
        )


def labelled(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All of one class."""
    return images, np.zeros(len(images), dtype=np.int64)


if __name__ == "__main__":
    main()
