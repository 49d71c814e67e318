"""What tests of named data sets share: an empty machine, tiny official layouts, a web server."""

from __future__ import annotations

import contextlib
import gzip
import json
import pickle
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from driftwise import paths
from driftwise.datasets.readers.clear import CLASSES as CLEAR_CLASSES
from driftwise.datasets.readers.spam_assassin import FOLDERS as SPAM_FOLDERS

_VARIABLES = ("DRIFTWISE_DATA", "XDG_DATA_HOME", "XDG_CACHE_HOME", "LOCALAPPDATA")


def empty_machine(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make everything that is looked for or kept lie below `root`, and forbid downloads."""
    for variable in _VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for name in ("home", "work", "system"):
        (root / name).mkdir()
    monkeypatch.setenv("HOME", str(root / "home"))
    monkeypatch.setenv("DRIFTWISE_CACHE", str(root / "cache"))
    monkeypatch.setenv("DRIFTWISE_OFFLINE", "1")
    monkeypatch.chdir(root / "work")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(paths, "SYSTEM_FOLDERS", (root / "system",))
    return root


class HuggingFaceTable:
    """As much of `datasets.Dataset` as is used."""

    def __init__(self, images: Any, labels: list[Any], names: list[str] | None = None) -> None:
        self._columns = {"image": images, "label": labels}
        self.column_names = list(self._columns)
        self.features = {"image": object(), "label": SimpleNamespace(names=names)}

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        return {name: column[key] for name, column in self._columns.items()}


def pretend_hugging_face(monkeypatch: pytest.MonkeyPatch, loaded: Any) -> list[str]:
    """Let `datasets.load_from_disk` return this; the paths that it is called with."""
    opened: list[str] = []
    module = ModuleType("datasets")
    module.load_from_disk = lambda path: opened.append(path) or loaded  # type: ignore[attr-defined,func-returns-value]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return opened


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a web server that gives out the files of a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def pixels(*shape: int) -> np.ndarray:
    """Noise, the same every time."""
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def write_images(folder: Path, count: int, side: int = 8, ending: str = "png") -> list[Path]:
    """Images of one size in a folder, each another shade."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number}.{ending}" for number in range(count)]
    for number, file in enumerate(files):
        Image.new("RGB", (side, side), (40 * number, 100, 200)).save(file)
    return files


