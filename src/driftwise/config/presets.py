"""Settings that a config leaves open, by benchmark, method and buffer size; and `resolve`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from driftwise.config import registry
from driftwise.config.config_files import from_mapping
from driftwise.config.custom import CustomPart, code_identity, imported, is_import_path
from driftwise.config.fields import fields_of
from driftwise.config.schema import PARTS, RunConfig, changed
from driftwise.datasets.catalogue import by_name
from driftwise.datasets.own import holds_vectors
from driftwise.errors import UserError, unknown_name

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Values for the settings that were left open, and where they come from."""

    source: str
    values: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """options of components, by kind"""


RULE: Mapping[str, Any] = {
    "detector": "ks",
    "encoder": "learner",
    "monitor": "holdout",
    "monitor_labels": "given",
    "checked": "all-known",
    "buffer_policy": "reservoir",
    "num_tasks": 5,
    "num_drifts": 1,
    "scope": "since-last-event",
    "permutation_unit": "pixel",
    "recurring_in_training": False,
    "scheduler": "constant",
    "realigned_logits": "evaluation",
}
"""The default of each setting, chosen because it is scientifically right."""

BENCHMARKS: dict[str, Mapping[str, Any]] = {
    "digits-cd": {"num_tasks": 5},
    "fmnist-cd": {"num_tasks": 5},
    "cifar10-cd": {"num_tasks": 5},
    "cifar100-cd": {"num_tasks": 10, "num_drifts": 2},
    "tinyimagenet-cd": {"num_tasks": 10, "num_drifts": 2},
    "clear10-cd": {
        "num_tasks": 5,
        "num_drifts": 2,
        "first_domain": "buckets 1-2",
        "domains": ("buckets 9-10",),
        "buffer_size": 1000,
    },
    "pacs-cd": {
        "tasks": ((0, 1), (2, 3), (4, 5), (6,)),
        "num_drifts": 3,
        "scope": "all-seen",
        "first_domain": "photo",
        "domains": ("art_painting", "cartoon", "sketch"),
        "buffer_size": 500,
    },
    "yearbook-cd": {
        "tasks": ((0, 1), (), (), (), (), (), (), ()),
        "num_drifts": 7,
        "scope": "all-seen",
        "first_domain": "1930s",
        "domains": ("1940s", "1950s", "1960s", "1970s", "1980s", "1990s", "2000s"),
        "recurring_in_training": True,
    },
    "iwildcam-cd": {
        "tasks": ((0, 1, 2), (3, 4, 5), (6, 7), (8, 9)),
        "num_drifts": 3,
        "scope": "all-seen",
        "first_domain": "cameras-a",
        "domains": ("cameras-b", "cameras-c", "cameras-d"),
        "frozen_encoder": "efficientnet",
        "monitor_labels": "unknown",
    },
    # The copy that the results were made with has no batches 7 and 10. Toluene is not in all.
    "gas-sensor": {
        "tasks": (tuple(range(6)), *[()] * 7),
        "num_drifts": 7,
        "scope": "all-present",
        "first_domain": "batch 1",
        "domains": tuple(f"batch {number}" for number in (2, 3, 4, 5, 6, 8, 9)),
        "scaling": "signed-log",
        "monitor_labels": "unknown",
    },
    "electricity": {
        "tasks": ((0, 1), *[()] * 9),
        "num_drifts": 9,
        "scope": "all-seen",
        "first_domain": "period 1",
        "domains": tuple(f"period {number}" for number in range(2, 11)),
        "monitor_labels": "unknown",
    },
    "outdoor": {
        "num_tasks": 4,
        "num_drifts": 1,
        "scope": "all-seen",
        "first_domain": "earlier approaches",
        "domains": ("later approaches",),
    },
    "spam": {
        "tasks": ((0, 1), (), (), ()),
        "num_drifts": 3,
        "scope": "all-seen",
        "first_domain": "to July 2002",
        "domains": ("August 2002", "September 2002", "from October 2002"),
        "frozen_encoder": "sentence-transformers:all-MiniLM-L6-v2",
        "monitor_labels": "unknown",
    },
}
"""The stream of each benchmark: the paper's, or (from pacs-cd on) this project's choice."""
BENCHMARKS |= {
    "pacs-frozen-cd": {
        **BENCHMARKS["pacs-cd"],
        "frozen_encoder": "efficientnet",
        "monitor_labels": "unknown",
    },
    "cifar100-frozen-cd": {**BENCHMARKS["cifar100-cd"], "frozen_encoder": "efficientnet"},
    "yearbook-frozen-cd": {
        **BENCHMARKS["yearbook-cd"],
        # Labels are asked for, as few as an adaptation needs.
        "recurring_in_training": False,
        "frozen_encoder": "efficientnet",
        "monitor_labels": "unknown",
    },
}

