"""No adaptation, the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from driftwise.adapt.base import Adaptation
from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Verdict


class Vanilla(Adaptation):
    """Continues as if no class had drifted."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Change nothing."""
        del drifted, context
        return AdaptationResult()
