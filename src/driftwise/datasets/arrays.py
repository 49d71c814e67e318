"""Data sets from memory: arrays, tensors or any torch data set; doubtful values are refused.

The conversions here serve the readers of files, too: any usual form of images, labels and domains
becomes uint8 images, int64 labels and int64 domains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from driftwise.datasets.reading import Allocate, StageProgress, empty, silent
from driftwise.errors import UserError

if TYPE_CHECKING:  # it imports torch, which reading the columns of a file should not cost
    from driftwise.types import Dataset


def from_arrays(
    images: Any,
    labels: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    domains: Any = None,
    is_test: Any = None,
    feature_names: Sequence[str] = (),
) -> Dataset:
    """A data set from arrays, tensors or lists with one entry per sample.

    Args:
        images: uint8, or floats in [0, 1]; (samples, height, width), (samples, height, width,
            1 or 3), or a tensor (samples, 1 or 3, height, width). uint8 arrays are not copied.
            Or feature vectors (embeddings, readings): numbers (samples, features); float32 arrays
            are not copied.
        labels: (samples,) class numbers from 0, or class names. None: all samples are one class.
        class_names: one name per class number, or the order of the names.
        domains: (samples,) where or when each image was taken, numbers or names; None: all alike.
        is_test: (samples,) true where an image belongs to the test part; None: there is none.
        feature_names: of vectors, one name per feature.

    Raises:
        UserError: a shape or a value does not fit.

    >>> data = from_arrays(np.zeros((4, 8, 8), dtype=np.uint8), ["cat", "dog", "cat", "dog"])
    >>> data.images.shape, data.labels.tolist(), data.class_names
    ((4, 8, 8, 1), [0, 1, 0, 1], ('cat', 'dog'))
    """
    from driftwise.array_checks import refuse_odd
    from driftwise.datasets.readers.tabular import EVERYTHING
    from driftwise.datasets.validate import check_dataset
    from driftwise.types import Dataset

    source = "data"
    for what, column in (("images", images), ("labels", labels), ("domains", domains)):
        refuse_odd(column, f"{source}: {what}")
    array = _channels_last(images, ndim=4)
    if array.ndim == 1 and array.dtype.kind in "OSU":
        raise UserError(f"{source}: expected numbers; got {array.dtype}: texts go into from_texts")
    if array.ndim == 2 and array.dtype.kind in "SU":
        raise UserError(
            f"{source}: expected numbers; got {array.dtype}: texts in columns are encoded first"
        )
    if array.ndim == 2:
        return _from_vectors(array, labels, class_names, domains, is_test, feature_names)
    shape = full_shape(array.shape, source)
    if labels is None:
        labels, class_names = np.zeros(len(array), dtype=np.int64), class_names or (EVERYTHING,)
    numbers, names = class_numbers(_column(labels), class_names, source)
    domain_of, domain_names = (None, ()) if domains is None else domain_numbers(_column(domains))
    test = None if is_test is None else _column(is_test)
    if test is not None and not np.isin(test, (0, 1)).all():
        raise UserError(f"{source}: is_test must be true or false (1 or 0) for each image")
    dataset = Dataset(
        images=to_bytes(array, source).reshape(shape),
        labels=numbers,
        class_names=names,
        domains=domain_of,
        domain_names=domain_names,
        is_test=None if test is None else test.astype(bool),
    )
    return check_dataset(dataset, source=source)


def _from_vectors(
    vectors: Any,
    labels: Any,
    class_names: Sequence[str] | None,
    domains: Any = None,
    is_test: Any = None,
    feature_names: Sequence[str] = (),
) -> Dataset:
    """Vectors (samples, features), as the columns of a table."""
    from driftwise.datasets.readers.tabular import from_table
    from driftwise.datasets.validate import check_dataset

    columns = {"features": vectors, "labels": labels, "domains": domains, "is_test": is_test}
    given = {name: column for name, column in columns.items() if column is not None}
    dataset = from_table(
        given,
        label="labels" if labels is not None else None,
        domain="domains" if domains is not None else None,
        test="is_test" if is_test is not None else None,
        class_names=class_names,
    )
    if not len(feature_names):
        return dataset
    named = replace(dataset, feature_names=tuple(map(str, feature_names)))
    return check_dataset(named, source="data")


class MapStyle(Protocol):
    """What `torch.utils.data.Dataset` promises: a length, and a sample per number."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def from_torch(
    dataset: MapStyle,
    *,
    test: MapStyle | None = None,
    class_names: Sequence[str] | None = None,
    allocate: Allocate = empty,
) -> Dataset:
    """A data set from any map-style torch data set of (image or vector, label), copied once.

    Args:
        dataset: an image is a PIL image, an array (height, width[, 1 or 3]) or a tensor (1 or 3,
            height, width), uint8 or floats in [0, 1]; all of one size. A vector is an array, a
            tensor or a list of numbers (features,). A label is a class number or name.
        test: the same; it becomes the test part.
        class_names: one name per class number. None: the `classes` that torchvision's data sets
            have, or the numbers themselves.
        allocate: returns the array that the images are written to.

    >>> import torch
    >>> images = torch.rand(10, 1, 8, 8)
    >>> data = from_torch(torch.utils.data.TensorDataset(images, torch.arange(10) % 2))
    >>> data.images.shape
    (10, 8, 8, 1)
    """
    from torch.utils.data import IterableDataset

    parts = [dataset] if test is None else [dataset, test]
    for part in parts:
        by_number = hasattr(part, "__len__") and hasattr(part, "__getitem__")
        if not by_number or isinstance(part, IterableDataset):
            raise UserError(
                "expected a map-style data set (with a length and samples by number), got"
                f" {type(part).__name__}; give list(data) if its samples fit in memory"
            )

    def pairs() -> Iterator[tuple[Any, Any]]:
        for part in parts:
            for index in range(len(part)):
                pair = part[index]
                if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                    came = f" of {len(pair)}" if isinstance(pair, (tuple, list)) else ""
                    raise UserError(
                        f"data: sample {index} is a {type(pair).__name__}{came}, expected a pair"
                        " (image or vector, label)"
                    )
                yield pair[0], pair[1]

    num_samples = sum(len(part) for part in parts)
    return collect(
        pairs(),
        num_samples,
        "data",
        class_names=getattr(dataset, "classes", None) if class_names is None else class_names,
        is_test=None if test is None else np.arange(num_samples) >= len(dataset),
        allocate=allocate,
    )


