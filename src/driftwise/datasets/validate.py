"""Checks of a data set, and its identity: which data a run was made with."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from driftwise.array_checks import refuse_odd
from driftwise.errors import UserError
from driftwise.types import Dataset

_COLUMNS: tuple[tuple[str, type[np.generic], int, str], ...] = (
    ("images", np.uint8, 4, "(samples, height, width, channels), or float32 (samples, features)"),
    ("labels", np.int64, 1, "(samples,)"),
    ("is_test", np.bool_, 1, "(samples,)"),
    ("domains", np.int64, 1, "(samples,)"),
    ("groups", np.int64, 1, "(samples,)"),
)
_PREFIX = "sha256:"
"""How an identity begins that covers everything."""
_SAMPLED = 1000
"""Images that the identities of earlier versions covered; all labels were."""
_CHUNK_BYTES = 1 << 24


def check_dataset(dataset: object, *, source: str) -> Dataset:
    """The data set itself if its fields fit one another, else a UserError of one line.

    Arrays with negative strides are copied. `source` is what messages call the data.
    """
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"{source}: expected a driftwise.types.Dataset; got {type(dataset).__name__}"
        )
    columns = {name: getattr(dataset, name) for name, *_ in _COLUMNS}
    for name, kind, axes, shape in _COLUMNS:
        array = columns[name]
        if array is None and name in ("is_test", "domains", "groups"):
            del columns[name]
            continue
        if not isinstance(array, np.ndarray):
            raise UserError(f"{source}: {name} must be a numpy array; got {type(array).__name__}")
        refuse_odd(array, f"{source}: {name}")
        if name == "images" and array.dtype == np.float32 and array.ndim == 2:
            _check_vectors(array, source)
        elif name == "images" and array.dtype == object and array.ndim == 1:
            _check_texts(array, source)
        elif array.dtype != kind or array.ndim != axes:
            came = f"{array.dtype} {array.shape}"
            raise UserError(f"{source}: {name} must be {np.dtype(kind)} {shape}; got {came}")
    images, labels, domains = dataset.images, dataset.labels, dataset.domains
    if dataset.feature_names and (
        images.ndim != 2
        or len(dataset.feature_names) != images.shape[1]
        or len(set(dataset.feature_names)) != images.shape[1]
    ):
        raise UserError(
            f"{source}: feature_names must name each feature of {images.shape} once; got "
            f"{len(dataset.feature_names)} names"
        )
    if 0 in images.shape[1:]:
        needed = "features" if images.ndim == 2 else "pixels and channels"
        raise UserError(f"{source}: samples must have {needed}; got {images.shape}")
    if not len(labels):
        raise UserError(f"{source}: the data set has no samples")
    last = len(dataset.class_names) - 1
    if not 0 <= labels.min() <= labels.max() <= last:
        raise UserError(
            f"{source}: labels must be 0 to {last}, as there are {last + 1} class names; "
            f"got {labels.min()} to {labels.max()}"
            + (": -1 marks samples without a label, leave them out" if labels.min() == -1 else "")
        )
    for name, column in columns.items():
        if len(column) != len(images):
            raise UserError(f"{source}: {len(images)} samples but {len(column)} {name}")
    if domains is not None and not 0 <= domains.min() <= domains.max() < len(dataset.domain_names):
        names = ", ".join(dataset.domain_names)
        raise UserError(f"{source}: every domain needs a name; the names are {names}")
    absent = np.flatnonzero(np.bincount(labels, minlength=last + 1) == 0)
    if len(absent):
        names = ", ".join(repr(dataset.class_names[label]) for label in absent[:5])
        raise UserError(f"{source}: class {names} has no images; add some, or leave the class out")
    backwards: dict[str, Any] = {
        name: np.ascontiguousarray(array)
        for name, array in columns.items()
        if min(array.strides) < 0  # which torch cannot read
    }
    return dataclasses.replace(dataset, **backwards) if backwards else dataset


def _check_vectors(vectors: np.ndarray, source: str) -> None:
    """UserError where a feature vector holds a value that is not finite."""
    step = max(1, _CHUNK_BYTES // max(1, vectors[:1].nbytes))
    for start in range(0, len(vectors), step):
        bad = np.flatnonzero(~np.isfinite(vectors[start : start + step]).all(axis=1))
        if len(bad):
            raise UserError(
                f"{source}: vectors hold values that are not finite, the first of them in sample "
                f"{start + bad[0]}; fill the gaps, or leave these samples or columns out"
            )


def _check_texts(texts: np.ndarray, source: str) -> None:
    """UserError where a sample is no text."""
    for place, text in enumerate(texts.tolist()):
        if not isinstance(text, str):
            raise UserError(
                f"{source}: sample {place} must be a text, as others are; got {type(text).__name__}"
            )


def group_domains(dataset: Dataset, groups: Mapping[str, str]) -> Dataset:
    """Each group of `groups` (domain -> group) as one domain, all other samples as one more.

    No sample is left out: that would copy pixels that may be larger than memory, and a stream
    shows only the domains that its schedule names.

    >>> import numpy as np
    >>> import driftwise as dw
    >>> vectors, years = np.random.default_rng(0).normal(size=(6, 2)), ["2021", "2022", "2023"] * 2
    >>> data = dw.datasets.from_arrays(vectors, ["a", "b"] * 3, domains=years)
    >>> grouped = group_domains(data, {"2021": "before", "2022": "before"})
    >>> grouped.domain_names
    ('before', 'other')
    """
    assert dataset.domains is not None, "only a data set with domains can be grouped"
    names = (*dict.fromkeys(groups.values()), "other")
    number_of = np.full(len(dataset.domain_names), len(names) - 1, dtype=np.int64)
    for domain, group in groups.items():
        if domain not in dataset.domain_names:
            known = ", ".join(dataset.domain_names)
            raise UserError(f"the data has no domain {domain!r}; it has {known}")
        number_of[dataset.domain_names.index(domain)] = names.index(group)
    return dataclasses.replace(dataset, domains=number_of[dataset.domains], domain_names=names)


def identity_of(dataset: Dataset, images_sha256: str | None = None) -> str:
    """A digest of everything: names, shapes, every label, domain, group and pixel.

    `images_sha256` saves reading the images where their digest is known.
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
        # Left out where there are none, so that identities of earlier versions stay.
        *([] if dataset.groups is None else [_sha256(dataset.groups)]),
    ]
    return _PREFIX + hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]


