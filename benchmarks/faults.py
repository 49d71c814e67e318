"""Whether anything is ever lost: runs killed, disks full, files damaged, at many places.

    python benchmarks/faults.py [--moments 50] [--places 60] [--only kill,mixtures,live,...]

Real processes run digits and save every few steps. Each is killed with SIGKILL (at random, and in
the midst of each change that it makes to its files), or finds the disk full at each write in turn,
or one of its files damaged. Gone on with, it must end equal to a run that nothing happened to: the
result but for seconds and versions, the events, the arrays and every tensor of the last checkpoint
bit for bit. Exits with 1 where one does not.
"""

from __future__ import annotations

import argparse
import collections
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "faults"))

from campaigns import (
    Case,
    complaint_about,
    damaged_files,
    full_at_calls,
    killed_at_calls,
    killed_at_random,
    killed_twice,
    undisturbed,
)
from fault_mixtures import full_once_each, killed_in_mixtures, live_mixtures, mixtures
from fault_tools import METHODS, End, LiveWork, Work, attempt, broken, differences

from driftwise.files import CHECKSUMS
from driftwise.runs import store

SECTIONS = ("kill", "mixtures", "live", "calls", "disk", "tmpfs", "damage")
SMALL = Work(epochs=1, tasks="[[0,1],[2,3]]", steps=20)


def kinds_of_trouble(arguments: argparse.Namespace, top: Path) -> Iterator[tuple[str, str, bool]]:
    """Every section: its cases are tried; what, how many and where, whether all was well."""
    wanted = arguments.only.split(",")
    if "kill" in wanted:
        for method in METHODS:
            cases = killed_at_random(
                Work(method=method, epochs=arguments.epochs),
                top / method,
                moments=arguments.moments,
                seed=arguments.seed,
            )
            yield tried(f"{method}, killed at random", cases, by_phase=True)
    for name, works in (("mixtures", mixtures), ("live", live_mixtures)):
        if name in wanted:
            cases = killed_in_mixtures(
                works(arguments.seed),
                top / name,
                kills=arguments.kills,
                each=4,
                seed=arguments.seed,
                log=lambda text: print(text, file=sys.stderr, flush=True),
            )
            yield tried(f"{name}, killed at random", cases, by_phase=True)
    if "live" in wanted:
        work = LiveWork(samples=120, known=0.7, log_bytes=1000)
        yield tried("live, killed in each change to a file", killed_at_calls(work, top / "changes"))
    if "calls" in wanted:
        yield tried("killed in each change to a file", killed_at_calls(SMALL, top / "calls"))
        yield tried("killed twice in the same change", killed_twice(SMALL, top / "twice"))
    if "disk" in wanted:
        yield tried("disk full at each change", full_at_calls(SMALL, top / "full"))
        stays = full_at_calls(SMALL, top / "stays", kind="stays full")
        yield tried("disk full from each change on", stays)
        closed = full_at_calls(SMALL, top / "closed", kind="read-only")
        yield tried("read-only from each change on", closed)
        yield tried("one run, full at every change once", full_once_each(SMALL, top / "each"))
    if "tmpfs" in wanted:
        yield on_tmpfs(top / "tmpfs")
    if "damage" in wanted:
        for names in (
            (store.CHECKPOINT,),
            (store.PREVIOUS,),
            (store.CHECKPOINT, store.PREVIOUS),
            (store.CONFIG,),
            (store.EVENTS,),
            (store.RECORDS,),
            (CHECKSUMS,),
            *((name,) for name in store.ARRAYS.values()),
        ):
            cases = damaged_files(
                SMALL, top / "+".join(names), names, places=arguments.places, seed=arguments.seed
            )
            yield tried(f"damaged: {', '.join(names)}", cases)
        cases = damaged_files(
            SMALL,
            top / "result",
            (store.RESULT,),
            places=arguments.places,
            seed=arguments.seed,
            finished=True,
        )
        yield tried(f"damaged: {store.RESULT} of a finished run", cases)


def tried(what: str, cases: Iterable[Case], *, by_phase: bool = False) -> tuple[str, str, bool]:
    """Count cases by what came of them (or by where they fell), and list the faults."""
    counts: collections.Counter[str] = collections.Counter()
    faults = 0
    for case in cases:
        counts[_phase(case.where) if by_phase else case.came] += 1
        faults += bool(case.fault)
        if case.fault:
            print(f"{what}: {case.where}: {case.fault}", file=sys.stderr, flush=True)
    text = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    return what, f"{counts.total()}: {text}", faults == 0


def _phase(where: str) -> str:
    """Without the task, the epoch and the mixture."""
    where = where.split(" of ")[0]
    return where.split(",")[0].split(" ", 2)[-1] if where.startswith("task") else where


def on_tmpfs(top: Path) -> tuple[str, str, bool]:
    """The same on a real file system that is too small, where one may be mounted."""
    what = "a real disk that is too small"
    words = [sys.executable, __file__, "--inside", str(top)]
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"]).returncode:
        return what, "skipped: no file system may be mounted here", True
    done = subprocess.run(["unshare", "-rm", *words], stdout=subprocess.PIPE, text=True)
    return what, done.stdout.strip(), done.returncode == 0


def inside(top: Path) -> int:
    """In a mount namespace of its own: tiny disks, then larger ones."""
    _, text, good = tried("tmpfs", _on_small_disks(top))
    print(text)
    return 0 if good else 1


def _on_small_disks(top: Path) -> Iterator[Case]:
    whole, disk = top / "whole", top / "disk"
    undisturbed(SMALL, whole)
    disk.mkdir()
    for kilobytes in (4, 8, 12, 16, 24, 64, 128, 160, 256, 280, 320, 384):
        _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(disk))
        end = attempt(SMALL.words(disk / "run"))
        begun = store.is_run(disk / "run")
        fault = "" if end.code == 0 else complaint_about(end, "", begun=begun)
        _mount("-o", "remount,size=16m", str(disk))
        yield _gone_on_here(f"{kilobytes} kB", end, fault, disk / "run", whole)


def _gone_on_here(where: str, end: End, fault: str, folder: Path, whole: Path) -> Case:
    if not fault and folder.exists() and (found := broken(folder)):
        fault = f"broken: {', '.join(found)}"
    again = attempt(SMALL.words(folder))
    if not fault and again.code:
        fault = f"going on ended with {again.code}: {again.stderr}"
    if not fault and (found := differences(folder, whole)):
        fault = f"differs: {', '.join(found)}"
    return Case(where=where, came=f"code {end.code}", fault=fault)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--moments", type=int, default=50, help="kills per learner (default: 50)")
    parser.add_argument("--kills", type=int, default=120, help="of mixtures (default: 120)")
    parser.add_argument("--places", type=int, default=60, help="per damaged file (default: 60)")
    parser.add_argument("--epochs", type=int, default=4, help="of the killed runs (default: 4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return inside(arguments.inside)
    table = Table("what happened", "cases: what came of them, or where they fell", "equal")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for what, text, well in kinds_of_trouble(arguments, Path(folder)):
            print(
                f"{what}: {text}: {'equal' if well else 'NOT EQUAL'}", file=sys.stderr, flush=True
            )
            table.add_row(what, text, "yes" if well else "NO")
            good &= well
    Console().print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
