"""One run, from a config to `result.json`: begun, gone on with, or found finished."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from driftwise.allocation import clear_out_of_memory
from driftwise.config.benchmarks import Tell
from driftwise.config.build import as_begun, assemble
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.drift_loop import DriftLoop
from driftwise.errors import warn_caller
from driftwise.models.head import Features, with_features
from driftwise.protocols import Listener
from driftwise.runs.checkpoint import taking_up
from driftwise.runs.features import FeatureKeeper
from driftwise.runs.interrupt import gently
from driftwise.runs.listeners import EventLog, Silent, Together
from driftwise.runs.result import make_result, record_to_json, source_commit
from driftwise.runs.saving import OFTEN, Keeping, Saving
from driftwise.runs.store import RunFolder
from driftwise.runs.task_state import from_state, to_state
from driftwise.streams import Stream
from driftwise.types import Dataset, TaskState

KEPT = "everything up to the last checkpoint is kept: free some memory, then go on with resume=True"
"""What to do where memory runs out."""


def run(
    config: RunConfig,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    data: Dataset | None = None,
    network: nn.Module | None = None,
    features: Features | None = None,
    listener: Listener | None = None,
    saving: Saving = OFTEN,
) -> dict[str, Any]:
    """Run a config in a folder and return its result; a finished run is not run again.

    `data` takes the place of the benchmark's own, `network` that of the config's backbone; neither
    is kept with the run, so that going on with it takes the same ones again. `features` says where
    the network's features come from, the name of a layer or a function of (network, input); None:
    they are what its head reads.
    """
    if data is not None and config.benchmark == RunConfig.benchmark:
        config = dataclasses.replace(config, benchmark="own")
    if network is not None:
        kind = type(network)
        config = dataclasses.replace(config, backbone=f"{kind.__module__}:{kind.__qualname__}")
    if features is not None:
        network = with_features(network, features)
    config = resolve(config, network_given=network is not None)
    if resume:
        config = as_begun(config, out)
    # Before the folder: what cannot work leaves no trace.
    loop = assemble(config, data, network, tell=Tell(warn=warn_caller))
    for warning in loop.warnings:
        warn_caller(warning)
    plain = loop.config.to_json()
    with RunFolder.open(out, plain, resume=resume, overwrite=overwrite) as folder:
        return run_in(folder, loop, listener=listener, saving=saving, warn=warn_caller)


def run_in(
    folder: RunFolder,
    loop: DriftLoop,
    *,
    listener: Listener | None = None,
    saving: Saving = OFTEN,
    warn: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run a loop in a folder that is open, from its checkpoint if it has one.

    A SIGINT or SIGTERM that comes meanwhile takes effect once the step is made and saved.
    """
    source_commit()  # of what has been loaded now
    config = loop.config
    if folder.finished:
        return folder.result()
    done, task_state = 0, None
    state = folder.load_checkpoint(warn)
    if state is not None:
        with taking_up(folder.path):
            loop.load_state_dict(state["parts"])
            done = state["tasks_done"]
            if done != folder.num_records:
                raise ValueError(f"{done!r} tasks are done, {folder.num_records} are recorded")
            task_state = None if state["midway"] is None else from_state(state["midway"])
    save_samples(folder, loop.stream)
    listeners: list[Listener] = [EventLog(folder), listener or Silent()]
    if config.keep_features:
        parts = loop.stream, loop.learner, loop.ledger
        listeners.append(FeatureKeeper(folder, *parts, warn))
    assert config.epochs is not None, "the config has not been resolved"

    def save(task_state: TaskState | None) -> None:
        folder.save_checkpoint(
            {
                "parts": loop.state_dict(),
                "tasks_done": done,
                "midway": None if task_state is None else to_state(task_state),
                "image_shape": list(loop.stream.image_shape),
                "class_names": list(loop.stream.class_names),
            }
        )

    with _threads(config.threads), clear_out_of_memory(KEPT), gently() as interruption:
        keeping = Keeping(saving, save, interruption)
        for record in loop.run(
            loop.stream,
            epochs=config.epochs,
            listener=Together(listeners),
            after=done,
            keep=keeping.stepped,
            task_state=task_state,
        ):
            is_last = record.task == loop.stream.schedule.num_tasks
            folder.append_record(record_to_json(record, is_last=is_last))
            done = record.task
            keeping.task_ended()
        result = make_result(
            config,
            loop.stream.schedule,
            loop.stream.class_names,
            folder.records(),
            loop.ledger,
            loop.warnings,
        )
        folder.write_result(result)
    return result


def save_samples(folder: RunFolder, stream: Stream) -> None:
    """An image of each drifted class before and after its drift, for the report to show."""
    before, after, tasks = [], [], []
    for event in stream.schedule.events:
        for label in sorted(event.concepts):
            before.append(stream.samples("test", [label], event.task - 1)[:1])
            after.append(stream.samples("test", [label], event.task)[:1])
            tasks.extend([event.task] * len(after[-1]))
    if tasks:
        tensors = {
            "before": torch.cat([samples.images for samples in before]),
            "after": torch.cat([samples.images for samples in after]),
            "labels": torch.cat([samples.labels for samples in after]),
            "tasks": torch.tensor(tasks),
        }
        folder.save_arrays("samples", tensors)


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """So many threads for torch meanwhile."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_name(config: RunConfig, varied: Sequence[str]) -> str:
    """A folder name from the settings in which the runs of a group differ.

    >>> run_name(RunConfig(adaptation="amr", seed=3), ["adaptation", "seed"])
    'amr-seed3'
    """
    values = [
        f"{name}{getattr(config, name)}" if name == "seed" else str(getattr(config, name))
        for name in varied
    ]
    return "-".join(values)
