"""Full relearning (FR): all samples of drifted classes are labelled and trained on again."""

from __future__ import annotations

from collections.abc import Sequence

from driftwise.adapt.base import Adaptation
from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Samples, Verdict


class Relearn(Adaptation):
    """Trains on every current sample of the drifted classes, beside the new classes.

    By default it continues from the current weights and leaves outdated samples in the buffer, as
    published.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> loop = dw.DriftLoop(learner, detector=dw.detect.KS(), adaptation=dw.adapt.Relearn(flush=True))
    """

    def __init__(self, *, flush: bool = False, from_scratch: bool = False) -> None:
        """Choose what is forgotten first.

        Args:
            flush: drop the outdated samples of drifted classes from the buffer.
            from_scratch: train a fresh network.
        """
        self._flush = flush
        self._from_scratch = from_scratch

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Ask for all current samples of each drifted class, as far as the budget allows."""
        extra: list[Samples] = []
        renewed: list[int] = []
        notes: list[str] = []
        counts = context.labels.spread({verdict.label: None for verdict in drifted})
        for label, count in counts.items():
            fresh = context.labels.ask(label, count)
            if not len(fresh):
                notes.append(f"class {label}: no fresh samples were granted, nothing to relearn")
                continue
            if count is not None:
                notes.append(
                    f"class {label}: the budget allows {len(fresh)} fresh samples, not all"
                )
            if self._flush:
                context.buffer.drop(label)
            extra.append(fresh)
            renewed.append(label)
        return AdaptationResult(
            extra=Samples.concat(extra) if extra else None,
            from_scratch=self._from_scratch and bool(extra),
            renewed=tuple(renewed),
            notes=tuple(notes),
        )
