"""When a run saves itself, and when it stops: after the step in which a signal came.

The second SIGINT does not wait: it ends the process at once, and whatever was saved stays whole.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftwise.errors import UserError

if TYPE_CHECKING:  # they import torch, for which commands must not wait
    from driftwise.distributed import Group
    from driftwise.types import TaskState

AGREED_EVERY = 16
"""steps after which several processes agree on whether to save and to stop"""


class Terminated(BaseException):
    """SIGTERM came."""


class Interruption:
    """Whether a signal has asked the process to end."""

    def __init__(self) -> None:
        self._asked: BaseException | None = None

    @property
    def asked(self) -> bool:
        """Whether it is time to save and stop."""
        return self._asked is not None

    def ask(self, error: BaseException) -> None:
        """Note a signal; the second SIGINT is raised at once."""
        if self._asked is not None and isinstance(error, KeyboardInterrupt):
            raise error
        self._asked = error

    def go(self) -> None:
        """Raise what came, now that everything is saved."""
        if self._asked is not None:
            raise self._asked


@contextlib.contextmanager
def deferred_signals() -> Iterator[Interruption]:
    """While the block runs, SIGINT and SIGTERM are noted instead of raised.

    What was noted and not acted upon is raised when the block is left without an error.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption  # only the main thread may handle signals
        return
    errors = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
    before = {}
    for number, error in errors.items():
        # A process that ignores the signal (nohup, a shell's background job) goes on doing so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(
                number, lambda *_, error=error: interruption.ask(error())
            )
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    interruption.go()


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


class CheckpointSaver:
    """Saves when it is due, and before an interruption."""

    def __init__(
        self,
        saving: Saving,
        save: Callable[[TaskState | None], None],
        interruption: Interruption,
        group: Group,
    ) -> None:
        self._group = group
        self._saving = saving
        self._save = save
        self._interruption = interruption
        self._saved = time.monotonic()
        self._steps = 0

    def stepped(self, task_state: TaskState) -> None:
        """After a train step."""
        self._steps += 1
        seconds, steps = self._saving.seconds, self._saving.steps
        asked = self._interruption.asked
        is_due = (steps is not None and self._steps >= steps) or (
            seconds is not None and time.monotonic() - self._saved >= seconds
        )
        if self._group.size > 1:
            if task_state.steps % AGREED_EVERY:
                return
            is_due, asked = self._group.any(is_due, asked)
            if asked and not self._interruption.asked:
                self._interruption.ask(Terminated())
        if asked or is_due:
            self._keep(task_state)

    def task_ended(self) -> None:
        """After a complete task."""
        self._keep(None)

    def _keep(self, task_state: TaskState | None) -> None:
        self._save(task_state)
        self._saved = time.monotonic()
        self._steps = 0
        self._interruption.go()
