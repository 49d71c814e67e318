"""Known data sets are found, decoded once, and reported missing in words that help."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_tools import WRITERS, empty_machine, write_cifar10, write_fashion_mnist, write_pacs

from driftwise.datasets import download
from driftwise.datasets.catalogue import KNOWN
from driftwise.datasets.library import cache_name, find, is_offline, load, status
from driftwise.datasets.readers import idx
from driftwise.datasets.readers.idx import read_idx
from driftwise.errors import UserError
from driftwise.types import Dataset


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_machine(tmp_path, monkeypatch)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every path that Fashion-MNIST was read from."""
    made: list[Path] = []

    def counted(path: Path, **settings: Any) -> Dataset:
        made.append(path)
        return read_idx(path, **settings)

    monkeypatch.setattr(idx, "read_idx", counted)
    return made


@pytest.fixture
def no_web(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, *_: object, **__: object) -> Path:
        raise AssertionError(f"asked for {url}")

    monkeypatch.setattr(download, "fetch", refuse)


@pytest.mark.parametrize("name", WRITERS)
def test_a_set_is_found_by_its_name_and_loaded_as_its_reader_gives_it(
    machine: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(name) is None
    hint = KNOWN[name].hints[0]
    monkeypatch.setenv("DRIFTWISE_DATA", str(machine / "named"))
    # test_data_places.py has the order of all places
    for folder in (machine / "system", machine / "named"):
        WRITERS[name](folder / hint)
        found = find(name)
        assert found is not None
        assert found.is_relative_to(folder)
    # A given path rules out all others.
    assert find(name, machine / "empty") is None
    found = find(name, WRITERS[name](machine / "sets"))
    assert found is not None
    assert found.is_relative_to(machine / "sets")
    expected = KNOWN[name].read(found, lambda shape: np.empty(shape, np.uint8))
    for dataset in (load(name, machine / "sets"), load(name, machine / "sets")):
        for column in ("images", "labels", "is_test", "domains"):
            np.testing.assert_equal(getattr(dataset, column), getattr(expected, column))
        assert dataset.class_names == expected.class_names
        assert dataset.domain_names == expected.domain_names


def test_the_second_use_reads_no_source_and_a_changed_source_is_read_anew(
    machine: Path, readings: list[Path]
) -> None:
    folder = write_fashion_mnist(machine / "home/data/fashion-mnist")
    first = load("fashion-mnist")
    assert load("fmnist-cd").labels.tolist() == first.labels.tolist()
    assert readings == [folder]
    labels = folder / "t10k-labels-idx1-ubyte.gz"
    shutil.copy(labels, machine / "kept")
    labels.unlink()
    shutil.copy(machine / "kept", labels)  # another time, the same bytes
    load("fashion-mnist")
    assert readings == [folder, folder]
    assert len(list((machine / "cache/datasets").iterdir())) == 1


def test_two_given_paths_keep_a_copy_each(machine: Path, readings: list[Path]) -> None:
    one, two = (write_fashion_mnist(machine / name) for name in ("one", "two"))
    for _ in range(2):
        load("fashion-mnist", one)
        load("fashion-mnist", two)
    assert readings == [one, two]
    assert cache_name("x", one) != cache_name("x", two)
    assert cache_name("x", one) == cache_name("x", one / ".." / "one")
    assert cache_name("x", None) == "x"


def test_files_beside_a_set_do_not_concern_its_copy(machine: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    write_pacs(machine / "sets")
    load("pacs", machine / "sets", progress=lambda *step: seen.append(step))
    assert seen[-1] == ("decoding pacs", 16, 16)
    (copy,) = (machine / "cache/datasets").iterdir()
    (machine / "sets" / "readme.txt").write_text("added later")
    load("pacs", machine / "sets")
    assert list((machine / "cache/datasets").iterdir()) == [copy]


def test_the_embedded_set_needs_no_place(machine: Path) -> None:
    assert load("digits").images.shape == (1797, 8, 8, 1)
    assert find("digits") is None
    assert not (machine / "cache").exists()


@pytest.mark.usefixtures("no_web")
def test_offline_one_error_lists_the_places_and_what_helps(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError) as caught:
        load("fashion-mnist")
    text = str(caught.value)
    names = "fashion-mnist, FashionMNIST/raw, fashion_mnist, fmnist"
    assert text.startswith(f"fashion-mnist was not found; searched for {names} in\n")
    for folder in ("home/.local/share/driftwise", "work/data", "home/data", "system"):
        assert f"  {machine / folder} (" in text
    for helpful in (
        "DRIFTWISE_DATA, which may name further folders, is not set",
        "driftwise data fetch fashion-mnist",
        "apt-get install dataset-fashion-mnist",
        'data="PATH"',
        "DRIFTWISE_OFFLINE is set",
    ):
        assert helpful in text
    assert len(text.splitlines()) <= 13
    monkeypatch.setenv("DRIFTWISE_DATA", str(machine / "named"))
    with pytest.raises(UserError) as caught:
        load("tiny-imagenet")
    assert str(caught.value).count(f"  {machine / 'named'} (DRIFTWISE_DATA)") == 1
    assert "not set" not in str(caught.value)


@pytest.mark.usefixtures("no_web")
def test_a_given_path_without_the_set_is_an_error_even_online(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRIFTWISE_OFFLINE")
    with pytest.raises(UserError, match="the path that was given") as caught:
        load("cifar-10", machine / "work")
    assert f"{machine / 'work'} (" in str(caught.value)
    assert str(machine / "home") not in str(caught.value)


@pytest.mark.usefixtures("no_web")
def test_sets_without_an_address_say_how_to_get_them_by_hand(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRIFTWISE_OFFLINE")
    for name in ("pacs", "yearbook"):
        with pytest.raises(UserError) as caught:
            load(name)
        assert KNOWN[name].homepage in str(caught.value)
        assert str(machine / "home/.local/share/driftwise" / name) in str(caught.value)
        assert "data fetch" not in str(caught.value)


def test_an_incomplete_set_is_reported_by_its_reader_and_not_called_missing(machine: Path) -> None:
    folder = write_cifar10(machine / "sets")
    (folder / "cifar-10-batches-py/data_batch_3").unlink()
    with pytest.raises(UserError, match=r"missing: data_batch_3"):
        load("cifar-10", folder)
    assert not list((machine / "cache/datasets").iterdir())


def test_the_list_says_what_is_here_and_how_large_it_is(machine: Path) -> None:
    folder = write_fashion_mnist(machine / "home/data/fashion-mnist")
    write_pacs(machine / "work/data/pacs")
    here = {line.known.name: line for line in status()}
    assert list(here) == list(KNOWN)
    assert {name for name, line in here.items() if line.is_here} == {
        "digits",
        "fashion-mnist",
        "pacs",
    }
    fashion = here["fashion-mnist"]
    assert fashion.path == folder
    assert fashion.bytes_on_disk == sum(file.stat().st_size for file in folder.iterdir())
    images = (machine / "work/data/pacs").rglob("*.png")
    assert here["pacs"].bytes_on_disk == sum(file.stat().st_size for file in images)
    assert (here["cifar-10"].path, here["cifar-10"].bytes_on_disk) == (None, None)


@pytest.mark.parametrize(("value", "offline"), [("", False), ("0", False), ("1", True)])
def test_offline_is_what_the_variable_says(
    monkeypatch: pytest.MonkeyPatch, value: str, offline: bool
) -> None:
    monkeypatch.setenv("DRIFTWISE_OFFLINE", value)
    assert is_offline() is offline
