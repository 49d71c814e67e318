"""One run, from a config to `result.json`: started, resumed, or found finished."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from driftwise.allocation import clear_out_of_memory
from driftwise.array_checks import refuse_other_data
from driftwise.config import registry
from driftwise.config.benchmarks import QUIET, Notify
from driftwise.config.build import as_begun, assemble
from driftwise.config.config_files import from_mapping
from driftwise.config.presets import resolve, settled
from driftwise.config.schema import RunConfig, changed
from driftwise.distributed import Group, joined, restarted
from driftwise.drift_loop import DriftLoop
from driftwise.encoders.embedding_cache import EmbeddingCache
from driftwise.encoders.loading import load
from driftwise.errors import UserError, warn_caller
from driftwise.models.head import Features, with_features
from driftwise.protocols import Listener, Task
from driftwise.runs.checkpoint import errors_named_after
from driftwise.runs.follow import FollowedFolder
from driftwise.runs.following import follow, leave
from driftwise.runs.listeners import EventLog, FeatureLog, Listeners, Silent
from driftwise.runs.result import (
    make_result,
    object_name,
    record_to_json,
    source_commit,
    task_state_from_plain,
    task_state_to_plain,
)
from driftwise.runs.saving import OFTEN, CheckpointSaver, Saving, deferred_signals
from driftwise.runs.store import CONFIG, RunFolder, is_run, read_config, refuse_other_config
from driftwise.streams import Stream
from driftwise.types import AdaptationResult, Dataset, TaskState, Verdict

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
    frozen_encoder: Any = None,
    listener: Listener | None = None,
    saving: Saving = OFTEN,
) -> dict[str, Any]:
    """Run a config in a folder and return its result; a finished run is not run again.

    Args:
        config: what to run.
        out: the folder of the run.
        resume: go on with the run that the folder holds.
        overwrite: replace the run that the folder holds.
        data: takes the place of the benchmark's data. It is not kept with the run.
        network: takes the place of the config's backbone. It is not kept with the run.
        features: where the network's features come from, the name of a layer or a function of
            (network, input). None: what its head reads.
        frozen_encoder: takes the place of the encoder that the config names: a network, a function or
            what `driftwise.encoders.load` returns. It is not kept with the run.
        listener: is notified of what happens.
        saving: how often a checkpoint is saved.

    >>> import tempfile
    >>> import driftwise
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> result = driftwise.run(driftwise.RunConfig(num_drifts=1, epochs=1), folder)

    >>> result["adaptation"], len(result["accuracy_matrix"])
    ('amr', 5)
    >>> driftwise.load(folder).class_names[:2]
    ('0', '1')
    >>> len(driftwise.results(folder).runs)
    1
    >>> driftwise.plot.accuracy(folder).savefig(folder + "/accuracy.pdf")
    """
    if data is not None:
        refuse_other_data(data, "data")
    if data is not None and config.benchmark == RunConfig.benchmark:
        config = changed(config, benchmark="own")
    if data is not None and config.scaling is None and np.ndim(data.images) == 2:
        config = changed(config, scaling="standard")  # which also says that they are vectors
    if network is not None:
        kind = type(network)
        config = changed(config, backbone=f"{kind.__module__}:{kind.__qualname__}")
    if features is not None:
        network = with_features(network, features)
    if frozen_encoder is not None:
        frozen_encoder = EmbeddingCache(load(frozen_encoder))
        config = changed(config, frozen_encoder=object_name(frozen_encoder))

    def begin(loop: DriftLoop) -> Listener | None:
        for warning in loop.warnings:
            warn_caller(warning)
        return listener

    return start(
        resolve(config, network_given=network is not None),
        out,
        begin,
        resume=resume,
        overwrite=overwrite,
        data=data,
        network=network,
        frozen_encoder=frozen_encoder,
        saving=saving,
        notify=Notify(warn=warn_caller),
    )


def resume(
    out: str | os.PathLike[str],
    *,
    trust: bool = False,
    data: Dataset | None = None,
    network: nn.Module | None = None,
    features: Features | None = None,
    frozen_encoder: Any = None,
    listener: Listener | None = None,
    saving: Saving = OFTEN,
) -> dict[str, Any]:
    """Go on with the run in a folder and return its result; a finished run is not run again.

    A folder that came from somebody else could name any code (`module:name`) and any path to data:
    it is resumed only with `trust`. A run that was given `data`, a `network`, `features` or a
    `frozen_encoder` needs the same ones again.

    >>> import tempfile
    >>> import driftwise
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> config = driftwise.RunConfig(epochs=1, max_per_class=40)  # few images: a quick example
    >>> result = driftwise.run(config, folder)
    >>> driftwise.resume(folder)["faa"] == result["faa"]  # it is finished: nothing is repeated
    True
    """
    given = [
        *([] if data is None else ["benchmark", "data"]),
        *([] if network is None else ["backbone"]),
        *([] if frozen_encoder is None else ["frozen_encoder"]),
    ]
    return run(
        saved_config(out, given=given, trust=trust),
        out,
        resume=True,
        data=data,
        network=network,
        features=features,
        frozen_encoder=frozen_encoder,
        listener=listener,
        saving=saving,
    )


def start(
    config: RunConfig,
    out: str | os.PathLike[str],
    begin: Callable[[DriftLoop], Listener | None],
    *,
    resume: bool = False,
    overwrite: bool = False,
    data: Dataset | None = None,
    network: nn.Module | None = None,
    frozen_encoder: Any = None,
    saving: Saving = OFTEN,
    notify: Notify = QUIET,
) -> dict[str, Any]:
    """Assemble a resolved config, take the folder and run in it.

    `begin` is called once the folder is taken, and makes the run's listener. Processes that torchrun
    has started again, because one had failed, go on with the run that the folder holds.
    """
    with joined() as group:
        if restarted() and is_run(out):
            resume, overwrite = True, False
        group.refuse_difference("settings", config.to_json())
        if resume:
            config = as_begun(config, out)
        # Before the folder: what cannot work leaves no trace.
        loop = assemble(config, data, network, frozen_encoder=frozen_encoder, notify=notify)
        plain = loop.config.to_json()
        group.refuse_difference("settings and data", plain)

        def open_folder() -> RunFolder | FollowedFolder:
            if group.rank:
                return FollowedFolder(Path(out))
            return RunFolder.open(out, plain, resume=resume, overwrite=overwrite)

        with group.first(open_folder) as folder:
            listener = None if group.rank else begin(loop)
            return run_in(folder, loop, listener=listener, saving=saving, warn=notify.warn)


def run_in(
    folder: RunFolder | FollowedFolder,
    loop: DriftLoop,
    *,
    listener: Listener | None = None,
    saving: Saving = OFTEN,
    warn: Callable[[str], None] | None = None,
    trail: Path | None = None,
    follows: Path | None = None,
) -> dict[str, Any]:
    """Run a loop in a folder that is open, from its checkpoint if it has one.

    What it learns is left in the folder `trail` for other runs, or taken over from the folder
    `follows` if all of it is there (`following.py`). A SIGINT or SIGTERM that comes meanwhile takes
    effect once the step is made and saved.
    """
    source_commit()  # of what has been loaded now
    group = Group()
    if folder.finished:
        return folder.result()
    with _running(folder, loop, listener, saving, warn, trail, follows) as tasks:
        for _ in tasks:
            pass
        if group.rank == 0:
            result = make_result(
                loop.config,
                loop.stream.schedule,
                loop.stream.class_names,
                folder.records(),
                loop.ledger,
                loop.warnings,
            )
            folder.write_result(result)
    if group.size == 1:
        return result
    group.any(True)  # process 0 has written it
    return folder.result()


@contextlib.contextmanager
def _running(
    folder: RunFolder | FollowedFolder,
    loop: DriftLoop,
    listener: Listener | None,
    saving: Saving,
    warn: Callable[[str], None] | None,
    trail: Path | None = None,
    follows: Path | None = None,
) -> Iterator[Iterator[int]]:
    """How many tasks are complete and saved: now, and after each of those that are left."""
    config = loop.config
    done, task_state = 0, None
    warn = warn or (lambda _: None)
    state = folder.load_checkpoint(warn)
    if state is not None:
        with errors_named_after(folder.path):
            loop.load_state_dict(state["parts"])
            done = state["tasks_done"]
            if done != folder.num_records:
                raise ValueError(f"{done!r} tasks are done, {folder.num_records} are recorded")
            if state["midway"] is not None:
                task_state = task_state_from_plain(state["midway"])
    save_samples(folder, loop.stream)
    listeners: list[Listener] = [EventLog(folder), listener or Silent()]
    if config.keep_features:
        listeners.append(FeatureLog(folder, loop.stream, loop.learner, loop.ledger, warn))

    raw_shape = list(loop.stream.raw_shape)

    def save(task_state: TaskState | None) -> None:
        folder.save_checkpoint(
            {
                "parts": loop.state_dict(),
                "tasks_done": done,
                "midway": None if task_state is None else task_state_to_plain(task_state),
                "image_shape": list(loop.stream.image_shape),
                "class_names": list(loop.stream.class_names),
                "feature_names": list(loop.stream.feature_names),
                **({} if loop.stream.encoder is None else {"raw_shape": raw_shape}),
            }
        )

    trained = None
    if follows is not None and task_state is None:
        trained = follow(loop, follows, after=done)

    def tasks(saver: CheckpointSaver) -> Iterator[int]:
        nonlocal done
        yield done
        for record in loop.run(
            loop.stream,
            epochs=settled(config.epochs) if trained is None else 0,
            listener=Listeners(listeners),
            after=done,
            keep=saver.stepped,
            task_state=task_state,
        ):
            is_last = record.task == loop.stream.schedule.num_tasks
            folder.append_record(record_to_json(record, is_last=is_last))
            done = record.task
            if trained is not None:
                trained.take_over_costs()
            if trail is not None:
                leave(trail, done, loop)
            saver.task_ended()
            yield done

    with _threads(config.threads), clear_out_of_memory(KEPT), deferred_signals() as interruption:
        yield tasks(CheckpointSaver(saving, save, interruption, Group()))


# Runs that share their first tasks


def run_shared(
    folder: RunFolder,
    loop: DriftLoop,
    *,
    until: int,
    listener: Listener | None = None,
    warn: Callable[[str], None] | None = None,
    trail: Path | None = None,
) -> int:
    """Run the first tasks of several runs, which `begin_from` lets go on; how many there were.

    These runs are equal up to the first task in which a class drifts or is found drifted, since
    no adaptation does anything before. `loop` must not adapt.
    """
    source_commit()
    done = 0
    both = Listeners([_StopAtDrift(), listener or Silent()])
    with (
        contextlib.suppress(_FoundDrift),
        _running(folder, loop, both, OFTEN, warn, trail) as completed,
    ):
        for done in completed:
            if done == until:
                break
    folder.write_shared({"tasks": done})
    return done


class _FoundDrift(Exception):
    """A class was found drifted: from here on, adaptations differ."""


class _StopAtDrift(Silent):
    """Ends a shared run before the first task that adaptations would change."""

    def checked(
        self, task: Task, verdicts: Sequence[Verdict], result: AdaptationResult, samples: int
    ) -> None:
        """Stop, if there is anything to adapt to."""
        del task, result, samples
        if any(verdict.needs_adaptation for verdict in verdicts):
            raise _FoundDrift


def begin_from(folder: RunFolder, loop: DriftLoop, shared: Path) -> int:
    """Let a run that has not begun go on from the tasks of `run_shared`; how many there were."""
    return folder.begin_from(shared, adaptation=loop.adaptation_state.state_dict())


MAX_VECTORS = 100
"""feature vectors of a drifted class that are kept for the report, before and after its drift"""


def save_samples(folder: RunFolder | FollowedFolder, stream: Stream) -> None:
    """Keep an image of each drifted class before and after its drift, or vectors, for the report."""
    before, after, tasks = [], [], []
    for event in stream.schedule.events:
        for label in sorted(event.concepts):
            sides = [
                stream.raw_samples("test", [label], task) for task in (event.task - 1, event.task)
            ]
            most = MAX_VECTORS if sides[0].images.ndim == 2 else 1
            count = min(most, *map(len, sides))
            before.append(sides[0][:count])
            after.append(sides[1][:count])
            tasks.extend([event.task] * count)
    if tasks:
        tensors = {
            "before": torch.cat([samples.images for samples in before]),
            "after": torch.cat([samples.images for samples in after]),
            "labels": torch.cat([samples.labels for samples in after]),
            "tasks": torch.tensor(tasks),
        }
        if stream.feature_names:
            names = "\n".join(name.replace("\n", " ") for name in stream.feature_names).encode()
            tensors["feature_names"] = torch.frombuffer(bytearray(names), dtype=torch.uint8)
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
    values = {name: getattr(config, name) for name in varied}
    return "-".join(
        f"{name}{value}" if name == "seed" else str(value) for name, value in values.items()
    )


# The config of a run, from its folder


def saved_config(
    folder: str | os.PathLike[str], *, given: Collection[str] = (), trust: bool = False
) -> RunConfig:
    """The config of the run in a folder, checked like one that a user wrote.

    Custom code and a path to data are refused without `trust`, but for the settings that the user
    has `given` as well.
    """
    if not is_run(folder):
        raise UserError(f"{folder} holds no run to resume; name the folder of one, or start one")
    saved = from_mapping(RunConfig, read_config(folder), source=str(Path(folder) / CONFIG))
    config = RunConfig(**saved)  # type: ignore[arg-type]  # as in the file, checked by the class
    named = registry.own_code(config)
    strange = [f"{kind} {name}" for kind, name in named.items() if kind not in given]
    if config.data is not None and "data" not in given:
        strange.append(f"data in {config.data}")
    if strange and not trust:
        raise UserError(
            f"the run in {folder} names code or data of its own ({', '.join(strange)}); if you "
            "trust it, resume it with trust=True, or name them again"
        )
    return config


def with_given(
    config: RunConfig,
    folder: Path,
    values: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]],
) -> RunConfig:
    """The config of a folder's run, which settings given once more must not contradict."""
    own = {name: value for name, value in values.items() if value is not None}
    config = dataclasses.replace(config, **own)
    refuse_other_config(folder, config.to_json())
    parts = {part: {**config.options.get(part, {}), **options[part]} for part in options}
    config = changed(config, options={**config.options, **parts})
    refuse_other_config(folder, config.to_json())
    return config


def saved_runs(out: Path, *, given: Collection[str], trust: bool) -> dict[str, RunConfig]:
    """The configs of all runs right below a folder, by the names of theirs."""
    folders = sorted(out.iterdir()) if out.is_dir() else []
    return {
        folder.name: saved_config(folder, given=given, trust=trust)
        for folder in folders
        if is_run(folder)
    }
