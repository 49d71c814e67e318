"""Unpacking: all of it or nothing, inside the folder and nowhere else."""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwise.datasets import archive as archive_module
from driftwise.datasets.archive import extract
from driftwise.errors import RunFailure, UserError

TEN = {f"set/{number}.txt": bytes([number]) * 1000 for number in range(10)}
"""In a plain tar each takes a block of 512 bytes for its name and two for its content."""
FILES = {"set/a/1.txt": b"one" * 1000, "set/a/2.txt": b"", "set/b/3.txt": bytes(range(256)) * 40}


def make_zip(file: Path, content: dict[str, bytes], mode: int = stat.S_IFREG | 0o644) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in content.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(info, data)
    return file


def make_tar(file: Path, content: dict[str, bytes], **fields: object) -> Path:
    mode = {".gz": "w:gz", ".xz": "w:xz", ".bz2": "w:bz2"}.get(file.suffix, "w")
    with tarfile.open(file, mode) as out:  # type: ignore[call-overload]
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for field, value in fields.items():
                setattr(info, field, value)
            out.addfile(info, io.BytesIO(data))
    return file


def make(file: Path, content: dict[str, bytes]) -> Path:
    return make_zip(file, content) if file.suffix == ".zip" else make_tar(file, content)


def content_of(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def refused(archive: Path, message: str) -> None:
    """Unpacking is refused in one line that names the archive, and leaves nothing behind."""
    before = {path: path.stat().st_mtime_ns for path in archive.parent.rglob("*")}
    with pytest.raises(UserError, match=message) as caught:
        extract(archive, archive.parent / "out")
    assert str(archive) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path: path.stat().st_mtime_ns for path in archive.parent.rglob("*")} == before


KINDS = ["x.zip", "x.tar", "x.tar.gz", "x.tar.xz", "x.tar.bz2"]


@pytest.mark.parametrize("name", KINDS)
def test_the_content_comes_out_whole_with_progress_and_nothing_else_is_left(
    tmp_path: Path, name: str
) -> None:
    archive = make(tmp_path / name, FILES)
    size = archive.stat().st_size
    seen: list[tuple[int, int | None]] = []
    extract(
        archive, tmp_path / "deep" / "out", progress=lambda done, total: seen.append((done, total))
    )
    assert content_of(tmp_path / "deep" / "out") == FILES
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    assert seen == sorted(seen)
    assert seen[-1] == (size, size)
    assert len(seen) == len(FILES) + 1


def test_empty_folders_come_out_and_permissions_do_not(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as out:
        out.mkdir("set/empty")
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name in (".", "./set", "./set/empty"):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE
            info.mode = 0o4777
            tar.addfile(info)
    (tmp_path / "usual").mkdir()
    for kind in ("zip", "tar"):
        extract(tmp_path / f"x.{kind}", tmp_path / kind)
        for folder in (tmp_path / kind, tmp_path / kind / "set" / "empty"):
            assert folder.stat().st_mode == (tmp_path / "usual").stat().st_mode


def edited(archive: Path, change: Callable[[bytearray], object]) -> Path:
    content = bytearray(archive.read_bytes())
    change(content)
    archive.write_bytes(content)
    return archive


def encrypt(content: bytearray) -> None:
    content[content.index(b"PK\1\2") + 8] |= 1


def compress_otherwise(content: bytearray) -> None:
    content[content.index(b"PK\1\2") + 10] = content[8] = 99


def lie_about_the_size(content: bytearray) -> None:
    content[:] = content.replace(struct.pack("<I", 100_000), struct.pack("<I", 100))


def change_the_checksum(content: bytearray) -> None:
    content[-8] ^= 1


def cut_off(content: bytearray) -> None:
    del content[-4:]


def spoil_a_name(content: bytearray) -> None:
    content[5 * 1536 : 5 * 1536 + 512] = b"\xff" * 512


def twice(folder: Path, second: str) -> Path:
    with zipfile.ZipFile(folder / "x.zip", "w") as out, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out.writestr("a", b"1")
        if second.endswith("/"):
            out.mkdir(second)
        else:
            out.writestr(second, b"2")
    return folder / "x.zip"


CLIMBING = [
    "../evil",
    "a/../../evil",
    "/tmp/evil",
    "..",
    "C:/evil",
    "C:evil",
    "..\\evil",
    "\\\\h\\x",
]
SPECIAL = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]


def climbing(kind: str, name: str) -> Callable[[Path], Path]:
    return lambda folder: make(folder / kind, {"good": b"1", name: b"2"})


