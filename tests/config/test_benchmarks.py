"""The benchmarks whose stream is more than a split of classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftwise import RunConfig, UserError, run
from driftwise.config.benchmarks import known
from driftwise.config.build import make_stream
from driftwise.config.presets import resolve
from driftwise.datasets import group_domains
from driftwise.datasets.readers.clear import CLASSES
from driftwise.types import Dataset


def by_years() -> Dataset:
    years = np.repeat(np.arange(4), 3)
    return Dataset(
        images=np.arange(12, dtype=np.uint8).reshape(12, 1, 1, 1),
        labels=np.zeros(12, dtype=np.int64),
        class_names=("a",),
        domains=years,
        domain_names=("1", "2", "9", "10"),
    )


def test_grouping_renames_domains_and_copies_no_pixel() -> None:
    before = by_years()
    after = group_domains(before, {"1": "early", "10": "late"})
    assert after.images is before.images
    assert after.domain_names == ("early", "late", "other")
    assert after.domains is not None
    assert after.domains.tolist() == [0] * 3 + [2] * 6 + [1] * 3


def test_a_domain_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match="no domain '3'; it has 1, 2, 9, 10"):
        group_domains(by_years(), {"3": "early"})


@pytest.fixture
def clear_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CLEAR-10's official layout with an image or two in every cell, its number in its colour."""
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "clear10"
    for part, count in (("train_image_only", 12), ("test", 2)):
        for bucket in range(1, 11):
            for number, name in enumerate(CLASSES):
                folder = root / part / "labeled_images" / str(bucket) / name
                folder.mkdir(parents=True)
                for shot in range(count if bucket in (1, 2, 9, 10) else 1):
                    colour = (bucket * 20, number * 20, shot * 10)
                    Image.new("RGB", (8, 8), colour).save(folder / f"{shot}.png")
    return root


def test_clear10_learns_the_first_buckets_and_drifts_to_the_last(clear_folder: Path) -> None:
    data = known(clear_folder, name="clear10-cd")
    stream = make_stream(resolve(RunConfig(benchmark="clear10-cd")), data)
    assert [event.task for event in stream.schedule.events] == [2, 4]
    assert len(stream) == 5
    for part, task, buckets in (("train", 1, {1, 2}), ("test", 2, {9, 10}), ("test", 5, {9, 10})):
        samples = stream.samples(part, [0, 1], task)
        assert len(samples)
        assert {round(int(value) / 20) for value in samples.images[:, 0, 0, 0]} == buckets


def test_a_folder_of_ones_own_runs_from_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for shot in range(60):
            image = Image.new("RGB", (10, 12), (200 * number, 4 * shot, 90))
            image.save(tmp_path / "photos" / name / f"{shot}.png")
    config = RunConfig(
        benchmark="folder",
        data=str(tmp_path / "photos"),
        num_tasks=2,
        epochs=1,
        options={"benchmark": {"size": 8}},
    )
    result = run(config, tmp_path / "run")
    assert result["class_names"] == ["cat", "dog"]
    assert result["config"]["options"]["benchmark"]["size"] == 8
