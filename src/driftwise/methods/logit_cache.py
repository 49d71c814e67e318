"""What a network that does not change said to each image, so that it is asked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

MOST_PLACES = 2**25
"""ids times looks that a table is made for: 256 MB, twice that while it grows; beyond it nothing is
kept"""


class Looks(NamedTuple):
    """Which images these are; every field has one entry per sample, on the CPU."""

    ids: Tensor
    concepts: Tensor


class Kept:
    """Answers by sample and look. They grow with what is asked: for tasks that have an end.

    >>> kept, looks = Kept(), Looks(torch.tensor([7, 2]), torch.tensor([0, 0]))
    >>> kept.said(looks, lambda: torch.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    >>> turned = Looks(looks.ids.flip(0), looks.concepts)
    >>> kept.said(turned, lambda: torch.zeros(2, 1)).tolist()
    [[2.0], [1.0]]
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Know nothing."""
        self._needs = (0, 0)  # looks and ids that a table must have places for
        self._place = torch.empty((0, 0), dtype=torch.int64)  # by look and id; -1: no answer
        self._looks = torch.empty((2, 0), dtype=torch.int64)  # look and id, by place
        self._answers: Tensor | None = None  # by place; there is room for more
        self._count = 0

    @property
    def width(self) -> int | None:
        """Numbers of an answer; None: there is none yet."""
        return None if self._answers is None else self._answers.shape[1]

    def said(self, looks: Looks, ask: Callable[[], Tensor]) -> Tensor:
        """The answers to these samples, (samples, numbers), asked for if one of them is missing."""
        if not self._has_places(looks):
            return ask()
        place = self._place[looks.concepts, looks.ids]
        missing = place < 0
        if self._answers is not None and not bool(missing.any()):
            return self._answers[place.to(self._answers.device)]
        answers = ask()
        new = missing.nonzero().squeeze(1)
        self._keep(
            torch.stack([looks.concepts, looks.ids])[:, new], answers[new.to(answers.device)]
        )
        return answers

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that was said."""
        if self._answers is None:
            return {}
        return {
            "looks": self._looks[:, : self._count].clone(),
            "answers": self._answers[: self._count].clone(),
        }

    def load_state_dict(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Know what `state_dict` knew, and nothing else; answers are given on a device."""
        self.clear()
        if state:
            concepts, ids = state["looks"]
            if not self._has_places(Looks(ids, concepts)):
                raise ValueError("expected ids and concepts from 0 up in what a network has said")
            self._keep(state["looks"], state["answers"].to(device))

    def _has_places(self, looks: Looks) -> bool:
        """Make room in the table; False: these samples are not to be kept."""
        needs = []
        for need, numbers in zip(self._needs, (looks.concepts, looks.ids), strict=True):
            low, high = (int(end) for end in numbers.aminmax())
            if low < 0:
                return False
            needs.append(max(need, high + 1))
        # By what was needed so far, not by how large the table happens to be: who goes on from a
        # checkpoint must keep the same samples.
        if needs[0] * needs[1] > MOST_PLACES:
            return False
        self._needs = (needs[0], needs[1])
        before = self._place.shape
        if needs[0] > before[0] or needs[1] > before[1]:
            # Room for twice as many ids: the table is not to be made anew with every batch.
            sizes = (max(before[0], needs[0]), max(before[1], 2 * needs[1]))
            larger = torch.full(sizes, -1)
            larger[: before[0], : before[1]] = self._place
            self._place = larger
        return True

    def _keep(self, looks: Tensor, answers: Tensor) -> None:
        """Append answers, (samples, numbers), to looks (2, samples)."""
        start, end = self._count, self._count + len(answers)
        if self._answers is None or end > len(self._answers):
            room = max(end, 2 * start)
            self._answers = _enlarged(self._answers, answers, room)
            self._looks = _enlarged(self._looks.T, looks.T, room).T
        self._looks[:, start:end] = looks
        self._answers[start:end] = answers
        self._count = end
        # Of an image that came twice in a batch the last answer stands, however many threads.
        concepts, ids = looks
        flat = concepts * self._place.shape[1] + ids
        self._place.view(-1).scatter_reduce_(0, flat, torch.arange(start, end), "amax")


def _enlarged(values: Tensor | None, like: Tensor, samples: int) -> Tensor:
    """Room for so many samples, the first ones as they were."""
    larger = like.new_empty((samples, *like.shape[1:]))
    if values is not None:
        larger[: len(values)] = values
    return larger
