"""Adaptive Memory Realignment (AMR): fresh samples replace the outdated ones in the buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from driftwise.adapt.base import Adaptation
from driftwise.adapt.screening import Screen
from driftwise.adapt.weighing import weighed
from driftwise.protocols import AdaptationContext, Choose
from driftwise.types import AdaptationResult, Samples, Verdict

Choice = Callable[[Verdict, AdaptationContext], Choose]
"""For a drifted class, the rule by which incoming samples are chosen for labelling."""


class Realign(Adaptation):
    """Replaces a drifted class's samples in the buffer by as many freshly labelled ones.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> loop = dw.DriftLoop(learner, detector=dw.detect.KS(), adaptation=dw.adapt.Realign())
    """

    def __init__(
        self, *, choice: Choice | None = None, screen: Screen | None = None, weigh: bool = False
    ) -> None:
        """How labels are asked for and taken.

        Args:
            choice: which incoming samples to have labelled; None: random ones.
            screen: sets answers aside that are probably wrong; None: all answers count.
            weigh: old samples stay as far as the fresh labels support them; False: outdated ones go.
        """
        self._choice = choice
        self._screen = screen
        self._weigh = weigh

    def outdated(self, verdict: Verdict, held: Samples, context: AdaptationContext) -> Tensor:
        """Which of a drifted class's samples in the buffer to replace, bool (samples,): all."""
        del verdict, context
        return torch.ones(len(held), dtype=torch.bool)

    def outdated_fraction(self, verdict: Verdict) -> float:
        """The fraction of a drifted class to replace where the buffer keeps no samples: all."""
        del verdict
        return 1.0

    def choose(self, verdict: Verdict, context: AdaptationContext) -> Choose | None:
        """The rule by which incoming samples of a class are chosen; None: random ones."""
        return None if self._choice is None else self._choice(verdict, context)

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Ask for exactly as many labels as the drifted classes have outdated samples."""
        notes: list[str] = []
        outdated = self._outdated_by_class(drifted, context, notes)
        wanted = {label: int(mask.sum()) for label, mask in outdated.items()}
        counts = context.labels.spread({**wanted})
        asked = self._ask([each for each in drifted if each.label in outdated], counts, context)
        if self._screen is not None:
            asked = self._screen.trusted(asked, context, notes)
        mixtures = weighed(asked, context) if self._weigh else {}
        refilled: list[Samples] = []
        over = [each.over for each in mixtures.values() if len(each.over)]
        renewed: list[int] = []
        for label, fresh in asked.items():
            if not len(fresh):
                # Dropping without a replacement would lose the class.
                notes.append(
                    f"class {label}: no fresh samples were granted, "
                    f"its {wanted[label]} old ones stay"
                )
                continue
            if (mixture := mixtures.get(label)) is None:
                # A fresh sample may be in the buffer already: no sample is to be there twice.
                held = context.buffer.samples_of(label)
                going = outdated[label] | _among(held, fresh) if len(held) else outdated[label]
            else:
                going, fresh = mixture.going, mixture.coming
                share = 1 - float(going.float().mean())
                notes.append(f"class {label}: {100 * share:.0f} % of the old samples stay")
            context.buffer.drop(label, going)
            context.buffer.put(fresh, context.annotate(fresh))
            refilled.append(fresh)
            renewed.append(label)
            if len(fresh) < wanted[label] and mixture is None:
                notes.append(
                    f"class {label}: {len(fresh)} fresh samples were granted "
                    f"for {wanted[label]} slots"
                )
        return AdaptationResult(
            extra=Samples.concat(over) if over else None,
            refilled=Samples.concat(refilled) if refilled else None,
            renewed=tuple(renewed),
            notes=tuple(notes),
        )

    def _ask(
        self,
        drifted: Sequence[Verdict],
        counts: Mapping[int, int | None],
        context: AdaptationContext,
    ) -> dict[int, Samples]:
        """Fresh samples of each class, all before the first is learned from."""
        asked = {}
        for verdict in drifted:
            count, choose = counts[verdict.label], self.choose(verdict, context)
            if self._screen is not None:
                count = self._screen.first_answers(count)
            asked[verdict.label] = context.labels.ask(verdict.label, count, choose=choose)
        return asked

    def _outdated_by_class(
        self, drifted: Sequence[Verdict], context: AdaptationContext, notes: list[str]
    ) -> dict[int, Tensor]:
        """The mask of outdated slots of each class that has any."""
        outdated = {}
        for verdict in drifted:
            slots = context.buffer.slots_of(verdict.label)
            if not slots:
                notes.append(f"class {verdict.label} has no samples in memory: nothing to realign")
                continue
            if len(held := context.buffer.samples_of(verdict.label)):
                mask = self.outdated(verdict, held, context)
            else:
                mask = torch.arange(slots) < round(self.outdated_fraction(verdict) * slots)
            if mask.any():
                outdated[verdict.label] = mask
            else:
                notes.append(f"class {verdict.label}: its {slots} samples still fit")
        return outdated


def _among(samples: Samples, others: Samples) -> Tensor:
    """Which samples are among the others, by id and concept, bool (samples,)."""
    num_concepts = 1 + int(torch.cat([samples.concepts, others.concepts]).max())
    keys = (each.ids * num_concepts + each.concepts for each in (samples, others))
    return torch.isin(*keys)
