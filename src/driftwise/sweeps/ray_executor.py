"""Runs as Ray tasks, on an existing cluster or on one started here.

Results go to a folder that all machines share. A run lost with its machine is given to another,
which resumes it from its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from driftwise.config.speed import num_processors
from driftwise.errors import UserError
from driftwise.ray_cluster import RayCluster
from driftwise.runs.saving import deferred_signals
from driftwise.sweeps.executors import Engine
from driftwise.sweeps.job import Job, Outcome, perform

STORE = 100 * 2**20
"""bytes of Ray's object store; jobs and outcomes are a page of text"""


class OnRay(Engine):
    """Runs as Ray tasks."""

    def __init__(
        self,
        address: str = "local",
        *,
        cpus_per_run: float = 1.0,
        gpus_per_run: float = 0.0,
        retries: int = 1,
    ) -> None:
        """`address`: host:port or ray://host:port of a cluster, auto, or local to start one here.

        `retries`: how often a run is given to another machine after its own was lost.
        """
        if min(cpus_per_run, gpus_per_run) < 0 or not cpus_per_run + gpus_per_run:
            raise UserError(
                "a run needs CPUs or GPUs, so that Ray knows how many fit: --cpus-per-run 1; got "
                f"{cpus_per_run:g} CPUs and {gpus_per_run:g} GPUs"
            )
        self._home = str(Path.cwd())
        self._cluster = RayCluster(
            address,
            num_cpus=num_processors(),
            store_bytes=STORE,
            needed_by="the engine ray (pool does not)",
        )
        self._ray = self._cluster.ray
        self._per_run = {"CPU": cpus_per_run, "GPU": gpus_per_run}
        self.slots = self._fitting()
        if self.slots < 1:
            resources: dict[str, float] = self._ray.cluster_resources()
            self.close()
            raise UserError(
                f"no run fits on the cluster: it has {resources.get('CPU', 0):g} CPUs and "
                f"{resources.get('GPU', 0):g} GPUs, a run asks for {cpus_per_run:g} and "
                f"{gpus_per_run:g}"
            )
        self._perform = self._ray.remote(_perform).options(
            num_cpus=cpus_per_run,
            num_gpus=gpus_per_run,
            max_retries=retries,
        )
        self._jobs: dict[Any, Job] = {}

    # An exception that a signal raises within Ray's own code comes out as a SystemError, or not at
    # all: signals wait until Ray is done, which takes a second at most.

    def submit(self, job: Job) -> None:
        """Start a job."""
        with deferred_signals():
            self._jobs[self._perform.remote(job.to_json(), self._home)] = job

    def wait(self, seconds: float) -> Outcome | None:
        """The next outcome; meanwhile machines may have come or gone."""
        with deferred_signals():
            return self._wait(seconds)

    def _wait(self, seconds: float) -> Outcome | None:
        self.slots = max(1, self._fitting())  # with no machine left, Ray still has to queue jobs
        if not self._jobs:
            time.sleep(seconds)
            return None
        ready, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=seconds)
        if not ready:
            return None
        job = self._jobs.pop(ready[0])
        try:
            return Outcome(**self._ray.get(ready[0]))
        except self._ray.exceptions.RayError as error:
            line = str(error).strip().splitlines()[0]
            return Outcome(id=job.id, state="failed", error=f"lost by Ray: {line}")

    def close(self) -> None:
        """Disconnect from the cluster; one that was started here ends."""
        with deferred_signals():
            for reference in self.__dict__.get("_jobs", {}):
                self._ray.cancel(reference, force=True)
        self._cluster.close()

    def _fitting(self) -> int:
        """Runs that the cluster, as it is now, has room for."""
        resources: dict[str, float] = self._ray.cluster_resources()
        return int(
            min(resources.get(kind, 0) // asked for kind, asked in self._per_run.items() if asked)
        )


def _perform(job: dict[str, Any], home: str) -> dict[str, Any]:
    """On a machine of the cluster; custom parts and data are named as seen from `home`."""
    with contextlib.suppress(OSError):  # a machine that does not have it
        os.chdir(home)
    return perform(Job(**job)).to_json()
