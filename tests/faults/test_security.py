"""No file is run as code, and nothing is connected to a network."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import driftwise
from driftwise.encoders import pretrained

SOURCE = Path(driftwise.__file__).parent


def nodes(kind: type[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Every node of a kind in the package, with the file that it stands in."""
    return ((file, node) for file, node in _all_nodes() if isinstance(node, kind))


@functools.cache
def _all_nodes() -> list[tuple[str, ast.AST]]:
    return [
        (file.relative_to(SOURCE).as_posix(), node)
        for file in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call | ast.Import | ast.ImportFrom | ast.ClassDef)
    ]


def calls(*names: str) -> list[tuple[str, ast.Call]]:
    """Calls of functions by the names that they are called by."""
    return [(file, call) for file, call in nodes(ast.Call) if ast.unparse(call.func) in names]


def keyword(call: ast.Call, name: str) -> str | None:
    found = [each.value for each in call.keywords if each.arg == name]
    return ast.unparse(found[0]) if found else None


def test_no_text_is_run_as_code() -> None:
    assert calls("eval", "exec", "compile", "__import__", "os.system") == []
    assert [file for file, call in nodes(ast.Call) if keyword(call, "shell") is not None] == []


def test_nothing_that_unpickles_is_imported() -> None:
    risky = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    imported = [
        (file, name.split(".")[0])
        for file, node in (*nodes(ast.Import), *nodes(ast.ImportFrom))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    ]
    assert {"torch", "numpy"} <= {name for _, name in imported}, "or nothing was checked"
    # Snapshots for prediction workers: written and read by one service, in a folder of its own.
    between_own_processes = {("live/portable.py", "pickle")}
    assert {each for each in imported if each[1] in risky} == between_own_processes


def test_arrays_weights_and_settings_are_read_in_the_ways_that_run_nothing() -> None:
    weights = calls("torch.load")
    assert [file for file, _ in weights] == [
        "encoders/pretrained.py",
        "integrations/transformers.py",
    ]
    assert {keyword(call, "weights_only") for _, call in weights} == {"True"}
    arrays = calls("np.load", "numpy.load")
    assert arrays
    assert {keyword(call, "allow_pickle") for _, call in arrays} <= {"False", None}  # its default
    settings = calls("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load")
    assert [ast.unparse(call.args[1]) for _, call in settings] == ["Loader"]
    bases = {
        ast.unparse(base)
        for _, node in nodes(ast.ClassDef)
        if node.name == "Loader"
        for base in node.bases
    }
    assert bases == {"yaml.SafeLoader"}


class Attack:
    """Makes a file as soon as it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.file),)


def test_crafted_weights_run_nothing_even_if_they_had_the_published_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, proof = tmp_path / "weights.pth", tmp_path / "proof"
    torch.save({"weight": torch.zeros(2), "attack": Attack(proof)}, file)
    torch.load(file, weights_only=False)
    assert proof.is_dir(), "the attack is real"
    proof.rmdir()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(Exception, match="Weights only load failed"):
        pretrained._read_pinned(file, digest, "the package")
    assert not proof.exists()


def test_a_page_asks_for_nothing_from_elsewhere(finished: Path, tmp_path: Path) -> None:
    from driftwise.report import write_report

    page = write_report([finished], tmp_path / "page").page.read_text(encoding="utf-8")
    for reference in ('src="http', "src='http", 'src="//', 'href="http', "url(http", "@import"):
        assert reference not in page
    assert "fetch(" not in page
    assert "XMLHttpRequest" not in page


PROBED = (
    *("_winapi", "colorama", "cuda", "cython", "dill", "envwrap", "flint", "gmpy2", "lz4"),
    *("monkeytype", "msvcrt", "nt", "onnx", "opt_einsum", "org", "pandas", "psutil", "pydot"),
    *("pynvml", "sksparse", "tabulate", "tensorflow", "tensorrt", "torchdistx", "triton", "uarray"),
    *("winreg", "xarray", "mlflow", "wandb", "tensorboard", "umap", "datasets", "sitecustomize"),
)
"""Modules that libraries try to import and that need not be installed (the failed imports of
`report`, `list`, `run` and `detect`), and some that this project tries."""

HOSTILE = "from pathlib import Path\nPath(__file__).with_name('ran-' + __name__).touch()\n"

OWN = """
from driftwise.adapt.vanilla import Vanilla
import my_helper

class Part(Vanilla):
    def adapt(self, drifted, context):
        import my_late_helper  # wherever the import stands
        return super().adapt(drifted, context)
"""

COMMANDS = """
import contextlib, io, json, os, sys
from pathlib import Path

opened = []
sys.addaudithook(lambda event, _: opened.append(event) if event.startswith("socket.") else None)

