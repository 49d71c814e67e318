"""Request bodies become arrays: JSON, .npy, image files. Nothing in them is a path or a program."""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from driftwise.datasets.readers.decode import decode_bytes
from driftwise.errors import UserError
from driftwise.files import parse_json

JSON_TYPE, NPY_TYPE, FORM_TYPE = "application/json", "application/x-npy", "multipart/form-data"
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/bmp", "image/gif", "image/tiff")
TYPES = (JSON_TYPE, NPY_TYPE, FORM_TYPE, *IMAGE_TYPES)
MAX_HEADER = 10_000
"""bytes of the header of a .npy file"""
MAX_ITEMS = 2**23
"""numbers, and lists or objects (these count twice), of a JSON body: each takes many bytes of memory"""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the samples of a learner are like; no shape: none has come yet."""

    shape: tuple[int, ...] | None = None
    dtype: Literal["uint8", "float32"] = "float32"

    @staticmethod
    def of(status: Mapping[str, Any]) -> Expected:
        """From the status of a live learner."""
        if (shape := status.get("sample_shape")) is None:
            return Expected()
        return Expected(shape=tuple(shape), dtype=status["sample_type"])


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Samples of a request, and what came with them."""

    x: np.ndarray
    y: Sequence[int | None] | None = None
    texts: Sequence[str] | None = None
    key: str | None = None


def from_json(body: bytes, expected: Expected) -> Inputs:
    """`{"x": [...], "y": [...], "texts": [...], "key": "..."}`; x may be `{"npy": base64}`."""
    refuse_many_items(body)
    try:
        found = parse_json(body)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UserError(f"expected a JSON object with x; got a {type(found).__name__}")
    if unknown := sorted(found.keys() - {"x", "y", "texts", "key", "dtype"}):
        raise UserError(f"unknown field {unknown[0]!r} (known: dtype, key, texts, x, y)")
    if "x" not in found:
        raise UserError("expected the samples in x")
    x, dtype = found["x"], found.get("dtype", expected.dtype)
    if dtype not in ("uint8", "float32"):
        raise UserError(f"dtype is uint8 or float32; got {dtype!r:.100}")
    array = from_npy(_decoded(x), expected) if isinstance(x, dict) else _numbers(x, dtype)
    return Inputs(x=_with_batch(array, expected), **_checked_meta(found))


def refuse_many_items(body: bytes) -> None:
    """UserError for JSON that would take much more memory than it has bytes."""
    if body.count(b",") + 2 * (body.count(b"[") + body.count(b"{")) > MAX_ITEMS:
        raise UserError("too many numbers for JSON: send less at once, or samples as .npy")


def from_npy(body: bytes, expected: Expected) -> np.ndarray:
    """The array of a .npy file: numbers, of the announced size, never pickled."""
    try:
        file = io.BytesIO(body)
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(file, max_header_size=MAX_HEADER)
    except Exception as error:  # numpy's parser lets through what it stumbles over
        raise UserError("the body is no .npy file of version 1 or 2") from error
    if dtype.hasobject or dtype.kind not in "uif" or dtype.itemsize > 8:
        raise UserError(f"expected a .npy file of numbers; got {dtype}")
    count, left = math.prod(shape), len(body) - file.tell()
    if count * dtype.itemsize != left:
        raise UserError(f"the .npy file announces {count} numbers and has {left} bytes of them")
    flat = np.frombuffer(body, dtype=dtype, offset=file.tell())
    array = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
    if array.dtype != np.uint8:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    return _with_batch(array, expected)


def from_images(files: Sequence[bytes], expected: Expected, max_bytes: int) -> np.ndarray:
    """Image files as uint8 (samples, height, width, channels), cut to the learner's size.

    `max_bytes`: of the result. Small files can hold large images.
    """
    channels, size = None, None
    if expected.shape is not None:
        if expected.dtype != "uint8" or len(expected.shape) != 3:
            raise UserError("this learner takes numbers, not images; send JSON or .npy")
        size, channels = (expected.shape[0], expected.shape[1]), expected.shape[2]
    images: list[np.ndarray] = []
    for file in files:
        images.append(decode_bytes(file, channels=channels, size=size))
        if images[0].nbytes * len(files) > max_bytes:
            raise UserError(
                f"{len(files)} images of {images[0].shape[1]} x {images[0].shape[0]} pixels take "
                f"more than {max_bytes:,} bytes; send fewer at once"
            )
        if images[-1].shape != images[0].shape:
            raise UserError("the first images decide the size: send images of one size")
    if not images:
        raise UserError("expected at least one image")
    return np.stack(images)


def from_form(
    files: Mapping[str, Sequence[bytes]], meta: str | None, expected: Expected, max_bytes: int
) -> Inputs:
    """A form with `images` (one or more files) or `x` (one .npy file), and `meta`, JSON."""
    if bool(files.get("images")) == bool(files.get("x")):
        raise UserError("expected either files in `images`, or one .npy file in `x`")
    images = files.get("images")
    x = from_images(images, expected, max_bytes) if images else from_npy(files["x"][0], expected)
    return Inputs(x=x, **_checked_meta(_object(meta or "{}")))


def _object(text: str) -> dict[str, Any]:
    try:
        found = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"meta is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UserError("meta is a JSON object with y, texts and key")
    return found


def _checked_meta(found: Mapping[str, Any]) -> dict[str, Any]:
    y, texts, key = (found.get(name) for name in ("y", "texts", "key"))
    if isinstance(y, int) and not isinstance(y, bool):
        y = [y]
    if y is not None and not (isinstance(y, list) and all(_is_label(each) for each in y)):
        raise UserError("y is a list of whole numbers, null where there is no label")
    if texts is not None and not (
        isinstance(texts, list) and all(isinstance(each, str) for each in texts)
    ):
        raise UserError("texts is a list of texts, one for each sample")
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= 100 and key.isprintable()):
        raise UserError("key is a text of up to 100 letters")
    return {"y": y, "texts": texts, "key": key}


def _is_label(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _decoded(x: Mapping[str, Any]) -> bytes:
    if x.keys() != {"npy"} or not isinstance(x["npy"], str):
        raise UserError('x is a list of samples, or {"npy": a .npy file in base64}')
    try:
        return base64.b64decode(x["npy"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError("x.npy is no base64") from error


def _numbers(x: Any, dtype: str) -> np.ndarray:
    try:
        array = np.asarray(x)
    except (ValueError, OverflowError) as error:
        raise UserError("x holds samples of different lengths, or something else") from error
    if array.dtype.kind not in "uif" and array.size:
        raise UserError("x is a list of samples, each a list of numbers")
    if dtype == "uint8":
        if array.size and (array.min() < 0 or array.max() > 255 or (array % 1 != 0).any()):
            raise UserError("pixels are whole numbers from 0 to 255")
        return array.astype(np.uint8)
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _with_batch(array: np.ndarray, expected: Expected) -> np.ndarray:
    """One sample becomes a batch of one; an empty list has the learner's shape."""
    if not array.ndim:
        raise UserError("expected samples, each of several numbers; got one number")
    if expected.shape is not None:
        if array.shape == expected.shape:
            return array[None]
        if not array.size and array.ndim <= 2:
            return np.zeros((0, *expected.shape), dtype=expected.dtype)
    return array


def as_json(value: Any) -> bytes:
    """Compact JSON; not finite numbers are a bug here."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
