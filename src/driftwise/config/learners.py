"""From a config to a learner: network, optimiser, memory, method and how steps are made."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.compiled import refuse_without_compiler
from driftwise.config import registry
from driftwise.config.custom import CustomPart
from driftwise.config.own_network import check_head, taken_over
from driftwise.config.presets import settled
from driftwise.config.schema import RunConfig
from driftwise.errors import UserError
from driftwise.learner import (
    Learner,
    Rate,
    TrainSettings,
    constant_rate,
    cosine_rate,
    step_rate,
)
from driftwise.memory import ReplayBuffer
from driftwise.models.head import find_head
from driftwise.models.inputs import Prepared, input_shape_of, to_input
from driftwise.types import Samples

_MEMORY_FORMATS = {
    "channels-last": torch.channels_last,
    "contiguous": torch.contiguous_format,
}

Statistics = tuple[Tensor, Tensor]
"""Mean and standard deviation of what networks are given, by channel or feature, (channels,)."""

FARTHEST = 10.0
"""deviations from the mean beyond which a value of a vector says no more"""


def make_learner(
    config: RunConfig,
    image_shape: tuple[int, ...],
    num_classes: int,
    *,
    dtype: torch.dtype = torch.uint8,
    statistics: Callable[[], Statistics] | None = None,
    network: nn.Module | None = None,
    max_gradient: float | None = None,
) -> Learner:
    """A fresh learner for images of that shape, or for floats of a shape that networks take.

    `statistics` of the images are needed only where weights are not loaded afterwards. `network`
    takes the place of the config's backbone; to start afresh means to go back to its weights.
    """
    input_shape = input_shape_of(image_shape) if dtype == torch.uint8 else image_shape
    policy = registry.find("buffer_policy", settled(config.buffer_policy)).factory()()
    learner = Learner(
        network_maker(
            config,
            input_shape,
            num_classes,
            statistics=statistics,
            network=network,
            limit=None if dtype == torch.uint8 else FARTHEST,
        ),
        registry.make("method", config),
        buffer=ReplayBuffer(settled(config.buffer_size), policy=policy, seed=config.seed),
        optimiser=optimiser_maker(config),
        settings=TrainSettings(
            minibatch_size=settled(config.minibatch_size),
            device=pick_device(config.device),
            memory_format=_MEMORY_FORMATS[config.memory_format],
            bf16=config.precision == "bf16",
            augmentation=config.augmentation,
            rate=_rate(config),
            annotate_in_training=config.realigned_logits == "training",
            compiled_samples=_full_steps(config) if config.compile else (),
            max_gradient=max_gradient,
        ),
        seed=config.seed,
    )
    # What is compiled chooses its own layout.
    if config.memory_format == "channels-last" or config.compile:
        _check_layout(learner)
    blank = torch.zeros(2, *image_shape, dtype=dtype)
    check_head(learner.network, to_input(blank, pick_device(config.device)), num_classes)
    return learner


def _full_steps(config: RunConfig) -> tuple[int, ...]:
    """How many samples a network is given at once in full steps, whatever the method."""
    refuse_without_compiler(pick_device(config.device))
    batch, size = settled(config.batch_size), settled(config.buffer_size)
    drawn = min(settled(config.minibatch_size), size)
    return tuple({batch: None, drawn: None, batch + drawn: None})


def network_maker(
    config: RunConfig,
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    statistics: Callable[[], Statistics] | None = None,
    network: nn.Module | None = None,
    limit: float | None = None,
) -> Callable[[int], nn.Module]:
    """What makes networks for inputs of that shape, others for every number it is given.

    `limit`: deviations from the mean that an input may have at most.
    """
    backbone = registry.find("backbone", settled(config.backbone))
    data_channels, *sides = input_shape
    channels = data_channels if config.channels is None else config.channels
    if channels != data_channels and (data_channels != 1 or len(sides) != 2):
        raise UserError(
            f"channels {channels}: only grey images can be repeated; these have {data_channels}"
        )

    def bare(attempt: int) -> nn.Module:
        if network is not None:
            return taken_over(network, "network")
        given = {"input_shape": (channels, *sides), "num_classes": num_classes}
        options = config.options.get("backbone", {})
        with rng.as_global(rng.fork(config.seed, "network", attempt)):
            if isinstance(backbone, CustomPart):
                return taken_over(backbone.make(options=options, **given), str(backbone))
            try:
                made: nn.Module = backbone.factory()(**given, **options)
            except (TypeError, AttributeError, ValueError) as error:
                if len(sides) == 2:
                    raise
                raise UserError(
                    f"backbone {config.backbone} takes images; these samples have the shape "
                    f"{input_shape}: use the backbone mlp, or a network of your own"
                ) from error
            return made

    def make_network(attempt: int) -> nn.Module:
        made = bare(attempt)
        find_head(made, torch.zeros(2, channels, *sides))
        if not config.normalise and channels == data_channels:
            return made
        shape = (data_channels, *([1] * len(sides)))
        mean, std = statistics() if statistics else (torch.zeros(shape), torch.ones(shape))
        return Prepared(
            made,
            channels=channels,
            mean=mean.float().reshape(shape),
            std=std.float().reshape(shape),
            limit=limit,
        )

    return make_network


def _check_layout(learner: Learner) -> None:
    """Refuse what torch's convolutions on the CPU cannot do: they corrupt the heap (torch 2.13)."""
    device = next(learner.network.parameters(), torch.empty(0)).device
    if device.type != "cpu":
        return
    convolutions = [m for m in learner.network.modules() if isinstance(m, nn.Conv2d)]
    if any(
        each.out_channels < 8 or (each.in_channels < 8 and each.kernel_size == (1, 1))
        for each in convolutions
    ):
        raise UserError(
            "memory_format channels-last needs convolutions of at least 8 maps on a CPU, and so "
            "does compile; use contiguous without it, or a wider network"
        )


