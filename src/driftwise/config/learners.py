"""From a config to a learner: network, optimiser, buffer, method; and checks of a network."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from driftwise import rng
from driftwise.analytic_learner import AnalyticLearner
from driftwise.compiled import refuse_without_compiler
from driftwise.config import registry
from driftwise.config.custom import CustomPart
from driftwise.config.presets import settled
from driftwise.config.schema import RunConfig, changed
from driftwise.devices import ASYNCHRONOUS
from driftwise.distributed import Group, shard_blocks
from driftwise.errors import UserError
from driftwise.hybrid_learner import Hybrid, HybridLearner
from driftwise.learner import (
    Learner,
    Rate,
    TrainSettings,
    constant_rate,
    cosine_rate,
    step_rate,
)
from driftwise.memory import (
    AnyBuffer,
    PrefetchingBuffer,
    ReplayBuffer,
    ReplicatedBuffer,
    ShardedBuffer,
)
from driftwise.methods import AnalyticMethod
from driftwise.models.head import find_head
from driftwise.models.inputs import Prepared, input_shape_of, to_input
from driftwise.models.layers import take_single_samples
from driftwise.runs.checkpoint import flatten
from driftwise.scaling import Scaling
from driftwise.types import Samples

_MEMORY_FORMATS = {
    "channels-last": torch.channels_last,
    "contiguous": torch.contiguous_format,
}

Statistics = tuple[Tensor, Tensor]
"""Mean and standard deviation of what networks are given, by channel or feature, (channels,)."""

FRESH_SAMPLES = 20
"""labels that realigning a class of an analytic method asks for, where no config says it"""

FARTHEST = 10.0
"""deviations from the mean at which values of a vector are clipped"""


def make_learner(
    config: RunConfig,
    image_shape: tuple[int, ...],
    num_classes: int,
    *,
    dtype: torch.dtype = torch.uint8,
    statistics: Callable[[], Statistics] | None = None,
    network: nn.Module | None = None,
    max_gradient: float | None = None,
    scaling: Scaling | None = None,
) -> Learner:
    """A fresh learner for images of that shape, or for floats of a shape that networks take.

    `statistics` of the images are needed only where weights are not loaded afterwards. `network`
    takes the place of the config's backbone; to start afresh means to go back to its weights.
    `scaling`: of the vectors of an analytic method, where nobody has scaled them before.
    """
    method = registry.make("method", config)
    if isinstance(method, AnalyticMethod):
        return _analytic(config, method, image_shape, network, scaling)
    if isinstance(method, Hybrid):
        statistics_of = registry.CATALOGUE["method"][method.analytic].make()
        options = {kind: each for kind, each in config.options.items() if kind != "method"}
        part = changed(config, method=method.trained, options=options)
        hybrid = HybridLearner(
            cast("AnalyticLearner", _analytic(config, statistics_of, image_shape, None, scaling)),
            make_learner(
                part,
                image_shape,
                num_classes,
                dtype=dtype,
                statistics=statistics,
                network=network,
                max_gradient=max_gradient,
            ),
            temperature=method.temperature,
        )
        return cast("Learner", hybrid)  # it does all that is asked of a learner
    input_shape = input_shape_of(image_shape) if dtype == torch.uint8 else image_shape
    learner = Learner(
        network_maker(
            config,
            input_shape,
            num_classes,
            statistics=statistics,
            network=network,
            limit=None if dtype == torch.uint8 else FARTHEST,
        ),
        method,
        buffer=_buffer(config),
        optimiser=optimiser_maker(config),
        settings=TrainSettings(
            minibatch_size=settled(config.minibatch_size),
            device=pick_device(config.device),
            memory_format=_MEMORY_FORMATS[config.memory_format],
            bf16=config.precision == "bf16",
            fp16=config.precision == "fp16",
            augmentation=config.augmentation,
            rate=_rate(config),
            annotate_in_training=config.realigned_logits == "training",
            compiled_samples=_full_steps(config) if config.compile else (),
            cuda_graphs=config.cuda_graphs,
            max_gradient=max_gradient,
            shard=shard_blocks if config.shard_network else None,
        ),
        seed=config.seed,
    )
    # What is compiled chooses its own layout.
    if config.memory_format == "channels-last" or config.compile:
        _check_layout(learner)
    blank = torch.zeros(2, *image_shape, dtype=dtype)
    check_head(learner.network, to_input(blank, pick_device(config.device)), num_classes)
    return learner


def _buffer(config: RunConfig) -> AnyBuffer:
    """The replay buffer of one process or of several, on the host or on the device."""
    device, processes = pick_device(config.device), Group().size
    if config.cuda_graphs and not (config.compile and device.type == "cuda"):
        raise UserError(
            f"cuda_graphs records what is compiled for CUDA: expected compile and a CUDA device; got "
            f"compile={config.compile} and {device.type}"
        )
    policy = registry.find("buffer_policy", settled(config.buffer_policy)).factory()()
    made: dict[str, Any] = {"policy": policy, "seed": config.seed}
    capacity = settled(config.buffer_size)
    if config.buffer_device == "device" and processes > 1:
        raise UserError(
            f"a buffer in the device's memory works in one process; this is one of {processes}: use "
            "buffer_device host"
        )
    if config.buffer_device == "device" and device.type != "cpu":
        return ReplayBuffer(capacity, device=device, **made)
    kinds = {"replicated": ReplicatedBuffer, "sharded": ShardedBuffer}
    kind: Any = ReplayBuffer if processes == 1 else kinds[config.buffer_layout]
    buffer: AnyBuffer = kind(capacity, **made)
    return PrefetchingBuffer(buffer, device) if device.type in ASYNCHRONOUS else buffer


def _analytic(
    config: RunConfig,
    method: AnalyticMethod,
    image_shape: tuple[int, ...],
    network: nn.Module | None,
    scaling: Scaling | None,
) -> Learner:
    """The learner of an analytic method, which has no network; UserError where it cannot be made."""
    if network is not None:
        raise UserError(
            f"the method {config.method} trains no network; give a network that encodes as "
            "frozen_encoder, or use another method"
        )
    if len(image_shape) != 1:
        raise UserError(
            f"the method {config.method} learns from feature vectors; these samples have the shape "
            f'{image_shape}: give a frozen encoder, e.g. frozen_encoder="efficientnet"'
        )
    fresh = config.fresh_samples or FRESH_SAMPLES
    learner = AnalyticLearner(method, scaling=scaling, fresh_samples=fresh)
    return cast("Learner", learner)  # it does all that is asked of a learner


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
    settings: dict[str, Any] = {
        "lr": settled(config.lr),
        "weight_decay": config.weight_decay,
    }
    match config.optimiser:
        case "adam":
            return lambda network: torch.optim.Adam(network.parameters(), **settings)
        case "adamw":
            return lambda network: torch.optim.AdamW(network.parameters(), **settings)
    settings["momentum"] = config.momentum
    return lambda network: torch.optim.SGD(network.parameters(), **settings)


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
    if torch.xpu.is_available():
        there.insert(0, "xpu")
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
    if device.type != "cpu" and (device.index or 0) >= torch.accelerator.device_count():
        count = torch.accelerator.device_count()
        raise UserError(
            f"device {name!r} is not available; {device.type} devices here: 0 to {count - 1}"
        )
    return device


# Checks of a network, before anything is trained


def taken_over(network: object, name: str) -> nn.Module:
    """A copy that can be trained, copied and saved; UserError for a network that cannot be."""
    if not isinstance(network, nn.Module):
        raise UserError(f"{name} must be a torch module; got {type(network).__name__}")
    for module in network.modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise UserError(f"{name} is compiled by torch.jit; give the module it was made from")
        if hasattr(module, "_orig_mod"):
            raise UserError(
                f"{name} is compiled by torch.compile; give the module it was made from, and set "
                "compile=True"
            )
        if any(
            isinstance(h, WeightNorm | SpectralNorm) for h in module._forward_pre_hooks.values()
        ):
            raise UserError(
                f"{name} has a norm of torch.nn.utils on its weights, which cannot be copied; use "
                "the norm of that name in torch.nn.utils.parametrizations"
            )
    for key, weight in network.named_parameters():
        if is_lazy(weight):
            raise UserError(
                f"{name} does not know the shape of {key} yet; pass it a batch of images first"
            )
        if weight.requires_grad and weight.dtype != torch.float32:
            raise UserError(
                f"{name} has weights of {weight.dtype} ({key}); expected torch.float32: call "
                ".float() on it"
            )
    if not any(weight.requires_grad for weight in network.parameters()):
        raise UserError(f"{name} has no weights that can be trained; unfreeze some")
    try:
        taken = copy.deepcopy(network)
        flatten(taken.state_dict())
    except Exception as error:  # the user's code may raise anything
        raise UserError(
            f"{name} cannot be copied and saved, as it must: {first_line(error)}"
        ) from error
    take_single_samples(taken)
    return taken


def check_head(network: nn.Module, images: Tensor, num_classes: int) -> None:
    """Refuse a network that does not give each image a logit per class, in either mode.

    `num_classes` 0: unknown.
    """
    samples, *shape = images.shape
    probe = copy.deepcopy(network)
    for training in (False, True):
        when = " in training" if training else ""
        try:
            with torch.no_grad(), rng.as_global(rng.fork(0, "probe")):
                logits = probe.train(training)(images)
        except Exception as error:  # the user's code may raise anything
            raise UserError(
                f"the network cannot take images of shape {tuple(shape)} "
                f"(channels, height, width){when}: {first_line(error)}"
            ) from error
        if not isinstance(logits, Tensor):
            raise UserError(
                f"the network must return a tensor of logits, ({samples}, {num_classes or 'classes'}) "
                f"for {samples} images; it returned a {type(logits).__name__}{when}: wrap it "
                "in a module that picks out the logits"
            )
        if logits.shape != (samples, num_classes):
            raise UserError(
                f"the network's head must give {num_classes or 'a sample of'} logits, one per class "
                f"of the stream; for {samples} images{when} it gave the shape {tuple(logits.shape)}"
            )


def refuse_without_features(
    learner: Learner, image_shape: tuple[int, ...], dtype: torch.dtype = torch.uint8
) -> None:
    """Refuse a network whose features cannot be found, before it is trained."""
    learner.encode(torch.zeros(2, *image_shape, dtype=dtype))


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of its message."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]
