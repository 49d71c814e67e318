"""How large a sweep is: the paper's sizes, or the same grid with everything smaller.

Fewer images, narrower networks, fewer epochs, and buffers that shrink with the images, so that the
shape of a table can be had in minutes. Numbers at different scales are not comparable; whatever is
drawn says its scale.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.errors import UserError, unknown_name
from recollect.experiment.config import RunConfig
from recollect.experiment.presets import resolve


@dataclass(frozen=True, kw_only=True)
class Size:
    """The training pictures of a benchmark."""

    images: int
    classes: int


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
    """What a sweep may use up."""

    name: str
    images: Mapping[str, int]
    """training pictures in all, by benchmark; one that is not named keeps all of its own"""
    backbones: Mapping[str, Mapping[str, Any]]
    """options that make networks smaller, by name"""
    max_epochs: int | None = None

    def apply(self, config: RunConfig, *, published_on: str | None = None) -> RunConfig:
        """The config of a run at this scale, resolved.

        Training settings are those of the buffer's nominal size. `published_on` is the benchmark
        whose buffer sizes the config speaks of, where it runs on another one.
        """
        config = resolve(config)
        if self.is_full and published_on in (None, config.benchmark):
            return config
        own = _size(config.benchmark)
        whole = _size(published_on or config.benchmark)
        images = min(self.images.get(config.benchmark, own.images), own.images)
        assert config.buffer_size is not None, "the config has been resolved"
        per_class = None if images == own.images else images // own.classes
        smaller: dict[str, Any] = {
            "max_per_class": min(filter(None, (per_class, config.max_per_class)), default=None),
            "buffer_size": max(1, round(config.buffer_size * images / whole.images)),
        }
        smaller |= self._fewer_epochs(config)
        backbone = {
            **config.options.get("backbone", {}),
            **self.backbones.get(config.backbone or "", {}),
        }
        options = {**config.options, **({"backbone": backbone} if backbone else {})}
        return resolve(dataclasses.replace(config, options=options, **smaller))

    @property
    def is_full(self) -> bool:
        """Whether nothing is made smaller."""
        return not self.images and not self.backbones and self.max_epochs is None

    def note(self, configs: Sequence[RunConfig], *, published_on: str | None = None) -> str:
        """What the scale means for these runs, in one line."""
        benchmarks = dict.fromkeys(config.benchmark for config in configs)
        backbones = dict.fromkeys(config.backbone or "" for config in configs)
        parts = []
        if self.is_full and published_on is None:
            parts, benchmarks, backbones = (
                ["images, networks, epochs, buffers as published"],
                {},
                {},
            )
        for name in benchmarks:
            own, whole = _size(name), _size(published_on or name)
            images = min(self.images.get(name, own.images), own.images)
            parts.append(
                f"{name}: {images:,} training images of the published {whole.images:,}, buffers "
                f"times {images / whole.images:.3g}"
            )
        for name in backbones:
            options = self.backbones.get(name, {})
            parts.append(" ".join([name, *(f"{key} {value}" for key, value in options.items())]))
        if self.max_epochs is not None and any(name in self.images for name in benchmarks):
            parts.append(f"at most {self.max_epochs} epochs")
        if any(config.detector == "combined" for config in configs):
            parts.append("drift is looked for by the learner against held-out rows, by three tests")
        return "; ".join(parts)

    def _fewer_epochs(self, config: RunConfig) -> dict[str, Any]:
        if self.max_epochs is None or config.epochs is None or config.epochs <= self.max_epochs:
            return {}
        if config.benchmark not in self.images:  # small as it is
            return {}
        share = self.max_epochs / config.epochs
        milestones = config.lr_milestones
        return {
            "epochs": self.max_epochs,
            "lr_milestones": milestones
            and tuple(sorted({max(1, int(epoch * share)) for epoch in milestones})),
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


def _size(benchmark: str) -> Size:
    if benchmark not in SIZES:
        raise UserError(
            f"the scales know {', '.join(SIZES)}; leave scale out, or paper, for {benchmark}"
        )
    return SIZES[benchmark]
