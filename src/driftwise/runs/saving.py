"""When a run saves itself: at the end of every task, now and then within, and before it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from driftwise.errors import UserError
from driftwise.runs.interrupt import Interruption
from driftwise.types import TaskState


@dataclass(frozen=True, kw_only=True)
class Saving:
    """How much work may be lost. It makes no difference to what a run computes."""

    seconds: float | None = 60.0
    """at least so often, in the middle of a task; None: by steps only"""
    steps: int | None = None
    """after so many steps of a task, too; None: by seconds only"""

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds > 0:
            raise UserError(f"seconds between checkpoints must be above 0; got {self.seconds}")
        if self.steps is not None and self.steps < 1:
            raise UserError(f"steps between checkpoints must be at least 1; got {self.steps}")


OFTEN = Saving()


class Keeping:
    """Saves when it is due, and when somebody wants the run to end."""

    def __init__(
        self, saving: Saving, save: Callable[[TaskState | None], None], interruption: Interruption
    ) -> None:
        self._saving = saving
        self._save = save
        self._interruption = interruption
        self._saved = time.monotonic()
        self._steps = 0

    def stepped(self, task_state: TaskState) -> None:
        """A step has been made."""
        self._steps += 1
        if self._interruption.asked or self._is_due():
            self._keep(task_state)

    def task_ended(self) -> None:
        """A task is complete."""
        self._keep(None)

    def _is_due(self) -> bool:
        seconds, steps = self._saving.seconds, self._saving.steps
        if steps is not None and self._steps >= steps:
            return True
        return seconds is not None and time.monotonic() - self._saved >= seconds

    def _keep(self, task_state: TaskState | None) -> None:
        self._save(task_state)
        self._saved = time.monotonic()
        self._steps = 0
        self._interruption.go()
