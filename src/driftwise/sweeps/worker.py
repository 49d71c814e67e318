"""A worker process: jobs come in as lines of JSON, outcomes go out as such.

When its input ends, so does it, in the middle of a run if need be: whoever gave the jobs has gone,
and a run that nobody waits for must not hold its folder. The step it is at is finished and saved.
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

from driftwise.runs.saving import Terminated
from driftwise.sweeps.job import Job, perform

LAST_SECONDS = 5.0
"""for saving the run it is at, once a worker has been asked to end"""


def main() -> None:
    """Do one job after the other until the input ends."""
    # Whatever a part prints must not pass for an answer.
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
            job = Job(**jobs.get())
            answer(perform(job, progress).to_json())
    except Terminated:
        # Everything is on the disk, and the thread that reads could not be waited for.
        os._exit(128 + signal.SIGTERM)


def _read(jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin.buffer:
        jobs.put(json.loads(line))
    # Between two jobs this ends the process; a run notes it, saves itself and goes.
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
