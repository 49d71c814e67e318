"""What is done when classes have drifted: nothing, relearn them, or realign the replay buffer."""

from driftwise.adapt.base import Adaptation
from driftwise.adapt.by_kind import ByKind
from driftwise.adapt.compose import ComposeOptions, compose
from driftwise.adapt.hysteresis import Hysteresis
from driftwise.adapt.partial import PartialRealign
from driftwise.adapt.pseudo_labels import PseudoLabels
from driftwise.adapt.realign import Realign
from driftwise.adapt.recurring import RecurringConcepts
from driftwise.adapt.rehearsal import Rehearsal
from driftwise.adapt.relearn import Relearn
from driftwise.adapt.screening import Screen
from driftwise.adapt.selection import diverse, uncertain
from driftwise.adapt.vanilla import Vanilla

__all__ = [
    "Adaptation",
    "ByKind",
    "ComposeOptions",
    "Hysteresis",
    "PartialRealign",
    "PseudoLabels",
    "Realign",
    "RecurringConcepts",
    "Rehearsal",
    "Relearn",
    "Screen",
    "Vanilla",
    "compose",
    "diverse",
    "uncertain",
]
