"""A context for adaptations, and verdicts of drift."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from driftwise.protocols import AdaptationContext, Annotate, LabelSource, Replay
from driftwise.stats.fraction import estimate_shares
from driftwise.types import Encoding, Samples, StepReport, Verdict

NOTHING = Samples(
    images=torch.empty(0, 2, 2, 1, dtype=torch.uint8),
    labels=torch.empty(0, dtype=torch.int64),
    ids=torch.empty(0, dtype=torch.int64),
    concepts=torch.empty(0, dtype=torch.int64),
)


def verdicts(labels: Sequence[int], **known: float) -> list[Verdict]:
    """One for each class, which has drifted."""
    return [Verdict(task=2, label=label, drifted=True, **known) for label in labels]  # type: ignore[arg-type]


def pixels(images: Tensor) -> Encoding:
    """An image is its own logits and its own features."""
    flat = images.flatten(1).float() / 255
    return Encoding(logits=flat, features=flat)


def no_step(batch: Samples | None, *, rate: float = 1.0) -> StepReport:
    """A rehearsal that moves nothing."""
    del rate
    labels = torch.empty(0, dtype=torch.int64) if batch is None else batch.labels
    return StepReport(loss=0.0, logits=torch.zeros(len(labels), 1), labels=labels)


def context(
    memory: Replay, labels: LabelSource, annotate: Annotate, *, monitored: Samples = NOTHING
) -> AdaptationContext:
    """Images speak for themselves, and nothing learns."""
    return AdaptationContext(
        buffer=memory,
        labels=labels,
        annotate=annotate,
        encode=pixels,
        rehearse=no_step,
        steps=lambda: 0,
        monitored=lambda: monitored,
        compare=lambda kept, now: estimate_shares([(kept, now)])[0],
    )
