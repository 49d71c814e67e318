"""Names of components. A new component is one file, and one line here.

Targets are import paths, so that reading the catalogue (for `--help`) imports nothing heavy. A
component outside the catalogue is named by its import path, `--backbone mypackage.nets:Net`, or by
the name under which an installed package offers it (an entry point of the group in `GROUPS`).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from driftwise.config.custom import CustomPart, is_import_path
from driftwise.datasets.catalogue import BENCHMARKS
from driftwise.encoders.names import ENCODERS, LIBRARIES
from driftwise.errors import UserError, unknown_name


@dataclass(frozen=True)
class Entry:
    """One component: what it is, what makes it, which options it takes."""

    summary: str
    target: str
    """import path of the factory below `driftwise`, `module:name`"""
    options: str | None = None
    """the dataclass of its options, in the same module; None: the factory is one itself, or takes
    none"""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """keyword arguments that make this entry what it is"""

    def factory(self) -> Any:
        """The factory itself; imports it."""
        return self._imported(self.target.partition(":")[2])

    def options_type(self) -> Any:
        """The dataclass of its options, or None; imports it."""
        if self.options is not None:
            return self._imported(self.options)
        factory = self.factory()
        is_one = dataclasses.is_dataclass(factory) and dataclasses.fields(factory)
        return factory if is_one else None

    def make(self, *arguments: Any, options: Mapping[str, Any] | None = None) -> Any:
        """Make it, with these options and the defaults of all others."""
        if self.options is None:
            return self.factory()(*arguments, **(options or {}), **self.fixed)
        return self.factory()(*arguments, self.options_type()(**(options or {})), **self.fixed)

    def _imported(self, name: str) -> Any:
        module = importlib.import_module(f"driftwise.{self.target.partition(':')[0]}")
        return getattr(module, name)


def _composed(summary: str, *parts: str) -> Entry:
    return Entry(summary, "adapt.compose:compose", "ComposeOptions", {"parts": parts})


CATALOGUE: dict[str, dict[str, Entry]] = {
    "benchmark": {
        **{
            each.name: Entry(each.summary, "config.benchmarks:known", fixed={"name": each.name})
            for each in BENCHMARKS.values()
        },
        "folder": Entry(
            "your own images: class/*.jpg, domain/class/*.jpg or split/class/*.jpg",
            "config.benchmarks:folder",
            "FolderOptions",
        ),
        "npz": Entry(
            "your own images or vectors in an .npz: images, labels, optional domain or year",
            "config.benchmarks:npz",
            "NpzOptions",
        ),
        "table": Entry(
            "your own feature vectors in a table: .csv, .parquet, .npz, .npy",
            "config.benchmarks:table",
            "TableOptions",
        ),
        "own": Entry(
            "a data set given from Python: run(config, out, data=...)", "config.benchmarks:own"
        ),
    },
    "method": {
        "er": Entry(
            "experience replay: one cross-entropy over stream and buffer samples", "methods.er:ER"
        ),
        "er-ace": Entry(
            "replay in which new classes do not push down the logits of old ones",
            "methods.er_ace:ERACE",
        ),
        "der++": Entry(
            "replay of samples together with the logits once given to them", "methods.derpp:DERpp"
        ),
        "ser": Entry(
            "replay that also stays near the network frozen after the last task", "methods.ser:SER"
        ),
        "cls-er": Entry(
            "replay guided by a plastic and a stable average of the network", "methods.cls_er:CLSER"
        ),
        "ncm": Entry(
            "the nearest class mean, without gradients or stored samples",
            "methods.analytic:NearestMean",
        ),
        "slda": Entry(
            "streaming linear discriminant analysis: class means and one covariance",
            "methods.analytic:SLDA",
        ),
        "ridge": Entry(
            "ridge regression on random features, from class statistics", "methods.analytic:Ridge"
        ),
        "hybrid": Entry(
            "class statistics and replay of feature vectors, both together",
            "hybrid_learner:Hybrid",
        ),
        "finetune": Entry("no replay: the lower bound", "methods.baselines:Finetune"),
        "joint": Entry(
            "all classes seen so far at every task: the upper bound", "methods.baselines:Joint"
        ),
    },
    "adaptation": {
        "vanilla": Entry("no adaptation", "adapt.vanilla:Vanilla"),
        "fr": Entry(
            "full relearning: label every drifted sample and train on all of them",
            "adapt.relearn:Relearn",
        ),
        "fr-flush": Entry(
            "full relearning that also removes outdated samples from the buffer",
            "adapt.relearn:Relearn",
            fixed={"flush": True},
        ),
        "fr-scratch": Entry(
            "full relearning from freshly initialised weights",
            "adapt.relearn:Relearn",
            fixed={"from_scratch": True},
        ),
        "amr": Entry(
            "adaptive memory realignment: refill the drifted classes' slots",
            "adapt.realign:Realign",
        ),
        "amr-partial": _composed(
            "realign only the drifted fraction of a class, the most outdated samples first",
            "partial",
        ),
        "amr-chosen": _composed("realign with the samples that are most worth a label", "chosen"),
        "amr-recovery": _composed(
            "realign, then rehearse until the class has recovered", "recovery"
        ),
        "amr-free-labels": _composed(
            "realign and rehearse, also on confident predictions for unlabelled samples",
            *("recovery", "free-labels"),
        ),
        "amr-remembered": _composed(
            "realign, or restore a recurring concept without labels", "remembered"
        ),
        "amr-gradual": _composed(
            "realign in proportion to a gradual drift, with hysteresis", "partial", "gradual"
        ),
        "amr-robust": _composed("realign, and set answers aside that are probably wrong", "robust"),
        "amr-weighed": _composed(
            "realign, and keep as many old samples as the fresh labels support", "weighed"
        ),
        "auto": Entry(
            "by the kind of change: realign, extend, restore an earlier concept, or leave alone",
            "adapt.by_kind:ByKind",
        ),
        "amr-plus": _composed(
            "realign with all extensions that have been shown to help",
            *("partial", "remembered", "gradual", "recovery", "free-labels"),
        ),
    },
    "detector": {
        "ks": Entry(
            "Kolmogorov-Smirnov test on predictive entropy, or another score", "detect.detectors:KS"
        ),
        "mmd": Entry(
            "maximum mean discrepancy of features, by permutations", "detect.detectors:MMD"
        ),
        "c2st": Entry(
            "whether a classifier can separate reference from current features",
            "detect.detectors:C2ST",
        ),
        "combined": Entry(
            "ks, mmd and c2st merged into one p-value per class", "detect.detectors:Combined"
        ),
        "reconstruction": Entry(
            "what a small autoencoder, learned from half of the reference, reconstructs badly",
            "detect.reconstruction:Reconstruction",
        ),
        "sequential": Entry(
            "evidence that adds up sample by sample; its level holds once for the whole stream",
            "detect.sequential:Sequential",
        ),
        "oracle": Entry(
            "knows the schedule: perfect detection, or with given error rates",
            "detect.oracle:Oracle",
        ),
        "always": Entry("flags every class at every task", "detect.oracle:Always"),
        "never": Entry("flags nothing", "detect.oracle:Never"),
    },
    "encoder": {name: Entry(*known) for name, known in ENCODERS.items()},
    "backbone": {
        "mlp": Entry("fully connected layers", "models.mlp:MLP", "MLPOptions"),
        "cnn": Entry("three small convolutions", "models.cnn:SmallCNN", "CNNOptions"),
        "resnet18": Entry(
            "ResNet-18 for small images: 3x3 stem, no max-pool",
            *("models.resnet:ResNet18", "ResNetOptions"),
        ),
        "resnet152": Entry(
            "ResNet-152 for small images: bottlenecks, 3x3 stem, no max-pool",
            *("models.resnet:ResNet152", "ResNetOptions"),
        ),
        "vit-s": Entry(
            "ViT-S: 12 transformer blocks of 384 over 4x4 patches",
            *("models.vit:ViTSmall", "ViTOptions"),
        ),
        "vit-tiny": Entry(
            "ViT-tiny: 12 transformer blocks of 192 over 4x4 patches",
            *("models.vit:ViTTiny", "ViTTinyOptions"),
        ),
    },
    "buffer_policy": {
        "reservoir": Entry(
            "every sample of the stream is kept with equal probability", "memory.policies:Reservoir"
        ),
        "balanced": Entry(
            "reservoir that removes from the largest class", "memory.policies:Balanced"
        ),
    },
    "transform": {
        name: Entry(summary, "streams.transforms:apply")
        for name, summary in {
            "identity": "no change: the control",
            "permutation": "permutes a fraction of the pixels, or of the features of vectors",
            "rotation": "rotates images counter-clockwise, or pairs of features",
            "defocus-blur": "out of focus",
            "gaussian-noise": "noise of one strength everywhere, on images and vectors",
            "shot-noise": "Poisson noise",
            "speckle-noise": "noise in proportion to brightness",
            "shift": "of vectors: moves each feature by so many of its deviations",
            "scale": "of vectors: stretches or shrinks each feature about its mean",
        }.items()
    },
}

OWN = ("benchmark", "method", "adaptation", "detector", "backbone")
"""The kinds of component that may be named by an import path."""

GROUPS = {
    "benchmark": "driftwise.datasets",
    "method": "driftwise.methods",
    "adaptation": "driftwise.adaptations",
    "detector": "driftwise.detectors",
    "backbone": "driftwise.models",
}
"""The group of entry points through which an installed package offers components of each kind."""


@dataclass(frozen=True)
class _Ambiguous(CustomPart):
    """A name that several packages offer for different components."""

    def factory(self) -> Any:
        """UserError: which one is meant would depend on the order of installation."""
        raise UserError(
            f"{self.kind} {self.path!r} is the name of several components ({self.summary}); use the "
            "import path of the one that you mean, module:name"
        )


@functools.cache
def installed(kind: str) -> Mapping[str, CustomPart]:
    """Components that installed packages offer, by name; the catalogue's own names come first."""
    if kind not in GROUPS:
        return {}
    found: dict[str, CustomPart] = {}
    for point in entry_points(group=GROUPS[kind]):
        if point.dist is None or point.name in CATALOGUE[kind]:
            continue
        part = CustomPart(kind, point.value, f"offered by the package {point.dist.name}")
        other = found.setdefault(point.name, part)
        if other.path != part.path:
            both = f"{other.path} {other.summary}, {part.path} {part.summary}"
            found[point.name] = _Ambiguous(kind, point.name, both)
    return found