PUBLISHED_STREAM: Mapping[str, Any] = {
    "monitor": "test",
    "checked": "just-drifted",
    "reference": "memory",
    "realigned_logits": "training",
    "buffer_policy": "balanced",
    "drift_seed": 42,
    "channels": 3,
}
"""How the published numbers were made, where that differs from what is right."""

PUBLISHED_BENCHMARKS: Mapping[str, Mapping[str, Any]] = {
    "fmnist-cd": {"permutation_unit": "row"},
    "clear10-cd": {"detector": "mmd"},
}

STORE_NO_LOGITS = ("er", "er-ace", "cls-er", "finetune", "joint")
REALIGN_NOTHING = ("vanilla", "fr", "fr-flush", "fr-scratch")
"""Methods and adaptations to which `realigned_logits` makes no difference."""

WITHOUT_HARM = ("reconstruction", "sequential", "oracle", "always", "never")
"""Detectors that do not use the learner, and so cannot measure what a drift costs it."""

PUBLISHED_ENCODER, WITHOUT_WEIGHTS = "resnet18-imagenet", "random"
"""The published detector's encoder, and what takes its place where its weights are not found."""

PUBLISHED_OPTIONS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("detector", "ks"): {"correction": "none", "min_rows": 1, "calibration": "asymptotic"},
    ("detector", "mmd"): {"correction": "none", "min_rows": 2},
    ("method", "cls-er"): {"predict": "working"},
}
"""Options of components, where that component runs."""

GENERIC = Preset(
    source="this project's choice for a benchmark or method that has no preset",
    values={
        "buffer_size": 500,
        "backbone": "cnn",
        "epochs": 5,
        "batch_size": 32,
        "minibatch_size": 32,
        "lr": 0.1,
    },
)

VECTOR_RULE: Mapping[str, Any] = {
    "scaling": "standard",
    "backbone": "mlp",
    "detector": "combined",
    "encoder": "identity",
}
"""The same for feature vectors, own ones or those of a frozen encoder."""

VECTORS = Preset(
    source="this project's choice for feature vectors, on development seeds 1000-1001 (docs/log.md)",
    values={
        "buffer_size": 500,
        "epochs": 10,
        "batch_size": 32,
        "minibatch_size": 32,
        "lr": 0.1,
    },
)

ANALYTIC = Preset(
    source="an analytic method: one pass, no gradients",
    values={"fresh_samples": 20, "epochs": 1, "batch_size": 32},
)

OF_GRADIENTS = (
    *("buffer_size", "backbone", "minibatch_size", "lr", "lr_milestones", "momentum"),
    *("weight_decay", "augmentation", "normalise", "channels", "precision", "compile"),
    *("cuda_graphs", "buffer_device", "shard_network"),
)
"""Settings that mean nothing to an analytic method."""

DIGITS = Preset(
    source="chosen by this project on development seeds 1000-1004, see docs/log.md",
    values={
        "buffer_size": 100,
        "backbone": "mlp",
        "epochs": 10,
        "batch_size": 10,
        "minibatch_size": 10,
        # So small a network gains nothing from a second thread; a fixed number gives every machine
        # the same digits, and a busy one no threads that wait for each other.
        "threads": 1,
    },
)

