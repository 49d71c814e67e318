"""A learner that runs beside a model in production: it observes a stream and follows drift."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftwise.array_checks import columns_of
from driftwise.config import registry
from driftwise.config.custom import is_import_path
from driftwise.config.learners import first_line
from driftwise.errors import RunFailure, UserError, unknown_name, warn_caller
from driftwise.learner import Learner
from driftwise.live.components import can_grow, num_outputs_of
from driftwise.live.concurrency import FAST_SWITCHING, PREDICTIONS_FIRST, NetworkSnapshots
from driftwise.live.engine import MODES, BatchOutcome, LiveEngine, Mode
from driftwise.live.events import EventCallback
from driftwise.live.frozen import FrozenEncoder, names_code
from driftwise.live.input_reader import (
    UNKNOWN,
    InputBatch,
    InputReader,
    ids_from,
    labels_from,
)
from driftwise.live.labels import CLOSED, Answer, Inbox, LabelCallback, LabelRequester, Request
from driftwise.live.portable import Predictor
from driftwise.live.reporter import Observation, Reporter, prometheus_text
from driftwise.live.settings import refuse_unknown, settings_from, to_json
from driftwise.live.window import no_samples
from driftwise.models.head import Features, with_features
from driftwise.runs.checkpoint import errors_named_after
from driftwise.runs.store import RunFolder, is_run, read_config
from driftwise.types import Samples

_BY_ENCODER: Any = object()
"""a frozen encoder that is not given: without a network, `encoder` is one"""

RETRY_SECONDS = 10.0
"""between attempts of `observe` to save after a failure"""


class LiveLearner:
    """Keeps a model accurate while its data drift: it predicts, monitors, adapts and learns.

    >>> images = torch.randint(256, (40, 8, 8, 1), dtype=torch.uint8)
    >>> live = LiveLearner("mlp")
    >>> live.observe(images, torch.arange(40) % 4).new_classes
    (0, 1, 2, 3)
    >>> live.predict(images).shape
    (40,)
    """

    def __init__(
        self,
        network: nn.Module | str | None = None,
        *,
        buffer_size: int = 500,
        method: str = "er",
        detector: str = "combined",
        adaptation: str = "amr",
        labels: LabelCallback | None = None,
        label_budget: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        grow: bool = True,
        features: Features | None = None,
        frozen_encoder: Any = _BY_ENCODER,
        **settings: Any,
    ) -> None:
        """A learner around a copy of a network, a named backbone, or class statistics.

        Args:
            network: A torch module, or the name of a backbone. None: the backbone mlp; an analytic
                method (ncm, slda, ridge) has no network.
            buffer_size: Samples in the replay buffer; an analytic method has none.
            method: The name of a method; likewise `detector` and `adaptation`.
            labels: Called with a `Request` when a class has drifted and fresh labels are needed.
            label_budget: Labels that may be requested; None: no limit.
            folder: Where events are logged and `save` writes.
            grow: Whether the network gets an output for each new label.
            features: Where the features of a network come from: the name of a layer, or a function
                of (network, input); None: the inputs of its head.
            frozen_encoder: What turns samples into the vectors that are learned and monitored: a
                name, a module, a function or an encoder, see `encoders.load`. Without a network,
                `encoder` has this meaning; with one it is the detector's encoder.
            settings: See `LiveSettings`, and the fields of `RunConfig` that do not concern
                benchmarks.
        """
        if labels is not None and not callable(labels):
            raise UserError(f"labels must be a function to call; got {type(labels).__name__}")
        if frozen_encoder is _BY_ENCODER:
            frozen_encoder = settings.pop("encoder", None) if network is None else None
        self._frozen = None if frozen_encoder is None else FrozenEncoder(frozen_encoder)
        given = {
            "buffer_size": buffer_size,
            "method": method,
            "detector": detector,
            "adaptation": adaptation,
            "label_budget": label_budget,
            "grow": grow,
            **settings,
        }
        if network is None and not registry.is_analytic(method):
            network = "mlp"
        if features is not None:
            if network is None:
                raise UserError(f"features are those of a network; the method {method} has none")
            network = with_features(network, features)
        self._network = copy.deepcopy(network) if isinstance(network, nn.Module) else None
        self._config, self._settings = settings_from(
            given, backbone=_backbone(network, method), network_given=self._network is not None
        )
        self._lock = threading.RLock()
        self._building = threading.RLock()
        """held while the engine is built: predictions wait for that, and for no step"""
        self._labels = labels
        self._inbox = Inbox()
        self._requester = labels and LabelRequester(
            lambda request: labels(self._shown(request)),
            self._inbox,
            seconds=self._settings.label_seconds,
            max_label=lambda: self._max_label(self._engine),
        )
        self._inputs = InputReader()
        self._mode: Mode = "auto"
        """of an engine that has not been made yet"""
        self.extra_state: dict[str, Any] = {}
        """plain data and tensors of the caller's, saved and loaded with the rest"""
        self._engine: LiveEngine | None = None
        """made for the first samples"""
        self._first_outputs = 0
        """of the engine when it was made"""
        self._snapshots: NetworkSnapshots | None = None
        self._snapshot_step = 0
        """the learner's step at the newest snapshot"""
        self.snapshot_number = 0
        """counts the snapshots that predictions have come from"""
        self._preview: tuple[object, NetworkSnapshots, LiveEngine] | None = None
        """shape and type of a sample, and what predicts such samples before the first batch"""
        self._is_observing = False
        self._save_requested = False
        self._close_requested = False
        self._closed = False
        self._is_fork = False
        """whether this process is a fork of the one that made the live learner"""
        self._failure: str | None = None
        """why a batch broke off"""
        self.save_seconds = self._settings.save_seconds
        """time between saves by itself, where there is a folder; None: it saves only when asked"""
        self._saved_at = time.monotonic()
        """when the state was saved, or began"""
        self._retry_at: float | None = None
        """when to try again to save; None: the last attempt did not fail"""
        self._folder = None if folder is None else self._open(Path(folder))
        self._reporter = Reporter(self._folder)
        _LIVE_LEARNERS.add(self)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        network: nn.Module | None = None,
        *,
        encoder: Any = None,
        features: Features | None = None,
        labels: LabelCallback | None = None,
        trust_imports: bool = False,
    ) -> LiveLearner:
        """Go on exactly where `save` left off.

        Args:
            folder: Where it was saved.
            network: The module it was made with, if it was one; likewise its `features`.
            encoder: The frozen encoder it was made with, if it has no name.
            features: See the constructor.
            labels: See the constructor.
            trust_imports: Whether custom parts may be imported. The folder of a stranger could name
                any code.
        """
        path = Path(folder)
        config = read_config(folder)
        saved = config.get("keeper")
        if saved is None:
            raise UserError(f"{path} holds a run of a benchmark, and no live learner")
        with errors_named_after(folder):
            backbone, has_network = config["backbone"], saved.pop("network")
            frozen = saved.pop("frozen_encoder", None)
            names = [saved[kind] for kind in ("method", "detector", "adaptation")]
            refuse_unknown(saved)  # a `folder` in there would be made, wherever it is
        if has_network and network is None:
            raise UserError(f"the live learner in {path} needs its network again, a {backbone}")
        if not has_network and network is not None:
            raise UserError(f"the live learner in {path} has a network by name: give none")
        names += [backbone] if network is None and backbone is not None else []
        custom = list(filter(is_import_path, names))
        if frozen is not None:
            encoder = _encoder_again(path, frozen, encoder)
            custom += [encoder] if isinstance(encoder, str) and names_code(encoder) else []
        elif encoder is not None:
            raise UserError(f"the live learner in {path} has no frozen encoder: give none")
        for name in custom:
            if not trust_imports:
                raise UserError(
                    f"the live learner in {path} uses custom code ({name}); if you trust it, load "
                    "with trust_imports=True"
                )
        with errors_named_after(folder):
            live = cls(
                backbone if network is None else network,
                labels=labels,
                features=features,
                frozen_encoder=encoder,
                **saved,
            )
        if live._frozen is not None:
            _refuse_other_encoder(path, frozen, live._frozen.description)
        for message in live._resume(path):
            warn_caller(message)
        return live

    def __enter__(self) -> LiveLearner:
        return self

    def __exit__(self, *_: object) -> None:
        """Save all that was observed, but for a batch that broke off."""
        self.close()

    # Observing and predicting

    def observe(self, x: Any, y: Any = None) -> Observation:
        """Predict a batch, then monitor, adapt and learn.

        Args:
            x: Images as bytes, (samples, height, width, channels), or floats as the network takes
                them. A batch that cannot be used is a UserError and changes nothing.
            y: Labels, (samples,); None, or None for some samples: unlabelled.
        """
        with self._exclusive(), PREDICTIONS_FIRST.learning(self._settings.learning_share):
            self._refuse_if_over()
            self._use_one_thread_in_fork()
            batch, engine = self._read(x, y)
            self._is_observing = True
            try:
                with self._noting_failure():
                    observation = self._observe(batch, engine)
            finally:
                self._is_observing = False
                if self._failure is not None and self._close_requested:
                    self.close()
            return self._save_if_due(observation)

    def _observe(self, batch: InputBatch, engine: LiveEngine | None) -> Observation:
        self._reporter.steps += 1
        outcome = BatchOutcome()
        failures: list[str] = []
        if engine is not None:
            answers, failures = self._inbox.empty()
            steps = engine.learner.steps
            outcome = engine.observe(batch.samples, answers, next_id=self._inputs.count)
            if self._frozen is not None:  # nobody is asked about other samples
                window = engine.window
                kept = (window.unlabelled.samples().ids, window.requested.samples().ids)
                self._frozen.keep_only(torch.cat(kept).tolist())
            # Unlabelled samples change the snapshot, too, where they change the normalisation.
            if engine.learner.steps > steps or outcome.adapted or engine.normalises:
                self._renew_snapshot(engine)
        for failure in failures:
            outcome.emit("trouble", text=failure)
        return self._reporter.report(batch, outcome, engine)

    def _save_if_due(self, observation: Observation) -> Observation:
        """Save or close as callbacks requested during the batch, or because it is time.

        A failure here is a note: what was learned does not depend on it.
        """
        try:
            if self._close_requested:
                self.close()
            elif self._save_requested:
                self.save()
            elif self._folder is not None and self._save_is_due():
                self._save_to(self._folder)
        except (RunFailure, UserError) as error:
            note = f"the state could not be saved, which is tried again: {error}"
            return replace(observation, notes=(*observation.notes, note))
        return observation

    def _save_is_due(self) -> bool:
        now = time.monotonic()
        if self._retry_at is not None:
            return now >= self._retry_at
        return self.save_seconds is not None and now - self._saved_at >= self.save_seconds

    def fit_reference(self, x: Any, y: Any) -> None:
        """Use labelled samples of the past as the references of their classes.

        These classes are monitored from now on, before or after the first batch. At most
        `reference_size` samples of a class are kept, drawn at random. They are never learned, and
        the network must not have been trained on them: a network's features of its own training
        samples differ from those of any others.

        Args:
            x: Samples, as for `observe`.
            y: A label for each, (samples,).
        """
        with self._exclusive():
            self._refuse_if_over()
            batch, engine = self._read(x, y, is_reference=True)
            assert engine is not None, "a reference has samples"
            with self._noting_failure():
                classes = engine.fit_reference(batch.samples)
                self._renew_snapshot(engine)
            self._announce("watched", classes=list(classes))

    def _read(
        self, x: Any, y: Any, *, is_reference: bool = False
    ) -> tuple[InputBatch, LiveEngine | None]:
        """A batch, and the engine for it; nothing has changed if it is refused."""
        before = self._inputs.state_dict()
        with self._building if self._snapshots is None else contextlib.nullcontext():
            columns = columns_of(x)
            x = self._inputs.matched(x)
            vectors = self._encoded(x)
            batch = self._inputs.read(vectors, y, max_label=self._max_label(self._engine))
            self._inputs.columns = self._inputs.columns or columns
            try:
                if self._frozen is not None and not is_reference:
                    self._frozen.keep(batch.ids, x)
                if is_reference:
                    self._inputs.count = before["count"]  # no part of the stream
                    labels = batch.samples.labels
                    if not len(labels) or bool((labels == UNKNOWN).any()):
                        raise UserError(
                            "a reference needs samples of finite values, a label for each"
                        )
                return batch, self._built(batch.samples) if len(batch.samples) else self._engine
            except BaseException:
                self._inputs.load_state_dict(before)
                raise

    def answer(self, ids: Any, labels: Any) -> None:
        """Give labels for samples that came without; the next `observe` uses them, in order.

        May be called from any thread.

        Args:
            ids: The `ids` of an `Observation` or a `Request`, (samples,).
            labels: (samples,); None: unknown.
        """
        self._add_answer(ids, labels)

    def correct(self, ids: Any, labels: Any) -> None:
        """Replace labels that were wrong; the next `observe` learns the samples anew.

        They leave the replay buffer and the recent samples first; what no longer is in either of
        them cannot be corrected. Arguments as for `answer`; None: the sample is only forgotten.
        """
        self._add_answer(ids, labels, corrects=True)

    def _add_answer(self, ids: Any, labels: Any, *, corrects: bool = False) -> None:
        self._refuse_if_over()
        numbers = ids_from(ids)
        known = labels_from(labels, len(numbers), max_label=self._max_label(self._engine))
        if len(numbers) and int(numbers.max()) >= self._inputs.count:
            raise UserError(f"sample {int(numbers.max())} has not come yet; see Observation.ids")
        self._inbox.add(Answer(ids=numbers, labels=known, corrects=corrects))

    def rehearse(self, steps: int = 1) -> float | None:
        """Steps on the replay buffer alone, when there is time; their mean loss.

        None: the buffer is empty. Nothing is monitored or requested.
        """
        if not isinstance(steps, int | np.integer):
            raise UserError(f"steps must be a whole number; got {steps!r}")
        with self._exclusive():
            self._refuse_if_over()
            engine = self._engine
            if engine is None or not len(engine.learner.buffer) or steps < 1:
                return None
            if not engine.rehearses:
                return None
            with (
                self._noting_failure(),
                PREDICTIONS_FIRST.learning(self._settings.learning_share),
            ):
                outcome = engine.rehearse(steps)
                self._renew_snapshot(engine)
            self._reporter.update_gauges(engine)
            for kind, details in outcome.events:
                self._announce(kind, **details)
            return outcome.loss

    def predict(self, x: Any) -> np.ndarray:
        """Classes, int64 (samples,). May be called from any thread; it waits for no step."""
        return self._logits(x).argmax(dim=1).numpy()

    def predict_proba(self, x: Any) -> np.ndarray:
        """Probabilities, (samples, outputs); 0 for classes never seen. From any thread."""
        return self._logits(x).softmax(dim=1).numpy()

    def on(self, event: str, callback: EventCallback) -> None:
        """Call a callback with every `Event` of a kind, see `live.events.EVENTS`; `*`: all."""
        self._reporter.log.on(event, callback)

    # Approving adaptations, going back

    @property
    def mode(self) -> Mode:
        """Who decides on adaptations.

        auto: drifted classes are adapted to. ask: they are held until `approve` is called. shadow:
        nothing is learned or adapted, samples are only predicted and monitored.
        """
        return self._mode if self._engine is None else self._engine.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        if mode not in MODES:
            raise unknown_name("mode", mode, MODES)
        with self._exclusive():
            self._mode = mode
            if self._engine is not None:
                self._engine.set_mode(mode)

    def approve(self, classes: Sequence[int] | None = None) -> None:
        """Adapt to classes that are held (None: all of them) in the next `observe`."""
        with self._exclusive():
            if (engine := self._engine) is not None:
                engine.approve(self.held if classes is None else classes)

    def dismiss(self, classes: Sequence[int] | None = None) -> None:
        """Do not adapt to classes that are held (None: all); later checks may hold them again."""
        with self._exclusive():
            if (engine := self._engine) is not None:
                engine.dismiss(self.held if classes is None else classes)

    def roll_back(self, state: dict[str, Any]) -> None:
        """Return to an earlier `state_dict`: its network, buffer and monitored samples.

        The numbers of samples, counters, spent labels and the mode go on from here, so that no id
        is given twice. Answers that wait are dropped.
        """
        with self._exclusive(), self._building:
            self._refuse_if_over()
            if self._engine is None or state["parts"] is None:
                raise UserError("there is nothing to roll back to: nothing had been learned")
            self._inbox.empty()
            now = self._state()
            kept = {name: now[name] for name in ("inbox", "teller", "mode", "extra")}
            earlier = {
                **state,
                **kept,
                "intake": {**state["intake"], "count": self._inputs.count},
                "parts": {**state["parts"], "ledger": now["parts"]["ledger"]},
            }
            with self._noting_failure():
                self._snapshots = None
                self._load_state(copy.deepcopy(earlier))
                self._reporter.update_gauges(self._engine)
            self._announce("rolled_back", samples=state["intake"]["count"])

    # Status

    @property
    def held(self) -> tuple[int, ...]:
        """Drifted classes whose adaptation waits for approval."""
        return () if self._engine is None else tuple(sorted(self._engine.held))

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, complete, and the name of the network as `backbone`; plain data."""
        return {"backbone": self._config.backbone, **to_json(self._config, self._settings)}

    @property
    def status(self) -> dict[str, Any]:
        """Where the learner stands, as plain data; no batch may be in progress in another thread."""
        with self._exclusive():
            engine = self._engine
            return {
                "mode": self.mode,
                "samples": self._inputs.count,
                "sample_shape": self._inputs.shape and list(self._inputs.shape),
                "sample_type": "uint8" if self._inputs.dtype == torch.uint8 else "float32",
                "outputs": 0 if engine is None else engine.outputs,
                "classes": [] if engine is None else sorted(engine.classes),
                "waiting": list(self.waiting),
                "held": list(self.held),
                "untestable": [] if engine is None else sorted(engine.untestable),
                "buffer": {} if engine is None else engine.learner.buffer.counts(),
                "buffer_earlier": {} if engine is None else engine.earlier_in_buffer(),
                "steps": 0 if engine is None else engine.learner.steps,
                "labels": {} if engine is None else dict(engine.ledger.labels),
                "label_budget": self._config.label_budget,
                "open_requests": 0 if engine is None else len(engine.window.requested),
            }

    @property
    def num_samples(self) -> int:
        """Samples so far, refused ones included: where to go on with a stream."""
        return self._inputs.count

    @property
    def classes(self) -> tuple[int, ...]:
        """Classes whose labels have been seen."""
        return () if self._engine is None else tuple(sorted(self._engine.classes))

    @property
    def waiting(self) -> tuple[int, ...]:
        """Drifted classes that wait for labels to realign with."""
        return () if self._engine is None else tuple(sorted(self._engine.waiting))

    @property
    def open_requests(self) -> tuple[Request, ...]:
        """Samples whose requested labels have not come, by the class predicted now.

        They can be answered with `answer`, also after a restart.
        """
        with self._exclusive():
            if self._engine is None:
                return ()
            samples = self._engine.window.requested.samples()
            predicted = self._engine.predict(samples.images)
            return tuple(
                self._shown(Request.of(samples[predicted == label], label))
                for label in sorted(set(predicted.tolist()))
            )

    @property
    def requested(self) -> Samples:
        """The samples of `open_requests` as they came; their classes are not predicted anew."""
        with self._exclusive():
            if self._engine is None:
                return no_samples(self._inputs.shape or (1,), self._inputs.dtype)
            return self._engine.window.requested.samples()

    @property
    def kept_ids(self) -> set[int]:
        """Of the samples outside the buffer: recent ones, and those that classes are compared with."""
        with self._exclusive():
            return set() if self._engine is None else self._engine.window.ids()

    @property
    def accuracy(self) -> float | None:
        """Fraction of correct predictions among the last 1,000 labelled samples; None: no such."""
        return self._reporter.accuracy

    @property
    def counters(self) -> str:
        """Counters and gauges in the text format of Prometheus."""
        return prometheus_text(self._reporter.counters)

    # Saving

    def save(self) -> None:
        """Save everything in the folder, all or nothing; the state before is kept beside it.

        `observe` does it by itself every `save_seconds`, so that a killed process loses no more.
        RunFailure if the disk refuses: the live learner goes on, and `observe` tries again every
        `RETRY_SECONDS`. A save that a callback requests during `observe` is made at its end.
        """
        with self._exclusive():
            self._refuse_if_over()
            if self._folder is None:
                raise UserError("there is nowhere to save to: make the live learner with a folder")
            self._save_requested = self._is_observing
            if not self._is_observing:
                self._save_to(self._folder)
                self._announce("saved")

    def _save_to(self, folder: RunFolder) -> None:
        try:
            folder.save_checkpoint(self._state())
        except (RunFailure, UserError):
            self._reporter.counters["save_failures_total"] += 1
            self._retry_at = time.monotonic() + RETRY_SECONDS
            raise
        self._retry_at = None
        self._saved_at = time.monotonic()

    def close(self, *, save: bool = True) -> None:
        """Save, if there is a folder, and release it; nothing can be observed afterwards.

        A batch that broke off is not saved. A close that a callback requests during `observe` is
        made at its end.
        """
        with self._exclusive():
            if self._is_observing:
                self._close_requested = True
                return
            if not self._closed and not (self._is_fork and self._folder is not None):
                with self._inbox.closing():
                    if save and self._folder is not None and self._failure is None:
                        self._save_to(self._folder)
                self._announce("closed")
            self._release()

    def _release(self) -> None:
        self._closed = True
        if self._folder is not None:
            self._folder.close()

    def _announce(self, kind: str, **details: Any) -> None:
        """Emit an event outside a batch; failures of callbacks are warnings."""
        for failure in self._reporter.emit(kind, rows=self._inputs.count, **details):
            warn_caller(failure)

    def _open(self, path: Path, *, resume: bool = False) -> RunFolder:
        own = {"network": self._network is not None, **to_json(self._config, self._settings)}
        config = {**self._config.to_json(), "keeper": own}
        if self._frozen is not None:
            own["frozen_encoder"] = described = self._frozen.description
            config["frozen_encoder"] = None if described["is_given"] else described["name"]
        if resume:
            saved = read_config(path)
            # A setting that did not exist when the folder was made has its default.
            config["keeper"] = {name: own[name] for name in saved["keeper"] if name in own}
            # The source of a custom part may change; `_resume` reports it.
            config["code_identity"] = saved.get("code_identity")
        elif is_run(path):
            raise UserError(
                f"{path} already holds a live learner or a run; go on with LiveLearner.load, or "
                "choose a new folder"
            )
        return RunFolder.open(path, config, resume=resume)

    def _resume(self, path: Path) -> list[str]:
        """Load what was saved; returns warnings."""
        warnings: list[str] = []
        earlier = read_config(path).get("code_identity")
        if earlier is not None and earlier != self._config.code_identity:
            warnings.append(f"the source of custom parts has changed since {path} was made")
        self._folder = self._open(path, resume=True)
        self._reporter = Reporter(self._folder)
        try:
            state = self._folder.load_checkpoint(warnings.append)
            if state is None:
                warnings.append(f"nothing is saved in {path}: the live learner begins anew")
            else:
                with errors_named_after(path):
                    self._load_state(state)
        except UserError as error:
            self._folder.close()
            advice = "start anew with overwrite=True"  # which a run has, and a live learner has not
            message = str(error).replace(advice, "begin anew in another folder")
            raise UserError(message) from error
        except BaseException:
            self._folder.close()
            raise
        return warnings

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything that changes."""
        with self._exclusive():
            return copy.deepcopy(self._state())

    def _state(self) -> dict[str, Any]:
        engine = self._engine
        return {
            **({"parts": None, "upkeep": None} if engine is None else engine.state_dict()),
            "intake": self._inputs.state_dict(),
            "inbox": self._inbox.state_dict(),
            "published": self._snapshots and self._snapshots.newest.state_dict(),
            "teller": self._reporter.state_dict(),
            "first_outputs": self._first_outputs,
            "mode": self.mode,
            "extra": self.extra_state,
            # These three are for `driftwise.load`, which reads the network of any folder.
            **(
                {}
                if self._frozen is None
                else {"frozen": self._frozen.state_dict(), "raw_shape": list(self._frozen.shape)}
            ),
            "image_shape": None if engine is None else list(self._inputs.shape or ()),
            "class_names": None if engine is None else [str(n) for n in range(engine.outputs)],
            "midway": None,
        }

    def _load_state(self, state: dict[str, Any]) -> None:
        self._inputs.load_state_dict(state["intake"])
        self._inbox.load_state_dict(state["inbox"])
        self._reporter.load_state_dict(state["teller"])
        if self._frozen is not None:
            self._frozen.load_state_dict(state["frozen"])
        self.extra_state = dict(state.get("extra", {}))  # older states have none, nor a mode
        if (mode := state.get("mode", "auto")) not in MODES:
            raise ValueError(f"expected a mode, one of {', '.join(MODES)}")
        self._mode = mode
        if state["parts"] is not None:
            assert self._inputs.shape is not None
            empty = no_samples(self._inputs.shape, self._inputs.dtype)
            self._first_outputs = state["first_outputs"]
            self._engine = self._build(empty, self._first_outputs)
            self._engine.load_state_dict(state)
            self._renew_snapshot(self._engine)
            # Older states have no averaged weights.
            if self._snapshots is not None and state.get("published") is not None:
                self._snapshots.newest.load_state_dict(state["published"])

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied or pickled with everything but callbacks on events."""
        if self._folder is not None:
            raise UserError(
                "a live learner in a folder cannot be copied: save it, and load the folder"
            )
        with self._lock:
            self._refuse_if_broken()
            network = self._config.backbone if self._network is None else self._network
            settings = to_json(self._config, self._settings)
            # The learner goes on changing its tensors: the copy needs its own.
            frozen = None if self._frozen is None else self._frozen.given
            state = copy.deepcopy(self._state())
            return _restored, (network, self._labels, settings, state, frozen)

    # Threads, forks and failures

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One thread at a time; a label callback that is waited for would wait for itself."""
        if self._requester is not None and self._requester.waits_for_caller:
            raise UserError(
                "the live learner waits for the label callback, which can only predict meanwhile: "
                "return the labels first"
            )
        with self._lock:
            yield

    @contextlib.contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """An exception in here leaves a live learner that only predicts."""
        try:
            yield
        except BaseException as error:
            self._failure = first_line(error)
            raise

    def _reset_in_fork(self) -> None:
        """Release what threads of the parent hold; a batch in progress there is lost here."""
        self._lock, self._building = threading.RLock(), threading.RLock()
        self._is_fork = True
        if self._is_observing:
            self._failure = "its process was forked"
        self._inbox.reset_in_fork()
        self._preview = None
        if self._snapshots is not None:
            self._snapshots.reset_in_fork()

    def _use_one_thread_in_fork(self) -> None:
        """In a fork torch would wait forever for threads that only its parent has."""
        if self._is_fork and torch.get_num_threads() > 1:
            torch.set_num_threads(1)

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
                "predicts; go on from what was saved with LiveLearner.load, or make a new one"
            )

    # Frozen encoder

    def _encoded(self, x: Any) -> Any:
        """Samples as the learner takes them."""
        if self._frozen is None:
            return x
        shape = self._inputs.shape
        return self._frozen.vectors(x, None if shape is None else shape[0])

    def _shown(self, request: Request) -> Request:
        """A request with samples as they came."""
        return request if self._frozen is None else self._frozen.shown(request)

    # The engine and its snapshots

    def _built(self, first: Samples) -> LiveEngine:
        """The engine; the first samples decide the shapes of its components."""
        if self._engine is None:
            if self._network is not None:
                outputs = num_outputs_of(self._network, first.images)
            elif bool((first.labels >= 0).any()) or self._config.backbone is None:
                outputs = int(first.labels.max()) + 1
            else:
                raise UserError(
                    "a network by name is made for the classes of the first batch: give its labels"
                )
            engine = self._build(first, outputs)
            labels_from(first.labels, len(first), max_label=self._max_label(engine))
            self._engine, self._first_outputs = engine, outputs
            self._renew_snapshot(engine)
            self._preview = None
        return self._engine

    def _build(self, first: Samples, outputs: int) -> LiveEngine:
        engine = LiveEngine(
            self._config,
            self._settings,
            first,
            outputs,
            network=self._network,
            requester=self._requester,
            snapshot=lambda: None if self._snapshots is None else self._snapshots.newest,
        )
        engine.mode = self._mode
        return engine

    def _max_label(self, engine: LiveEngine | None) -> int:
        """The largest label that has an output or can get one."""
        if engine is None:
            return self._settings.max_classes - 1
        grows = self._settings.grow and (
            not engine.learner.networks or can_grow(engine.learner.network)
        )
        return max(self._settings.max_classes if grows else 0, engine.outputs) - 1

    def _renew_snapshot(self, engine: LiveEngine) -> None:
        predictable = engine.predictable
        if not bool(predictable.any()):
            return  # no class has been learned: there is nothing to predict
        learner, network = engine.learner, engine.learner.predictor
        if self._snapshots is None:
            self._snapshots = NetworkSnapshots(network, predictable)
        else:
            span = min(self._settings.average_steps, 1 + learner.steps / 10)
            # A method that averages by itself predicts with another network than it trains.
            trained = getattr(network, "trained", network) if learner.networks else None
            averages = span > 0 and trained is not None and trained is learner.network
            decay = math.exp((self._snapshot_step - learner.steps) / span) if averages else 0.0
            self._snapshots.renew(network, predictable, decay=decay)
        self._snapshot_step = learner.steps
        self.snapshot_number += 1

    @property
    def why_no_predictor(self) -> str | None:
        """Why no other process can predict; None: nothing is in the way."""
        if self._frozen is not None:
            return "predictions need the frozen encoder"
        learner = None if self._engine is None else self._engine.learner
        if learner is None or (isinstance(learner, Learner) and learner.device.type == "cpu"):
            return None
        return "predictions need more than a network on the CPU"

    def predictor_snapshot(self) -> Predictor | None:
        """The newest snapshot for predicting in other processes, in the thread that learns.

        None: nothing has been learned, or `why_no_predictor`.
        """
        if self._snapshots is None or self._engine is None or self.why_no_predictor is not None:
            return None
        learner = self._engine.learner
        assert isinstance(learner, Learner), "others are no networks on the CPU"
        inputs = InputReader()
        inputs.load_state_dict(self._inputs.state_dict())
        with self._snapshots.reading() as snapshot:
            return Predictor(
                network=snapshot.network,
                masked=snapshot.masked,
                inputs=inputs,
                memory_format=learner.memory_format,
                bf16=learner.bf16,
            )

    def _logits(self, x: Any) -> Tensor:
        """(samples, outputs) on the CPU, -inf for classes that must not be predicted."""
        self._use_one_thread_in_fork()
        with PREDICTIONS_FIRST.predicting(), FAST_SWITCHING:
            images = self._inputs.images(self._encoded(self._inputs.matched(x)))
            snapshots, engine = self._snapshots, self._engine
            if snapshots is None:
                with self._building:
                    snapshots, engine = self._snapshots_before_data(images)
            assert engine is not None, "snapshots are of an engine"
            with snapshots.reading() as snapshot, PREDICTIONS_FIRST:
                if not len(images):
                    return torch.empty(0, len(snapshot.masked))
                logits = engine.learner.logits_of(snapshot.network, images)
                return logits.masked_fill(snapshot.masked, -torch.inf)

    def _snapshots_before_data(self, images: Tensor) -> tuple[NetworkSnapshots, LiveEngine]:
        """For predictions of a given network before the first batch, which they leave open."""
        if self._snapshots is not None:  # a first batch came meanwhile
            self._inputs.images(images)
            assert self._engine is not None, "snapshots are of an engine"
            return self._snapshots, self._engine
        if self._network is None or not len(images):
            raise UserError("nothing has been learned yet: observe labelled samples first")
        kind = (images.shape[1:], images.dtype)
        if self._preview is None or self._preview[0] != kind:
            first = no_samples(tuple(images.shape[1:]), images.dtype)
            engine = self._build(first, num_outputs_of(self._network, images))
            snapshots = NetworkSnapshots(engine.learner.predictor, engine.predictable)
            self._preview = kind, snapshots, engine
        return self._preview[1:]


