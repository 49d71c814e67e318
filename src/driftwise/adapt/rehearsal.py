"""Rehearsal after realignment: gradient steps at once, and more after the tasks that follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import torch

from driftwise import rng
from driftwise.adapt.base import Adaptation, Wrapper, first_of_each, has_labels
from driftwise.adapt.pseudo_labels import PseudoLabels
from driftwise.protocols import AdaptationContext, KeepsStatistics
from driftwise.types import AdaptationResult, Samples, Verdict

ROUND = 10
"""steps between two measurements of recovery"""

MOST = 1000
"""steps of one phase after a task: a live model does not wait longer for its next batch"""

PREDICTED_PER_STEP = 2
"""unlabelled samples predicted per step and known class; a step uses one per class at most"""

HARM = 2.0
"""percentage points that known classes may lose with pseudo-labels: less is noise"""

NO_REHEARSAL = "class statistics need no recovery: no samples to rehearse, no pseudo-labels"

Accuracies = Mapping[int, float]
"""percent, by class"""


class Rehearsal(Wrapper):
    """Rehearses until renewed classes stop gaining, and again after the tasks that follow.

    Steps use samples from the buffer; after tasks also pseudo-labelled samples, one of each renewed
    class. (Drawing every class equally often was tried: no better than plain draws.)

    >>> import driftwise as dw
    >>> adaptation = dw.adapt.Rehearsal(dw.adapt.Realign(), follow_ups=1)
    """

    def __init__(
        self,
        inner: Adaptation,
        *,
        steps_per_class: int = 10,
        patience: int = 2,
        follow_ups: int = 3,
        follow_up_share: float = 0.5,
        pseudo_labels: PseudoLabels | None = None,
    ) -> None:
        """How long to rehearse.

        Args:
            inner: what adapts the buffer first.
            steps_per_class: steps at once, per renewed class, at most.
            patience: rounds in a row without a gain after which they stop.
            follow_ups: later tasks after which rehearsal continues, at a falling learning rate.
            follow_up_share: steps after each of them, as a fraction of the task's own.
            pseudo_labels: what labels samples for the steps after tasks; None: nothing.
        """
        super().__init__(inner)
        self._steps_per_class = steps_per_class
        self._patience = patience
        self._follow_ups = follow_ups
        self._follow_up_share = follow_up_share
        self._pseudo_labels = pseudo_labels
        self._may_pseudo_label = True
        self._renewed: tuple[int, ...] = ()
        self._left = 0
        self._phases = 0
        self._steps = 0
        self._has_reported = False
        """that class statistics are not rehearsed"""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Let `inner` adapt the buffer, then rehearse."""
        result = self._inner.adapt(drifted, context)
        if not result.renewed:
            return result
        if isinstance(context.buffer, KeepsStatistics):
            note = () if self._has_reported else (NO_REHEARSAL,)
            self._has_reported = True
            return dataclasses.replace(result, notes=(*result.notes, *note))
        earlier = self._renewed if self._left else ()
        self._renewed = tuple(sorted({*earlier, *result.renewed}))
        self._left = self._follow_ups
        notes = self._recover(result, context)
        self._steps = context.steps()
        return dataclasses.replace(result, notes=(*result.notes, *notes))

    def _recover(self, result: AdaptationResult, context: AdaptationContext) -> list[str]:
        judged_by, remark = _judged_by(result, context)
        budget = self._steps_per_class * len(result.renewed)
        course, rounds = [_accuracies(judged_by, context)], list[int]()
        steps, idle, best = 0, 0, _mean(course[0])
        # Patience counts from the first gain on: the first steps may show nothing.
        while steps < budget and (idle < self._patience or best == _mean(course[0])):
            rounds.append(min(ROUND, budget - steps))
            for _ in range(rounds[-1]):
                context.rehearse(None)
            steps += rounds[-1]
            course.append(_accuracies(judged_by, context))
            idle = 0 if _mean(course[-1]) > best else idle + 1
            best = max(best, _mean(course[-1]))
        self._annotate_again(result.renewed, context)
        return [_recovery(label, course, rounds) + remark for label in course[0]] if steps else []

    def follow_up(self, context: AdaptationContext) -> tuple[str, ...]:
        """Rehearse after a task, which may have harmed the renewed classes."""
        steps = min(MOST, round(self._follow_up_share * (context.steps() - self._steps)))
        if not (self._left and steps and context.buffer.counts()):
            return ()
        self._left -= 1
        notes = []
        pseudo_labelled = None
        if self._pseudo_labels is not None and self._may_pseudo_label:
            most = PREDICTED_PER_STEP * steps * len(context.buffer.counts())
            pseudo_labelled, note = self._pseudo_labels.samples(
                self._renewed, context, most=most, seed=self._phases
            )
            notes.append(note)
        monitored = first_of_each(context.monitored())
        before = _accuracies(monitored, context) if has_labels(monitored) else None
        self._phases += 1
        batches: Iterator[Samples | None] = repeat(None)
        if pseudo_labelled is not None:
            batches = _one_of_each(pseudo_labelled, seed=self._phases)
        for step, batch in zip(range(steps), batches, strict=False):
            context.rehearse(batch, rate=1 - step / steps)
        self._steps = context.steps()
        self._annotate_again(self._renewed, context)
        if before is None:
            return tuple(notes)
        after = _accuracies(monitored, context)
        notes.append(
            f"{steps} steps of recovery after the task: known classes from "
            f"{_mean(before):.1f} to {_mean(after):.1f} percent"
        )
        if pseudo_labelled is not None and _mean(after) < _mean(before) - HARM:
            self._may_pseudo_label = False
            notes.append("with pseudo-labels, accuracy fell: they are not used any more")
        return tuple(notes)

    def _annotate_again(self, labels: Sequence[int], context: AdaptationContext) -> None:
        """Renew the logits stored with fresh samples: they were computed before the rehearsal."""
        for label in labels:
            samples = context.buffer.samples_of(label)
            extras = context.annotate(samples) if len(samples) else {}
            if extras:
                context.buffer.drop(label)
                context.buffer.put(samples, extras)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "renewed": list(self._renewed),
            "left": self._left,
            "phases": self._phases,
            "steps": self._steps,
            "may_guess": self._may_pseudo_label,
            **({"told": True} if self._has_reported else {}),
            **super().state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._renewed = tuple(state["renewed"])
        self._left, self._phases = state["left"], state["phases"]
        self._steps = state["steps"]
        self._may_pseudo_label = state["may_guess"]
        self._has_reported = state.get("told") is True
        super().load_state_dict(state)


