"""Settings that are not given: by benchmark, method and buffer size."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from driftwise.config import registry
from driftwise.config.custom import CustomPart
from driftwise.config.custom_source import code_identity
from driftwise.config.fields import fields_of
from driftwise.config.files import from_mapping
from driftwise.config.paper_settings import SIZES, PaperRow, paper_rows
from driftwise.config.schema import PARTS, RunConfig
from driftwise.errors import UserError, unknown_name

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Values for the settings that were left open, and where they come from."""

    source: str
    values: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """options of single parts, by part"""


RULE: Mapping[str, Any] = {
    "detector": "ks",
    "encoder": "learner",
    "monitor": "holdout",
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
"""What holds where nobody says otherwise, chosen because it is scientifically right."""

BENCHMARKS: Mapping[str, Mapping[str, Any]] = {
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
}
"""The stream of each benchmark: the paper's, or (pacs-cd, yearbook-cd) this project's choice."""

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

PUBLISHED_ENCODER, WITHOUT_WEIGHTS = "resnet18-imagenet", "random"
"""The published detector's encoder, and what takes its place where its weights are not found."""

PUBLISHED_OPTIONS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("detector", "ks"): {"correction": "none", "min_rows": 1, "calibration": "asymptotic"},
    ("detector", "mmd"): {"correction": "none", "min_rows": 2},
    ("method", "cls-er"): {"predict": "working"},
}
"""Options of parts, where that part runs."""

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

DIGITS_METHODS: Mapping[str, tuple[float, Mapping[str, float]]] = {
    "er": (0.3, {}),
    "er-ace": (0.3, {}),
    "der++": (0.1, {"alpha": 0.2, "beta": 1.0}),
    "ser": (0.1, {"alpha": 0.2, "beta": 0.2}),
    "cls-er": (
        0.3,
        {
            "reg_weight": 0.15,
            "stable_update_freq": 0.9,
            "stable_alpha": 0.99,
            "plastic_update_freq": 1.0,
            "plastic_alpha": 0.99,
        },
    ),
    "finetune": (0.1, {}),
    "joint": (0.1, {}),
}
"""The rate and the options of each method on digits-cd (benchmarks/tune_digits.py)."""

PAPER: Mapping[tuple[str, str, int], PaperRow] = {
    (row.benchmark, row.method, row.buffer_size): row for row in paper_rows()
}

NAMES = ("auto", "published", *("/".join(map(str, key)) for key in PAPER))
"""What `--preset` takes: a line of the paper's table can be named for data of one's own."""


def preset_of(config: RunConfig) -> Preset:
    """The preset that fills in what a config leaves open."""
    registry.find("benchmark", config.benchmark)
    registry.find("method", config.method)
    if config.preset not in NAMES:
        raise unknown_name("preset", config.preset, NAMES)
    training = _named(config) if "/" in config.preset else _training(config)
    values = {**RULE, **training.values, **BENCHMARKS.get(config.benchmark, {})}
    source, options = training.source, training.options
    if config.preset == "published":
        values |= {**PUBLISHED_STREAM, **PUBLISHED_BENCHMARKS.get(config.benchmark, {})}
        source = f"the stream as the published numbers were made; training: {source}"
        detector = config.detector or values["detector"]
        if config.encoder is None:
            values["encoder"], remark = _published_encoder(config, detector)
            source += remark
        options = {part: {**given} for part, given in options.items()}
        for (part, name), chosen in PUBLISHED_OPTIONS.items():
            if name == (detector if part == "detector" else getattr(config, part)):
                options[part] = {**options.get(part, {}), **chosen}
    if "/" in config.preset:  # a line of the table by name, its buffer size included
        values["buffer_size"] = training.values["buffer_size"]
    return Preset(source=source, values=values, options=options)


def _published_encoder(config: RunConfig, detector: str) -> tuple[str, str]:
    """The encoder of the preset published on this machine, and what to say about it.

    It is settled here, by name, so that the config says what runs: the same config elsewhere runs
    with the same encoder or not at all.
    """
    if detector in TELL_NO_HARM:
        return WITHOUT_WEIGHTS, ""  # which is asked nothing
    if config.benchmark not in BENCHMARKS:
        return WITHOUT_WEIGHTS, (
            f"; encoder {WITHOUT_WEIGHTS}, as data of one's own need not be images (the published"
            f' one: encoder="{PUBLISHED_ENCODER}")'
        )
    from driftwise.config.imagenet_weights import FILE, VARIABLE, resnet18_at_hand

    found = resnet18_at_hand()
    if found is not None:
        return PUBLISHED_ENCODER, f"; encoder {PUBLISHED_ENCODER}, its weights from {found}"
    return WITHOUT_WEIGHTS, (
        f"; encoder {WITHOUT_WEIGHTS}, as the weights of the published {PUBLISHED_ENCODER} are not"
        f" here (put {FILE} where data lie, or let {VARIABLE} name it)"
    )


