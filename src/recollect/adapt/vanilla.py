"""The adaptation that does nothing, to compare with."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.shapes import Annotate, LabelSource, Replay
from recollect.types import Repair


class Vanilla:
    """Goes on as if nothing had happened."""

    def repair(
        self, drifted: Sequence[int], memory: Replay, labels: LabelSource, annotate: Annotate
    ) -> Repair:
        """Nothing."""
        del drifted, memory, labels, annotate
        return Repair()