def optimiser_maker(config: RunConfig) -> Callable[[nn.Module], torch.optim.Optimizer]:
    """What makes the config's optimiser for a network."""
    lr, weight_decay = settled(config.lr), config.weight_decay

    def make_optimiser(network: nn.Module) -> torch.optim.Optimizer:
        parameters = network.parameters()
        match config.optimiser:
            case "adam":
                return torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay)
            case "adamw":
                return torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)
        return torch.optim.SGD(
            parameters, lr=lr, weight_decay=weight_decay, momentum=config.momentum
        )

    return make_optimiser


def _rate(config: RunConfig) -> Rate:
    match config.scheduler:
        case "steps":
            return step_rate(settled(config.lr_milestones), config.lr_drop)
        case "cosine":
            return cosine_rate(config.lr_floor)
    return constant_rate


def channel_statistics(samples: Samples) -> Statistics:
    """Of images as bytes, of float images (channels first) or of vectors, a portion at a time."""
    are_bytes = samples.images.dtype == torch.uint8
    images = (
        samples.images if are_bytes or samples.images.ndim < 3 else samples.images.movedim(1, -1)
    )
    total = torch.zeros(images.shape[-1], dtype=torch.float64)
    squares = torch.zeros_like(total)
    for part in torch.split(images, 4096):
        values = part.reshape(-1, part.shape[-1]).double() / (255 if are_bytes else 1)
        total += values.sum(dim=0)
        squares += values.square().sum(dim=0)
    count = max(1, images[..., 0].numel())
    mean = total / count
    variance = squares / count - mean.square()
    if are_bytes:  # one grey everywhere has no spread to divide by
        variance = variance.clamp(min=1e-6)
    else:  # nor has a feature that is always the same, on whatever scale
        variance[variance <= 1e-9 * mean.square()] = 1.0
    return mean, variance.sqrt()


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is the fastest there is."""
    there = ["cpu"]
    if torch.backends.mps.is_available():
        there.insert(0, "mps")
    if torch.cuda.is_available():
        there.insert(0, "cuda")
    if name == "auto":
        return torch.device(there[0])
    try:
        device = torch.device(name)
    except RuntimeError:  # torch's message names every kind of device there ever was
        device = None
    if device is None or device.type not in there:
        raise UserError(f"device {name!r} is not available; this machine has {', '.join(there)}")
    return device