from_torch_dataset = from_torch
"""The name of earlier versions."""


def collect(
    pairs: Iterable[tuple[Any, Any]],
    num_samples: int,
    source: str,
    *,
    class_names: Sequence[str] | None,
    is_test: np.ndarray | None,
    allocate: Allocate,
    progress: StageProgress = silent,
) -> Dataset:
    """A data set from (image or vector, label) pairs; the first one gives the shape of all."""
    from driftwise.types import Dataset

    if not num_samples:
        raise UserError(f"{source}: expected at least one sample, got none")
    images: np.ndarray | None = None
    labels: list[int | str] = []
    vectors: list[np.ndarray] = []
    for sample, (image, label) in enumerate(pairs):
        where = f"{source}: sample {sample}"
        if vectors or (not sample and _is_vector(image)):
            vectors.append(_vector(image, where, vectors[0].shape if vectors else None))
            labels.append(_label(label, where))
            continue
        pixels = _pixels(image, where, None if images is None else images.shape[3])
        if images is None:
            images = allocate((num_samples, *pixels.shape))
        if pixels.shape != (expected := images.shape[1:]):
            raise UserError(
                f"{where} is {_size(pixels.shape)}, sample 0 {_size(expected)}; expected one size"
                " and kind: resize or convert them in the data set's transform"
            )
        images[sample] = pixels
        labels.append(_label(label, where))
        progress(sample + 1, num_samples)
    if len(kinds := {type(label) for label in labels}) > 1:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise UserError(f"{source}: labels are of several kinds ({found}); expected one")
    if vectors:
        return _from_vectors(np.stack(vectors), labels, class_names, is_test=is_test)
    assert images is not None
    numbers, names = class_numbers(np.array(labels), class_names, source)
    return Dataset(images=images, labels=numbers, class_names=names, is_test=is_test)


