"""Image folders: names give the classes, and an ambiguous layout is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftwise.datasets.readers.folders import Layout, list_folder, read_folder
from driftwise.errors import UserError


def fill(root: Path, *names: str, size: tuple[int, int] = (4, 4), mode: str = "RGB") -> Path:
    """Images of one grey each, 10 times their place in the list."""
    for number, name in enumerate(names):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", size, 10 * number).convert(mode).save(file)
    return root


def test_a_class_is_a_folder_and_labels_follow_the_sorted_names(tmp_path: Path) -> None:
    root = fill(tmp_path, "dog/b.png", "cat/z.JPG", "dog/a.png", "cat/y.Png", "ant/x.tiff")
    listing = list_folder(root)
    assert listing.class_names == ("ant", "cat", "dog")
    assert [file.name for file in listing.files] == ["x.tiff", "y.Png", "z.JPG", "a.png", "b.png"]
    assert listing.labels.tolist() == [0, 1, 1, 2, 2]
    assert listing.labels.dtype == np.int64
    assert listing.domains is None
    assert listing.is_test is None
    assert listing.notes == ()


def test_domains_that_share_classes_are_recognised_and_what_they_lack_is_reported(
    tmp_path: Path,
) -> None:
    root = fill(tmp_path, "photo/dog/1.png", "photo/cat/1.png", "sketch/dog/1.png")
    listing = list_folder(root)
    assert listing.domain_names == ("photo", "sketch")
    assert listing.domains is not None
    assert listing.domains.tolist() == [0, 0, 1]
    assert listing.labels.tolist() == [0, 1, 1]
    assert listing.notes == ("domain 'sketch' has no images of cat",)


def test_splits_are_recognised_by_their_names_and_test_is_the_test_part(tmp_path: Path) -> None:
    root = fill(tmp_path, "Train/a/1.png", "Train/b/1.png", "valid/a/1.png", "test/a/1.png")
    listing = list_folder(root)
    assert [file.parent.parent.name for file in listing.files] == ["Train"] * 2 + ["test", "valid"]
    assert listing.is_test is not None
    assert listing.is_test.tolist() == [False, False, True, False]
    assert listing.is_test.dtype == bool
    assert listing.domains is None
    assert listing.notes == (
        "the test part has no images of b",
        "'valid' counts as training samples, since 'test' is the test part",
    )


def test_without_a_test_split_the_validation_split_is_the_test_part(tmp_path: Path) -> None:
    listing = list_folder(fill(tmp_path, "train/a/1.png", "val/a/1.png"))
    assert listing.is_test is not None
    assert listing.is_test.tolist() == [False, True]


def test_with_a_train_split_alone_there_is_no_test_part(tmp_path: Path) -> None:
    assert list_folder(fill(tmp_path, "train/a/1.png", "train/b/1.png")).is_test is None


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    assert list_folder(fill(tmp_path, "bus/1.png", "train/1.png")).class_names == ("bus", "train")


def test_hidden_files_and_other_files_are_counted_and_left_alone(tmp_path: Path) -> None:
    root = fill(tmp_path, "a/1.png", "b/1.png", "a/.hidden.png", ".git/x/1.png")
    fill(root, "__MACOSX/a/1.png")
    (root / "README.md").write_text("about")
    (root / "a" / "Thumbs.db").write_text("about")
    listing = list_folder(root)
    assert listing.class_names == ("a", "b")
    assert len(listing.files) == 2
    assert listing.ignored == (root / "README.md", root / "a" / "Thumbs.db")
    assert listing.num_hidden == 1


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["1.png"], "images lie directly in .*; expected one folder per class"),
        (["a/1.png", "b/x/1.png"], "different depths: .*a/1.png and .*b/x/1.png"),
        (["train/1.png", "test/1.png"], "directly in .*test; expected one folder per class in it"),
        (["a/x/1.png", "b/y/1.png"], r"cannot tell .*\(a, b\) are domains, splits or classes"),
        (["a/images/1.png", "b/images/1.png"], "cannot tell"),
        (["train/a/1.png", "photo/a/1.png"], "cannot tell"),
        (["pacs/photo/a/1.png", "pacs/sketch/a/1.png"], "too deep .*/pacs that you mean"),
        (["test/a/1.png"], "class 'a' .* no images to train on"),
        (["train/a/1.png", "test/b/1.png"], "class 'b' .* no images to train on"),
    ],
)
def test_a_doubtful_layout_is_reported_in_one_line(
    tmp_path: Path, names: list[str], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        list_folder(fill(tmp_path, *names))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("names", "layout", "classes"),
    [
        (["train/1.png", "test/1.png"], "class", ("test", "train")),
        (["a/x/1.png", "b/y/1.png"], "domain/class", ("x", "y")),
        (["train/x/1.png", "test/x/1.png"], "domain/class", ("x",)),
        (["train/x/1.png", "test/x/1.png"], "split/class", ("x",)),
    ],
)
def test_a_given_layout_settles_the_doubt(
    tmp_path: Path, names: list[str], layout: Layout, classes: tuple[str, ...]
) -> None:
    assert list_folder(fill(tmp_path, *names), layout).class_names == classes


def test_a_given_layout_must_be_the_one_on_the_disk(tmp_path: Path) -> None:
    root = fill(tmp_path, "a/1.png", "b/1.png")
    with pytest.raises(UserError, match=r"expected domain/class/\*.jpg in .*, got .*a/1.png"):
        list_folder(root, "domain/class")
    with pytest.raises(UserError, match="unknown layout 'clas'; did you mean 'class'"):
        list_folder(root, "clas")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"expected .*photo to be a split \(train"):
        list_folder(fill(tmp_path / "c", "photo/a/1.png"), "split/class")


def test_a_class_without_images_is_an_error(tmp_path: Path) -> None:
    root = fill(tmp_path, "a/1.png", "b/1.png")
    (root / "c").mkdir()
    (root / "c" / "notes.txt").write_text("to come")
    with pytest.raises(UserError, match=r"class 'c' in .* has no images .*add some or remove it"):
        list_folder(root)


def test_a_class_may_be_empty_in_one_domain_but_not_in_all(tmp_path: Path) -> None:
    root = fill(tmp_path, "p/a/1.png", "p/b/1.png", "q/a/1.png")
    (root / "q" / "b").mkdir()
    assert list_folder(root).notes == ("domain 'q' has no images of b",)
    (root / "q" / "c").mkdir()
    with pytest.raises(UserError, match="class 'c'"):
        list_folder(root)
    (root / "q" / "c").rmdir()
    (root / "r").mkdir()
    with pytest.raises(UserError, match=r"folder 'r' .* has no images"):
        list_folder(root)


def test_a_path_that_is_no_folder_of_images_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, message in {"file": "found a file", "none": "found nothing"}.items():
        with pytest.raises(UserError, match=f"{tmp_path / name}, {message}"):
            list_folder(tmp_path / name)
    with pytest.raises(UserError, match=f"no images .* in {tmp_path / 'empty'}"):
        list_folder(tmp_path / "empty")


def test_reading_gives_pixels_and_labels_sample_by_sample(tmp_path: Path) -> None:
    root = fill(tmp_path, "p/a/1.png", "p/b/1.png", "q/a/1.png", "q/b/1.png")
    dataset = read_folder(root)
    assert dataset.images.shape == (4, 4, 4, 3)
    assert dataset.images[:, 0, 0, 0].tolist() == [0, 10, 20, 30]
    assert dataset.labels.tolist() == [0, 1, 0, 1]
    assert dataset.class_names == ("a", "b")
    assert dataset.domains is not None
    assert dataset.domains.tolist() == [0, 0, 1, 1]
    assert dataset.domain_names == ("p", "q")


def test_images_are_grey_only_if_every_one_is(tmp_path: Path) -> None:
    root = fill(tmp_path, "a/1.png", "a/2.png", "b/1.png", mode="L")
    assert read_folder(root).images.shape[-1] == 1
    assert read_folder(root, channels=3).images.shape[-1] == 3
    fill(root, "b/2.png", mode="RGB")
    assert read_folder(root).images.shape[-1] == 3
    assert read_folder(root, channels=1).images.shape[-1] == 1


def test_differing_sizes_are_refused_with_the_way_out_and_a_size_is_that_way(
    tmp_path: Path,
) -> None:
    root = fill(tmp_path, "a/1.png", "b/1.png", "b/2.png", size=(8, 6))
    fill(root, "b/2.png", size=(9, 6))
    message = r"b/2.png: expected 8 x 6 .*, got 9 x 6; give a size, for example size=6, to resize them all"
    with pytest.raises(UserError, match=message):
        read_folder(root)
    assert read_folder(root, size=6).images.shape == (3, 6, 6, 3)
    assert read_folder(root, size=(3, 5), fit="stretch").images.shape == (3, 3, 5, 3)
    with pytest.raises(UserError, match="each 1 to 65,535 pixels; got 0"):
        read_folder(root, size=0)
    with pytest.raises(UserError, match=r"a/1.png: expected 6 x 6 [^;]*$"):
        read_folder(root, size=6, fit="exact")


def test_a_folder_of_tables_is_refused_with_the_name_of_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "embeddings.npy", np.zeros((2, 3)))
    with pytest.raises(UserError, match=r"for feature vectors name the file, .*embeddings\.npy"):
        list_folder(tmp_path)
