"""The base class of methods: how a stream batch and draws from the buffer become one loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from driftwise.errors import UserError
from driftwise.models.layers import treats_samples_independently
from driftwise.types import Extras


class SampleKeys(NamedTuple):
    """What identifies samples: their ids and the concepts they show, int64 (samples,) on the CPU."""

    ids: Tensor
    concepts: Tensor


class Inputs:
    """Samples on the device of the network, converted to its input when first used.

    >>> import torch
    >>> bytes_, y = torch.zeros(5, 8, 8, 1, dtype=torch.uint8), torch.zeros(5, dtype=torch.long)
    >>> inputs = Inputs(bytes_, y, {}, convert=lambda images: images.permute(0, 3, 1, 2) / 255)
    >>> inputs.x.shape, inputs.y.shape
    (torch.Size([5, 1, 8, 8]), torch.Size([5]))
    """

    def __init__(
        self,
        images: Tensor,
        y: Tensor,
        extras: Extras,
        *,
        convert: Callable[..., Tensor],
        keys: SampleKeys | None = None,
        step_labels: Tensor | None = None,
    ) -> None:
        """`convert` turns bytes into network inputs; of several parts, it is told how long each is."""
        self.y = y
        """int64 (samples,)"""
        self.step_labels = y if step_labels is None else step_labels
        """int64: the labels of the whole batch, of which several processes have a part each"""
        self.extras = extras
        """what the method kept with these samples (draws from the buffer only)"""
        self.keys = keys
        """what identifies the samples, if later epochs bring the same images again; else None"""
        self._images = images
        self._convert = convert
        self._x: Tensor | None = None
        self._whole: tuple[Tensor, int] | None = None

    @property
    def x(self) -> Tensor:
        """Floats (samples, channels, height, width), the same tensor every time."""
        if self._x is None and self._whole is not None:
            floats, start = self._whole
            self._x = floats[start : start + len(self.y)]
        if self._x is None:
            self._x = self._convert(self._images)
        return self._x

    @staticmethod
    def together(*parts: Inputs) -> Tensor:
        """The `x` of all parts, one after the other.

        Bytes are put together before they become floats: an eighth of an MLP's step.
        """
        if len(parts) == 1:
            return parts[0].x
        waiting = [part._images for part in parts if not part._is_converted]
        if len(waiting) < len(parts):
            return torch.cat([part.x for part in parts])
        whole = parts[0]._convert(torch.cat(waiting), *map(len, waiting))
        # A later use of a part must see the same augmented images. Most methods need no part:
        # slicing now would cost 12 us.
        start = 0
        for part in parts:
            part._whole = (whole, start)
            start += len(part.y)
        return whole

    @property
    def _is_converted(self) -> bool:
        return self._x is not None or self._whole is not None


def forward_each(network: nn.Module, *parts: Inputs) -> tuple[Tensor, ...]:
    """The logits of several sets of samples, (samples, classes) each.

    One forward for each, unless one forward for all is sure to give the same logits.
    """
    if len(parts) == 1 or not treats_samples_independently(network):
        return tuple(network(part.x) for part in parts)
    logits: Tensor = network(Inputs.together(*parts))
    return torch.split(logits, [len(part.y) for part in parts])


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The loss of a step and the logits of its stream batch.

    >>> import torch
    >>> logits = torch.zeros(2, 3, requires_grad=True)
    >>> loss = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 2]))
    >>> round(Outcome(loss=loss, logits=logits).loss.item(), 2)
    1.1
    """

    loss: Tensor
    """one number, to be differentiated"""
    logits: Tensor
    """(stream samples, classes)"""


class Draw(Protocol):
    """Draws samples from the buffer: `minibatch_size`, or `count`; None while it is empty."""

    def __call__(self, count: int | None = None) -> Inputs | None:
        """A fresh draw without replacement, independent of earlier ones."""
        ...


