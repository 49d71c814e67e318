"""The scale of a sweep: the paper's sizes, or the same grid with everything smaller.

Fewer images or classes, narrower networks, fewer epochs, and buffers that shrink with the images, so
that a table takes minutes. Numbers at different scales are not comparable; tables and figures name
theirs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driftwise.config import registry
from driftwise.config.fields import fields_of
from driftwise.config.presets import WITHOUT_HARM, resolve
from driftwise.config.schema import RunConfig
from driftwise.errors import UserError, unknown_name


@dataclass(frozen=True, kw_only=True)
class Size:
    """The training images of a benchmark."""

    images: int
    classes: int


DETECTION: Mapping[str, str] = {
    "detector": "combined",
    "encoder": "learner",
    "reference": "held-out",
}
"""Of everything that is reproduced: the published encoder was drawn anew for every class and run,
so that its outputs cannot be reproduced, and smaller scales leave a buffer too small to compare
with."""

SIZES: Mapping[str, Size] = {
    "digits-cd": Size(images=1_438, classes=10),
    "fmnist-cd": Size(images=60_000, classes=10),
    "cifar10-cd": Size(images=50_000, classes=10),
    "cifar100-cd": Size(images=50_000, classes=100),
    "tinyimagenet-cd": Size(images=100_000, classes=200),
    "clear10-cd": Size(images=6_000, classes=10),
}
"""Benchmarks whose sweeps can be made smaller."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Limits on the data, networks and epochs of a sweep."""

    name: str
    images: Mapping[str, int]
    """training images in all, by benchmark; one that is not named keeps all of its own"""
    backbones: Mapping[str, Mapping[str, Any]]
    """options that make networks smaller, by name"""
    max_epochs: int | None = None
    classes: Mapping[str, int] = field(default_factory=dict)
    """the first classes of a benchmark in the order of its labels; one that is not named keeps all"""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """`max_epochs` of single benchmarks"""
    buffers: Mapping[str, float] = field(default_factory=dict)
    """the factor of buffers, by benchmark; by default, that of the images"""
    batch_size: int | None = None
    """samples of the stream and of the buffer in a step, at most: few images need small steps"""
    detection: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """what takes the place of DETECTION, by benchmark, where that would miss drift"""

    def apply(self, config: RunConfig, *, published_on: str | None = None) -> RunConfig:
        """The config of a run at this scale, resolved; what `config` sets itself stays.

        Except for the buffer, whose size is nominal: it shrinks with the images, and training
        settings are those of the nominal size. `published_on` is the benchmark that the buffer
        sizes were published for, where the run uses another one.
        """
        whole = resolve(config)
        if self._keeps_buffers(config.benchmark, published_on):
            return whole
        self._refuse_unknown(config.benchmark, published_on)
        few = dataclasses.replace(
            whole,
            class_order=self._class_order(config),
            max_per_class=self._max_per_class(config),
        )
        smaller: dict[str, Any] = {
            **self._detection(config),
            "options": self._narrower(config, whole),
            **self._fewer_epochs(config, whole),
            **self._smaller_batches(config, whole),
        }
        if whole.buffer_size is not None:  # class statistics have none
            share = self._share(few, published_on)
            smaller["buffer_size"] = max(1, round(whole.buffer_size * share))
        return resolve(dataclasses.replace(few, **smaller))

    def detection_of(self, benchmark: str) -> Mapping[str, str]:
        """How drift is detected in what is reproduced on a benchmark."""
        return {**DETECTION, **self.detection.get(benchmark, {})}

    @property
    def is_full(self) -> bool:
        """Whether nothing is made smaller."""
        return not self.images and not self.backbones and self.max_epochs is None

    def note(self, configs: Sequence[RunConfig], *, published_on: str | None = None) -> str:
        """Images, networks, epochs and detection of these runs, in one line."""
        parts = [
            self._images_in_words([c for c in configs if c.benchmark == name], published_on)
            for name in dict.fromkeys(config.benchmark for config in configs)
        ]
        parts += dict.fromkeys(map(_network, configs))
        epochs = _span([config.epochs or 0 for config in configs], ",")
        parts.append(f"{epochs} epoch" if epochs == "1" else f"{epochs} epochs")
        if self.batch_size is not None:
            parts.append(f"batches of at most {self.batch_size}")
        parts += dict.fromkeys(filter(None, map(_speed, configs)))
        parts += dict.fromkeys(map(_detection, configs))
        return "; ".join(parts)

    def _images_in_words(self, configs: Sequence[RunConfig], published_on: str | None) -> str:
        """Of runs on one benchmark."""
        name = configs[0].benchmark
        if name not in SIZES:
            most = [config.max_per_class for config in configs]
            few = [count for count in most if count is not None]
            words = ["all training images"] if None in most else []
            words += [f"at most {_span(few, ',')} training images of a class"] if few else []
            return f"{name}: {' or '.join(words)}"
        images = [_images(config) for config in configs]
        whole = SIZES[published_on or name].images
        if set(images) == {whole}:
            return f"{name}: all {whole:,} training images"
        kept = [_classes(config) for config in configs]
        classes = "" if {*kept} == {SIZES[name].classes} else f" of {_span(kept, ',')} classes"
        shares = [self._share(config, published_on) for config in configs]
        buffers = f"times {_span(shares, '.3g')}"
        if self._keeps_buffers(name, published_on):
            buffers = "as named"
        return (
            f"{name}: {_span(images, ',')} training images{classes} of the published {whole:,}, "
            f"buffers {buffers}"
        )

    def _share(self, config: RunConfig, published_on: str | None) -> float:
        """The factor of a run's buffer."""
        if published_on is None and config.benchmark in self.buffers:
            return self.buffers[config.benchmark]
        return _images(config) / SIZES[published_on or config.benchmark].images

    def _class_order(self, config: RunConfig) -> tuple[int, ...] | None:
        if config.benchmark not in self.classes or config.tasks or config.class_order:
            return config.class_order
        return tuple(range(self.classes[config.benchmark]))

    def _keeps_buffers(self, benchmark: str, published_on: str | None) -> bool:
        return self.is_full and published_on in (None, benchmark)

    def _refuse_unknown(self, benchmark: str, published_on: str | None) -> None:
        if benchmark in SIZES:
            return
        if published_on is not None:
            raise UserError(
                f"what the buffers of {published_on} would be on {benchmark} is not known; "
                f"expected one of {', '.join(SIZES)}"
            )
        raise UserError(
            f"the scale {self.name} does not know how large {benchmark} is; use the scale paper, "
            f"which makes nothing smaller, or one of {', '.join(SIZES)}"
        )

    def _max_per_class(self, config: RunConfig) -> int | None:
        own = SIZES[config.benchmark]
        images = self.images.get(config.benchmark, own.images)
        classes = self.classes.get(config.benchmark, own.classes)
        per_class = images // classes
        if config.max_per_class is not None or per_class >= own.images // own.classes:
            return config.max_per_class
        return per_class

    def _narrower(self, config: RunConfig, whole: RunConfig) -> dict[str, Mapping[str, Any]]:
        """All options, with those that make the network smaller and were not given."""
        given = {name.replace("-", "_") for name in config.options.get("backbone", {})}
        options = self.backbones.get(whole.backbone or "", {})
        narrower = {name: value for name, value in options.items() if name not in given}
        if not narrower:
            return dict(whole.options)
        return {**whole.options, "backbone": {**whole.options["backbone"], **narrower}}

    def _fewer_epochs(self, config: RunConfig, whole: RunConfig) -> dict[str, Any]:
        if config.epochs is not None or config.benchmark not in self.images:
            return {}  # set by the user; or small enough
        assert whole.epochs is not None, "the config has been resolved"
        most = self.epochs.get(config.benchmark, self.max_epochs)
        if most is None or whole.epochs <= most:
            return {}
        fewer: dict[str, Any] = {"epochs": most}
        if whole.lr_milestones and config.lr_milestones is None:
            share = most / whole.epochs
            shrunk = {max(1, int(epoch * share)) for epoch in whole.lr_milestones}
            fewer["lr_milestones"] = tuple(sorted(shrunk))
        return fewer

    def _detection(self, config: RunConfig) -> Mapping[str, str]:
        """Settings that change; detection that was chosen otherwise stays."""
        usual = all(getattr(config, name) == value for name, value in DETECTION.items())
        return self.detection_of(config.benchmark) if usual else {}

    def _smaller_batches(self, config: RunConfig, whole: RunConfig) -> dict[str, Any]:
        if self.batch_size is None or config.benchmark not in self.images:
            return {}
        return {
            name: min(self.batch_size, size)
            for name in ("batch_size", "minibatch_size")
            if getattr(config, name) is None and (size := getattr(whole, name)) is not None
        }


