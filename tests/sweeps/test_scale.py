from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from run_tools import complaint

from driftwise import RunConfig
from driftwise.config.presets import PAPER, resolve
from driftwise.sweeps.scale import SCALES, SIZES, Scale, scale_named

SMOKE, SMALL, PAPERS = SCALES["smoke"], SCALES["small"], SCALES["paper"]


def config_of(benchmark: str, buffer_size: int = 500, method: str = "er") -> RunConfig:
    return RunConfig(
        benchmark=benchmark, method=method, buffer_size=buffer_size, preset="published"
    )


@pytest.mark.parametrize("benchmark", SIZES)
def test_at_the_papers_scale_a_run_is_as_it_would_be_without_one(benchmark: str) -> None:
    config = config_of(benchmark)
    assert PAPERS.apply(config) == resolve(config)
    assert PAPERS.is_full
    assert not SMOKE.is_full
    size = SIZES[benchmark].images
    assert PAPERS.note([resolve(config)]).startswith(f"{benchmark}: all {size:,} training images; ")


@pytest.mark.parametrize("scale", [SMOKE, SMALL], ids=["smoke", "small"])
@pytest.mark.parametrize("method", ["er", "der++", "cls-er"])
@pytest.mark.parametrize("buffer_size", [500, 5000])
def test_training_settings_are_those_of_the_nominal_buffer(
    scale: Scale, method: str, buffer_size: int
) -> None:
    row = PAPER["cifar10-cd", method, buffer_size]
    config = scale.apply(config_of("cifar10-cd", buffer_size, method))
    assert (config.lr, config.batch_size) == (row.values["lr"], row.values["batch_size"])
    for name, value in row.options["method"].items():
        assert config.options["method"][name] == value


def test_buffers_shrink_with_the_images() -> None:
    # 2,000 of 60,000 images: 1/30 of 500 and of 5,000
    sizes = [SMOKE.apply(config_of("fmnist-cd", size)).buffer_size for size in (500, 5000)]
    assert sizes == [17, 167]
    # 20,000 of 50,000
    assert SMALL.apply(config_of("cifar100-cd", 500)).buffer_size == 200
    assert SMOKE.apply(config_of("fmnist-cd", 1)).buffer_size == 1


@pytest.mark.parametrize("scale", [SMOKE, SMALL], ids=["smoke", "small"])
@pytest.mark.parametrize("benchmark", [name for name in SIZES if name != "digits-cd"])
def test_classes_share_the_images_evenly(scale: Scale, benchmark: str) -> None:
    per_class = scale.apply(config_of(benchmark)).max_per_class
    assert per_class is not None
    assert per_class * SIZES[benchmark].classes == scale.images[benchmark]


def test_what_is_asked_for_wins_over_the_scale() -> None:
    for per_class in (20, 5_000):
        asked = RunConfig(benchmark="fmnist-cd", max_per_class=per_class)
        assert SMOKE.apply(asked).max_per_class == per_class
    assert SMOKE.apply(RunConfig(max_per_class=30)).max_per_class == 30
    assert SMOKE.apply(RunConfig()).max_per_class is None
    long = SMOKE.apply(dataclasses.replace(config_of("cifar10-cd"), epochs=5))
    assert long.epochs == 5
    steps = dataclasses.replace(config_of("cifar100-cd"), lr_milestones=(2, 3))
    assert SMOKE.apply(steps).lr_milestones == (2, 3)
    narrow = RunConfig(
        benchmark="cifar100-cd",
        backbone="vit-s",
        options={"backbone": {"dim": 24, "patch-size": 8}},
    )
    options = SMOKE.apply(narrow).options["backbone"]
    assert (options["dim"], options["depth"], options["patch_size"]) == (24, 2, 8)


def test_buffers_shrink_with_images_that_were_asked_for() -> None:
    # 20 of each of 10 classes out of 60,000: 1/300 of 5,000
    few = dataclasses.replace(config_of("fmnist-cd", 5000), max_per_class=20)
    assert SMOKE.apply(few).buffer_size == 17
    assert PAPERS.apply(few).buffer_size == 5000  # this scale makes nothing smaller


def test_epochs_are_capped_and_milestones_shrink_with_them() -> None:
    smoke, small = (scale.apply(config_of("cifar100-cd")) for scale in (SMOKE, SMALL))
    # the paper's: 35 and 45 of 50
    assert (small.epochs, small.lr_milestones) == (10, (7, 9))
    assert (smoke.epochs, smoke.lr_milestones) == (2, (1,))
    one = SMALL.apply(config_of("fmnist-cd"))
    assert (one.epochs, one.lr_milestones) == (1, None)


def test_networks_get_narrower_and_keep_their_other_options() -> None:
    assert SMOKE.apply(config_of("cifar10-cd")).options["backbone"]["width"] == 8
    vit = RunConfig(
        benchmark="cifar100-cd", backbone="vit-s", options={"backbone": {"patch_size": 8}}
    )
    options = SMALL.apply(vit).options["backbone"]
    assert (options["dim"], options["depth"], options["heads"]) == (96, 4, 3)
    assert options["patch_size"] == 8


