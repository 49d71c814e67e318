"""The laws of unpacking: all of it or nothing, inside the folder and nowhere else."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwise.datasets import archive as archive_module
from driftwise.datasets.archive import extract
from driftwise.errors import RunFailure, UserError

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
def test_what_went_in_comes_out_and_nothing_else_is_left(tmp_path: Path, name: str) -> None:
    archive = make(tmp_path / name, FILES)
    extract(archive, tmp_path / "deep" / "out")
    assert content_of(tmp_path / "deep" / "out") == FILES
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


def test_empty_folders_come_out_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as out:
        out.mkdir("set/empty")
    extract(tmp_path / "x.zip", tmp_path / "zip")
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name in (".", "./set", "./set/empty"):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
    extract(tmp_path / "x.tar", tmp_path / "tar")
    for folder in ("zip", "tar"):
        assert (tmp_path / folder / "set" / "empty").is_dir()


def test_the_folder_is_as_open_as_any_new_one_whatever_the_archive_says(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "x.tar", {"a": b"1"}, mode=0o4777)
    extract(archive, tmp_path / "out")
    (tmp_path / "usual").mkdir()
    (tmp_path / "file").touch()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert (tmp_path / "out" / "a").stat().st_mode == (tmp_path / "file").stat().st_mode


@pytest.mark.parametrize("kind", ["x.zip", "x.tar.gz"])
@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../evil", "/tmp/evil", "..", "C:/evil", "C:evil", "..\\evil", "\\\\host\\x"],
)
def test_a_path_that_climbs_out_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    refused(make(tmp_path / kind, {"good": b"1", name: b"2"}), "climbs out of the folder; refused")


def test_a_name_with_a_backslash_is_refused(tmp_path: Path) -> None:
    refused(make_tar(tmp_path / "x.tar", {"a\\b": b"1"}), "no name for a file")


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    archive = make_tar(tmp_path / "x.tar", {"a": b""}, type=kind, linkname="../secret")
    refused(archive, "'a', a link or a device; only files and folders")


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", {"a": b"../secret"}, mode=stat.S_IFLNK | 0o777)
    refused(archive, "'a', a link or a device")


@pytest.mark.parametrize("kind", ["x.zip", "x.tar"])
def test_a_file_that_stands_where_a_folder_belongs_is_refused(tmp_path: Path, kind: str) -> None:
    refused(make(tmp_path / kind, {"a": b"1", "a/b": b"2"}), "'a/b' twice")


def test_a_folder_that_stands_where_a_file_is_already_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as out:
        out.writestr("a", b"1")
        out.mkdir("a")
    refused(tmp_path / "x.zip", "'a/' twice")


def test_a_size_below_zero_is_refused(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "x.tar", {"a": b""}, pax_headers={"size": "-512"})
    refused(archive, "damaged|unpacks to more than")


def test_a_file_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as out:
        out.writestr("a", b"1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            out.writestr("a", b"2")
    refused(tmp_path / "x.zip", "'a' twice")


@pytest.mark.parametrize("kind", ["x.zip", "x.tar.gz"])
def test_an_archive_that_declares_too_much_is_refused(tmp_path: Path, kind: str) -> None:
    archive = make(tmp_path / kind, {"a": bytes(600), "b": bytes(600)})
    extract(archive, tmp_path / "enough", max_bytes=1200)
    with pytest.raises(UserError, match="unpacks to more than 1,199 bytes"):
        extract(archive, tmp_path / "out", max_bytes=1199)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["enough", kind]


def test_an_archive_of_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "MAX_MEMBERS", 2)
    refused(make_tar(tmp_path / "x.tar.gz", {"a": b"", "b": b"", "c": b""}), "or 2 files; refused")


def test_a_zip_that_lies_about_a_size_writes_no_more_than_it_declared(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", {"a": bytes(100_000)})
    lying = archive.read_bytes().replace(struct.pack("<I", 100_000), struct.pack("<I", 100))
    archive.write_bytes(lying)
    refused(archive, "is damaged")


def test_an_encrypted_file_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", {"a": b"1"})
    content = bytearray(archive.read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1
    archive.write_bytes(content)
    refused(archive, "'a', which is encrypted")


def test_a_way_of_compressing_that_is_not_known_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", {"a": b"1"})
    content = bytearray(archive.read_bytes())
    content[content.index(b"PK\1\2") + 10] = content[8] = 99
    archive.write_bytes(content)
    refused(archive, "no known zip or tar .*compression method")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_an_archive_cut_short_is_refused(tmp_path: Path, kind: str, share: float) -> None:
    noise = np.random.default_rng(0).bytes(50_000)
    archive = make(tmp_path / kind, {"a": noise, "b": noise[::-1]})
    content = archive.read_bytes()
    if kind == "x.tar":  # it is filled up with blocks of nothing, of which one is enough
        content = content[:102_400]
    archive.write_bytes(content[: int(len(content) * share)])
    refused(archive, "damaged")


TEN = {f"set/{number}.txt": bytes([number]) * 1000 for number in range(10)}
"""In a plain tar each takes a block of 512 bytes for its name and two for its content."""


def test_a_tar_cut_anywhere_before_its_end_is_refused(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "x.tar", TEN)
    whole = archive.read_bytes()
    last = len(TEN) * 3 * 512
    for length in (511, 512, 1536, 1537, 3 * 1536, 5000, last - 1, last, last + 511):
        archive.write_bytes(whole[:length])
        refused(archive, "damaged")
    # One of the two blocks that end it is as good as both.
    archive.write_bytes(whole[: last + 512])
    extract(archive, tmp_path / "out")
    assert content_of(tmp_path / "out") == TEN


@pytest.mark.parametrize("kind", ["x.tar", "x.tar.gz"])
@pytest.mark.parametrize("spoilt", [b"\xff", b"\0"])
def test_a_tar_with_a_spoilt_name_in_the_middle_is_refused(
    tmp_path: Path, kind: str, spoilt: bytes
) -> None:
    whole = bytearray(make_tar(tmp_path / "x.tar", TEN).read_bytes())
    whole[5 * 1536 : 5 * 1536 + 512] = spoilt * 512
    (tmp_path / "x.tar").unlink()
    content = bytes(whole) if kind == "x.tar" else gzip.compress(bytes(whole))
    (tmp_path / kind).write_bytes(content)
    refused(tmp_path / kind, "damaged")


@pytest.mark.parametrize("lost", [1, 4, 8])
def test_a_gzipped_tar_without_its_checksum_is_refused(tmp_path: Path, lost: int) -> None:
    archive = make_tar(tmp_path / "x.tgz.gz", TEN).rename(tmp_path / "x.tgz")
    archive.write_bytes(archive.read_bytes()[:-lost])
    refused(archive, "damaged")


def test_a_gzipped_tar_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "x.tar.gz", TEN)
    content = bytearray(archive.read_bytes())
    content[-8] ^= 1
    archive.write_bytes(content)
    refused(archive, "damaged")


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_text("hello")
    refused(tmp_path / "x.zip", "damaged or no known zip or tar")
    (tmp_path / "empty.tar").touch()
    refused(tmp_path / "empty.tar", "damaged or no known zip or tar")
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", "expected an archive at .*, found a folder")
    with pytest.raises(UserError, match="found nothing"):
        extract(tmp_path / "missing.zip", tmp_path / "out")


def test_an_existing_folder_is_never_touched(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", FILES)
    (tmp_path / "out").mkdir()
    refused(archive, "exists already; remove it")


def test_an_interrupted_unpacking_leaves_nothing(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", FILES)

    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(archive, tmp_path / "out", progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]


def test_a_disk_that_does_not_take_it_is_a_failure_and_not_a_bad_archive(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "x.tar", {"a" * 300: b"1"})
    with pytest.raises(RunFailure, match=r"cannot unpack .*x\.tar to .*out: File name too long"):
        extract(archive, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar"]


@pytest.mark.parametrize("kind", ["x.zip", "x.tar.gz"])
def test_progress_rises_to_the_size_of_the_archive(tmp_path: Path, kind: str) -> None:
    archive = make(tmp_path / kind, FILES)
    size = archive.stat().st_size
    heard: list[tuple[int, int | None]] = []
    extract(archive, tmp_path / "out", progress=lambda done, total: heard.append((done, total)))
    assert heard == sorted(heard)
    assert heard[-1] == (size, size)
    assert len(heard) == len(FILES) + 1


@settings(deadline=None, max_examples=150)
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
    left, told = {kind, "out"}, str(archive)
    try:
        extract(archive, folder / "out")
    except (UserError, RunFailure) as error:
        left, told = {kind}, str(error)
    assert {path.name for path in folder.iterdir()} == left
    assert str(archive) in told
    assert "\n" not in told