def full_shape(shape: tuple[int, ...], source: str) -> tuple[int, ...]:
    """(samples, height, width, channels) for images of a usual shape, else a UserError."""
    if len(shape) == 3:
        return (*shape, 1)
    if len(shape) == 4 and shape[3] in (1, 3):
        return shape
    hint = ""
    if len(shape) == 4 and shape[1] in (1, 3):
        hint = "; channels come last: use images.transpose(0, 2, 3, 1)"
    elif len(shape) == 4 and shape[3] == 4:
        hint = "; give them without the alpha channel: images[..., :3]"
    raise UserError(
        f"{source}: images are {shape}, expected (samples, height, width) or "
        f"(samples, height, width, 1 or 3), or vectors (samples, features){hint}"
    )


def check_pixel_type(dtype: np.dtype, source: str) -> None:
    """Refuse pixels that are neither uint8 nor floats."""
    if dtype != np.uint8 and dtype.kind != "f":
        raise UserError(
            f"{source}: images are {dtype}, expected uint8, or floats in [0, 1]; "
            "use images.astype(np.uint8) if they are 0..255"
        )


def to_bytes(values: np.ndarray, source: str, first_sample: int = 0) -> np.ndarray:
    """Pixels as uint8 of the same shape: (samples, ...) of uint8, or floats in [0, 1], rounded."""
    if values.dtype == np.uint8:
        return values
    check_pixel_type(values.dtype, source)
    # Written so that NaN is outside too: every comparison with it is false.
    inside = (values >= 0) & (values <= 1)
    if not inside.all():
        position = np.unravel_index(int(np.argmin(inside)), inside.shape)
        raise UserError(
            f"{source}: images hold {values[position]} in sample {first_sample + position[0]}, "
            "expected uint8, or floats in [0, 1]: use images.astype(np.uint8) if they are 0..255, "
            "and leave out a transform that normalises them"
        )
    return np.rint(values.astype(np.float32, copy=False) * 255).astype(np.uint8)


