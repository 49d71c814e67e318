"""From a config to the objects of a run."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from driftwise.allocation import clear_out_of_memory
from driftwise.config import registry
from driftwise.config.benchmarks import QUIET, Notify
from driftwise.config.custom import CustomPart
from driftwise.config.learners import (
    Statistics,
    channel_statistics,
    make_learner,
    refuse_without_features,
)
from driftwise.config.presets import (
    OF_GRADIENTS,
    PUBLISHED_ENCODER,
    RULE,
    WITHOUT_HARM,
    WITHOUT_WEIGHTS,
    asks_learner,
    compares_pixels,
    learns_vectors,
    settled,
    with_code_identity,
)
from driftwise.config.schema import RunConfig, changed
from driftwise.config.untestable import untestable_checks
from driftwise.datasets.cache import verified_sha256
from driftwise.datasets.readers.tiny_imagenet import difference_from_published
from driftwise.datasets.reading import Warn
from driftwise.datasets.validate import check_dataset, identity_of, is_sampled, sampled_identity_of
from driftwise.detect import (
    Detector,
    DetectorContext,
    EncoderContext,
    LearnerEncoder,
)
from driftwise.detect.base import reads_monitored
from driftwise.drift_loop import DriftLoop
from driftwise.encoders.embedding_cache import EmbeddingCache
from driftwise.encoders.loading import load
from driftwise.errors import UserError
from driftwise.methods import AnalyticMethod, Method
from driftwise.runs.store import read_config
from driftwise.streams import Stream, WrongAnswers, class_incremental
from driftwise.types import Dataset, Encoding


@clear_out_of_memory("free some memory, or take a smaller network, buffer or data set")
def assemble(
    config: RunConfig,
    data: Dataset | None = None,
    network: nn.Module | None = None,
    *,
    frozen_encoder: Any = None,
    notify: Notify = QUIET,
) -> DriftLoop:
    """The loop that a config describes, bound to its stream; `presets.resolve` has completed it.

    `data` takes the place of the benchmark's own, `network` that of the config's backbone,
    `frozen_encoder` that of the encoder that the config names.
    """
    config = with_code_identity(config, network_given=network is not None)
    dataset = load_data(config, notify) if data is None else check_dataset(data, source="data")
    # A data set from Python may have been changed since it was read.
    is_ours = data is None and not registry.is_custom("benchmark", config.benchmark)
    digest = verified_sha256(dataset.images) if is_ours else None
    config = with_data_identity(config, dataset, images_sha256=digest, warn=notify.warn)
    if dataset.images.ndim == 2 and not learns_vectors(config):
        raise UserError(
            f"{config.benchmark} holds feature vectors, which nothing said before they were read; "
            'set scaling="standard" (or "signed-log", "none"), which says so'
        )
    stream = make_stream(config, dataset, frozen_encoder)

    @functools.cache
    def statistics() -> Statistics:
        first = next(task for task in stream.tasks() if task.new_classes)
        return channel_statistics(first.train())

    learner = make_learner(
        config,
        stream.image_shape,
        stream.num_classes,
        dtype=stream.blank.dtype,
        statistics=statistics if config.normalise else None,
        network=network,
    )
    refuse_without_features(learner, stream.image_shape, stream.blank.dtype)
    loop = DriftLoop(
        learner,
        detector=lambda context: registry.make("detector", config, context),
        adaptation=registry.make("adaptation", config),
        encoder=registry.find("encoder", settled(config.encoder)).factory(),
        reference=settled(config.reference),
        fingerprint_size=config.fingerprint_size,
        monitor_labels=settled(config.monitor_labels),
        min_harm=config.min_harm,
        only_just_drifted=config.checked == "just-drifted",
        label_budget=config.label_budget,
        wrong_answers=WrongAnswers(share=config.wrong_answers, hostile=config.hostile_answers),
        seed=config.seed,
    ).bind(stream)
    loop.built_from = config
    method: Method | AnalyticMethod = learner.method
    untestable = untestable_checks(
        config, stream, loop.detector, rehearses=getattr(method, "rehearses", False)
    )
    loop.warnings = (
        *stream.warnings,
        *([untestable] if untestable else []),
        *warnings_about(config, loop.detector, method),
    )
    return loop


def untestable_warning(config: RunConfig, dataset: Dataset) -> str:
    """`untestable_checks` of a run before it is assembled."""
    if registry.is_custom("detector", settled(config.detector)):
        return ""  # how a custom detector uses its encoder is not known
    stream = make_stream(config, dataset)

    def never(_: Tensor) -> Encoding:
        raise AssertionError("sizes are known without encoding")

    context = EncoderContext(learner=never, image_shape=stream.image_shape, seed=config.seed)
    blind = DetectorContext(
        encoder=lambda: LearnerEncoder(context),
        drifting=stream.schedule.drifting,
        labels=settled(config.monitor_labels),
    )
    method = registry.find("method", config.method).factory()
    return untestable_checks(
        config,
        stream,
        registry.make("detector", config, blind),
        rehearses=getattr(method, "rehearses", not registry.is_analytic(config.method)),
    )


def warnings_about(
    config: RunConfig, detector: Detector, method: Method | AnalyticMethod
) -> tuple[str, ...]:
    """What makes the result of such a run doubtful; shown before it begins and kept with it."""
    fixed = registry.find("encoder", settled(config.encoder)).factory().fixed
    monitored = reads_monitored(detector)
    on_buffer = monitored and config.reference == "memory"
    draw, useless = 0, list[str]()
    if isinstance(method, AnalyticMethod):
        useless = _without_meaning(config)
    else:
        draw = method.samples_per_draw(
            minibatch_size=settled(config.minibatch_size), batch_size=settled(config.batch_size)
        )
    warnings = (
        (
            on_buffer and not fixed and not compares_pixels(config),
            "the encoder has trained on the buffer's samples, so it is more certain of them than of "
            'fresh ones although nothing drifted: expect false alarms (use reference="held-out")',
        ),
        (
            on_buffer and fixed and asks_learner(config),
            "the learner has trained on the buffer's samples, so it is better at them than at fresh "
            "ones although nothing drifted: expect false alarms, and harm where there is none (use "
            'reference="held-out")',
        ),
        (
            on_buffer and config.monitor_labels == "unknown" and config.buffer_policy == "balanced",
            "the buffer holds all classes equally often, the stream may not: their mix alone can "
            'raise the alarm (use reference="held-out" or reference="fingerprint")',
        ),
        (
            monitored and config.monitor == "test",
            "the detector reads the samples that score the run, as the published experiments did: "
            'what is adapted to them is also scored on them (use monitor="holdout")',
        ),
        (
            config.preset == "published"
            and config.encoder == WITHOUT_WEIGHTS
            and config.detector not in WITHOUT_HARM,
            f"this run encodes with {WITHOUT_WEIGHTS}, the published detector with "
            f"{PUBLISHED_ENCODER}, which finds other drifts: put its weights, resnet18.safetensors,"
            f" where data lie, or choose encoder {PUBLISHED_ENCODER}",
        ),
        (
            draw > (config.buffer_size or draw),
            f"a draw of {draw} samples is larger than the buffer, which holds "
            f"{config.buffer_size}: every step draws all there are",
        ),
        (
            bool(useless),
            f"the method {config.method} computes its classifier from class statistics, in one "
            f"pass: {', '.join(useless)} {'does' if len(useless) == 1 else 'do'} nothing",
        ),
    )
    return tuple(message for applies, message in warnings if applies)


def _without_meaning(config: RunConfig) -> list[str]:
    """Settings other than the default which mean nothing to an analytic method."""
    usual = {**vars(RunConfig()), **RULE}
    names = (*OF_GRADIENTS, "optimiser", "scheduler", "buffer_policy", "memory_format")
    useless = [name for name in names if getattr(config, name) != usual[name]]
    return [*useless, "epochs"] if settled(config.epochs) > 1 else useless


def load_data(config: RunConfig, notify: Notify = QUIET) -> Dataset:
    """The data set of the config's benchmark."""
    entry = registry.find("benchmark", config.benchmark)
    where = [] if config.data is None else [Path(config.data)]
    options = config.options.get("benchmark", {})
    if isinstance(entry, CustomPart):
        dataset = entry.make(*where, options=options)
    else:
        dataset = entry.factory()(*where, notify=notify, **entry.fixed, **options)
    _refuse_unpublished_order(config, dataset)
    return check_dataset(dataset, source=config.benchmark)


