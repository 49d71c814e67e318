"""Avalanche in an environment of its own, taking turns with us; made on demand.

The environment lies in `.venv/avalanche` of the project unless `--environment` names another. It sees
the packages of the environment that makes it, the same torch for one, and pip adds those below, about
200 MB, once. Where that cannot be done, comparisons with Avalanche are left out, and said to be.

    python benchmarks/avalanche_side.py      # makes it, and does nothing else
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

ENVIRONMENT = Path(__file__).resolve().parents[1] / ".venv" / "avalanche"
WORKER = Path(__file__).resolve().parent / "avalanche_worker.py"
PACKAGES = ("torchvision==0.28.0", "avalanche-lib==0.6.0")
CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"


class Missing(Exception):
    """Avalanche cannot be had here."""


def add_environment(parser: argparse.ArgumentParser) -> None:
    """The options of every comparison with Avalanche."""
    parser.add_argument(
        "--environment",
        type=Path,
        default=ENVIRONMENT,
        help="virtual environment with Avalanche; made if it is missing (200 MB)",
    )


def python_of(environment: Path) -> Path:
    """The environment's interpreter; the environment is made first if there is none."""
    python = environment / "bin" / "python"
    ready = environment / ".ready"
    if not ready.exists():
        print(f"making {environment} for Avalanche: pip install {' '.join(PACKAGES)}", flush=True)
        _run(sys.executable, "-m", "venv", str(environment))
        own = sysconfig.get_path("purelib", vars={"base": str(environment)})
        Path(own, "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(*pip, "--constraint", str(CONSTRAINTS), *PACKAGES)
        ready.touch()
    return python


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise Missing(f"its environment could not be made: {last}")


class Avalanche:
    """The worker: it computes only while it is asked, so that turns can be taken with it."""

    def __init__(self, environment: Path, options: argparse.Namespace) -> None:
        """Missing, if there is none; with the threads and the clock of our own side."""
        self._setting = {"threads": options.threads, "clock": options.clock}
        self.rows_per_step = 0.0
        """samples that the network was given in a step, of what was opened last"""
        self._process = subprocess.Popen(
            [str(python_of(environment)), str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        hello = self._hear()
        self.version = str(hello["version"])
        if hello["torch"] != torch.__version__:
            print(f"note: torch {torch.__version__} here, {hello['torch']} beside Avalanche")

    def __enter__(self) -> Avalanche:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()

    def open(self, what: str, **setting: Any) -> None:
        """Get ready for `steps`, or for operations on a `memory`."""
        self._ask(do=what, **self._setting, **setting)

    def close(self) -> None:
        """Done with what was opened."""
        self._ask(do="close")

    def steps(self, count: int) -> float:
        """Make so many training steps; the seconds they took."""
        heard = self._ask(do="go", steps=count)
        if heard["rows"]:  # counted once, while warming up
            self.rows_per_step = heard["rows"] / count
        return float(heard["seconds"])

    def calls(self, *names: str) -> list[float]:
        """Carry out operations on the memory; the seconds each took."""
        seconds: list[float] = self._ask(do="go", calls=names)["seconds"]
        return seconds

    def _ask(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            words = self._process.stderr.read().strip().splitlines()
            raise Missing(f"its process ended: {words[-1] if words else 'without a word'}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_environment(parser)
    try:
        python_of(parser.parse_args().environment)
    except Missing as missing:
        sys.exit(f"Avalanche: {missing}")


if __name__ == "__main__":
    main()
