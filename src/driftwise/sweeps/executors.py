"""Engines that perform runs: this process, or worker processes beside it.

An engine has a number of slots; a job occupies one until its outcome is returned. A worker that
dies (killed, out of memory) fails its run and no other; the run's checkpoint stays.
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
from typing import IO, Any, Self

from driftwise.errors import UserError
from driftwise.sweeps.job import Job, Outcome, Progress, perform

PATIENCE = 10.0
"""seconds that a worker gets to save its run and end by itself"""


class Engine(ABC):
    """Performs jobs, several at a time."""

    slots: int
    """how many at a time"""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Start a job; at most `slots` of them run at a time."""

    @abstractmethod
    def wait(self, seconds: float) -> Outcome | None:
        """The next outcome; None if there is none within `seconds`."""

    def close(self) -> None:
        """End all running jobs; what they have saved is kept."""


class InProcess(Engine):
    """One job after the other, in this process."""

    slots = 1

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._jobs: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        """Start a job."""
        self._jobs.append(job)

    def wait(self, seconds: float) -> Outcome | None:
        """Perform the job now, however long it takes."""
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
        """Give it to a free worker, or to a new one."""
        worker = next((each for each in self._workers if each.is_free), None)
        if worker is None:
            worker = _Worker()
            self._workers.append(worker)
            self._selector.register(worker.output, selectors.EVENT_READ, worker)
        worker.give(job)

    def wait(self, seconds: float) -> Outcome | None:
        """Wait for the messages of all workers."""
        deadline = time.monotonic() + seconds
        while not self._outcomes:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            for key, _ in self._selector.select(left):
                self._read(key.data)
        return self._outcomes.popleft()

    def close(self) -> None:
        """Ask the workers to save their runs and end; kill those that do not."""
        for worker in self._workers:
            worker.dismiss()
        deadline = time.monotonic() + PATIENCE
        for worker in self._workers:
            worker.end(max(0.0, deadline - time.monotonic()))
        self._selector.close()
        self._workers.clear()

    def _read(self, worker: _Worker) -> None:
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
    """A process that reads jobs and writes outcomes as lines of JSON.

    It ends when its input is closed, which happens however its parent ends.
    """

    def __init__(self) -> None:
        self.job: Job | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "driftwise.sweeps.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            # The parent handles Ctrl-C and ends its workers itself.
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
        """Send a job."""
        self.job = job
        # A worker that has died meanwhile is noticed when its output ends.
        with contextlib.suppress(BrokenPipeError):
            self._input.write(json.dumps(job.to_json()).encode() + b"\n")
            self._input.flush()

    def messages(self) -> list[dict[str, Any]] | None:
        """Its messages since the last call; None: it has ended."""
        chunk = os.read(self.output.fileno(), 1 << 16)
        if not chunk:
            return None
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def dismiss(self) -> None:
        """Close its input: it saves its run, and ends."""
        with contextlib.suppress(OSError):
            self._input.close()

    def end(self, patience: float) -> int:
        """Wait for its end, then kill it; its exit code."""
        self.dismiss()
        try:
            code = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self.output.close()
        return code


def _environment() -> dict[str, str]:
    """A worker imports what its parent can; custom parts are found from the shared working folder,
    which is not on the path."""
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
