"""Realignment with extensions, alone or combined: the adaptations `amr-partial` to `amr-plus`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from driftwise.adapt.base import Adaptation
from driftwise.adapt.hysteresis import Hysteresis
from driftwise.adapt.partial import PartialRealign
from driftwise.adapt.pseudo_labels import PseudoLabels
from driftwise.adapt.realign import Choice, Realign
from driftwise.adapt.recurring import RecurringConcepts
from driftwise.adapt.rehearsal import Rehearsal
from driftwise.adapt.screening import Screen
from driftwise.adapt.selection import diverse, uncertain
from driftwise.errors import UserError

PARTS = (
    *("partial", "chosen", "recovery", "free-labels", "remembered", "gradual", "robust"),
    "weighed",
)

_CHOICES: dict[str, Choice | None] = {
    "random": None,
    "diverse": diverse,
    "uncertain": uncertain,
}


@dataclass(frozen=True, kw_only=True)
class ComposeOptions:
    """Options of the parts; those of absent parts have no effect.

    >>> ComposeOptions(follow_ups=1).follow_ups
    1
    """

    full_from: float = 0.8
    """partial: fraction drifted from which on all samples of a class are replaced"""
    choice: Literal["random", "diverse", "uncertain"] = "diverse"
    """chosen: which incoming samples to have labelled"""
    steps_per_class: int = 10
    """recovery: gradient steps at most right after a realignment, per renewed class"""
    patience: int = 2
    """recovery: rounds of steps without a gain after which it stops"""
    follow_ups: int = 3
    """recovery: number of later tasks after which it continues"""
    follow_up_share: float = 0.5
    """recovery: gradient steps after each of them, as a fraction of the task's own"""
    precision: float = 0.9
    """free-labels: fraction of right pseudo-labels that is required"""
    looks: int = 3
    """remembered: earlier concepts of a class that are kept"""
    same_below: float = 0.4
    """remembered: fraction drifted from an earlier concept below which it has returned"""
    begin: float = 0.3
    """gradual: fraction drifted from which on a class is realigned"""
    end: float = 0.15
    """gradual: fraction below which a class that was being realigned no longer is"""

    wrong_answers: float = 0.2
    """robust: fraction of the answers to label requests that may be wrong"""
    ask_again: float = 0.0
    """robust: labels for second answers on doubtful samples, as a fraction of the first ones"""

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
    """Realignment with some of the `PARTS`; "free-labels" needs "recovery".

    >>> adaptation = compose(ComposeOptions(), parts={"partial", "recovery"})
    """
    assert set(parts) <= set(PARTS), parts
    assert "recovery" in parts or "free-labels" not in parts, parts
    assert "partial" not in parts or "weighed" not in parts, parts
    choice = _CHOICES[options.choice] if "chosen" in parts else None
    screen = None
    if "robust" in parts:
        screen = Screen(share=options.wrong_answers, again=options.ask_again)
    made: Adaptation = Realign(choice=choice, screen=screen, weigh="weighed" in parts)
    if "partial" in parts:
        made = PartialRealign(full_from=options.full_from, choice=choice, screen=screen)
    if "remembered" in parts:
        made = RecurringConcepts(made, concepts=options.looks, same_below=options.same_below)
    if "gradual" in parts:
        made = Hysteresis(made, begin=options.begin, end=options.end)
    if "recovery" in parts:
        made = Rehearsal(
            made,
            steps_per_class=options.steps_per_class,
            patience=options.patience,
            follow_ups=options.follow_ups,
            follow_up_share=options.follow_up_share,
            pseudo_labels=(
                PseudoLabels(precision=options.precision) if "free-labels" in parts else None
            ),
        )
    return made