def _refuse_unpublished_order(config: RunConfig, dataset: Dataset) -> None:
    """Published numbers hold for one order of classes; another order makes other tasks."""
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
    rule; `warn` gets a message.
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
    return changed(config, data_identity=identity)


def as_begun(config: RunConfig, folder: str | os.PathLike[str]) -> RunConfig:
    """The config to resume with in a folder: a run keeps its first kind of data identity."""
    try:
        begun = read_config(folder).get("data_identity")
    except UserError:
        return config  # there is no run yet, or none that can be resumed
    if config.data_identity is None and isinstance(begun, str) and is_sampled(begun):
        return changed(config, data_identity=begun)
    return config


def frozen_of(config: RunConfig) -> EmbeddingCache | None:
    """The frozen encoder that a config names, with its features on disk."""
    if (name := config.frozen_encoder) is None:
        return None
    if " " in name:  # as `runs.run` calls an object
        raise UserError(
            f"the run was made with a frozen encoder given from Python ({name}): give it again, as "
            "frozen_encoder=..."
        )
    return EmbeddingCache(load(name))


def make_stream(config: RunConfig, dataset: Dataset, frozen_encoder: Any = None) -> Stream:
    """The stream that a config describes."""
    method = registry.find("method", config.method).factory()  # a custom one may be a function
    return class_incremental(
        dataset,
        num_tasks=settled(config.num_tasks) if config.tasks is None else None,
        tasks=config.tasks,
        class_order=config.class_order,
        events=config.events or (),
        num_drifts=settled(config.num_drifts),
        transform=config.transform or "identity",
        severity=config.severity or 1,
        seed=config.seed,
        scope=settled(config.scope),
        max_classes_per_drift=config.max_classes_per_drift,
        sequential=config.sequential,
        permutation_unit=settled(config.permutation_unit),
        recurring_in_training=settled(config.recurring_in_training),
        drift_share=config.drift_share,
        drift_over_tasks=config.drift_over_tasks,
        concept_per_class=config.concept_per_class,
        drift_seed=config.drift_seed,
        domains=config.domains or (),
        first_domain=config.first_domain,
        monitor=settled(config.monitor),
        reference=settled(config.reference),
        max_per_class=config.max_per_class,
        batch_size=settled(config.batch_size),
        encoder=frozen_of(config) if frozen_encoder is None else frozen_encoder,
        scaling=config.scaling,
        cumulative=getattr(method, "cumulative", False),
        source=config.benchmark,
    )
