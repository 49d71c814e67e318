"""Adaptations of one's own, by import path: they count, wait, chat and break.

What they do is steered by files in the folder that the environment names, so that it reaches them
in whatever process they run.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from driftwise.adapt.vanilla import Vanilla
from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Verdict

FOLDER = "DRIFTWISE_TEST_FOLDER"


def folder() -> Path:
    """Where the parts write to, and look for orders."""
    return Path(os.environ[FOLDER])


def tasks_begun() -> list[int]:
    """The number of classes in memory at the beginning of each task that was begun."""
    file = folder() / "begun"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


class Counting(Vanilla):
    """Notes every task that begins; while there is a file `gate`, stops before the second one."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        with (folder() / "begun").open("a") as file:
            file.write(f"{len(context.buffer.counts())}\n")
        while context.buffer.counts() and (folder() / "gate").exists():
            (folder() / "at-gate").touch()
            time.sleep(0.01)
        return super().adapt(drifted, context)


class Killed(Vanilla):
    """Under torchrun: process 0 is killed in its first start, process 1 in its second."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        start = os.environ.get("TORCHELASTIC_RESTART_COUNT")
        if context.buffer.counts() and start in ("0", "1") and start == os.environ["RANK"]:
            Path(os.environ[FOLDER], f"killed-{start}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().adapt(drifted, context)


class Chatty(Vanilla):
    """Prints what could pass for an answer."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        print('{"id": "nonsense", "state": "done"}', flush=True)
        os.write(1, b"no JSON at all\n")
        return super().adapt(drifted, context)


class Leaving(Vanilla):
    """Takes itself for the whole program."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        sys.exit("that is all")


class Broken(Vanilla):
    """Fails for as long as there is a file `broken`."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        if (folder() / "broken").exists():
            raise ZeroDivisionError("it broke\nin two lines")
        return super().adapt(drifted, context)
