"""From a config to the parts of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from recollect.adapt.wrapped import load_state_of, state_of
from recollect.care import Care
from recollect.data.check import check_dataset
from recollect.data.identity import identity_of
from recollect.data.parts import make_parts, shortages
from recollect.detect import (
    Detector,
    Encoder,
    FingerprintReference,
    HeldOutReference,
    Monitor,
    Setting,
    Surroundings,
)
from recollect.detect.cached import Cached
from recollect.detect.share import estimate_shares
from recollect.errors import UserError
from recollect.evaluate import FlopMeter, Ledger, Scores, score
from recollect.experiment import catalogue
from recollect.experiment.benchmarks import QUIET, Tell
from recollect.experiment.config import RunConfig
from recollect.experiment.learners import channel_statistics, input_shape_of, make_learner
from recollect.experiment.presets import asks_learner, looks_at_pixels, settled
from recollect.learn import Learner, Objective
from recollect.shapes import Adaptation, HasRows, Workbench
from recollect.streams import (
    Schedule,
    Stream,
    Task,
    TaskLabels,
    make_schedule,
    make_script,
    read_event,
)
from recollect.streams.placement import split_classes
from recollect.types import Dataset, Parts, Rows, StepReport


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """The parts of a run, put together."""

    config: RunConfig
    """as it runs: it also says which data these are"""
    stream: Stream
    learner: Learner
    monitor: Monitor
    adaptation: Adaptation
    ledger: Ledger
    bench: Callable[[Task], Workbench]
    """what the adaptation works with during a task"""
    evaluate: Callable[[Task], Scores]
    cache: Cached | None
    """what a fixed encoder has said so far; None: none is at work"""
    warnings: tuple[str, ...]

    @property
    def care(self) -> Care:
        """What looks after the learner."""
        return Care(
            monitor=self.monitor,
            adaptation=self.adaptation,
            learner=self.learner,
            ledger=self.ledger,
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while a run goes on."""
        return {
            "learner": self.learner.state_dict(),
            "monitor": self.monitor.state_dict(),
            "ledger": self.ledger.state_dict(),
            "adaptation": state_of(self.adaptation),
            "cache": None if self.cache is None else self.cache.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self.learner.load_state_dict(state["learner"])
        self.monitor.load_state_dict(state["monitor"])
        self.ledger.load_state_dict(state["ledger"])
        load_state_of(self.adaptation, state.get("adaptation", {}))
        if self.cache is not None:
            self.cache.load_state_dict(state["cache"])


def assemble(
    config: RunConfig,
    data: Dataset | None = None,
    network: nn.Module | None = None,
    *,
    tell: Tell = QUIET,
) -> Assembly:
    """Every part of a run that `presets.resolve` has completed the config of.

    `data` takes the place of the benchmark's own, `network` that of the config's backbone.
    """
    dataset = load_data(config, tell) if data is None else check_dataset(data, source="data")
    config = with_data_identity(config, dataset)
    parts = make_parts_of(config, dataset)
    stream = make_stream(config, dataset, parts)
    shortage = shortages(
        dataset, parts, [label for task in stream.schedule.tasks for label in task]
    )
    measured = None
    if config.normalise:  # by the first task that brings pictures
        first = next(task for task in stream.tasks() if task.new_classes)
        measured = channel_statistics(first.train())
    learner = make_learner(
        config,
        stream.image_shape,
        stream.num_classes,
        statistics=None if measured is None else lambda: measured,
        network=network,
    )
    ledger = Ledger(label_budget=config.label_budget)
    meter = FlopMeter(ledger.add_flops)
    for watched in learner.networks:
        meter.watch(watched, input_shape_of(stream.image_shape))

    caches: list[Cached] = []

    @functools.cache  # one for the detector and for what it compares with
    def encoder() -> Encoder:
        made: Encoder = catalogue.find("encoder", settled(config.encoder)).factory()(
            Surroundings(learner=learner.encode, image_shape=stream.image_shape, seed=config.seed)
        )
        for own in made.networks:
            meter.watch(own, input_shape_of(stream.image_shape))
        if not made.fixed:
            return made
        caches.append(Cached(made))
        return caches[0]

    def rehearse(batch: Rows | None, *, rate: float = 1.0) -> StepReport:
        ledger.add_step()
        return learner.rehearse(batch, rate=rate)

    def bench(task: Task) -> Workbench:
        return Workbench(
            memory=learner.memory,
            labels=TaskLabels(
                task,
                allowance=ledger.allowance,
                book=lambda count: ledger.book_labels("adaptation", count),
                seed=config.seed,
            ),
            annotate=learner.annotate,
            encode=learner.encode,
            rehearse=rehearse,
            steps=lambda: ledger.steps,
            watched=lambda: monitor.as_seen(task),
            compare=lambda kept, now: estimate_shares([(kept, now)])[0],
        )

    def evaluate(task: Task) -> Scores:
        tests = task.tests()
        logits = learner.logits(tests.images)
        return score(logits, tests.labels, task.classes_by_task(), task=task.number)

    drifting = stream.schedule.drifting
    detector = catalogue.make(
        "detector",
        config,
        Setting(
            encoder=encoder,
            drifting=drifting,
            seed=config.seed,
            labels=config.monitor_labels,
            learner=learner.encode if asks_learner(config) else None,
        ),
    )
    reference = make_reference(config, encoder, learner)
    monitor = Monitor(
        detector,
        reference,
        labels=config.monitor_labels,
        min_harm=config.min_harm,
        just_drifted=drifting if config.checked == "just-drifted" else None,
        book=lambda count: ledger.book_labels("monitoring", count),
    )
    return Assembly(
        config=config,
        stream=stream,
        learner=learner,
        monitor=monitor,
        adaptation=catalogue.make("adaptation", config),
        bench=bench,
        evaluate=evaluate,
        ledger=ledger,
        cache=caches[0] if caches else None,
        warnings=(*shortage, *warnings_about(config, detector, learner.objective)),
    )


def make_reference(
    config: RunConfig, encoder: Callable[[], Encoder], learner: Learner
) -> HasRows | HeldOutReference | FingerprintReference:
    """What current rows are compared with."""
    match config.reference:
        case "held-out":
            return HeldOutReference()
        case "fingerprint":
            return FingerprintReference(encoder(), size=config.fingerprint_size, seed=config.seed)
    return learner.memory


def warnings_about(config: RunConfig, detector: Detector, objective: Objective) -> tuple[str, ...]:
    """What a person should know before such a run begins, and when its result is read."""
    warnings = []
    fixed = catalogue.find("encoder", settled(config.encoder)).factory().fixed
    learns = not fixed and not looks_at_pixels(config)
    if detector.watches and learns and config.reference == "memory":
        warnings.append(
            "the encoder has trained on the memory's rows, so they look more certain to it than "
            "fresh ones although nothing drifted: expect false alarms (use --reference held-out)"
        )
    if detector.watches and fixed and config.reference == "memory" and asks_learner(config):
        warnings.append(
            "the learner has trained on the memory's rows, so it is better at them than at fresh "
            "ones although nothing drifted: expect false alarms, and harm where there is none (use "
            "--reference held-out)"
        )
    if (
        detector.watches
        and config.monitor_labels == "unknown"
        and config.reference == "memory"
        and config.buffer_policy == "balanced"
    ):
        warnings.append(
            "the memory holds all classes equally often, the stream may not: their mix alone can "
            "raise the alarm (use --reference held-out or fingerprint)"
        )
    if detector.watches and config.monitor == "test":
        warnings.append(
            "the detector watches the rows that score the run, as the published experiments did: "
            "what is adapted to them is also scored on them (use --monitor holdout)"
        )
    draw = objective.rows_per_draw(
        minibatch_size=settled(config.minibatch_size), batch_size=settled(config.batch_size)
    )
    if draw > settled(config.buffer_size):
        warnings.append(
            f"a draw of {draw} rows is larger than the memory, which holds "
            f"{config.buffer_size}: every step draws all there are"
        )
    return tuple(warnings)


def load_data(config: RunConfig, tell: Tell = QUIET) -> Dataset:
    """The data set of the config's benchmark."""
    entry = catalogue.find("benchmark", config.benchmark)
    where = [] if config.data is None else [Path(config.data)]
    telling = {} if catalogue.is_import_path(config.benchmark) else {"tell": tell}
    dataset = entry.factory()(*where, **telling, **config.options.get("benchmark", {}))
    return check_dataset(dataset, source=config.benchmark)


def with_data_identity(config: RunConfig, dataset: Dataset) -> RunConfig:
    """The config with a digest of its data; refused if it was made with other ones."""
    identity = identity_of(dataset)
    if config.data_identity not in (None, identity):
        raise UserError(
            f"the data are not those that the config was made with (identity {identity}, not "
            f"{config.data_identity}); to run it on these, remove data_identity from the config"
        )
    return replace(config, data_identity=identity)


def make_schedule_of(config: RunConfig, num_classes: int) -> Schedule:
    """The schedule that a config describes."""
    tasks = config.tasks
    if tasks is None:
        order = config.class_order if config.class_order is not None else range(num_classes)
        tasks = split_classes(tuple(order), settled(config.num_tasks))
    strangers = sorted({label for task in tasks for label in task} - set(range(num_classes)))
    if strangers:
        raise UserError(
            f"{config.benchmark} has classes 0 to {num_classes - 1}; the tasks name {strangers}"
        )
    recurring = settled(config.recurring_in_training)
    if config.events:
        return make_script(
            tasks,
            [read_event(event, source=f"event {n}") for n, event in enumerate(config.events, 1)],
            seed=config.seed,
            recurring_in_training=recurring,
            first_domain=config.first_domain,
        )
    return make_schedule(
        tasks,
        num_drifts=settled(config.num_drifts),
        transform=config.transform or "identity",
        severity=config.severity or 1,
        seed=config.seed,
        scope=settled(config.scope),
        max_classes_per_drift=config.max_classes_per_drift,
        sequential=config.sequential,
        unit=settled(config.permutation_unit),
        recurring_in_training=recurring,
        share=config.drift_share,
        over_tasks=config.drift_over_tasks,
        per_class=config.concept_per_class,
        drift_seed=config.drift_seed,
        domains=config.domains or (),
        first_domain=config.first_domain,
    )


def make_parts_of(config: RunConfig, dataset: Dataset) -> Parts:
    """The parts that a config cuts a data set into."""
    return make_parts(
        dataset,
        watch_test=config.monitor == "test",
        keep_reference=config.reference == "held-out",
        seed=config.seed,
        max_per_class=config.max_per_class,
    )


def make_stream(config: RunConfig, dataset: Dataset, parts: Parts | None = None) -> Stream:
    """The data set, cut into the config's parts if need be, and played by its schedule."""
    method = catalogue.find("method", config.method).factory()  # one's own may be a function
    return Stream(
        dataset,
        make_parts_of(config, dataset) if parts is None else parts,
        make_schedule_of(config, len(dataset.class_names)),
        batch_size=settled(config.batch_size),
        seed=config.seed,
        cumulative=getattr(method, "cumulative", False),
    )
