"""Tiny-ImageNet's layout, on a tiny copy of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from driftwise import RunConfig
from driftwise.config.build import load_data
from driftwise.datasets.cache import cached, source_of
from driftwise.datasets.catalogue import known_set
from driftwise.datasets.library import cache_name, existing_sources, load
from driftwise.datasets.readers import tiny_imagenet
from driftwise.datasets.readers.tiny_imagenet import difference_from_published, read_tiny_imagenet
from driftwise.datasets.validate import identity_of
from driftwise.errors import UserError

PUBLISHED = Path(tiny_imagenet.__file__).with_name("tiny_imagenet_classes.txt")

WORDS = {"n03": "crane, derrick", "n01": "goldfish, Carassius auratus", "n02": "crane, bird"}


def save(file: Path, grey: int, side: int = 64, mode: str = "RGB") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (side, side), grey).convert(mode).save(file, "JPEG")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three classes with two training and one validation image each; n02 is stored in grey."""
    path = tmp_path / "tiny-imagenet-200"
    annotations = []
    for number, wnid in enumerate(WORDS):
        for copy in range(2):
            file = path / "train" / wnid / "images" / f"{wnid}_{copy}.JPEG"
            save(file, 60 * number + copy, mode="L" if wnid == "n02" else "RGB")
        (path / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t9\t9\n")
        save(path / "val" / "images" / f"val_{number}.JPEG", 60 * number + 30)
        annotations.append(f"val_{number}.JPEG\t{wnid}\t0\t32\t44\t62\n")
    save(path / "test" / "images" / "test_0.JPEG", 0)
    (path / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WORDS))
    words = {**WORDS, "n99": "something else"}
    (path / "words.txt").write_text("".join(f"{key}\t{value}\n" for key, value in words.items()))
    (path / "val" / "val_annotations.txt").write_text("".join(annotations))
    return path


def test_classes_follow_wnids_txt_and_validation_is_the_test_part(root: Path) -> None:
    dataset = read_tiny_imagenet(root)
    assert dataset.images.shape == (9, 64, 64, 3)
    assert dataset.labels.tolist() == [0, 0, 1, 1, 2, 2, 0, 1, 2]
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False] * 6 + [True] * 3
    # n03, n01, n02 were stored with greys around 0, 60 and 120
    levels = dataset.images[:, 0, 0, 0].tolist()
    assert levels == [0, 1, 60, 61, 120, 121, 30, 90, 150]


def test_another_order_in_wnids_txt_is_another_data_set_and_not_served_from_the_cache(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))
    official = load("tiny-imagenet", root)
    (root / "wnids.txt").write_text("\n".join(sorted(WORDS)))
    resorted = load("tiny-imagenet", root)
    assert official.class_names == ("crane (n03)", "goldfish", "crane (n02)")
    assert resorted.class_names == ("goldfish", "crane (n02)", "crane (n03)")
    assert identity_of(official) != identity_of(resorted)


def test_a_cache_with_classes_by_sorted_ids_is_not_used(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))
    known = known_set("tiny-imagenet")
    made_before = source_of(existing_sources(known, root), tag="tiny-imagenet 1")
    stale = replace(read_tiny_imagenet(root), class_names=("by", "sorted", "ids"))
    cached(cache_name(known.name, root), made_before, lambda _: stale)
    assert load("tiny-imagenet", root).class_names[0] == "crane (n03)"


def test_only_the_official_order_is_the_published_one() -> None:
    order = PUBLISHED.read_text().splitlines()
    assert len({line.split()[0] for line in order}) == len(order) == 200
    names = [line.split()[1].replace("_", " ") for line in order]
    assert names[:3] == ["egyptian cat", "reel", "volleyball"]
    assert difference_from_published(names) is None
    by_id = [line.split()[1] for line in sorted(order)]
    assert difference_from_published(by_id) == "class 0 is goldfish, not egyptian_cat (n02124075)"
    assert difference_from_published(names[1:]) == "it has 199 classes, not 200"


def test_a_published_run_refuses_another_order_unless_the_user_chose_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))
    config = RunConfig(benchmark="tinyimagenet-cd", data=str(root), preset="published")
    with pytest.raises(UserError, match=r"official wnids\.txt; .* 3 classes, not 200\. Put the"):
        load_data(config)
    load_data(replace(config, class_order=(1, 2, 0)))
    load_data(replace(config, preset="auto"))


def edit(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


def test_what_does_not_fit_together_is_recognised_with_the_file(root: Path) -> None:
    annotations = root / "val" / "val_annotations.txt"
    edit(annotations, "val_1.JPEG\tn01", "val_1.JPEG\tn77")
    with pytest.raises(UserError, match=r"val_annotations.txt, line 2: .* got 'n77'"):
        read_tiny_imagenet(root)
    edit(annotations, "val_1.JPEG\tn77", "val_0.JPEG\tn01")
    with pytest.raises(UserError, match=r"line 2: there is no .*val_0.JPEG, or it is named twice"):
        read_tiny_imagenet(root)
    edit(annotations, "val_0.JPEG\tn01\t0\t32\t44\t62\n", "")
    with pytest.raises(UserError, match=r"val_1.JPEG has no label in .*val_annotations.txt"):
        read_tiny_imagenet(root)


def test_missing_or_damaged_tables_are_reported(root: Path) -> None:
    (root / "words.txt").write_text("n01\tgoldfish\n")
    with pytest.raises(UserError, match=r"words.txt has no words for 'n03'"):
        read_tiny_imagenet(root)
    (root / "wnids.txt").write_text("n01\nn02\nn01\n")
    with pytest.raises(UserError, match=r"wnids.txt names 'n01' twice"):
        read_tiny_imagenet(root)
    (root / "wnids.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"wnids.txt is damaged"):
        read_tiny_imagenet(root)
    (root / "wnids.txt").write_text("\n")
    with pytest.raises(UserError, match=r"wnids.txt is empty"):
        read_tiny_imagenet(root)
    (root / "wnids.txt").unlink()
    with pytest.raises(UserError, match=r"wnids.txt .*expected the folder tiny-imagenet-200"):
        read_tiny_imagenet(root)


def test_missing_or_wrong_images_are_reported(root: Path) -> None:
    save(root / "train" / "n02" / "images" / "n02_1.JPEG", 0, side=32)
    with pytest.raises(UserError, match=r"n02_1.JPEG: expected 64 x 64 .* got 32 x 32"):
        read_tiny_imagenet(root)
    for file in (root / "train" / "n02" / "images").iterdir():
        file.unlink()
    with pytest.raises(UserError, match=r"n02/images holds no images"):
        read_tiny_imagenet(root)
    (root / "train" / "n02" / "images").rmdir()
    with pytest.raises(UserError, match=r"expected a folder of images at .*n02/images"):
        read_tiny_imagenet(root)
