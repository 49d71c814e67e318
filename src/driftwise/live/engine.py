"""What is done with each batch: predict, monitor, check, adapt, learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.config.presets import settled
from driftwise.config.schema import RunConfig
from driftwise.errors import Diverged
from driftwise.live.components import build_handlers, build_learner, monitor_of
from driftwise.live.concurrency import yield_to_predictions
from driftwise.live.input_reader import ENOUGH, UNKNOWN, InputStatistics
from driftwise.live.labels import MIN_FRESH, Answer, LabelRequester, LiveLabels, apply_answer
from driftwise.live.settings import LiveSettings
from driftwise.live.window import MonitoredSamples, Window, with_labels
from driftwise.loop import DriftHandler, tested_in
from driftwise.memory.buffer import ReplayBuffer
from driftwise.metrics import Ledger
from driftwise.models.inputs import Prepared
from driftwise.part_state import PartState
from driftwise.protocols import AdaptationContext, ForgetsSamples
from driftwise.runs.result import verdict_from
from driftwise.stats.fraction import estimate_shares
from driftwise.types import AdaptationResult, Samples, Verdict

MOST_REPLAY_STEPS, FEW_REPLAY_STEPS = 8, 2
"""for small networks, and for others: a ResNet-18 must keep up with its stream"""
SMALL_NETWORK = 1_000_000
"""weights"""
LARGE = 30.0
"""inputs of this size should be scaled"""
NUM_EXAMPLES = 8
"""samples of a drifted class from before and after, at most, that are reported"""

Mode = Literal["auto", "ask", "shadow"]
"""auto: drifted classes are adapted to; ask: only those that are approved; shadow: nothing is learned
or adapted, only monitored"""
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(kw_only=True)
class BatchOutcome:
    """What was done with one batch."""

    next_id: int = 0
    """the id of the first sample after the batch"""
    predicted: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """int64 (samples,)"""
    confidence: Tensor = field(default_factory=lambda: torch.empty(0))
    """float (samples,): the probability of the predicted class"""
    new_classes: tuple[int, ...] = ()
    verdicts: list[Verdict] = field(default_factory=list)
    adapted: list[int] = field(default_factory=list)
    extra: list[Samples] = field(default_factory=list)
    """samples that adaptations want trained on"""
    quarantined: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    """int64: positions of outliers, which are neither learned nor monitored"""
    unused: list[Samples] = field(default_factory=list)
    """samples with requested labels that no adaptation has used"""
    examples: dict[int, tuple[Samples, Samples]] = field(default_factory=dict)
    """of each drifted class, some from before and after"""
    losses: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def loss(self) -> float | None:
        """Mean over the gradient steps; None: there was none."""
        return sum(self.losses) / len(self.losses) if self.losses else None

    def emit(self, kind: str, **details: Any) -> None:
        """Record an event; its text, if it has one, is a note for a person."""
        self.events.append((kind, details))
        if "text" in details:
            self.notes.append(details["text"])


class LiveEngine:
    """Predicts, monitors, adapts and learns, batch by batch, in one thread."""

    def __init__(
        self,
        config: RunConfig,
        settings: LiveSettings,
        first: Samples,
        outputs: int,
        *,
        network: nn.Module | None,
        requester: LabelRequester | None,
        snapshot: Callable[[], nn.Module | None],
    ) -> None:
        """An engine for samples like the `first` ones, and a network with so many outputs.

        `network`: a given one, whose outputs may be predicted from the start; None: the config's
        backbone. `snapshot()`: the network's last good snapshot; None: there is none yet.
        """
        self.ledger = Ledger(label_budget=config.label_budget)
        shape, dtype = tuple(first.images.shape[1:]), first.images.dtype
        self.inputs = InputStatistics(shape, dtype, factor=settings.outlier_factor)
        self.learner = build_learner(config, settings, first, outputs, network, self.inputs)
        self.learner.between = yield_to_predictions
        self.window = Window(first[:0], settings, trust_predictions=config.min_harm is None)
        self.handlers = build_handlers(
            config, self.learner, self.ledger, first, self.window.num_labelled
        )
        """of labelled samples, and unless the detector needs labels, of samples by prediction"""
        self._adaptation_state = PartState(self.handlers[0].adaptation, "adaptation")
        self.outputs = outputs
        self.classes: set[int] = set()
        self.waiting: dict[int, Verdict] = {}
        """drifted classes that wait for labels"""
        self.untestable: set[int] = set()
        """classes that the last check could not test, although enough samples had come"""
        self.mode: Mode = "auto"
        self.held: dict[int, Verdict] = {}
        """drifted classes whose adaptation has not been approved"""
        self._approved: set[int] = set()
        """held classes to adapt to in the next batch"""
        self.checks = 0
        self.normalises = config.normalise
        """whether inputs are normalised by their statistics so far"""
        self._settings = settings
        self._measures_harm = config.min_harm is not None
        self._trained_outputs = 0 if network is None else outputs
        self._requester = requester
        self._snapshot = snapshot
        self._reported_unmonitored = False
        self._reported_scale = config.normalise or config.backbone is None
        self._catch_up_steps = 0
        """steps that the network still needs to follow a realigned buffer"""
        self._seed = config.seed
        self._extra_batch_size = settled(config.batch_size)
        self.rehearses = bool(self.learner.networks)
        """whether steps on the replay buffer change anything: class statistics need none"""
        self._replay_size = self._replay_steps = 0
        if self.rehearses:
            self._replay_size = settled(config.minibatch_size)
            weights = sum(each.numel() for each in self.learner.network.parameters())
            usual_steps = MOST_REPLAY_STEPS if weights <= SMALL_NETWORK else FEW_REPLAY_STEPS
            given = settings.replay_steps
            self._replay_steps = usual_steps if given is None else given

    @property
    def predictable(self) -> Tensor:
        """bool (outputs,): the classes that may be predicted, trained before or seen since."""
        predictable = torch.arange(self.outputs) < self._trained_outputs
        predictable[list(self.classes)] = True
        return predictable

    def predict(self, images: Tensor) -> Tensor:
        """Classes, (samples,), by the averaged weights; -1: nothing has been learned yet."""
        return self.predict_with_confidence(images)[0]

    def predict_with_confidence(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Classes as `predict`, and their probabilities, (samples,) each."""
        predictable = self.predictable
        if not len(images) or not bool(predictable.any()):
            return torch.full((len(images),), UNKNOWN), torch.zeros(len(images))
        learner = self.learner
        snapshot = self._snapshot() if learner.steps else None
        logits = learner.logits(images) if snapshot is None else learner.logits_of(snapshot, images)
        # Outputs that were added in this very batch are not in the snapshot yet.
        logits = logits.masked_fill(~predictable[: logits.shape[1]], -torch.inf)
        predicted = logits.argmax(dim=1)
        confidence = logits.float().softmax(dim=1).gather(1, predicted[:, None]).squeeze(1)
        return predicted, confidence

    def observe(self, samples: Samples, answers: list[Answer], *, next_id: int) -> BatchOutcome:
        """Do everything that a batch and the labels since the last one call for."""
        far = self.inputs.outliers(samples.images)
        if is_first := not self.inputs.count:  # the first samples are normalised by themselves
            self._add_inputs(samples.images[~far])
        predicted, confidence = self.predict_with_confidence(samples.images)
        outcome = BatchOutcome(next_id=next_id, predicted=predicted, confidence=confidence)
        yield_to_predictions()
        classes = torch.where(samples.labels >= 0, samples.labels, predicted)
        outliers = far & ~self.inputs.drifted(classes, far)
        if not is_first:
            if has_changed := self.inputs.all_changed:
                self.inputs.reset()
            self._add_inputs(samples.images[far if has_changed else ~far])
        self._report_scale(outcome)
        if bool(outliers.any()):
            outcome.quarantined = outliers.nonzero().squeeze(1)
            samples, predicted = samples[~outliers], predicted[~outliers]
        has_label = samples.labels >= 0
        all_labelled = bool(has_label.all())  # the usual case: nothing has to be copied
        learn, monitored = self.window.split(samples if all_labelled else samples[has_label])
        self.window.monitor(monitored)
        if not all_labelled:
            self._monitor_unlabelled(samples[~has_label], predicted[~has_label], outcome)
        late = self._apply_answers(answers, outcome)
        waiting_before = set(self.waiting)

        yield_to_predictions()
        self._check(outcome)
        self.ledger.book_labels("stream", len(learn))
        if self.mode != "shadow":
            self._adapt_approved(outcome)
            self._learn([*late, *outcome.unused, learn], outcome)
            self._adapt_waiting(outcome)
            self._learn([], outcome)
            self._catch_up(outcome)
        self._guard(self.learner.refuse_diverged_weights, outcome)
        self._complete_references(outcome)
        # Only now: the labels of this batch may have realigned a class that was found without.
        for label in sorted(self.waiting.keys() - waiting_before):
            text = f"class {label} has drifted, no labels to realign with"
            outcome.emit("waiting", label=label, text=text)
        yield_to_predictions()
        return outcome

    def rehearse(self, steps: int) -> BatchOutcome:
        """Steps on the replay buffer alone, which must not be empty."""
        outcome = BatchOutcome()
        with self.ledger.phase("train"):
            for _ in range(steps):
                self._guard(lambda: self._replay_step(None, outcome), outcome)
        self._guard(self.learner.refuse_diverged_weights, outcome)
        return outcome

    def earlier_in_buffer(self) -> dict[int, int]:
        """By realigned class, the samples in the replay buffer that show an earlier concept of it."""
        buffer = self.learner.buffer
        if not isinstance(buffer, ReplayBuffer):
            return {}  # class statistics have no samples
        firsts = self.window.current_from.items()
        return {label: int((buffer.ids_of(label) < first).sum()) for label, first in firsts}

    def fit_reference(self, samples: Samples) -> tuple[int, ...]:
        """Labelled samples of the past become the references of their classes; the classes."""
        samples = samples[~self.inputs.outliers(samples.images)]
        self._add_inputs(samples.images)
        classes = tuple(sorted(set(samples.labels.tolist())))
        drawn = {label: self._draw_reference(samples.of_class(label)) for label in classes}
        for handler, monitored in self._monitors():
            for label in classes:
                monitored.set_reference(label, drawn[label])
            self._set_references(handler, drawn)
        return classes

    def _draw_reference(self, samples: Samples) -> Samples:
        """At most `reference_size` samples of a class, at random."""
        label = int(samples.labels[0])
        generator = rng.fork(self._seed, "history", label)
        order = torch.randperm(len(samples), generator=generator)
        chosen = order[: self._settings.reference_size].sort().values
        # Ids that no sample of the stream has, nor one of another class.
        return replace(samples[chosen], ids=-2 - label * 2**32 - torch.arange(len(chosen)))

    # Inputs

    def _add_inputs(self, images: Tensor) -> None:
        """Add samples to the input statistics, and normalise the network's inputs by them."""
        self.inputs.add(images)
        if not self.normalises or self.mode == "shadow":
            return
        mean, std = self.inputs.statistics
        for network in self.learner.networks:
            assert isinstance(network, Prepared)
            shape = network.mean.shape
            network.scale_by(mean.reshape(shape), std.reshape(shape))

    def _report_scale(self, outcome: BatchOutcome) -> None:
        """Report once that inputs are large and not normalised: a network learns little so."""
        if self._reported_scale or self.inputs.count < ENOUGH:
            return
        self._reported_scale = True
        mean, std = self.inputs.statistics
        if (size := float((mean.abs() + std).max())) > LARGE:
            outcome.notes.append(
                f"inputs are not scaled, and values around {size:.3g} come in: scale them, or set "
                "normalise=True"
            )

    def _monitor_unlabelled(
        self, samples: Samples, predictions: Tensor, outcome: BatchOutcome
    ) -> None:
        self.window.unlabelled.add(samples)
        if len(self.handlers) > 1:
            has_class = predictions != UNKNOWN
            self.window.monitor_predicted(samples[has_class], predictions[has_class])
        elif not self._reported_unmonitored:
            self._reported_unmonitored = True
            outcome.notes.append("this detector needs labels: unlabelled samples are not monitored")

    def _apply_answers(self, answers: list[Answer], outcome: BatchOutcome) -> list[Samples]:
        """Samples to learn from whose labels came late."""
        applied, corrected = [], []
        for answer in answers:
            if answer.failed:
                self.window.cancel_request(answer.ids)
            elif answer.corrects:
                if len(again := self.window.unknown.remove(answer.ids)):
                    self.window.requested.add(again)
                    chosen = torch.isin(answer.ids, again.ids)
                    first = Answer(ids=answer.ids[chosen], labels=answer.labels[chosen])
                    applied.append(apply_answer(first, self.window, self.ledger))
                corrected.append(self._forget_learned(answer))
            else:
                applied.append(apply_answer(answer, self.window, self.ledger))
        requested, unrequested, gone, outdated = (
            sum(getattr(late, name) for late in applied)
            for name in ("requested", "unrequested", "gone", "outdated")
        )
        if applied:
            late = requested + unrequested
            outcome.emit("answered", given=requested, late=late, gone=gone, outdated=outdated)
        if gone:
            outcome.notes.append(f"{gone} labels came for samples that are no longer kept")
        if outdated:
            outcome.notes.append(f"{outdated} labels came for samples of outdated concepts")
        if corrected:
            outcome.emit("corrected", rows=sum(map(len, corrected)))
        return [*(late.learn for late in applied), *corrected]

    def _forget_learned(self, answer: Answer) -> Samples:
        """Remove samples with wrong labels from buffer and window; those with right ones to learn.

        A sample whose right label is unknown is only removed.
        """
        found, buffer = [self.window.learned.remove(answer.ids)], self.learner.buffer
        replay = getattr(buffer, "replay", buffer)  # statistics are not dropped by slots here
        for label in buffer.counts():
            held = replay.samples_of(label)
            if bool((wrong := torch.isin(held.ids, answer.ids)).any()):
                replay.drop(label, wrong)
                found.append(held[wrong])
        samples = Samples.concat(found)
        first = [samples.ids.tolist().index(each) for each in dict.fromkeys(samples.ids.tolist())]
        samples = samples[torch.tensor(first, dtype=torch.int64)]
        if isinstance(self.learner, ForgetsSamples):
            # What came before a realignment is no part of its class's statistics any more.
            self.learner.forget(samples[~self.window.is_realigned(samples.labels)])
        samples = with_labels(samples, *answer.pairs)
        return samples[samples.labels != UNKNOWN]

    # Checks and adaptations

    def _monitors(self) -> list[tuple[DriftHandler, MonitoredSamples]]:
        return list(zip(self.handlers, (self.window.labelled, self.window.predicted), strict=False))

    def _check(self, outcome: BatchOutcome) -> None:
        """Check the classes that are due, and adapt to those that have drifted."""
        for handler, monitored in self._monitors():
            if not (due := monitored.due()):
                continue
            self.checks += 1
            onset = partial(self._onset, handler, monitored)
            labels = self._label_source(outcome, due, monitored, self._requester, onset)
            task = self._task(due, monitored)
            context = self._context(handler, task, labels, outcome)
            by_labels = monitored is self.window.labelled
            if by_labels or not self.window.labelled.has_current:
                # Labelled samples measure a recovery: where they come, it waits for them.
                outcome.notes += self._follow_up(handler, context)
            verdicts = handler.check(task)
            if not by_labels and not self._measures_harm:
                # By a reference of predictions, accuracy is the learner's own opinion.
                verdicts = tuple(
                    replace(each, harm=None, harm_error=None, harm_unlabelled=None)
                    for each in verdicts
                )
            drifted = {each.label: each for each in verdicts if each.needs_adaptation}
            # Before adapting: samples whose labels are requested are monitored no longer.
            self._keep_examples(handler, task, drifted, outcome)
            allowed = self._hold(drifted, outcome)
            result = AdaptationResult()
            if self.mode != "shadow":
                context = replace(context, tested=tested_in(verdicts))
                result = handler.adapt(list(allowed.values()), context)
            unchanged = {each.label for each in verdicts if each.drifted is False}
            self.window.unchanged_until([*unchanged - self.waiting.keys()], outcome.next_id)
            outcome.verdicts += verdicts
            p_values = {str(each.label): each.p_value for each in verdicts}
            moved = {str(each.label): [each.moved, each.moved_band] for each in verdicts}
            spread = {str(each.label): [each.spread, each.spread_band] for each in verdicts}
            stream_kind = next((each.stream_kind for each in verdicts if each.stream_kind), None)
            outcome.emit(
                "checked",
                classes=list(due),
                number=self.checks,
                p_values=p_values,
                moved=moved,
                spread=spread,
                stream_kind=stream_kind,
            )
            if drifted:
                classes = sorted(drifted)
                effects = [_effect(drifted[label]) for label in classes]
                outcome.emit("drifted", classes=classes, verdicts=effects)
            self._apply_result(result, allowed, labels, outcome)
            monitored.end_check(due)
        self._report_untestable(outcome)

    def _follow_up(self, handler: DriftHandler, context: AdaptationContext) -> tuple[str, ...]:
        return () if self.mode == "shadow" else handler.follow_up(context)

    def _hold(self, drifted: dict[int, Verdict], outcome: BatchOutcome) -> dict[int, Verdict]:
        """The drifted classes that may be adapted to now; the others wait for approval."""
        if self.mode == "auto":
            return drifted
        held = {label: each for label, each in drifted.items() if label not in self.waiting}
        for label in sorted(held.keys() - self.held.keys()):
            text = f"class {label} has drifted; its adaptation waits for approval"
            outcome.emit("held", label=label, text=text)
        self.held |= held
        return {label: each for label, each in drifted.items() if label not in held}

    def set_mode(self, mode: Mode) -> None:
        """Change the mode; in `auto`, the next batch adapts to all classes that are held."""
        self.mode = mode
        if mode == "auto":
            self._approved |= self.held.keys()

    def approve(self, labels: Sequence[int]) -> None:
        """The next batch adapts to these held classes."""
        self._approved |= set(labels) & self.held.keys()

    def dismiss(self, labels: Sequence[int]) -> None:
        """Do not adapt to these held classes; a later check may find them drifted again."""
        for label in labels:
            self.held.pop(label, None)
            self._approved.discard(label)

    def _adapt_approved(self, outcome: BatchOutcome) -> None:
        """Adapt to held classes that have been approved."""
        ready = {label: self.held.pop(label) for label in sorted(self._approved & self.held.keys())}
        self._approved.clear()
        if ready:
            self._adapt(ready, outcome, self._requester)

    def _keep_examples(
        self,
        handler: DriftHandler,
        task: _LiveTask,
        drifted: dict[int, Verdict],
        outcome: BatchOutcome,
    ) -> None:
        """Some samples of drifted classes from before and after, those that drifted first."""
        current = task.monitored()
        for label, verdict in drifted.items():
            before = monitor_of(handler).reference_samples(label)
            after = current.of_class(label)
            has_moved = torch.isin(after.ids, torch.tensor(verdict.moved_rows, dtype=torch.int64))
            order = has_moved.int().argsort(descending=True, stable=True)
            if before is None:  # encodings alone are kept
                before = after[:0]
            outcome.examples[label] = (
                before[torch.arange(min(NUM_EXAMPLES, len(before)))],  # a copy, no view
                after[order[:NUM_EXAMPLES]],
            )

    def _report_untestable(self, outcome: BatchOutcome) -> None:
        """Report classes that no check could test: no verdict does not mean no drift."""
        enough = self._settings.check_rows // 2
        tested = {each.label for each in outcome.verdicts if each.drifted is not None}
        untestable = {
            each.label: each.reason
            for each in outcome.verdicts
            if each.label not in tested and each.num_current >= enough
        }
        new = sorted(untestable.keys() - self.untestable)
        self.untestable -= {each.label for each in outcome.verdicts}
        self.untestable |= untestable.keys()
        if new:
            classes = ", ".join(map(str, new))
            text = f"whether classes {classes} have drifted cannot be tested: {untestable[new[0]]}"
            outcome.emit("untestable", classes=new, text=text)

    def _adapt_waiting(self, outcome: BatchOutcome) -> None:
        """Adapt to waiting classes for which enough labels have come meanwhile."""
        counts = self.learner.buffer.counts() if self.waiting else {}
        ready = {
            label: verdict
            for label, verdict in self.waiting.items()
            if len(self.window.fresh(label)) >= min(MIN_FRESH, counts.get(label, 1))
        }
        if ready:
            self._adapt(ready, outcome)

    def _adapt(
        self,
        drifted: dict[int, Verdict],
        outcome: BatchOutcome,
        requester: LabelRequester | None = None,
    ) -> None:
        """Adapt to classes that an earlier check found drifted; `requester` None: ask nobody."""
        handler, monitored = self.handlers[0], self.window.labelled
        labels = self._label_source(outcome, tuple(drifted), monitored, requester)
        context = self._context(handler, self._task(tuple(drifted), monitored), labels, outcome)
        result = handler.adapt(list(drifted.values()), context)
        self._apply_result(result, drifted, labels, outcome)

    def _apply_result(
        self,
        result: AdaptationResult,
        drifted: dict[int, Verdict],
        labels: LiveLabels,
        outcome: BatchOutcome,
    ) -> None:
        """Do what follows from an adaptation."""
        for label in result.renewed:
            self.window.reset(label, outcome.next_id)
        for label, verdict in drifted.items():
            if label not in labels.unmet:
                self.waiting.pop(label, None)
            else:
                self.waiting.setdefault(label, verdict)
        outcome.adapted += result.renewed
        outcome.notes += result.notes
        if result.renewed:
            self._catch_up_steps = self._settings.catch_up_steps if self.rehearses else 0
            outcome.emit("realigned", classes=list(result.renewed), notes=list(result.notes))
            # For methods that know tasks, a class with a new concept begins one.
            self.learner.begin_task((), from_scratch=result.from_scratch)
        if (extra := result.extra) is not None:
            self.window.forget(extra.ids)
            # Samples in the buffer are replayed anyway; none must get there twice.
            buffer = self.learner.buffer
            held = [buffer.samples_of(label).ids for label in buffer.counts()]
            outcome.extra.append(extra[~torch.isin(extra.ids, torch.cat([extra.ids[:0], *held]))])
        outcome.unused += labels.unused()

    def _task(self, classes: tuple[int, ...], monitored: MonitoredSamples) -> _LiveTask:
        current = partial(monitored.current, classes)
        return _LiveTask(number=self.checks + 1, known_classes=classes, samples=current)

    def _label_source(
        self,
        outcome: BatchOutcome,
        classes: tuple[int, ...],
        monitored: MonitoredSamples,
        requester: LabelRequester | None = None,
        onset: Callable[[int], int | None] = lambda _: None,
    ) -> LiveLabels:
        firsts = [monitored.first_current(label) for label in classes]
        return LiveLabels(
            self.window,
            self.ledger,
            requester=requester,
            predict=self.predict,
            emit=outcome.emit,
            onset=onset,
            current_from=max(
                (first for first in firsts if first is not None), default=outcome.next_id
            ),
        )

    def _onset(self, handler: DriftHandler, monitored: MonitoredSamples, label: int) -> int:
        """The id of the sample with which a class began to drift."""
        since = self.window.since(label)
        if label in self.waiting:  # it has drifted before the samples of this check
            return since
        if (dated := monitor_of(handler).onset(label)) is not None:
            return dated
        # Samples from before those of this check show an earlier concept.
        first = monitored.first_current(label)
        return since if first is None else max(since, first)

    def _context(
        self, handler: DriftHandler, task: _LiveTask, labels: LiveLabels, outcome: BatchOutcome
    ) -> AdaptationContext:
        def rehearse(batch: Samples | None, *, rate: float = 1.0) -> None:
            self.ledger.add_step()
            if batch is not None:
                self.window.forget(batch.ids)
            self._guard(lambda: self.learner.rehearse(batch, rate=rate), outcome)

        return AdaptationContext(
            buffer=self.learner.buffer,
            labels=labels,
            annotate=self.learner.annotate,
            encode=self.learner.encode,
            rehearse=rehearse,
            steps=lambda: self.ledger.steps,
            monitored=lambda: monitor_of(handler).as_seen(task),
            compare=lambda before, now: estimate_shares([(before, now)])[0],
        )

    def _complete_references(self, outcome: BatchOutcome) -> None:
        """Monitor classes from here on of which enough reference samples have been collected."""
        for handler, monitored in self._monitors():
            if complete := monitored.complete():
                samples = {label: monitored.take_reference(label) for label in complete}
                self._set_references(handler, samples)
                if monitored is self.window.labelled:
                    outcome.emit("watched", classes=complete)

    def _set_references(self, handler: DriftHandler, samples: dict[int, Samples]) -> None:
        learned = [self.learner.buffer.samples_of(label) for label in samples]
        task = _LiveTask(samples=lambda: Samples.concat(list(samples.values())))
        handler.renew_reference(task, list(samples), Samples.concat(learned))

    # Learning

    def _learn(self, batches: Sequence[Samples], outcome: BatchOutcome) -> None:
        """Steps on what adaptations want trained on, then on the labelled samples."""
        samples = [each for each in batches if len(each)]
        for each in (*outcome.extra, *samples):
            self._add_classes(set(each.labels.tolist()), outcome)
        with self.ledger.phase("train"):
            while outcome.extra:
                self._train(outcome.extra.pop(0), self._extra_batch_size, outcome)
            if samples:
                batch = Samples.concat(samples)
                self.window.learned.add(batch)
                self._train(batch, self._settings.batch_size or len(batch), outcome)

    def _add_classes(self, labels: set[int], outcome: BatchOutcome) -> None:
        """Add outputs for labels that have none."""
        if not (new := labels - self.classes):
            return
        outcome.new_classes = tuple(sorted({*outcome.new_classes, *new}))
        outcome.emit("classes", classes=sorted(new))
        self.classes |= new
        if max(new) >= self.outputs:
            self.outputs = max(new) + 1
            self.learner.grow(self.outputs)
            outcome.emit("grown", outputs=self.outputs)

    def _train(self, samples: Samples, batch_size: int, outcome: BatchOutcome) -> None:
        """Steps on `batch_size` samples at a time, each followed by replay steps in proportion."""

        def step(batch: Samples) -> None:
            outcome.losses.append(self.handlers[0].train_step(batch).loss)

        for batch in samples.split(batch_size):
            if not self._guard(partial(step, batch), outcome):
                return
            self._replay(-(-self._replay_steps * len(batch) // batch_size), outcome)

    def _replay(self, steps: int, outcome: BatchOutcome) -> None:
        """Steps on the buffer and on samples that were learned lately."""
        for _ in range(steps if len(self.learner.buffer) > 1 else 0):
            generator = rng.fork(self._seed, "recent", self.learner.steps)
            recent = self.window.recent(self._replay_size, generator)
            self._guard(partial(self._replay_step, recent, outcome), outcome)

    def _replay_step(self, batch: Samples | None, outcome: BatchOutcome) -> None:
        some = batch if batch is not None and len(batch) > 1 else None
        outcome.losses.append(self.learner.rehearse(some).loss)
        self.ledger.add_step()

    def _catch_up(self, outcome: BatchOutcome) -> None:
        """Follow a realigned buffer by replay while no labels come."""
        if self._catch_up_steps and not outcome.losses:
            with self.ledger.phase("train"):
                self._replay(1, outcome)
        self._catch_up_steps = max(0, self._catch_up_steps - len(outcome.losses))

    def _guard(self, step: Callable[[], object], outcome: BatchOutcome) -> bool:
        """Whether a step went well; if not, the network goes back to its last good snapshot."""
        try:
            step()
        except Diverged as error:
            if (snapshot := self._snapshot()) is None:
                self.learner.restart()
            else:
                self.learner.go_back(snapshot)
            back = "fresh weights" if snapshot is None else "its last good snapshot"
            outcome.emit("restored", text=f"the network went back to {back}: {error}")
            return False
        return True

    # State

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes: of the components, and of the engine itself."""
        return {
            "parts": {
                "learner": self.learner.state_dict(),
                "ledger": self.ledger.state_dict(),
                "monitors": [monitor_of(handler).state_dict() for handler in self.handlers],
                "adaptation": self._adaptation_state.state_dict(),
                "seen": self.inputs.state_dict(),
            },
            "upkeep": {
                "window": self.window.state_dict(),
                "outputs": self.outputs,
                "classes": sorted(self.classes),
                "checks": self.checks,
                "told_of_unwatched": self._reported_unmonitored,
                "told_of_scale": self._reported_scale,
                "behind": self._catch_up_steps,
                "untestable": sorted(self.untestable),
                "waiting": [asdict(verdict) for verdict in self.waiting.values()],
                "held": [asdict(verdict) for verdict in self.held.values()],
                "approved": sorted(self._approved),
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; older states lack "seen", "behind" and others."""
        parts, own = state["parts"], state["upkeep"]
        self.learner.load_state_dict(parts["learner"])
        self.ledger.load_state_dict(parts["ledger"])
        for handler, monitor in zip(self.handlers, parts["monitors"], strict=True):
            monitor_of(handler).load_state_dict(monitor)
        self._adaptation_state.load_state_dict(parts["adaptation"])
        if "seen" in parts:
            self.inputs.load_state_dict(parts["seen"])
        self.window.load_state_dict(own["window"])
        untestable, behind = own.get("untestable", ()), own.get("behind", 0)
        approved = own.get("approved", ())
        counts = [own["outputs"], own["checks"], behind, *own["classes"], *untestable, *approved]
        if not all(type(count) is int and 0 <= count < 2**62 for count in counts):
            raise ValueError("expected whole numbers of outputs, checks and classes")
        self.outputs = own["outputs"]
        self.classes = set(own["classes"])
        self.checks = own["checks"]
        self._reported_unmonitored = own["told_of_unwatched"]
        self._reported_scale = bool(own.get("told_of_scale", True))
        self._catch_up_steps = behind
        self.untestable = set(untestable)
        self.waiting, self.held = (
            {each.label: each for each in map(verdict_from, own.get(name, ()))}
            for name in ("waiting", "held")
        )
        self._approved = set(approved)


def _effect(verdict: Verdict) -> dict[str, Any]:
    """Evidence and size of a drift, as an event has them."""
    names = ("p_value", "threshold", "score", "share", "share_error", "harm")
    counts = ("num_reference", "num_current")
    kinds = ("kind", "action")
    return {
        "class": verdict.label,
        **{name: getattr(verdict, name) for name in names + counts + kinds},
        "kind_evidence": dict(verdict.kind_evidence or {}),
    }


@dataclass(frozen=True, kw_only=True)
class _LiveTask:
    """Stands for a task where a monitor expects one."""

    samples: Callable[[], Samples]
    number: int = 1
    known_classes: tuple[int, ...] = ()

    def monitored(self) -> Samples:
        return self.samples()

    def reference(self, label: int) -> Samples:
        return self.samples().of_class(label)
