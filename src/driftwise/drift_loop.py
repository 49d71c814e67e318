"""The loop as an object: a learner, a detector and an adaptation, run over a stream of tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from driftwise.adapt import Realign
from driftwise.analytic_learner import AnalyticLearner
from driftwise.detect import (
    Combined,
    Detector,
    DetectorContext,
    Encoder,
    EncoderContext,
    FingerprintReference,
    HeldOutReference,
    LearnerEncoder,
    Monitor,
)
from driftwise.detect.base import KnownLabels
from driftwise.distributed import Group, digest_of
from driftwise.encoders.encoding_cache import Cached
from driftwise.errors import UserError
from driftwise.hybrid_learner import HybridLearner
from driftwise.learner import Learner
from driftwise.loop import DriftHandler, Silent, run_tasks
from driftwise.metrics import FlopMeter, Ledger, Scores, of_call, score
from driftwise.models.head import find_head
from driftwise.models.inputs import input_shape_of, to_input
from driftwise.part_state import PartState
from driftwise.protocols import Adaptation, AdaptationContext, HasSamples, Listener
from driftwise.stats.fraction import estimate_shares
from driftwise.streams import Stream, StreamLabels, Task, WrongAnswers
from driftwise.types import AdaptationResult, Samples, StepReport, TaskRecord, TaskState, Verdict

if TYPE_CHECKING:
    from driftwise.config.schema import RunConfig
    from driftwise.runs.result import Result

ReferenceName = Literal["memory", "held-out", "fingerprint"]


class BindsDetector(Protocol):
    """A detector before it knows its stream and its learner, such as `detect.Combined()`."""

    def bind(self, context: DetectorContext) -> Detector:
        """The detector for one stream and one learner."""
        ...


class DriftLoop:
    """Checks each known class for drift, adapts, learns and evaluates, task by task.

    >>> import driftwise as dw
    >>> stream = dw.streams.class_incremental(dw.datasets.load("digits"), num_tasks=5)
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(200), lr=0.1)
    >>> loop = dw.DriftLoop(learner, detector=dw.detect.KS(), adaptation=dw.adapt.Realign())
    >>> [task.number for task in loop.run(stream)]
    [1, 2, 3, 4, 5]
    """

    def __init__(
        self,
        learner: Learner | AnalyticLearner | HybridLearner,
        *,
        detector: BindsDetector | Callable[[DetectorContext], Detector] | None = None,
        adaptation: Adaptation | None = None,
        encoder: Callable[[EncoderContext], Encoder] = LearnerEncoder,
        reference: ReferenceName = "held-out",
        fingerprint_size: int = 100,
        monitor_labels: KnownLabels = "given",
        min_harm: float | None = None,
        only_just_drifted: bool = False,
        label_budget: int | None = None,
        wrong_answers: WrongAnswers | float = 0.0,
        seed: int = 0,
    ) -> None:
        """A loop that is not bound to a stream yet.

        Args:
            learner: what is kept accurate.
            detector: what gives verdicts on classes, for example `detect.KS(level=0.01)`; a function
                of a `detect.DetectorContext` also works. None: `detect.Combined()`.
            adaptation: what is done about drifted classes. None: `adapt.Realign()`.
            encoder: makes the features and logits that the detector compares.
            reference: what current samples are compared with: samples of the replay buffer, samples
                held out from training, or encodings kept of each class as it was learned.
            fingerprint_size: samples of each class in a fingerprint.
            monitor_labels: what is known of monitored samples: `given`, `predicted`, `unknown`.
            min_harm: points of accuracy below which a drift is not adapted to.
            only_just_drifted: check only classes that drift in the task, as published.
            label_budget: labels that adaptation may use at most. None: no limit.
            wrong_answers: the share of the labels for adaptation that is wrong, to see what that costs.
            seed: what the detector's permutations and the choice of labelled samples are drawn from.
        """
        # The others do all that the loop asks of a learner.
        self.learner = cast("Learner", learner)
        self.adaptation = Realign() if adaptation is None else adaptation
        self.adaptation_state = PartState(self.adaptation, "adaptation")
        self.ledger = Ledger(label_budget=label_budget)
        self.seed = seed
        self.epochs = 1
        self.records: list[dict[str, Any]] = []
        """what is kept of each task that was completed, as `records.jsonl` of a run has it"""
        self.built_from: RunConfig | None = None
        """the settings that the loop was built from; None: it was built from objects"""
        self.warnings: tuple[str, ...] = ()
        self.unbound_detector = Combined() if detector is None else detector
        self._make_encoder = encoder
        self._reference = reference
        self._fingerprint_size = fingerprint_size
        self._monitor_labels = monitor_labels
        self._min_harm = min_harm
        self._asks_learner = min_harm is not None or monitor_labels == "predicted"
        self._only_just_drifted = only_just_drifted
        if not isinstance(wrong_answers, WrongAnswers):
            wrong_answers = WrongAnswers(share=wrong_answers)
        self._wrong_answers = wrong_answers
        self._stream: Stream | None = None

    @property
    def config(self) -> RunConfig:
        """The settings that the loop was built from, or those that describe its objects."""
        from driftwise.runs.result import describe

        return describe(self) if self.built_from is None else self.built_from

    @property
    def stream(self) -> Stream:
        """The stream that the loop is bound to."""
        if self._stream is None:
            raise UserError("the loop has no stream yet: call bind(stream) or run(stream) first")
        return self._stream

    def bind(self, stream: Stream) -> DriftLoop:
        """Make everything that depends on the stream; returns the loop itself."""
        if self._stream is stream:
            return self
        if self._stream is not None:
            raise UserError("the loop is bound to another stream; make a new loop for a new stream")
        self._stream = stream
        learner, ledger = self.learner, self.ledger
        shape = input_shape_of(stream.image_shape)
        if learner.networks:
            find_head(learner.network, to_input(stream.blank, learner.device))
        cost = 0 if (encode := stream.encode_two) is None else of_call(encode) // 2
        stream.book_encodings(lambda count: ledger.add_flops(count * cost, otherwise="train"))
        processes = Group().size
        if processes > 1:
            _refuse_other_streams(stream, self.seed)
            self._refuse_other_loops()
        meter = FlopMeter(lambda flops: ledger.add_flops(processes * flops))
        for network in learner.networks:
            meter.attach(network, shape)
        caches: list[Cached] = []

        @functools.cache  # one for the detector and for its reference
        def encoder() -> Encoder:
            made = self._make_encoder(
                EncoderContext(
                    learner=learner.encode, image_shape=stream.image_shape, seed=self.seed
                )
            )
            for own in made.networks:
                meter.attach(own, shape)
            if not made.fixed:
                return made
            caches.append(Cached(made))
            return caches[0]

        self.labels = StreamLabels(
            allowance=ledger.allowance,
            book=lambda count: ledger.book_labels("adaptation", count),
            seed=self.seed,
            wrong=self._wrong_answers,
        )
        drifting = stream.schedule.drifting
        context = DetectorContext(
            encoder=encoder,
            drifting=drifting,
            seed=self.seed,
            labels=self._monitor_labels,
            learner=learner.encode if self._asks_learner else None,
        )
        bind: Any = getattr(self.unbound_detector, "bind", self.unbound_detector)
        self.detector: Detector = bind(context)
        self.monitor = Monitor(
            self.detector,
            self._make_reference(encoder),
            labels=self._monitor_labels,
            min_harm=self._min_harm,
            just_drifted=drifting if self._only_just_drifted else None,
            book=lambda count: ledger.book_labels("monitoring", count),
        )
        self.handler = DriftHandler(
            monitor=self.monitor, adaptation=self.adaptation, learner=learner, ledger=ledger
        )
        self.cache = caches[0] if caches else None
        return self

    def _refuse_other_loops(self) -> None:
        """UserError where another process would decide something else."""
        named = {"detector": self.unbound_detector, "adaptation": self.adaptation}
        Group().refuse_difference(
            "loop",
            {
                **{name: type(part).__name__ for name, part in named.items()},
                "reference": self._reference,
                "monitor_labels": self._monitor_labels,
                "min_harm": self._min_harm,
                "label_budget": self.ledger.label_budget,
            },
        )

    def _make_reference(
        self, encoder: Callable[[], Encoder]
    ) -> HasSamples | HeldOutReference | FingerprintReference:
        match self._reference:
            case "held-out":
                return HeldOutReference()
            case "fingerprint":
                return FingerprintReference(encoder(), size=self._fingerprint_size, seed=self.seed)
            case "memory":
                return self.learner.buffer
        raise UserError(
            f"reference must be memory, held-out or fingerprint; got {self._reference!r}"
        )

    def run(
        self,
        stream: Stream,
        *,
        epochs: int = 1,
        listener: Listener | None = None,
        after: int = 0,
        keep: Callable[[TaskState], None] = lambda _: None,
        task_state: TaskState | None = None,
    ) -> Iterator[TaskRecord[Scores]]:
        """Run all tasks of a stream; yields a record when a task is complete.

        Args:
            stream: the tasks.
            epochs: passes over the samples of each task.
            listener: is notified of what happens.
            after: the number of tasks that were completed before.
            keep: is called after every step with the state of the task.
            task_state: where to go on within the first task.
        """
        from driftwise.runs.result import record_to_json  # late: results know of configs

        self.bind(stream)
        self.epochs = epochs
        for record in run_tasks(
            stream.tasks(after=after),
            handler=self.handler,
            context_of=self.context,
            evaluate=self.evaluate,
            epochs=epochs,
            listener=listener or Silent(),
            keep=keep,
            task_state=task_state,
        ):
            if self.built_from is None:  # a run by config keeps its records in its folder
                is_last = record.task == stream.schedule.num_tasks
                self.records.append(record_to_json(record, is_last=is_last))
            yield record

    # The pieces, for a loop written by hand

    def check_and_adapt(self, task: Task) -> tuple[tuple[Verdict, ...], AdaptationResult]:
        """Check the known classes, and adapt to those that have drifted."""
        return self.handler.check_and_adapt(task, self.context(task))

    def context(self, task: Task) -> AdaptationContext:
        """What the adaptation works with during a task."""
        ledger, learner = self.ledger, self.learner

        def rehearse(batch: Samples | None, *, rate: float = 1.0) -> StepReport:
            ledger.add_step()
            return learner.rehearse(batch, rate=rate)

        return AdaptationContext(
            buffer=learner.buffer,
            labels=self.labels.of(task),
            annotate=learner.annotate,
            encode=learner.encode,
            rehearse=rehearse,
            steps=lambda: ledger.steps,
            monitored=lambda: self.monitor.as_seen(task),
            compare=lambda kept, now: estimate_shares([(kept, now)])[0],
        )

    def renew_references(self, task: Task, labels: Sequence[int], learned: Samples) -> None:
        """From now on these classes are compared with their concept in this task."""
        self.handler.renew_reference(task, labels, learned)

    def evaluate(self, task: Task) -> Scores:
        """How accurate the learner is on the test samples of all tasks so far."""
        tests = task.tests()
        logits = self.learner.logits(tests.images)
        return score(logits, tests.labels, task.classes_by_task(), task=task.number)

    @property
    def result(self) -> Result:
        """All numbers of a complete run, under the keys of `result.json`; `save` writes a folder."""
        from driftwise.runs.result import result_of

        return result_of(self)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while a run goes on."""
        return {
            "learner": self.learner.state_dict(),
            "monitor": self.monitor.state_dict(),
            "ledger": self.ledger.state_dict(),
            "labels": self.labels.state_dict(),
            "adaptation": self.adaptation_state.state_dict(),
            "cache": None if self.cache is None else self.cache.state_dict(),
            **({"stream": state} if (state := self.stream.state_dict()) else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        if "stream" in state:  # first: what is read of the stream must be scaled as before
            self.stream.load_state_dict(state["stream"])
        self.learner.load_state_dict(state["learner"])
        self.monitor.load_state_dict(state["monitor"])
        self.ledger.load_state_dict(state["ledger"])
        if "labels" in state:  # not in checkpoints of earlier versions
            self.labels.load_state_dict(state["labels"])
        self.adaptation_state.load_state_dict(state.get("adaptation", {}))
        if self.cache is not None:
            self.cache.load_state_dict(state["cache"])


def _refuse_other_streams(stream: Stream, seed: int) -> None:
    """UserError where another process has other tasks, drifts or samples."""
    classes = range(stream.num_classes)

    def digest(part: str) -> str:
        samples = stream.raw_samples(part, classes, 1)
        return digest_of([samples.images, samples.labels, samples.ids])

    Group().refuse_difference(
        "stream",
        {
            "classes": list(stream.class_names),
            "schedule": stream.schedule.to_json(),
            "batch_size": stream.batch_size,
            "training samples": digest("train"),
            "test samples": digest("test"),
            "seed of the stream": stream.seed,
            "seed of the loop": seed,
        },
    )
