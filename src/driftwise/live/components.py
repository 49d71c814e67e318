"""Builds what a live learner is made of, once the shape of its samples is known."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftwise.config import registry
from driftwise.config.learners import make_learner, refuse_without_features
from driftwise.config.presets import settled
from driftwise.config.schema import RunConfig
from driftwise.detect import (
    Detector,
    DetectorContext,
    Encoder,
    EncoderContext,
    HeldOutReference,
    Monitor,
)
from driftwise.detect.base import KnownLabels
from driftwise.distributed import Group
from driftwise.encoders.encoding_cache import Cached
from driftwise.errors import UserError
from driftwise.learner import Learner
from driftwise.live.input_reader import InputStatistics
from driftwise.live.settings import LiveSettings
from driftwise.loop import DriftHandler
from driftwise.metrics import Ledger
from driftwise.models.head import find_head, growing_head_of, num_outputs
from driftwise.models.inputs import to_input
from driftwise.scaling import Scaling
from driftwise.types import Samples

QUICK_SPLITS = 40_000
"""random splits of a check; they take about as long as a step of a ResNet-18"""
NORM_MOMENTUM = 0.5
"""of batch norms: predictions come between steps, and a network that learns quickly needs recent
statistics"""


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


def monitor_of(handler: DriftHandler) -> Monitor:
    """The handler's monitor, as the class that it is here."""
    assert isinstance(handler.monitor, Monitor)
    return handler.monitor


def build_learner(
    config: RunConfig,
    settings: LiveSettings,
    first: Samples,
    outputs: int,
    network: nn.Module | None,
    statistics: InputStatistics,
) -> Learner:
    """A learner for samples like the `first` ones and a number of classes."""
    Group().refuse_several("a live learner")
    shape, dtype = tuple(first.images.shape[1:]), first.images.dtype
    learner = make_learner(
        config,
        shape,
        outputs,
        dtype=dtype,
        statistics=(lambda: statistics.statistics) if config.normalise else None,
        network=network,
        max_gradient=settings.max_gradient,
        scaling=Scaling(config.scaling or "standard"),
    )
    refuse_without_features(learner, shape, dtype)
    modules = [module for each in learner.networks for module in each.modules()]
    for module in modules if network is None else ():
        if isinstance(module, _BatchNorm):
            module.momentum = NORM_MOMENTUM
    return learner


def build_handlers(
    config: RunConfig,
    learner: Learner,
    ledger: Ledger,
    first: Samples,
    num_labelled: Callable[[int], int],
) -> list[DriftHandler]:
    """Handlers of samples with labels, and of samples by predicted class if the detector can.

    `num_labelled(label)`: labelled samples of a class so far.
    """
    adaptation = registry.make("adaptation", config)

    @functools.cache  # both handlers share it
    def encoder() -> Encoder:
        image_shape = _image_shape(tuple(first.images.shape[1:]), first.images.dtype)
        made: Encoder = registry.find("encoder", settled(config.encoder)).factory()(
            EncoderContext(learner=learner.encode, image_shape=image_shape, seed=config.seed)
        )
        return Cached(made) if made.fixed else made

    def handler(labels: KnownLabels, book: Callable[[int], None]) -> DriftHandler:
        needs_learner = labels == "predicted" or config.min_harm is not None
        context = DetectorContext(
            encoder=encoder,
            drifting=lambda _: (),
            seed=config.seed,
            labels=labels,
            learner=learner.encode if needs_learner else None,
            grows=True,
            usual=num_labelled,
            quick_splits=QUICK_SPLITS,
        )
        detector: Detector = registry.make("detector", config, context)
        reference = HeldOutReference()
        monitor = Monitor(detector, reference, book=book, labels=labels, min_harm=config.min_harm)
        return DriftHandler(monitor=monitor, adaptation=adaptation, learner=learner, ledger=ledger)

    handlers = [handler("given", lambda count: ledger.book_labels("monitoring", count))]
    with contextlib.suppress(UserError):  # a detector that needs labels; other mistakes came above
        handlers.append(handler("predicted", lambda _: None))  # there are no labels to book
    return handlers


def _image_shape(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[int, ...]:
    """(height, width, channels) of a sample as it came; (features,) if it is no image."""
    if dtype == torch.uint8:
        return shape
    if len(shape) == 3:
        channels, height, width = shape
        return height, width, channels
    return (math.prod(shape),)
