"""The facts about known data sets hang together, and agree with real files where there are any."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_tools import WRITERS, pixels, write_images, write_yearbook

from driftwise import datasets
from driftwise.config import registry
from driftwise.config.presets import BENCHMARKS as PRESETS
from driftwise.datasets.catalogue import (
    BENCHMARKS,
    KNOWN,
    KnownSet,
    by_name,
    known_set,
    recognise,
)
from driftwise.datasets.readers.spam_assassin import PERIODS
from driftwise.datasets.reading import empty
from driftwise.errors import UserError

ON_DISK = [known for known in KNOWN.values() if not known.is_embedded]


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_every_fact_is_there(known: KnownSet) -> None:
    assert known.name in KNOWN
    assert known.benchmarks
    assert known.homepage.startswith("https://")
    assert known.summary
    assert known.licence
    # Whatever is not at hand can be fetched, or a message explains how to get it.
    assert known.is_embedded or known.files or known.by_hand


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_nothing_is_fetched_without_a_checksum(known: KnownSet) -> None:
    for file in known.files:
        assert file.url.startswith(("http://", "https://"))
        assert file.md5 or file.sha256
        assert re.fullmatch(r"[0-9a-f]{32}", file.md5 or "0" * 32)
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256 or "0" * 64)
        assert file.name
        assert "/" not in file.name
    for md5 in known.contents.values():
        assert re.fullmatch(r"[0-9a-f]{32}", md5)


def test_names_and_benchmarks_lead_to_one_set_each() -> None:
    for known in KNOWN.values():
        assert known_set(known.name) is known
    for benchmark in BENCHMARKS.values():
        assert known_set(benchmark.name) is KNOWN[benchmark.dataset]
        assert benchmark.name in KNOWN[benchmark.dataset].benchmarks
        assert benchmark.name in PRESETS, "its stream is described"
    assert KNOWN["pacs"].benchmarks == ("pacs-cd", "pacs-frozen-cd")


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    assert by_name("cifar10") is None
    with pytest.raises(UserError, match=r"unknown data set 'cifar10'; did you mean 'cifar-10'\?"):
        known_set("cifar10")


@pytest.mark.parametrize("known", ON_DISK, ids=lambda known: known.name)
def test_a_set_is_recognised_as_itself_and_as_no_other(known: KnownSet, tmp_path: Path) -> None:
    folder = WRITERS[known.name](tmp_path / "sets")
    assert recognise(folder) is known
    found = known.within(folder)
    assert found is not None
    assert [other.name for other in ON_DISK if other.within(folder) is not None] == [known.name]
    assert known.within(found) == found


def test_other_folders_and_files_are_not_recognised(tmp_path: Path) -> None:
    write_images(tmp_path / "mine" / "cats", 2)
    (tmp_path / "notes.npz").write_text("not an archive")
    for path in (tmp_path, tmp_path / "mine", tmp_path / "notes.npz", tmp_path / "nowhere"):
        assert recognise(path) is None


def save_years(file: Path, labels: object, years: object) -> Path:
    np.savez(file, images=pixels(4, 8, 8), labels=np.array(labels), year=np.array(years))
    return file


OTHER_YEARS: dict[str, tuple[object, object]] = {
    "a third class": ([0, 1, 2, 0], [1990, 1991, 1992, 1993]),
    "other names": (["cat", "dog", "cat", "dog"], [1990, 1991, 1992, 1993]),
    "too late": ([0, 1, 0, 1], [2013, 2014, 2015, 2016]),
    "too early": ([0, 1, 0, 1], [1850, 1905, 1906, 1907]),
    "years as text": ([0, 1, 0, 1], ["1990", "1991", "1992", "1993"]),
    "labels with a fraction": ([0.0, 1.0, 0.0, 1.0], [1990, 1991, 1992, 1993]),
}


@pytest.mark.parametrize(("labels", "years"), OTHER_YEARS.values(), ids=OTHER_YEARS)
def test_images_by_year_are_not_portraits_for_that_reason(
    tmp_path: Path, labels: object, years: object
) -> None:
    assert recognise(save_years(tmp_path / "yearbook.npz", labels, years)) is None
    assert recognise(tmp_path) is None


def test_portraits_are_recognised_by_classes_and_years_and_as_a_file_by_name_too(
    tmp_path: Path,
) -> None:
    yearbook = KNOWN["yearbook"]
    for name, labels in (("numbers", [0, 1, 1, 0]), ("names", ["male", "female"] * 2)):
        file = save_years(tmp_path / f"yearbook-{name}.npz", labels, [1905, 1960, 2013, 1990])
        assert recognise(file) is yearbook
    # Any two classes of recent years have the same content.
    other = save_years(tmp_path / "mine.npz", [0, 1, 1, 0], [1990, 1991, 1992, 1993])
    assert recognise(other) is None
    assert yearbook.within(other) == other  # unless the user names it so


def test_a_spoilt_file_by_year_is_not_recognised_and_no_crash(tmp_path: Path) -> None:
    file = write_yearbook(tmp_path / "yearbook.npz")
    whole = file.read_bytes()
    header = whole.index(b"NUMPY", whole.index(b"year.npy"))
    for place in (header, header + 9, header + 150):  # its header, the length of that, its values
        spoilt = bytearray(whole)
        spoilt[place] ^= 255
        file.write_bytes(spoilt)
        assert recognise(file) is None


def test_a_file_called_meta_makes_no_cifar100_of_images(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_images(tmp_path / split / "cats", 2)
    (tmp_path / "meta").write_text("about my cats")
    assert recognise(tmp_path) is None
    (tmp_path / "fine_label_names.txt").write_text("cats")
    assert recognise(tmp_path) is None


@pytest.mark.parametrize(
    "names", [("meta", "train", "test"), ("fine_label_names.txt", "train.bin", "test.bin")]
)
def test_cifar100_is_recognised_by_all_its_files_or_its_folder(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    layout = "cifar-100-binary" if "train.bin" in names else "cifar-100-python"
    for number, name in enumerate(names):
        # An incomplete set is recognised by the name of its folder.
        for folder, known in (("any", number == 2), (layout, True)):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / name).touch()
            found = recognise(tmp_path / folder)
            assert found is (KNOWN["cifar-100"] if known else None), (folder, name)


EXPECTED: dict[str, tuple[tuple[int, ...], str, tuple[str, ...], int | None]] = {
    "digits": ((1797, 8, 8, 1), "0", (), None),
    "fashion-mnist": ((30, 28, 28, 1), "T-shirt/top", (), 10),
    "cifar-10": ((60, 32, 32, 3), "kind 0", (), 10),
    "cifar-100": ((200, 32, 32, 3), "kind 0", (), 100),
    "tiny-imagenet": ((6, 64, 64, 3), "goldfish", (), 2),
    "clear-10": ((40, 224, 224, 3), "baseball", ("1", "10"), 20),
    "pacs": ((16, 64, 64, 3), "dog", ("art_painting", "cartoon", "photo", "sketch"), None),
    # its `is_valid` is no test part
    "yearbook": ((12, 32, 32, 1), "female", ("1900s", "1910s", "1920s"), None),
    "iwildcam": ((8, 64, 64, 3), "deer", ("cameras-a", "cameras-b"), None),
    "gas-sensor": ((12, 128), "ethanol", ("batch 1", "batch 10"), None),
    "electricity": ((480, 6), "DOWN", tuple(f"period {n}" for n in range(1, 11)), None),
    "outdoor": ((80, 21), "object 0", ("earlier approaches", "later approaches"), None),
    "spam-assassin": ((10,), "ham", PERIODS, None),
}
"""Shape, first class, domains, test samples of the small copies that the test writers make."""


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_every_set_is_read_into_the_allocated_array_with_progress(
    known: KnownSet, tmp_path: Path
) -> None:
    path = None if known.is_embedded else known.within(WRITERS[known.name](tmp_path))
    seen: list[tuple[int, int | None]] = []
    given: list[np.ndarray] = []

    def allocate(shape: tuple[int, ...]) -> np.ndarray:
        given.append(empty(shape))
        return given[-1]

    dataset = known.read(path or Path(), allocate, lambda done, total: seen.append((done, total)))
    num_test = None if dataset.is_test is None else int(dataset.is_test.sum())
    found = (dataset.images.shape, dataset.class_names[0], dataset.domain_names, num_test)
    assert found == EXPECTED[known.name]
    assert len(dataset.images) == len(dataset.labels)
    assert 0 <= dataset.labels.min() <= dataset.labels.max() < len(dataset.class_names)
    if known.is_cached and not known.is_embedded:
        assert [dataset.images is array for array in given] == [True]
        assert seen == sorted(seen)
        assert seen[-1] == (len(dataset.labels), len(dataset.labels))


def test_looking_a_set_up_loads_neither_torch_nor_numpy(tmp_path: Path) -> None:
    script = """