_AVERAGING = (
    *("reg_weight", "stable_update_freq", "stable_alpha"),
    *("plastic_update_freq", "plastic_alpha"),
)
_OPTION_NAMES = {"der++": ("alpha", "beta"), "ser": ("alpha", "beta"), "cls-er": _AVERAGING}


def _named_options(method: str, values: tuple[float, ...]) -> dict[str, float]:
    return dict(zip(_OPTION_NAMES.get(method, ()), values, strict=True))


_DIGITS_METHODS: Mapping[str, tuple[float, tuple[float, ...]]] = {
    "er": (0.3, ()),
    "er-ace": (0.3, ()),
    "der++": (0.1, (0.2, 1.0)),
    "ser": (0.1, (0.2, 0.2)),
    "cls-er": (0.3, (0.15, 0.9, 0.99, 1.0, 0.99)),
    "finetune": (0.1, ()),
    "joint": (0.1, ()),
}
"""The rate and the options of each method on digits-cd (benchmarks/tune_digits.py)."""

SIZES = (500, 5000)
"""The buffer sizes that settings were published for."""

# The paper's table: by benchmark and method, the rate and the options at 500 and 5,000 samples.
_PAPER: Mapping[str, Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "fmnist-cd": {
        "er": ((0.1,), (0.1,)),
        "er-ace": ((0.03,), (0.03,)),
        "der++": ((0.1, 0.2, 0.5), (0.1, 0.2, 0.5)),
        "ser": ((0.1, 0.2, 0.2), (0.1, 0.2, 0.2)),
        "cls-er": ((0.1, 1.0, 0.9, 0.99, 1.0, 0.99), (0.1, 1.0, 0.8, 0.99, 1.0, 0.99)),
    },
    "cifar10-cd": {
        "er": ((0.1,), (0.1,)),
        "er-ace": ((0.03,), (0.03,)),
        "der++": ((0.03, 0.2, 0.5), (0.03, 0.1, 1.0)),
        "ser": ((0.03, 0.2, 0.2), (0.03, 0.2, 0.2)),
        "cls-er": ((0.1, 0.15, 0.1, 0.999, 0.9, 0.999), (0.1, 0.15, 0.8, 0.999, 1.0, 0.999)),
    },
    "cifar100-cd": {
        "er": ((0.1,), (0.1,)),
        "er-ace": ((0.03,), (0.03,)),
        "der++": ((0.03, 0.1, 0.5), (0.03, 0.1, 0.5)),
        "ser": ((0.03, 0.5, 0.5), (0.03, 0.5, 0.5)),
        "cls-er": ((0.1, 0.15, 0.1, 0.999, 0.9, 0.999), (0.1, 0.15, 0.8, 0.999, 1.0, 0.999)),
    },
    "tinyimagenet-cd": {
        "er": ((0.03,), (0.1,)),
        "er-ace": ((0.03,), (0.03,)),
        "der++": ((0.03, 0.2, 0.5), (0.03, 0.1, 0.5)),
        "ser": ((0.03, 0.2, 1.0), (0.03, 0.2, 1.0)),
        "cls-er": ((0.05, 0.1, 0.05, 0.999, 0.08, 0.999), (0.05, 0.1, 0.07, 0.999, 0.08, 0.999)),
    },
}
_EPOCHS = {"fmnist-cd": 1, "cifar10-cd": 50, "cifar100-cd": 50, "tinyimagenet-cd": 100}


def _paper_presets() -> Iterator[tuple[tuple[str, str, int], Preset]]:
    """Every line of the paper's table by benchmark, method and buffer size."""
    for benchmark, methods in _PAPER.items():
        batch = 10 if benchmark == "fmnist-cd" else 32
        values = {
            "backbone": "resnet18",
            "epochs": _EPOCHS[benchmark],
            "batch_size": batch,
            "minibatch_size": batch,
        }
        if benchmark == "cifar100-cd":  # the only one whose rate drops within a task
            values |= {"scheduler": "steps", "lr_milestones": (35, 45)}
        for method, by_size in methods.items():
            for size, (rate, *options) in zip(SIZES, by_size, strict=True):
                yield (
                    (benchmark, method, size),
                    Preset(
                        source=f"{benchmark}/{method}/{size}",
                        values={**values, "lr": rate, "buffer_size": size},
                        options={"method": _named_options(method, tuple(options))},
                    ),
                )


