"""Anybody's own images are decoded once, and again when they or the settings change."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from data_tools import (
    HuggingFaceTable,
    empty_machine,
    pixels,
    pretend_hugging_face,
    write_images,
)

from driftwise.datasets.own import load_own
from driftwise.datasets.readers import folders
from driftwise.datasets.readers.folders import read_folder
from driftwise.errors import UserError
from driftwise.types import Dataset


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_machine(tmp_path, monkeypatch)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    made: list[Path] = []
    original = read_folder

    def counted(path: Path, **rest: object) -> Dataset:
        made.append(path)
        return original(path, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(folders, "read_folder", counted)
    return made


def copies(machine: Path) -> int:
    return len(list((machine / "cache/datasets").iterdir()))


def write_pets(folder: Path) -> Path:
    for name in ("cats", "dogs"):
        write_images(folder / name, 3)
    return folder


def test_a_folder_gives_what_its_reader_gives_and_is_decoded_once(
    machine: Path, readings: list[Path]
) -> None:
    folder = write_pets(machine / "pets")
    for _ in range(2):
        dataset = load_own(folder)
        np.testing.assert_array_equal(dataset.images, read_folder(folder).images)
        assert dataset.class_names == ("cats", "dogs")
    assert readings == [folder]


def test_a_new_image_or_another_setting_is_read_anew(machine: Path, readings: list[Path]) -> None:
    folder = write_pets(machine / "pets")
    load_own(folder)
    write_images(folder / "cats", 4)
    assert len(load_own(folder).images) == 7
    assert load_own(folder, size=4).images.shape == (7, 4, 4, 3)
    assert load_own(folder, size=4, channels=1).images.shape == (7, 4, 4, 1)
    assert len(readings) == 4
    assert copies(machine) == 1


def test_folders_of_the_same_name_keep_a_copy_each(machine: Path, readings: list[Path]) -> None:
    places = [write_pets(machine / year / "pets") for year in ("2023", "2024")]
    for _ in range(2):
        for place in places:
            load_own(place)
    assert readings == places
    assert copies(machine) == 2


def test_an_npz_file_is_kept_too(machine: Path) -> None:
    file = machine / "mine.npz"
    years = np.arange(1990, 2010, 2)
    np.savez(file, images=pixels(10, 4, 5), labels=np.arange(10) % 3, year=years)
    for _ in range(2):
        dataset = load_own(file, group_years=10)
        np.testing.assert_array_equal(dataset.images[..., 0], pixels(10, 4, 5))
        assert dataset.domain_names == ("1990s", "2000s")
    assert copies(machine) == 1
    assert len(load_own(file).domain_names) == 10


WRONG_FOR_A_FILE: dict[str, dict[str, Any]] = {
    "size": {"size": 8},
    "channels": {"channels": 1},
    "layout": {"layout": "class"},
    "fit": {"fit": "stretch"},
    "size and fit": {"size": 8, "fit": "stretch"},
}


@pytest.mark.parametrize("settings", WRONG_FOR_A_FILE.values(), ids=WRONG_FOR_A_FILE)
def test_settings_of_folders_are_refused_for_a_file(
    machine: Path, settings: dict[str, Any]
) -> None:
    file = machine / "mine.npz"
    np.savez(file, images=pixels(4, 5, 5), labels=np.arange(4) % 2)
    load_own(file)
    message = f"mine.npz is an .npz file; {' and '.join(settings)} can be set for a folder"
    with pytest.raises(UserError, match=message):
        load_own(file, **settings)


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "truth as size": ({"size": True}, "1 to 65,535 pixels; got True"),
    "fraction as size": ({"size": 3.5}, "got 3.5"),
    "text as size": ({"size": "4"}, "got '4'"),
    "one side": ({"size": (20,)}, r"got \(20,\)"),
    "three sides": ({"size": (4, 4, 3)}, r"got \(4, 4, 3\)"),
    "a side of text": ({"size": (4, "4")}, r"got \(4, '4'\)"),
    "a list": ({"size": [4, 4]}, r"got \[4, 4\]"),
    "nothing": ({"size": 0}, "got 0"),
    "too much": ({"size": 65_536}, "got 65536"),
    "unknown fit": ({"size": 4, "fit": "bogus"}, "unknown fit 'bogus'"),
    "unknown fit without a size": ({"fit": "bogus"}, "unknown fit 'bogus'"),
    "unknown layout": ({"layout": "clas"}, "did you mean 'class'"),
    "truth as channels": ({"channels": True}, "got True"),
    "fraction as channels": ({"channels": 1.0}, "got 1.0"),
    "two channels": ({"channels": 2}, "got 2"),
}


@pytest.mark.parametrize(("settings", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_settings_of_a_folder_are_warned_in_one_line(
    machine: Path, settings: dict[str, Any], message: str
) -> None:
    folder = write_pets(machine / "pets")
    load_own(folder, size=4)  # a copy is no reason to accept what equals it as text
    with pytest.raises(UserError, match=message) as caught:
        load_own(folder, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("group_years", [2.5, "10", True, 0, -1])
def test_impossible_years_are_warned_in_one_line(machine: Path, group_years: Any) -> None:
    file = machine / "mine.npz"
    np.savez(file, images=pixels(4, 5, 5), labels=np.arange(4) % 2, year=np.arange(4) + 1990)
    load_own(file, group_years=10)
    with pytest.raises(UserError, match=f"group_years is {group_years!r}, expected a whole number"):
        load_own(file, group_years=group_years)


def test_a_side_and_two_equal_sides_share_a_copy(machine: Path, readings: list[Path]) -> None:
    folder = write_pets(machine / "pets")
    load_own(folder, size=4)
    assert load_own(folder, size=(4, 4)).images.shape == (6, 4, 4, 3)
    assert len(readings) == 1


def test_what_is_missing_or_left_out_is_warned_at_every_use(machine: Path) -> None:
    folder = machine / "pets"
    for split, names in {"train": ["cats", "dogs"], "val": ["cats"], "test": ["cats"]}.items():
        for name in names:
            write_images(folder / split / name, 2)
    for name in ("a.jfif", "b.heic"):
        (folder / "train/cats" / name).write_bytes(b"x")
    (folder / ".DS_Store").touch()
    (folder / "LICENSE").touch()
    for _ in range(2):
        warned: list[str] = []
        load_own(folder, warn=warned.append)
        assert warned == [
            "the test part has no images of dogs",
            "'val' counts as training samples, since 'test' is the test part",
            "3 files are no images by name and left out: for example"
            f" {folder / 'train/cats/a.jfif'}",
        ]
    (folder / "train/cats/a.jfif").unlink()
    (folder / "LICENSE").unlink()
    warned = []
    load_own(folder, warn=warned.append)
    odd = folder / "train/cats/b.heic"
    assert warned[2:] == [f"1 file is no image by name and left out: {odd}"]


MARKS = {"one table": ("dataset_info.json", "state.json"), "splits": ("dataset_dict.json",)}


def write_marks(folder: Path, marks: tuple[str, ...]) -> Path:
    folder.mkdir()
    for name in marks:
        (folder / name).write_text("{}")
    return folder


@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
def test_a_hugging_face_folder_is_read_once_too_or_names_the_missing_package(
    machine: Path, marks: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_marks(machine / "saved", marks)
    # Not installed, or nothing but a folder of that name beside the script.
    for module in (None, ModuleType("datasets")):
        monkeypatch.setitem(sys.modules, "datasets", module)
        with pytest.raises(UserError, match=r"saved needs .*: pip install 'driftwise\[hf\]'"):
            load_own(folder)
    assert copies(machine) == 0
    loaded = HuggingFaceTable(pixels(4, 5, 6, 3), ["cat", "dog", "dog", "cat"])
    opened = pretend_hugging_face(monkeypatch, loaded)
    for _ in range(2):
        dataset = load_own(folder, warn=pytest.fail)
        np.testing.assert_array_equal(dataset.images, pixels(4, 5, 6, 3))
        assert dataset.class_names == ("cat", "dog")
        assert dataset.labels.tolist() == [0, 1, 1, 0]
    assert opened == [str(folder)]
    for settings in ({"size": 4}, {"group_years": 10}):
        with pytest.raises(UserError, match="saved is a Hugging Face data set; "):
            load_own(folder, **settings)  # type: ignore[arg-type]


def test_a_file_about_the_images_makes_no_hugging_face_folder(machine: Path) -> None:
    folder = write_pets(machine / "pets")
    (folder / "dataset_info.json").write_text("{}")
    assert load_own(folder).class_names == ("cats", "dogs")


def test_a_bad_image_is_named_and_leaves_no_copy(machine: Path) -> None:
    folder = write_pets(machine / "pets")
    (folder / "dogs" / "1.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"dogs/1\.png: it is empty"):
        load_own(folder)
    assert copies(machine) == 0


def test_a_path_that_is_not_there_is_warned_in_one_line(machine: Path) -> None:
    with pytest.raises(UserError, match="found nothing"):
        load_own(machine / "nowhere")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.tsv", "found something else: read it with pandas, and give the data frame to datasets"),
        ("x.csv.gz", "found something else: read it with pandas"),
        ("x.xlsx", "is a spreadsheet; save it as .csv, or read it with pandas"),
    ],
)
def test_a_file_of_another_kind_is_called_no_npz_file(
    machine: Path, name: str, message: str
) -> None:
    (machine / name).write_text("a\tlabel\n1\tcat\n")
    with pytest.raises(UserError, match=message):
        load_own(machine / name, label="label")


@pytest.mark.parametrize("name", ["my pets, 2024", "...", "Tiere-ü", "x" * 200])
def test_any_folder_name_will_do(machine: Path, name: str) -> None:
    assert len(load_own(write_pets(machine / name)).labels) == 6
