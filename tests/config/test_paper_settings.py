"""The paper's training settings: each as published, and what is not published marked as chosen."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from run_tools import complaint

from driftwise import run
from driftwise.config.presets import NAMES, PAPER, preset_of, resolve
from driftwise.config.schema import RunConfig

FILE = Path(__file__).with_name("paper_hyperparameters.csv")
TABLE = list(csv.DictReader(FILE.read_text().splitlines()))
OPTIONS = (
    *("alpha", "beta", "reg_weight"),
    *("stable_update_freq", "stable_alpha", "plastic_update_freq", "plastic_alpha"),
)
"""The columns that are options of the method; those that do not concern it are empty."""
BENCHMARKS = {
    "S-FMNIST-CD": "fmnist-cd",
    "S-CIFAR10-CD": "cifar10-cd",
    "S-CIFAR100-CD": "cifar100-cd",
    "S-Tiny-ImageNet-CD": "tinyimagenet-cd",
}
CHOSEN = "this project's choice"


def key_of(row: dict[str, str]) -> tuple[str, str, int]:
    return BENCHMARKS[row["benchmark"]], row["method"].lower(), int(row["buffer_size"])


def name_of(row: dict[str, str]) -> str:
    return "/".join(map(str, key_of(row)))


def check_training(config: RunConfig, row: dict[str, str]) -> None:
    """Whether a resolved config trains as a line of the table says."""
    assert config.lr == float(row["lr"])
    for name in ("minibatch_size", "batch_size", "epochs"):
        assert getattr(config, name) == int(row[name]), name
    published = {name: float(row[name]) for name in OPTIONS if row[name]}
    options = dict(config.options.get("method", {}))
    options.pop("predict", None)  # which of CLS-ER's networks answers is not in the table
    options.pop("one_forward", None)  # how DER++ goes about its terms neither
    assert options == published
    # The table's caption and the text: plain SGD, and only CIFAR-100's rate falls within a task.
    assert (config.optimiser, config.momentum, config.weight_decay) == ("sgd", 0, 0)
    assert (config.augmentation, config.normalise) == ("none", False)
    falls = row["benchmark"] == "S-CIFAR100-CD"
    assert config.scheduler == ("steps" if falls else "constant")
    assert (config.lr_milestones, config.lr_drop) == ((35, 45) if falls else None, 0.1)


# --- what is published --------------------------------------------------------------------------


def test_the_table_is_complete_and_holds_nothing_else() -> None:
    assert len(TABLE) == 40
    assert set(PAPER) == {key_of(row) for row in TABLE}
    assert {"auto", "published", *map(name_of, TABLE)} == set(NAMES)


def test_a_benchmark_a_method_and_a_buffer_size_give_the_papers_settings() -> None:
    for number, row in enumerate(TABLE):
        benchmark, method, buffer_size = key_of(row)
        config = RunConfig(
            benchmark=benchmark,
            method=method,
            buffer_size=None if (number, buffer_size) == (0, 500) else buffer_size,
            preset=("auto", "published")[number % 2],
        )
        resolved = resolve(config)
        check_training(resolved, row)
        assert (resolved.buffer_size, resolved.backbone) == (buffer_size, "resnet18")
        assert f"the paper's table, {name_of(row)}" in preset_of(config).source
        assert CHOSEN not in preset_of(config).source


def test_a_line_of_the_table_can_be_named_for_your_own_data() -> None:
    for row in TABLE:
        _, method, buffer_size = key_of(row)
        config = RunConfig(benchmark="npz", method=method, preset=name_of(row))
        resolved = resolve(config)
        check_training(resolved, row)
        assert (resolved.buffer_size, resolved.backbone) == (buffer_size, "resnet18")
        assert preset_of(config).source == f"the paper's table, {name_of(row)}"


def test_what_is_given_wins_over_the_paper() -> None:
    given: dict[str, Any] = {
        "lr": 0.7,
        "epochs": 2,
        "batch_size": 3,
        "minibatch_size": 4,
        "backbone": "mlp",
        "optimiser": "adam",
        "scheduler": "constant",
    }
    config = RunConfig(
        benchmark="cifar100-cd", method="der++", options={"method": {"alpha": 0.9}}, **given
    )
    resolved = resolve(config)
    assert {name: getattr(resolved, name) for name in given} == given
    assert resolved.options["method"] == {
        "alpha": 0.9,
        "beta": 0.5,
        "one_forward": False,
    }


# --- transformers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("benchmark", "scheduler"),
    [
        ("fmnist-cd", "constant"),
        ("cifar10-cd", "constant"),
        ("cifar100-cd", "cosine"),
        ("tinyimagenet-cd", "constant"),
    ],
)
def test_a_transformer_trains_100_epochs_and_on_cifar100_along_a_cosine(
    benchmark: str, scheduler: str
) -> None:
    resolved = resolve(RunConfig(benchmark=benchmark, backbone="vit-s", buffer_size=5000))
    assert (resolved.epochs, resolved.scheduler) == (100, scheduler)
    assert (resolved.lr_milestones, resolved.lr_floor) == (None, 0.01)
    assert (resolved.lr, resolved.batch_size) == (0.1, 32 if benchmark != "fmnist-cd" else 10)
    brief = resolve(RunConfig(benchmark=benchmark, backbone="vit-s", epochs=3))
    assert brief.epochs == 3


# --- what is not --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("benchmark", "method", "buffer_size", "like"),
    [
        # CLEAR-10's rate is not published; its buffer of 1,000 is.
        ("clear10-cd", "er", None, "cifar10-cd/er/500"),
        ("clear10-cd", "cls-er", 1000, "cifar10-cd/cls-er/500"),
        ("clear10-cd", "er-ace", 500, "cifar10-cd/er-ace/500"),
        ("clear10-cd", "er", 5000, "cifar10-cd/er/5000"),
        # By ratio, 1,000 is nearer to 500 and 2,000 to 5,000.
        ("fmnist-cd", "cls-er", 200, "fmnist-cd/cls-er/500"),
        ("cifar10-cd", "der++", 1000, "cifar10-cd/der++/500"),
        ("cifar10-cd", "der++", 2000, "cifar10-cd/der++/5000"),
        ("tinyimagenet-cd", "er", 501, "tinyimagenet-cd/er/500"),
        ("tinyimagenet-cd", "er", 20000, "tinyimagenet-cd/er/5000"),
        ("cifar100-cd", "finetune", None, "cifar100-cd/er/500"),
        ("tinyimagenet-cd", "finetune", 5000, "tinyimagenet-cd/er/5000"),
        ("cifar100-cd", "joint", 500, "cifar100-cd/er/500"),
    ],
)
def test_what_the_paper_does_not_publish_is_taken_from_its_nearest_line_and_says_so(
    benchmark: str, method: str, buffer_size: int | None, like: str
) -> None:
    config = RunConfig(benchmark=benchmark, method=method, buffer_size=buffer_size)
    resolved = resolve(config)
    (row,) = (row for row in TABLE if name_of(row) == like)
    if method == "joint":
        assert resolved.options.pop("method") == {"from_scratch": True}  # type: ignore[attr-defined]
    check_training(resolved, row)
    expected = 1000 if benchmark == "clear10-cd" else 500
    assert resolved.buffer_size == (buffer_size or expected)
    source = preset_of(config).source
    assert source.startswith(CHOSEN)
    assert like in source


@pytest.mark.parametrize(
    ("settings", "like"),
    [
        ({"backbone": "vit-tiny", "method": "der++"}, "der++"),
        ({"backbone": "cnn"}, "er"),
        ({"backbone": "torch.nn:Linear"}, "er"),
        ({"method": "driftwise.methods:Finetune"}, "er"),
    ],
    ids=str,
)
def test_what_nobody_tuned_is_not_said_to_be_chosen_on_development_seeds(
    settings: dict[str, str], like: str
) -> None:
    assert preset_of(RunConfig(**settings)).source == (  # type: ignore[arg-type]
        f"this project's choice: its settings of {like} with an mlp, not tuned anew"
    )


# --- names that do not fit ----------------------------------------------------------------------


def test_a_preset_for_another_method_is_refused_in_one_line() -> None:
    config = RunConfig(benchmark="npz", method="der++", preset="fmnist-cd/er/500")
    assert complaint(lambda: resolve(config)) == (
        "preset fmnist-cd/er/500 is for method er; got method der++"
    )


def test_a_line_taken_by_name_keeps_its_buffer_size_on_benchmarks_that_have_their_own() -> None:
    for benchmark in ("clear10-cd", "pacs-cd"):
        config = resolve(RunConfig(benchmark=benchmark, preset="cifar10-cd/er/5000"))
        assert config.buffer_size == 5000
        assert resolve(RunConfig(benchmark=benchmark)).buffer_size in (500, 1000)


@pytest.mark.filterwarnings("ignore")
def test_a_published_run_tests_every_class_that_has_a_sample_in_the_buffer(tmp_path: Path) -> None:
    config = RunConfig(
        preset="published",
        encoder="random",
        adaptation="vanilla",
        epochs=1,
        buffer_size=6,
        max_per_class=20,
    )
    verdicts = run(config, tmp_path / "run")["verdicts"]
    sizes = [verdict["num_reference"] for verdict in verdicts]
    assert 1 <= min(sizes) <= max(sizes) < 5
    assert all(verdict["drifted"] is not None for verdict in verdicts)