PAPER: Mapping[tuple[str, str, int], Preset] = dict(_paper_presets())

NAMES = ("auto", "published", *(preset.source for preset in PAPER.values()))
"""What `--preset` takes: a line of the paper's table can be named for your own data."""


def preset_of(config: RunConfig) -> Preset:
    """The preset that fills in what a config leaves open."""
    registry.find("benchmark", config.benchmark)
    registry.find("method", config.method)
    if config.preset not in NAMES:
        raise unknown_name("preset", config.preset, NAMES)
    training = _training(config)
    of_kind = VECTOR_RULE if learns_vectors(config) else {}
    values = {**RULE, **training.values, **of_kind, **BENCHMARKS.get(config.benchmark, {})}
    source, options = training.source, dict(training.options)
    if config.preset == "published":
        if of_kind:
            raise UserError(
                "the published experiments learned from images, and these samples are vectors; "
                "leave out preset published"
            )
        values |= {**PUBLISHED_STREAM, **PUBLISHED_BENCHMARKS.get(config.benchmark, {})}
        source = f"the stream as the published numbers were made; training: {source}"
        detector = config.detector or values["detector"]
        if config.encoder is None:
            values["encoder"], remark = _published_encoder(config, detector)
            source += remark
        for (kind, name), chosen in PUBLISHED_OPTIONS.items():
            if name == (detector if kind == "detector" else getattr(config, kind)):
                options[kind] = {**options.get(kind, {}), **chosen}
    if registry.is_analytic(config.method):
        useless = (*OF_GRADIENTS, "reference")  # a buffer is what the published reference needs
        values = {name: value for name, value in values.items() if name not in useless}
    elif "/" in config.preset:  # a line of the table by name, its buffer size included
        values["buffer_size"] = training.values["buffer_size"]
    return Preset(source=source, values=values, options=options)


def _published_encoder(config: RunConfig, detector: str) -> tuple[str, str]:
    """The encoder of the preset published on this machine, and a remark about it.

    It is chosen here, by name, so that the same config elsewhere runs with the same encoder or not
    at all.
    """
    if detector in WITHOUT_HARM:
        return WITHOUT_WEIGHTS, ""  # which encodes nothing
    if config.benchmark not in BENCHMARKS:
        return WITHOUT_WEIGHTS, (
            f"; encoder {WITHOUT_WEIGHTS}, as your own data need not be images (the published"
            f' one: encoder="{PUBLISHED_ENCODER}")'
        )
    from driftwise.encoders.imagenet_weights import FILE, VARIABLE, resnet18_at_hand

    if (found := resnet18_at_hand()) is not None:
        return PUBLISHED_ENCODER, f"; encoder {PUBLISHED_ENCODER}, its weights from {found}"
    return WITHOUT_WEIGHTS, (
        f"; encoder {WITHOUT_WEIGHTS}, as the weights of the published {PUBLISHED_ENCODER} are not"
        f" here (put {FILE} into a data folder, or let {VARIABLE} name it)"
    )


