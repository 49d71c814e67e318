"""Unpacks archives from untrusted sources: whole or not at all, never outside the folder."""

from __future__ import annotations

import errno
import lzma
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, NamedTuple

from driftwise.datasets.reading import StageProgress, silent
from driftwise.errors import RunFailure, UserError

MAX_BYTES = 64 * 2**30
"""The most that an archive may unpack to: several times the largest known data set."""
MAX_MEMBERS = 2_000_000
"""The most files and folders in it: empty ones cost nothing in an archive, but do on a disk."""

_CHUNK = 2**20  # bytes

# What zipfile and tarfile raise on damaged or crafted bytes.
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    MemoryError,
    NotImplementedError,  # a version, compression or encryption that zipfile does not know
    OverflowError,
    RecursionError,  # tar headers that extend one another without end
    ValueError,  # a name in no known encoding
)


class _Member(NamedTuple):
    name: str
    size: int
    """as declared"""
    open: Callable[[], IO[bytes] | None] | None
    """None: a folder"""
    refused: str | None
    """what it is, if it is neither a folder nor a readable file"""
    done: int
    """bytes of the archive that are done once this member is"""


def extract(
    archive: Path,
    folder: Path,
    *,
    max_bytes: int = MAX_BYTES,
    progress: StageProgress = silent,
) -> None:
    """Unpack a zip or tar (plain, gz, bz2, xz) into a folder that does not exist yet.

    Everything is written to a hidden folder beside it that becomes `folder` in one step at the
    end; after an error nothing is left. Owners, permissions and times are not restored.
    """
    if folder.exists() or folder.is_symlink():
        raise UserError(f"{folder} exists already; remove it to unpack {archive} there")
    if not archive.is_file():
        found = "a folder" if archive.is_dir() else "nothing"
        raise UserError(f"expected an archive at {archive}, found {found}; check the path")
    total = archive.stat().st_size
    declared = 0
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as beside,
            archive.open("rb") as handle,
        ):
            # An inner folder: the temporary one is closed to other users, and would stay so.
            content = Path(beside) / "content"
            content.mkdir()
            for number, member in enumerate(_members(handle), start=1):
                declared += member.size
                if member.size < 0 or declared > max_bytes or number > MAX_MEMBERS:
                    raise UserError(
                        f"{archive} unpacks to more than {max_bytes:,} bytes"
                        f" or {MAX_MEMBERS:,} files; refused"
                    )
                _write(archive, member, content)
                progress(min(member.done, total), total)
            content.rename(folder)
    except UserError:
        raise
    except _DAMAGE as error:
        raise UserError(
            f"{archive} is damaged or no known zip or tar ({_one_line(error)}); get it again"
        ) from error
    except OSError as error:
        # gzip and bz2 report damage without a number; EINVAL is a seek to nowhere.
        if error.errno in (None, errno.EINVAL):
            raise UserError(f"{archive} is damaged ({_one_line(error)}); get it again") from error
        raise RunFailure(f"cannot unpack {archive} to {folder}: {error.strerror}") from error
    progress(total, total)


def _write(archive: Path, member: _Member, content: Path) -> None:
    """Write a member under its name, if that is inside the folder on every system."""
    name = member.name
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    if posix.is_absolute() or windows.drive or windows.root or ".." in windows.parts:
        raise UserError(f"{archive} holds {name!r}, which climbs out of the folder; refused")
    if "\\" in name or "\0" in name:
        raise UserError(f"{archive} holds {name!r}, which is no name for a file; refused")
    if member.refused is not None:
        raise UserError(
            f"{archive} holds {name!r}, {member.refused}; only files and folders are unpacked"
        )
    target = content / posix
    try:
        if member.open is None:
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        source = member.open()
        assert source is not None  # only folders and devices have none
        with target.open("xb") as out, source:
            shutil.copyfileobj(source, out, _CHUNK)
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{archive} holds {name!r} twice; refused") from error
    if target.stat().st_size != member.size:
        raise UserError(f"{archive} is damaged: {name!r} is cut short; get it again")


def _members(handle: IO[bytes]) -> Iterator[_Member]:
    magic = handle.read(4)
    handle.seek(0)
    # By the first bytes: a tar whose last file is a zip would pass for a zip by its end.
    if magic in (b"PK\3\4", b"PK\5\6"):
        with zipfile.ZipFile(handle) as opened:
            yield from _zip_members(opened)
    else:
        with tarfile.open(fileobj=handle, mode="r:*") as opened_tar:
            yield from _tar_members(opened_tar, handle)


def _zip_members(opened: zipfile.ZipFile) -> Iterator[_Member]:
    done = 0
    for info in opened.infolist():
        done += info.compress_size
        refused = "which is encrypted" if info.flag_bits & 1 else None
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            refused = "a link or a device"
        opener = None if info.is_dir() else partial(opened.open, info)
        yield _Member(info.filename, info.file_size, opener, refused, done)


def _tar_members(opened: tarfile.TarFile, handle: IO[bytes]) -> Iterator[_Member]:
    for info in opened:
        refused = None if info.isdir() or info.isreg() else "a link or a device"
        opener = None if info.isdir() else partial(opened.extractfile, info)
        yield _Member(info.name, info.size, opener, refused, handle.tell())
    # Two blocks of zeros end a tar, one with some tools; tarfile accepts anything unreadable.
    stream = opened.fileobj
    assert stream is not None  # it is open
    stream.seek(opened.offset)
    ending = stream.read(2 * tarfile.BLOCKSIZE)
    if len(ending) < tarfile.BLOCKSIZE or any(ending):
        raise tarfile.ReadError("it does not end as a tar does")
    # Only at its end does a compressed stream compare its checksum.
    while stream.read(_CHUNK):
        pass


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
