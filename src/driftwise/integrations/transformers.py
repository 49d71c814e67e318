"""Detection and realignment as a callback of the Trainer of Hugging Face transformers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from driftwise.errors import UserError
from driftwise.integrations.realigner import Realigner

if TYPE_CHECKING:
    from transformers import TrainerCallback
else:
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise UserError(
            "transformers is not installed: pip install 'driftwise[transformers]'"
        ) from error

FILE = "realignment.pt"
"""in a checkpoint's folder"""


class RealignmentCallback(TrainerCallback):
    """Each `train` is a task: known classes are checked before it, and steps replay samples.

    A callback does not see batches: the model's inputs are extended where its forward begins. The
    loss must be the model's own, computed from its inputs and `labels`. Checkpoints of the trainer
    get a file with buffer, references and ledger.
    """

    def __init__(self, **settings: Any) -> None:
        """`settings`: those of `Realigner`, but for the network."""
        self.realigner = Realigner(**settings)
        self._handle: Any = None
        self._pending: list[tuple[Any, Any]] = []
        """batches of the step, each as it came and extended"""
        self._in_step = False
        self._epochs = 0
        """begun in this `train`"""
        self._repeated = False
        """whether the samples of this epoch came before"""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check and adapt, unless training is resumed."""
        del control
        model = kwargs["model"]
        if args.n_gpu > 1:
            raise UserError(
                f"realignment needs a process for each device; got {args.n_gpu} devices in one: start "
                f"{args.n_gpu} processes with torchrun"
            )
        self.realigner.network = model
        if state.global_step:
            self._load(_folder(args, state) / FILE)
        if not (state.global_step and self.realigner.in_task):
            self.realigner.begin_task()
        self._detach()
        self._epochs = 0
        # Nothing in it can be compiled, and the attempt would be made in every step.
        extend: Any = self._extend
        if args.torch_compile:
            extend = torch.compiler.disable(extend)  # type: ignore[no-untyped-call]
        self._handle = model.register_forward_pre_hook(extend, with_kwargs=True)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Labels of samples that come again are not counted again."""
        del args, control, kwargs
        # Of a data set of unknown length the trainer knows no whole epochs.
        self._repeated = self._epochs > 0 or (state.epoch or 0) >= 1
        self._epochs += 1

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Forwards from here on are train steps."""
        del args, state, control, kwargs
        self._in_step = True

    def _extend(self, model: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if not (self._in_step and model.training):
            return None
        if args:
            raise UserError("realignment needs a model's inputs by name; got positional ones")
        others = {name: kwargs[name] for name in kwargs if name not in _NOT_INPUTS}
        batch = {name: value for name, value in others.items() if value is not None}
        if self._pending and _same(batch, self._pending[-1][0]):
            extended = self._pending[-1][
                1
            ]  # another forward of the batch, as contrastive losses make
        else:
            extended = self.realigner.extend(batch)
            self._pending.append((batch, extended))
        changed = {**kwargs, **extended}
        if (items := kwargs.get("num_items_in_batch")) is not None:
            # The model divides its summed loss by this.
            changed["num_items_in_batch"] = items * (len(extended["labels"]) / len(batch["labels"]))
        return args, changed

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Offer the batch to the buffer."""
        del args, state, control, kwargs
        self._offer()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Offer the batch to the buffer."""
        del args, state, control, kwargs
        self._offer()
        self._in_step = False

    def _offer(self) -> None:
        for batch, _ in self._pending:
            self.realigner.offer(batch, repeated=self._repeated)
        self._pending.clear()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save everything that changes into the checkpoint's folder."""
        del control, kwargs
        everything = self.realigner.state_dict()  # all processes give what they have
        if state.is_world_process_zero:
            torch.save(everything, _folder(args, state) / FILE)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The task's classes are learned."""
        del args, state, control, kwargs
        self._detach()
        self.realigner.end_task()

    def _load(self, path: Path) -> None:
        if not path.exists():
            raise UserError(
                f"training is resumed, and the state of realignment is expected in {path}, which does "
                "not exist: resume from a checkpoint in output_dir that this callback has saved"
            )
        self.realigner.load_state_dict(torch.load(path, weights_only=True))

    def _detach(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        self._handle, self._in_step = None, False
        self._pending.clear()


_NOT_INPUTS = ("num_items_in_batch", "return_dict", "output_attentions", "output_hidden_states")


def _same(batch: dict[str, Any], other: dict[str, Any]) -> bool:
    return list(batch) == list(other) and all(batch[name] is other[name] for name in batch)


def _folder(args: Any, state: Any) -> Path:
    return Path(args.output_dir, f"checkpoint-{state.global_step}")
