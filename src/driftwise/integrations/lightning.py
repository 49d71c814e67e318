"""Detection and realignment as a callback of Lightning."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from driftwise.errors import UserError
from driftwise.integrations.realigner import Realigner

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    for _package in ("lightning.pytorch", "pytorch_lightning"):
        try:
            Callback = importlib.import_module(_package).Callback
        except ImportError:
            continue
        break
    else:
        raise UserError("Lightning is not installed: pip install 'driftwise[lightning]'")


class Realignment(Callback):
    """Each `fit` is a task: known classes are checked before it, and steps replay samples.

    `training_step` gets batches with samples of the replay buffer behind their own. The module's
    `forward` must give logits. Checkpoints of the trainer carry buffer, references and ledger. The
    processes of a DDP strategy share one buffer.
    """

    def __init__(self, **settings: Any) -> None:
        """`settings`: those of `Realigner`, but for the network."""
        self.realigner = Realigner(**settings)
        self._resumed = False
        self._first_epoch = 0
        """of the task: a trainer that fits again goes on counting"""
        self._original: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Check and adapt, unless a task is resumed."""
        realigner = self.realigner
        realigner.network = pl_module
        if not (self._resumed and realigner.in_task):
            self._first_epoch = trainer.current_epoch
            realigner.begin_task()
        self._resumed = False
        own = vars(pl_module).get("training_step")
        step = pl_module.training_step

        @functools.wraps(step)  # Lightning looks at its arguments
        def training_step(batch: Any, *args: Any, **kwargs: Any) -> Any:
            return step(realigner.extend(batch), *args, **kwargs)

        pl_module.training_step = training_step
        self._original = own

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Offer the batch to the buffer."""
        del pl_module, outputs, batch_idx
        self.realigner.offer(batch, repeated=trainer.current_epoch > self._first_epoch)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The task's classes are learned."""
        del trainer
        self._restore(pl_module)
        self.realigner.end_task()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the module as it was."""
        del trainer, exception
        self._restore(pl_module)

    def _restore(self, pl_module: Any) -> None:
        vars(pl_module).pop("training_step", None)
        if self._original is not None:
            pl_module.training_step = self._original
            self._original = None

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {**self.realigner.state_dict(), "first_epoch": self._first_epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.realigner.load_state_dict(state_dict)
        self._first_epoch = state_dict.get("first_epoch", 0)
        self._resumed = True
