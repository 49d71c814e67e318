"""The typed config of a run: one thing for flags, files and Python. It does not need torch."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from driftwise.config.fields import settle
from driftwise.errors import UserError

PARTS = ("benchmark", "method", "adaptation", "detector", "backbone")
"""The fields whose component has options of its own: `--detector.level 0.01`."""


BOUNDS: Mapping[str, tuple[int, float]] = {
    "max_per_class": (5, math.inf),
    "buffer_size": (1, 10**9),
    "fresh_samples": (1, 10**9),
    "fingerprint_size": (2, math.inf),
    "num_tasks": (1, math.inf),
    "num_drifts": (0, math.inf),
    "max_classes_per_drift": (1, math.inf),
    "drift_over_tasks": (1, math.inf),
    "drift_seed": (0, math.inf),
    "min_harm": (0, 100),
    "label_budget": (0, math.inf),
    "wrong_answers": (0, 0.9),
    "epochs": (1, 10**9),
    "batch_size": (1, 10**9),
    "minibatch_size": (1, 10**9),
    "momentum": (0, math.inf),
    "weight_decay": (0, 10**6),
    "lr_drop": (0, 1),
    "lr_floor": (0, 1),
    "channels": (1, 1024),
    "threads": (1, 1024),
    "seed": (0, 2**63 - 1),
}
"""The least and the largest value of each number."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that have a flag. None: the preset, the benchmark or the machine decides."""

    benchmark: str = "digits-cd"
    """the data and its tasks"""
    data: str | None = None
    """where the data are; None: searched in the usual places, then downloaded"""
    max_per_class: int | None = None
    """at most so many images of each class to learn from, and the same fraction of its test
    samples; None: all"""
    frozen_encoder: str | None = None
    """a network that is never trained and turns images into the feature vectors that are learned from"""
    scaling: Literal["none", "standard", "signed-log"] | None = None
    """how features of vectors are brought to one scale, fitted on the first task's training samples:
    mean and deviation, or these of signed logarithms; by default, standard for vectors"""
    method: str = "er"
    """the continual-learning method"""
    adaptation: str = "amr"
    """what is done about drifted classes"""
    detector: str | None = None
    """which test finds drifted classes; by default, ks"""
    encoder: str | None = None
    """what computes the logits and features that a detector compares; by default, learner"""
    reference: Literal["memory", "held-out", "fingerprint"] | None = None
    """what current samples are compared with: samples of the replay buffer (memory), held-out samples,
    or encodings kept of each class as it was learned (fingerprint); by default, memory where encoder
    and learner allow it, else held-out"""
    fingerprint_size: int = 50
    """samples that a fingerprint keeps of each class"""
    monitor: Literal["holdout", "test"] | None = None
    """which samples a detector monitors: by default held-out ones; or, as published, the test set"""
    monitor_labels: Literal["given", "predicted", "unknown"] | None = None
    """what is known of monitored samples: by default their classes, which are recorded as labels; predicted
    classes; or nothing, so that all classes are checked and adapted to as one, and a changed mix of
    classes counts as drift"""
    checked: Literal["all-known", "just-drifted"] | None = None
    """which classes are checked: by default all seen so far; or, as published, those that drift in
    the task"""
    buffer_size: int | None = None
    """capacity of the replay buffer, in samples"""
    fresh_samples: int | None = None
    """of analytic methods, which keep class statistics in the place of a buffer: labels that realigning
    a drifted class asks for; by default, 20"""
    buffer_policy: str | None = None
    """which samples the buffer keeps; by default, reservoir"""
    buffer_layout: Literal["sharded", "replicated"] = "sharded"
    """of several processes: each keeps the samples that it saw, or each keeps all; numbers are equal"""
    buffer_device: Literal["host", "device"] = "host"
    """where samples are kept: in the host's memory, from which draws are sent to a GPU ahead of time, or
    in that of the device; numbers are equal"""
    num_tasks: int | None = None
    """how many tasks the classes are split into, as evenly as possible"""
    class_order: tuple[int, ...] | None = None
    """the order in which classes arrive, by number; by default that of the data (Tiny-ImageNet's is
    the order of wnids.txt; docs/how-to/own_data.md shows how to sort it)"""
    tasks: tuple[tuple[int, ...], ...] | None = None
    """the classes of each task by number, as JSON: [[0,1],[2,3,4],[],[5]]; class names of your own
    data are numbered from 0 in sorted order"""
    num_drifts: int | None = None
    """drift events, spread over the tasks as in the paper"""
    transform: str | None = None
    """what drift does to the images; by default, permutation, where drift is not natural"""
    severity: int | None = None
    """how strongly, 1 to 5; by default, 5"""
    domains: tuple[str, ...] | None = None
    """natural drift: at each event, classes drift to images of the next of these domains"""
    first_domain: str | None = None
    """the domain whose images are learned first; None: all images"""
    scope: Literal["since-last-event", "all-seen", "all-present"] | None = None
    """which classes drift at an event: by default those learned since the previous event (as in the
    published numbers), all seen so far, or of these all that have samples of the event's domain"""
    max_classes_per_drift: int | None = None
    """at most so many classes drift at an event, the most recent ones"""
    sequential: bool = False
    """every task from the second on drifts the classes of the task before it; num_drifts is ignored"""
    permutation_unit: Literal["pixel", "row"] | None = None
    """what is permuted; by default, pixels"""
    drift_share: float = 1.0
    """the fraction of a class that drifts; below 1 the old concept stays valid beside the new one"""
    drift_over_tasks: int = 1
    """over how many tasks the drifted fraction rises, evenly"""
    concept_per_class: bool = False
    """every class drifts to a concept of its own instead of one that all share"""
    drift_seed: int | None = None
    """one seed for the transforms of all events; None: from the run's seed, another for every event"""
    recurring_in_training: bool | None = None
    """drifted classes return, labelled, in the training data of the event's task"""
    min_harm: float | None = None
    """adapt only to drift that costs the learner at least so many points of accuracy on the class,
    as estimated on monitored samples; None: to all drift"""
    realigned_logits: Literal["evaluation", "training"] | None = None
    """how stored logits of samples that adaptation puts into the buffer are computed: by default in
    evaluation mode; or, as published, in training mode, a class at a time, which also updates
    batch-norm statistics"""
    label_budget: int | None = None
    """at most so many labels for adaptation over the whole run"""
    wrong_answers: float = 0.0
    """the fraction of labels for adaptation that is wrong, to see what that costs: another known class
    comes under the requested one"""
    hostile_answers: bool = False
    """wrong answers always confuse the same two classes, and asking again repeats them; else any class,
    and a second answer errs independently"""
    backbone: str | None = None
    """the network"""
    epochs: int | None = None
    """passes over the samples of a task"""
    batch_size: int | None = None
    """stream samples in a step"""
    minibatch_size: int | None = None
    """buffer samples in a step"""
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    """the optimiser of the weights"""
    lr: float | None = None
    """learning rate"""
    scheduler: Literal["constant", "steps", "cosine"] | None = None
    """the learning rate over the epochs of a task, anew in every task; by default, constant"""
    lr_milestones: tuple[int, ...] | None = None
    """scheduler steps: the epochs after which the rate drops"""
    lr_drop: float = 0.1
    """scheduler steps: the factor by which it drops"""
    lr_floor: float = 0.01
    """scheduler cosine: the fraction of the rate that it falls to"""
    momentum: float = 0.0
    """momentum of SGD"""
    weight_decay: float = 0.0
    """weight decay"""
    augmentation: Literal["none", "flip", "crop", "crop-flip"] = "none"
    """random changes to training images, replayed ones included"""
    normalise: bool = False
    """normalise by mean and deviation per channel, measured on the first task's training images"""
    channels: int | None = None
    """input channels of the network: 3 repeats grey images; None: those of the data"""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """of forwards; bf16 pays only where the processor has instructions for it; fp16 scales losses, for
    GPUs without bf16"""
    memory_format: Literal["contiguous", "channels-last"] = "contiguous"
    """how images lie in memory: channels-last suits wide convolutions; late digits differ"""
    compile: bool = False
    """training forwards through torch.compile; the first steps take minutes, and whether later ones
    gain must be measured; late digits differ"""
    cuda_graphs: bool = False
    """with compile, on CUDA: compiled forwards are recorded and played back, which saves launches"""
    shard_network: bool = False
    """of several processes: each keeps a part of the weights and of the optimiser's state, for a network
    that is too large for one device"""
    device: str = "auto"
    """cpu, cuda, xpu, mps, or auto: the fastest there is"""
    threads: int | None = None
    """threads torch may use; sums come out in another order, so late digits depend on it"""
    keep_features: bool = False
    """after each task, keep the features of the first task's test images"""
    preset: str = "auto"
    """where settings that are not given come from; auto: benchmark, method and buffer size;
    published: also stream and detector as in the published experiments (expect it to miss classes:
    docs/explanations/detection.md measures 70 to 100 % found)"""
    seed: int = 0
    """seed of all random numbers"""

    def __post_init__(self) -> None:
        settle(self)  # from Python too, a mistyped word must not pass for another
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"{name} must be at least {least}; got {value}")
            if value is not None and value > most:
                raise UserError(f"{name} must be at most {most}; got {value}")
        if self.tasks is not None and not any(self.tasks):
            raise UserError("tasks must bring at least one class, as JSON: [[0,1],[2]]")
        if self.severity is not None and not 1 <= self.severity <= 5:
            raise UserError(f"severity must be 1 to 5; got {self.severity}")
        if not 0 < self.drift_share <= 1:
            raise UserError(f"drift_share must lie above 0, up to 1; got {self.drift_share}")
        if self.lr is not None and not 0 < self.lr <= 10**6:
            raise UserError(f"lr must be above 0 and at most 1000000; got {self.lr}")
        if self.momentum >= 1:
            raise UserError(f"momentum must be below 1; got {self.momentum}")
        if self.lr_milestones is not None and min(self.lr_milestones, default=0) < 1:
            raise UserError(
                f"lr_milestones must be epochs, counted from 1; got {self.lr_milestones}"
            )
        if self.momentum and self.optimiser != "sgd":
            raise UserError(f"momentum is a setting of sgd; leave it out with {self.optimiser}")
        if self.tasks is not None and (self.num_tasks or self.class_order) is not None:
            raise UserError("tasks names the classes already: leave num_tasks and class_order out")


@dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """Everything that decides what a run computes; saved with it.

    >>> RunConfig(method="der++", adaptation="amr", num_drifts=2).buffer_size is None
    True
    """

    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """options of components, by kind: {"detector": {"level": 0.01}}"""
    events: tuple[Mapping[str, Any], ...] = ()
    """drift events written out one by one, instead of being placed by rule (streams/drift_events.py)"""
    data_identity: str | None = None
    """digest of the data that the run was made with; other data are refused"""
    code_identity: str | None = None
    """digest of the source of custom parts and of the local modules that they import; None: there
    are none"""

    def to_json(self) -> dict[str, Any]:
        """Plain data, in the order of the fields."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), allow_nan=False))
        return plain


def changed(config: RunConfig, **values: Any) -> RunConfig:
    """A copy with other values, which this project has chosen: they are not checked again."""
    copied = copy.copy(config)
    for name, value in values.items():
        object.__setattr__(copied, name, value)
    return copied
