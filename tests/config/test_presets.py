from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from run_tools import complaint

from driftwise import paths
from driftwise.config import registry
from driftwise.config.build import assemble
from driftwise.config.presets import NAMES, OF_GRADIENTS, learns_vectors, preset_of, resolve
from driftwise.config.schema import RunConfig

OPEN = (
    *("label_budget", "min_harm", "max_classes_per_drift", "class_order", "tasks", "num_tasks"),
    *("data", "domains", "first_domain", "transform", "severity", "drift_seed"),
    *("data_identity", "code_identity"),
    *("lr_milestones", "channels", "threads", "max_per_class", "frozen_encoder", "scaling"),
)
"""Settings that stay None: absence is what they say."""


def combinations() -> list[RunConfig]:
    """Every benchmark and every method with either preset; a preset of a method with that one."""
    benchmarks, methods = (list(registry.CATALOGUE[kind]) for kind in ("benchmark", "method"))
    return [
        *(
            config
            for name in benchmarks
            for preset in NAMES[:2]
            if not learns_vectors(config := RunConfig(benchmark=name, preset=preset))
            or preset != "published"  # which vectors have no part in
        ),
        *(RunConfig(method=name, preset=preset) for name in methods for preset in NAMES[:2]),
        RunConfig(benchmark="folder", method="cls-er", preset="cifar100-cd/cls-er/500"),
        RunConfig(backbone="cnn", options={"detector": {"level": 0.01}}, tasks=((0, 1, 2), (3,))),
    ]


