"""What carries runs out: this process, or worker processes beside it.

An engine has so many slots; a job given to it takes one, and gives it back with its outcome. A
worker that dies (killed, out of memory) fails its run and no other; the run's checkpoint stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from types import TracebackType
from typing import IO, Any, Self

from driftwise.errors import UserError
from driftwise.sweeps.job import Job, Outcome, Progress, perform

PATIENCE = 10.0
"""seconds that a worker gets to save its run and end by itself"""


class Engine(ABC):
    """Carries out jobs, several at a time."""

    slots: int
    """how many"""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Take a job; at most `slots` of them are under way."""

    @abstractmethod
    def wait(self, seconds: float) -> Outcome | None:
        """The next outcome; None if there is none after so many seconds."""

    def close(self) -> None:
        """End whatever is still going on; what it has saved is kept."""


class InProcess(Engine):
    """One job after the other, right here."""

    slots = 1

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._jobs: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        """Take a job."""
        self._jobs.append(job)

    def wait(self, seconds: float) -> Outcome | None:
        """Do it now; the time is the job's."""
        if self._jobs:
            return perform(self._jobs.popleft(), self._progress)
        time.sleep(seconds)
        return None


class Pool(Engine):
    """Worker processes on this machine; each imports torch once."""

    def __init__(self, slots: int, progress: Progress | None = None) -> None:
        if slots < 1:
            raise UserError(f"a sweep needs at least one worker; got {slots}")
        self.slots = slots
        self._progress = progress
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._outcomes: deque[Outcome] = deque()

    def submit(self, job: Job) -> None:
        """Give it to a worker that is free, or to a new one."""
        worker = next((each for each in self._workers if each.is_free), None)
        if worker is None:
            worker = _Worker()
            self._workers.append(worker)
            self._selector.register(worker.output, selectors.EVENT_READ, worker)
        worker.give(job)

    def wait(self, seconds: float) -> Outcome | None:
        """Listen to all workers."""
        deadline = time.monotonic() + seconds
        while not self._outcomes:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            ready = self._selector.select(left)
            for key, _ in ready:
                self._listen(key.data)
        return self._outcomes.popleft()

    def close(self) -> None:
        """Ask the workers to save what they are at and end, then make them."""
        for worker in self._workers:
            worker.dismiss()
        deadline = time.monotonic() + PATIENCE
        for worker in self._workers:
            worker.end(max(0.0, deadline - time.monotonic()))
        self._selector.close()
        self._workers.clear()

    def _listen(self, worker: _Worker) -> None:
        messages = worker.messages()
        if messages is None:
            self._selector.unregister(worker.output)
            self._workers.remove(worker)
            code = worker.end(PATIENCE)
            if worker.job is not None:
                self._outcomes.append(
                    Outcome(id=worker.job.id, state="failed", error=_how_it_ended(code))
                )
            return
        for message in messages:
            if "progress" in message:
                if self._progress is not None:
                    self._progress(*message["progress"])
            else:
                worker.job = None
                self._outcomes.append(Outcome(**message))


class _Worker:
    """A process that takes jobs as lines of JSON and answers in such lines.

    Its input is its lifeline: a worker whose parent is gone, however it went, ends.
    """

    def __init__(self) -> None:
        self.job: Job | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "driftwise.sweeps.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            # Ctrl-C is the parent's to handle: it ends its workers itself.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: IO[bytes] = self._process.stdin
        self.output: IO[bytes] = self._process.stdout
        os.set_blocking(self.output.fileno(), False)
        self._rest = b""

    @property
    def is_free(self) -> bool:
        """Whether it can be given a job; one that has died between two jobs cannot."""
        return self.job is None and self._process.poll() is None

    def give(self, job: Job) -> None:
        """Have a job done."""
        self.job = job
        # A worker that has died meanwhile is noticed by its silence.
        with contextlib.suppress(BrokenPipeError):
            self._input.write(json.dumps(job.to_json()).encode() + b"\n")
            self._input.flush()

    def messages(self) -> list[dict[str, Any]] | None:
        """What it has said since the last time; None: it is gone."""
        chunk = os.read(self.output.fileno(), 1 << 16)
        if not chunk:
            return None
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def dismiss(self) -> None:
        """Cut its lifeline: it saves the run it is at, and ends."""
        with contextlib.suppress(OSError):
            self._input.close()

    def end(self, patience: float) -> int:
        """Wait for its end, then force it; its exit code."""
        self.dismiss()
        try:
            code = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self.output.close()
        return code


def _environment() -> dict[str, str]:
    """What a worker needs to import what its parent can.

    Custom parts are found from the working folder, which it shares: that is not to be on the path.
    """
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        # Runs set their own number of threads; libraries must not start more beside them.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"its process was killed (signal {-code}); is there enough memory?"
    return f"its process ended (exit code {code})"


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
