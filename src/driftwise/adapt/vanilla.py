"""No adaptation, the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from driftwise.adapt.base import Adaptation
from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Verdict


class Vanilla(Adaptation):
    """Continues as if no class had drifted.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> loop = dw.DriftLoop(learner, detector=dw.detect.KS(), adaptation=dw.adapt.Vanilla())
    """

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Change nothing."""
        del drifted, context
        return AdaptationResult()