def _named(config: RunConfig) -> Preset:
    """A line of the paper's table by name."""
    benchmark, method, size = config.preset.split("/")
    if method != config.method:
        raise UserError(
            f"preset {config.preset} is for method {method}; got method {config.method}"
        )
    row = PAPER[benchmark, method, int(size)]
    return _of_row(row, f"the paper's table, {config.preset}", backbone=config.backbone)


def _training(config: RunConfig) -> Preset:
    """How to train, by benchmark, method and buffer size."""
    if config.benchmark == "digits-cd":
        # A method of one's own starts from the settings of plain replay.
        like = config.method if config.method in DIGITS_METHODS else "er"
        rate, options = DIGITS_METHODS[like]
        source = DIGITS.source
        if like != config.method or config.backbone not in (None, DIGITS.values["backbone"]):
            source = f"this project's choice: its settings of {like} with an mlp, not tuned anew"
        return Preset(
            source=source, values={**DIGITS.values, "lr": rate}, options={"method": options}
        )
    # What the paper does not publish is this project's choice, and says so.
    benchmark = "cifar10-cd" if config.benchmark == "clear10-cd" else config.benchmark
    method = "er" if config.method in ("finetune", "joint") else config.method
    given = config.buffer_size or BENCHMARKS.get(config.benchmark, {}).get("buffer_size", SIZES[0])
    size = min(SIZES, key=lambda published: abs(math.log(given / published)))
    row = PAPER.get((benchmark, method, size))
    if row is None:
        return GENERIC
    key = f"{benchmark}/{method}/{size}"
    if (benchmark, method, size) == (config.benchmark, config.method, given):
        return _of_row(row, f"the paper's table, {key}", backbone=config.backbone)
    return _of_row(
        row,
        f"this project's choice where the paper has none: its settings of {key}",
        backbone=config.backbone,
    )


def _of_row(row: PaperRow, source: str, *, backbone: str | None = None) -> Preset:
    values = {**row.training, "buffer_size": row.buffer_size}
    if backbone is not None and backbone.startswith("vit"):
        # The paper trains its transformer longer, and on CIFAR-100 along a cosine.
        values["epochs"] = 100
        if values.pop("lr_milestones", None):
            values["scheduler"] = "cosine"
    return Preset(source=source, values=values, options={"method": row.options})


def resolve(config: RunConfig, *, network_given: bool = False) -> RunConfig:
    """The config as it will run: nothing left open, every name known, every option checked.

    `network_given`: the backbone names the class of an object; it is not made, nor imported.
    """
    config = with_detector(config)
    preset = preset_of(config)
    values = dict(preset.values)
    if config.tasks is not None or config.num_tasks is not None or config.class_order is not None:
        # The user has cut the classes: a benchmark's own tasks no longer apply.
        values.pop("tasks", None)
    if config.tasks is not None or "tasks" in values:
        values.pop("num_tasks", None)
    _settle_drift(config, values)
    if config.scheduler not in (None, "steps"):
        values.pop("lr_milestones", None)
    if goes_on(config):
        values["encoder"] = "random"
    open_fields = {name: value for name, value in values.items() if getattr(config, name) is None}
    config = dataclasses.replace(config, **open_fields)
    for kind in ("adaptation", "detector", "encoder", "buffer_policy"):
        registry.find(kind, getattr(config, kind))
    if config.transform is not None:
        registry.find("transform", config.transform)
    fixed = registry.find("encoder", config.encoder or "").factory().fixed
    if config.reference is None:
        unmoved = fixed or looks_at_pixels(config)
        trained_rows_will_do = unmoved and not asks_learner(config)
        config = dataclasses.replace(
            config, reference="memory" if trained_rows_will_do else "held-out"
        )
    _refuse_what_the_detector_cannot(config)
    if config.reference == "fingerprint" and not fixed:
        raise UserError(
            f"a fingerprint needs an encoder that never learns, and {config.encoder} does: use "
            'encoder="random", or reference="held-out"'
        )
    if config.monitor_labels != "given" and config.checked == "just-drifted":
        raise UserError(
            f"monitor_labels {config.monitor_labels} cannot go with checked just-drifted, which"
            ' picks rows by their true classes; use checked="all-known"'
        )
    if config.reference == "fingerprint":
        _refuse_questions_about_images(config)
    if config.scheduler != "steps" and config.lr_milestones:
        raise UserError(
            f"lr_milestones belong to scheduler steps; leave them out with {config.scheduler}"
        )
    if config.scheduler == "steps" and not config.lr_milestones:
        raise UserError(
            "scheduler steps needs lr_milestones: the epochs after which the rate drops"
        )
    options = _complete_options(config, preset.options, network_given=network_given)
    config = dataclasses.replace(config, options=options)
    return with_code_identity(config, network_given=network_given)


