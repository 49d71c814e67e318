"""A stranger's folder with every trick that is known, and each command that could fall for it.

    python benchmarks/hostile.py [--only NAME,...]

Every trick starts from a fresh copy of whole runs, a sweep, a live learner and data. The commands run
there in processes of their own, with limits on time and on memory. They must end in time, with one
line at most where they refuse, and nothing outside the folder may be made or changed. Prints a line
for each trick, and exits with 1 where one has worked.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "faults"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import fuzz
from run_tools import snapshot
from test_security import HOSTILE, PROBED, SOURCE

import driftwise

SECONDS = 90
MEMORY = 4 * 2**30
"""bytes of address space of each process; torch alone takes about one billion"""
RESIDENT = 700
"""megabytes that a process may have in use at most"""

LOAD = "import sys, driftwise; driftwise.load(sys.argv[1])"
KEEP = (
    "import sys, numpy as np, driftwise; k = driftwise.LiveLearner.load(sys.argv[1]); "
    "k.observe(np.zeros((4, 4)), [0, 1, 0, 1]); k.save(); k.close()"
)
GRID = {
    "name": "grid",
    "base": {"tasks": [[0, 1], [2, 3]], "epochs": 1, "max_per_class": 20},
    "grid": {"method": ["er", "ser"]},
}
RUN = "run --tasks [[0,1],[2,3]] --epochs 1 --max-per-class 20 --quiet"
REPORT = ("report", ".", "--quiet")
SWEEP = ("sweep", "grid.json", "--out", "sweep", "--workers", "1", "--quiet")
DETECT = ("detect", "before.npz", "after.npz", "--quiet")
RESUME = ("run", "--resume", "--quiet", "--out", "run")
Words = tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where a trick is tried."""

    top: Path

    @property
    def folder(self) -> Path:
        """The stranger's."""
        return self.top / "stranger"

    @property
    def outside(self) -> Path:
        """The user's own, where nothing may change."""
        return self.top / "own"

    @property
    def canary(self) -> Path:
        """A file that a link leads to."""
        return self.outside / "letter.txt"

    @property
    def runs(self) -> list[Path]:
        """Of the sweep."""
        return sorted((self.folder / "sweep" / "runs").iterdir())

    def result(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change what the result of a run says; whoever sends a folder sends fitting checksums."""
        file = self.folder / "run" / "result.json"
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))
        (file.parent / "checksums.json").unlink()

    def link(self, name: str, target: Path) -> None:
        """Put a link in the place of something."""
        file = self.folder / name
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        file.unlink(missing_ok=True)
        file.symlink_to(target)


@dataclass(frozen=True)
class Trick:
    """Something hostile, what could fall for it, and what must hold afterwards."""

    prepare: Callable[[Place], object]
    commands: tuple[Words, ...]
    holds: Callable[[Place, list[str]], bool] = lambda _, __: True
    """given what the commands said"""


# --- the tricks -----------------------------------------------------------------------------------


def _modules(place: Place) -> None:
    for name in (*PROBED, "yaml", "torch", "numpy", "sklearn", "usercustomize"):
        (place.folder / f"{name}.py").write_text(HOSTILE)


def _nothing_ran(place: Place, _: list[str]) -> bool:
    return not list(place.folder.rglob("ran-*"))


def _guessed_links(place: Place) -> None:
    """The names that temporary files had once, for the processes to come."""
    names = {
        "": ("index.html", "table.csv", "table.md", ".written.json"),
        "run": ("config.json", "checkpoint.safetensors", "result.json", "checksums.json"),
        "keeper": ("checkpoint.safetensors", "checkpoint-previous.safetensors"),
        "sweep/sweeps": ("grid.json",),
    }
    (place.folder / "run" / "result.json").unlink()
    for folder, files in names.items():
        for name in files:
            for process in range(os.getpid(), os.getpid() + 800):
                link = place.folder / folder / f".{name.lstrip('.')}.{process}.tmp"
                link.symlink_to(place.canary)


def _linked_folders(place: Place) -> None:
    for name in ("figures", "pages", "grid"):
        place.link(name, place.outside)
        place.link(f"sweep/{name}", place.outside)


def _linked_runs(place: Place) -> None:
    place.link("sweep/runs", place.outside)


def _linked_files(place: Place) -> None:
    for name in ("run/events.jsonl", "run/.lock", "keeper/events.jsonl", "keeper/.lock"):
        place.link(name, place.canary)
    (place.folder / "run" / "result.json").unlink()


def _keeper_setting(place: Place) -> None:
    file = place.folder / "keeper" / "config.json"
    config = json.loads(file.read_text())
    config["keeper"]["folder"] = str(place.outside / "made")
    file.write_text(json.dumps(config))
    (file.parent / "checksums.json").unlink()


FORMULAS = ("=cmd|' /C calc'!A0", "@SUM(1+1)*cmd", "+1+1", "-2+3", "\t=1+1", ' =HYPERLINK("http")')


def _formulas(place: Place) -> None:
    def change(result: dict[str, Any]) -> None:
        result["method"], result["benchmark"] = FORMULAS[0], FORMULAS[1]
        result["adaptation"], result["detector"] = FORMULAS[2], FORMULAS[4]
        result["config"] |= {name: result[name] for name in ("method", "benchmark", "adaptation")}
        result["class_names"] = list(FORMULAS) * 2

    place.result(change)


def _no_formula(place: Place, _: list[str]) -> bool:
    cells = [
        cell
        for file in place.folder.rglob("*.csv")
        for line in csv.reader(file.read_text().splitlines())
        for cell in line
    ]
    return bool(cells) and not [
        cell for cell in cells if cell.strip()[:1] in tuple("=+-@") and not _is_number(cell)
    ]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _huge_class(place: Place) -> None:
    def change(result: dict[str, Any]) -> None:
        for verdict in result["verdicts"]:
            verdict["class"] = 10**12
        result["per_class_accuracy"][-1][str(10**12)] = 1.0

    place.result(change)


def _left_out(place: Place, said: list[str]) -> bool:
    """Whether the report was made without the run, which is named."""
    return (place.folder / "index.html").is_file() and "run: damaged" in said[0]


def _instead(make: Callable[[Path], object]) -> Callable[[Place], None]:
    def prepare(place: Place) -> None:
        place.runs[0].joinpath("result.json").unlink()
        make(place.runs[0] / "result.json")
        for name in ("run/config.json", "keeper/checkpoint.safetensors", "sweep/sweeps/grid.json"):
            (place.folder / name).unlink()
            make(place.folder / name)
        (place.folder / "keeper" / "checkpoint-previous.safetensors").unlink(missing_ok=True)

    return prepare


def _device(file: Path) -> None:
    try:
        os.mknod(file, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero
    except OSError:
        file.symlink_to("/dev/zero")


def _swapped(place: Place) -> None:
    first, second = (run / "result.json" for run in place.runs)
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    for run in place.runs:
        (run / "checksums.json").unlink()


def _says(*words: str) -> Callable[[Place, list[str]], bool]:
    """Whether each command has said so."""
    return lambda _, said: all(any(word in text for word in words) for text in said)


def _damaged_plan(place: Place) -> None:
    file = place.folder / "sweep" / "sweeps" / "grid.json"
    file.write_bytes(file.read_bytes()[:-200])


def _foreign_code(place: Place) -> None:
    (place.folder / "theirs.py").write_text(HOSTILE)
    for name in ("run", "keeper"):
        file = place.folder / name / "config.json"
        config = json.loads(file.read_text())
        config["method"] = "theirs:Method"
        config.get("keeper", {})["method"] = "theirs:Method"
        file.write_text(json.dumps(config))
        (file.parent / "checksums.json").unlink()
    (place.folder / "run" / "result.json").unlink()


CONFIGS = {
    "digits": "seed: " + "9" * 100_000,
    "climbing": "method: '..x:y'",
    "loads": "method: 'json:loads'",
    "system": "detector: 'os:system'",
    "tag": "seed: !!python/object/apply:os.system ['touch ran-yaml']",
    "laughs": "a: &a [1,1,1,1,1,1,1,1,1]\n"
    + "".join(f"{n}: &{n} [{','.join(['*' + p] * 9)}]\n" for p, n in zip("abcdefg", "bcdefgh")),  # noqa: B905
    "deep": "tasks: " + "[" * 5000 + "]" * 5000,
    "transforms": json.dumps(
        {"events": [{"task": 2, "transform": [{"name": "rotation", "severity": 1}] * 1000}]}
    ),
}


def _configs(place: Place) -> None:
    for name, text in CONFIGS.items():
        (place.folder / f"{name}.yaml").write_text(text)


def _arrays(place: Place) -> None:
    labels = np.array(["a", "b"] * 40).astype("<U4")
    labels.view(np.uint32)[0] = 0x7FFFFFFF  # beyond Unicode
    images = np.zeros((80, 8, 8, 1), np.uint8)
    np.savez(place.folder / "beyond.npz", images=images, labels=labels)
    np.savez_compressed(
        place.folder / "bomb.npz", images=np.zeros((2**12, 2**10, 2**10, 1), np.uint8), labels=[0]
    )
    np.savez(place.folder / "objects.npz", images=images, labels=np.array([{}] * 80, object))


def _circles(place: Place) -> None:
    place.link("again", place.folder)
    deep = place.folder
    for _ in range(150):
        deep = deep / "deeper"
    deep.mkdir(parents=True)
    (place.folder / "others").symlink_to(place.outside)


def _forged(place: Place) -> None:
    for name in ("keeper", "run"):
        file = place.folder / name / "checkpoint.safetensors"
        content = file.read_bytes()
        (file.parent / "checkpoint-previous.safetensors").unlink(missing_ok=True)
        for number in range(20):
            copy = place.folder / f"{name}-{number}"
            shutil.copytree(file.parent, copy)
            forged = fuzz.forged(content, random.Random(f"{name} {number}"))
            (copy / "checkpoint.safetensors").write_bytes(forged)


FORGED = """
import sys, warnings, numpy as np, driftwise
warnings.simplefilter("ignore")
refused = 0
for number in range(20):
    folder = f"{sys.argv[1]}-{number}"
    try:
        if sys.argv[1] == "keeper":
            learner = driftwise.LiveLearner.load(folder)
            learner.observe(np.zeros((4, 4)), [0, 1, 0, 1])
            learner._let_go()
        else:
            driftwise.load(folder).predict(np.zeros((2, 8, 8, 1), np.uint8))
    except (driftwise.UserError, driftwise.RunFailure) as error:
        assert len(str(error).splitlines()) == 1, error
        refused += 1
print(refused, "of 20 refused", file=sys.stderr)
"""

TRICKS: dict[str, Trick] = {
    "modules that lie in the working folder": Trick(
        _modules,
        (REPORT, ("list",), DETECT, (*RUN.split(), "--out", "new"), SWEEP, ("-c", LOAD, "run")),
        _nothing_ran,
    ),
    "guessed names of temporary files, linked": Trick(
        _guessed_links, (REPORT, RESUME, ("-c", KEEP, "keeper"), SWEEP)
    ),
    "subfolders of reports and sweeps, linked": Trick(
        _linked_folders, (REPORT, SWEEP), _says("is a link")
    ),
    "the runs of a sweep, linked": Trick(_linked_runs, (SWEEP,), _says("is a link")),
    "logs and locks, linked": Trick(
        _linked_files, (RESUME, ("-c", KEEP, "keeper")), _says("is a link")
    ),
    "a folder in a live learner's settings": Trick(
        _keeper_setting, (("-c", KEEP, "keeper"),), _says("unknown setting")
    ),
    "formulas for spreadsheets": Trick(_formulas, (REPORT,), _no_formula),
    "a class of the number 10^12": Trick(_huge_class, (REPORT,), _left_out),
    "30,000 empty rows of a matrix": Trick(
        lambda place: place.result(lambda result: result.update(accuracy_matrix=[[]] * 30_000)),
        (REPORT,),
        _left_out,
    ),
    "pipes in the place of files": Trick(
        _instead(os.mkfifo),
        (REPORT, ("-c", LOAD, "run"), ("-c", KEEP, "keeper"), SWEEP),
        _says("regular file"),
    ),
    "devices in the place of files": Trick(
        _instead(_device),
        (REPORT, ("-c", LOAD, "run"), ("-c", KEEP, "keeper"), SWEEP),
        _says("regular file"),
    ),
    "results of a sweep, swapped": Trick(_swapped, (SWEEP,), _says("of another run")),
    "a plan that is cut": Trick(_damaged_plan, (SWEEP,), _says("was damaged")),
    "code named by a config": Trick(
        _foreign_code,
        (RESUME, ("-c", LOAD, "run"), ("-c", KEEP, "keeper"), REPORT),
        _nothing_ran,
    ),
    "config files that are too much": Trick(
        _configs,
        tuple(("run", "--config", f"{name}.yaml", "--quiet", "--out", "new") for name in CONFIGS),
        _nothing_ran,
    ),
    "arrays that are too much": Trick(
        _arrays,
        tuple(
            ("detect", f"{name}.npz", "after.npz", "--quiet")
            for name in ("beyond", "bomb", "objects")
        ),
    ),
    "circles of links, and 150 levels": Trick(_circles, (REPORT,)),
    "forged states with digests that fit": Trick(
        _forged, (("-c", FORGED, "keeper"), ("-c", FORGED, "run")), _says("of 20 refused")
    ),
}


# --- playing them ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class End:
    """How a command ended."""

    code: int | None
    """None: it had to be stopped"""
    said: str
    seconds: float
    megabytes: int


def make(top: Path) -> None:
    """What every trick starts from, all of it whole."""
    place = Place(top)
    place.folder.mkdir()
    (place.outside / "photos").mkdir(parents=True)
    place.canary.write_text("dear")
    (place.outside / "photos" / "one.png").write_bytes(b"a photo")
    (place.folder / "grid.json").write_text(json.dumps(GRID))
    draw = np.random.default_rng(0)
    for name in ("before", "after"):
        images = draw.integers(0, 255, (80, 8, 8, 1), dtype=np.uint8)
        np.savez(place.folder / f"{name}.npz", images=images, labels=np.arange(80) % 2)
    config = driftwise.RunConfig(epochs=1, tasks=((0, 1), (2, 3)), max_per_class=20, threads=1)
    fuzz._stopped_keeper(place.folder)
    (place.folder / "run").rename(place.folder / "keeper")
    driftwise.run(config, place.folder / "run")
    end = run(place, SWEEP)
    assert end.code == 0, end.said


def run(place: Place, words: Words) -> End:
    """A command in the stranger's folder, within limits."""
    python = (
        [sys.executable, "-P", *words]
        if words[0] == "-c"
        else [
            *(sys.executable, "-m", "driftwise"),
            *words,
        ]
    )
    home = place.top / "home"
    home.mkdir(exist_ok=True)
    keys = ("HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR", "TMPDIR")
    environment = {
        **{"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE.parent), "OMP_NUM_THREADS": "1"},
        **dict.fromkeys(keys, str(home)),
    }
    errors = place.top / "errors"
    start = time.monotonic()
    with errors.open("wb") as stream:
        process = subprocess.Popen(
            python,
            cwd=place.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        )
        code: int | None = None
        while time.monotonic() < start + SECONDS:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.02)
        else:
            process.kill()
            _, _, used = os.wait4(process.pid, 0)
        process.returncode = code
    said = errors.read_text(errors="replace").strip()
    seconds = time.monotonic() - start
    return End(code=code, said=said, seconds=seconds, megabytes=used.ru_maxrss // 1024)


def fault_of(words: Words, end: End) -> str:
    """What is wrong with how a command ended."""
    command = words[0] if words[0] != "-c" else f"Python on {words[2]}"
    if end.code is None:
        return f"{command} did not end in {SECONDS} s"
    if end.megabytes > RESIDENT:
        return f"{command} took {end.megabytes} MB"
    # From Python, the one line is that of the library's own error.
    own = ("driftwise.errors.UserError", "driftwise.errors.RunFailure")
    if "Traceback" in end.said:
        if words[0] != "-c" or not end.said.splitlines()[-1].startswith(own):
            return f"{command} gave a traceback: {end.said.splitlines()[-1]}"
    elif end.code not in (0, 1, 2, 3):
        return f"{command} ended with {end.code}"
    return ""


def carry_out(trick: Trick, whole: Path, top: Path) -> str:
    """The fault, or how it went."""
    shutil.copytree(whole, top, symlinks=True)
    place = Place(top)
    trick.prepare(place)
    before, mine = snapshot(place.outside), {path.name for path in top.iterdir()}
    ends = []
    for words in trick.commands:
        ends.append(end := run(place, words))
        if fault := fault_of(words, end):
            return f"FAULT: {fault}"
    if snapshot(place.outside) != before:
        return "FAULT: something outside was changed"
    if strangers := {path.name for path in top.iterdir()} - mine - {"home", "errors"}:
        return f"FAULT: made outside: {', '.join(strangers)}"
    if not trick.holds(place, [end.said for end in ends]):
        return f"FAULT: {[end.said for end in ends]}"
    codes = " ".join(str(end.code) for end in ends)
    seconds, megabytes = max(end.seconds for end in ends), max(end.megabytes for end in ends)
    return f"held ({len(ends)} commands, codes {codes}; at most {seconds:.0f} s, {megabytes} MB)"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="tricks whose name begins like one of these, by comma")
    wanted = parser.parse_args().only
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        (top / "whole").mkdir()
        make(top / "whole")
        shutil.rmtree(top / "whole" / "home")
        for number, (name, trick) in enumerate(TRICKS.items()):
            if wanted and not name.startswith(tuple(wanted.split(","))):
                continue
            came = carry_out(trick, top / "whole", top / f"trick-{number}")
            faults += came.startswith("FAULT")
            print(f"{name}: {came}", flush=True)
            shutil.rmtree(top / f"trick-{number}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