import sys
from driftwise.datasets.library import status
assert len(status()) == 13
from pathlib import Path
from driftwise.datasets.catalogue import recognise
assert recognise(Path(sys.argv[1])) is None
import driftwise.cli.data
assert not {"torch", "numpy", "PIL", "urllib.request", "rich"} & set(sys.modules), sys.modules
"""
    # Nothing at hand: only the labels distinguish Yearbook from another .npz.
    nothing = {key: value for key, value in os.environ.items() if key != "DRIFTWISE_DATA"}
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True, env=nothing)


def test_public_names_are_there_and_imported_when_they_are_used() -> None:
    script = """
import sys
from driftwise import datasets
assert not {"torch", "numpy"} & set(sys.modules), sys.modules
for name in datasets.__all__:
    assert getattr(datasets, name).__doc__, name
assert set(datasets.__all__) <= set(dir(datasets))
import driftwise
assert driftwise.from_torch_dataset is datasets.from_torch
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="no attribute 'from_nowhere'"):
        datasets.from_nowhere  # noqa: B018


def test_the_registry_of_benchmarks_follows_the_catalogue() -> None:
    entries = registry.CATALOGUE["benchmark"]
    assert set(BENCHMARKS) <= set(entries)
    for benchmark in BENCHMARKS.values():
        assert entries[benchmark.name].summary == benchmark.summary


def test_recognising_portraits_does_not_load_torch(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from driftwise.datasets.catalogue import recognise
assert recognise(Path(sys.argv[1])).name == "yearbook"
assert not {"torch", "PIL"} & set(sys.modules), sys.modules
"""
    file = write_yearbook(tmp_path / "yearbook.npz")
    subprocess.run([sys.executable, "-c", script, file], check=True)