def class_numbers(
    labels: np.ndarray, class_names: Sequence[str] | None, source: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as int64 (samples,) positions in the class names; every class has a sample.

    Args:
        labels: (samples,) whole numbers from 0, or names.
        class_names: the names of the numbers, or the order of the names. None: the numbers
            themselves, or the names in alphabetical order.
        source: what messages call the data.
    """
    if labels.dtype.kind not in "iuU" or labels.ndim != 1:
        raise UserError(
            f"{source}: labels are {labels.dtype} {labels.shape}, expected (samples,) of whole "
            "numbers or names"
        )
    values, inverse = np.unique(labels, return_inverse=True)
    names = [str(value) for value in values] if class_names is None else list(class_names)
    if labels.dtype.kind == "U":
        if unknown := sorted(set(values.tolist()) - set(names)):
            raise UserError(f"{source}: label {unknown[0]!r}, expected one of {', '.join(names)}")
        positions = np.array([names.index(name) for name in values], dtype=np.int64)
    else:
        # Without names the labels must count from 0, so that there are as many as values.
        top = len(names)
        outside = values[(values < 0) | (values >= top)]
        if outside.size:
            raise UserError(
                f"{source}: label {outside[0]} in sample {np.argmax(labels == outside[0])}, "
                f"expected 0..{top - 1} "
                + ("without gaps" if class_names is None else f"({top} class names)")
            )
        positions = values.astype(np.int64)
    if empty_classes := sorted(set(range(len(names))) - set(positions.tolist())):
        raise UserError(f"{source}: class {names[empty_classes[0]]!r} has no images")
    return positions[inverse], tuple(names)


def domain_numbers(values: np.ndarray, group: int = 1) -> tuple[np.ndarray, tuple[str, ...]]:
    """Domains as int64 (samples,) positions in their names, in ascending order.

    `group` puts that many consecutive numbers (years) together.

    >>> domain_numbers(np.array([1931, 1905, 1938]), group=10)
    (array([1, 0, 1]), ('1900s', '1930s'))
    """
    if group == 1:
        distinct, positions = np.unique(values, return_inverse=True)
        return positions.astype(np.int64), tuple(str(value) for value in distinct.tolist())
    first, positions = np.unique(values // group * group, return_inverse=True)
    names = (f"{year}s" if group == 10 else f"{year}-{year + group - 1}" for year in first.tolist())
    return positions.astype(np.int64), tuple(names)


def _column(values: Any) -> np.ndarray:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _channels_last(values: Any, ndim: int) -> np.ndarray:
    """An array of images; torch puts channels first where both are possible."""
    import torch

    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    if values.ndim == ndim and values.shape[ndim - 3] in (1, 3):
        values = values.movedim(ndim - 3, -1)
    # numpy has no bfloat16
    array: np.ndarray = (values.float() if values.is_floating_point() else values).numpy()
    return array


def _pixels(image: object, where: str, channels: int | None) -> np.ndarray:
    """A PIL image, an array or a tensor as uint8 (height, width, channels).

    `channels`: those of the samples before, for an image that can be grey or colour.
    """
    import torch
    from PIL import Image

    from driftwise.array_checks import refuse_odd
    from driftwise.datasets.readers.decode import converted, has_no_colour

    refuse_odd(image, where)
    if isinstance(image, Image.Image):
        mode: Literal["L", "RGB"] = "L" if has_no_colour(image) and channels in (None, 1) else "RGB"
        # By the rules for image files: transparency, sixteen bits.
        plain = converted(Path(where), image, mode)
        return np.asarray(plain).reshape(image.height, image.width, -1)
    if not isinstance(image, np.ndarray | torch.Tensor):
        raise UserError(
            f"{where} has an image of type {type(image).__name__}; expected a PIL image,"
            " an array or a tensor (for example from torchvision's ToTensor)"
        )
    array = _channels_last(image, ndim=3)
    if array.ndim == 2:
        array = array[..., np.newaxis]
    if array.ndim != 3 or array.shape[2] not in (1, 3) or 0 in array.shape:
        raise UserError(
            f"{where} has an image of shape {tuple(array.shape)}; expected (height, width, 1"
            " or 3), or a tensor (1 or 3, height, width)"
        )
    pixels: np.ndarray = to_bytes(array[np.newaxis], where)[0]
    return pixels


def _is_vector(sample: object) -> bool:
    return not isinstance(sample, str) and np.ndim(sample) == 1  # type: ignore[arg-type]


def _vector(sample: Any, where: str, shape: tuple[int, ...] | None) -> np.ndarray:
    """A vector as float32 (features,), of that shape if one is given."""
    from driftwise.array_checks import refuse_odd

    refuse_odd(sample, where)
    try:
        values = np.asarray(sample.detach().cpu().float() if hasattr(sample, "detach") else sample)
        vector = values.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} is no vector of numbers ({error})") from error
    if vector.ndim != 1 or vector.shape != (shape or vector.shape):
        raise UserError(
            f"{where} is {vector.shape}, sample 0 {shape}; expected vectors of one length"
        )
    return vector


def _label(label: object, where: str) -> int | str:
    """A class number or name as a plain int or str."""
    from driftwise.array_checks import refuse_odd

    refuse_odd(label, f"{where}, label")
    value = label.item() if hasattr(label, "item") and np.asarray(label).size == 1 else label
    if isinstance(value, str):
        return value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        found = " ".join(repr(value).split())[:60]
        raise UserError(f"{where} has the label {found}; expected a class number from 0, or a name")
    return value


def _size(shape: tuple[int, ...]) -> str:
    height, width, channels = shape
    return f"{height}x{width} in {'grey' if channels == 1 else 'colour'}"
