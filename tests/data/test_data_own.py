"""Anybody's own pictures are decoded once, and anew when they or the settings change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_tools import empty_machine, pixels, write_pictures

from recollect.data import folders
from recollect.data.folders import read_folder
from recollect.data.own import load_own
from recollect.errors import UserError
from recollect.types import Dataset


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
        write_pictures(folder / name, 3)
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


def test_a_new_picture_or_another_setting_is_read_anew(machine: Path, readings: list[Path]) -> None:
    folder = write_pets(machine / "pets")
    load_own(folder)
    write_pictures(folder / "cats", 4)
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


@pytest.mark.parametrize("name", ["my pets, 2024", "...", "Tiere-ü", "x" * 200])
def test_any_folder_name_will_do(machine: Path, name: str) -> None:
    assert len(load_own(write_pets(machine / name)).labels) == 6


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


def test_a_bad_picture_is_named_and_leaves_no_copy(machine: Path) -> None:
    folder = write_pets(machine / "pets")
    (folder / "dogs" / "1.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"dogs/1\.png: it is empty"):
        load_own(folder)
    assert copies(machine) == 0


def test_a_path_that_is_not_there_is_told_in_one_line(machine: Path) -> None:
    with pytest.raises(UserError, match="found nothing"):
        load_own(machine / "nowhere")


def test_decoding_is_reported_under_the_folders_name(machine: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    load_own(write_pets(machine / "pets"), progress=lambda *step: seen.append(step))
    assert seen[-1] == ("decoding pets", 6, 6)
