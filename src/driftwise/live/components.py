"""From a config to the parts of a live learner, once the shape of its samples is known."""

from __future__ import annotations

import contextlib
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
from driftwise.drift_handler import DriftHandler
from driftwise.errors import UserError
from driftwise.learner import Learner
from driftwise.live.input_statistics import InputStatistics
from driftwise.live.sample_queue import ClassCounts
from driftwise.live.settings import LiveSettings
from driftwise.metrics import Ledger
from driftwise.models.prepared import Prepared
from driftwise.part_state import PartState
from driftwise.types import Samples

QUICK_SPLITS = 40_000
"""random ones of a check, which take about as long as a step of a ResNet-18"""


@dataclass(frozen=True, kw_only=True)
class LiveParts:
    """The parts of a live learner: the same as a run's, but for the stream."""

    learner: Learner
    ledger: Ledger
    given: DriftHandler
    """looks after the learner by watched samples with labels"""
    guessed: DriftHandler | None
    """by watched samples without, told apart by what they are taken for; None: the detector cannot"""
    adaptation_state: PartState
    counts: ClassCounts
    """how many labelled samples of each class have come"""
    seen: InputStatistics
    """what has come, by feature"""

    scales: bool
    """whether inputs are scaled by what has been seen"""

    @property
    def handlers(self) -> tuple[DriftHandler, ...]:
        """All ways of looking after the learner."""
        return (self.given,) if self.guessed is None else (self.given, self.guessed)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        monitors = [monitor_of(handler).state_dict() for handler in self.handlers]
        return {
            "learner": self.learner.state_dict(),
            "ledger": self.ledger.state_dict(),
            "monitors": monitors,
            "adaptation": self.adaptation_state.state_dict(),
            "seen": self.seen.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self.learner.load_state_dict(state["learner"])
        self.ledger.load_state_dict(state["ledger"])
        for handler, monitor in zip(self.handlers, state["monitors"], strict=True):
            monitor_of(handler).load_state_dict(monitor)
        self.adaptation_state.load_state_dict(state["adaptation"])
        if "seen" in state:  # not always was it kept
            self.seen.load_state_dict(state["seen"])

    def take_in(self, images: Tensor) -> None:
        """Add samples to what has been seen, and scale inputs by it where the learner does."""
        self.seen.add(images)
        if not self.scales:
            return
        mean, std = self.seen.statistics
        for network in self.learner.networks:
            assert isinstance(network, Prepared)
            shape = network.mean.shape
            network.scale_by(mean.reshape(shape), std.reshape(shape))


def monitor_of(handler: DriftHandler) -> Monitor:
    """The monitor, by more than its shape."""
    assert isinstance(handler.monitor, Monitor)
    return handler.monitor


def _image(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[int, ...]:
    """Of a sample as it came: (height, width, channels), or (features,) of what is no image."""
    if dtype == torch.uint8:
        return shape
    if len(shape) == 3:
        channels, height, width = shape
        return height, width, channels
    return (math.prod(shape),)


NORM_MOMENTUM = 0.5
"""of batch norms: a network that learns quickly is asked between steps, and old statistics are of
a network that is no more"""


def _follow_closely(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.momentum = NORM_MOMENTUM


def make_parts(
    config: RunConfig,
    first: Samples,
    outputs: int,
    network: nn.Module | None,
    settings: LiveSettings,
) -> LiveParts:
    """All parts, for samples like the `first` ones and so many classes."""
    shape, dtype = tuple(first.images.shape[1:]), first.images.dtype
    seen = InputStatistics(shape, dtype, factor=settings.outlier_factor)
    learner = make_learner(
        config,
        shape,
        outputs,
        dtype=dtype,
        statistics=(lambda: seen.statistics) if config.normalise else None,
        network=network,
        max_gradient=settings.max_gradient,
    )
    refuse_without_features(learner, shape, dtype)
    if network is None:
        for each in learner.networks:
            _follow_closely(each)
    ledger = Ledger(label_budget=config.label_budget)
    adaptation = registry.make("adaptation", config)
    counts = ClassCounts()

    @functools.cache  # one for both ways of watching
    def encoder() -> Encoder:
        made: Encoder = registry.find("encoder", settled(config.encoder)).factory()(
            Surroundings(learner=learner.encode, image_shape=_image(shape, dtype), seed=config.seed)
        )
        return Cached(made) if made.fixed else made

    def detector(labels: KnownLabels) -> Detector:
        asks = labels == "predicted" or config.min_harm is not None
        setting = Setting(
            encoder=encoder,
            drifting=lambda _: (),
            seed=config.seed,
            labels=labels,
            learner=learner.encode if asks else None,
            grows=True,
            usual=counts.of,
            quick_splits=QUICK_SPLITS,
        )
        made: Detector = registry.make("detector", config, setting)
        return made

    def handler(made: Detector, labels: KnownLabels, book: Callable[[int], None]) -> DriftHandler:
        monitor = Monitor(
            made, HeldOutReference(), book=book, labels=labels, min_harm=config.min_harm
        )
        return DriftHandler(monitor=monitor, adaptation=adaptation, learner=learner, ledger=ledger)

    given = handler(
        detector("given"), "given", lambda count: ledger.book_labels("monitoring", count)
    )
    guessed = None
    with contextlib.suppress(UserError):  # what it says to given labels it has said above
        guessed = handler(detector("predicted"), "predicted", lambda _: None)  # nobody's labels
    return LiveParts(
        learner=learner,
        ledger=ledger,
        given=given,
        guessed=guessed,
        adaptation_state=PartState(adaptation, "adaptation"),
        counts=counts,
        seen=seen,
        scales=config.normalise,
    )
