"""Trouble at many moments, one after the other, and whether anything was lost by it."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from fault_tools import End, LiveWork, Work, attempt, broken, differences, whereabouts
from troubles import ERRORS, Kind, Trouble

from driftwise.runs import store


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One trouble, and what came of it."""

    where: str
    came: str
    """in a word or two"""
    fault: str = ""
    """empty: nothing was lost"""


def undisturbed(work: Work | LiveWork, folder: Path) -> End:
    """A run to compare with; a live learner that is not even saved before its end."""
    work = dataclasses.replace(work, saves=0) if isinstance(work, LiveWork) else work
    end = attempt(work.words(folder))
    assert end.code == 0, end.stderr
    return end


def change_calls(work: Work | LiveWork, folder: Path) -> list[str]:
    """Every change that a run makes to its files, in order: what is done, and to which file."""
    log = folder.with_name("calls.log")
    end = attempt(work.words(folder), trouble=Trouble(folder=str(folder), log=str(log)))
    assert end.code == 0, end.stderr
    return lines_of(log)


def lines_of(log: Path) -> list[str]:
    """Without what is random in the names of temporaries."""
    return re.sub(r"\.[0-9a-f]{16}\.tmp$", ".tmp", log.read_text(), flags=re.M).splitlines()


def _gone_on(work: Work | LiveWork, folder: Path, whole: Path) -> str:
    """What is wrong once a run has been resumed to its end."""
    end = attempt(work.words(folder))
    if end.code != 0:
        return f"the resumed run ended with {end.code}: {end.stderr}"
    return "differs: " + ", ".join(found) if (found := differences(folder, whole)) else ""


def killed_at_random(
    work: Work | LiveWork, top: Path, *, moments: int, seed: int
) -> Iterator[Case]:
    """Kill a run again and again until it is through, then another, at so many moments in all."""
    draw = random.Random(f"{seed} {work.method if isinstance(work, Work) else work}")
    whole = top / "whole"
    undisturbed(work, whole)
    usual = attempt(work.words(top / "timed")).seconds  # the first one may have waited for torch
    left, number = moments, 0
    while left:
        number += 1
        folder = top / f"run-{number}"
        places: list[str] = []
        fault = ""
        while left and not fault:
            end = attempt(work.words(folder), kill_after=draw.uniform(0.0, usual))
            if end.code >= 0:
                fault = f"ended with {end.code}: {end.stderr}" if end.code else ""
                break
            left -= 1
            places.append(whereabouts(folder))
            if found := broken(folder):
                fault = f"broken: {', '.join(found)}"
        fault = fault or _gone_on(work, folder, whole)
        for place in places:
            yield Case(where=place, came="killed", fault=fault)
        shutil.rmtree(folder, ignore_errors=True)


def killed_at_calls(
    work: Work | LiveWork, top: Path, calls: Sequence[int] | None = None
) -> Iterator[Case]:
    """Kill a run in the midst of its k-th change to a file (None: of each in turn), and go on."""
    whole = top / "whole"
    names = change_calls(work, whole)
    for call in calls or range(1, len(names) + 1):
        if call > len(names):
            return
        folder = top / f"call-{call}"
        trouble = Trouble(folder=str(folder), log=f"{folder}.log", kind="kill", call=call)
        end, fault = attempt(work.words(folder), trouble=trouble), ""
        if end.code != -9:
            fault = f"ended with {end.code}: {end.stderr}"
        elif found := broken(folder):
            fault = f"broken: {', '.join(found)}"
        fault = fault or _gone_on(work, folder, whole)
        yield Case(where=names[call - 1], came="killed", fault=fault)
        shutil.rmtree(folder, ignore_errors=True)


def killed_twice(work: Work, top: Path, names: Sequence[str] | None = None) -> Iterator[Case]:
    """Kill a run the second time (or else the first) it makes a change, and again there."""
    whole = top / "whole"
    calls = change_calls(work, whole)
    for name in names or dict.fromkeys(calls):
        folder = top / "twice"
        shutil.rmtree(folder, ignore_errors=True)
        # Temporaries have something random before their ending.
        only = name.removesuffix(".tmp")
        trouble = Trouble(folder=str(folder), log=f"{folder}.log", kind="kill", only=only)
        for call in (min(2, calls.count(name)), 1, 1):
            attempt(work.words(folder), trouble=dataclasses.replace(trouble, call=call))
        yield Case(where=name, came="killed", fault=_gone_on(work, folder, whole))


