"""Image files to uint8 pixels of one size, whatever they hold; unusable files are refused.

The rules, the same for every file:
- transparency is laid on white, as a page shows it: dropping it would bring out whatever colour
  happens to lie under the transparent pixels;
- sixteen bits become eight by keeping the high byte, in grey as in colour;
- colour becomes grey by the luma of ITU-R 601, grey becomes colour by repeating it;
- a photo is turned by its EXIF orientation;
- colour profiles are ignored: pixels are taken for sRGB.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from driftwise.datasets.reading import StageProgress, discard, silent
from driftwise.errors import UserError, unknown_name

Fit = Literal["crop", "stretch", "exact"]
"""crop: shrink or grow the short side to the target, cut the middle out; stretch: each side on its
own; exact: the image must have that size already"""

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""The decoders that are tried: few and common ones leave little room for crafted files."""
MAX_PIXELS = 64 * 2**20
"""Images whose header announces more are refused before anything is decoded."""
MAX_SIDE = 2**16 - 1
"""JPEG's own limit; resampling a longer side would take a table of weights as large as a bomb."""

_BLOCK = 32  # files per unit of work: much less than a second, much more than handing it over costs
_GREY = {"1", "L", "LA", "La", "I"}
_QUARTER_TURNS_AND_MIRRORS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class BadImage(UserError):
    """A file that cannot be used as an image, and why."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"cannot use {file}: {reason}")
        self.file = file
        self.reason = reason


class WrongSize(BadImage):
    """A good image of another size than the others."""


def decode(
    file: Path, *, channels: int, size: tuple[int, int] | None = None, fit: Fit = "crop"
) -> np.ndarray:
    """The image in a file as uint8 (height, width, channels).

    `channels` is 1 (grey) or 3 (colour); `size` is (height, width), None keeps the image's own.
    """
    check_image_options(channels, fit)
    with _without_pillow_warnings():
        return _decode(file, channels, size, fit)


def decode_bytes(
    content: bytes, *, channels: int | None, size: tuple[int, int] | None = None, fit: Fit = "crop"
) -> np.ndarray:
    """As `decode`, for the content of a file; no `channels`: those of the image."""
    check_image_options(channels, fit)
    name = Path("image")
    with _without_pillow_warnings():
        if channels is None:
            with _opened(name, content) as image:
                channels = 1 if has_no_colour(image) else 3
        return _decode(name, channels, size, fit, content)


def decode_all(
    files: Sequence[Path],
    out: np.ndarray,
    *,
    fit: Fit = "crop",
    on_bad: Literal["raise", "skip"] = "raise",
    progress: StageProgress = silent,
    workers: int | None = None,
) -> list[BadImage]:
    """Decode `files[i]` into `out[i]`, of shape (samples, height, width, channels).

    The result does not depend on the number of threads (by default one per core). At a file that
    cannot be used it raises the error of the first such file in order; or it goes on, fills the
    sample with zeros, and returns the errors in order. Besides `out` it holds one decoded image per
    thread.
    """
    samples, height, width, channels = out.shape
    if samples != len(files) or out.dtype != np.uint8:
        raise ValueError(
            f"expected uint8 with a sample per file, {len(files)}; got {out.dtype} {out.shape}"
        )
    check_image_options(channels, fit)

    def fill(block: range) -> list[BadImage]:
        skipped = []
        for sample in block:
            try:
                out[sample] = _decode(files[sample], channels, (height, width), fit)
            except BadImage as error:
                if on_bad == "raise":
                    raise
                out[sample] = 0
                # A new one: the traceback of the old one keeps the image in memory.
                skipped.append(type(error)(error.file, error.reason))
        return skipped

    blocks = [range(start, min(start + _BLOCK, samples)) for start in range(0, samples, _BLOCK)]
    pool = ThreadPoolExecutor(workers or os.cpu_count(), thread_name_prefix="decode")
    skipped: list[BadImage] = []
    with _without_pillow_warnings():
        try:
            for block, bad in zip(blocks, pool.map(fill, blocks), strict=True):
                skipped += bad
                progress(block.stop, samples)
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C: no need for the rest
    return skipped


def undecodable(files: Sequence[Path], progress: StageProgress = silent) -> list[BadImage]:
    """Every file that is no usable image, and why; sizes may differ."""
    out = discard((len(files), 32, 32, 3))
    return decode_all(files, out, fit="stretch", on_bad="skip", progress=progress)


def is_grey(file: Path) -> bool:
    """Whether a file holds an image without colour, by its header alone."""
    with _without_pillow_warnings(), _opened(file) as image:
        return has_no_colour(image)


def has_no_colour(image: Image.Image) -> bool:
    """Whether an image, opened or made, can show nothing but grey."""
    return image.mode in _GREY or image.mode.startswith("I;16")


def check_image_options(channels: int | None, fit: str) -> None:
    """Refuse impossible options; no channels: those of the images are kept."""
    # By the type too: True and 1.0 equal 1, but are no number of channels.
    if channels is not None and (type(channels) is not int or channels not in (1, 3)):
        raise UserError(f"images have 1 (grey) or 3 (colour) channels; got {channels!r}")
    if fit not in get_args(Fit):
        raise unknown_name("fit", fit, get_args(Fit))


def _decode(
    file: Path,
    channels: int,
    size: tuple[int, int] | None,
    fit: Fit,
    content: bytes | None = None,
) -> np.ndarray:
    with _opened(file, content) as opened:
        opened.load()
        image = converted(file, opened, "L" if channels == 1 else "RGB")
        # Read after loading: a PNG may carry it behind its pixels, and a TIFF is turned by then.
        turn = _QUARTER_TURNS_AND_MIRRORS.get(_orientation(opened))
        if turn is not None:
            image = image.transpose(turn)
        if size is not None:
            image = _fitted(file, image, size, fit)
        return np.asarray(image).reshape(image.height, image.width, channels)


@contextlib.contextmanager
def _opened(file: Path, content: bytes | None = None) -> Iterator[Image.Image]:
    """An opened, not yet decoded image whose header is acceptable; errors name the file.

    `content`: what the file would hold, where there is none.
    """
    try:
        status = None if content is not None else file.stat()
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise BadImage(file, "expected an image file, got a folder or a device")
        if (len(content or b"") if status is None else status.st_size) == 0:
            raise BadImage(file, "it is empty (0 bytes)")
        source = file if content is None else io.BytesIO(content)
        with Image.open(source, formats=FORMATS) as image:
            _check_header(file, image)
            yield image
    except BadImage:
        raise
    except UnidentifiedImageError as error:
        raise BadImage(file, f"it is not a {', '.join(FORMATS)} image") from error
    except Image.DecompressionBombError as error:
        raise BadImage(file, f"more than {MAX_PIXELS:,} pixels") from error
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:  # the system's, not a decoder's
            raise BadImage(file, error.strerror) from error
        # On damaged or crafted bytes decoders let through whatever they stumble over:
        # OSError, SyntaxError, struct.error, IndexError, MemoryError, ...
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadImage(file, f"it cannot be decoded ({reason})") from error


def _check_header(file: Path, image: Image.Image) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        raise BadImage(
            file,
            f"{width} x {height} pixels; the most is {MAX_PIXELS:,}, and {MAX_SIDE:,} on a side",
        )
    # MPO is a photo followed by previews or a second view; its first image is the photo.
    if getattr(image, "is_animated", False) and image.format != "MPO":
        raise BadImage(file, "it is animated or has several pages; expected one image per file")


def converted(file: Path, image: Image.Image, mode: Literal["L", "RGB"]) -> Image.Image:
    """The image in eight bits, grey or colour, without transparency; `file` is for errors."""
    sixteen_bits = image.mode.startswith("I;16") or (
        image.mode == "I" and image.format in ("PNG", "PPM")
    )
    if sixteen_bits:  # Pillow would clip at 255 instead of scaling
        high_byte = (np.asarray(image) >> 8).astype(np.uint8)
        return Image.fromarray(high_byte).convert(mode)
    if image.mode in ("I", "F"):
        raise BadImage(file, "its pixels have 32 bits; expected 8 or 16")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert(mode)
    return image.convert(mode)


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 (upright) where there is none or its block is damaged."""
    try:
        found = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # the pixels are good; a damaged comment about them costs only the turn
        return 1
    return found if isinstance(found, int) else 1