SCALES: Mapping[str, Scale] = {
    "smoke": Scale(
        name="smoke",
        images={
            "fmnist-cd": 2_000,
            "cifar10-cd": 2_000,
            "cifar100-cd": 4_000,
            "tinyimagenet-cd": 4_000,
            "clear10-cd": 500,
        },
        backbones={
            "resnet18": {"width": 8},
            "resnet152": {"width": 8},
            "vit-s": {"dim": 48, "depth": 2, "heads": 2},
        },
        max_epochs=2,
    ),
    "tables": Scale(
        name="tables",
        images={
            "fmnist-cd": 6_000,
            "cifar10-cd": 10_000,
            "cifar100-cd": 10_000,
            "tinyimagenet-cd": 2_000,
            "clear10-cd": 2_000,
        },
        classes={"cifar100-cd": 20, "tinyimagenet-cd": 20},
        # As many samples of each class as published; the images' share would leave half a sample.
        buffers={"tinyimagenet-cd": 0.1},
        backbones={
            "resnet18": {"width": 16},
            "resnet152": {"width": 16},
            "vit-s": {"dim": 96, "depth": 4, "heads": 3},
        },
        epochs={"cifar100-cd": 1, "tinyimagenet-cd": 3},
        # 25 test samples of a class are too few to be halved: the learner against held-out ones
        # missed 2 of 12 drifts.
        detection={"tinyimagenet-cd": {"encoder": "random", "reference": "fingerprint"}},
        max_epochs=3,
        batch_size=10,
    ),
    "small": Scale(
        name="small",
        images={
            "fmnist-cd": 15_000,
            "cifar10-cd": 15_000,
            "cifar100-cd": 20_000,
            "tinyimagenet-cd": 20_000,
            "clear10-cd": 2_000,
        },
        backbones={
            "resnet18": {"width": 16},
            "resnet152": {"width": 16},
            "vit-s": {"dim": 96, "depth": 4, "heads": 3},
        },
        max_epochs=10,
    ),
    "paper": Scale(name="paper", images={}, backbones={}),
}


