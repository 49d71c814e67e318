"""From stored samples to the input of a network: as floats, augmented, normalised."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor, nn

from driftwise.devices import ASYNCHRONOUS, to_device

Augmentation = Literal["none", "flip", "crop", "crop-flip"]


def to_input(
    images: Tensor,
    device: torch.device | str = "cpu",
    *,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """uint8 (samples, h, w, c) -> floats in [0, 1], (samples, c, h, w); float vectors pass through.

    The bytes are copied and reordered before they become floats: a quarter of the traffic.
    """
    here = to_device(images, device)
    if images.dtype != torch.uint8:
        return here.float()
    samples, height, width, channels = here.shape
    if channels == 1 and memory_format == torch.contiguous_format:
        # In order as it is, unless the images are a transposed view.
        ordered = here.contiguous().view(samples, 1, height, width)
    else:
        # A clone even where one channel passes for contiguous in either order: convolutions go by
        # the strides, and would compute channels-last unasked.
        ordered = here.permute(0, 3, 1, 2).clone(memory_format=memory_format)
    return ordered.float().div_(255)


def to_host(values: Tensor) -> Tensor:
    """Float32 values in the host's memory, without a graph; a GPU must have computed them first."""
    if values.requires_grad:
        values = values.detach()
    if values.dtype == torch.float32 and values.is_cpu:
        return values  # two calls that change nothing cost 10 us right after a step
    return values.float().cpu()


class Readback:
    """A number on its way to the host: a GPU goes on with what it was given meanwhile."""

    def __init__(self, value: Tensor) -> None:
        """`value`: of one number."""
        self._value = value
        self._done: torch.Event | None = None
        if value.device.type in ASYNCHRONOUS:
            here = torch.empty_like(value, device="cpu", pin_memory=True)
            self._value = here.copy_(value.detach(), non_blocking=True)
            self._done = torch.accelerator.current_stream().record_event()

    def wait(self) -> float:
        """The number; waits until the device has got as far as computing it, and no further."""
        if self._done is not None:
            self._done.synchronize()
        return float(self._value.item())


def input_shape_of(image_shape: tuple[int, ...]) -> tuple[int, ...]:
    """(height, width, channels) at rest -> (channels, height, width) in a network."""
    return (image_shape[-1], *image_shape[:-1])


def augment(
    x: Tensor,
    how: Augmentation,
    generator: torch.Generator,
    *,
    rows: Tensor | None = None,
    whole: int | None = None,
) -> Tensor:
    """Every sample shifted by up to an eighth of its height (`crop`) and mirrored or not (`flip`).

    Floats (samples, channels, height, width); what a shift uncovers is black. `rows`: where
    these samples stand among `whole` ones, of which other processes have the rest: each changes as it
    would among all of them.
    """
    if how == "none" or x.ndim != 4:  # samples that are no images have no left and right
        return x
    samples, _, height, width = x.shape
    margin = height // 8 if "crop" in how else 0
    drawn = samples if whole is None else whole
    shifts = torch.randint(2 * margin + 1, (2, drawn, 1), generator=generator)
    chances = torch.rand(drawn, 1, generator=generator)
    if rows is not None:
        shifts, chances = shifts[:, rows], chances[rows]
    (top, left), mirrored = shifts, chances < (0.5 if "flip" in how else 0.0)
    across = torch.arange(width).expand(samples, width)
    across = torch.where(mirrored, across.flip(1), across) + left
    down = torch.arange(height) + top
    padded = F.pad(x, (margin,) * 4)
    picked = padded[
        torch.arange(samples, device=x.device)[:, None, None],
        :,
        down[:, :, None].to(x.device),
        across[:, None, :].to(x.device),
    ]  # (samples, height, width, channels): the order that advanced indexing gives
    # By the strides: grey images pass for contiguous in either order, and come out of a clone in
    # the one asked for (see `to_input`).
    layout = torch.channels_last if x.stride(1) == 1 else torch.contiguous_format
    return picked.permute(0, 3, 1, 2).clone(memory_format=layout)


class Prepared(nn.Module):
    """Normalises its input by `mean` and `std`, which are saved with the weights.

    A grey image is repeated over `channels`.

    >>> Prepared(nn.Flatten(), channels=3)(torch.zeros(2, 1, 4, 4)).shape
    torch.Size([2, 48])
    >>> mean, std = torch.tensor([5.0, 0.0]), torch.tensor([1.0, 10.0])
    >>> Prepared(nn.Identity(), channels=2, mean=mean, std=std)(torch.full((1, 2), 5.0))
    tensor([[0.0000, 0.5000]])
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        channels: int,
        mean: Tensor | None = None,
        std: Tensor | None = None,
        limit: float | None = None,
    ) -> None:
        """`mean` and `std`: (channels, 1, 1) for images, (features,) for vectors.

        `limit`: what is further from the mean counts as so many deviations.
        """
        super().__init__()
        self.network = network
        self._channels = channels
        self._limit = limit
        self.register_buffer("mean", torch.zeros(1, 1, 1) if mean is None else mean.clone())
        self.register_buffer("std", torch.ones(1, 1, 1) if std is None else std.clone())

    @torch.no_grad()
    def scale_by(self, mean: Tensor, std: Tensor) -> None:
        """Normalise by these from now on."""
        self.mean.copy_(mean)
        self.std.copy_(std)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (samples, ...) as the data come -> (samples, classes)."""
        logits: Tensor = self.network(self._prepare(x))
        return logits

    def _prepare(self, x: Tensor) -> Tensor:
        # Vectors have a number for each of their features.
        mean, std = (
            (self.mean.flatten(), self.std.flatten()) if x.ndim == 2 else (self.mean, self.std)
        )
        normal = (x - mean) / std
        if self._limit is not None:
            normal = normal.clamp(-self._limit, self._limit)
        is_grey = x.ndim == 4 and x.shape[1] == 1
        return normal.expand(-1, self._channels, -1, -1) if is_grey else normal
