"""A worker process: reads jobs and writes outcomes as lines of JSON.

It ends when its input ends, even in the middle of a run: its parent is gone, and a run that nobody
waits for must not lock its folder. The current step is finished and saved.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Any

from driftwise.files import IS_WINDOWS
from driftwise.runs.saving import Terminated
from driftwise.sweeps.job import Job, perform

LAST_SECONDS = 5.0
"""for saving the current run, once a worker has been asked to end"""


def main() -> None:
    """Perform one job after the other until the input ends."""
    # What a part prints must not be mixed with the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    def progress(run_id: str, done: int, tasks: int) -> None:
        answer({"progress": [run_id, done, tasks]})

    try:
        while True:
            answer(perform(Job(**jobs.get()), progress).to_json())
    except Terminated:
        # Everything is on the disk, and the reading thread cannot be joined.
        os._exit(128 + signal.SIGTERM)


def _read(jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin.buffer:
        jobs.put(json.loads(line))
    # Between two jobs this ends the process; a run saves its checkpoint first.
    if IS_WINDOWS:  # where `kill` ends a process at once
        signal.raise_signal(signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
