"""What is kept of the stream: bounded, and no sample that says how a class looks is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from driftwise.live.sample_queue import ClassCounts, SampleQueue, occurrences, with_labels
from driftwise.live.settings import LiveSettings
from driftwise.types import Samples

MOST_CHECKED = 500
"""newest samples of a class that a check takes, or as many as make it due: tests compare every sample
with every other"""

FIRST_CHECK = 10
"""current samples of a class with a reference from before that make its first check due"""


@dataclass(frozen=True, kw_only=True)
class Late:
    """What has become of samples that got their labels after they had come."""

    learn: Samples
    """samples to learn from"""
    asked: int
    """labels that had been asked for"""
    unasked: int
    """labels that came by themselves"""
    gone: int
    """labels whose samples are no longer there"""
    outdated: int
    """labels of samples from before their class drifted: there is nothing to be learned from them"""


class Window:
    """The samples of a live learner that are neither in its memory nor gone."""

    def __init__(
        self,
        nothing: Samples,
        settings: LiveSettings,
        *,
        trust_guesses: bool,
        seen: ClassCounts | None = None,
    ) -> None:
        """`trust_guesses`: samples may say what a class looked like that were only taken for it.

        `seen` counts the labelled samples of each class, for whoever wants to know.
        """
        self._watch_every = settings.watch_every
        self._trust_guesses = trust_guesses
        reference_size, check_rows = settings.reference_size, settings.check_rows
        self.given = Track(nothing, reference_size=reference_size, check_rows=check_rows)
        """watched samples that came with labels"""
        self.guessed = Track(
            nothing, reference_size=reference_size, check_rows=check_rows, together=True
        )
        """watched samples by what they are taken for"""
        self.learned = SampleQueue(nothing, most=settings.recent_rows)
        """labelled samples that were trained on"""
        self.unlabelled = SampleQueue(nothing, most=settings.recent_rows)
        """samples that nobody has labelled yet"""
        self.asked = SampleQueue(nothing, most=settings.recent_rows)
        """samples that somebody was asked to label and has not"""
        self._numbers = ClassCounts() if seen is None else seen
        self._since: dict[int, int] = {}
        self._outdated_before: dict[int, int] = {}

    def split(self, labelled: Samples) -> tuple[Samples, Samples]:
        """Samples to learn from, and samples to watch: the sixth, twelfth, ... of each class."""
        numbers = self._numbers.number(labelled.labels)
        monitored = numbers % self._watch_every == self._watch_every - 1
        return labelled[~monitored], labelled[monitored]

    def watch(self, labelled: Samples) -> None:
        """Take labelled samples to be watched."""
        self.given.look_at(labelled)
        # How a class looked when it was learned is what labelled samples say best.
        self.guessed.collect(labelled)

    def wait(self, unlabelled: Samples) -> None:
        """Keep unlabelled samples, for labels that may come."""
        self.unlabelled.add(unlabelled)

    def watch_guessed(self, unlabelled: Samples, guesses: Tensor) -> None:
        """Take unlabelled samples to be watched by what they are taken for."""
        guessed = replace(unlabelled, labels=guesses)
        if self._trust_guesses:
            self.guessed.look_at(guessed)
        else:
            self.guessed.follow(guessed)

    def fresh(self, label: int) -> Samples:
        """Samples of a class that were learned from since its last check found nothing."""
        samples = self.learned.samples()
        return samples[(samples.labels == label) & (samples.ids >= self.since(label))]

    def recent(self, count: int, generator: torch.Generator) -> Samples:
        """Some of the samples that were learned from lately, none from before its class drifted."""
        samples = self.learned.sample(count, generator)
        return samples[~self._is_outdated(samples)] if self._outdated_before else samples

    def unasked(self, label: int) -> Samples:
        """Unlabelled samples that came since the class's last check, and are nobody's reference."""
        samples = self.unlabelled.samples()
        return samples[(samples.ids >= self.since(label)) & ~self.guessed.refers_to(samples.ids)]

    def ask_for(self, samples: Samples) -> int:
        """Labels of these are being asked for; how many earlier ones are no longer waited for."""
        self.unlabelled.remove(samples.ids)
        self.guessed.forget(samples.ids)  # they are to be learned from, and must not be a reference
        asked = len(self.asked) + len(samples)
        self.asked.add(samples)
        return asked - len(self.asked)

    def take_back(self, ids: Tensor) -> None:
        """Nobody was able to label these samples: somebody else may."""
        self.unlabelled.add(self.asked.remove(ids))

    def answered(self, ids: Tensor, labels: Tensor) -> Late:
        """Labels came for these samples, which are unlabelled no longer."""
        asked = with_labels(self.asked.remove(ids), ids, labels)
        came = with_labels(self.unlabelled.remove(ids), ids, labels)
        self.guessed.forget(torch.cat([asked.ids, came.ids]))
        used, waited = asked[~self._is_outdated(asked)], came[~self._is_outdated(came)]
        # A sample by which classes are told apart from what they were is never trained on.
        refers = self.guessed.refers_to(waited.ids)
        learn, monitored = self.split(waited[~refers])
        self.watch(Samples.concat([waited[refers], monitored]))
        return Late(
            learn=Samples.concat([used, learn]),
            asked=len(asked),
            unasked=len(came),
            gone=len(set(ids.tolist())) - len(asked) - len(came),
            outdated=len(asked) + len(came) - len(used) - len(waited),
        )

    def _is_outdated(self, samples: Samples) -> Tensor:
        """bool (samples,): which show their class as it looked before it was met anew."""
        firsts = [self._outdated_before.get(label, 0) for label in samples.labels.tolist()]
        return samples.ids < torch.tensor(firsts, dtype=torch.int64)

    def since(self, label: int) -> int:
        """The sample from which on a class may look different."""
        return self._since.get(label, 0)

    def unchanged_until(self, labels: Sequence[int], sample: int) -> None:
        """As far as is known, these classes look up to a sample as they did before."""
        self._since.update(dict.fromkeys(labels, sample))

    def renew(self, label: int, sample: int) -> None:
        """A class was met as it looks at a sample: what says how it looks begins anew."""
        # What came since it may have looked different shows it as it was met: late labels count.
        self._outdated_before[label] = self.since(label)
        self._since[label] = sample
        self.given.renew(label)
        self.guessed.renew(label)

    def forget(self, ids: Tensor) -> None:
        """These samples are trained on without labels: they say nothing more of how classes look."""
        self.unlabelled.remove(ids)
        self.guessed.forget(ids)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        parts = {name: getattr(self, name).state_dict() for name in _PARTS}
        return {
            **parts,
            "numbers": self._numbers.state_dict(),
            "since": dict(self._since),
            "outdated_before": dict(self._outdated_before),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])
        self._numbers.load_state_dict(state["numbers"])
        for name in ("since", "outdated_before"):
            if not all(type(n) is int for pair in state.get(name, {}).items() for n in pair):
                raise ValueError(f"expected {name} as numbers of samples by class")
        self._since = dict(state["since"])
        self._outdated_before = dict(state.get("outdated_before", {}))  # not always was there


_PARTS = ("given", "guessed", "learned", "unlabelled", "asked")


class Track:
    """One way of watching: what classes looked like when they were learned, how they look now."""

    def __init__(
        self, nothing: Samples, *, reference_size: int, check_rows: int, together: bool = False
    ) -> None:
        """`together`: samples are told apart by class only when they are checked, all at once."""
        self._reference_size = reference_size
        self._check_samples = check_rows
        self._together = together
        self._collected = SampleQueue(nothing)
        self._current = SampleQueue(nothing)
        self._num_collected = ClassCounts()
        self._num_current = ClassCounts()
        self._references: dict[int, Tensor] = {}
        self._due_at: dict[int, int] = {}
        """current samples that make a class's check due, where it has a reference from before"""

    @property
    def monitored(self) -> tuple[int, ...]:
        """The classes of which it is known what they looked like."""
        return tuple(sorted(self._references))

    @property
    def follows(self) -> bool:
        """Whether samples have come since the last check."""
        return len(self._current) > 0

    def look_at(self, samples: Samples) -> None:
        """Samples say what their class looked like, until there are enough; then how it looks now."""
        if len(samples):
            collects = self._collects(samples.labels)
            self._collect(samples[collects])
            self._follow(samples[~collects])

    def collect(self, samples: Samples) -> None:
        """Samples say what their class looked like, if there are not enough yet."""
        if len(samples):
            self._collect(samples[self._collects(samples.labels)])

    def follow(self, samples: Samples) -> None:
        """Samples say how their class looks now, if it is known what it looked like."""
        if len(samples):
            self._follow(samples[torch.isin(samples.labels, torch.tensor(self.monitored).long())])

    def complete(self) -> list[int]:
        """Classes of which enough has been collected."""
        return self._num_collected.reaching(self._reference_size)

    def renew_reference(self, label: int) -> Samples:
        """What was collected of a class; from now on it is compared with these samples."""
        samples = self._collected.remove_classes([label])
        self._num_collected.clear(label)
        self._references[label] = samples.ids
        return samples

    def adopt(self, label: int, samples: Samples) -> None:
        """A class is compared with samples from before the stream, and checked soon at first."""
        self.renew(label)
        self._references[label] = samples.ids
        self._due_at[label] = min(FIRST_CHECK, self._check_samples)

    def due(self) -> tuple[int, ...]:
        """The classes to be checked now: none, as long as none of them has samples enough.

        A check that is due for one class is made for all that have at least half as many samples:
        the fewer checks there are, the more of its level each of them may spend.
        """
        monitored = set(self._references)
        soon = {label: self._num_current.of(label) / due for label, due in self._due_at.items()}
        if monitored.isdisjoint(self._num_current.reaching(self._check_samples)) and not any(
            part >= 1 for part in soon.values()
        ):
            return ()
        if self._together:
            return self.monitored
        half = monitored.intersection(self._num_current.reaching((self._check_samples + 1) // 2))
        return tuple(sorted(half.union(label for label, part in soon.items() if part >= 0.5)))

    def current(self, labels: Sequence[int]) -> Samples:
        """The samples that say how these classes look now; of many, the newest."""
        samples = self._current.samples()
        most = max(MOST_CHECKED, self._check_samples)
        if len(samples) > most:
            samples = samples[occurrences(samples.labels.flip(0)).flip(0) < most]
        if self._together:
            return samples
        return samples[torch.isin(samples.labels, torch.tensor(labels))]

    def began(self, label: int) -> int | None:
        """The first sample that says how a class looks now; None: there is none."""
        samples = self._current.samples()
        ids = samples.ids[samples.labels == label]
        return int(ids.min()) if len(ids) else None

    def end_check(self, labels: Sequence[int]) -> None:
        """A check of these classes was made: their next one takes other samples."""
        if self._together:
            labels = [*self._references, *self._num_current.reaching(1)]
        self._current.remove_classes(list(labels))
        for label in labels:
            self._num_current.clear(label)
            due = 2 * self._due_at.pop(label, self._check_samples)
            if due < self._check_samples:  # the second check takes twice as many, and so on
                self._due_at[label] = due

    def renew(self, label: int) -> None:
        """Forget how a class looked and looks."""
        self._collected.remove_classes([label])
        self._current.remove_classes([label])
        self._num_collected.clear(label)
        self._num_current.clear(label)
        self._references.pop(label, None)
        self._due_at.pop(label, None)

    def forget(self, ids: Tensor) -> None:
        """Take samples out, unless they are a reference."""
        for queue, tally in (
            (self._collected, self._num_collected),
            (self._current, self._num_current),
        ):
            tally.add(queue.remove(ids).labels, sign=-1)

    def refers_to(self, ids: Tensor) -> Tensor:
        """bool (samples,): which samples are part of a reference."""
        if not self._references:
            return torch.zeros(len(ids), dtype=torch.bool)
        return torch.isin(ids, torch.cat(list(self._references.values())))

    def _collects(self, labels: Tensor) -> Tensor:
        known = torch.isin(labels, torch.tensor(self.monitored, dtype=torch.int64))
        numbers = self._num_collected.at(labels) + occurrences(labels)
        return ~known & (numbers < self._reference_size)

    def _collect(self, samples: Samples) -> None:
        self._collected.add(samples)
        self._num_collected.add(samples.labels)

    def _follow(self, samples: Samples) -> None:
        self._current.add(samples)
        self._num_current.add(samples.labels)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "collected": self._collected.state_dict(),
            "current": self._current.state_dict(),
            "num_collected": self._num_collected.state_dict(),
            "num_current": self._num_current.state_dict(),
            "references": dict(self._references),
            "due_at": dict(self._due_at),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._collected.load_state_dict(state["collected"])
        self._current.load_state_dict(state["current"])
        self._num_collected.load_state_dict(state["num_collected"])
        self._num_current.load_state_dict(state["num_current"])
        self._references = dict(state["references"])
        self._due_at = dict(state.get("due_at", {}))  # not always was it there
