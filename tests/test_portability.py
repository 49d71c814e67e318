"""The package on systems that lack what POSIX has: simulated, since the tests run on one that has it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import driftwise

SOURCES = sorted(Path(driftwise.__file__).parent.rglob("*.py"))
POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios"}

WITHOUT_POSIX = """
import errno, fcntl, importlib, os, pkgutil, socket, sys, types

import numpy, torch, sklearn, matplotlib.figure, safetensors.torch, multiprocessing, tempfile

# Locks as Windows has them, made of those that are here.
real, msvcrt = fcntl, types.ModuleType("msvcrt")
msvcrt.LK_NBLCK = 2
places = []
def locking(handle, mode, count):
    places.append(os.lseek(handle, 0, os.SEEK_CUR))
    try:
        real.flock(handle, real.LOCK_EX | real.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EACCES, "Permission denied")
msvcrt.locking = locking
sys.modules["msvcrt"] = msvcrt
for name in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios"):
    sys.modules[name] = None
for name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_NOFOLLOW", "O_DIRECTORY", "fork", "getuid",
             "posix_fallocate", "register_at_fork", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SO_REUSEPORT", "AF_UNIX"):
    delattr(socket, name)
torch.cuda.is_available = lambda: False

import driftwise
import driftwise.files
driftwise.files.IS_WINDOWS = True
"""

IMPORT_ALL = """
extras = {"fastapi", "ray", "lightning", "avalanche", "transformers", "mlflow", "uvicorn", "starlette",
          "multipart", "pydantic", "huggingface_hub", "datasets"}
for module in pkgutil.walk_packages(driftwise.__path__, "driftwise."):
    if module.name.endswith("__main__") or module.name == "driftwise.sweeps.worker":
        continue
    try:
        importlib.import_module(module.name)
    except (ImportError, driftwise.UserError) as error:
        if "not installed" not in str(error) and (
            (getattr(error, "name", None) or "").split(".")[0] not in extras
        ):
            raise
"""

RUN = """
from driftwise.errors import UserError
config = driftwise.RunConfig(epochs=1, threads=1)
whole = driftwise.run(config, "whole")
from driftwise.runs.store import is_busy
with open("whole/.lock", "ab") as held:
    driftwise.files.lock_file(held)
    assert is_busy("whole")
    try:
        driftwise.files.lock_file(open("whole/.lock", "ab"), wait=False)
    except BlockingIOError:
        pass
    else:
        raise AssertionError("locked twice")
assert not is_busy("whole")
assert set(places) == {2**30}, places
assert driftwise.resume("whole")["faa"] == whole["faa"]
assert driftwise.results("whole").runs[0]["faa"] == whole["faa"]
from driftwise.serve.server import Address, _all_bound
try:
    _all_bound(Address(host="127.0.0.1", port=0), 2)
except UserError as error:
    assert "SO_REUSEPORT" in str(error)
else:
    raise AssertionError("workers without a shared port")
"""


def test_no_module_imports_what_only_posix_has_when_it_is_loaded() -> None:
    found = []
    for file in SOURCES:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{file}: {name}" for name in names if name.split(".")[0] in POSIX_ONLY]
    assert found == []


def test_without_posix_every_module_is_imported_and_runs_are_locked_and_saved(
    tmp_path: Path,
) -> None:
    script = WITHOUT_POSIX + IMPORT_ALL + RUN
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
