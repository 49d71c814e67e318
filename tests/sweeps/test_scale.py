"""What a scale makes smaller, what it leaves alone, and that its note is true."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from run_tools import complaint

from driftwise import RunConfig
from driftwise.config.presets import PAPER, resolve
from driftwise.sweeps.scale import DETECTION, SCALES, SIZES, Scale, scale_named

SMOKE, SMALL, PAPERS = SCALES["smoke"], SCALES["small"], SCALES["paper"]


def config_of(
    benchmark: str, buffer_size: int = 500, method: str = "er", **changes: Any
) -> RunConfig:
    names = {"benchmark": benchmark, "method": method, "buffer_size": buffer_size}
    return RunConfig(**{**names, "preset": "published", **changes})


@pytest.mark.parametrize("benchmark", SIZES)
def test_the_papers_scale_changes_nothing_and_others_share_images_evenly(benchmark: str) -> None:
    config, size = config_of(benchmark), SIZES[benchmark]
    assert PAPERS.apply(config) == resolve(config)
    images = f"{benchmark}: all {size.images:,} training images; "
    assert PAPERS.note([resolve(config)]).startswith(images)
    assert (PAPERS.is_full, SMOKE.is_full) == (True, False)
    for scale in (SMOKE, SMALL):
        per_class = scale.apply(config).max_per_class
        assert (per_class or 0) * size.classes == scale.images.get(benchmark, 0)


@pytest.mark.parametrize(
    ("scale", "method", "buffer_size"),
    [(SMOKE, "er", 500), (SMALL, "der++", 5000), (SMOKE, "cls-er", 5000), (SMALL, "er", 500)],
)
def test_training_settings_are_those_of_the_nominal_buffer(
    scale: Scale, method: str, buffer_size: int
) -> None:
    published = PAPER["cifar10-cd", method, buffer_size]
    config = scale.apply(config_of("cifar10-cd", buffer_size, method))
    assert (config.lr, config.batch_size) == (
        published.values["lr"],
        published.values["batch_size"],
    )
    for name, value in published.options["method"].items():
        assert config.options["method"][name] == value


def test_buffers_shrink_with_the_images() -> None:
    # 2,000 of 60,000 images: 1/30 of 500 and of 5,000
    sizes = [SMOKE.apply(config_of("fmnist-cd", size)).buffer_size for size in (500, 5000, 1)]
    assert sizes == [17, 167, 1]
    assert SMALL.apply(config_of("cifar100-cd", 500)).buffer_size == 200  # 20,000 of 50,000
    # 20 of each of 10 classes out of 60,000: 1/300 of 5,000
    few = config_of("fmnist-cd", 5000, max_per_class=20)
    assert SMOKE.apply(few).buffer_size == 17
    assert PAPERS.apply(few).buffer_size == 5000  # this scale makes nothing smaller
    for scale in SCALES.values():
        digits = scale.apply(config_of("digits-cd", 5000), published_on="fmnist-cd")
        assert digits.buffer_size == round(5000 * 1_438 / 60_000)
        note = scale.note([digits], published_on="fmnist-cd")
        assert "digits-cd: 1,438 training images of the published 60,000" in note


def test_what_the_user_sets_wins_over_the_scale() -> None:
    for per_class in (20, 5_000):
        asked = RunConfig(benchmark="fmnist-cd", max_per_class=per_class)
        assert SMOKE.apply(asked).max_per_class == per_class
    assert SMOKE.apply(RunConfig(max_per_class=30)).max_per_class == 30
    assert SMOKE.apply(RunConfig()).max_per_class is None
    assert SMOKE.apply(config_of("cifar10-cd", epochs=5)).epochs == 5
    assert SMOKE.apply(config_of("cifar100-cd", lr_milestones=(2, 3))).lr_milestones == (2, 3)
    options = {"backbone": {"dim": 24, "patch-size": 8}}
    narrow = SMOKE.apply(RunConfig(benchmark="cifar100-cd", backbone="vit-s", options=options))
    found = narrow.options["backbone"]
    assert (found["dim"], found["depth"], found["patch_size"]) == (24, 2, 8)


def test_epochs_are_capped_milestones_shrink_and_networks_get_narrower() -> None:
    smoke, small = (scale.apply(config_of("cifar100-cd")) for scale in (SMOKE, SMALL))
    # the paper's: 35 and 45 of 50
    assert (small.epochs, small.lr_milestones) == (10, (7, 9))
    assert (smoke.epochs, smoke.lr_milestones) == (2, (1,))
    one = SMALL.apply(config_of("fmnist-cd"))
    assert (one.epochs, one.lr_milestones) == (1, None)
    assert SMOKE.apply(config_of("cifar10-cd")).options["backbone"]["width"] == 8
    for scale in SCALES.values():
        once = scale.apply(config_of("fmnist-cd", 5000, "cls-er"))
        assert resolve(once) == once


@pytest.mark.parametrize(
    "changes",
    [
        {"detector": "oracle", "options": {"detector": {"tpr": 0.5}}},
        {"detector": "mmd", "encoder": "random"},
    ],
)
def test_a_scale_leaves_detection_as_it_is(changes: dict[str, Any]) -> None:
    chosen = RunConfig(benchmark="fmnist-cd", **changes)
    smoke, whole = SMOKE.apply(chosen), resolve(chosen)
    assert (smoke.detector, smoke.encoder, smoke.reference, smoke.options["detector"]) == (
        *(whole.detector, whole.encoder, whole.reference, whole.options["detector"]),
    )


NOTES: list[tuple[Scale, dict[str, Any], str]] = [
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
    (SMOKE, {"detector": "combined", "encoder": "learner", "reference": "held-out"}, "three tests"),
]


@pytest.mark.parametrize(("scale", "change", "words"), NOTES)
def test_the_note_is_true_of_settings_that_were_changed(
    scale: Scale, change: dict[str, Any], words: str
) -> None:
    config = scale.apply(dataclasses.replace(config_of("fmnist-cd"), **change))
    assert words in scale.note([config])


def test_the_note_is_one_line_with_lowest_and_highest_where_runs_differ() -> None:
    config = SMOKE.apply(config_of("cifar10-cd"))
    note = SMOKE.note([config, config])
    assert "\n" not in note
    for part in ("2,000 training images", "times 0.04", "resnet18 width 8", "2 epochs", "ks"):
        assert note.count(part) == 1
    counts = (30, 10, 20)
    runs = [SMOKE.apply(config_of("fmnist-cd", max_per_class=n, epochs=n)) for n in counts]
    note = SMOKE.note(runs)
    for part in ("100 to 300 training images", "times 0.00167 to 0.005", "10 to 30 epochs"):
        assert part in note


def test_unknown_scales_and_benchmarks_are_refused() -> None:
    assert "did you mean 'small'" in complaint(lambda: scale_named("smal"))
    assert scale_named("smoke") is SMOKE
    yearbook = RunConfig(benchmark="yearbook-cd")
    line = complaint(lambda: SMOKE.apply(yearbook))
    assert "the scale smoke does not know how large yearbook-cd is; use the scale paper" in line
    assert PAPERS.apply(yearbook).benchmark == "yearbook-cd"
    for scale in SCALES.values():
        line = complaint(lambda: scale.apply(yearbook, published_on="fmnist-cd"))  # noqa: B023
        assert "what the buffers of fmnist-cd would be on yearbook-cd is not known" in line
        assert "scale" not in line


def test_fewer_classes_keep_the_images_and_the_buffer_of_each() -> None:
    tables = SCALES["tables"]
    config = tables.apply(
        RunConfig(benchmark="cifar100-cd", preset="published", buffer_size=500, detector="ks")
    )
    assert config.class_order == tuple(range(20))
    assert (config.num_tasks, config.max_per_class) == (10, None)  # all 500 images of a class
    assert config.buffer_size == 100  # five samples of each class, as published
    assert (config.epochs, config.batch_size, config.minibatch_size) == (1, 10, 10)
    tiny = tables.apply(
        RunConfig(benchmark="tinyimagenet-cd", preset="published", buffer_size=5000)
    )
    assert (len(tiny.class_order or ()), tiny.buffer_size) == (20, 500)
    assert "2,000 training images of 20 classes" in tables.note([tiny])
    own = RunConfig(benchmark="cifar100-cd", batch_size=7, epochs=2, class_order=(3, 1, 2, 0))
    kept = tables.apply(dataclasses.replace(own, num_tasks=2))
    assert (kept.batch_size, kept.epochs, kept.class_order) == (7, 2, (3, 1, 2, 0))


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_class_statistics_have_no_buffer_and_no_network_to_make_smaller(scale: Scale) -> None:
    settings = {"benchmark": "fmnist-cd", "method": "slda", "frozen_encoder": "random"}
    config = scale.apply(RunConfig(**settings))  # type: ignore[arg-type]
    assert (config.buffer_size, config.minibatch_size, config.backbone) == (None, None, None)
    assert "class statistics (slda)" in scale.note([config])


def test_a_scale_changes_how_drift_is_detected_only_where_nobody_chose() -> None:
    tables = SCALES["tables"]
    detection: dict[str, Any] = {**DETECTION}
    usual = config_of("tinyimagenet-cd", **detection)
    assert tables.apply(usual).encoder == "random"
    assert tables.apply(usual).reference == "fingerprint"
    chosen = tables.apply(config_of("tinyimagenet-cd", **detection | {"detector": "ks"}))
    assert (chosen.encoder, chosen.reference) == ("learner", "held-out")
    elsewhere = tables.apply(dataclasses.replace(usual, benchmark="cifar100-cd"))
    assert (elsewhere.encoder, elsewhere.reference) == ("learner", "held-out")
