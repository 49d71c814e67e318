"""From a config to the parts of a run."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from driftwise.allocation import clear_out_of_memory
from driftwise.config import registry
from driftwise.config.benchmarks import QUIET, Tell
from driftwise.config.custom import CustomPart, is_import_path
from driftwise.config.learners import channel_statistics, input_shape_of, make_learner
from driftwise.config.own_network import refuse_without_features
from driftwise.config.presets import (
    PUBLISHED_ENCODER,
    TELL_NO_HARM,
    WITHOUT_WEIGHTS,
    asks_learner,
    looks_at_pixels,
    settled,
    with_code_identity,
)
from driftwise.config.schema import RunConfig
from driftwise.config.untestable import untestable_checks
from driftwise.datasets.cache import verified_sha256
from driftwise.datasets.readers.tiny_imagenet import difference_from_published
from driftwise.datasets.reading import Warn
from driftwise.datasets.validate import check_dataset, identity_of, is_sampled, sampled_identity_of
from driftwise.detect import (
    Detector,
    Encoder,
    FingerprintReference,
    HeldOutReference,
    LearnerEncoder,
    Monitor,
    Setting,
    Surroundings,
)
from driftwise.detect.encoding_cache import Cached
from driftwise.drift_handler import DriftHandler
from driftwise.errors import UserError
from driftwise.learner import Learner
from driftwise.methods import Objective
from driftwise.metrics import FlopMeter, Ledger, Scores, score
from driftwise.part_state import PartState
from driftwise.protocols import Adaptation, AdaptationContext, HasSamples
from driftwise.runs.store import read_config
from driftwise.stats.fraction import estimate_shares
from driftwise.streams import (
    Schedule,
    Stream,
    StreamLabels,
    Task,
    make_schedule,
    make_script,
    read_event,
)
from driftwise.streams.placement import describe_sizes, split_classes
from driftwise.streams.split import make_parts, shortages
from driftwise.types import Dataset, Encoding, Parts, Samples, StepReport


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """The parts of a run, put together."""

    config: RunConfig
    """as it runs: it also says which data these are"""
    stream: Stream
    learner: Learner
    monitor: Monitor
    adaptation: Adaptation
    adaptation_state: PartState
    ledger: Ledger
    labels: StreamLabels
    context: Callable[[Task], AdaptationContext]
    """what the adaptation works with during a task"""
    evaluate: Callable[[Task], Scores]
    cache: Cached | None
    """what a fixed encoder has said so far; None: none is at work"""
    warnings: tuple[str, ...]

    @property
    def handler(self) -> DriftHandler:
        """What looks after the learner."""
        return DriftHandler(
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
            "labels": self.labels.state_dict(),
            "adaptation": self.adaptation_state.state_dict(),
            "cache": None if self.cache is None else self.cache.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self.learner.load_state_dict(state["learner"])
        self.monitor.load_state_dict(state["monitor"])
        self.ledger.load_state_dict(state["ledger"])
        if "labels" in state:  # not in checkpoints of earlier versions
            self.labels.load_state_dict(state["labels"])
        self.adaptation_state.load_state_dict(state.get("adaptation", {}))
        if self.cache is not None:
            self.cache.load_state_dict(state["cache"])


@clear_out_of_memory("free some memory, or take a smaller network, buffer or data set")
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
    config = with_code_identity(config, network_given=network is not None)
    dataset = load_data(config, tell) if data is None else check_dataset(data, source="data")
    # What comes from Python may have been written to since it was read.
    is_ours = data is None and not is_import_path(config.benchmark)
    digest = verified_sha256(dataset.images) if is_ours else None
    config = with_data_identity(config, dataset, images_sha256=digest, warn=tell.warn)
    parts = make_parts_of(config, dataset)
    stream = make_stream(config, dataset, parts)
    shortage = shortages(
        dataset, parts, [label for task in stream.schedule.tasks for label in task]
    )
    measured = None
    if config.normalise:  # by the first task that brings images
        first = next(task for task in stream.tasks() if task.new_classes)
        measured = channel_statistics(first.train())
    learner = make_learner(
        config,
        stream.image_shape,
        stream.num_classes,
        statistics=None if measured is None else lambda: measured,
        network=network,
    )
    refuse_without_features(learner, stream.image_shape)
    ledger = Ledger(label_budget=config.label_budget)
    meter = FlopMeter(ledger.add_flops)
    for monitored in learner.networks:
        meter.watch(monitored, input_shape_of(stream.image_shape))

    caches: list[Cached] = []

    @functools.cache  # one for the detector and for what it compares with
    def encoder() -> Encoder:
        made: Encoder = registry.find("encoder", settled(config.encoder)).factory()(
            Surroundings(learner=learner.encode, image_shape=stream.image_shape, seed=config.seed)
        )
        for own in made.networks:
            meter.watch(own, input_shape_of(stream.image_shape))
        if not made.fixed:
            return made
        caches.append(Cached(made))
        return caches[0]

    def rehearse(batch: Samples | None, *, rate: float = 1.0) -> StepReport:
        ledger.add_step()
        return learner.rehearse(batch, rate=rate)

    labels = StreamLabels(
        allowance=ledger.allowance,
        book=lambda count: ledger.book_labels("adaptation", count),
        seed=config.seed,
    )

    def context(task: Task) -> AdaptationContext:
        return AdaptationContext(
            memory=learner.memory,
            labels=labels.of(task),
            annotate=learner.annotate,
            encode=learner.encode,
            rehearse=rehearse,
            steps=lambda: ledger.steps,
            monitored=lambda: monitor.as_seen(task),
            compare=lambda kept, now: estimate_shares([(kept, now)])[0],
        )

    def evaluate(task: Task) -> Scores:
        tests = task.tests()
        logits = learner.logits(tests.images)
        return score(logits, tests.labels, task.classes_by_task(), task=task.number)

    drifting = stream.schedule.drifting
    detector = registry.make(
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
    adaptation = registry.make("adaptation", config)
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
        adaptation=adaptation,
        adaptation_state=PartState(adaptation, "adaptation"),
        context=context,
        evaluate=evaluate,
        ledger=ledger,
        labels=labels,
        cache=caches[0] if caches else None,
        warnings=(
            *shortage,
            *uneven_tasks(config, stream.schedule),
            *filter(
                None,
                [
                    untestable_checks(
                        config, stream, detector, rehearses=learner.objective.rehearses
                    )
                ],
            ),
            *warnings_about(config, detector, learner.objective),
        ),
    )


def make_reference(
    config: RunConfig, encoder: Callable[[], Encoder], learner: Learner
) -> HasSamples | HeldOutReference | FingerprintReference:
    """What current samples are compared with."""
    match config.reference:
        case "held-out":
            return HeldOutReference()
        case "fingerprint":
            return FingerprintReference(encoder(), size=config.fingerprint_size, seed=config.seed)
    return learner.memory


def foreseen(config: RunConfig, dataset: Dataset) -> str:
    """What is known about the checks of a run before it is put together; see `foresight`."""
    if is_import_path(settled(config.detector)):
        return ""  # what one's own takes its encoder for is not known
    stream = make_stream(config, dataset)

    def never(_: Tensor) -> Encoding:
        raise AssertionError("nothing is compared to know the sizes")

    around = Surroundings(learner=never, image_shape=stream.image_shape, seed=config.seed)
    blind = Setting(
        encoder=lambda: LearnerEncoder(around),
        drifting=stream.schedule.drifting,
        labels=config.monitor_labels,
    )
    method = registry.find("method", config.method).factory()
    return untestable_checks(
        config,
        stream,
        registry.make("detector", config, blind),
        rehearses=getattr(method, "rehearses", True),
    )


def uneven_tasks(config: RunConfig, schedule: Schedule) -> tuple[str, ...]:
    """What a person should know where classes did not divide into equal tasks."""
    sizes = {len(task) for task in schedule.tasks}
    if config.tasks is not None or len(sizes) == 1:
        return ()
    return (describe_sizes(schedule.tasks),)


def warnings_about(config: RunConfig, detector: Detector, objective: Objective) -> tuple[str, ...]:
    """What a person should know before such a run begins, and when its result is read."""
    warnings = []
    fixed = registry.find("encoder", settled(config.encoder)).factory().fixed
    learns = not fixed and not looks_at_pixels(config)
    if detector.watches and learns and config.reference == "memory":
        warnings.append(
            "the encoder has trained on the memory's samples, so they look more certain to it than "
            'fresh ones although nothing drifted: expect false alarms (use reference="held-out")'
        )
    if detector.watches and fixed and config.reference == "memory" and asks_learner(config):
        warnings.append(
            "the learner has trained on the memory's samples, so it is better at them than at fresh "
            "ones although nothing drifted: expect false alarms, and harm where there is none (use "
            'reference="held-out")'
        )
    if (
        detector.watches
        and config.monitor_labels == "unknown"
        and config.reference == "memory"
        and config.buffer_policy == "balanced"
    ):
        warnings.append(
            "the memory holds all classes equally often, the stream may not: their mix alone can "
            'raise the alarm (use reference="held-out" or reference="fingerprint")'
        )
    if detector.watches and config.monitor == "test":
        warnings.append(
            "the detector watches the samples that score the run, as the published experiments did: "
            'what is adapted to them is also scored on them (use monitor="holdout")'
        )
    if (
        config.preset == "published"
        and config.encoder == WITHOUT_WEIGHTS
        and config.detector not in TELL_NO_HARM
    ):
        warnings.append(
            f"this run encodes with {WITHOUT_WEIGHTS}, the published detector with "
            f"{PUBLISHED_ENCODER}, which finds other drifts: put its weights, resnet18.safetensors,"
            f" where data lie, or choose encoder {PUBLISHED_ENCODER}"
        )
    draw = objective.samples_per_draw(
        minibatch_size=settled(config.minibatch_size), batch_size=settled(config.batch_size)
    )
    if draw > settled(config.buffer_size):
        warnings.append(
            f"a draw of {draw} samples is larger than the memory, which holds "
            f"{config.buffer_size}: every step draws all there are"
        )
    return tuple(warnings)


def load_data(config: RunConfig, tell: Tell = QUIET) -> Dataset:
    """The data set of the config's benchmark."""
    entry = registry.find("benchmark", config.benchmark)
    where = [] if config.data is None else [Path(config.data)]
    options = config.options.get("benchmark", {})
    if isinstance(entry, CustomPart):
        dataset = entry.make(*where, options=options)
    else:
        dataset = entry.factory()(*where, tell=tell, **entry.fixed, **options)
    _refuse_unpublished_order(config, dataset)
    return check_dataset(dataset, source=config.benchmark)


