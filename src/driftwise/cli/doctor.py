"""`driftwise doctor`: what this machine has, and whether everything works here."""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import driftwise
from driftwise.cli.common import add_command, add_output_flags, print_outcome, refuse_part_options

SOUND, UNSOUND = 0, 1
SHOWN = (
    *("torch", "numpy", "scipy", "scikit-learn", "safetensors", "matplotlib", "pillow", "jinja2"),
)


@dataclass(frozen=True)
class Finding:
    """One line about this machine."""

    topic: str
    name: str
    text: str
    is_problem: bool = False
    """whether something does not work that must"""


def add_doctor_command(commands: Any) -> None:
    """Register `doctor` with the subparsers of the command line."""
    doctor = add_command(
        commands,
        "doctor",
        _doctor,
        "versions, devices, extras, data, write access, and a self-test of some seconds",
        epilog="Exit codes: 0 everything works, 1 something that is marked with ! does not.",
    )
    doctor.add_argument("--no-test", action="store_true", help="leave the self-test out")
    add_output_flags(doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    refuse_part_options(arguments)
    topics: list[Callable[[], list[Finding]]] = [versions, devices, extras, data, folders]
    if not arguments.no_test:
        topics.append(self_test)
    found = [finding for topic in topics for finding in topic()]
    problems = [finding for finding in found if finding.is_problem]
    outcome = {"works": not problems, "findings": [asdict(finding) for finding in found]}
    print_outcome(arguments, outcome, _text(found, len(problems)))
    return UNSOUND if problems else SOUND


def _text(found: list[Finding], num_problems: int) -> str:
    width = max(len(finding.name) for finding in found) + 2
    lines: list[str] = []
    topic = ""
    for each in found:
        if each.topic != topic:
            lines += [""] if topic else []
            lines.append(each.topic)
            topic = each.topic
        lines.append(f"{'!' if each.is_problem else ' '} {each.name.ljust(width)}{each.text}")
    noun = "problem" if num_problems == 1 else "problems"
    ending = f"{num_problems} {noun}, marked with !" if num_problems else "everything works"
    return "\n".join([*lines, "", ending])


def versions() -> list[Finding]:
    """Of this package, of Python and of what is needed."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    lines = [
        Finding("versions", "driftwise", f"{driftwise.__version__} in {_home()}"),
        Finding("versions", "python", f"{platform.python_version()}, {system}"),
    ]
    for name in SHOWN:
        version = _version(name)
        lines.append(Finding("versions", name, version or "not installed", is_problem=not version))
    return lines


def _home() -> Path:
    return Path(driftwise.__file__).parent


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def devices() -> list[Finding]:
    """Processors and GPUs, and whether they compute in bfloat16."""
    import torch

    from driftwise.config.speed import has_bf16, num_processors

    bf16 = "bfloat16 is native" if has_bf16() else "no native bfloat16: --speed fast leaves it out"
    cpu = f"{num_processors()} processors, torch uses {torch.get_num_threads()} threads"
    lines = [Finding("devices", "cpu", cpu if torch.cuda.is_available() else f"{cpu}; {bf16}")]
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        memory = torch.cuda.get_device_properties(number).total_memory / 2**30
        name = torch.cuda.get_device_name(number)
        lines.append(Finding("devices", f"cuda:{number}", f"{name}, {memory:.0f} GiB; {bf16}"))
    if not torch.cuda.is_available():
        lines.append(Finding("devices", "cuda", "none: runs use the processor"))
    if torch.backends.mps.is_available():
        lines.append(Finding("devices", "mps", "available: --device mps"))
    return lines


def extras() -> list[Finding]:
    """What is installed of each optional part."""
    try:
        needed = metadata.requires("driftwise") or []
    except metadata.PackageNotFoundError:
        return [Finding("extras", "extras", "unknown: the package is not installed, only imported")]
    by_extra: dict[str, list[str]] = {}
    for line in needed:
        match = re.match(r"([A-Za-z0-9._-]+).*;.*extra == ['\"]([\w-]+)['\"]", line)
        if match and match[1] != "driftwise" and match[2] not in ("dev", "docs"):
            by_extra.setdefault(match[2], []).append(match[1])
    lines = []
    for extra, packages in sorted(by_extra.items()):
        known = {package: _version(package) for package in packages}
        if all(known.values()):
            text = ", ".join(f"{package} {version}" for package, version in known.items())
        else:
            text = f"not installed: pip install 'driftwise[{extra}]'"
        lines.append(Finding("extras", extra, text))
    return lines


def data() -> list[Finding]:
    """Which known data sets are here."""
    from driftwise.datasets.library import status

    lines = []
    for line in status():
        how = f"driftwise data fetch {line.known.name}" if line.known.files else "by hand"
        place = str(line.path) if line.path else "inside a package"
        lines.append(
            Finding("data", line.known.name, place if line.is_here else f"not here: {how}")
        )
    return lines


def folders() -> list[Finding]:
    """Whether results, caches and temporary files can be written, and how much room there is."""
    from driftwise.paths import cache_home

    places = {
        "working folder": Path.cwd(),
        "cache": cache_home(),
        "temporary files": Path(tempfile.gettempdir()),
    }
    return [_writable(name, path) for name, path in places.items()]


def _writable(name: str, path: Path) -> Finding:
    try:
        nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
        with tempfile.TemporaryFile(dir=nearest):
            pass
        free = shutil.disk_usage(nearest).free / 2**30
    except OSError as error:
        why = error.strerror or error
        return Finding("write access", name, f"{path} cannot be written: {why}", is_problem=True)
    return Finding("write access", name, f"{path}, {free:,.1f} GiB free", is_problem=free < 0.1)


def self_test() -> list[Finding]:
    """A short run on the embedded digits, saved, read and used again."""
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            text = _short_run(Path(folder) / "run")
    except Exception as error:  # whatever it is, it is what the user wants to know
        first = " ".join(str(error).split())[:300]
        return [Finding("self-test", "run", f"{type(error).__name__}: {first}", is_problem=True)]
    seconds = time.perf_counter() - began
    return [Finding("self-test", "run", f"{text} ({seconds:.1f} s)")]


def _short_run(folder: Path) -> str:
    import numpy as np

    config = driftwise.RunConfig(adaptation="amr", epochs=1, threads=1)
    result = driftwise.run(config, folder)
    (saved,) = driftwise.results(folder).runs
    if saved["faa"] != result["faa"]:
        raise RuntimeError(f"saved FAA {saved['faa']}, computed {result['faa']}")
    driftwise.load(folder).predict(np.zeros((2, 8, 8, 1), dtype=np.uint8))
    return f"learned, saved and loaded; FAA {result['faa']:.1f} % after one epoch"