def _training(config: RunConfig) -> Preset:
    """How to train, by benchmark, method and buffer size."""
    if "/" in config.preset:
        benchmark, method, text = config.preset.split("/")
        if method != config.method:
            raise UserError(
                f"preset {config.preset} is for method {method}; got method {config.method}"
            )
        return _of_paper(config, (benchmark, method, int(text)), "the paper's table,")
    if registry.is_analytic(config.method):
        return ANALYTIC
    if learns_vectors(config):
        _, options = _DIGITS_METHODS.get(config.method, (0.0, ()))
        return replace(VECTORS, options={"method": _named_options(config.method, options)})
    if config.benchmark == "digits-cd":
        # A custom method starts from the settings of plain replay.
        like = config.method if config.method in _DIGITS_METHODS else "er"
        rate, options = _DIGITS_METHODS[like]
        source = DIGITS.source
        if like != config.method or config.backbone not in (None, DIGITS.values["backbone"]):
            source = f"this project's choice: its settings of {like} with an mlp, not tuned anew"
        return Preset(
            source=source,
            values={**DIGITS.values, "lr": rate},
            options={"method": _named_options(like, options)},
        )
    # What the paper does not publish is this project's choice, and is marked so.
    benchmark = "cifar10-cd" if config.benchmark == "clear10-cd" else config.benchmark
    # A custom method starts from the settings of plain replay.
    plain = config.method in ("finetune", "joint") or is_import_path(config.method)
    method = "er" if plain else config.method
    given = config.buffer_size or BENCHMARKS.get(config.benchmark, {}).get("buffer_size", SIZES[0])
    size = min(SIZES, key=lambda published: abs(math.log(given / published)))
    if (benchmark, method, size) not in PAPER:
        return GENERIC
    source = "this project's choice where the paper has none: its settings of"
    if (benchmark, method, size) == (config.benchmark, config.method, given):
        source = "the paper's table,"
    return _of_paper(config, (benchmark, method, size), source)


def _of_paper(config: RunConfig, key: tuple[str, str, int], source: str) -> Preset:
    """A line of the paper's table, for the config's backbone."""
    row = PAPER[key]
    values = dict(row.values)
    if config.backbone is not None and config.backbone.startswith("vit"):
        # The paper trains its transformer longer, and on CIFAR-100 along a cosine.
        values["epochs"] = 100
        if values.pop("lr_milestones", None):
            values["scheduler"] = "cosine"
    return Preset(source=f"{source} {row.source}", values=values, options=row.options)


def learns_vectors(config: RunConfig) -> bool:
    """Whether a learner is given feature vectors, as far as it can be known before data are read.

    Nothing else has a scaling: it says so for data that do not.
    """
    frozen = BENCHMARKS.get(config.benchmark, {}).get("frozen_encoder")
    if config.scaling is not None or (config.frozen_encoder or frozen) is not None:
        return True
    if config.benchmark == "npz" and config.data is not None:
        return holds_vectors(Path(config.data).expanduser())
    known = by_name(config.benchmark)
    return config.benchmark == "table" or (known is not None and known.samples == "vectors")


def resolve(config: RunConfig, *, network_given: bool = False) -> RunConfig:
    """The config as it will run: nothing left open, every name known, every option checked.

    `network_given`: the backbone names the class of an object; it is not made, nor imported.
    """
    config = with_detector(config)
    preset = preset_of(config)
    values = dict(preset.values)
    if config.tasks is not None or config.num_tasks is not None or config.class_order is not None:
        values.pop("tasks", None)  # the user has split the classes
    if config.tasks is not None or "tasks" in values:
        values.pop("num_tasks", None)
    _settle_drift(config, values)
    if config.scheduler not in (None, "steps"):
        values.pop("lr_milestones", None)
    vectors = learns_vectors(config)
    if goes_on(config) and not vectors:
        values["encoder"] = "random"
    open_fields = {name: value for name, value in values.items() if getattr(config, name) is None}
    config = changed(config, **open_fields)
    for kind in ("adaptation", "detector", "encoder", "buffer_policy"):
        registry.find(kind, getattr(config, kind))
    if config.transform is not None:
        registry.find("transform", config.transform)
    encoder_is_fixed = registry.find("encoder", settled(config.encoder)).factory().fixed
    if config.reference is None:
        # Samples that something was trained on give false alarms.
        trained = asks_learner(config) or not (encoder_is_fixed or compares_pixels(config))
        if vectors and not trained and not compares_pixels(config):
            reference = "fingerprint"
        else:
            keeps_none = registry.is_analytic(config.method)
            reference = "held-out" if trained or keeps_none else "memory"
        config = changed(config, reference=reference)
    _refuse_contradictions(config, encoder_is_fixed=encoder_is_fixed)
    if vectors:
        _refuse_for_vectors(config)
    options = _complete_options(config, preset.options, network_given=network_given)
    return with_code_identity(changed(config, options=options), network_given=network_given)


