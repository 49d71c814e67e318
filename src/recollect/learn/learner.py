"""The learner: a network, an optimiser, a memory and an objective; it knows no method by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from recollect.errors import RunFailure
from recollect.learn.objective import Inputs, Objective
from recollect.memory import Memory
from recollect.models.inputs import to_input
from recollect.types import Extras, Rows, StepReport


class Learner:
    """Learns from labelled batches one step at a time and predicts in between."""

    def __init__(
        self,
        *,
        make_network: Callable[[int], nn.Module],
        make_optimiser: Callable[[nn.Module], torch.optim.Optimizer],
        memory: Memory,
        objective: Objective,
        minibatch_size: int,
        device: torch.device | str = "cpu",
    ) -> None:
        """`make_network(n)` gives freshly initialised weights, others for every n."""
        self.device = torch.device(device)
        self.memory = memory
        self.objective = objective
        self.steps = 0
        self._minibatch_size = minibatch_size
        self._make_network = make_network
        self._make_optimiser = make_optimiser
        self._restarts = 0
        self.network = make_network(0).to(self.device)
        self._optimiser = make_optimiser(self.network)

    def begin_task(self, classes: Sequence[int]) -> None:
        """Tell the method that a task with these new classes begins."""
        self.objective.begin_task(self.network, classes)

    def end_task(self) -> None:
        """Tell the method that the task is over."""
        self.objective.end_task(self.network)

    def observe(self, batch: Rows) -> StepReport:
        """One step on a labelled batch; afterwards the batch is offered to the memory."""
        if not len(batch):
            raise ValueError("a step needs at least one row; got an empty batch")
        self.network.train()
        y = batch.labels.to(self.device)
        stream = Inputs(x=to_input(batch.images, self.device), y=y, extras={})
        outcome = self.objective.outcome(self.network, stream, self._draw)
        loss = float(outcome.loss.detach())
        self.steps += 1
        if not loss < float("inf"):
            raise RunFailure(
                f"the loss became {loss} at step {self.steps}; try a lower learning rate"
            )
        self._optimiser.zero_grad(set_to_none=True)
        outcome.loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        self.objective.after_step(self.network)
        logits = outcome.logits.detach()
        self.memory.offer(batch, self._columns(logits), step=self.steps)
        correct = int((logits.argmax(dim=1) == y).sum())
        return StepReport(loss=loss, correct=correct, rows=len(batch))

    def logits(self, images: Tensor) -> Tensor:
        """What the predicting network says, (rows, h, w, c) -> (rows, classes) on the CPU.

        Nothing changes by asking: evaluation mode, no gradients, no batch-norm update.
        """
        return self._ask(self.objective.predictor(self.network), images)

    def annotate(self, rows: Rows) -> Extras:
        """The memory columns for rows that do not come from a training step."""
        if not self.objective.columns(torch.empty(0, 0)):
            return {}  # a method that keeps nothing of no rows keeps nothing: spare the forward
        return self._columns(self._ask(self.network, rows.images))

    def restart(self) -> None:
        """Fresh weights and a fresh optimiser; memory and method go on."""
        self._restarts += 1
        fresh = self._make_network(self._restarts)
        self.network.load_state_dict(fresh.state_dict())
        self._optimiser = self._make_optimiser(self.network)

    def _ask(self, network: nn.Module, images: Tensor) -> Tensor:
        """Logits on the CPU, a part of the rows at a time."""
        with _evaluating(network), torch.no_grad():
            parts = torch.split(images, 512)
            return torch.cat([network(to_input(part, self.device)).cpu() for part in parts])

    def _columns(self, logits: Tensor) -> Extras:
        return {name: column.cpu() for name, column in self.objective.columns(logits).items()}

    def _draw(self, count: int | None = None) -> Inputs | None:
        if not len(self.memory):
            return None
        drawn = self.memory.sample(self._minibatch_size if count is None else count)
        return Inputs(
            x=to_input(drawn.rows.images, self.device),
            y=drawn.rows.labels.to(self.device),
            extras={name: column.to(self.device) for name, column in drawn.extras.items()},
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "network": self.network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "memory": self.memory.state_dict(),
            "objective": self.objective.state_dict(),
            "steps": self.steps,
            "restarts": self._restarts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self.network.load_state_dict(state["network"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.memory.load_state_dict(state["memory"])
        self.objective.load_state_dict(state["objective"])
        self.steps = state["steps"]
        self._restarts = state["restarts"]


@contextlib.contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode for the moment, every module back in its own mode afterwards."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