def _one_of_each(samples: Samples, *, seed: int) -> Iterator[Samples]:
    """Endless batches, each with one random sample of every class."""
    pools = [samples.of_class(label) for label in sorted(set(samples.labels.tolist()))]
    samples = Samples.concat(pools)
    sizes = torch.tensor([len(pool) for pool in pools])
    starts = sizes.cumsum(0) - sizes
    draw = rng.fork(seed, "rehearsal")
    while True:
        yield samples[starts + (torch.rand(len(sizes), generator=draw) * sizes).long()]


def _judged_by(result: AdaptationResult, context: AdaptationContext) -> tuple[Samples, str]:
    """Samples of the renewed classes by which recovery is measured, and a remark on them.

    Monitored samples, if they are labelled. The samples in the buffer are rehearsed: accuracy on
    them is too high.
    """
    monitored = first_of_each(context.monitored())
    if has_labels(monitored):
        monitored = monitored[torch.isin(monitored.labels, torch.tensor(result.renewed))]
        if len(monitored):
            return monitored, ""
    assert result.refilled is not None, "a class is renewed by fresh samples"
    return result.refilled, " (on the rehearsed samples: there are no other labels)"


def _accuracies(samples: Samples, context: AdaptationContext) -> Accuracies:
    right = context.encode(samples.images).logits.argmax(dim=1) == samples.labels
    return {
        label: 100 * float(right[samples.labels == label].float().mean())
        for label in sorted(set(samples.labels.tolist()))
    }


def _mean(accuracies: Accuracies) -> float:
    return sum(accuracies.values()) / max(1, len(accuracies))


def _recovery(label: int, course: Sequence[Accuracies], rounds: Sequence[int]) -> str:
    """A note on one class: its accuracy, the steps, and the accuracy below its best, summed."""
    accuracies = [each[label] for each in course]
    best = max(accuracies)
    # During a round, accuracy is taken to be that at its beginning.
    lost = sum((best - now) * steps for now, steps in zip(accuracies[:-1], rounds, strict=True))
    return (
        f"class {label}: from {accuracies[0]:.1f} to {accuracies[-1]:.1f} percent in "
        f"{sum(rounds)} steps of recovery, {lost:,.0f} points of accuracy lost on the way, "
        "summed over steps"
    )