def write_fashion_mnist(folder: Path, *, zipped: bool = True) -> Path:
    """20 + 10 images in IDX files."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, samples in (("train", 20), ("t10k", 10)):
        images = (
            struct.pack(">4B3I", 0, 0, 8, 3, samples, 28, 28) + pixels(samples, 28, 28).tobytes()
        )
        labels = struct.pack(">4BI", 0, 0, 8, 1, samples) + bytes(
            sample % 10 for sample in range(samples)
        )
        for name, content in (("images-idx3", images), ("labels-idx1", labels)):
            file = folder / f"{part}-{name}-ubyte"
            if zipped:
                file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(content, mtime=0))
            else:
                file.write_bytes(content)
    return folder


def write_cifar10(folder: Path) -> Path:
    """10 images in each of the six python batches."""
    place = folder / "cifar-10-batches-py"
    place.mkdir(parents=True)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        batch = {b"data": pixels(10, 3072), b"labels": list(range(10))}
        (place / name).write_bytes(pickle.dumps(batch, 2))
    names = {b"label_names": [f"kind {number}".encode() for number in range(10)]}
    (place / "batches.meta").write_bytes(pickle.dumps(names, 2))
    return folder


def write_cifar100(folder: Path) -> Path:
    """100 images to train on, 100 to test on."""
    place = folder / "cifar-100-python"
    place.mkdir(parents=True)
    for name in ("train", "test"):
        batch = {b"data": pixels(100, 3072), b"fine_labels": list(range(100))}
        (place / name).write_bytes(pickle.dumps(batch, 2))
    names = {b"fine_label_names": [f"kind {number}".encode() for number in range(100)]}
    (place / "meta").write_bytes(pickle.dumps(names, 2))
    return folder


def write_tiny_imagenet(folder: Path) -> Path:
    """Two classes with two images to train on and one to test on."""
    place = folder / "tiny-imagenet-200"
    wnids = ("n01", "n02")
    for wnid in wnids:
        write_images(place / "train" / wnid / "images", 2, side=64, ending="JPEG")
    write_images(place / "val" / "images", 2, side=64, ending="JPEG")
    (place / "val" / "val_annotations.txt").write_text("0.JPEG\tn02\t0\n1.JPEG\tn01\t0\n")
    (place / "wnids.txt").write_text("\n".join(wnids))
    (place / "words.txt").write_text("n01\tgoldfish, carp\nn02\tbullfrog\n")
    return folder


def write_clear10(folder: Path) -> Path:
    """Two buckets, one image of each class to train on and one to test on."""
    for part in ("train_image_only", "test"):
        for bucket in ("1", "10"):
            for name in CLEAR_CLASSES:
                write_images(folder / part / "labeled_images" / bucket / name, 1)
    return folder


def write_pacs(folder: Path) -> Path:
    """Two images of two classes in each of the four domains."""
    for domain in ("art_painting", "cartoon", "photo", "sketch"):
        for name in ("dog", "giraffe"):
            write_images(folder / domain / name, 2)
    return folder


def write_yearbook(file: Path) -> Path:
    """Twelve portraits from 1905 to 1927."""
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        file,
        images=pixels(12, 32, 32),
        labels=np.arange(12, dtype=np.uint8) % 2,
        year=np.arange(1905, 1929, 2, dtype=np.uint16),
        is_valid=np.arange(12, dtype=np.uint8) % 3 == 0,
    )
    return file


def write_iwildcam(folder: Path) -> Path:
    """Two species before two cameras each in two groups, two frames of a burst each."""
    for domain, first in (("cameras-a", 0), ("cameras-b", 1)):
        for name in ("deer", "fox"):
            place = folder / domain / name
            place.mkdir(parents=True)
            for frame in range(2):
                colour = (40 * first + frame, 100, 200 if name == "deer" else 20)
                Image.new("RGB", (64, 64), colour).save(place / f"camera{first:03}-{frame}.png")
    return folder


def write_gas_sensor(folder: Path) -> Path:
    """Six readings, one of each gas, in batches 1 and 10."""
    folder.mkdir(parents=True, exist_ok=True)
    for batch in (1, 10):
        lines = [
            f"{gas} " + " ".join(f"{n}:{batch + gas * n / 7:.6f}" for n in range(1, 129)) + " "
            for gas in range(1, 7)
        ]
        (folder / f"batch{batch}.dat").write_text("\n".join(lines) + "\n")
    return folder


ELECTRICITY_HEADER = """@relation electricity
@attribute date numeric
@attribute day {1,2,3,4,5,6,7}
@attribute period numeric
@attribute nswprice numeric
@attribute nswdemand numeric
@attribute vicprice numeric
@attribute vicdemand numeric
@attribute transfer numeric
@attribute class {UP,DOWN}
@data
"""


def write_electricity(folder: Path) -> Path:
    """Ten days."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"0,{2 + n // 48 % 6},{n % 48 / 47:.6f},0.05,{n / 480:.6f},0.003,0.42,0.41,"
        + ("UP" if n % 3 else "DOWN")
        for n in range(480)
    ]
    (folder / "elecNormNew.arff").write_text(ELECTRICITY_HEADER + "\n".join(lines))
    return folder


def write_outdoor(folder: Path) -> Path:
    """Two objects, approached four times in turn, ten images each time."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.arange(80) // 10 % 2
    values = np.random.default_rng(0).random((80, 21))
    np.savetxt(folder / "outdoorStream.data", values, fmt="%.6f")
    np.savetxt(folder / "outdoorStream.labels", labels, fmt="%d")
    return folder


def write_spam_assassin(folder: Path) -> Path:
    """Two mails in every folder, the second a month later and as markup."""
    for place, name in enumerate(SPAM_FOLDERS):
        (folder / "package" / "data" / name).mkdir(parents=True)
        for number, kind in enumerate(("plain", "html")):
            text = (
                f"Received: from a by b; {1 + place} {('Aug', 'Sep')[number]} 2002 10:00:00 +0100\n"
                "Received: from c by a; 1 Jan 2036 10:00:00 +0000\n"
                f"Subject: offer {number}\nContent-Type: text/{kind}\n\n"
                "<b>buy</b> &amp; save <style>p {color: red}</style>\n"
            )
            mail = {"id": f"{number:05}", "group": name, "text": text}
            file = folder / "package" / "data" / name / f"{number:05}.abc.json"
            file.write_text(json.dumps(mail))
    return folder


WRITERS: dict[str, Callable[[Path], Path]] = {
    "fashion-mnist": write_fashion_mnist,
    "cifar-10": write_cifar10,
    "cifar-100": write_cifar100,
    "tiny-imagenet": write_tiny_imagenet,
    "clear-10": write_clear10,
    "pacs": write_pacs,
    "yearbook": lambda folder: write_yearbook(folder / "yearbook.npz").parent,
    "iwildcam": write_iwildcam,
    "gas-sensor": write_gas_sensor,
    "electricity": write_electricity,
    "outdoor": write_outdoor,
    "spam-assassin": write_spam_assassin,
}
"""Every known data set that lies on a disk, small, as its folder in a folder of data sets."""
