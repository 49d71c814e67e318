"""A data set is decoded once; whatever happens to the cache, what comes out of it is right."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import numpy as np
import pytest
import torch

from driftwise.datasets import cache
from driftwise.datasets.cache import Source, cached, source_of, verified_sha256, verify_cache
from driftwise.datasets.reading import Allocate
from driftwise.errors import RunFailure, UserError
from driftwise.types import Dataset

ONE = "1" * 64
TWO = "2" * 64
SHAPE = (6, 3, 2, 1)
PIXELS = np.arange(36, dtype=np.uint8).reshape(SHAPE)


class Reader:
    """Reads a tiny data set, and counts how often."""

    def __init__(self, first_pixel: int = 0) -> None:
        self.reads = 0
        self._first_pixel = first_pixel

    def __call__(self, allocate: Allocate) -> Dataset:
        self.reads += 1
        images = allocate(SHAPE)
        images[:] = PIXELS + self._first_pixel
        return Dataset(
            images=images,
            labels=np.arange(6) % 2,
            class_names=("boot", "bag"),
            is_test=np.arange(6) > 3,
            domains=np.arange(6) // 2,
            domain_names=("photo", "sketch", "cartoon"),
        )


def made_up(fingerprint: str) -> Source:
    return Source(fingerprint=fingerprint)


def fingerprint(paths: list[Path], tag: str = "") -> str:
    return source_of(paths, tag=tag).fingerprint


def names(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "datasets").iterdir())


def assert_equal(one: Dataset, other: Dataset) -> None:
    for column in ("images", "labels", "is_test", "domains"):
        np.testing.assert_array_equal(getattr(one, column), getattr(other, column), strict=True)
    assert one.class_names == other.class_names
    assert one.domain_names == other.domain_names


def in_memory() -> Dataset:
    return Reader()(lambda shape: np.empty(shape, np.uint8))


def cache_folder(home: Path) -> Path:
    (name,) = names(home)
    return home / "datasets" / name


@pytest.mark.parametrize("is_default", [True, False])
def test_a_data_set_is_read_once_and_comes_back_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_default: bool
) -> None:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path if is_default else "/nowhere"))
    home = None if is_default else tmp_path
    read = Reader()
    for _ in range(3):
        assert_equal(cached("tiny", made_up(ONE), read, home=home), in_memory())
    assert read.reads == 1
    assert names(tmp_path) == [f"tiny-{ONE[:16]}"]
    assert verify_cache(cache_folder(tmp_path)) == []


def test_columns_that_a_data_set_lacks_stay_absent(tmp_path: Path) -> None:
    def read(allocate: Allocate) -> Dataset:
        return Dataset(images=allocate(SHAPE), labels=np.zeros(6, np.int64), class_names=("boot",))

    for _ in range(2):
        found = cached("tiny", made_up(ONE), read, home=tmp_path)
        assert (found.is_test, found.domains, found.domain_names) == (None, None, ())


def test_torch_takes_the_images_without_a_copy_and_writing_to_them_changes_no_file(
    tmp_path: Path,
) -> None:
    for _ in range(2):  # just built, and opened again
        images = cached("tiny", made_up(ONE), Reader(), home=tmp_path).images
        assert type(images) is np.ndarray
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tensor = torch.from_numpy(images)
        assert tensor.data_ptr() == images.ctypes.data
    other = cached("tiny", made_up(ONE), Reader(), home=tmp_path)
    images[:] = 255
    np.testing.assert_array_equal(other.images, PIXELS)
    assert verify_cache(cache_folder(tmp_path)) == []


def test_a_process_reads_the_pixels_once_to_verify_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed: list[str] = []
    sha256 = cache._sha256

    def noted(file: Path) -> str:
        summed.append(file.name)
        return sha256(file)

    cached("tiny", made_up(ONE), Reader(), home=tmp_path)
    monkeypatch.setattr(cache, "_VERIFIED", {})  # as in a new process
    monkeypatch.setattr(cache, "_sha256", noted)
    for _ in range(2):
        cached("tiny", made_up(ONE), Reader(), home=tmp_path)
        assert summed == ["images.u8", "labels.npy", "is_test.npy", "domains.npy"]


@pytest.mark.parametrize("kind", ["own array", "fewer samples", "joined", "turned"])
def test_readers_may_return_other_images_than_they_were_given(tmp_path: Path, kind: str) -> None:
    def read(allocate: Allocate) -> Dataset:
        given = [allocate((6, 3, 2, 1)), allocate((6, 3, 2, 1))]
        for array in given:
            array[:] = PIXELS
        images = {
            "own array": PIXELS,
            "fewer samples": given[0][:4],
            "joined": np.concatenate(given),
            "turned": given[1][::-1],
        }[kind]
        expected.append(images.copy())
        return Dataset(images=images, labels=np.zeros(len(images), np.int64), class_names=("a",))

    expected: list[np.ndarray] = []
    for _ in range(2):
        found = cached("tiny", made_up(ONE), read, home=tmp_path)
        np.testing.assert_array_equal(found.images, expected[0])
    folder = cache_folder(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == [
        "images.u8",
        "labels.npy",
        "meta.json",
    ]


def fail_with(error: BaseException) -> Callable[[Allocate], Dataset]:
    def read(allocate: Allocate) -> Dataset:
        allocate(SHAPE)[:3] = 1
        raise error

    return read


def read_objects(allocate: Allocate) -> Dataset:
    labels = np.array([{}] * 6, dtype=object)
    return Dataset(images=allocate(SHAPE), labels=labels, class_names=("a",))


def read_nothing(allocate: Allocate) -> Dataset:
    return Dataset(images=allocate((0, 3, 2, 1)), labels=np.zeros(0, int), class_names=())


FAILING: dict[str, tuple[Callable[[Allocate], Dataset], type[BaseException], str]] = {
    "a user's error": (fail_with(UserError("truncated")), UserError, "truncated"),
    "a lost file": (fail_with(OSError("gone")), OSError, "gone"),
    "Ctrl-C": (fail_with(KeyboardInterrupt()), KeyboardInterrupt, ""),
    "labels that would need pickle": (read_objects, ValueError, "allow_pickle"),
    "an empty data set": (read_nothing, UserError, "at least one image"),
}


@pytest.mark.parametrize(("read", "error", "message"), FAILING.values(), ids=FAILING)
def test_a_failed_build_leaves_nothing_behind_and_keeps_the_cache_of_the_old_source(
    tmp_path: Path, read: Callable[[Allocate], Dataset], error: type[BaseException], message: str
) -> None:
    with pytest.raises(error) as caught:
        cached("tiny", made_up(ONE), read, home=tmp_path)
    assert message in str(caught.value)
    assert names(tmp_path) == []
    cached("tiny", made_up(ONE), Reader(), home=tmp_path)
    with pytest.raises(error):
        cached("tiny", made_up(TWO), read, home=tmp_path)
    assert names(tmp_path) == [f"tiny-{ONE[:16]}"]


def test_a_changed_source_is_read_again_and_its_old_cache_removed(tmp_path: Path) -> None:
    before, after = Reader(), Reader(first_pixel=100)
    old = cached("tiny", made_up(ONE), before, home=tmp_path)
    for other in ("tiny-er", "tin"):
        cached(other, made_up(ONE), Reader(), home=tmp_path)
    (tmp_path / "datasets" / f".tiny-{'3' * 16}.building").mkdir()  # of a process long gone
    new = cached("tiny", made_up(TWO), after, home=tmp_path)
    np.testing.assert_array_equal(new.images, PIXELS + 100)
    np.testing.assert_array_equal(old.images, PIXELS)  # whoever has it open keeps it
    assert names(tmp_path) == [f"tin-{ONE[:16]}", f"tiny-{TWO[:16]}", f"tiny-er-{ONE[:16]}"]


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("images.u8", "truncated"),
        ("images.u8", "flipped"),
        ("images.u8", "missing"),
        ("labels.npy", "longer"),
        ("labels.npy", "half zeroed"),
        ("is_test.npy", "missing"),
        ("meta.json", "truncated"),
        ("meta.json", "flipped"),
        ("meta.json", "empty"),
        ("meta.json", "missing"),
    ],
)
def test_a_damaged_cache_is_built_again_with_a_warning(
    tmp_path: Path, file: str, damage: str
) -> None:
    read = Reader()
    cached("tiny", made_up(ONE), read, home=tmp_path)
    folder = cache_folder(tmp_path)
    whole = (folder / file).read_bytes()
    if damage == "missing":
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(
            {
                "truncated": whole[:-1],
                "longer": whole + b"x",
                "empty": b"",
                "half zeroed": whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2),
                "flipped": whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:],
            }[damage]
        )
    assert len(verify_cache(folder)) == 1
    warned: list[str] = []
    for _ in range(2):
        found = cached("tiny", made_up(ONE), read, home=tmp_path, warn=warned.append)
        assert_equal(found, in_memory())
    assert read.reads == 2
    assert len(warned) == 1
    assert "tiny is damaged" in warned[0]
    assert file in warned[0]
    assert "\n" not in warned[0]
    assert names(tmp_path) == [folder.name]


def test_a_cache_of_another_format_is_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Reader()
    with monkeypatch.context() as patch:
        patch.setattr(cache, "FORMAT", 99)
        cached("tiny", made_up(ONE), read, home=tmp_path)
    warned: list[str] = []
    cached("tiny", made_up(ONE), read, home=tmp_path, warn=warned.append)
    assert read.reads == 2
    assert "tiny is outdated and built anew" in warned[0]
    assert "expected format 2, got 99" in warned[0]


def test_something_else_in_the_place_of_a_cache_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    assert verify_cache(tmp_path / "nothing") == ["meta.json: No such file or directory"]
    for content in ("[]", "{}", "null", json.dumps({"format": 1, "sha256": "0"})):
        (tmp_path / "meta.json").write_text(content)
        assert verify_cache(tmp_path) == ["meta.json: its checksum differs"]


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        (f"tiny-{ONE[:16]}", "file"),
        (f"tiny-{ONE[:16]}", "link to nothing"),
        (f".tiny-{ONE[:16]}.building", "link to a folder"),
    ],
)
def test_whatever_stands_where_a_cache_belongs_is_replaced(
    tmp_path: Path, place: str, kind: str
) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").touch()
    if kind == "file":
        (tmp_path / "datasets" / place).write_text("in the way")
    else:
        target = "elsewhere" if kind == "link to a folder" else "nowhere"
        (tmp_path / "datasets" / place).symlink_to(tmp_path / target)
    read = Reader()
    for _ in range(2):
        assert_equal(cached("tiny", made_up(ONE), read, home=tmp_path), in_memory())
    assert read.reads == 1
    assert names(tmp_path) == [f"tiny-{ONE[:16]}"]
    assert (tmp_path / "elsewhere" / "kept").exists()


def test_a_cache_folder_that_cannot_be_written_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunFailure, match=r"^cannot write .*DRIFTWISE_CACHE[^\n]*$"):
        cached("tiny", made_up(ONE), Reader(), home=tmp_path / "file")


# One clean process that has imported torch already, from which the others are forked in no time.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["driftwise.types"])


def start(work: Callable[[Path], None], home: Path) -> ForkServerProcess:
    process = PROCESSES.Process(target=work, args=(home,))
    process.start()
    return process


def build_and_wait_to_be_killed(home: Path) -> None:
    def read(allocate: Allocate) -> Dataset:
        allocate(SHAPE)[:3] = 1
        (home / "half-way").touch()
        time.sleep(60)
        raise AssertionError

    cached("tiny", made_up(ONE), read, home=home)


def build_slowly(home: Path) -> None:
    def read(allocate: Allocate) -> Dataset:
        with (home / "reads").open("a") as log:
            log.write("x")
        time.sleep(0.3)
        return Reader()(allocate)

    assert_equal(cached("tiny", made_up(ONE), read, home=home), in_memory())


def read_300_megabytes(allocate: Allocate) -> Dataset:
    images = allocate((25_000, 64, 64, 3))
    for start in range(0, len(images), 1000):
        images[start : start + 1000] = start % 251
    return Dataset(images=images, labels=np.zeros(len(images), np.int64), class_names=("boot",))


def build_on_a_full_disk(home: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000_000, 10_000_000))
    with pytest.raises(RunFailure, match=r"^cannot write [^\n]*free some space[^\n]*$"):
        cached("large", made_up(ONE), read_300_megabytes, home=home)


def test_a_build_killed_half_way_is_neither_used_nor_in_the_way(tmp_path: Path) -> None:
    process = start(build_and_wait_to_be_killed, tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "half-way").exists():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert names(tmp_path) == [f".tiny-{ONE[:16]}.building", ".tiny.lock"]
    warned: list[str] = []
    assert_equal(
        cached("tiny", made_up(ONE), Reader(), home=tmp_path, warn=warned.append), in_memory()
    )
    assert warned == []  # nothing was damaged: it was never there
    assert names(tmp_path) == [f"tiny-{ONE[:16]}"]


def test_processes_that_want_it_at_once_build_it_once(tmp_path: Path) -> None:
    processes = [start(build_slowly, tmp_path) for _ in range(3)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "reads").read_text() == "x"
    assert names(tmp_path) == [f"tiny-{ONE[:16]}"]


def test_a_full_disk_is_reported_instead_of_ending_the_process(tmp_path: Path) -> None:
    process = start(build_on_a_full_disk, tmp_path)
    process.join()
    assert process.exitcode == 0
    assert names(tmp_path) == []


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    for name in ("train/boot/0.png", "train/bag/0.png", "val/1.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"pixels")
        os.utime(root / name, ns=(0, 1_700_000_000_000_000_001))
    return root


def test_a_fingerprint_shows_every_change_of_a_source_and_survives_a_move(source: Path) -> None:
    file, spare = source / "val/1.png", source / "val/2.png"
    seen = [fingerprint([source])]

    def note() -> None:
        seen.append(fingerprint([source]))

    os.utime(file, ns=(0, 1_700_000_000_000_000_002))
    note()
    file.write_bytes(b"other pixels")
    os.utime(file, ns=(0, 1_700_000_000_000_000_002))
    note()
    file.rename(spare)
    note()
    spare.rename(source / "train/2.png")
    note()
    spare.touch()
    note()
    (source / "train/2.png").unlink()
    note()
    seen += [
        fingerprint([source], tag="reader 2"),
        fingerprint([source, source]),
        fingerprint([spare]),
        fingerprint([]),
    ]
    assert len(set(seen)) == len(seen) == 11
    assert all(len(text) == 64 and int(text, 16) for text in seen)
    file.touch()
    before = fingerprint([source / "train", source / "val/1.png"])
    assert fingerprint([source / "train", source / "val/1.png"]) == before
    moved = source.rename(source.with_name("moved"))
    assert fingerprint([moved / "train", moved / "val/1.png"]) == before


def test_a_fingerprint_follows_links_but_not_in_circles(source: Path) -> None:
    without = fingerprint([source])
    (source / "train/back").symlink_to(source, target_is_directory=True)
    (source / "nowhere").symlink_to(source / "missing")
    looped = fingerprint([source])
    assert looped != without
    assert looped == fingerprint([source])
    link = source.with_name("link")
    link.symlink_to(source, target_is_directory=True)
    assert fingerprint([link]) == looped


def write_in_secret(file: Path, content: bytes) -> None:
    """As many bytes as before, and the time set back."""
    before = file.stat()
    assert len(content) == before.st_size
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_source_that_has_changed_in_neither_size_nor_time_is_read_again(
    source: Path, tmp_path: Path
) -> None:
    file, read = source / "val/1.png", Reader()
    warned: list[str] = []

    def use() -> None:
        cached("tiny", source_of([source]), read, home=tmp_path, warn=warned.append)

    use()
    write_in_secret(file, b"pIxels")
    use()
    use()
    assert read.reads == 2
    assert len(warned) == 1
    assert "tiny is outdated and built anew" in warned[0]
    assert "though not their sizes and times" in warned[0]


def test_a_source_that_was_touched_and_is_the_same_is_not_read_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Reader()
    cached("tiny", source_of([source]), read, home=tmp_path)
    (source / "val/1.png").chmod(0o600)
    write_in_secret(source / "val/1.png", b"pixels")
    cached("tiny", source_of([source]), read, home=tmp_path)
    folder = cache_folder(tmp_path)
    assert verify_cache(folder) == []
    monkeypatch.setattr(Source, "sha256", None)  # not asked for again
    cached("tiny", source_of([source]), read, home=tmp_path)
    assert read.reads == 1


def test_the_verified_digest_is_that_of_all_pixels_and_of_nothing_else(tmp_path: Path) -> None:
    images = cached("tiny", made_up(ONE), Reader(), home=tmp_path).images
    assert verified_sha256(images) == hashlib.sha256(PIXELS.tobytes()).hexdigest()
    for other in (images[:4], images[::-1], images[:, :2], images.copy(), PIXELS):
        assert verified_sha256(other) is None


def test_a_missing_source_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^cannot read .*gone: No such file or directory$"):
        fingerprint([tmp_path / "gone"])
