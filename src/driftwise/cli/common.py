"""What the commands share: flags, progress and output."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwise.errors import UserError

if TYPE_CHECKING:
    from driftwise.runs.display import Display


def add_command(
    commands: Any, name: str, call: Callable[[argparse.Namespace], int], summary: str, **texts: str
) -> argparse.ArgumentParser:
    """A subcommand that calls `call`; `texts`: a description other than the summary, an epilog."""
    texts = {"description": summary, **texts}
    added: argparse.ArgumentParser = commands.add_parser(name, help=summary, **texts)
    added.set_defaults(call=call)
    return added


def add_output_flags(command: argparse.ArgumentParser) -> None:
    """`--quiet` and `--json`."""
    command.add_argument("--quiet", action="store_true", help="print errors and damage only")
    command.add_argument("--json", action="store_true", help="print the outcome as JSON")


def folder(text: str) -> Path:
    """The type of `--out`: an empty name would mean the working folder."""
    if not text:
        raise argparse.ArgumentTypeError("needs the name of a folder; got an empty text")
    return Path(text)


def refuse_part_options(arguments: argparse.Namespace) -> None:
    """UserError for `--part.option` in a command whose components take no options."""
    for part, options in arguments.options.items():
        raise UserError(f"unknown flag --{part}.{next(iter(options))}; see --help")


def display(arguments: argparse.Namespace, *, num_runs: int = 1) -> Display:
    """Progress on the error stream, so that the outcome can be piped."""
    from rich.console import Console

    from driftwise.runs.display import Display

    quiet = arguments.quiet or not is_first()
    return Display(Console(stderr=True, quiet=quiet), num_runs=num_runs)


def processes() -> int:
    """How many processes torchrun has started, this one among them; 1 without it."""
    if "RANK" not in os.environ:
        return 1  # without loading torch
    from driftwise.distributed import started_together

    return started_together()


def is_first() -> bool:
    """Whether this process speaks for all that torchrun has started."""
    return processes() == 1 or os.environ["RANK"] == "0"


def print_outcome(arguments: argparse.Namespace, outcome: Any, text: str) -> None:
    """The outcome as JSON or as text; file names that the terminal cannot show are escaped."""
    if arguments.json:
        print(json.dumps(outcome, indent=1, allow_nan=False))
    elif not arguments.quiet:
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding))


def add_speed_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--speed`."""
    parser.add_argument(
        "--speed",
        choices=("exact", "fast"),
        default="exact",
        help="fast: bf16, channels-last and threads as this machine does best; late digits differ "
        "(default: exact)",
    )
