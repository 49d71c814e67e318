"""Photos of camera traps: species in the view of other cameras, frames of one burst kept together."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

from driftwise.datasets.readers.decode import decode_all
from driftwise.datasets.readers.folders import list_folder, read_folder
from driftwise.datasets.reading import Allocate, StageProgress, empty, silent
from driftwise.errors import UserError
from driftwise.types import Dataset

SIDE = 64
SPECIES = 10
CAMERA_GROUPS = ("cameras-a", "cameras-b", "cameras-c", "cameras-d")
_PER_SPECIES_AND_CAMERA = 28
"""frames of a species that one camera gives: some cameras have thousands"""
_SAME_BURST = 4.0
"""grey levels, on average over the pixels, below which two frames of a camera are of one burst"""


def read_iwildcam(
    path: Path, *, allocate: Allocate = empty, progress: StageProgress = silent
) -> Dataset:
    """Camera-trap photos at 64x64, four disjoint groups of cameras as domains.

    Either folders of a sample, `cameras-a/species/camera004-13805.jpg`, or the official release of
    WILDS, `metadata.csv` beside the folder `train`. Official sequences are the groups of samples
    that stay together. A sample without them has bursts guessed from the pixels: frames of a
    camera that hardly differ, and those that hardly differ from these, are one burst.
    """
    if (path / "metadata.csv").is_file():
        return _official(path, allocate, progress)
    dataset = read_folder(
        path, size=SIDE, channels=3, layout="domain/class", allocate=allocate, progress=progress
    )
    cameras = []
    for file in list_folder(path, "domain/class").files:
        if not (found := re.match(r"camera(\d+)-", file.name)):
            raise UserError(f"{file}: expected a name such as camera004-13805.jpg")
        cameras.append(int(found[1]))
    groups = bursts(dataset.images, np.array(cameras))
    return Dataset(**{**vars(dataset), "groups": groups})


def bursts(images: np.ndarray, cameras: np.ndarray) -> np.ndarray:
    """The burst of each frame, int64 (samples,); images are uint8 (samples, height, width, 3).

    >>> frames = np.array([0, 1, 90, 91, 0], dtype=np.uint8).repeat(12).reshape(5, 2, 2, 3)
    >>> bursts(frames, np.array([1, 1, 1, 1, 2])).tolist()
    [0, 0, 1, 1, 2]
    """
    found = np.full(len(images), -1, dtype=np.int64)
    count = 0
    for camera in np.unique(cameras):
        mine = np.flatnonzero(cameras == camera)
        frames = images[mine].mean(axis=3).reshape(len(mine), -1).astype(np.float32)
        for first in range(len(mine)):
            if found[mine[first]] >= 0:
                continue
            waiting = [first]
            while waiting:
                one = waiting.pop()
                found[mine[one]] = count
                near = np.abs(frames - frames[one]).mean(axis=1) < _SAME_BURST
                new = np.flatnonzero(near & (found[mine] < 0))
                found[mine[new]] = count
                waiting += new.tolist()
            count += 1
    return found


def _official(path: Path, allocate: Allocate, progress: StageProgress) -> Dataset:
    """The ten species with the most frames, "empty" left out, at most 28 frames of one camera.

    Camera number i belongs to the group i mod 4.
    """
    needed = ("filename", "y", "location_remapped", "sequence_remapped")
    with (path / "metadata.csv").open(newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file)
        if missing := [name for name in needed if name not in (lines.fieldnames or ())]:
            raise UserError(f"{file.name}: has no column {missing[0]!r}; fetch it again")
        frames = [tuple(line[name] for name in needed) for line in lines]
    files = [path / "train" / str(frame[0]) for frame in frames]
    labels, cameras, sequences = np.array([frame[1:] for frame in frames], dtype=np.int64).T
    animal = labels > 0  # 0 is "empty"
    counts = np.bincount(labels[animal])
    species = np.sort(np.argsort(-counts, kind="stable")[: min(SPECIES, np.count_nonzero(counts))])
    # The first frames of a species at a camera, in the order of the table.
    cell = np.where(animal & np.isin(labels, species), labels * (cameras.max() + 1) + cameras, -1)
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], cell[order])
    kept = np.sort(order[(np.arange(len(cell)) - starts < _PER_SPECIES_AND_CAMERA)])
    kept = kept[cell[kept] >= 0]
    images = allocate((len(kept), SIDE, SIDE, 3))
    decode_all([files[place] for place in kept], images, fit="crop", progress=progress)
    return Dataset(
        images=images,
        labels=np.searchsorted(species, labels[kept]),
        class_names=tuple(_species_name(path, int(number)) for number in species),
        domains=cameras[kept] % len(CAMERA_GROUPS),
        domain_names=CAMERA_GROUPS,
        groups=sequences[kept],
    )


def _species_name(path: Path, number: int) -> str:
    """The name in `categories.csv`, or the number where that file is missing."""
    table = path / "categories.csv"
    if table.is_file():
        with table.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                if line.get("y") == str(number) and line.get("name"):
                    return str(line["name"])
    return f"species-{number:03}"
