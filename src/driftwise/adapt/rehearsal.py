"""Rehearsal after realignment: a phase at once, and others after the tasks that follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import torch

from driftwise.adapt.current_samples import a_few_of_each, has_labels
from driftwise.adapt.pseudo_labels import PseudoLabels
from driftwise.adapt.rehearsal_batch import one_of_each
from driftwise.adapt.wrapped import load_state_of, state_of
from driftwise.protocols import Adaptation, AdaptationContext
from driftwise.types import AdaptationResult, Samples, Verdict

ROUND = 10
"""steps between two looks at whether the classes have recovered"""

MOST = 1000
"""steps of one phase after tasks: a live model does not wait longer for its next batch"""

GUESSES = 2
"""samples looked at for every step and known class, of which each step takes one at most"""

HARM = 2.0
"""points that known classes may lose while guessed labels are used: less is noise"""

Accuracies = Mapping[int, float]
"""percent, by class"""


class Rehearsal:
    """Rehearses until renewed classes gain nothing more, and again after tasks that disturb them.

    Steps are on memory alone; after tasks also on guessed samples, one of each renewed class, if there
    are `guesses`. (Samples of every class equally often were tried: no better than plain draws.)
    """

    def __init__(
        self,
        inner: Adaptation,
        *,
        steps_per_class: int = 10,
        patience: int = 2,
        follow_ups: int = 3,
        follow_up_share: float = 0.5,
        guesses: PseudoLabels | None = None,
    ) -> None:
        """At once, up to `steps_per_class`, fewer if `patience` rounds in a sample bring no gain.

        Then, after each of the next `follow_ups` tasks, a share of its steps, at a falling rate.
        """
        self._inner = inner
        self._steps_per_class = steps_per_class
        self._patience = patience
        self._follow_ups = follow_ups
        self._follow_up_share = follow_up_share
        self._guesses = guesses
        self._may_guess = True
        self._renewed: tuple[int, ...] = ()
        self._left = 0
        self._phases = 0
        self._steps = 0

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """The inner repair, then rehearsal."""
        result = self._inner.adapt(drifted, context)
        if not result.renewed:
            return result
        earlier = self._renewed if self._left else ()
        self._renewed = tuple(sorted({*earlier, *result.renewed}))
        self._left = self._follow_ups
        notes = self._recover(result, context)
        self._steps = context.steps()
        return dataclasses.replace(result, notes=(*result.notes, *notes))

    def _recover(self, result: AdaptationResult, context: AdaptationContext) -> list[str]:
        judges, whose = _judges(result, context)
        budget = self._steps_per_class * len(result.renewed)
        course, rounds = [_accuracies(judges, context)], list[int]()
        steps, idle, best = 0, 0, _mean(course[0])
        # Only what has gained can be done gaining: the first steps may show nothing.
        while steps < budget and (idle < self._patience or best == _mean(course[0])):
            rounds.append(min(ROUND, budget - steps))
            for _ in range(rounds[-1]):
                context.rehearse(None)
            steps += rounds[-1]
            course.append(_accuracies(judges, context))
            idle = 0 if _mean(course[-1]) > best else idle + 1
            best = max(best, _mean(course[-1]))
        self._annotate_anew(result.renewed, context)
        return [_told(label, course, rounds) + whose for label in course[0]] if steps else []

    def follow_up(self, context: AdaptationContext) -> tuple[str, ...]:
        """Rehearse what the task has disturbed."""
        steps = min(MOST, round(self._follow_up_share * (context.steps() - self._steps)))
        if not (self._left and steps and context.memory.counts()):
            return ()
        self._left -= 1
        notes = []
        guessed = None
        if self._guesses is not None and self._may_guess:
            many = GUESSES * steps * len(context.memory.counts())
            guessed, note = self._guesses.samples(
                self._renewed, context, most=many, seed=self._phases
            )
            notes.append(note)
        monitored = a_few_of_each(context.monitored())
        before = _accuracies(monitored, context) if has_labels(monitored) else None
        self._phases += 1
        beside: Iterator[Samples | None] = repeat(None)
        if guessed is not None:
            beside = one_of_each(guessed, seed=self._phases)
        for step, batch in zip(range(steps), beside, strict=False):
            context.rehearse(batch, rate=1 - step / steps)
        self._steps = context.steps()
        self._annotate_anew(self._renewed, context)
        if before is None:
            return tuple(notes)
        after = _accuracies(monitored, context)
        notes.append(
            f"{steps} steps of recovery after the task: known classes from "
            f"{_mean(before):.1f} to {_mean(after):.1f} percent"
        )
        if guessed is not None and _mean(after) < _mean(before) - HARM:
            self._may_guess = False
            notes.append("with guessed labels, accuracy fell: they are not used any more")
        return tuple(notes)

    def _annotate_anew(self, labels: Sequence[int], context: AdaptationContext) -> None:
        """What memory keeps beside fresh samples was said by a network that did not know them yet."""
        for label in labels:
            samples = context.memory.samples_of(label)
            extras = context.annotate(samples) if len(samples) else {}
            if extras:
                context.memory.drop(label)
                context.memory.put(samples, extras)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "renewed": list(self._renewed),
            "left": self._left,
            "phases": self._phases,
            "steps": self._steps,
            "may_guess": self._may_guess,
            "inner": state_of(self._inner),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._renewed = tuple(state["renewed"])
        self._left, self._phases = state["left"], state["phases"]
        self._steps = state["steps"]
        self._may_guess = state["may_guess"]
        load_state_of(self._inner, state["inner"])


def _judges(result: AdaptationResult, context: AdaptationContext) -> tuple[Samples, str]:
    """Samples of the renewed classes by which recovery is seen, and what to say of them.

    Watched ones, if they have labels; what memory was refilled with flatters, being rehearsed.
    """
    monitored = a_few_of_each(context.monitored())
    if has_labels(monitored):
        monitored = monitored[torch.isin(monitored.labels, torch.tensor(result.renewed))]
        if len(monitored):
            return monitored, ""
    assert result.refilled is not None, "a class is renewed by fresh samples"
    return result.refilled, " (by the samples that are rehearsed: there are no other labels)"


def _accuracies(samples: Samples, context: AdaptationContext) -> Accuracies:
    right = context.encode(samples.images).logits.argmax(dim=1) == samples.labels
    return {
        label: 100 * float(right[samples.labels == label].float().mean())
        for label in sorted(set(samples.labels.tolist()))
    }


def _mean(accuracies: Accuracies) -> float:
    return sum(accuracies.values()) / max(1, len(accuracies))


def _told(label: int, course: Sequence[Accuracies], rounds: Sequence[int]) -> str:
    """Time, and accuracy lost on the way: how far below its best the class was, step by step."""
    at_looks = [each[label] for each in course]
    best = max(at_looks)
    # During a round a class is taken to be as it was when the round began.
    lost = sum((best - now) * steps for now, steps in zip(at_looks[:-1], rounds, strict=True))
    return (
        f"class {label}: from {at_looks[0]:.1f} to {at_looks[-1]:.1f} percent in {sum(rounds)} "
        f"steps of recovery, {lost:,.0f} points of accuracy lost on the way, summed over steps"
    )
