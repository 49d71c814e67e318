"""`driftwise list`: every component and its options, by kind."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from typing import Any

from driftwise.cli.common import add_command, refuse_part_options
from driftwise.config import registry
from driftwise.config.custom import CustomPart
from driftwise.config.fields import fields_of
from driftwise.config.schema import PARTS
from driftwise.errors import UserError, unknown_name


def add_list_command(commands: Any) -> None:
    """Register `list` with the subparsers of the command line."""
    listing = add_command(commands, "list", _list, "every component and its options, by kind")
    listing.add_argument(
        "kind",
        nargs="?",
        metavar="KIND",
        help=f"only this kind: {', '.join(registry.CATALOGUE)} (default: all)",
    )
    listing.add_argument("--json", action="store_true", help="as JSON")


def _list(arguments: argparse.Namespace) -> int:
    refuse_part_options(arguments)
    listing = {kind: _entries(kind) for kind in _kinds(arguments.kind)}
    if arguments.json:
        print(json.dumps(listing, indent=1))
        return 0
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    print("\n\n".join(_text(kind, entries, width) for kind, entries in listing.items()))
    return 0


def _kinds(kind: str | None) -> list[str]:
    """The kinds that are meant; the plural is one, too."""
    if kind is None:
        return list(registry.CATALOGUE)
    for known in registry.CATALOGUE:
        if kind.lower() in (known, f"{known}s"):
            return [known]
    raise unknown_name("kind", kind, registry.CATALOGUE)


def _entries(kind: str) -> dict[str, dict[str, Any]]:
    names = (*registry.CATALOGUE[kind], *registry.installed(kind))
    return {name: _describe(kind, registry.find(kind, name)) for name in names}


def _describe(kind: str, entry: registry.Entry | CustomPart) -> dict[str, Any]:
    try:
        options_type = entry.options_type() if kind in PARTS else None
    except UserError as error:  # somebody else's package may be broken
        return {"summary": f"cannot be used: {error}", "options": {}}
    options = fields_of(options_type) if options_type else {}
    return {
        "summary": entry.summary,
        "options": {
            name: option.doc or f"by default {option.default}" for name, option in options.items()
        },
    }


def _text(kind: str, entries: dict[str, dict[str, Any]], width: int) -> str:
    """The components of a kind, then each of their options once, with those that take it."""
    indent = 2 + max(map(len, entries)) + 2
    lines = [kind]
    for name, entry in entries.items():
        lines += _wrapped(f"  {name}".ljust(indent) + entry["summary"], width, indent)
    takers: dict[tuple[str, str], list[str]] = {}
    for name, entry in entries.items():
        for option, text in entry["options"].items():
            takers.setdefault((option, text), []).append(name)
    lines += ["", "  options"] if takers else []
    for (option, text), names in takers.items():
        flag = f"  --{kind}.{option.replace('_', '-')}: "
        lines += _wrapped(f"{flag}{text} ({', '.join(names)})", width, 6)
    return "\n".join(lines)


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
