"""Interruptions wait for a good moment: the step is finished and saved first.

The second SIGINT does not wait: it ends the process at once, and whatever was saved stays whole.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Terminated(BaseException):
    """SIGTERM came."""


class Interruption:
    """Whether somebody wants the process to end."""

    def __init__(self) -> None:
        self._asked: BaseException | None = None

    @property
    def asked(self) -> bool:
        """Whether it is time to save and go."""
        return self._asked is not None

    def ask(self, error: BaseException) -> None:
        """From now on, going is wanted; the second time it is urgent."""
        if self._asked is not None and isinstance(error, KeyboardInterrupt):
            raise error
        self._asked = error

    def go(self) -> None:
        """Raise what came, now that everything is saved."""
        if self._asked is not None:
            raise self._asked


@contextlib.contextmanager
def gently() -> Iterator[Interruption]:
    """While the block runs, SIGINT and SIGTERM are noted instead of raised.

    What was noted and not acted upon is raised when the block is left without an error.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption  # signals are the main thread's to handle
        return
    errors = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
    before = {}
    for number, error in errors.items():
        # Whoever has asked not to be interrupted (nohup, a shell's background job) is not.
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
