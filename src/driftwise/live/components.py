"""Builds the components of a live learner once the shape of its samples is known."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftwise.config import registry
from driftwise.config.learners import make_learner
from driftwise.config.own_network import refuse_without_features
from driftwise.config.presets import settled
from driftwise.config.schema import RunConfig
from driftwise.detect import Detector, Encoder, HeldOutReference, Monitor, Setting, Surroundings
from driftwise.detect.encoding_cache import Cached
from driftwise.detect.grouping import KnownLabels
from driftwise.errors import UserError
from driftwise.learner import Learner
from driftwise.live.input_statistics import InputStatistics
from driftwise.live.sample_queue import ClassCounts
from driftwise.live.settings import LiveSettings
from driftwise.loop import DriftHandler
from driftwise.metrics import Ledger
from driftwise.models.head import find_head, growing_head_of, num_outputs
from driftwise.models.inputs import Prepared, to_input
from driftwise.part_state import PartState
from driftwise.types import Samples

QUICK_SPLITS = 40_000
"""random splits of a check; they take about as long as a step of a ResNet-18"""
NORM_MOMENTUM = 0.5
"""of batch norms: predictions come between steps, and a network that learns quickly needs recent
statistics"""


@dataclass(frozen=True, kw_only=True)
class Components:
    """The components of a live learner: those of a run, without the stream."""

    learner: Learner
    ledger: Ledger
    labelled: DriftHandler
    """checks monitored samples with labels"""
    predicted: DriftHandler | None
    """checks monitored samples by predicted class; None: the detector needs labels"""
    adaptation_state: PartState
    class_counts: ClassCounts
    """labelled samples of each class so far"""
    input_statistics: InputStatistics
    normalises: bool
    """whether inputs are normalised by their statistics so far"""

    @property
    def handlers(self) -> tuple[DriftHandler, ...]:
        """All drift handlers."""
        return (self.labelled,) if self.predicted is None else (self.labelled, self.predicted)

    def add_inputs(self, images: Tensor) -> None:
        """Add samples to the input statistics, and normalise the network's inputs by them."""
        self.input_statistics.add(images)
        if not self.normalises:
            return
        mean, std = self.input_statistics.statistics
        for network in self.learner.networks:
            assert isinstance(network, Prepared)
            shape = network.mean.shape
            network.scale_by(mean.reshape(shape), std.reshape(shape))

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "learner": self.learner.state_dict(),
            "ledger": self.ledger.state_dict(),
            "monitors": [monitor_of(handler).state_dict() for handler in self.handlers],
            "adaptation": self.adaptation_state.state_dict(),
            "seen": self.input_statistics.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.learner.load_state_dict(state["learner"])
        self.ledger.load_state_dict(state["ledger"])
        for handler, monitor in zip(self.handlers, state["monitors"], strict=True):
            monitor_of(handler).load_state_dict(monitor)
        self.adaptation_state.load_state_dict(state["adaptation"])
        if "seen" in state:  # older states have none
            self.input_statistics.load_state_dict(state["seen"])


def monitor_of(handler: DriftHandler) -> Monitor:
    """The handler's monitor, as the class that it is here."""
    assert isinstance(handler.monitor, Monitor)
    return handler.monitor


def num_outputs_of(network: nn.Module, images: Tensor) -> int:
    """The number of a network's outputs for samples as they came; 0: it gives no logits."""
    return num_outputs(network, to_input(images[:1]))


def can_grow(network: nn.Module, images: Tensor | None = None) -> bool:
    """Whether a linear layer gives the network's outputs, so that more can be added.

    `images`: samples as they came, for a network whose head has not been searched for yet.
    """
    if images is not None:
        network = copy.deepcopy(network)
        find_head(network, to_input(images))
    return growing_head_of(network) is not None


def build_components(
    config: RunConfig,
    first: Samples,
    outputs: int,
    network: nn.Module | None,
    settings: LiveSettings,
) -> Components:
    """All components, for samples like the `first` ones and a number of classes."""
    shape, dtype = tuple(first.images.shape[1:]), first.images.dtype
    statistics = InputStatistics(shape, dtype, factor=settings.outlier_factor)
    learner = make_learner(
        config,
        shape,
        outputs,
        dtype=dtype,
        statistics=(lambda: statistics.statistics) if config.normalise else None,
        network=network,
        max_gradient=settings.max_gradient,
    )
    refuse_without_features(learner, shape, dtype)
    if network is None:
        for each in learner.networks:
            for module in each.modules():
                if isinstance(module, _BatchNorm):
                    module.momentum = NORM_MOMENTUM
    ledger = Ledger(label_budget=config.label_budget)
    adaptation = registry.make("adaptation", config)
    class_counts = ClassCounts()

    @functools.cache  # both handlers share it
    def encoder() -> Encoder:
        made: Encoder = registry.find("encoder", settled(config.encoder)).factory()(
            Surroundings(
                learner=learner.encode, image_shape=_image_shape(shape, dtype), seed=config.seed
            )
        )
        return Cached(made) if made.fixed else made

    def handler(labels: KnownLabels, book: Callable[[int], None]) -> DriftHandler:
        needs_learner = labels == "predicted" or config.min_harm is not None
        setting = Setting(
            encoder=encoder,
            drifting=lambda _: (),
            seed=config.seed,
            labels=labels,
            learner=learner.encode if needs_learner else None,
            grows=True,
            usual=class_counts.of,
            quick_splits=QUICK_SPLITS,
        )
        detector: Detector = registry.make("detector", config, setting)
        reference = HeldOutReference()
        monitor = Monitor(detector, reference, book=book, labels=labels, min_harm=config.min_harm)
        return DriftHandler(monitor=monitor, adaptation=adaptation, learner=learner, ledger=ledger)

    labelled = handler("given", lambda count: ledger.book_labels("monitoring", count))
    predicted = None
    with contextlib.suppress(UserError):  # a detector that needs labels; other mistakes came above
        predicted = handler("predicted", lambda _: None)  # there are no labels to book
    return Components(
        learner=learner,
        ledger=ledger,
        labelled=labelled,
        predicted=predicted,
        adaptation_state=PartState(adaptation, "adaptation"),
        class_counts=class_counts,
        input_statistics=statistics,
        normalises=config.normalise,
    )


def _image_shape(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[int, ...]:
    """(height, width, channels) of a sample as it came; (features,) if it is no image."""
    if dtype == torch.uint8:
        return shape
    if len(shape) == 3:
        channels, height, width = shape
        return height, width, channels
    return (math.prod(shape),)
