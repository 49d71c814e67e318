"""Events and counters in TensorBoard, Weights & Biases or MLflow.

A sink is an event callback: `live.on("*", tensorboard("runs/live"))`.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from driftwise.errors import UserError
from driftwise.live.events import Event

_TEXTS = (
    "refused",
    "quarantined",
    "restored",
    "classes",
    "grown",
    "watched",
    "drifted",
    "realigned",
    "waiting",
    "trouble",
)
"""events that are written as texts"""


class Sink(ABC):
    """Writes the counters and events of a live learner; it is closed with the live learner."""

    def __init__(self, every: int) -> None:
        """Numbers are written once in `every` calls of `observe`, events always."""
        if every < 1:
            raise UserError(f"every must be at least 1; got {every}")
        self._every = every

    def __call__(self, event: Event) -> None:
        """Write an event."""
        if event.kind == "observed":
            if event.step % self._every == 0:
                self.write(_numbers(event.details), event.step)
        elif event.kind == "closed":
            self.close()
        elif event.kind in _TEXTS:
            self.write_text(event.kind, json.dumps(event.details), event.step)

    @abstractmethod
    def write(self, numbers: Mapping[str, float], step: int) -> None:
        """Write numbers by name."""

    @abstractmethod
    def write_text(self, kind: str, text: str, step: int) -> None:
        """Write an event of a kind."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left."""


class _TensorBoard(Sink):
    def __init__(self, writer: Any, every: int) -> None:
        super().__init__(every)
        self._writer = writer

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def write_text(self, kind: str, text: str, step: int) -> None:
        self._writer.add_text(kind, text, step)

    def close(self) -> None:
        self._writer.close()


class _WandB(Sink):
    def __init__(self, run: Any, every: int, *, is_own: bool) -> None:
        super().__init__(every)
        self._run = run
        self._is_own = is_own
        # A step of our own: W&B drops values whose step is not above the last one.
        run.define_metric("driftwise/step")
        run.define_metric("driftwise/*", step_metric="driftwise/step")

    def write(self, numbers: Mapping[str, float | str], step: int) -> None:
        named = {f"driftwise/{name}": value for name, value in numbers.items()}
        self._run.log({"driftwise/step": step, **named})

    def write_text(self, kind: str, text: str, step: int) -> None:
        self.write({kind: text}, step)

    def close(self) -> None:
        if self._is_own:
            self._run.finish()


class _MLflow(Sink):
    def __init__(self, client: Any, run_id: str, metric: Any, every: int) -> None:
        super().__init__(every)
        self._client = client
        self._run_id = run_id
        self._metric = metric

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(name, value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def write_text(self, kind: str, text: str, step: int) -> None:
        # MLflow has no texts by step: a tag shows the latest event of its kind.
        self._client.set_tag(self._run_id, f"last_{kind}", f"step {step}: {text}"[:5000])

    def close(self) -> None:
        self._client.set_terminated(self._run_id)


def tensorboard(folder: str | os.PathLike[str], *, every: int = 1) -> Sink:
    """A sink to TensorBoard event files: scalars by call of `observe`, events as texts."""
    _needed("tensorboard")
    module = importlib.import_module("torch.utils.tensorboard")
    return _TensorBoard(module.SummaryWriter(os.fspath(folder), flush_secs=10), every)


def wandb(run: Any = None, *, every: int = 1, **init: Any) -> Sink:
    """A sink to a run of Weights & Biases: the given one, or a new one by `wandb.init(**init)`.

    A given run is left open when the live learner is closed.
    """
    package = _needed("wandb")
    if run is not None and init:
        raise UserError(f"a given run has been initialised: leave out {', '.join(init)}")
    return _WandB(run or package.init(**init), every, is_own=run is None)


def mlflow(
    experiment: str = "driftwise",
    *,
    run_name: str | None = None,
    tracking_uri: str | None = None,
    every: int = 1,
) -> Sink:
    """A sink to a new run of an MLflow experiment, which is created if it does not exist.

    Without a `tracking_uri` MLflow's own setting holds. MLflow's active run is left alone.
    """
    package = _needed("mlflow")
    client = package.MlflowClient(tracking_uri)
    known = client.get_experiment_by_name(experiment)
    number = client.create_experiment(experiment) if known is None else known.experiment_id
    run = client.create_run(number, run_name=run_name)
    return _MLflow(client, run.info.run_id, package.entities.Metric, every)


def _numbers(details: Mapping[str, Any]) -> dict[str, float]:
    """All counters, and the loss and accuracy of the batch where there are any."""
    numbers = dict(details["counters"])
    if details["labelled"]:
        numbers["accuracy"] = details["correct"] / details["labelled"]
    if details["loss"] is not None:
        numbers["loss"] = details["loss"]
    return numbers


def _needed(package: str) -> Any:
    """Import an optional package."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise UserError(f"{package} is not installed: pip install 'driftwise[{package}]'") from None