def note_sockets():
    if Path("/proc/self/fd").exists():
        links = [fd for fd in Path("/proc/self/fd").iterdir() if int(fd.name) > 2 and fd.is_symlink()]
        opened.extend(to for to in map(os.readlink, links) if to.startswith("socket:"))

from driftwise.cli.main import main
from driftwise.runs.listeners import EventLog

task_ends = EventLog.task_ends
EventLog.task_ends = lambda log, record: (note_sockets(), task_ends(log, record))

for words in sys.argv[1].split(";"):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main(words.split())
        except SystemExit as end:
            assert end.code in (0, 3), (words, end.code)
    note_sockets()
print(json.dumps(opened))
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A working folder with custom parts, and with modules that must never run."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    (folder / "my_parts.py").write_text(OWN)
    for name in ("my_helper", "my_late_helper"):
        (folder / f"{name}.py").write_text("")
    for name in PROBED:
        (folder / f"{name}.py").write_text(HOSTILE)
    draw = np.random.default_rng(0)
    for name in ("before", "after"):
        images = draw.integers(0, 255, (80, 8, 8, 1), dtype=np.uint8)
        np.savez(folder / f"{name}.npz", images=images, labels=np.arange(80) % 2)
    return folder


def ran(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("ran-*"))


def run_there(folder: Path, *words: str) -> list[str]:
    """As the installed command does: the script's own folder is on the path, and no other.

    Returns the sockets that were opened.
    """
    script = folder.parent / "bin" / "commands.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(COMMANDS)
    command = [sys.executable, str(script), ";".join(words)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    opened: list[str] = json.loads(done.stdout)
    return opened


TINY_RUN = "run --tasks [[0,1],[2,3]] --epochs 1 --max-per-class 20 --quiet --overwrite --out run"


def test_commands_run_no_module_of_the_working_folder_and_open_no_socket(
    hostile: Path, finished: Path
) -> None:
    opened = run_there(
        hostile,
        f"report {finished} --out page --quiet",
        "list",
        "data list",
        "detect before.npz after.npz --quiet",
        TINY_RUN,
        f"{TINY_RUN} --adaptation my_parts:Part",  # what it imports is found, and nothing else
    )
    assert opened == []
    assert ran(hostile) == []


def test_modules_in_the_working_folder_do_not_run_in_workers(hostile: Path) -> None:
    grid = {
        "base": {"tasks": [[0, 1], [2, 3]], "epochs": 1, "adaptation": "my_parts:Part"},
        "grid": {"seed": [0]},
    }
    (hostile / "grid.json").write_text(json.dumps(grid))
    run_there(hostile, "sweep grid.json --workers 1 --quiet")
    assert ran(hostile) == []
    assert list(hostile.glob("runs/grid/runs/*/result.json"))


def test_python_m_does_not_look_into_the_working_folder(hostile: Path) -> None:
    (hostile / "scipy.py").write_text(HOSTILE)  # installed, and shadowed by whatever comes first
    (hostile / "torch.py").write_text(HOSTILE)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    command = [sys.executable, "-m", "driftwise", "list"]  # imports both
    subprocess.run(command, cwd=hostile, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert ran(hostile) == []


READERS = ("report/", "sweeps/", "runs/")
"""Where files of runs and sweeps are read, which may have come from anybody."""


def test_files_of_runs_are_read_as_regular_files_of_bounded_size_only() -> None:
    own = ("files(", "read_text('utf-8')")  # what belongs to the package
    found = [
        (file, ast.unparse(call))
        for file, call in nodes(ast.Call)
        if file.startswith(READERS) or file == "files.py"
        if ast.unparse(call.func).endswith((".read_bytes", ".read_text", "load_file", "json.load"))
        and not any(words in ast.unparse(call) for words in own)
    ]
    assert found == []


@pytest.mark.parametrize("name", ["config.json", "checkpoint.safetensors", "checksums.json"])
def test_a_pipe_in_a_run_folder_keeps_nobody_waiting(
    finished: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "checkpoint-previous.safetensors").unlink()
    (folder / name).unlink()
    os.mkfifo(folder / name)

    def give_up(*_: object) -> None:
        raise AssertionError("still waiting")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    try:
        with pytest.raises(driftwise.UserError, match="expected a regular file, found a pipe"):
            driftwise.load(folder)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ["records.jsonl", "events.jsonl", ".lock"])
def test_a_run_is_not_resumed_into_a_pipe(finished: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "result.json").unlink()
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(driftwise.UserError, match=f"{re.escape(name)} is no regular file"):
        driftwise.run(driftwise.RunConfig(epochs=1), folder, resume=True)
