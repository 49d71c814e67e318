"""Streams of vectors, mails and camera traps: every official layout, the same samples from each."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_tools import (
    write_electricity,
    write_gas_sensor,
    write_iwildcam,
    write_outdoor,
    write_spam_assassin,
)
from PIL import Image

from driftwise.datasets.readers.iwildcam import read_iwildcam
from driftwise.datasets.readers.spam_assassin import PERIODS, read_spam_assassin
from driftwise.datasets.readers.streams import (
    ELECTRICITY_FEATURES,
    read_electricity,
    read_gas_sensor,
    read_outdoor,
)
from driftwise.errors import UserError


def as_npz(file: Path, **arrays: np.ndarray) -> Path:
    np.savez(file, allow_pickle=False, **arrays)
    return file


def test_gas_readings_are_the_same_from_either_layout(tmp_path: Path) -> None:
    folder = write_gas_sensor(tmp_path / "gas")
    data = read_gas_sensor(folder)
    assert data.images[1, :3].tolist() == pytest.approx([1 + 2 / 7, 1 + 4 / 7, 1 + 6 / 7], abs=1e-5)
    assert data.labels.tolist() == [0, 1, 2, 3, 4, 5] * 2
    assert data.domain_names == ("batch 1", "batch 10")
    file = as_npz(
        tmp_path / "gas-sensor.npz",
        features=data.images,
        labels=data.labels,
        batch=np.repeat([1, 10], 6),
    )
    same = read_gas_sensor(file)
    assert np.array_equal(same.images, data.images)
    assert same.domain_names == data.domain_names
    # The release with concentrations has them after the gas.
    batch = folder / "batch10.dat"
    batch.write_text(batch.read_text().replace("6 1:", "6;10.0 1:"))
    assert np.array_equal(read_gas_sensor(folder).labels, data.labels)


def test_electricity_is_the_same_from_every_layout(tmp_path: Path) -> None:
    folder = write_electricity(tmp_path / "electricity")
    data = read_electricity(folder / "elecNormNew.arff")
    assert data.images.shape == (480, len(ELECTRICITY_FEATURES))
    assert data.class_names == ("DOWN", "UP")
    assert data.labels[:4].tolist() == [0, 1, 1, 0]
    assert data.groups is not None
    assert data.domains is not None
    assert data.groups[[0, 47, 48]].tolist() == [0, 0, 1], "a day stays together"
    assert np.bincount(data.domains).tolist() == [48] * 10
    table = tmp_path / "electricity.csv"
    with table.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["date", "day", *ELECTRICITY_FEATURES, "class"])
        for vector, label in zip(data.images.tolist(), data.labels, strict=True):
            lines.writerow([0, 2, *vector, data.class_names[label]])
    binary = as_npz(tmp_path / "electricity.npz", features=data.images, labels=data.labels)
    for path in (table, binary):
        same = read_electricity(path)
        assert np.allclose(same.images, data.images)
        assert np.array_equal(same.labels, data.labels)


def test_outdoor_objects_are_the_same_from_every_layout(tmp_path: Path) -> None:
    data = read_outdoor(write_outdoor(tmp_path / "outdoor") / "outdoorStream.data")
    assert data.labels.tolist() == ([0] * 10 + [1] * 10) * 4
    assert data.groups is not None
    assert data.domains is not None
    assert np.bincount(data.groups).tolist() == [10] * 8, "an approach stays together"
    assert data.domains.tolist() == [0] * 40 + [1] * 40
    table = tmp_path / "outdoor.arff"
    header = [f"@attribute att{n} numeric" for n in range(1, 22)] + ["@attribute class {1,2}"]
    lines = [
        ",".join(map(str, [*vector, label + 1]))
        for vector, label in zip(data.images.tolist(), data.labels, strict=True)
    ]
    table.write_text("\n".join(["@relation o", *header, "@data", "% a remark", *lines]))
    binary = as_npz(tmp_path / "outdoor.npz", features=data.images, labels=data.labels)
    for path in (table, binary):
        same = read_outdoor(path)
        assert np.allclose(same.images, data.images)
        assert np.array_equal(same.labels, data.labels)
        assert np.array_equal(same.groups, data.groups)  # type: ignore[arg-type]


def test_mails_are_their_subject_and_text_dated_by_the_last_server(tmp_path: Path) -> None:
    path = write_spam_assassin(tmp_path / "spam-assassin") / "package" / "data"
    data = read_spam_assassin(path)
    assert data.images[0] == "offer 0 buy & save"
    assert data.labels.tolist() == [0, 0, 0, 1, 1] * 2
    assert data.domains is not None
    assert [data.domain_names[each] for each in data.domains] == [PERIODS[1]] * 5 + [PERIODS[2]] * 5


def test_frames_that_hardly_differ_are_of_one_burst(tmp_path: Path) -> None:
    data = read_iwildcam(write_iwildcam(tmp_path / "iwildcam"))
    assert data.groups is not None
    deer = data.groups[(data.labels == 0) & (data.domains == 0)]
    fox = data.groups[(data.labels == 1) & (data.domains == 0)]
    assert len(set(deer)) == len(set(fox)) == 1
    assert set(deer) != set(fox), "the same camera, another picture"
    assert len(set(data.groups)) == 4


def test_the_official_release_has_its_own_sequences(tmp_path: Path) -> None:
    folder = tmp_path / "iwildcam_v2.0"
    (folder / "train").mkdir(parents=True)
    lines = ["split,location_remapped,sequence_remapped,y,filename"]
    # "empty", and eleven species: the rarest is left out, as is the 29th frame of a camera
    for species, frames in ((0, 5), (1, 30), *((number, 3) for number in range(2, 11)), (11, 1)):
        for frame in range(frames):
            name = f"{species}-{frame}.jpg"
            Image.new("RGB", (20, 16), (9 * species, 5 * frame, 0)).save(folder / "train" / name)
            lines.append(f"train,{species % 6},{100 * species + frame // 3},{species},{name}")
    (folder / "metadata.csv").write_text("\n".join(lines))
    (folder / "categories.csv").write_text("y,category_id,name\n0,0,empty\n1,7,tayassu pecari\n")
    data = read_iwildcam(folder)
    assert np.bincount(data.labels).tolist() == [28, *[3] * 9]
    assert data.class_names[:2] == ("tayassu pecari", "species-002")
    assert data.groups is not None
    assert data.domains is not None
    assert data.groups[:4].tolist() == [100, 100, 100, 101]
    assert [data.domain_names[each] for each in sorted(set(data.domains[data.labels == 4]))] == [
        "cameras-b"
    ]


def _spoil(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / name
        file.write_text(file.read_text().replace(old, new, 1))

    return change


def _emptied(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def _without_features(folder: Path) -> Path:
    folder.mkdir()
    return as_npz(folder / "outdoor.npz", x=np.zeros(2)).parent


Case = tuple[Callable[[Path], Any], Callable[[Path], Any], Callable[[Path], Any], str]
BAD: dict[str, Case] = {
    "a feature is missing": (
        write_gas_sensor,
        _spoil("batch1.dat", " 5:", " 6:"),
        read_gas_sensor,
        "line 1: expected a gas and the features",
    ),
    "a gas that is none": (
        write_gas_sensor,
        _spoil("batch1.dat", "1 1:", "9 1:"),
        read_gas_sensor,
        "label 8 in sample 0",
    ),
    "no batch": (
        write_gas_sensor,
        _emptied,
        read_gas_sensor,
        r"expected batch1\.dat",
    ),
    "text among numbers": (
        write_electricity,
        _spoil("elecNormNew.arff", "0.05", "dear"),
        lambda folder: read_electricity(folder / "elecNormNew.arff"),
        "column 'nswprice' holds text",
    ),
    "another table": (
        write_electricity,
        _spoil("elecNormNew.arff", "nswprice", "price"),
        lambda folder: read_electricity(folder / "elecNormNew.arff"),
        "no column 'nswprice'",
    ),
    "a line too short": (
        write_electricity,
        _spoil("elecNormNew.arff", "0.42,0.41,DOWN", "DOWN"),
        lambda folder: read_electricity(folder / "elecNormNew.arff"),
        "expected 9 values in every line",
    ),
    "labels in words": (
        write_outdoor,
        _spoil("outdoorStream.labels", "0", "cone"),
        lambda folder: read_outdoor(folder / "outdoorStream.data"),
        "expected equally many numbers",
    ),
    "no such array": (
        _without_features,
        lambda _: None,
        lambda folder: read_outdoor(folder / "outdoor.npz"),
        "holds x; expected 'features'",
    ),
    "not a mail": (
        write_spam_assassin,
        _spoil("package/data/spam-1/00000.abc.json", '"text"', '"words"'),
        lambda folder: read_spam_assassin(folder / "package" / "data"),
        "not a mail of the corpus",
    ),
    "no date": (
        write_spam_assassin,
        lambda folder: [
            file.write_text('{"text": "Subject: hi\\n\\nhello"}')
            for file in folder.rglob("spam-2/00001.abc.json")
        ],
        lambda folder: read_spam_assassin(folder / "package" / "data"),
        "the mail has no date",
    ),
    "a photo without a camera": (
        write_iwildcam,
        lambda folder: (folder / "cameras-a/deer/camera000-0.png").rename(
            folder / "cameras-a/deer/0.png"
        ),
        read_iwildcam,
        "expected a name such as camera004",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_damaged_files_are_refused_with_their_place(case: str, tmp_path: Path) -> None:
    write, spoil, read, message = BAD[case]
    folder = write(tmp_path / "data")
    spoil(folder)
    with pytest.raises(UserError, match=message):
        read(folder)