def _refuse_contradictions(config: RunConfig, *, encoder_is_fixed: bool) -> None:
    """UserError for settings that would do nothing, or fail, together with others."""
    fingerprint = config.reference == "fingerprint"
    is_analytic = registry.is_analytic(config.method)
    problems = (
        (
            is_analytic and config.reference == "memory",
            f"the method {config.method} keeps statistics, and no samples to compare with; use "
            'reference="held-out" or reference="fingerprint"',
        ),
        (
            not registry.needs_vectors(config.method) and config.fresh_samples is not None,
            f"fresh_samples is a setting of analytic methods (ncm, slda, ridge); with "
            f"{config.method} as many are asked for as the buffer holds: use buffer_size",
        ),
        (
            config.min_harm is not None and config.detector in WITHOUT_HARM,
            f"min_harm needs a detector that measures harm, and {config.detector} does not; use "
            "the detector ks, mmd, c2st or combined, or leave out min_harm",
        ),
        (
            goes_on(config) and not encoder_is_fixed,
            f"the detector {config.detector} needs an encoder that never learns, and "
            f'{config.encoder} does: use encoder="random", or another detector',
        ),
        (
            fingerprint and compares_pixels(config),
            f"the detector {config.detector} learns from images, and a fingerprint holds none; "
            'use reference="held-out" or reference="memory"',
        ),
        (
            fingerprint and not encoder_is_fixed,
            f"a fingerprint needs an encoder that never learns, and {config.encoder} does: use "
            'encoder="random", or reference="held-out"',
        ),
        (
            config.monitor_labels != "given" and config.checked == "just-drifted",
            f"monitor_labels {config.monitor_labels} cannot go with checked just-drifted, which "
            'selects samples by their true classes; use checked="all-known"',
        ),
        (
            fingerprint and config.monitor_labels == "predicted",
            "a fingerprint holds no images whose labels could be predicted; use "
            'reference="held-out", or monitor_labels="unknown"',
        ),
        (
            fingerprint and config.min_harm is not None,
            "a fingerprint holds no images on which the learner's accuracy could be measured, "
            'and min_harm compares with it; use reference="held-out"',
        ),
        (
            config.scheduler != "steps" and config.lr_milestones,
            f"lr_milestones belong to scheduler steps; leave them out with {config.scheduler}",
        ),
        (
            config.scheduler == "steps" and not config.lr_milestones,
            "scheduler steps needs lr_milestones: the epochs after which the rate drops",
        ),
    )
    for is_wrong, message in problems:
        if is_wrong:
            raise UserError(message)


FOR_IMAGES: Mapping[str, str] = {
    "augmentation": "leave it out",
    "channels": "leave it out",
    "normalise": "use scaling",
    "memory_format": "leave it out",
}
"""Settings that make sense of images only, and what to do about them."""


def _refuse_for_vectors(config: RunConfig) -> None:
    """UserError for settings that only images have a use for."""
    for name, advice in FOR_IMAGES.items():
        if (value := getattr(config, name)) != getattr(RunConfig, name):
            raise UserError(
                f"{name} is for images, and a learner of feature vectors gets none; got {value!r}:"
                f" {advice}"
            )
    if config.permutation_unit != RULE["permutation_unit"]:
        raise UserError(
            f"permutation_unit {config.permutation_unit} is for images; leave it out for vectors"
        )
    if config.backbone in registry.CATALOGUE["backbone"] and config.backbone != "mlp":
        raise UserError(
            f"backbone {config.backbone} takes images, and a learner of feature vectors gets none; "
            "use the backbone mlp, or a network of your own"
        )


