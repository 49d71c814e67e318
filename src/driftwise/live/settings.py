"""The settings of a live learner."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from driftwise.config import registry
from driftwise.config.fields import settle
from driftwise.config.presets import goes_on, resolve, settled, with_detector
from driftwise.config.schema import RunConfig
from driftwise.errors import UserError, unknown_name

OF_RUNS = (
    "buffer_size",
    "buffer_policy",
    "fresh_samples",
    "scaling",
    "method",
    "detector",
    "adaptation",
    "encoder",
    "min_harm",
    "label_budget",
    "minibatch_size",
    "optimiser",
    "lr",
    "momentum",
    "weight_decay",
    "augmentation",
    "normalise",
    "channels",
    "precision",
    "memory_format",
    "device",
    "preset",
    "seed",
    "options",
)
"""Fields of a run's config that do not need tasks, epochs or a schedule."""

_NOT_LIVE = {
    "method": {"joint": "trains on all samples so far, which a live learner does not keep"},
    "detector": {"oracle": "reads the schedule of a benchmark, and a live stream has none"},
}

_SEQUENTIAL = {"reference_size": 10, "check_rows": 1}
"""For detectors that accumulate evidence: few reference samples, and each sample is checked."""

ADAM_RATES = {"adam": 0.003, "adamw": 0.003}
"""Learning rates that need no tuning, see docs/log.md; SGD takes the preset's."""


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """How a live learner monitors, requests labels and grows."""

    grow: bool = True
    """whether labels beyond the network's outputs give it new ones"""
    max_classes: int = 10_000
    """larger labels are refused: one mistaken label must not cost gigabytes"""
    batch_size: int | None = 32
    """labelled samples of a gradient step at most; None: all of a batch"""
    replay_steps: int | None = None
    """steps on the replay buffer and on recent samples after each step on `batch_size` labelled
    samples; after a smaller batch fewer, in proportion, rounded up. None: 8 for a network of up to
    a million weights, else 2"""
    average_steps: int = 30
    """predictions use an average of the weights over about so many steps, fewer at the start; 0: the
    weights as they are. A method that averages by itself (cls-er) is left alone"""
    outlier_factor: float | None = 50.0
    """samples with a value more standard deviations from the mean are quarantined, unless more such
    samples of their class follow; None: none are. Images as bytes have no outliers"""
    max_gradient: float | None = 10.0
    """gradients are clipped to this norm; None: they are not"""
    watch_every: int = 6
    """of so many labelled samples of a class one is monitored, and never trained on"""
    reference_size: int = 100
    """reference samples of a class; by default 10 for the detector sequential, which goes on to
    compare each sample with all before it"""
    check_rows: int = 50
    """monitored samples of a class that make its next check due; by default 1 for the detector
    sequential"""
    recent_rows: int = 2000
    """labelled samples, and unlabelled ones, kept for realignment and for late answers"""
    catch_up_steps: int = 100
    """steps after a realignment: until so many are made, a batch without labelled samples is followed
    by one on the replay buffer alone"""
    learning_share: float = 0.25
    """fraction of the processor time of learning and predictions together that learning gets, however
    many threads predict; predictions beyond that wait"""
    label_seconds: float = 30.0
    """how long a batch waits for the label callback; later answers are used when they come"""
    save_seconds: float | None = 60.0
    """where there is a folder: a batch that ends so long after the last save is followed by one;
    None: only `save` and `close` save"""

    def __post_init__(self) -> None:
        settle(self)
        least = {
            "max_classes": 1,
            "batch_size": 1,
            "watch_every": 2,
            "reference_size": 2,
            "check_rows": 1,
            "recent_rows": 1,
            "catch_up_steps": 0,
            "replay_steps": 0,
            "average_steps": 0,
            "outlier_factor": 1,
        }
        for name, fewest in least.items():
            value = getattr(self, name)
            if value is not None and value < fewest:
                raise UserError(f"{name} must be at least {fewest}; got {value}")
        if not 0 <= self.learning_share <= 0.9:
            raise UserError(f"learning_share must lie from 0 to 0.9; got {self.learning_share}")
        if self.max_gradient is not None and not self.max_gradient > 0:
            raise UserError(f"max_gradient must be above 0; got {self.max_gradient}")
        if not 0 < self.label_seconds < 10**6:
            raise UserError(
                f"label_seconds must lie above 0, up to a week; got {self.label_seconds}"
            )
        if self.save_seconds is not None and not self.save_seconds >= 0:
            raise UserError(f"save_seconds must be at least 0, or None; got {self.save_seconds}")


def to_json(config: RunConfig, live: LiveSettings) -> dict[str, Any]:
    """All settings as plain data, complete."""
    plain = config.to_json()
    return {**{name: plain[name] for name in OF_RUNS}, **dataclasses.asdict(live)}


def refuse_unknown(names: Iterable[str]) -> None:
    """UserError for the first name that is no setting of a live learner."""
    known = [*OF_RUNS, *(field.name for field in dataclasses.fields(LiveSettings))]
    for name in names:
        if name not in known:
            raise unknown_name("setting of a live learner", name, known)


def settings_from(
    settings: Mapping[str, Any], *, backbone: str | None, network_given: bool = False
) -> tuple[RunConfig, LiveSettings]:
    """The complete config of the components, and the live settings; unknown names are refused.

    A given network gets samples as they are, unless `normalise` is set.
    """
    refuse_unknown(settings)
    own = {field.name for field in dataclasses.fields(LiveSettings)}
    of_run = {name: value for name, value in settings.items() if name not in own}
    if backbone is None:  # an analytic method
        of_run.pop("buffer_size", None)
    elif of_run.get("scaling") is not None:
        raise UserError(
            f"scaling is for class statistics without a network; got {of_run['scaling']!r}: leave it "
            "out, and let normalise bring a network's inputs to one scale"
        )
    elif of_run.get("preset", "auto") == "auto":
        of_run = {"optimiser": "adam", "normalise": not network_given, **of_run}
    if of_run.get("optimiser") in ADAM_RATES and of_run.get("lr") is None:
        of_run["lr"] = ADAM_RATES[of_run["optimiser"]]
    config = with_detector(
        RunConfig(benchmark="own", backbone=backbone, reference="held-out", **of_run)
    )
    for part, reasons in _NOT_LIVE.items():
        if (name := getattr(config, part)) in reasons:
            raise UserError(f"{part} {name} {reasons[name]}; choose another one")
    live_settings = {name: value for name, value in settings.items() if name in own}
    if goes_on(config):
        live_settings = {**_SEQUENTIAL, **live_settings}
    live = LiveSettings(**live_settings)
    return resolve(_with_spending(config), network_given=network_given), live


def _with_spending(config: RunConfig) -> RunConfig:
    """By default the significance level of a detector holds for all checks of the stream together."""
    options_type = registry.find("detector", settled(config.detector)).options_type()
    names = {field.name for field in dataclasses.fields(options_type)} if options_type else set()
    given = config.options.get("detector", {})
    if "spending" not in names or "spending" in given:
        return config
    options = {**config.options, "detector": {**given, "spending": "inverse-square"}}
    return dataclasses.replace(config, options=options)