@pytest.mark.parametrize("config", combinations(), ids=lambda c: f"{c.preset}-{c.benchmark}")
def test_resolving_leaves_nothing_open_and_names_the_source_of_values(config: RunConfig) -> None:
    resolved = resolve(config)
    missing = [name for name, value in vars(resolved).items() if value is None]
    # What belongs to a buffer and a network, or else to class statistics.
    of_others = OF_GRADIENTS if registry.is_analytic(config.method) else ("fresh_samples",)
    assert set(missing) <= {*OPEN, *of_others}
    assert (resolved.tasks is None) != (resolved.num_tasks is None)
    assert preset_of(config).source
    assert resolve(resolved) == resolved
    assert dataclasses.replace(resolved) == resolved, "what presets fill in passes every check"


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which data are looked for, empty."""
    monkeypatch.delenv("DRIFTWISE_RESNET18", raising=False)
    only = [paths.Place(path=tmp_path / "resnet18.safetensors", origin="a test")]
    monkeypatch.setattr(paths, "candidates", lambda hints, *, explicit=None: only)
    return tmp_path


@pytest.mark.usefixtures("data_folder")
def test_the_published_preset_takes_the_experiments_choices_and_no_others() -> None:
    right, published = resolve(RunConfig()), resolve(RunConfig(preset="published"))
    differing = {name for name, value in vars(right).items() if getattr(published, name) != value}
    assert differing == {
        *("preset", "monitor", "checked", "encoder", "reference", "buffer_policy", "drift_seed"),
        *("channels", "options", "realigned_logits"),
    }
    assert (published.monitor, published.checked) == ("test", "just-drifted")
    assert (published.encoder, published.reference) == ("random", "memory")
    assert (published.buffer_policy, published.drift_seed) == ("balanced", 42)
    assert published.channels == 3, "grey images were repeated to colour ones"
    assert (right.realigned_logits, published.realigned_logits) == ("evaluation", "training")
    detector = published.options["detector"]
    assert (detector["correction"], detector["level"]) == ("none", 0.05)
    assert (detector["min_rows"], detector["calibration"]) == (1, "asymptotic")
    assert right.options["detector"]["min_rows"] == 5
    rows = resolve(RunConfig(benchmark="fmnist-cd", preset="published"))
    assert rows.permutation_unit == "row"
    assert resolve(RunConfig(preset="published", buffer_policy="reservoir")).buffer_policy == (
        "reservoir"
    )


def test_the_published_preset_takes_mmd_on_clear10_unless_set_otherwise() -> None:
    chosen = resolve(RunConfig(benchmark="clear10-cd", preset="published"))
    assert chosen.detector == "mmd"
    assert chosen.options["detector"]["correction"] == "none"
    own = resolve(RunConfig(benchmark="clear10-cd", preset="published", detector="ks"))
    assert own.detector == "ks"
    assert resolve(RunConfig(benchmark="clear10-cd")).detector == "ks"
    assert resolve(RunConfig(benchmark="cifar10-cd", preset="published")).detector == "ks"


def test_the_published_preset_takes_the_published_encoder_where_its_weights_are(
    data_folder: Path,
) -> None:
    open_, own = RunConfig(preset="published"), RunConfig(preset="published", encoder="learner")
    assert resolve(open_).encoder == "random"
    assert "encoder random, as the weights" in preset_of(open_).source
    (data_folder / "resnet18.safetensors").touch()
    here = resolve(open_)
    assert here.encoder == "resnet18-imagenet"
    assert str(data_folder) in preset_of(open_).source
    assert resolve(own).encoder == "learner"
    assert "encoder" not in preset_of(own).source
    assert resolve(RunConfig()).encoder == "learner"
    (data_folder / "resnet18.safetensors").unlink()
    assert resolve(here) == here, "what was settled with weights stays so without"


@pytest.mark.parametrize("settings", [{"detector": "oracle"}, {"benchmark": "own"}])
def test_weights_make_no_other_run_where_they_encode_nothing(
    data_folder: Path, settings: dict[str, Any]
) -> None:
    config = RunConfig(preset="published", **settings)
    without = resolve(config)
    (data_folder / "resnet18.safetensors").touch()
    assert resolve(config) == without


@pytest.mark.usefixtures("data_folder")
def test_a_published_run_without_the_published_encoder_warns() -> None:
    def encoders_warned_of(**settings: Any) -> list[str]:
        found = assemble(resolve(RunConfig(preset="published", **settings))).warnings
        return [each for each in found if "resnet18-imagenet" in each]

    assert len(encoders_warned_of()) == 1
    assert not encoders_warned_of(encoder="learner")
    assert not encoders_warned_of(detector="oracle")


def test_a_users_tasks_take_the_place_of_a_benchmarks_own() -> None:
    assert resolve(RunConfig(benchmark="pacs-cd")).tasks is not None
    own = resolve(RunConfig(benchmark="pacs-cd", num_tasks=7))
    assert (own.tasks, own.num_tasks) == (None, 7)


def test_what_is_given_wins_over_the_preset() -> None:
    values = preset_of(RunConfig()).values
    assert values["epochs"] != 77
    resolved = resolve(RunConfig(epochs=77))
    assert resolved.epochs == 77
    assert all(getattr(resolved, name) == values[name] for name in values if name != "epochs")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"benchmark": "digit-cd"}, "unknown benchmark 'digit-cd'; did you mean 'digits-cd'?"),
        ({"method": "err"}, "unknown method 'err'; did you mean 'er'?"),
        ({"adaptation": "arm"}, "unknown adaptation 'arm'; did you mean 'amr'?"),
        ({"detector": "kss"}, "unknown detector 'kss'; did you mean 'ks'?"),
        ({"encoder": "rando"}, "unknown encoder 'rando'; did you mean 'random'?"),
        ({"backbone": "resnet"}, "unknown backbone 'resnet'; did you mean 'resnet18'?"),
        ({"buffer_policy": "balance"}, "unknown buffer policy 'balance'; did you mean 'balanced'?"),
        ({"transform": "rotate"}, "unknown transform 'rotate'; did you mean 'rotation'?"),
        ({"preset": "atuo"}, "unknown preset 'atuo'; did you mean 'auto'?"),
    ],
)
def test_an_unknown_name_gets_the_nearest_known_one(
    settings: dict[str, str], expected: str
) -> None:
    message = complaint(lambda: resolve(RunConfig(**settings)))  # type: ignore[arg-type]
    assert message.startswith(expected)
    assert "(known: " in message


def test_options_are_completed_by_their_defaults() -> None:
    resolved = resolve(RunConfig(options={"detector": {"level": 0.01}}))
    detector = resolved.options["detector"]
    assert detector["level"] == 0.01
    options_type = registry.find("detector", "ks").options_type()
    assert set(detector) == {field.name for field in dataclasses.fields(options_type)}
    assert "detector" not in resolve(RunConfig(detector="always")).options


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"detectr": {"level": 0.1}},
            "unknown part with options 'detectr'; did you mean 'detector'? "
            "(known: adaptation, backbone, benchmark, detector, method)",
        ),
        ({"method": {"alpha": 1}}, "method er has no options of its own"),
        ({"detector": {"lvel": 1}}, "detector ks: unknown key 'lvel'; did you mean level?"),
        ({"detector": {"level": "low"}}, "detector ks: level must be a number; got 'low'"),
        ({"detector": {"level": 1}}, "the detector's level must lie between 0 and 1; got 1.0"),
        (
            {"detector": {"correction": "hollm"}},
            "detector ks: correction must be one of holm, bonferroni, benjamini-hochberg, none; "
            "got 'hollm'; did you mean holm?",
        ),
        ({"detector": 3}, "detector ks: expected a mapping such as 'level: 0.01'; got 3"),
        (
            {"backbone": {"hidden": 3}},
            "backbone mlp: hidden must be a list of whole numbers; got 3",
        ),
    ],
)
def test_a_wrong_option_gets_one_line(options: dict[str, Any], expected: str) -> None:
    assert complaint(lambda: resolve(RunConfig(options=options))) == expected


def test_min_harm_is_refused_where_the_detector_reports_no_harm() -> None:
    refused = []
    for name, entry in registry.CATALOGUE["detector"].items():
        config = RunConfig(detector=name, min_harm=5)
        if entry.factory().bind.__annotations__.get("return") == "TwoSampleDetector":
            assert resolve(config).min_harm == 5
        else:
            assert f"{name} does not" in complaint(lambda: resolve(config))  # noqa: B023
            refused.append(name)
    assert refused == ["reconstruction", "sequential", "oracle", "always", "never"]


def test_drift_is_natural_or_by_a_transform_and_fits_the_tasks() -> None:
    natural, rotated = (
        resolve(RunConfig(benchmark="pacs-cd")),
        resolve(RunConfig(benchmark="pacs-cd", transform="rotation")),
    )
    assert (natural.transform, natural.severity) == (None, None)
    assert natural.domains == ("art_painting", "cartoon", "sketch")
    assert (rotated.transform, rotated.severity, rotated.domains) == ("rotation", 5, None)
    assert rotated.first_domain == "photo"
    for setting in ({"transform": "rotation"}, {"severity": 2}):
        config = RunConfig(domains=("winter",), **setting)
        assert complaint(lambda: resolve(config)).startswith("natural drift shows")  # noqa: B023
    assert resolve(RunConfig(benchmark="yearbook-cd", num_tasks=2)).num_drifts == 1
    assert resolve(RunConfig(benchmark="pacs-cd", num_tasks=7)).num_drifts == 3


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"encoder": "learner", "reference": "fingerprint"},
            'encoder="random", or reference="held',
        ),
        ({"detector": "reconstruction", "reference": "fingerprint"}, "learns from images"),
        ({"detector": "sequential", "encoder": "learner"}, "needs an encoder that never learns"),
        (
            {"encoder": "random", "reference": "fingerprint", "min_harm": 5},
            'and min_harm compares with it; use reference="held-out"',
        ),
        (
            {"encoder": "random", "reference": "fingerprint", "monitor_labels": "predicted"},
            'use reference="held-out", or monitor_labels="unknown"',
        ),
        ({"checked": "just-drifted", "monitor_labels": "predicted"}, 'use checked="all-known"'),
        ({"scheduler": "steps"}, "scheduler steps needs lr_milestones"),
        ({"scheduler": "cosine", "lr_milestones": (3,)}, "lr_milestones belong to scheduler steps"),
    ],
    ids=str,
)
def test_settings_that_contradict_each_other_get_one_line(
    settings: dict[str, Any], expected: str
) -> None:
    assert expected in complaint(lambda: resolve(RunConfig(**settings)))
