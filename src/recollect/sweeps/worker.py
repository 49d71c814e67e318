"""A worker process: jobs come in as lines of JSON, outcomes go out as such.

When its input ends, so does it, in the middle of a run if need be: whoever gave the jobs has gone,
and a run that nobody waits for must not hold its folder. Every finished task is on the disk.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import Any

from recollect.sweeps.job import Job, perform


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

    while True:
        job = Job(**jobs.get())
        answer(perform(job, progress).to_json())


def _read(jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin.buffer:
        jobs.put(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
