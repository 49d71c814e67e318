"""Whether all extras can be installed together, for each Python that torch has wheels for.

    python tools/resolve_extras.py [3.11 3.12 ...] [--extras serve,tables]

Nothing is installed: pip resolves from wheels alone, as on Linux, whatever Python runs this script.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("1", "2010", "2014", *(f"_2_{minor}" for minor in range(5, 36)))
LEFT_OUT = ("dev", "docs", "avalanche")
"""Extras of developers; and one of whose requirements has no wheel, so that pip must build it."""


def main() -> int:
    """Resolve for each Python; the worst exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", default=PYTHONS)
    parser.add_argument("--extras", help="only these, separated by commas (default: all)")
    arguments = parser.parse_args()
    chosen = arguments.extras.split(",") if arguments.extras else None
    codes = [resolve(python, chosen) for python in arguments.pythons]
    return max(codes)


def resolve(python: str, chosen: list[str] | None) -> int:
    """Resolve for one Python; print the outcome, and pip's last lines where there is none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = chosen or [name for name in extras if name not in LEFT_OUT]
    needed = [*project["dependencies"], *(line for name in names for line in extras[name])]
    platforms = [f"manylinux{each}_x86_64" for each in PLATFORMS]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"),
                *("--ignore-installed", "--only-binary=:all:", "--target", folder),
                *("--python-version", python, "--implementation", "cp"),
                *("--abi", f"cp{python.replace('.', '')}", "--abi", "abi3", "--abi", "none"),
                *(word for each in (*platforms, "any") for word in ("--platform", each)),
                *("-c", str(ROOT / "constraints.txt"), *needed),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    outcome = "resolved" if done.returncode == 0 else "NOT resolved"
    print(f"Python {python}: {outcome}: {', '.join(names)}")
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "WARNING" not in line]
        print("\n".join(f"  {line}" for line in errors[-12:]))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
