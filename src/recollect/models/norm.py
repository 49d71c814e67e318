"""Batch norm for streams, in which a batch may be a single row."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor, nn


class BatchNorm2d(nn.BatchNorm2d):
    """torch's batch norm, bit for bit, except that it also learns from one value per channel.

    One row alone is a batch that a stream can send, and while the memory is empty nothing is
    replayed beside it; deep in a network such a row has shrunk to one pixel. One value has no
    spread, and torch refuses to train on it. Here it is normalised by the running statistics
    instead, as in evaluation, and they stay as they are: it has nothing to tell them.

    >>> import torch
    >>> BatchNorm2d(3, eps=0).train()(torch.ones(1, 3, 1, 1)).flatten().tolist()
    [1.0, 1.0, 1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """(rows, channels, height, width) -> the same."""
        one_value_each = input.shape == (1, self.num_features, 1, 1)
        if self.training and one_value_each and self.running_mean is not None:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)
