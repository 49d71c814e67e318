"""Fetched data sets are checked, unpacked and in place, or not there at all."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from data_tools import (
    empty_machine,
    pixels,
    serving,
    write_cifar10,
    write_clear10,
    write_fashion_mnist,
)

from driftwise.datasets import archive, download
from driftwise.datasets.catalogue import KNOWN, RemoteFile
from driftwise.datasets.library import fetch, find, load
from driftwise.errors import RunFailure, UserError


@dataclass(frozen=True)
class Web:
    """A machine without data, and a server that has some."""

    files: Path
    """what the server gives out"""
    url: str
    home: Path
    """where data sets are put"""
    monkeypatch: pytest.MonkeyPatch

    def offer(self, name: str, *files: Path, extract: bool) -> None:
        """Let a data set be made of these files of the server."""
        remote = tuple(
            RemoteFile(
                url=f"{self.url}/{file.name}",
                md5=hashlib.md5(file.read_bytes()).hexdigest(),
                size=file.stat().st_size,
                extract=extract,
            )
            for file in files
        )
        self.monkeypatch.setitem(KNOWN, name, replace(KNOWN[name], files=remote))

    def left(self) -> list[str]:
        """What lies in the data folder, locks apart."""
        return sorted(path.name for path in self.home.glob("[!.]*"))


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    empty_machine(tmp_path, monkeypatch)
    monkeypatch.delenv("DRIFTWISE_OFFLINE")
    monkeypatch.setattr(download, "WAITS", ())
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    files = tmp_path / "server"
    files.mkdir()
    with serving(files) as url:
        yield Web(files, url, tmp_path / "home/.local/share/driftwise", monkeypatch)


def offer_fashion(web: Web) -> None:
    write_fashion_mnist(web.files)
    web.offer("fashion-mnist", *sorted(web.files.iterdir()), extract=False)


def offer_cifar10(web: Web, scratch: Path) -> None:
    made = shutil.make_archive(
        str(web.files / "cifar-10-python"), "gztar", write_cifar10(scratch / "made")
    )
    web.offer("cifar-10", Path(made), extract=True)


def offer_clear10(web: Web, scratch: Path) -> None:
    folder = write_clear10(scratch / "made")
    archives = []
    for part in ("train_image_only", "test"):
        made = shutil.make_archive(str(web.files / f"clear10-{part}"), "zip", folder, part)
        archives.append(Path(made))
    web.offer("clear-10", *archives, extract=True)


def test_plain_files_are_fetched_into_the_users_folder_once(web: Web) -> None:
    offer_fashion(web)
    assert fetch("fashion-mnist") == web.home / "fashion-mnist"
    assert web.left() == ["fashion-mnist"]
    assert sorted(path.name for path in (web.home / "fashion-mnist").iterdir()) == sorted(
        path.name for path in web.files.iterdir()
    )
    shutil.rmtree(web.files)
    assert fetch("fmnist-cd") == find("fashion-mnist") == web.home / "fashion-mnist"


def test_archives_are_unpacked_and_not_kept(web: Web, tmp_path: Path) -> None:
    offer_cifar10(web, tmp_path)
    assert fetch("cifar-10") == web.home / "cifar-10" / "cifar-10-batches-py"
    assert web.left() == ["cifar-10"]
    assert [path.name for path in (web.home / "cifar-10").iterdir()] == ["cifar-10-batches-py"]


def test_several_archives_become_one_folder(web: Web, tmp_path: Path) -> None:
    offer_clear10(web, tmp_path)
    assert fetch("clear-10") == web.home / "clear-10"
    assert load("clear-10").images.shape == (40, 224, 224, 3)


def test_what_is_nowhere_is_downloaded_when_it_is_loaded(web: Web) -> None:
    offer_fashion(web)
    warned: list[str] = []
    steps: list[tuple[str, int, int | None]] = []
    dataset = load("fashion-mnist", progress=lambda *step: steps.append(step), warn=warned.append)
    np.testing.assert_array_equal(dataset.images[:20, :, :, 0], pixels(20, 28, 28))
    assert len(warned) == 1
    assert "not found on this machine and is downloaded from 127.0.0.1" in warned[0]
    size = (web.files / "train-images-idx3-ubyte.gz").stat().st_size
    assert ("downloading train-images-idx3-ubyte.gz", size, size) in steps


def test_offline_nothing_is_downloaded(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_fashion(web)
    monkeypatch.setenv("DRIFTWISE_OFFLINE", "1")
    with pytest.raises(UserError, match="DRIFTWISE_OFFLINE is set"):
        load("fashion-mnist")
    assert web.left() == []


def test_a_download_that_fails_is_warned_with_the_places_that_were_tried(web: Web) -> None:
    offer_fashion(web)
    (web.files / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(UserError, match="was not found; searched for") as caught:
        load("fashion-mnist")
    assert "the server answered 404" in str(caught.value).splitlines()[-1]
    assert "apt-get install" in str(caught.value)
    # What has arrived is kept, but does not pass for the data set.
    assert web.left() == ["fashion-mnist.fetching"]
    assert find("fashion-mnist") is None


def test_an_interrupted_fetch_goes_on_where_it_stopped(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_fashion(web)
    asked: list[str] = []
    original = download.fetch

    def breaking(url: str, target: Path, **rest: object) -> Path:
        asked.append(target.name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return original(url, target, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(download, "fetch", breaking)
    with pytest.raises(KeyboardInterrupt):
        fetch("fashion-mnist")
    assert web.left() == ["fashion-mnist.fetching"]
    # The two that arrived need no server any more.
    for name in asked[:2]:
        (web.files / name).unlink()
    assert fetch("fashion-mnist") == web.home / "fashion-mnist"
    assert web.left() == ["fashion-mnist"]


def test_an_archive_without_the_data_set_is_warned(web: Web) -> None:
    made = web.files / "cifar.zip"
    with zipfile.ZipFile(made, "w") as other:
        other.writestr("readme", "x")
    web.offer("cifar-10", made, extract=True)
    with pytest.raises(UserError, match="exists, but holds no cifar-10; remove it"):
        fetch("cifar-10")


def test_two_archives_with_the_same_entry_are_refused(web: Web) -> None:
    for name in ("one.zip", "two.zip"):
        with zipfile.ZipFile(web.files / name, "w") as made:
            made.writestr("test/labeled_images/x", name)
    web.offer("clear-10", web.files / "one.zip", web.files / "two.zip", extract=True)
    with pytest.raises(
        UserError, match=r"different files at .*/test/labeled_images/x; they do not"
    ):
        fetch("clear-10")
    assert find("clear-10") is None


def test_archives_that_share_a_folder_become_one(web: Web, tmp_path: Path) -> None:
    folder = write_clear10(tmp_path / "made")
    for number, bucket in enumerate(("1", "10")):
        with zipfile.ZipFile(web.files / f"{number}.zip", "w") as made:
            made.writestr("test/readme.txt", "the same in both")
            for part in ("train_image_only", "test"):
                for file in sorted((folder / part / "labeled_images" / bucket).rglob("*.png")):
                    made.write(file, file.relative_to(folder))
    web.offer("clear-10", web.files / "0.zip", web.files / "1.zip", extract=True)
    place = fetch("clear-10")
    assert (place / "test/readme.txt").read_text() == "the same in both"
    assert load("clear-10").domain_names == ("1", "10")
    assert web.left() == ["clear-10"]


def test_a_killed_unpacking_is_swept_up(web: Web, tmp_path: Path) -> None:
    offer_cifar10(web, tmp_path)
    desk = web.home / "cifar-10.fetching"
    archive.extract(web.files / "cifar-10-python.tar.gz", desk / "cifar-10-python.tar.gz.unpacked")
    (desk / "content" / "stale").mkdir(parents=True)
    fetch("cifar-10")
    assert [path.name for path in (web.home / "cifar-10").iterdir()] == ["cifar-10-batches-py"]


def test_what_cannot_be_fetched_is_refused_with_a_way_out(web: Web) -> None:
    with pytest.raises(UserError, match="inside a package"):
        fetch("digits")
    with pytest.raises(UserError, match=r"no official address .* get PACS from https://"):
        fetch("pacs")
    with pytest.raises(UserError, match="unknown data set"):
        fetch("imagenet")
    assert not web.home.exists()


def test_a_folder_that_may_not_be_written_to_is_warned_in_one_line(web: Web) -> None:
    offer_fashion(web)
    web.home.parent.mkdir(parents=True)
    web.home.write_text("a file where the data folder belongs")
    with pytest.raises(RunFailure, match=r"cannot write .*XDG_DATA_HOME"):
        fetch("fashion-mnist")
