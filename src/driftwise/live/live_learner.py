"""A learner that an engineer can put beside a running model."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftwise.config import registry
from driftwise.config.custom import is_import_path
from driftwise.config.own_network import first_line
from driftwise.errors import RunFailure, UserError, warn_caller
from driftwise.learner import Learner
from driftwise.live.components import make_parts
from driftwise.live.engine import BatchOutcome, LiveEngine
from driftwise.live.events import Callback as EventCallback
from driftwise.live.events import Log
from driftwise.live.inputs import UNKNOWN, InputReader, Taken, ids_from, labels_from
from driftwise.live.label_requests import (
    CLOSED,
    Answer,
    Callback,
    Inbox,
    LabelRequester,
    Request,
    request_for,
)
from driftwise.live.observation import Observation
from driftwise.live.outputs import can_grow, outputs_of
from driftwise.live.priority import FAST_SWITCHING, PREDICTIONS_FIRST
from driftwise.live.reporter import Reporter
from driftwise.live.sample_queue import no_samples
from driftwise.live.settings import refuse_unknown, settings_from, to_json
from driftwise.live.snapshot import NetworkSnapshots, Snapshot
from driftwise.models.head import Features, with_features
from driftwise.runs.checkpoint import taking_up
from driftwise.runs.store import RunFolder, is_run, read_config
from driftwise.types import Samples

RETRY_SECONDS = 10.0
"""between attempts to save what could not be saved; made by `observe`"""


class LiveLearner:
    """Keeps a model right while the world changes: it predicts, watches, mends and learns.

    >>> images = torch.randint(256, (40, 8, 8, 1), dtype=torch.uint8)
    >>> live learner = Keeper("mlp")
    >>> live learner.observe(images, torch.arange(40) % 4).new_classes
    (0, 1, 2, 3)
    >>> live learner.predict(images).shape
    (40,)
    """

    def __init__(
        self,
        network: nn.Module | str,
        *,
        buffer_size: int = 500,
        method: str = "er",
        detector: str = "combined",
        adaptation: str = "amr",
        labels: Callback | None = None,
        label_budget: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        grow: bool = True,
        features: Features | None = None,
        **settings: Any,
    ) -> None:
        """A learner around a copy of a network, or around a backbone of the catalogue by name.

        `labels` is called with a `Request` when a class has drifted and fresh labels are needed, up
        to `label_budget` of them. In a `folder` events are logged, and `save` works. `grow`: labels
        that the network has no output for give it one. `features`: where the features of a network
        come from, the name of a layer or a function of (network, input); None: they are what its
        head reads. All other `settings`: see `LiveSettings`, and those of `RunConfig` that do not
        concern benchmarks.
        """
        if labels is not None and not callable(labels):
            raise UserError(f"labels must be a function to call; got {type(labels).__name__}")
        given = {
            "buffer_size": buffer_size,
            "method": method,
            "detector": detector,
            "adaptation": adaptation,
            "label_budget": label_budget,
            "grow": grow,
            **settings,
        }
        if features is not None:
            network = with_features(network, features)
        self._network = copy.deepcopy(network) if isinstance(network, nn.Module) else None
        self._config, self._settings = settings_from(
            given, backbone=_backbone(network), network_given=self._network is not None
        )
        self._lock = threading.RLock()
        self._beginning = threading.RLock()
        """held while the parts are made: predictions wait for that, and for no step"""
        self._labels = labels
        self._inbox = Inbox()
        self._requester = labels and LabelRequester(
            labels,
            self._inbox,
            seconds=self._settings.label_seconds,
            max_label=lambda: self._max_label(self._engine),
        )
        self._inputs = InputReader()
        self._engine: LiveEngine | None = None
        self._published: NetworkSnapshots | None = None
        self._averaged = 0
        """steps of the learner that what is published knows of"""
        self._preview: _Preview | None = None
        self._first_outputs = 0
        self._is_observing = False
        self._saves_after = False
        self._closes_after = False
        self._closed = False
        self._is_fork = False
        """whether this process is a fork of the one that made the live learner"""
        self._failure: str | None = None
        self._retry_at: float | None = None
        """when to try again what could not be saved; None: all was"""
        self._folder = None if folder is None else self._open(Path(folder))
        self._reporter = Reporter(Log(self._folder))
        _KEEPERS.add(self)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        network: nn.Module | None = None,
        *,
        features: Features | None = None,
        labels: Callback | None = None,
        trust_imports: bool = False,
    ) -> LiveLearner:
        """Go on exactly where `save` left off; a network that was given is needed again.

        So are its `features`, where they were given.

        A folder that came from somebody else could name any code as a part of one's own, so such
        parts are imported only with `trust_imports`.
        """
        config = read_config(folder)
        kept = config.get("keeper")
        if kept is None:
            raise UserError(f"{Path(folder)} holds a run of a benchmark, and no live learner")
        with taking_up(folder):
            backbone, is_own = config["backbone"], kept.pop("network")
            named = [kept[kind] for kind in ("method", "detector", "adaptation")]
            refuse_unknown(kept)  # a `folder` in there would be made, wherever it is
        if is_own != (network is not None):
            need = f"the network it was made with, a {backbone}" if network is None else "none"
            raise UserError(f"what network to give to the live learner in {Path(folder)}: {need}")
        named += [backbone] if network is None else []
        for name in filter(is_import_path, named):
            if not trust_imports:
                raise UserError(
                    f"the live learner in {Path(folder)} names code of its own ({name}); if you trust "
                    "it, load with trust_imports=True"
                )
        given = backbone if network is None else network
        with taking_up(folder):
            live_learner = cls(given, labels=labels, features=features, **kept)
        for trouble in live_learner._resume(Path(folder)):
            warn_caller(trouble)
        return live_learner

    def __enter__(self) -> LiveLearner:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Whatever has happened: all that was observed is kept, but for a batch broken off."""
        self.close()

    # What it does

    def observe(self, x: Any, y: Any = None) -> Observation:
        """Predict samples, then watch, mend and learn; `y` may be missing, or None for some samples.

        `x`: images as bytes, (samples, height, width, channels), or floats as the network takes
        them. What cannot be used at all is a UserError, and leaves everything as it was.
        """
        with self._alone(), PREDICTIONS_FIRST.learning(self._settings.learning_share):
            self._refuse_if_over()
            self._do_without_threads()
            with self._beginning if self._published is None else contextlib.nullcontext():
                taken, engine = self._take(x, y)
            self._is_observing = True
            try:
                with self._whole():
                    seen = self._observe(taken, engine)
            finally:
                self._is_observing = False
                if self._failure is not None and self._closes_after:
                    self.close()
            return self._kept_as_asked(seen)

    def _kept_as_asked(self, seen: Observation) -> Observation:
        """Save or close as callbacks wanted during a batch, or save what could not be saved before.

        What has been learned does not depend on it: a failure is noted, and tried again.
        """
        is_due = self._retry_at is not None and time.monotonic() >= self._retry_at
        try:
            if self._closes_after:
                self.close()
            elif self._saves_after or is_due:
                self.save()
        except (RunFailure, UserError) as error:
            note = f"what has been learned could not be saved, which is tried again: {error}"
            return replace(seen, notes=(*seen.notes, note))
        return seen

    def fit_reference(self, x: Any, y: Any) -> None:
        """Samples of the past, all labelled, say how their classes looked: no need to collect any.

        From now on these classes are watched, before or after the first batch. At most
        `reference_size` samples of a class are kept, drawn at random. The live learner never learns from
        them, and the network must not have: to a network, samples it was trained on look
        different from any others.
        """
        with self._alone():
            self._refuse_if_over()
            with self._beginning if self._published is None else contextlib.nullcontext():
                taken, engine = self._take(x, y, is_history=True)
            assert engine is not None, "history has samples"
            with self._whole():
                classes = engine.fit_reference(taken.samples)
                self._publish(engine)
            self._announce("watched", classes=list(classes))

    def _take(self, x: Any, y: Any, *, is_history: bool = False) -> tuple[Taken, LiveEngine | None]:
        """What came in, and who looks after it; all is as before where it cannot be used."""
        before = self._inputs.state_dict()
        taken = self._inputs.take(x, y, max_label=self._max_label(self._engine))
        try:
            if is_history:
                self._inputs.count = before["count"]  # no part of the stream
                if not len(taken.samples) or not bool((taken.samples.labels >= 0).all()):
                    raise UserError("a reference needs samples of finite values, a label for each")
            return taken, self._begun(taken.samples) if len(taken.samples) else self._engine
        except BaseException:
            self._inputs.load_state_dict(before)
            raise

    def _observe(self, taken: Taken, engine: LiveEngine | None) -> Observation:
        self._reporter.steps += 1
        answers, troubles = self._inbox.empty() if engine is not None else ([], [])
        if engine is None:
            done = BatchOutcome(predicted=torch.empty(0, dtype=torch.int64))
        else:
            steps = engine.parts.learner.steps
            done = engine.observe(taken.samples, answers, next_row=self._inputs.count)
            # Samples without labels change how inputs are scaled, too.
            if engine.parts.learner.steps > steps or done.adapted or engine.parts.scales:
                self._publish(engine)
        for trouble in troubles:
            done.tell("trouble", text=trouble)
        return self._reporter.report(taken, done, engine)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread at a time, and not the one that is waited for."""
        if self._requester is not None and self._requester.waits_for_caller:
            raise UserError(
                "the live learner waits for the label callback, which cannot make it do anything else: "
                "return the labels first"
            )
        with self._lock:
            yield

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """What is broken off in here leaves a live learner that predicts and does nothing else."""
        try:
            yield
        except BaseException as error:
            self._failure = first_line(error)
            raise

    def answer(self, ids: Any, labels: Any) -> None:
        """Labels for samples that came without, by the ids of `Observation` or `Request`.

        May be called from any thread; they are taken up, in order, by the next `observe`.
        """
        self._refuse_if_over()
        numbers = ids_from(ids)
        known = labels_from(labels, len(numbers), max_label=self._max_label(self._engine))
        if len(numbers) and int(numbers.max()) >= self._inputs.count:
            raise UserError(f"sample {int(numbers.max())} has not come yet; see Observation.ids")
        self._inbox.add(Answer(ids=numbers, labels=known))

    def rehearse(self, steps: int = 1) -> float | None:
        """So many steps on memory alone, where there is time for them; their mean loss.

        None: the memory is empty. Nothing is watched, asked for or kept.
        """
        if not isinstance(steps, int | np.integer):
            raise UserError(f"steps must be a whole number; got {steps!r}")
        with self._alone():
            self._refuse_if_over()
            engine = self._engine
            if engine is None or not len(engine.parts.learner.memory) or steps < 1:
                return None
            with self._whole(), PREDICTIONS_FIRST.learning(self._settings.learning_share):
                done = engine.rehearse(steps)
                self._publish(engine)
            self._reporter.gauge(engine)
            for kind, details in done.events:
                self._announce(kind, **details)
            return sum(done.losses) / len(done.losses) if done.losses else None

    def predict(self, x: Any) -> np.ndarray:
        """Classes, int64 (samples,). From any thread; it waits for no step."""
        with self._reading(x) as (images, snapshot, learner):
            return _logits(images, snapshot, learner).argmax(dim=1).numpy()

    def predict_proba(self, x: Any) -> np.ndarray:
        """Probabilities, (samples, outputs); 0 for classes that nobody has seen. From any thread."""
        with self._reading(x) as (images, snapshot, learner):
            return _logits(images, snapshot, learner).softmax(dim=1).numpy()

    def on(self, event: str, callback: EventCallback) -> None:
        """Have a callback called with every `Event` of a kind, see `live.log.EVENTS`; `*`: all."""
        self._reporter.log.on(event, callback)

    # How it stands

    @property
    def samples(self) -> int:
        """Samples that have come so far, refused ones included: where a stream is to be taken up."""
        return self._inputs.count

    @property
    def classes(self) -> tuple[int, ...]:
        """Classes whose labels have been seen."""
        return () if self._engine is None else tuple(sorted(self._engine.classes))

    @property
    def waiting(self) -> tuple[int, ...]:
        """Classes that have drifted, and there are no labels to realign them with."""
        return () if self._engine is None else tuple(sorted(self._engine.waiting))

    @property
    def open_requests(self) -> tuple[Request, ...]:
        """Samples that somebody was asked to label and has not, by what they are taken for now.

        They can be answered with `answer`, also after a restart.
        """
        with self._alone():
            if self._engine is None:
                return ()
            samples = self._engine.window.asked.samples()
            guesses = self._engine.predict(samples.images)
            return tuple(
                request_for(samples[guesses == label], label)
                for label in sorted(set(guesses.tolist()))
            )

    @property
    def accuracy(self) -> float | None:
        """Share of right predictions among the last 1,000 labelled samples; None: there were none."""
        return self._reporter.accuracy

    @property
    def counters(self) -> str:
        """Counters and gauges in the text form that Prometheus reads."""
        return self._reporter.counters.text()

    # Keeping it

    def save(self) -> None:
        """Keep everything in the folder, whole or not at all; the state before stays beside it.

        RunFailure where the disk does not take it: the live learner goes on, and `observe` tries again
        every `RETRY_SECONDS`. A callback that saves during `observe` has it saved when all events
        of the batch have been passed on.
        """
        with self._alone():
            self._refuse_if_over()
            if self._folder is None:
                raise UserError("there is nowhere to save to: make the live learner with a folder")
            self._saves_after = self._is_observing
            if self._is_observing:
                return
            self._keep(self._folder)
            self._announce("saved")

    def _keep(self, folder: RunFolder) -> None:
        try:
            folder.save_checkpoint(self._state())
        except (RunFailure, UserError):
            self._reporter.counters.add("save_failures_total")
            self._retry_at = time.monotonic() + RETRY_SECONDS
            raise
        self._retry_at = None

    def close(self) -> None:
        """Save, if there is a folder, and let it go: nothing is observed after it.

        What is left of a batch that was broken off is not saved. A callback that closes the live learner
        during `observe` closes it when all has been told.
        """
        with self._alone():
            if self._is_observing:
                self._closes_after = True
                return
            if not self._closed and not (self._is_fork and self._folder is not None):
                with self._inbox.closing():
                    if self._folder is not None and self._failure is None:
                        self._keep(self._folder)
                self._announce("closed")
            self._let_go()

    def _go_on_in_fork(self) -> None:
        """Be free of threads that are no more; a batch that one of them was at stays half done."""
        self._lock, self._beginning = threading.RLock(), threading.RLock()
        self._is_fork = True
        if self._is_observing:
            self._failure = "its process was forked"
        self._inbox.go_on_in_fork()
        preview = None if self._preview is None else self._preview.published
        for published in (self._published, preview):
            if published is not None:
                published.go_on_in_fork()

    def _do_without_threads(self) -> None:
        """In a fork torch waits without end for threads that only the other process has."""
        if self._is_fork and torch.get_num_threads() > 1:
            torch.set_num_threads(1)

    def _announce(self, kind: str, **details: Any) -> None:
        """Tell an event that belongs to no batch, whose report would have callbacks' failures."""
        for failure in self._reporter.tell(kind, rows=self._inputs.count, **details):
            warn_caller(failure)

    def _let_go(self) -> None:
        self._closed = True
        if self._folder is not None:
            self._folder.close()

    def _open(self, path: Path, *, resume: bool = False) -> RunFolder:
        own = {"network": self._network is not None, **to_json(self._config, self._settings)}
        if resume:  # what could not be set yet when the folder was made is as it is by default
            own = {name: own[name] for name in read_config(path)["keeper"] if name in own}
        plain = {**self._config.to_json(), "keeper": own}
        if resume:  # a part may be edited while a live learner lives; `_resume` reports it
            plain["code_identity"] = read_config(path).get("code_identity")
        if not resume and is_run(path):
            raise UserError(
                f"{path} already holds a live learner or a run; go on with Keeper.load, or choose a new "
                "folder"
            )
        return RunFolder.open(path, plain, resume=resume)

    def _resume(self, path: Path) -> list[str]:
        """Take up what was saved; what a person should know about it."""
        troubles: list[str] = []
        earlier = read_config(path).get("code_identity")
        if earlier is not None and earlier != self._config.code_identity:
            troubles.append(f"the source of custom parts has changed since {path} was made")
        self._folder = self._open(path, resume=True)
        self._reporter = Reporter(Log(self._folder))
        try:
            state = self._folder.load_checkpoint(troubles.append)
            if state is None:
                troubles.append(f"nothing is saved in {path}: the live learner begins anew")
            else:
                with taking_up(path):
                    self._load_state(state)
        except UserError as error:
            self._folder.close()
            advice = "start anew with overwrite=True"
            told = str(error).replace(advice, "begin anew in another folder")
            raise UserError(told) from error
        except BaseException:
            self._folder.close()
            raise
        return troubles

    def _state(self) -> dict[str, Any]:
        begun = self._engine is not None
        return {
            "parts": self._engine.parts.state_dict() if self._engine else None,
            "upkeep": self._engine.state_dict() if self._engine else None,
            "intake": self._inputs.state_dict(),
            "inbox": self._inbox.state_dict(),
            "published": self._published and self._published.newest.state_dict(),
            "teller": self._reporter.state_dict(),
            "first_outputs": self._first_outputs,
            # By these `driftwise.load` knows the network of a folder.
            "image_shape": list(self._inputs.shape or ()) if begun else None,
            "class_names": [str(n) for n in range(self._engine.outputs)] if self._engine else None,
            "midway": None,
        }

    def _load_state(self, state: dict[str, Any]) -> None:
        self._inputs.load_state_dict(state["intake"])
        self._inbox.load_state_dict(state["inbox"])
        self._reporter.load_state_dict(state["teller"])
        if state["parts"] is not None:
            assert self._inputs.shape is not None
            nothing = no_samples(self._inputs.shape, self._inputs.dtype)
            self._engine = self._begin(nothing, state["first_outputs"])
            self._engine.parts.load_state_dict(state["parts"])
            self._engine.load_state_dict(state["upkeep"])
            self._publish(self._engine)
            # States saved before there was an average of weights go on without.
            if self._published is not None and state.get("published") is not None:
                self._published.newest.load_state_dict(state["published"])

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied or pickled with everything but callbacks on events."""
        if self._folder is not None:
            raise UserError(
                "a live learner in a folder is not to be copied: save it, and load the folder"
            )
        with self._lock:
            self._refuse_if_broken()
            network = self._config.backbone if self._network is None else self._network
            settings = to_json(self._config, self._settings)
            # The learner's own tensors must not go on changing in what is a copy.
            return _revived, (network, self._labels, settings, copy.deepcopy(self._state()))

    # How it begins

    def _begun(self, first: Samples) -> LiveEngine:
        """The parts, made when the first samples say what they look like."""
        if self._engine is None:
            if self._network is not None:
                outputs = outputs_of(self._network, first.images)
            elif bool((first.labels >= 0).any()):
                outputs = int(first.labels.max()) + 1
            else:
                raise UserError(
                    "a network by name is made for the classes of the first batch: give its labels"
                )
            engine = self._begin(first, outputs)
            labels_from(first.labels, len(first), max_label=self._max_label(engine))
            self._engine = engine
            self._publish(engine)
            self._preview = None
        return self._engine

    def _begin(self, first: Samples, outputs: int) -> LiveEngine:
        self._first_outputs = outputs
        return LiveEngine(
            make_parts(self._config, first, outputs, self._network, self._settings),
            self._config,
            self._settings,
            outputs=outputs,
            own_outputs=0 if self._network is None else outputs,
            nothing=first[:0],
            requester=self._requester,
            last_good=lambda: None if self._published is None else self._published.newest,
        )

    def _max_label(self, engine: LiveEngine | None) -> int:
        """The largest label that there is room for, or can be made."""
        if engine is None:
            return self._settings.max_classes - 1
        grows = self._settings.grow and can_grow(engine.parts.learner.network)
        return max(self._settings.max_classes if grows else 0, engine.outputs) - 1

    def _refuse_if_over(self) -> None:
        if self._folder is not None:
            self._folder.refuse_if_forked()
        if self._closed:
            raise UserError(CLOSED)
        self._refuse_if_broken()

    def _refuse_if_broken(self) -> None:
        if self._failure is not None:
            raise UserError(
                f"the live learner broke off in the middle of a batch ({self._failure}) and only "
                "predicts; go on from what was saved with Keeper.load, or make a new one"
            )

    # Asking the network

    def _publish(self, engine: LiveEngine) -> None:
        if not bool(engine.answers.any()):
            return  # made for classes of which none has been learned: there is nothing to predict
        learner, network = engine.parts.learner, _network_of(engine)
        if self._published is None:
            self._published = NetworkSnapshots(network, engine.answers)
        else:
            span = min(self._settings.average_steps, 1 + learner.steps / 10)
            averages = span > 0 and network is learner.network
            kept = math.exp((self._averaged - learner.steps) / span) if averages else 0.0
            self._published.renew(network, engine.answers, kept=kept)
        self._averaged = learner.steps

    @contextlib.contextmanager
    def _reading(self, x: Any) -> Iterator[tuple[Tensor, Snapshot, Learner]]:
        self._do_without_threads()
        with PREDICTIONS_FIRST.predicting(), FAST_SWITCHING:
            images = self._inputs.images(x)
            published, engine = self._published, self._engine
            if published is None:
                with self._beginning:
                    published, engine = self._asked_early(images)
            assert engine is not None, "what is published is kept up"
            with published.reading() as snapshot, PREDICTIONS_FIRST:
                yield images, snapshot, engine.parts.learner

    def _asked_early(self, images: Tensor) -> tuple[NetworkSnapshots, LiveEngine]:
        """A network that was given predicts before anything has come in, and stays as it is."""
        if self._published is not None:  # a first batch came meanwhile
            self._inputs.images(images)
            assert self._engine is not None, "what is published is kept up"
            return self._published, self._engine
        if self._network is None or not len(images):
            raise UserError("nothing has been learned yet: observe labelled samples first")
        kind = (tuple(images.shape[1:]), images.dtype)
        if self._preview is None or self._preview.kind != kind:
            engine = self._begin(_unlabelled(images), outputs_of(self._network, images))
            published = NetworkSnapshots(_network_of(engine), engine.answers)
            self._preview = _Preview(kind=kind, published=published, engine=engine)
        return self._preview.published, self._preview.engine


_KEEPERS: weakref.WeakSet[LiveLearner] = weakref.WeakSet()


def _go_on_in_fork() -> None:
    for live_learner in _KEEPERS:
        live_learner._go_on_in_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_go_on_in_fork)


@dataclass(frozen=True, kw_only=True)
class _Preview:
    """What answers before the first samples have come, which decide what a live learner is made for."""

    kind: tuple[tuple[int, ...], torch.dtype]
    published: NetworkSnapshots
    engine: LiveEngine


def _network_of(engine: LiveEngine) -> nn.Module:
    """The network that predicts."""
    learner = engine.parts.learner
    return learner.objective.predictor(learner.network)


def _logits(images: Tensor, snapshot: Snapshot, learner: Learner) -> Tensor:
    """(samples, outputs) on the CPU, as the learner itself would say it."""
    if not len(images):
        return torch.empty(0, len(snapshot.silent))
    return learner.logits_of(snapshot.network, images).masked_fill(snapshot.silent, -torch.inf)


def _revived(
    network: nn.Module | str,
    labels: Callback | None,
    settings: dict[str, Any],
    state: dict[str, Any],
) -> LiveLearner:
    """A live learner as it was when it was copied or pickled."""
    live_learner = LiveLearner(network, labels=labels, **settings)
    live_learner._load_state(state)
    return live_learner


def _backbone(network: object) -> str:
    """What a config calls the network."""
    if isinstance(network, str):
        registry.find("backbone", network)
        return network
    if isinstance(network, nn.Module):
        return f"{type(network).__module__}:{type(network).__qualname__}"
    raise UserError(f"expected a torch module or a backbone's name; got {type(network).__name__}")


def _unlabelled(images: Tensor) -> Samples:
    none = torch.full((len(images),), UNKNOWN)
    return Samples(images=images, labels=none, ids=none, concepts=none)