def with_code_identity(config: RunConfig, *, network_given: bool = False) -> RunConfig:
    """The config with a digest of its custom components; refused if their source has changed."""
    parts = [
        part
        for kind in registry.OWN
        if (name := getattr(config, kind)) is not None
        if isinstance(part := registry.find(kind, name), CustomPart)
        if not (network_given and kind == "backbone")
    ]
    for part in parts:
        part.factory()  # loads it: what is loaded is what counts
    paths, named = [part.path for part in parts], list(map(str, parts))
    if (encoder := registry.own_code(config).get("frozen_encoder")) is not None:
        imported(encoder)
        paths.append(encoder)
        named.append(f"frozen_encoder {encoder}")
    identity = code_identity(paths)
    if config.code_identity not in (None, identity):
        raise UserError(
            f"the source of {', '.join(named) or 'custom parts'}, or of a local module "
            "imported there, is not what the config was made with; put that source back, or remove "
            "code_identity from the config to begin anew"
        )
    return changed(config, code_identity=identity)


def with_detector(config: RunConfig) -> RunConfig:
    """The config with the preset's detector where none is named: other settings depend on it."""
    if config.detector is not None:
        return config
    return changed(config, detector=preset_of(config).values["detector"])


def asks_learner(config: RunConfig) -> bool:
    """Whether a check needs the learner's predictions, whatever the encoder."""
    return config.monitor_labels == "predicted" or config.min_harm is not None


def compares_pixels(config: RunConfig) -> bool:
    """Whether the detector learns from images itself and uses no encoder."""
    return config.detector == "reconstruction"


def goes_on(config: RunConfig) -> bool:
    """Whether the detector's evidence adds up from check to check."""
    return config.detector == "sequential"


def _settle_drift(config: RunConfig, values: dict[str, Any]) -> None:
    """Drift is natural or by a transform, and there are at most as many events as tasks."""
    by_transform = (config.transform or config.severity) is not None
    if config.domains is None and by_transform:
        values.pop("domains", None)
    if config.domains is None and "domains" not in values:
        values |= {"transform": "permutation", "severity": 5}
    elif by_transform:
        raise UserError(
            "natural drift shows images of other domains as they are: leave out either domains, or "
            "transform and severity"
        )
    num_tasks = config.num_tasks or len(config.tasks or values.get("tasks", ()))
    if num_tasks:
        values["num_drifts"] = min(values["num_drifts"], num_tasks - 1)


def options_type(config: RunConfig, part: str) -> Any:
    """The dataclass that lists the options of a component; UserError where there are none."""
    if part not in PARTS:
        raise unknown_name("part with options", part, PARTS)
    name = getattr(config, part)
    if name is None:
        name = preset_of(config).values[part]
    found = registry.find(part, name).options_type()
    if found is None:
        raise UserError(f"{part} {name} has no options of its own")
    return found


def _complete_options(
    config: RunConfig, chosen: Mapping[str, Mapping[str, Any]], *, network_given: bool
) -> dict[str, dict[str, Any]]:
    """Every option of every component: given, `chosen` by the preset, or default."""
    if network_given and "backbone" in config.options:
        raise UserError("a network that is given as an object takes no options of a backbone")
    for part in config.options:
        options_type(config, part)
    complete = {}
    for part in PARTS:
        name = getattr(config, part)
        if name is None or (network_given and part == "backbone"):
            continue
        if (options := registry.find(part, name).options_type()) is None:
            continue
        given = from_mapping(options, config.options.get(part, {}), source=f"{part} {name}")
        values = {**chosen.get(part, {}), **given}
        for option, known in fields_of(options).items():
            if known.default is dataclasses.MISSING and option not in values:
                raise UserError(
                    f"{part} {name} needs a value for {option}, which has no default: set the "
                    f"option {part}.{option}"
                )
        made = options(**values)
        complete[part] = {option: getattr(made, option) for option in fields_of(options)}
    return complete


def settled(value: T | None) -> T:
    """A setting of a resolved config, which is never None."""
    assert value is not None, "the config has not been resolved"
    return value
