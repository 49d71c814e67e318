"""Detection and realignment as a plugin of Avalanche's strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from driftwise.errors import UserError
from driftwise.integrations.realigner import Realigner

if TYPE_CHECKING:

    class SupervisedPlugin:
        """Avalanche's own, which lives in an environment of its own."""
else:
    try:
        from avalanche.core import SupervisedPlugin
    except ImportError as error:
        raise UserError("Avalanche is not installed: pip install 'driftwise[avalanche]'") from error


class RealignmentPlugin(SupervisedPlugin):
    """Each experience is a task: known classes are checked before it, and steps replay samples."""

    def __init__(self, **settings: Any) -> None:
        """`settings`: those of `Realigner`, but for the network."""
        super().__init__()
        self.realigner = Realigner(**settings)
        self._batch: Any = None

    def before_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Check and adapt."""
        del args, kwargs
        self.realigner.network = strategy.model
        self.realigner.begin_task()

    def before_training_iteration(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Put samples of the buffer behind those of the batch."""
        del args, kwargs
        if len(strategy.mbatch) < 3:
            raise UserError(
                "realignment needs batches of inputs, labels and task labels; got "
                f"{len(strategy.mbatch)} entries"
            )
        x, y, *others, tasks = strategy.mbatch
        if others or len(tasks.unique()) > 1:
            raise UserError(
                "realignment works with one head, for batches of inputs, labels and one task label; "
                f"got {len(strategy.mbatch)} entries and {len(tasks.unique())} task labels"
            )
        self._batch = (x, y)
        x, y = self.realigner.extend(self._batch)
        more = tasks[:1].expand(len(y) - len(tasks))
        strategy.mbatch = [x, y, torch.cat([tasks, more])]

    def after_training_iteration(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Offer the batch to the buffer."""
        del args, kwargs
        self.realigner.offer(self._batch, repeated=strategy.clock.train_exp_epochs > 0)
        self._batch = None

    def after_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """The experience's classes are learned."""
        del strategy, args, kwargs
        self.realigner.end_task()

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return self.realigner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.realigner.load_state_dict(state)
