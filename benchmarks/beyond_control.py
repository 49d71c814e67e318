"""A way to answer drift that only the comparison needs: all labels, and the rehearsals as well."""

from __future__ import annotations

from recollect.adapt.recovery import Recover
from recollect.adapt.relearn import Relearn


def relearn_and_rehearse() -> Recover:
    """Full relearning with stale rows thrown out, rehearsed after each of the next three tasks."""
    return Recover(Relearn(flush=True), steps_per_class=0)