def scale_named(name: str) -> Scale:
    """The scale of that name; UserError for others."""
    if name not in SCALES:
        raise unknown_name("scale", name, SCALES)
    return SCALES[name]


def _images(config: RunConfig) -> int:
    """Training images of a run, if its classes are balanced."""
    own = SIZES[config.benchmark]
    per_class = own.images / own.classes
    if config.max_per_class is not None:
        per_class = min(per_class, config.max_per_class)
    return round(per_class * _classes(config))


def _classes(config: RunConfig) -> int:
    """Classes that a run learns."""
    named = sum(config.tasks, ()) if config.tasks is not None else config.class_order
    return SIZES[config.benchmark].classes if named is None else len(set(named))


def _network(config: RunConfig) -> str:
    """Its name, and the options that are not its defaults; what stands in its place has none."""
    if (name := config.backbone) is None:
        return f"class statistics ({config.method})"
    options = registry.find("backbone", name).options_type()
    known = {} if options is None else fields_of(options)
    own = config.options.get("backbone", {})
    changed = [f"{key} {value}" for key, value in own.items() if value != known[key].default]
    return " ".join([name, *changed])


def _speed(config: RunConfig) -> str:
    """What changes late digits; empty: nothing."""
    usual = ("fp32", "contiguous")
    return ", ".join(v for v in (config.precision, config.memory_format) if v not in usual)


def _detection(config: RunConfig) -> str:
    how = (config.detector, config.encoder, config.reference)
    if how == tuple(DETECTION.values()):
        return "drift is detected by three tests on the learner against held-out samples"
    if config.detector in WITHOUT_HARM:
        return f"detector {config.detector}"
    return "detector {}, encoder {}, reference {}".format(*how)


def _span(values: Sequence[float], form: str) -> str:
    """The lowest and the highest, or the one that there is.

    >>> _span([2000, 4000], ","), _span([1, 1], ",")
    ('2,000 to 4,000', '1')
    """
    return " to ".join(dict.fromkeys(format(value, form) for value in (min(values), max(values))))
