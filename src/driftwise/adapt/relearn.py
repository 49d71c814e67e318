"""Full relearning: every drifted sample is labelled and trained on beside the new classes."""

from __future__ import annotations

from collections.abc import Sequence

from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Samples, Verdict


class Relearn:
    """Goes on from the current network by default and leaves stale samples in memory, as published."""

    def __init__(self, *, flush: bool = False, from_scratch: bool = False) -> None:
        """`flush` drops the drifted classes' old samples; `from_scratch` forgets the weights."""
        self._flush = flush
        self._from_scratch = from_scratch

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Ask for all there is of each drifted class."""
        extra: list[Samples] = []
        renewed: list[int] = []
        notes: list[str] = []
        shares = context.labels.spread({verdict.label: None for verdict in drifted})
        for label, share in shares.items():
            fresh = context.labels.ask(label, share)
            if not len(fresh):
                notes.append(f"class {label}: no fresh samples were granted, nothing to relearn")
                continue
            if share is not None:
                notes.append(
                    f"class {label}: the budget allows {len(fresh)} fresh samples, not all"
                )
            if self._flush:
                context.memory.drop(label)
            extra.append(fresh)
            renewed.append(label)
        return AdaptationResult(
            extra=Samples.concat(extra) if extra else None,
            from_scratch=self._from_scratch and bool(extra),
            renewed=tuple(renewed),
            notes=tuple(notes),
        )