def with_code_identity(config: RunConfig, *, network_given: bool = False) -> RunConfig:
    """The config with a digest of its custom parts; refused if it was made with other source."""
    parts = [
        part
        for kind in registry.OWN
        if isinstance(part := registry.find(kind, settled(getattr(config, kind))), CustomPart)
        if not (network_given and kind == "backbone")
    ]
    for part in parts:
        part.factory()  # loads it: what is loaded is what counts
    identity = code_identity(part.path for part in parts)
    if config.code_identity not in (None, identity):
        raise UserError(
            f"the source of {', '.join(map(str, parts)) or 'custom parts'}, or of a local module "
            "imported there, is not what the config was made with; put that source back, or remove "
            "code_identity from the config to begin anew"
        )
    return dataclasses.replace(config, code_identity=identity)


def with_detector(config: RunConfig) -> RunConfig:
    """The config with the preset's detector, where none is named: much else goes by it."""
    if config.detector is not None:
        return config
    return dataclasses.replace(config, detector=preset_of(config).values["detector"])


def asks_learner(config: RunConfig) -> bool:
    """Whether a check is to ask the learner what it makes of rows, whoever encodes them."""
    return config.monitor_labels == "predicted" or config.min_harm is not None


def looks_at_pixels(config: RunConfig) -> bool:
    """Whether the detector learns from images itself: nobody's encodings matter to it."""
    return config.detector == "reconstruction"


def goes_on(config: RunConfig) -> bool:
    """Whether the detector's evidence adds up from check to check."""
    return config.detector == "sequential"


TELL_NO_HARM = ("reconstruction", "sequential", "oracle", "always", "never")
"""Detectors that ask the learner nothing, and so cannot say what a change costs it."""


def _refuse_what_the_detector_cannot(config: RunConfig) -> None:
    """A setting that would do nothing is a mistake; one that must fail fails before the run."""
    if config.min_harm is not None and config.detector in TELL_NO_HARM:
        raise UserError(
            f"min_harm needs a detector that tells harm, and {config.detector} does not; use"
            " the detector ks, mmd, c2st or combined, or leave out min_harm"
        )
    if goes_on(config) and not registry.find("encoder", config.encoder or "").factory().fixed:
        raise UserError(
            f"the detector {config.detector} needs an encoder that never learns, and "
            f'{config.encoder} does: use encoder="random", or another detector'
        )
    if config.reference == "fingerprint" and looks_at_pixels(config):
        raise UserError(
            f"the detector {config.detector} learns from images, and a fingerprint holds none;"
            ' use reference="held-out" or reference="memory"'
        )


def _refuse_questions_about_images(config: RunConfig) -> None:
    """A fingerprint holds encodings only: the learner cannot be asked about what it was made of."""
    if config.monitor_labels == "predicted":
        raise UserError(
            "a fingerprint holds no images whose labels could be predicted; use "
            'reference="held-out", or monitor_labels="unknown"'
        )
    if config.min_harm is not None:
        raise UserError(
            "a fingerprint holds no images on which the learner's accuracy could be measured,"
            ' and min_harm compares with it; use reference="held-out"'
        )


def _settle_drift(config: RunConfig, values: dict[str, Any]) -> None:
    """Drift is natural or by a transform, and there is no more of it than there are tasks for."""
    if config.domains is None and (config.transform or config.severity) is not None:
        values.pop("domains", None)
    if config.domains is not None or "domains" in values:
        if (config.transform or config.severity) is not None:
            raise UserError(
                "natural drift shows images of other domains as they are: leave out either "
                "domains, or transform and severity"
            )
    else:
        values |= {"transform": "permutation", "severity": 5}
    num_tasks = config.num_tasks or len(config.tasks or values.get("tasks", ()))
    if num_tasks:
        values["num_drifts"] = min(values["num_drifts"], num_tasks - 1)


def options_type(config: RunConfig, part: str) -> Any:
    """The dataclass that lists the options of a part; UserError where there are none."""
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
    """Every option of every part that has any: given, `chosen` by the preset, or default."""
    if network_given and "backbone" in config.options:
        raise UserError("a network that is given as an object takes no options of a backbone")
    for part in config.options:
        options_type(config, part)
    complete = {}
    for part in PARTS:
        if network_given and part == "backbone":
            continue
        name = getattr(config, part)
        options = registry.find(part, name).options_type()
        if options is not None:
            given = from_mapping(options, config.options.get(part, {}), source=f"{part} {name}")
            values = {**chosen.get(part, {}), **given}
            for option, field in fields_of(options).items():
                if field.default is dataclasses.MISSING and option not in values:
                    raise UserError(
                        f"{part} {name} needs a value for {option}, which has no default: set the "
                        f"option {part}.{option}"
                    )
            made = options(**values)
            complete[part] = {option: getattr(made, option) for option in fields_of(options)}
    return complete


def settled(value: T | None) -> T:
    """A setting that `resolve` leaves to nobody else."""
    assert value is not None, "the config has not been resolved"
    return value
