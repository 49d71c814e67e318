"""Whatever is wrong with a data set on disk is found, and all of it."""

from __future__ import annotations

import gzip
import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_tools import (
    WRITERS,
    HuggingFaceTable,
    empty_machine,
    pixels,
    pretend_hugging_face,
    write_cifar10,
    write_clear10,
    write_fashion_mnist,
    write_images,
    write_pacs,
    write_tiny_imagenet,
    write_yearbook,
)

from driftwise.datasets.catalogue import KNOWN, RemoteFile
from driftwise.datasets.library import find, load
from driftwise.datasets.own import load_own
from driftwise.datasets.verify import count, verify, verify_own
from driftwise.errors import UserError
from driftwise.types import Dataset


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_machine(tmp_path, monkeypatch)


def as_if_official(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what lies in a folder for the official files."""
    contents = {}
    for file in folder.iterdir():
        content = file.read_bytes()
        unzipped = gzip.decompress(content) if file.suffix == ".gz" else content
        contents[file.name.removesuffix(".gz")] = hashlib.md5(unzipped).hexdigest()
    known = replace(KNOWN[name], contents=contents, num_samples=None)
    monkeypatch.setitem(KNOWN, name, known)


def test_counts_are_those_of_a_slow_count() -> None:
    rng = np.random.default_rng(1)
    dataset = Dataset(
        images=np.zeros((50, 1, 1, 1), np.uint8),
        labels=rng.integers(0, 3, 50),
        class_names=("a", "b", "c"),
        is_test=rng.random(50) < 0.3,
        domains=rng.integers(0, 2, 50),
        domain_names=("old", "new"),
    )
    counts = count(dataset)
    assert list(counts) == ["train", "test", "old", "new"]
    assert dataset.is_test is not None
    assert dataset.domains is not None
    for label in range(3):
        samples = [sample for sample in range(50) if dataset.labels[sample] == label]
        assert counts["train"][label] == sum(not dataset.is_test[sample] for sample in samples)
        assert counts["test"][label] == sum(bool(dataset.is_test[sample]) for sample in samples)
        assert counts["old"][label] == sum(dataset.domains[sample] == 0 for sample in samples)
        assert counts["new"][label] == sum(dataset.domains[sample] == 1 for sample in samples)


@pytest.mark.parametrize("name", WRITERS)
def test_a_whole_set_can_be_read_and_counted(
    machine: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = WRITERS[name](machine / "sets")
    monkeypatch.setitem(KNOWN, name, replace(KNOWN[name], contents={}, num_samples=None))
    found = verify(name, folder)
    assert found.is_sound
    assert found.notes == ()
    assert found.path == find(name, folder)
    dataset = load(name, folder)
    assert found.class_names == dataset.class_names
    assert found.counts == count(dataset)


@pytest.mark.parametrize("zipped", [True, False])
def test_official_files_are_recognised_by_their_content_however_they_are_zipped(
    machine: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool
) -> None:
    folder = write_fashion_mnist(machine / "sets", zipped=zipped)
    as_if_official("fashion-mnist", folder, monkeypatch)
    for file in folder.glob("*.gz"):  # another packager, other bytes
        file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()), 1, mtime=1))
    found = verify("fashion-mnist", folder)
    assert found.is_sound
    assert sorted(found.right_sums) == sorted(file.name for file in folder.iterdir())


def test_a_changed_pixel_is_found(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_fashion_mnist(machine / "sets", zipped=False)
    as_if_official("fashion-mnist", folder, monkeypatch)
    file = folder / "t10k-images-idx3-ubyte"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    found = verify("fashion-mnist", folder)
    assert not found.is_sound
    assert len(found.problems) == 1
    assert f"{file}: not the official file" in found.problems[0]
    assert found.counts is not None  # it can be read all the same


def test_the_archive_beside_the_folder_is_checked_too(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_cifar10(machine / "sets")
    made = folder / "made.tar.gz"
    made.write_bytes(b"archive")
    remote = RemoteFile(
        url="http://x/made.tar.gz", md5=hashlib.md5(b"archive").hexdigest(), extract=True
    )
    known = replace(KNOWN["cifar-10"], files=(remote,), contents={}, num_samples=None)
    monkeypatch.setitem(KNOWN, "cifar-10", known)
    assert verify("cifar-10", folder).right_sums == ("made.tar.gz",)
    made.write_bytes(b"other")
    (problem,) = verify("cifar-10", folder).problems
    assert str(made) in problem


def test_a_part_of_a_set_is_noted_and_no_problem(machine: Path) -> None:
    found = verify("pacs", write_pacs(machine / "sets"))
    assert found.is_sound
    assert found.notes == ("16 + 0 images to train and to test on; the official set has 9,991 + 0",)


def test_every_image_that_does_not_decode_is_listed(machine: Path) -> None:
    for name, folder in (
        ("pacs", write_pacs(machine / "pacs")),
        ("clear-10", write_clear10(machine / "clear")),
    ):
        bad = sorted(folder.rglob("*.png"))[1::5]
        for file in bad:
            file.write_bytes(b"no image")
        found = verify(name, folder)
        named = [problem for problem in found.problems if "is not a JPEG" in problem]
        assert len(named) == len(found.problems) == len(bad)
        assert all(any(str(file) in problem for problem in named) for file in bad)


def test_a_image_of_the_wrong_size_is_a_problem(machine: Path) -> None:
    folder = write_tiny_imagenet(machine / "sets")
    (file,) = write_images(folder / "tiny-imagenet-200/val/images", 1, side=32, ending="JPEG")
    (problem,) = verify("tiny-imagenet", folder).problems
    assert f"{file}: expected 64 x 64 pixels" in problem


def test_a_damaged_copy_in_the_cache_is_a_problem(machine: Path) -> None:
    file = write_yearbook(machine / "home/data/yearbook.npz")
    load("yearbook")
    load("yearbook", file)
    assert verify("yearbook").is_sound
    (copy,) = (machine / "cache/datasets").glob("yearbook-" + "?" * 16)
    content = bytearray((copy / "images.u8").read_bytes())
    content[100] ^= 1
    (copy / "images.u8").write_bytes(content)
    (problem,) = verify("yearbook").problems
    assert f"{copy}: images.u8: its checksum differs; remove it" in problem
    assert verify("yearbook", file).is_sound  # that one has a copy of its own


def test_the_embedded_set_is_counted(machine: Path) -> None:
    found = verify("digits")
    assert found.path is None
    assert found.is_sound
    assert found.counts is not None
    assert sum(found.counts["all"]) == 1797


def test_a_path_to_the_embedded_set_is_refused(machine: Path) -> None:
    for use in (verify, load):
        with pytest.raises(UserError, match=r"digits comes inside a package .*; leave out x$"):
            use("digits", Path("x"))


def test_a_set_that_is_nowhere_cannot_be_verified(machine: Path) -> None:
    with pytest.raises(UserError, match="cifar-10 was not found"):
        verify("cifar-10")


def test_own_images_are_counted_and_everything_odd_is_reported(machine: Path) -> None:
    folder = machine / "pets"
    for domain in ("old", "new"):
        write_images(folder / domain / "cats", 3)
    write_images(folder / "new" / "dogs", 2)
    (folder / "new" / "dogs" / "notes.txt").write_text("x")
    found = verify_own(folder)
    assert found.is_sound
    assert found.counts == {"all": (6, 2), "new": (3, 2), "old": (3, 0)}
    assert any("'old' has no images of dogs" in note for note in found.notes)
    assert any(f"1 file is no image by name and left out: {folder}" in it for it in found.notes)
    bad = [folder / "new/cats/0.png", folder / "old/cats/2.png"]
    for file in bad:
        file.write_bytes(b"")
    found = verify_own(folder)
    assert found.problems == tuple(f"cannot use {file}: it is empty (0 bytes)" for file in bad)
    assert found.counts == {"all": (6, 2), "new": (3, 2), "old": (3, 0)}


def test_a_damaged_copy_of_own_images_is_a_problem(machine: Path) -> None:
    folder, file = machine / "my pets.2024", machine / "mine.npz"
    for name in ("cats", "dogs"):
        write_images(folder / name, 2)
    np.savez(file, images=pixels(5, 4, 4), labels=np.array([0, 1, 1, 2, 0]))
    for path in (folder, file):
        load_own(path)
        assert verify_own(path).is_sound
        (copy,) = (
            it
            for it in (machine / "cache/datasets").iterdir()
            if it.name.startswith("mine" if path == file else "mypets")
        )
        content = bytearray((copy / "images.u8").read_bytes())
        content[7] ^= 1
        (copy / "images.u8").write_bytes(content)
        found = verify_own(path)
        assert found.problems == (
            f"{copy}: images.u8: its checksum differs; remove it to have it made again",
        )
        assert found.counts is not None


def test_images_that_differ_in_size_are_sound_but_need_a_size(machine: Path) -> None:
    folder = machine / "pets"
    write_images(folder / "cats", 2, side=8)
    (folder / "cats/0.png").write_bytes(b"")
    write_images(folder / "dogs", 2, side=9)
    found = verify_own(folder)
    assert found.problems == (f"cannot use {folder / 'cats/0.png'}: it is empty (0 bytes)",)
    (note,) = found.notes
    assert note.startswith("images differ in size, so that a size must be given to load them:")
    assert f"{folder / 'dogs/0.png'}: expected 8 x 8" in note
    write_images(folder / "cats", 1, side=8)
    assert verify_own(folder).is_sound
    with pytest.raises(UserError, match="give a size"):
        load_own(folder)
    load_own(folder, size=8)


def test_a_folder_without_a_single_usable_image_lists_them_all(machine: Path) -> None:
    files = write_images(machine / "pets/cats", 3)
    for file in files:
        file.write_bytes(b"")
    found = verify_own(machine / "pets")
    assert found.problems == tuple(f"cannot use {file}: it is empty (0 bytes)" for file in files)
    assert found.notes == ()


def test_own_arrays_by_year_are_not_taken_for_portraits(machine: Path) -> None:
    file = machine / "mine.npz"
    labels, years = np.array([0, 1, 1, 0]), np.array([1990, 1990, 1991, 1991])
    np.savez(file, images=pixels(4, 4, 4), labels=labels, year=years)
    found = verify_own(file)
    assert (found.name, found.class_names) == ("mine.npz", ("0", "1"))
    assert found.counts == {"all": (2, 2), "1990": (1, 1), "1991": (1, 1)}


def test_a_hugging_face_folder_is_verified_by_reading_it(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_hugging_face(monkeypatch, HuggingFaceTable(pixels(3, 5, 6, 3), ["cat", "dog", "dog"]))
    (machine / "saved").mkdir()
    (machine / "saved/dataset_dict.json").write_text("{}")
    found = verify_own(machine / "saved")
    assert (found.is_sound, found.class_names) == (True, ("cat", "dog"))
    assert found.counts == {"all": (1, 2)}
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="needs the package datasets"):
        verify_own(machine / "saved")


def test_a_path_that_holds_a_known_set_is_verified_as_that(machine: Path) -> None:
    found = verify_own(write_pacs(machine / "sets"))
    assert found.name == "pacs"
    assert found.notes


@pytest.mark.parametrize("name", WRITERS)
def test_real_sets_that_are_on_this_machine_are_sound_and_complete(name: str) -> None:
    if find(name) is None:
        pytest.skip("it is not on this machine")
    found = verify(name)
    assert found.problems == ()
    assert found.notes == ()
    if KNOWN[name].contents:
        assert found.right_sums


def test_verifying_keeps_nothing(machine: Path) -> None:
    verify("pacs", write_pacs(machine / "sets"))
    assert not (machine / "cache").exists()


def test_hidden_files_are_noted_too(machine: Path) -> None:
    for name in ("cats", "dogs"):
        write_images(machine / "pets" / name, 1)
    (machine / "pets/cats/.hidden.png").touch()
    assert verify_own(machine / "pets").notes == ("hidden files that are left out: 1",)