def special(kind: bytes) -> Callable[[Path], Path]:
    return lambda f: make_tar(f / "x.tar", {"a": b""}, type=kind, linkname="../secret")


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    **{
        f"{name} in {kind}": (climbing(kind, name), "climbs out of the folder; refused")
        for name in CLIMBING
        for kind in ("x.zip", "x.tar.gz")
    },
    **{
        f"type {kind!r}": (special(kind), "'a', a link or a device; only files and folders")
        for kind in SPECIAL
    },
    "a link in a zip": (
        lambda f: make_zip(f / "x.zip", {"a": b"../secret"}, mode=stat.S_IFLNK | 0o777),
        "'a', a link or a device",
    ),
    "a backslash": (lambda f: make_tar(f / "x.tar", {"a\\b": b"1"}), "no name for a file"),
    "a file as a folder": (lambda f: make(f / "x.tar", {"a": b"1", "a/b": b"2"}), "'a/b' twice"),
    "a folder as a file": (lambda f: twice(f, "a/"), "'a/' twice"),
    "a file twice": (lambda f: twice(f, "a"), "'a' twice"),
    "a size below zero": (
        lambda f: make_tar(f / "x.tar", {"a": b""}, pax_headers={"size": "-512"}),
        "damaged|unpacks to more than",
    ),
    "encrypted": (
        lambda f: edited(make_zip(f / "x.zip", {"a": b"1"}), encrypt),
        "'a', which is encrypted",
    ),
    "another compression": (
        lambda f: edited(make_zip(f / "x.zip", {"a": b"1"}), compress_otherwise),
        "no known zip or tar .*compression method",
    ),
    "a false size": (
        lambda f: edited(make_zip(f / "x.zip", {"a": bytes(100_000)}), lie_about_the_size),
        "is damaged",
    ),
    "a wrong checksum": (
        lambda f: edited(make_tar(f / "x.tar.gz", TEN), change_the_checksum),
        "damaged",
    ),
    "no checksum": (lambda f: edited(make_tar(f / "x.tar.gz", TEN), cut_off), "damaged"),
    "a damaged name": (lambda f: edited(make_tar(f / "x.tar", TEN), spoil_a_name), "damaged"),
    "text": (lambda f: edited(make_zip(f / "x.zip", {}), bytearray.clear), "damaged or no known"),
}


@pytest.mark.parametrize(("write", "message"), REFUSED.values(), ids=REFUSED)
def test_dangerous_and_damaged_archives_are_refused(
    tmp_path: Path, write: Callable[[Path], Path], message: str
) -> None:
    refused(write(tmp_path), message)


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_cut_short_is_refused(tmp_path: Path, kind: str) -> None:
    noise = np.random.default_rng(0).bytes(50_000)
    archive = make(tmp_path / kind, {"a": noise, "b": noise[::-1]})
    content = archive.read_bytes()
    if kind == "x.tar":  # it is filled up with blocks of zeros, of which one is enough
        content = content[:102_400]
    for share in (0.3, 0.95):
        archive.write_bytes(content[: int(len(content) * share)])
        refused(archive, "damaged")


def test_a_tar_cut_anywhere_before_its_end_is_refused(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "x.tar", TEN)
    whole = archive.read_bytes()
    last = len(TEN) * 3 * 512
    for length in (511, 512, 1536, 1537, 5000, last - 1, last, last + 511):
        archive.write_bytes(whole[:length])
        refused(archive, "damaged")
    # One of the two blocks that end it is as good as both.
    archive.write_bytes(whole[: last + 512])
    extract(archive, tmp_path / "out")
    assert content_of(tmp_path / "out") == TEN


@pytest.mark.parametrize("kind", ["x.zip", "x.tar.gz"])
def test_an_archive_that_declares_too_much_is_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make(tmp_path / kind, {"a": bytes(600), "b": bytes(600), "c": b""})
    extract(archive, tmp_path / "enough", max_bytes=1200)
    with pytest.raises(UserError, match="unpacks to more than 1,199 bytes"):
        extract(archive, tmp_path / "out", max_bytes=1199)
    monkeypatch.setattr(archive_module, "MAX_MEMBERS", 2)
    refused(archive, "or 2 files; refused")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["enough", kind]


def test_what_is_in_the_way_or_missing_is_reported_and_an_interruption_leaves_nothing(
    tmp_path: Path,
) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    archive = make_zip(tmp_path / "x.zip", FILES)
    with pytest.raises(KeyboardInterrupt):
        extract(archive, tmp_path / "out", progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]
    with pytest.raises(UserError, match="found nothing"):
        extract(tmp_path / "missing.zip", tmp_path / "out")
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", "expected an archive at .*, found a folder")
    (tmp_path / "out").mkdir()
    refused(archive, "exists already; remove it")


def test_a_failing_disk_is_a_failure_and_not_a_bad_archive(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "x.tar", {"a" * 300: b"1"})
    with pytest.raises(RunFailure, match=r"cannot unpack .*x\.tar to .*out: File name too long"):
        extract(archive, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar"]


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["x.zip", "x.tar", "x.tar.gz"]),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_damaged_bytes_unpack_or_fail_cleanly_and_never_write_outside(
    tmp_path_factory: pytest.TempPathFactory, kind: str, changes: list[tuple[float, int]]
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    archive = make(folder / kind, {"d/a.txt": b"hello", "d/b.txt": b"world" * 20})
    content = bytearray(archive.read_bytes())
    used = len(content) if kind != "x.tar" else 3 * 1024  # the rest of a tar is zeros
    for where, value in changes:
        content[int(where * (used - 1))] = value
    archive.write_bytes(content)
    left, message = {kind, "out"}, str(archive)
    try:
        extract(archive, folder / "out")
    except (UserError, RunFailure) as error:
        left, message = {kind}, str(error)
    assert {path.name for path in folder.iterdir()} == left
    assert str(archive) in message
    assert "\n" not in message