def full_at_calls(
    work: Work, top: Path, calls: Sequence[int] | None = None, *, kind: Kind = "full"
) -> Iterator[Case]:
    """Let the k-th write fail (None: each in turn), then go on where one can write again."""
    whole = top / "whole"
    names = change_calls(work, whole)
    names = names if kind == "read-only" else writes(names)
    for call in calls or range(1, len(names) + 1):
        if call > len(names):
            return
        folder = top / f"{kind}-{call}"
        trouble = Trouble(folder=str(folder), log=f"{folder}.log", kind=kind, call=call)
        end = attempt(work.words(folder), trouble=trouble)
        place = names[call - 1]
        fault = complaint_about(
            end, place, begun=has_begun(Path(trouble.log)), reason=os.strerror(ERRORS[kind])
        )
        if not fault and folder.exists() and (found := broken(folder)):
            fault = f"broken: {', '.join(found)}"
        # Where nothing can be removed, temporaries stay until the next one tidies up.
        if kind != "read-only" and not fault and folder.exists() and any(folder.glob(".*.tmp")):
            fault = "left a temporary"
        fault = fault or _gone_on(work, folder, whole)
        yield Case(where=place, came=f"code {end.code}", fault=fault)
        shutil.rmtree(folder, ignore_errors=True)


def writes(calls: Sequence[str]) -> list[str]:
    """The changes that take space."""
    return [call for call in calls if not call.startswith("unlink")]


def complaint_about(
    end: End, place: str, *, begun: bool, reason: str = os.strerror(errno.ENOSPC)
) -> str:
    """What is wrong with how a process ended that could not write."""
    if end.code == 0:  # what a file system without links does without, and tidying up
        spared = place.startswith(("link", "unlink"))
        return "" if spared else "went on although a write had failed"
    if end.code != (1 if begun else 2):
        return f"ended with {end.code}: {end.stderr}"
    if end.stderr.count("\n") != 1 or not end.stderr.startswith("driftwise: "):
        return f"expected one line, it wrote {end.stderr!r}"
    return "" if reason in end.stderr else f"wrote {end.stderr!r}"


def has_begun(log: Path) -> bool:
    """Whether a process had got beyond taking its folder, which fails as a usage error."""
    made = ("samples", "events", "records", "checkpoint", "features", "result")
    lines = [line for line in lines_of(log) if not line.startswith("unlink")]
    return any(line.split(" ", 1)[1].lstrip(".").startswith(made) for line in lines)


Damage = Literal["flip", "cut", "zeros"]


def damaged(content: bytes, kind: Damage, place: int, draw: random.Random) -> bytes:
    """A file's content with one thing wrong from `place` on."""
    if kind == "cut":
        return content[:place]
    if kind == "zeros":  # a page that never reached the disk
        return content[:place] + bytes(len(content[place : place + 4096])) + content[place + 4096 :]
    return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]


def stopped(work: Work, folder: Path, whole: Path) -> None:
    """A run killed while it saved the end of its last task, with two checkpoints of before."""
    names = change_calls(work, whole)
    replaced = [k for k, name in enumerate(names, 1) if name.startswith("replace .checkpoint.")]
    call = replaced[-1]
    trouble = Trouble(folder=str(folder), log=f"{folder}.log", kind="kill", call=call)
    assert attempt(work.words(folder), trouble=trouble).code == -9
    assert all((folder / name).exists() for name in (store.CHECKPOINT, store.PREVIOUS))


def damaged_files(
    work: Work, top: Path, names: Sequence[str], *, places: int, seed: int, finished: bool = False
) -> Iterator[Case]:
    """Damage the same places of some files of a stopped (or finished) run, and resume it.

    It must refuse in one line, or warn and end equal to a run without damage.
    """
    whole, before, folder = top / "whole", top / "stopped", top / "run"
    if finished:
        undisturbed(work, whole)
        before = whole
    else:
        stopped(work, before, whole)
    draw = random.Random(f"{seed} {names}")
    words = work.words(folder)  # with --quiet, which must not hide warnings of damage
    smallest = min((before / name).stat().st_size for name in names)
    for number in range(places):
        kind: Damage = ("flip", "cut", "zeros")[number % 3]
        # Half of them in the header, which describes all other bytes.
        place = draw.randrange(min(smallest, 4096) if number % 2 else smallest)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(before, folder)
        changed = False
        for name in names:
            content = (before / name).read_bytes()
            spoiled = damaged(content, kind, place, draw)
            changed |= spoiled != content
            (folder / name).write_bytes(spoiled)
        if changed:
            end = attempt(words)
            came, fault = _verdict(end, folder, whole)
            yield Case(where=f"{kind} at {place}", came=came, fault=fault)


def _verdict(end: End, folder: Path, whole: Path) -> tuple[str, str]:
    written = " ".join(end.stderr.split())
    if end.code == 2:
        one = end.stderr.count("\n") == 1 and end.stderr.startswith("driftwise: error: ")
        return "refused", "" if one else f"expected one line, it wrote {end.stderr!r}"
    if end.code != 0:
        return "failed", f"ended with {end.code}: {written}"
    warned = "warning: " in written
    warned &= "damaged" in written or "not as it was written" in written
    found = differences(folder, whole)
    if warned and set(found) <= {store.EVENTS, store.ARRAYS["features"]}:
        return "warned", ""  # a log; nothing is computed from it
    came = "warned" if warned else "unnoticed" if found else "no effect"
    return came, f"differs: {', '.join(found)}" if found else ""