class Method(ABC):
    """A method. It knows nothing of drift; most methods implement `outcome` alone.

    >>> import driftwise as dw
    >>> from torch.nn.functional import cross_entropy
    >>> class OnlyTheBuffer(Method):
    ...     def outcome(self, network, stream, draw):
    ...         batch = draw() or stream  # no draw while the buffer is empty
    ...         loss = cross_entropy(network(batch.x), batch.y)
    ...         return Outcome(loss=loss, logits=network(stream.x))  # (samples, classes)
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, OnlyTheBuffer(), buffer=dw.ReplayBuffer(100))
    """

    rehearses: ClassVar[bool] = True
    """whether stream samples are offered to the buffer"""
    cumulative: ClassVar[bool] = False
    """whether a task trains on every class seen so far, and not on its new ones only"""
    starts_afresh: bool = False
    """whether every task begins with new weights"""

    @abstractmethod
    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        """The loss of one step, and the logits of the stream batch."""

    def samples_per_draw(self, *, minibatch_size: int, batch_size: int) -> int:
        """How many buffer samples a draw takes; 0: the method draws none."""
        del batch_size
        return minibatch_size

    def columns(self, logits: Tensor) -> Extras:
        """What to keep in the buffer beside samples with these logits (samples, classes)."""
        del logits
        return {}

    def attach(self, network: nn.Module, seed: int) -> None:
        """The network has just been made, or made anew: copies begin here."""

    def begin_task(self, network: nn.Module, classes: Sequence[int]) -> None:
        """New classes are about to arrive."""

    def end_task(self, network: nn.Module) -> None:
        """The task's last step has been made."""

    def after_backward(self, network: nn.Module) -> None:
        """The gradients of the loss are in the weights' `grad`, and no weight has changed yet.

        The optimiser takes what is written there: the place to project gradients. Forwards made
        here have the same precision and the same draws as those of `outcome`.
        """

    def after_step(self, network: nn.Module) -> None:
        """The optimiser has just updated the network."""

    def copies(self) -> tuple[nn.Module, ...]:
        """The networks that the method keeps beside the trained one."""
        return ()

    def predictor(self, network: nn.Module) -> nn.Module:
        """The network that predicts; by default the trained one."""
        return network

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes.

        A method of one's own that does not write this is saved by its attributes: modules, tensors,
        arrays, numbers, texts, generators, and lists and dicts of them (part_state.py).
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off; whoever writes one of the two writes both."""
        if state:
            raise ValueError(f"this method keeps no state; got {sorted(state)}")


def check_outcome(outcome: object, samples: int, method: Method) -> None:
    """UserError where a method does not give what it must."""
    if not isinstance(outcome, Outcome):
        raise UserError(
            f"{type(method).__name__}.outcome must return an Outcome(loss=..., logits=...); it "
            f"returned {_shown(outcome)}"
        )
    loss, logits = outcome.loss, outcome.logits
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise UserError(
            f"{type(method).__name__}.outcome: the loss must be a tensor of one number, computed "
            f"by the network so that it can be differentiated; it is {_shown(loss)}"
        )
    if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != samples:
        raise UserError(
            f"{type(method).__name__}.outcome: the logits must be those of the stream batch, "
            f"({samples}, classes); they are {_shown(logits)}"
        )


def check_columns(columns: object, samples: int, method: Method) -> None:
    """UserError where a method wants something kept that a buffer cannot keep."""
    if not isinstance(columns, Mapping) or not all(
        isinstance(column, Tensor) and column.dim() and len(column) == samples
        for column in columns.values()
    ):
        raise UserError(
            f"{type(method).__name__}.columns must return tensors by name, each with an entry for "
            f"each of the {samples} samples"
        )


def _shown(value: object) -> str:
    """What came, in a few words."""
    if not isinstance(value, Tensor):
        return "None" if value is None else f"a {type(value).__name__}"
    grad = "" if value.requires_grad else " without gradients"
    return f"a tensor of shape {tuple(value.shape)}{grad}"