def own_code(config: Any) -> dict[str, str]:
    """The import paths of the user's code that a config names, by setting."""
    named = {kind: getattr(config, kind) or "" for kind in (*OWN, "frozen_encoder")}
    return {
        kind: name
        for kind, name in named.items()
        if is_import_path(name) and name.partition(":")[0] not in LIBRARIES
    }


def find(kind: str, name: str) -> Entry | CustomPart:
    """The entry of that kind and name, or the custom component of an import path or a package."""
    if is_import_path(name) and kind in OWN:
        return CustomPart(kind, name)
    if name in CATALOGUE[kind]:
        return CATALOGUE[kind][name]
    if name not in installed(kind):
        raise unknown_name(kind.replace("_", " "), name, [*CATALOGUE[kind], *installed(kind)])
    return installed(kind)[name]


def is_custom(kind: str, name: str) -> bool:
    """Whether a component is code from outside this package."""
    return isinstance(find(kind, name), CustomPart)


def is_analytic(method: str) -> bool:
    """Whether a method computes its classifier from class statistics; imports it."""
    from driftwise.methods.analytic import AnalyticMethod  # late: `--help` must not wait for torch

    factory = find("method", method).factory()
    return isinstance(factory, type) and issubclass(factory, AnalyticMethod)


def needs_vectors(method: str) -> bool:
    """Whether a method keeps class statistics, and so learns from feature vectors only."""
    return method == "hybrid" or is_analytic(method)


def make(kind: str, config: Any, *arguments: Any) -> Any:
    """The component of that kind which a resolved config names, made by its constructor.

    `arguments`: the setting that a detector is bound to.
    """
    entry, options = find(kind, getattr(config, kind)), config.options.get(kind)
    if isinstance(entry, Entry) and kind == "detector":
        return entry.make(options=options).bind(*arguments)
    return entry.make(*arguments, options=options)
