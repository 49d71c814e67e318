"""Which data a run was made with, so that other data are not taken for them."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from driftwise.types import Dataset

_PREFIX = "sha256:"
"""How an identity begins that covers everything."""
_SAMPLES = 1000
"""Images that the identities of earlier versions covered; all labels were."""
_CHUNK_BYTES = 1 << 24


def identity_of(dataset: Dataset, images_sha256: str | None = None) -> str:
    """A digest of everything: names, shapes, every label, domain and pixel.

    `images_sha256` spares reading the images where somebody has just done so.
    """
    plain = [
        list(dataset.images.shape),
        list(dataset.class_names),
        list(dataset.domain_names),
        images_sha256 or _sha256(dataset.images),
        *(
            None if column is None else _sha256(column)
            for column in (dataset.labels, dataset.is_test, dataset.domains)
        ),
    ]
    return _PREFIX + hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]


def is_sampled(identity: str | None) -> bool:
    """Whether an identity is of an earlier version's kind, which covered some images only."""
    return identity is not None and not identity.startswith(_PREFIX)


def sampled_identity_of(dataset: Dataset) -> str:
    """What earlier versions took for the identity: of at most 1,000 images, spread evenly."""
    digest = hashlib.sha256()
    plain = [list(dataset.images.shape), list(dataset.class_names), list(dataset.domain_names)]
    digest.update(json.dumps(plain).encode())
    for column in (dataset.labels, dataset.is_test, dataset.domains):
        digest.update(b"none" if column is None else np.ascontiguousarray(column).tobytes())
    some = np.linspace(0, len(dataset.images) - 1, min(_SAMPLES, len(dataset.images))).astype(int)
    digest.update(dataset.images[some].tobytes())
    return digest.hexdigest()[:16]


def _sha256(array: np.ndarray) -> str:
    """Of an array's bytes in C order, some megabytes at a time: it may be larger than memory."""
    digest = hashlib.sha256()
    step = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        digest.update(np.ascontiguousarray(array[start : start + step]).data)
    return digest.hexdigest()