def _refuse_unpublished_order(config: RunConfig, dataset: Dataset) -> None:
    """Published numbers belong to one order of classes; in another one, tasks are other tasks."""
    if config.preset != "published" or config.benchmark != "tinyimagenet-cd":
        return
    if config.class_order is not None or config.tasks is not None:
        return  # chosen by the user
    if (difference := difference_from_published(dataset.class_names)) is not None:
        raise UserError(
            "the preset published needs Tiny-ImageNet with its classes in the order of the official"
            f" wnids.txt; in the data found {difference}. Put the wnids.txt of the official archive"
            " into the data folder, or choose your own order with class_order"
        )


def with_data_identity(
    config: RunConfig,
    dataset: Dataset,
    *,
    images_sha256: str | None = None,
    warn: Warn | None = None,
) -> RunConfig:
    """The config with a digest of its data; refused if it was made with other ones.

    A config of an earlier version keeps its own kind of identity, which is compared by its own
    rule; `warn` is told so.
    """
    is_old = is_sampled(config.data_identity)
    identity = sampled_identity_of(dataset) if is_old else identity_of(dataset, images_sha256)
    if config.data_identity not in (None, identity):
        raise UserError(
            f"the data are not those that the config was made with (identity {identity}, not "
            f"{config.data_identity}); to run it on these, remove data_identity from the config"
        )
    if is_old and warn is not None:
        warn(
            f"the data identity {identity} was made by an earlier version and covers all labels "
            "but at most 1,000 images: these are as they were, the others were not compared"
        )
    return replace(config, data_identity=identity)


def as_begun(config: RunConfig, folder: str | os.PathLike[str]) -> RunConfig:
    """The config to go on with in a folder: a run keeps the kind of data identity it began with."""
    try:
        begun = read_config(folder).get("data_identity")
    except UserError:
        return config  # there is no run yet, or none that can be gone on with
    if config.data_identity is None and isinstance(begun, str) and is_sampled(begun):
        return replace(config, data_identity=begun)
    return config


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
        monitor_test=config.monitor == "test",
        keep_reference=config.reference == "held-out",
        seed=config.seed,
        max_per_class=config.max_per_class,
    )


def make_stream(config: RunConfig, dataset: Dataset, parts: Parts | None = None) -> Stream:
    """The data set, cut into the config's parts if need be, and played by its schedule."""
    method = registry.find("method", config.method).factory()  # one's own may be a function
    return Stream(
        dataset,
        make_parts_of(config, dataset) if parts is None else parts,
        make_schedule_of(config, len(dataset.class_names)),
        batch_size=settled(config.batch_size),
        seed=config.seed,
        cumulative=getattr(method, "cumulative", False),
    )
