"""Ways to answer drift that only the comparison needs."""

from __future__ import annotations

from driftwise.adapt.base import Adaptation
from driftwise.adapt.compose import ComposeOptions, compose
from driftwise.adapt.rehearsal import Rehearsal
from driftwise.adapt.relearn import Relearn


def relearn_and_rehearse() -> Rehearsal:
    """Full relearning with stale samples thrown out, rehearsed after each of the next three tasks."""
    return Rehearsal(Relearn(flush=True), steps_per_class=0)


def choose_uncertain() -> Adaptation:
    """Realignment with labels for the samples that the learner is least sure of."""
    return compose(ComposeOptions(choice="uncertain"), parts=("chosen",))
