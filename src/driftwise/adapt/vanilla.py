"""The adaptation that does nothing, to compare with."""

from __future__ import annotations

from collections.abc import Sequence

from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Verdict


class Vanilla:
    """Goes on as if nothing had happened."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Nothing."""
        del drifted, context
        return AdaptationResult()
