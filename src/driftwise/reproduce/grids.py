"""The tables and figures of the paper that can be redrawn, each as a grid of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftwise.config.presets import learns_vectors
from driftwise.config.schema import RunConfig
from driftwise.errors import unknown_name
from driftwise.sweeps.grid import Grid, Value
from driftwise.sweeps.scale import DETECTION

METHODS = ("er", "er-ace", "der++", "ser", "cls-er")
ADAPTATIONS = ("vanilla", "fr", "amr")
BUFFERS = (500, 5000)
TRANSFORMS = (
    *("permutation", "rotation", "defocus-blur"),
    *("gaussian-noise", "shot-noise", "speckle-noise"),
)
TABLES = ("table1", "table2", "table3", "table4")
RATES = (0.0, 0.25, 0.5, 0.75, 1.0)

_ONLY_VANILLA_WITHOUT_DRIFT: Mapping[str, Sequence[Value]] = {
    "num_drifts": (0,),
    "adaptation": ("fr", "amr"),
}

_PUBLISHED_CHECKS: Mapping[str, Value] = {
    "preset": "auto",
    "checked": "just-drifted",
    "monitor": "test",
    "monitor_labels": "given",
    "detector.correction": "none",
    "drift_seed": 42,
    "buffer_policy": "balanced",
    "realigned_logits": "training",
}
"""What of the preset published can be said of feature vectors too."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One table or figure."""

    summary: str
    benchmarks: tuple[str, ...]
    """that the published numbers were made on, or that it suits as they are"""
    axes: Callable[[], dict[str, Sequence[Value]]]
    base: Mapping[str, Any]
    without: Sequence[Mapping[str, Sequence[Value]]] = ()
    if_named: tuple[str, ...] = ()
    """of its benchmarks, those that run only where somebody names them"""

    def grid(
        self,
        seeds: Sequence[int],
        benchmark: str | None = None,
        settings: Mapping[str, Any] | None = None,
        beside: Mapping[str, Sequence[Value]] | None = None,
        *,
        alone: bool = False,
    ) -> Grid:
        """Its runs, on another benchmark or with other settings if they are named.

        `beside`: further values of axes, such as a method of one's own; `alone`: of these axes no
        others.
        """
        usual = tuple(name for name in self.benchmarks if name not in self.if_named)
        benchmarks = usual if benchmark is None else (benchmark,)
        axes = {"benchmark": benchmarks, **self.axes(), "seed": tuple(seeds)}
        added = {name: tuple(values) for name, values in (beside or {}).items()}
        for name in added:
            if name not in self.axes():
                raise unknown_name("setting that varies here", name, self.axes())
        axes |= {n: values if alone else (*axes[n], *values) for n, values in added.items()}
        without = [
            {
                name: (*values, *(added.get(name, ()) if name == "adaptation" else ()))
                for name, values in rule.items()
            }
            for rule in self.without
        ]
        detection = {key: value for key, value in DETECTION.items() if key not in axes}
        as_published = (
            _PUBLISHED_CHECKS
            if learns_vectors(RunConfig(benchmark=benchmarks[0]))
            else {"preset": "published"}
        )
        base = {**as_published, **detection, **self.base, **(settings or {})}
        return Grid(axes=axes, base=base, without=without)


def _table(number: int, benchmark: str, drifts: tuple[int, int]) -> Target:
    return Target(
        summary=f"Table {number}: five methods, two buffers, {drifts[0]} and {drifts[1]} drifts",
        benchmarks=(benchmark,),
        axes=lambda: {
            "method": METHODS,
            "buffer_size": BUFFERS,
            "num_drifts": (0, *drifts),
            "adaptation": ADAPTATIONS,
        },
        base={},
        without=(_ONLY_VANILLA_WITHOUT_DRIFT,),
    )


TARGETS: Mapping[str, Target] = {
    "table1": _table(1, "fmnist-cd", (1, 2)),
    "table2": _table(2, "cifar10-cd", (1, 2)),
    "table3": _table(3, "cifar100-cd", (2, 4)),
    "table4": _table(4, "tinyimagenet-cd", (2, 4)),
    "clear10": Target(
        summary="natural drift: three methods on CLEAR-10",
        benchmarks=("clear10-cd",),
        axes=lambda: {
            "method": ("er", "er-ace", "cls-er"),
            "buffer_size": (1000,),
            "num_drifts": (0, 2),
            "adaptation": ADAPTATIONS,
        },
        base={},
        without=(_ONLY_VANILLA_WITHOUT_DRIFT,),
    ),
    "natural": Target(
        summary="natural drift: what a test of uncertainty and one of features find of it",
        benchmarks=("clear10-cd", "pacs-cd", "yearbook-cd", "iwildcam-cd"),
        if_named=("pacs-cd", "yearbook-cd", "iwildcam-cd"),
        axes=lambda: {"detector": ("ks", "mmd"), "adaptation": ("vanilla",)},
        base={"method": "er"},
    ),
    "backbones": Target(
        summary="ResNet-152 and ViT-S under ER",
        benchmarks=("cifar10-cd", "cifar100-cd"),
        axes=lambda: {
            "backbone": ("resnet152", "vit-s"),
            "buffer_size": (5000,),
            "num_drifts": (0, 2, 4),
            "adaptation": ADAPTATIONS,
        },
        base={"method": "er"},
        without=(
            _ONLY_VANILLA_WITHOUT_DRIFT,
            {"benchmark": ("cifar10-cd",), "num_drifts": (4,)},
            {"benchmark": ("cifar100-cd",), "num_drifts": (2,)},
        ),
    ),
    "features": Target(
        summary="feature maps of the first task's classes after each task",
        benchmarks=("cifar10-cd",),
        axes=lambda: {"num_drifts": (0, 1), "adaptation": ("vanilla", "amr")},
        base={"method": "er", "buffer_size": 5000, "keep_features": True},
        without=({"num_drifts": (0,), "adaptation": ("amr",)},),
    ),
    "severity": Target(
        summary="six transforms at five severities: what drift costs",
        benchmarks=("cifar10-cd",),
        axes=lambda: {
            "transform": ("identity", *TRANSFORMS),
            "severity": (1, 2, 3, 4, 5),
            "adaptation": ("vanilla",),
        },
        base={"method": "er", "buffer_size": 5000, "num_drifts": 2},
        without=({"transform": ("identity",), "severity": (2, 3, 4, 5)},),
    ),
    "cost": Target(
        summary="labels, time and FLOPs against accuracy",
        benchmarks=("cifar10-cd",),
        axes=lambda: {
            "method": METHODS,
            "buffer_size": BUFFERS,
            "num_drifts": (2,),
            "adaptation": ADAPTATIONS,
        },
        base={},
    ),
    "own-concepts": Target(
        summary="the control in which every class drifts by a concept of its own",
        benchmarks=("fmnist-cd",),
        axes=lambda: {
            "concept_per_class": (False, True),
            "num_drifts": (1,),
            "adaptation": ADAPTATIONS,
        },
        base={"method": "er", "buffer_size": 500, "drift_seed": None},
    ),
    "detector-errors": Target(
        summary="accuracy as a detector finds and mistakes more or fewer classes",
        benchmarks=("fmnist-cd",),
        axes=lambda: {
            "detector.tpr": RATES,
            "detector.fpr": (0.0, 0.25, 0.5, 1.0),
            "adaptation": ("fr", "amr"),
        },
        base={
            "method": "er",
            "buffer_size": 500,
            "num_drifts": 1,
            "detector": "oracle",
            "checked": "all-known",
        },
    ),
}
"""By the name that `driftwise reproduce` takes."""