def is_sampled(identity: str | None) -> bool:
    """Whether an identity is of an earlier version's kind, which covered some images only."""
    return identity is not None and not identity.startswith(_PREFIX)


def sampled_identity_of(dataset: Dataset) -> str:
    """The identity of earlier versions: of at most 1,000 images, spread evenly."""
    digest = hashlib.sha256()
    plain = [list(dataset.images.shape), list(dataset.class_names), list(dataset.domain_names)]
    digest.update(json.dumps(plain).encode())
    for column in (dataset.labels, dataset.is_test, dataset.domains):
        digest.update(b"none" if column is None else np.ascontiguousarray(column).tobytes())
    some = np.linspace(0, len(dataset.images) - 1, min(_SAMPLED, len(dataset.images))).astype(int)
    digest.update(dataset.images[some].tobytes())
    return digest.hexdigest()[:16]


def _sha256(array: np.ndarray) -> str:
    """Of an array's bytes in C order, some megabytes at a time: it may be larger than memory."""
    digest = hashlib.sha256()
    if array.dtype == object:  # texts, of which the array itself knows but addresses
        for text in array.tolist():
            content = text.encode(errors="surrogatepass")
            digest.update(f"{len(content)}:".encode() + content)
        return digest.hexdigest()
    step = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        digest.update(np.ascontiguousarray(array[start : start + step]).data)
    return digest.hexdigest()
