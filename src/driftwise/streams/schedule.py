"""When classes arrive and drift: pure data, saved with every run.

A *concept* defines how the images of a class are made. Concept 0 is the original; any other transforms
the images of its parent, so a class that drifts twice drifts from where the first drift left it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from driftwise.errors import UserError

ORIGINAL = 0
"""The number of the original concept, which no transform has changed."""

SCOPES = ("since-last-event", "all-seen")
"""The classes of an event that are named by a word."""
RULES = (*SCOPES, "all-present")
"""The same where events are placed by rule."""


@dataclass(frozen=True, kw_only=True)
class Concept:
    """The images of the parent concept, transformed, or those of another domain.

    >>> Concept(transform="rotation", severity=3).parent
    0
    """

    transform: str = "identity"
    severity: int = 1
    seed: int = 0
    """what the transform's randomness is drawn from"""
    parent: int = ORIGINAL
    """number of the concept whose pixels are transformed"""
    unit: str = "pixel"
    """what a permutation moves: pixel, or row (of the image)"""
    domain: str | None = None
    """natural drift: the domain whose own images show it; None: the domain of its parent"""


@dataclass(frozen=True, kw_only=True)
class DriftEvent:
    """From this task on, a fraction of each class shows another concept.

    >>> event = DriftEvent(task=3, concepts={0: 1, 1: 1})  # classes 0 and 1 get concept 1
    """

    task: int
    """counted from 1; drift is in force when the task begins"""
    concepts: dict[int, int]
    """class -> number of the concept it changes to"""
    share: float = 1.0
    """the fraction of a class that drifts in the end; the rest keeps its concept"""
    over_tasks: int = 1
    """over how many tasks the share rises, evenly; 1: all at once"""
    over_steps: int | None = None
    """over how many training steps of the event's own task it rises for training samples; monitored
    and test samples show the whole share at once"""

    def share_at(self, task: int) -> float:
        """The fraction of a class that has drifted when `task` begins."""
        return self.share * min(1.0, max(0, task - self.task + 1) / self.over_tasks)

    @property
    def kind(self) -> str:
        """How it sets in: sudden, partial or gradual."""
        if self.over_tasks > 1 or self.over_steps is not None:
            return "gradual"
        return "partial" if self.share < 1 else "sudden"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The whole script of a stream.

    >>> event = DriftEvent(task=2, concepts={0: 1})
    >>> concepts = (Concept(), Concept(transform="rotation", severity=3))
    >>> Schedule(tasks=((0, 1), (2, 3)), events=(event,), concepts=concepts).tasks
    ((0, 1), (2, 3))
    """

    tasks: tuple[tuple[int, ...], ...]
    """the new classes of each task, in order of arrival; a task may bring none"""
    events: tuple[DriftEvent, ...] = ()
    concepts: tuple[Concept, ...] = ()
    """concept number i + 1 is concepts[i]; number 0 is the original"""
    recurring_in_training: bool = False
    """whether drifted classes return, labelled, in the training data of the event's task"""
    first_domain: str | None = None
    """the domain whose images show the original concept; None: all images do"""
    seed: int = 0
    """decides which samples of a class drift first, where not all drift at once"""

    def __post_init__(self) -> None:
        classes = [label for task in self.tasks for label in task]
        if len(set(classes)) != len(classes):
            raise UserError("a class may arrive only once; a task's list repeats one")
        for number, concept in enumerate(self.concepts, start=1):
            if not ORIGINAL <= concept.parent < number:
                raise UserError(
                    f"concept {number} must have a parent before it; got parent {concept.parent}"
                )
            if concept.domain is not None and self.first_domain is None:
                raise UserError(
                    f"an event names the domain {concept.domain!r}; name the first_domain too, "
                    f"whose images show the original concept"
                )
        places = [event.task for event in self.events]
        if places != sorted(places):
            raise UserError(f"drift events must stand in the order of their tasks; got {places}")
        for event in self.events:
            self._check_event(event)

    def _check_event(self, event: DriftEvent) -> None:
        if not 2 <= event.task <= self.num_tasks:
            raise UserError(
                f"classes can drift at tasks 2 to {self.num_tasks}; an event names {event.task}"
            )
        if not 0 < event.share <= 1:
            raise UserError(
                f"the share of a class that drifts must lie above 0, up to 1; got {event.share}"
            )
        if event.over_tasks < 1:
            raise UserError(f"drift sets in over at least 1 task; got {event.over_tasks}")
        unseen = sorted(set(event.concepts) - set(self.known(event.task)))
        if unseen:
            raise UserError(
                f"classes {unseen} cannot drift at task {event.task}: not learned before it"
            )
        nameless = sorted(set(event.concepts.values()) - set(range(len(self.concepts) + 1)))
        if nameless:
            raise UserError(
                f"there are concepts 0 to {len(self.concepts)}; an event names {nameless}"
            )
        if event.over_steps is None:
            return
        if event.over_steps < 1 or event.over_tasks > 1:
            raise UserError(
                f"drift sets in over at least 1 step of one task; "
                f"got {event.over_steps} steps over {event.over_tasks} tasks"
            )
        if not self.recurring_in_training:
            raise UserError(
                "over_steps is about samples trained on: it needs recurring_in_training, which "
                "brings drifted classes back in the training data"
            )
        before = {c for label in event.concepts for c in self.mixture(label, event.task - 1)}
        if len({self.domain_of(c) for c in before | set(event.concepts.values())}) > 1:
            raise UserError(
                "natural drift cannot set in over steps: an image belongs to one domain; "
                "use over_tasks"
            )

    @property
    def num_tasks(self) -> int:
        """How many tasks there are."""
        return len(self.tasks)

    def known(self, task: int) -> tuple[int, ...]:
        """The classes that arrived before `task` (counted from 1)."""
        return tuple(label for classes in self.tasks[: task - 1] for label in classes)

    def drifting(self, task: int) -> tuple[int, ...]:
        """The classes whose mixture of concepts changes exactly at `task`, in order of arrival.

        An identity changes no pixel: it is no drift.
        """
        return tuple(
            label
            for label in self.known(task)
            if self._distinct_mixture(label, task) != self._distinct_mixture(label, task - 1)
        )

    def drifted(self) -> frozenset[int]:
        """The classes that drift at any time."""
        tasks = range(1, self.num_tasks + 1)
        return frozenset(label for task in tasks for label in self.drifting(task))

    def _distinct_mixture(self, label: int, task: int) -> dict[int, float]:
        """The mixture of a class, concepts with the same pixels taken together."""
        shares: dict[int, float] = {}
        for concept, share in self.mixture(label, task).items():
            while concept != ORIGINAL:
                spec = self.concepts[concept - 1]
                same_domain = self.domain_of(concept) == self.domain_of(spec.parent)
                if spec.transform != "identity" or not same_domain:
                    break
                concept = spec.parent
            shares[concept] = shares.get(concept, 0.0) + share
        return {concept: round(share, 9) for concept, share in shares.items()}

    def mixture(self, label: int, task: int) -> dict[int, float]:
        """The concepts that a class shows during `task`, with the true share of each.

        An event takes its fraction of every concept that the class has. Where several events drift
        only a part of a class, the shares are expectations: chance decides which samples overlap.
        """
        shares = {ORIGINAL: 1.0}
        for event in self.events:
            drifted = event.share_at(task)
            if label in event.concepts and drifted > 0:
                shares = {concept: share * (1 - drifted) for concept, share in shares.items()}
                new = event.concepts[label]
                shares[new] = shares.get(new, 0.0) + drifted
        return {concept: share for concept, share in shares.items() if share > 0}

    def domain_of(self, concept: int) -> str | None:
        """The domain whose images show a concept (None: all do)."""
        for number in reversed(self.lineage(concept)):
            if (domain := self.concepts[number - 1].domain) is not None:
                return domain
        return self.first_domain

    def domains_of(self, label: int) -> tuple[str | None, ...]:
        """The domains whose images show a class at some time, the first one first."""
        shown = [event.concepts[label] for event in self.events if label in event.concepts]
        return tuple(dict.fromkeys(self.domain_of(concept) for concept in (ORIGINAL, *shown)))

    def mixes_domains(self, label: int) -> bool:
        """Whether a class shows images of several domains side by side at some time."""
        mixtures = (self.mixture(label, task) for task in range(1, self.num_tasks + 1))
        return any(len({self.domain_of(concept) for concept in shown}) > 1 for shown in mixtures)

    def lineage(self, concept: int) -> tuple[int, ...]:
        """The concept's ancestors from the original (left out) on, itself last."""
        chain: list[int] = []
        while concept != ORIGINAL:
            chain.append(concept)
            concept = self.concepts[concept - 1].parent
        return tuple(reversed(chain))

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives the same schedule back."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Schedule:
        """The schedule that `to_json` described."""
        return Schedule(
            tasks=tuple(tuple(classes) for classes in data["tasks"]),
            events=tuple(
                DriftEvent(
                    **{**event, "concepts": {int(c): to for c, to in event["concepts"].items()}}
                )
                for event in data["events"]
            ),
            concepts=tuple(Concept(**concept) for concept in data["concepts"]),
            recurring_in_training=data["recurring_in_training"],
            first_domain=data["first_domain"],
            seed=data["seed"],
        )
