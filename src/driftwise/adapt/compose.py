"""What goes beyond realignment, put together: each part by itself, or several at once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from driftwise.adapt.hysteresis import Hysteresis
from driftwise.adapt.partial import PartialRealign
from driftwise.adapt.pseudo_labels import PseudoLabels
from driftwise.adapt.realign import Realign, all_of_them
from driftwise.adapt.recurring import RecurringConcepts
from driftwise.adapt.rehearsal import Rehearsal
from driftwise.adapt.selection import diverse, uncertain
from driftwise.errors import UserError
from driftwise.protocols import Adaptation, AdaptationContext, Choose
from driftwise.types import Verdict

PARTS = ("partial", "chosen", "recovery", "free-labels", "remembered", "gradual")

_CHOICES: dict[str, Callable[[Verdict, AdaptationContext], Choose] | None] = {
    "random": None,
    "diverse": diverse,
    "uncertain": uncertain,
}


@dataclass(frozen=True, kw_only=True)
class ComposeOptions:
    """What can be chosen about the parts; those of parts that are not there do nothing."""

    full_from: float = 0.8
    """partial: from this share of moved samples on, all of a class's samples in memory go"""
    choice: Literal["random", "diverse", "uncertain"] = "diverse"
    """chosen: which incoming samples are worth a label"""
    steps_per_class: int = 10
    """recovery: gradient steps at most right after a realignment, for each renewed class"""
    patience: int = 2
    """recovery: rounds of steps without a gain after which it ends"""
    follow_ups: int = 3
    """recovery: after how many of the coming tasks it goes on"""
    follow_up_share: float = 0.5
    """recovery: gradient steps after each of them, as a share of the steps that it took"""
    precision: float = 0.9
    """free-labels: share of right guesses that is asked for"""
    looks: int = 3
    """remembered: earlier looks of a class that are kept"""
    same_below: float = 0.4
    """remembered: share of moved samples below which a class looks as it did before"""
    begin: float = 0.3
    """gradual: share of moved samples from which on a class is realigned"""
    end: float = 0.15
    """gradual: share below which a class that was being realigned is left alone again"""

    def __post_init__(self) -> None:
        if self.choice not in _CHOICES:
            raise UserError(f"choice must be one of {', '.join(_CHOICES)}; got {self.choice!r}")
        for name in ("full_from", "precision", "same_below", "begin", "end", "follow_up_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must lie between 0 and 1; got {getattr(self, name)}")
        if self.end > self.begin:
            raise UserError(f"end must not exceed begin; got {self.end} and {self.begin}")
        at_least = {"steps_per_class": 0, "patience": 1, "follow_ups": 0, "looks": 1}
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise UserError(f"{name} must be at least {least}; got {getattr(self, name)}")


def compose(options: ComposeOptions, *, parts: Collection[str]) -> Adaptation:
    """Memory realignment with some of the parts; free labels are for recovery."""
    assert set(parts) <= set(PARTS), parts
    assert "recovery" in parts or "free-labels" not in parts, parts
    partly = PartialRealign(full_from=options.full_from)
    choice = _CHOICES[options.choice] if "chosen" in parts else None
    if "partial" in parts and choice is None:
        choice = partly.choice
    made: Adaptation = Realign(
        outdated=partly.outdated if "partial" in parts else all_of_them, choice=choice
    )
    if "remembered" in parts:
        made = RecurringConcepts(made, looks=options.looks, same_below=options.same_below)
    if "gradual" in parts:
        made = Hysteresis(made, begin=options.begin, end=options.end)
    if "recovery" in parts:
        made = Rehearsal(
            made,
            steps_per_class=options.steps_per_class,
            patience=options.patience,
            follow_ups=options.follow_ups,
            follow_up_share=options.follow_up_share,
            guesses=PseudoLabels(precision=options.precision) if "free-labels" in parts else None,
        )
    return made
