"""Writes the pages of docs/reference that follow from the code: commands, settings, components, HTTP API.

    python tools/reference_pages.py

A test compares them with what the code says now. The schemas of result.json and of events are written by
hand, in docs/reference/schemas; their tables are made here.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from driftwise.cli.main import parser
from driftwise.config import registry
from driftwise.config.fields import Field, fields_of
from driftwise.config.schema import PARTS, RunConfig, Settings
from driftwise.live.events import EVENTS
from driftwise.live.settings import OF_RUNS, LiveSettings

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
NOTE = "<!-- made by tools/reference_pages.py: change the code, then run it -->\n"
KINDS = {
    "benchmark": "Benchmarks",
    "method": "Methods",
    "adaptation": "Adaptations",
    "detector": "Detectors",
    "backbone": "Networks",
    "encoder": "Encoders",
    "transform": "Transforms",
}


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    lines = [[*head]]
    lines += [["---"] * len(lines[0]), *([_cell(value) for value in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def code(value: object) -> str:
    """A value as it is typed."""
    return f"`{value}`"


def default_of(field: Field) -> str:
    """A default as it is written in a file."""
    if field.default is None or repr(field.default).startswith("<"):
        return ""
    value = field.default
    return code(json.dumps(list(value) if isinstance(value, tuple) else value))


def type_of(field: Field) -> str:
    """A type in words."""
    kind = field.kind
    if args := getattr(kind, "__args__", None):
        if all(isinstance(arg, str) for arg in args):
            return ", ".join(code(arg) for arg in args)
        return "list" if getattr(kind, "__origin__", None) in (tuple, list) else "mapping"
    return {int: "whole number", float: "number", str: "text", bool: "true or false"}.get(kind, "")


def settings() -> str:
    """Every key of a config."""
    parts = [NOTE, "# Settings\n\n"]
    parts.append(
        "Every setting is a flag of `driftwise run` and `compare` (`--buffer-size`), a key of a YAML or JSON "
        "file for `--config` and of a grid (`buffer_size`), and a field of `driftwise.RunConfig`. A setting "
        "without a default is decided by the preset, the benchmark or the machine.\n\n## Of a run\n\n"
    )
    parts.append(_fields(fields_of(Settings)))
    parts.append("## Of a file or of Python only\n\n")
    own = {f: d for f, d in _documented(RunConfig).items() if f not in fields_of(Settings)}
    parts.append(table(("key", "meaning"), ((code(name), doc) for name, doc in own.items())))
    parts.append(
        "## Of a live learner\n\n`driftwise.LiveLearner(..., NAME=VALUE)` and `driftwise serve "
        "--set NAME=VALUE`.\n\n"
    )
    parts.append(_fields(fields_of(LiveSettings)))
    names = ", ".join(code(name) for name in OF_RUNS)
    parts.append(f"It also takes these settings of a run: {names}.\n")
    return "".join(parts)


def _fields(fields: Mapping[str, Field]) -> str:
    rows = ((code(f.name), f.doc, default_of(f), type_of(f)) for f in fields.values())
    return table(("key", "meaning", "default", "type"), rows)


def _documented(kind: type) -> dict[str, str]:
    from driftwise.config.fields import field_docs

    return dict(field_docs(kind))


def components() -> str:
    """Every component and its options."""
    parts = [NOTE, "# Components\n\n"]
    parts.append(
        "What can stand in a config by its name. Options are flags (`--method.alpha 0.3`), and "
        "keys beside the name in a file "
        "(`method: {name: der++, alpha: 0.3}`). `driftwise list` prints the same, with what "
        "other packages have added. "
        "A component of your own is named `module:name` ([Your own "
        "components](../how-to/custom_parts.md)).\n\n"
    )
    for kind, entries in registry.CATALOGUE.items():
        parts.append(f"## {KINDS.get(kind, kind.capitalize())}\n\n")
        rows = ((code(name), registry.find(kind, name).summary) for name in entries)
        parts.append(table((f"`--{kind}`", "what it is"), rows))
        parts.append("".join(_options(kind, entries)))
    return "".join(parts)


def _options(kind: str, entries: Iterable[str]) -> Iterator[str]:
    shown: dict[tuple[str, ...], str] = {}
    for name in entries:
        options = registry.find(kind, name).options_type() if kind in PARTS else None
        fields = fields_of(options) if options else {}
        if not fields:
            continue
        rows = tuple(
            (f"`--{kind}.{f.name.replace('_', '-')}`", f.doc, default_of(f), type_of(f))
            for f in fields.values()
        )
        same = shown.setdefault(tuple(map(str, rows)), name)
        if same != name:
            yield f"Options of `{name}`: those of `{same}`.\n\n"
        else:
            yield f"Options of `{name}`:\n\n" + table(("flag", "meaning", "default", "type"), rows)


def commands() -> str:
    """Every command and flag."""
    parts = [NOTE, "# Commands\n\n"]
    parts.append(
        "Every command with every flag. `driftwise COMMAND --help` prints the same. The "
        "settings of `run` and `compare` are in "
        "[Settings](settings.md), [The command line](command_line.md) explains how they go together.\n\n"
    )
    for name, command in _subcommands(parser()):
        inner = _subcommands(command)
        parts.append(f"## driftwise {name}\n\n{_sentence(command)}\n\n")
        parts.append(_flags(command, leave_out=name in ("run", "compare")))
        for action, each in inner:
            parts.append(f"### driftwise {name} {action}\n\n{_sentence(each)}\n\n{_flags(each)}")
    return "".join(parts)


def _sentence(command: argparse.ArgumentParser) -> str:
    text = " ".join((command.description or "").split()).removesuffix(".")
    text = text[:1].upper() + text[1:]
    first, _, rest = text.partition(". ")
    items = [item.split(": ", 1) for item in rest.split("; ")]
    if len(items) < 3 or any(len(item) < 2 for item in items):
        return f"{text}."
    return f"{first}.\n\n" + "\n".join(f"- `{name}`: {words}" for name, words in items)


def _subcommands(top: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices.items())
    return []


def _flags(command: argparse.ArgumentParser, *, leave_out: bool = False) -> str:
    known = {f"--{name.replace('_', '-')}" for name in fields_of(Settings)} if leave_out else set()
    rows = []
    for action in command._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        if action.help == argparse.SUPPRESS or known.intersection(action.option_strings):
            continue
        value = _value(action)
        names = [f"{flag}{value}" for flag in action.option_strings] or [
            value.strip() or action.dest
        ]
        rows.append(
            (
                ", ".join(map(code, names)),
                (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%"),
            )
        )
    return table(("flag", "meaning"), rows) if rows else ""


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None and action.metavar is None:
        return " " + " or ".join(map(str, action.choices))
    shown = action.metavar if isinstance(action.metavar, str) else action.dest
    return f" {shown}"


def http_api() -> str:
    """Every route of the service, from its OpenAPI document."""
    parts = [NOTE, "# HTTP API\n\n"]
    parts.append(
        "The routes of `driftwise serve`. The service itself has this as an OpenAPI document, "
        "`GET /openapi.json`. Errors are "
        '`{"error": {"kind": ..., "message": ...}}`, one line, never a traceback. What the '
        "roles are, and how samples are sent: "
        "[The service](../how-to/serve.md#the-api).\n\n"
    )
    content = openapi()
    schemas = content.get("components", {}).get("schemas", {})
    for path, methods in content["paths"].items():
        for method, route in methods.items():
            parts.append(f"## {method.upper()} {path}\n\n{_text(route)}\n\n")
            parts.append(_query(route) + _body(route, schemas))
    return "".join(parts)


def _text(route: Mapping[str, Any]) -> str:
    return " ".join(str(route.get("description") or route.get("summary") or "").split())


def _query(route: Mapping[str, Any]) -> str:
    rows = [
        (
            code(p["name"]),
            p["in"],
            p["schema"].get("type", ""),
            p["schema"].get("default", ""),
            p.get("description", ""),
        )
        for p in route.get("parameters", ())
    ]
    return table(("parameter", "in", "type", "default", "meaning"), rows) if rows else ""


def _body(route: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    content = route.get("requestBody", {}).get("content", {})
    found = content.get("application/json", {}).get("schema", {})
    if "$ref" in found:
        found = schemas[found["$ref"].rpartition("/")[2]]
    required = found.get("required", ())
    rows = [
        (
            code(name),
            _json_type(value),
            "yes" if name in required else "",
            value.get("description", ""),
        )
        for name, value in found.get("properties", {}).items()
    ]
    others = ", ".join(code(kind) for kind in content if kind != "application/json")
    also = f"Also as {others}.\n\n" if others else ""
    return (table(("key of the body", "type", "required", "meaning"), rows) if rows else "") + also


def _json_type(value: Mapping[str, Any]) -> str:
    if "anyOf" in value:
        return " or ".join(filter(None, map(_json_type, value["anyOf"])))
    if "enum" in value:
        return ", ".join(code(each) for each in value["enum"])
    if value.get("type") == "array":
        return f"array of {_json_type(value.get('items', {})) or 'values'}"
    return str(value.get("type", ""))


def openapi() -> dict[str, Any]:
    """The OpenAPI document of a service."""
    from driftwise.serve import Learning, open_service
    from driftwise.serve.api import make_app

    with (
        tempfile.TemporaryDirectory() as folder,
        open_service(Path(folder) / "state", Learning(network="mlp")) as service,
    ):
        routes: Any = make_app(service)._app  # behind the guard
        document: dict[str, Any] = routes.openapi()
        return document


def schemas() -> str:
    """The keys of result.json and of events, from their JSON Schemas."""
    parts = [NOTE, "# Results and events as JSON Schema\n\n"]
    parts.append(
        "[result.schema.json](schemas/result.schema.json) describes `result.json`, "
        "[event.schema.json](schemas/event.schema.json) "
        "a line of a run's `events.jsonl`, "
        "[live-event.schema.json](schemas/live-event.schema.json) a line of a live learner's. "
        "Tests validate real files against them. Keys are added, never renamed.\n\n## result.json\n\n"
    )
    result = json.loads((FOLDER / "schemas" / "result.schema.json").read_text())
    required = set(result["required"])
    rows = (
        (
            code(name),
            _kinds(value),
            "" if name in required else "not always",
            value.get("description", ""),
        )
        for name, value in result["properties"].items()
    )
    parts.append(table(("key", "type", "", "meaning"), rows))
    parts.append("## Events of a run\n\n")
    event = json.loads((FOLDER / "schemas" / "event.schema.json").read_text())
    parts.append(
        table(
            ("event", "keys", "meaning"),
            (
                (
                    code(e["properties"]["event"]["const"]),
                    ", ".join(code(k) for k in e["properties"] if k != "event"),
                    e["description"],
                )
                for e in event["oneOf"]
            ),
        )
    )
    parts.append(
        "## Events of a live learner\n\nA line has `event`, `step` (the number of the call of "
        "`observe`), `time` (UTC, ISO 8601) and what the event tells. Callbacks of `live.on` "
        "get the same as `event.kind`, `event.step`, `event.time` and `event.details`. "
        "`observed` and `saved` are not logged.\n\n"
    )
    parts.append(table(("kind", "meaning"), ((code(k), text) for k, text in EVENTS.items())))
    return "".join(parts)


def _kinds(value: Mapping[str, Any]) -> str:
    kind = value.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


PAGES: Mapping[str, Callable[[], str]] = {
    "settings.md": settings,
    "components.md": components,
    "commands.md": commands,
    "http_api.md": http_api,
    "schemas.md": schemas,
}


def made(name: str) -> str:
    """A page as it should be now."""
    return re.sub(r"\n{3,}", "\n\n", PAGES[name]()).rstrip("\n") + "\n"


def main() -> None:
    """Write all pages."""
    for name in PAGES:
        (FOLDER / name).write_text(made(name))
        print(FOLDER / name)


if __name__ == "__main__":
    main()
