"""What a network that does not change said to each row, so that it is asked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Looks(NamedTuple):
    """Which pictures these are; every field has one entry per row, on the CPU."""

    ids: Tensor
    concepts: Tensor


class Kept:
    """Answers by row and look. They grow with what is asked: for tasks that have an end.

    >>> kept, looks = Kept(), Looks(torch.tensor([7, 2]), torch.tensor([0, 0]))
    >>> kept.said(looks, lambda: torch.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    >>> turned = Looks(looks.ids.flip(0), looks.concepts)
    >>> kept.said(turned, lambda: torch.zeros(2, 1)).tolist()
    [[2.0], [1.0]]
    """

    def __init__(self) -> None:
        self._place = torch.empty(0, dtype=torch.int64)  # of each id's answer; -1: has none
        self._parts: list[tuple[Looks, Tensor]] = []  # in the order of their places
        self._answers = 0

    def clear(self) -> None:
        """Know nothing."""
        self._place = self._place[:0]
        self._parts = []
        self._answers = 0

    @property
    def width(self) -> int | None:
        """Numbers of an answer; None: there is none yet."""
        return self._parts[0][1].shape[1] if self._parts else None

    def said(self, looks: Looks, ask: Callable[[], Tensor]) -> Tensor:
        """The answers to these rows, (rows, ...), asked for if one of them is missing."""
        largest = int(looks.ids.max())
        if largest < len(self._place):
            place = self._place[looks.ids]
            if bool((place >= 0).all()):
                (known, answers) = self._whole()
                # A row that drift has reached in between is another picture.
                if torch.equal(known.concepts[place], looks.concepts):
                    return answers[place.to(answers.device)]
        answers = ask()
        self._keep(looks, answers)
        return answers

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that was said."""
        if not self._parts:
            return {}
        looks, answers = self._whole()
        return {"ids": looks.ids, "concepts": looks.concepts, "answers": answers}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Know what `state_dict` knew, and nothing else."""
        self.clear()
        if state:
            self._keep(Looks(state["ids"], state["concepts"]), state["answers"])

    def _keep(self, looks: Looks, answers: Tensor) -> None:
        missing = int(looks.ids.max()) + 1 - len(self._place)
        if missing > 0:
            room = torch.full((max(missing, len(self._place)),), -1)
            self._place = torch.cat([self._place, room])
        self._place[looks.ids] = torch.arange(self._answers, self._answers + len(looks.ids))
        self._parts.append((looks, answers))
        self._answers += len(looks.ids)

    def _whole(self) -> tuple[Looks, Tensor]:
        """All parts as one; putting them together once is cheaper than at every step."""
        if len(self._parts) > 1:
            looks, answers = zip(*self._parts, strict=True)
            joined = Looks(*(torch.cat(column) for column in zip(*looks, strict=True)))
            self._parts = [(joined, torch.cat(answers))]
        return self._parts[0]
