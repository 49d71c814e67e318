"""Ways to answer drift that only the comparison needs."""

from __future__ import annotations

from driftwise.adapt.compose import BeyondOptions, realign_with
from driftwise.adapt.rehearsal import Recover
from driftwise.adapt.relearn import Relearn
from driftwise.protocols import Adaptation


def relearn_and_rehearse() -> Recover:
    """Full relearning with stale rows thrown out, rehearsed after each of the next three tasks."""
    return Recover(Relearn(flush=True), steps_per_class=0)


def choose_uncertain() -> Adaptation:
    """Realignment with labels for the samples that the learner is least sure of."""
    return realign_with(BeyondOptions(choice="uncertain"), parts=("chosen",))