_LIVE_LEARNERS: weakref.WeakSet[LiveLearner] = weakref.WeakSet()


def _reset_in_fork() -> None:
    for live in _LIVE_LEARNERS:
        live._reset_in_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_fork)


def _restored(
    network: nn.Module | str,
    labels: LabelCallback | None,
    settings: dict[str, Any],
    state: dict[str, Any],
    frozen_encoder: Any = None,
) -> LiveLearner:
    """A live learner as it was when it was copied or pickled."""
    live = LiveLearner(network, labels=labels, frozen_encoder=frozen_encoder, **settings)
    live._load_state(state)
    return live


def _encoder_again(path: Path, saved: dict[str, Any], encoder: Any) -> Any:
    """The frozen encoder of a folder: by its name, or the one given again."""
    if saved["is_given"] and encoder is None:
        raise UserError(
            f"the live learner in {path} needs its encoder again, {saved['name']}: give it as encoder"
        )
    return saved["name"] if encoder is None else encoder


def _refuse_other_encoder(path: Path, saved: dict[str, Any], now: dict[str, Any]) -> None:
    """UserError where vectors of another encoder were learned."""
    known = None not in (saved["identity"], now["identity"])
    if saved["identity"] != now["identity"] if known else saved["name"] != now["name"]:
        raise UserError(
            f"the live learner in {path} learned from vectors of the encoder {saved['name']}; got "
            f"another one, {now['name']}: give that one"
        )


def _backbone(network: object, method: str) -> str | None:
    """The name of a network in a config; None: the method has none."""
    if registry.is_analytic(method):
        if network is not None:
            raise UserError(
                f"the method {method} trains no network; leave the network out, or give one that "
                "encodes samples as the encoder"
            )
        return None
    if isinstance(network, str):
        registry.find("backbone", network)
        return network
    if isinstance(network, nn.Module):
        return f"{type(network).__module__}:{type(network).__qualname__}"
    raise UserError(f"expected a torch module or a backbone's name; got {type(network).__name__}")
