"""Labels that cost nothing: confident guesses at samples that nobody has labelled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from driftwise import rng
from driftwise.adapt.current_samples import a_few_of_each, has_labels
from driftwise.protocols import AdaptationContext
from driftwise.types import Samples

CONFIDENCES = (0.8, 0.9, 0.95, 0.99)
"""how sure the learner must be, the least demanding that is right often enough"""


class PseudoLabels:
    """Unlabelled samples that the learner takes for one of some classes.

    The guard: watched samples with labels, which nobody trains on, say how often such guesses are
    right. Where they are wrong too often, or nobody can say, there are none.
    """

    def __init__(self, *, precision: float = 0.9) -> None:
        """`precision`: the share of right guesses that is asked for."""
        self._precision = precision

    def samples(
        self, classes: Sequence[int], context: AdaptationContext, *, most: int, seed: int
    ) -> tuple[Samples | None, str]:
        """The samples with guessed labels, if any are good enough, and what to tell of them.

        At most so many samples are looked at, any of them.
        """
        monitored = a_few_of_each(context.monitored())
        if not has_labels(monitored):
            return None, "no guessed labels: no labelled samples say how good they would be"
        seen = _guess(monitored, classes, context)
        for confidence in CONFIDENCES:
            sure = seen.confidence >= confidence
            right = (seen.samples.labels == monitored.labels[seen.positions])[sure]
            if len(right) and float(right.float().mean()) >= self._precision:
                break
        else:
            asked = f"{100 * self._precision:.0f} %"
            return None, f"no guessed labels: fewer than {asked} of them would be right"
        guessed = _guess(_samples(classes, context, most=most, seed=seed), classes, context)
        samples = guessed.samples[guessed.confidence >= confidence]
        if not len(samples):
            return None, "no guessed labels: nothing looked like the renewed classes"
        share = 100 * float(right.float().mean())
        return samples, f"{len(samples)} guessed labels, {share:.1f} % right among watched samples"


def _samples(
    classes: Sequence[int], context: AdaptationContext, *, most: int, seed: int
) -> Samples:
    """Unlabelled samples that memory does not have: those it has are rehearsed by their labels."""
    samples = context.labels.unlabelled()
    held = torch.cat([context.memory.samples_of(label).ids for label in classes])
    samples = samples[~torch.isin(samples.ids, held)]
    if len(samples) <= most:
        return samples
    any_of_them = torch.randperm(len(samples), generator=rng.fork(seed, "guesses"))[:most]
    return samples[any_of_them.sort().values]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Guessed:
    samples: Samples
    """with the labels they are taken for"""
    confidence: torch.Tensor
    positions: torch.Tensor


def _guess(samples: Samples, classes: Sequence[int], context: AdaptationContext) -> _Guessed:
    """Samples that the learner takes for one of the classes."""
    p = context.encode(samples.images).logits.softmax(dim=1)
    confidence, taken_for = p.max(dim=1)
    (positions,) = torch.isin(taken_for, torch.tensor(classes)).nonzero(as_tuple=True)
    return _Guessed(
        samples=dataclasses.replace(samples, labels=taken_for)[positions],
        confidence=confidence[positions],
        positions=positions,
    )
