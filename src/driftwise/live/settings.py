"""What can be said about a live learner, beside what can be said about any run."""

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
"""Settings of a run that mean something without tasks, epochs and a schedule."""

_NOT_LIVE = {
    "method": {"joint": "trains on all samples ever seen, which a live learner does not keep"},
    "detector": {"oracle": "knows the schedule of a benchmark, and a live stream has none"},
}


_ROW_BY_ROW = {"reference_size": 10, "check_rows": 1}
"""Where evidence adds up: a class is watched from few samples on, and every sample is looked at."""


ADAM_RATES = {"adam": 0.003, "adamw": 0.003}
"""Rates that need no tuning, see docs/log.md; SGD takes the preset's."""


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """How a live learner watches, asks and grows."""

    grow: bool = True
    """whether labels beyond the network's outputs give it new ones"""
    max_classes: int = 10_000
    """labels from here on are refused: one mistaken label must not cost gigabytes"""
    batch_size: int | None = 32
    """labelled samples of a gradient step at most; None: all that one call brings"""
    replay_steps: int | None = None
    """steps on the replay buffer and on samples learned lately, after each step on `batch_size`
    labelled samples; after one on fewer samples, their share of these steps, rounded up. None: 8
    for a network of up to a million weights, else 2"""
    average_steps: int = 30
    """predictions come from an average of the weights over about so many steps, fewer of the first
    ones; 0: from the weights as they are. A method that averages by itself (cls-er) is left alone
    """
    outlier_factor: float | None = 50.0
    """samples of which a value is more standard deviations from the mean of what has been seen are
    quarantined, unless their class goes on so; None: none are. Images as bytes have no outliers"""
    max_gradient: float | None = 10.0
    """longer gradients are shortened to this norm; None: none are"""
    watch_every: int = 6
    """of so many labelled samples of a class one is watched, and never trained on"""
    reference_size: int = 100
    """samples of a class that say what it looked like when it was learned; as a rule 10 for the
    detector sequential, which goes on to compare samples with all that came before"""
    check_rows: int = 50
    """samples of a class since its last check that make a check due; as a rule 1 for the detector
    sequential"""
    recent_rows: int = 2000
    """labelled samples, and unlabelled ones, that are kept for realignment and for late answers"""
    catch_up_steps: int = 100
    """steps that the network needs to follow a realigned memory: until so many are made, a batch
    that brings nothing to learn from is answered by one on memory alone"""
    learning_share: float = 0.25
    """of the processor time that learning and predictions use together, so much is left to
    learning, however many threads predict; predictions that would take more wait their turn"""
    label_seconds: float = 30.0
    """how long a step waits for the label callback; later answers are taken up when they come"""

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


def to_json(config: RunConfig, live: LiveSettings) -> dict[str, Any]:
    """All settings as plain data, none of them left open."""
    plain = config.to_json()
    return {**{name: plain[name] for name in OF_RUNS}, **dataclasses.asdict(live)}


def refuse_unknown(names: Iterable[str]) -> None:
    """UserError for the first name that is no setting of a live learner."""
    known = [*OF_RUNS, *(field.name for field in dataclasses.fields(LiveSettings))]
    for name in names:
        if name not in known:
            raise unknown_name("setting of a live learner", name, known)


def settings_from(
    settings: Mapping[str, Any], *, backbone: str, network_given: bool = False
) -> tuple[RunConfig, LiveSettings]:
    """The config of the parts, complete, and how they are used; unknown names are refused.

    A network that is given takes samples as they are, unless `normalise` says otherwise.
    """
    refuse_unknown(settings)
    own = {field.name for field in dataclasses.fields(LiveSettings)}
    of_run = {name: value for name, value in settings.items() if name not in own}
    if of_run.get("preset", "auto") == "auto":
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
        live_settings = {**_ROW_BY_ROW, **live_settings}
    live = LiveSettings(**live_settings)
    return resolve(_over_the_whole_stream(config), network_given=network_given), live


def _over_the_whole_stream(config: RunConfig) -> RunConfig:
    """Unless told otherwise, a detector that can promises its level once for all checks."""
    options_type = registry.find("detector", settled(config.detector)).options_type()
    names = {field.name for field in dataclasses.fields(options_type)} if options_type else set()
    given = config.options.get("detector", {})
    if "spending" not in names or "spending" in given:
        return config
    options = {**config.options, "detector": {**given, "spending": "inverse-square"}}
    return dataclasses.replace(config, options=options)
