"""Long streams and large sweeps: bytes on disk, peak memory and seconds beside their goals.

    python benchmarks/bench_scale.py [--tasks 500] [--runs 5000] [--only records,report,sweep]

`records`: tasks with one class each, through the functions with which a run records its tasks and
makes its result; training, detection and evaluation are made up, every verdict with all that a
detector can say. `report`: the page of that run, and its page in a sweep. `sweep`: the index and
the pages over many runs in the paper's grid; `seeds`: as many seeds of one cell; `large`: of 100
classes in 20 tasks each. `runs`: `driftwise report` over the runs of `sweep`. Each part runs in a
process of its own, whose peak memory is printed. Exits with 1 where a goal is missed; `--keep
FOLDER` leaves everything there.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import bench_index
import numpy as np

T = TypeVar("T")

GOALS = {
    "records.jsonl, MB": 40.0,
    "memory for the records, MB": 800.0,
    "memory for the report, MB": 800.0,
    "report of the run, MB": 5.0,
    "page of the run, MB": 5.0,
    "index, MB": 5.0,
    "index, seconds of one core": 10.0,
    "pages/, MB": 150.0,
    "report of the runs, MB": 5.0,
}
TESTS_PER_CLASS = 5


def make_records(out: Path, tasks: int) -> None:
    """A run's folder with the records and the result of so many tasks."""
    import torch

    from driftwise import RunConfig
    from driftwise.metrics import Ledger, score
    from driftwise.runs.result import make_result, record_to_json
    from driftwise.runs.store import RunFolder
    from driftwise.streams import Schedule
    from driftwise.types import TaskRecord, Verdict

    rng = np.random.default_rng(0)
    config = RunConfig(benchmark="npz", method="er", adaptation="amr", detector="ks")
    schedule = Schedule(tasks=tuple((label,) for label in range(tasks)))
    with RunFolder.open(out / "run", config.to_json()) as folder:
        for task in range(1, tasks + 1):
            labels = torch.arange(task).repeat_interleave(TESTS_PER_CLASS)
            logits = torch.from_numpy(rng.normal(size=(len(labels), tasks)))
            logits[torch.arange(len(labels)), labels] += 1.5 + 2.5 * labels / task  # old ones fade
            verdicts = tuple(
                Verdict(
                    task=task,
                    label=label,
                    drifted=bool(rng.random() < 0.02),
                    score=rng.random(),
                    p_value=rng.random(),
                    threshold=0.05 / task,
                    num_reference=10,
                    num_current=TESTS_PER_CLASS,
                    harm=rng.random(),
                    harm_error=rng.random(),
                    harm_unlabelled=rng.random(),
                )
                for label in range(task - 1)
            )
            record = TaskRecord(
                task=task,
                verdicts=verdicts,
                renewed=tuple(v.label for v in verdicts if v.drifted),
                notes=(f"task {task} realigned some classes",),
                scores=score(logits, labels, schedule.tasks[:task], task=task),
            )
            folder.append_record(record_to_json(record, is_last=task == tasks))
        names = [f"class {label}" for label in range(tasks)]
        folder.write_result(make_result(config, schedule, names, folder.records(), Ledger()))
    for name in ("records.jsonl", "result.json"):
        show(f"{name}, MB", (out / "run" / name).stat().st_size / 1e6)
    show("memory for the records, MB", peak())


def report_run(out: Path) -> None:
    """The page of the one run, and its page in a sweep."""
    from driftwise.report import write_report
    from driftwise.report.read import read_run
    from driftwise.report.run_page import build_run_page

    tell_seconds("report of the run", lambda: write_report([out / "run"], out / "page"))
    show("report of the run, MB", (out / "page" / "index.html").stat().st_size / 1e6)
    show("memory for the report, MB", peak())
    page = build_run_page(read_run(out / "run"), "run", [])
    (out / "page" / "run.html").write_text(page)
    show("page of the run, MB", len(page.encode()) / 1e6)


def index_runs(out: Path, runs: int, shape: str) -> None:
    """The index over many runs."""
    from driftwise.report.index_page import write_index
    from driftwise.report.sweeps import read_sweep

    alike, classes, tasks = {
        "grid": (False, 10, 5),
        "seeds": (True, 10, 5),
        "large": (False, 100, 20),
    }[shape]
    file = bench_index.fill(
        out, "table1-smoke", num=runs, classes=classes, tasks=tasks, alike=alike
    )
    # Of large runs most of the time goes into reading verdicts; there is no goal for that.
    name = "index of large runs" if shape == "large" else "index"
    page = tell_seconds(name, lambda: write_index(out, [read_sweep(file)]))
    pages = sum(each.stat().st_size for each in (out / "pages").iterdir())
    show("index, MB", page.stat().st_size / 1e6)
    show("pages/, MB", pages / 1e6)
    show("memory for the index, MB", peak())


def report_runs(out: Path) -> None:
    """What `driftwise report` makes of many runs."""
    from driftwise.report import write_report

    report = tell_seconds(
        "report of the runs", lambda: write_report([out / "runs"], out / "report")
    )
    show("report of the runs, MB", report.page.stat().st_size / 1e6)
    show("memory for the report of the runs, MB", peak())


def peak() -> float:
    """Megabytes that this process has held at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def tell_seconds(name: str, work: Callable[[], T]) -> T:
    """What `work` returns, after it has shown the seconds of one core that it took."""
    busy = time.process_time()
    result = work()
    show(f"{name}, seconds of one core", time.process_time() - busy)
    return result


def show(name: str, value: float) -> None:
    """One line, beside its goal."""
    goal = GOALS.get(name)
    words = "" if goal is None else f"   goal {goal:6.0f}   {'met' if value <= goal else 'MISSED'}"
    print(f"  {name:42} {value:8.2f}{words}", flush=True)


PARTS: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "records": lambda out, given: make_records(out, given.tasks),
    "report": lambda out, _: report_run(out),
    "sweep": lambda out, given: index_runs(out / "grid", given.runs, "grid"),
    "seeds": lambda out, given: index_runs(out / "seeds", given.runs, "seeds"),
    "large": lambda out, given: index_runs(out / "large", given.runs, "large"),
    "runs": lambda out, _: report_runs(out / "grid"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, joined by commas")
    parser.add_argument("--keep", type=Path, help="a new folder to leave everything in")
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.within is not None:  # the process of one part
        PARTS[given.only](given.within, given)
        return 0
    missed = False
    with tempfile.TemporaryDirectory() as temporary:
        out = given.keep or Path(temporary)
        for part in given.only.split(","):
            print(part, flush=True)
            words = [sys.executable, __file__, "--only", part, "--within", str(out)]
            words += ["--tasks", str(given.tasks), "--runs", str(given.runs)]
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
            print(done.stdout, end="", flush=True)
            missed = missed or "MISSED" in done.stdout
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