def _fitted(file: Path, image: Image.Image, size: tuple[int, int], fit: Fit) -> Image.Image:
    height, width = size
    if image.size == (width, height):
        return image
    if fit == "exact":
        raise WrongSize(
            file,
            f"expected {width} x {height} pixels like the others (width x height),"
            f" got {image.width} x {image.height}",
        )
    box = _middle(image.size, (width, height)) if fit == "crop" else None
    # Pillow's bilinear filter widens with the reduction, so that shrinking does not alias.
    return image.resize((width, height), Image.Resampling.BILINEAR, box=box)


def _middle(source: tuple[int, int], target: tuple[int, int]) -> tuple[float, float, float, float]:
    """The part of the source (left, top, right, bottom) that fills the target.

    It is where the centre crop lies once the tight side has been resized to the target and the
    other one, rounded down, in proportion. Resizing just this part gives the pixels of resizing
    first and cropping then, but an image of 60,000 x 1 never becomes one of 13,440,000 x 224.
    """
    if source[0] * target[1] > source[1] * target[0]:
        left, top, right, bottom = _middle(source[::-1], target[::-1])
        return top, left, bottom, right
    resized = source[1] * target[0] // source[0]
    first = round((resized - target[1]) / 2)
    last = first + target[1]
    return 0, first * source[1] / resized, source[0], last * source[1] / resized


@contextlib.contextmanager
def _without_pillow_warnings() -> Iterator[None]:
    """Hide Pillow's remarks on odd metadata, in the threads inside too.

    Entered by the calling thread alone: the list of filters is the process's, not the thread's.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield
