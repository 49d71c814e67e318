"""Batch norm for streams, in which a batch may be a single sample."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class _TakesOneValue(_BatchNorm):
    """torch's batch norm, bit for bit, except that it also learns from one value per channel.

    One sample alone is a batch that a stream can send, and while the memory is empty nothing is
    replayed beside it; deep in a network such a sample has shrunk to one pixel. One value has no
    spread, and torch refuses to train on it. Here it is normalised by the running statistics
    instead, as in evaluation, and they are not updated.
    """

    def forward(self, input: Tensor) -> Tensor:
        """(samples, channels, ...) -> the same."""
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        one_value_each = input.numel() == input.shape[1]
        if self.training and one_value_each and self.running_mean is not None:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)


class BatchNorm1d(_TakesOneValue, nn.BatchNorm1d):
    """For vectors, (samples, channels).

    >>> import torch
    >>> BatchNorm1d(3, eps=0).train()(torch.ones(1, 3)).tolist()
    [[1.0, 1.0, 1.0]]
    """


class BatchNorm2d(_TakesOneValue, nn.BatchNorm2d):
    """For maps, (samples, channels, height, width).

    >>> import torch
    >>> BatchNorm2d(3, eps=0).train()(torch.ones(1, 3, 1, 1)).flatten().tolist()
    [1.0, 1.0, 1.0]
    """


_OURS: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: BatchNorm1d,
    nn.BatchNorm2d: BatchNorm2d,
}


def take_single_samples(network: nn.Module) -> None:
    """Make torch's own batch norms in a network behave as those here, weights and all in place."""
    for module in network.modules():
        if (ours := _OURS.get(type(module))) is not None:
            module.__class__ = ours
