"""The adaptation that does nothing, to compare with."""

from __future__ import annotations

from collections.abc import Sequence

from driftwise.protocols import Workbench
from driftwise.types import Repair, Verdict


class Vanilla:
    """Goes on as if nothing had happened."""

    def repair(self, drifted: Sequence[Verdict], bench: Workbench) -> Repair:
        """Nothing."""
        del drifted, bench
        return Repair()
