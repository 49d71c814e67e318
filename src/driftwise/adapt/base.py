"""The base class of adaptations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Verdict


class Adaptation(ABC):
    """Reacts to drifted classes, whatever the method that learns.

    `adapt` must be implemented. `follow_up` may be, by an adaptation that continues after the tasks
    that follow. An adaptation that changes writes `state_dict` and `load_state_dict`, both or
    neither; a custom one without them is saved by its attributes (`part_state.py`).
    """

    @abstractmethod
    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Adapt the buffer now; the result says what the coming task has to do.

        Args:
            drifted: the verdicts on the drifted classes, one per class; possibly none.
            context: the buffer, the source of labels and the learner.
        """

    def follow_up(self, context: AdaptationContext) -> tuple[str, ...]:
        """Continue after a task's last step; the notes for the report."""
        del context
        return ()

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        if state:
            raise ValueError(f"expected no state for {type(self).__name__}; got {sorted(state)}")