def test_a_scale_leaves_detection_as_it_is() -> None:
    for chosen in (
        RunConfig(benchmark="fmnist-cd", detector="oracle", options={"detector": {"tpr": 0.5}}),
        RunConfig(benchmark="fmnist-cd", detector="mmd", encoder="random"),
    ):
        smoke, whole = SMOKE.apply(chosen), resolve(chosen)
        assert (smoke.detector, smoke.encoder) == (whole.detector, whole.encoder)
        assert smoke.reference == whole.reference
        assert smoke.options["detector"] == whole.options["detector"]


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_on_other_data_buffers_hold_the_share_that_they_would_hold_of_the_published(
    scale: Scale,
) -> None:
    config = scale.apply(config_of("digits-cd", 5000), published_on="fmnist-cd")
    assert config.buffer_size == round(5000 * 1_438 / 60_000)
    note = scale.note([config], published_on="fmnist-cd")
    assert "digits-cd: 1,438 training images of the published 60,000" in note


def test_the_note_says_what_runs_in_one_line() -> None:
    config = SMOKE.apply(config_of("cifar10-cd"))
    note = SMOKE.note([config, config])
    assert "\n" not in note
    for part in ("2,000 training images", "times 0.04", "resnet18 width 8", "2 epochs", "ks"):
        assert note.count(part) == 1
    combined: dict[str, Any] = {
        "detector": "combined",
        "encoder": "learner",
        "reference": "held-out",
    }
    assert "three tests" in SMOKE.note([dataclasses.replace(config, **combined)])
    assert "three tests" not in SMOKE.note([dataclasses.replace(config, detector="combined")])


CHANGES: list[tuple[Scale, dict[str, Any], str]] = [
    (PAPERS, {}, "fmnist-cd: all 60,000 training images; resnet18; 1 epoch; "),
    (
        PAPERS,
        {"epochs": 3, "max_per_class": 10},
        "fmnist-cd: 100 training images of the published 60,000, buffers as named; resnet18; 3 ep",
    ),
    (PAPERS, {"backbone": "mlp"}, "fmnist-cd: all 60,000 training images; mlp; "),
    (
        SMOKE,
        {"max_per_class": 20},
        "fmnist-cd: 200 training images of the published 60,000, buffers times 0.00333; ",
    ),
    (SMOKE, {"epochs": 5}, "0.0333; resnet18 width 8; 5 epochs; "),
    (SMOKE, {"options": {"backbone": {"width": 4}}}, "resnet18 width 4; "),
    (SMOKE, {"detector": "oracle"}, "detector oracle"),
    (PAPERS, {"benchmark": "pacs-cd"}, "pacs-cd: all training images; "),
    (
        PAPERS,
        {"benchmark": "pacs-cd", "max_per_class": 10},
        "pacs-cd: at most 10 training images of a class; ",
    ),
]


@pytest.mark.parametrize(("scale", "change", "told"), CHANGES)
def test_the_note_is_true_of_settings_that_were_changed(
    scale: Scale, change: dict[str, Any], told: str
) -> None:
    asked = dataclasses.replace(config_of("fmnist-cd"), **change)
    note = scale.note([scale.apply(asked)])
    assert told in note
    assert "as published" not in note


def test_the_note_gives_lowest_and_highest_where_runs_differ() -> None:
    runs = [
        SMOKE.apply(dataclasses.replace(config_of("fmnist-cd"), max_per_class=count, epochs=count))
        for count in (30, 10, 20)
    ]
    note = SMOKE.note(runs)
    assert "100 to 300 training images" in note
    assert "times 0.00167 to 0.005" in note
    assert "10 to 30 epochs" in note


def test_strangers_are_refused() -> None:
    assert "did you mean 'small'" in complaint(lambda: scale_named("smal"))
    assert scale_named("smoke") is SMOKE
    yearbook = RunConfig(benchmark="yearbook-cd")
    line = complaint(lambda: SMOKE.apply(yearbook))
    assert "the scale smoke does not know how large yearbook-cd is; use the scale paper" in line
    assert PAPERS.apply(yearbook).benchmark == "yearbook-cd"


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_advice_for_other_data_does_not_name_the_scale_that_was_given(scale: Scale) -> None:
    pacs = RunConfig(benchmark="pacs-cd")
    line = complaint(lambda: scale.apply(pacs, published_on="fmnist-cd"))
    assert "what the buffers of fmnist-cd would be on pacs-cd is not known" in line
    assert "scale" not in line


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_a_scale_applied_to_what_it_made_changes_no_training_setting(scale: Scale) -> None:
    once = scale.apply(config_of("fmnist-cd", 5000, "cls-er"))
    assert resolve(once) == once
