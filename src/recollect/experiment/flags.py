"""A typed config as command-line flags and as a file: one thing, said in two ways.

A config is a frozen, keyword-only dataclass with a docstring beneath each field. Text from the
command line is first read as a file's parser would have read it; from there on both ways share one
strict conversion to the field's type, so that a flag and a line in a file mean the same.

Fields may be int, float, str, bool, Literal[...], tuple[X, ...] of these (nested as deep as you
like), each also `| None`, for which the word `none` stands. A field that is a Mapping has no flag.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import json
import math
import re
import reprlib
import textwrap
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, get_origin

from recollect.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# --- what a config class says about itself ------------------------------------------------------

_WORDS = {
    int: ("a whole number", "whole numbers", "N"),
    float: ("a number", "numbers", "X"),
    str: ("text", "words", "TEXT"),
    bool: ("true or false", "true or false values", "BOOL"),
}
"""One, several, and the placeholder in the help, for each plain type."""


@dataclass(frozen=True, kw_only=True)
class _Field:
    """One field of a config, as flags and files need to know it."""

    name: str
    kind: Any
    """the type, without `| None`"""
    optional: bool
    """whether None is a value"""
    default: object
    """MISSING where a value must be given"""
    doc: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def field_docs(cls: type[DataclassInstance]) -> dict[str, str]:
    """The docstring beneath each field, inherited fields included; undocumented ones are absent."""
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if "__dataclass_fields__" in vars(owner):
            found |= _own_docs(owner)
    return {f.name: found[f.name] for f in dataclasses.fields(cls) if f.name in found}


@functools.cache
def _own_docs(cls: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except OSError:  # shipped without sources: the help gets shorter, nothing else changes
        return {}
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for statement, beneath in itertools.pairwise(definition.body):
        match statement, beneath:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(doc))):
                docs[name] = " ".join(doc.split())
    return docs


@functools.cache
def _fields(cls: type[DataclassInstance]) -> dict[str, _Field]:
    hints = typing.get_type_hints(cls)
    docs = field_docs(cls)
    known = {}
    for f in dataclasses.fields(cls):
        if not f.init:
            continue
        kind, optional = _without_none(hints[f.name])
        if not _is_supported(kind):
            raise TypeError(f"{cls.__name__}.{f.name}: no flag can carry a {hints[f.name]}")
        default = f.default if f.default_factory is MISSING else f.default_factory()
        known[f.name] = _Field(
            name=f.name, kind=kind, optional=optional, default=default, doc=docs.get(f.name, "")
        )
    return known


def _flagged(cls: type[DataclassInstance]) -> dict[str, _Field]:
    """The fields that can be typed after a flag."""
    return {
        name: field for name, field in _fields(cls).items() if get_origin(field.kind) is not Mapping
    }


def _without_none(hint: Any) -> tuple[Any, bool]:
    """`X | None` -> (X, True); anything else -> (itself, False)."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        if len(members) == 1:
            return members[0], True
    return hint, False


def _is_supported(kind: Any) -> bool:
    if get_origin(kind) is tuple:
        item, *rest = get_args(kind)
        return rest == [...] and _is_supported(item)
    return kind in _WORDS or get_origin(kind) in (Literal, Mapping)


# --- one value ----------------------------------------------------------------------------------

# YAML 1.1 takes 1e-3 for a word, because it has no point.
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def _shown(value: object) -> str:
    """A value as a message shows it: whole if it is short, and never long."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 60
    short.maxlevel = 3  # aliases can make a small YAML file unfold without end
    text = "nothing" if value is None else short.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _read(field: _Field, value: object, *, name: str, is_text: bool) -> object:
    """`value` as the field's type; `is_text`: it was typed, and is still the text of a value."""
    if field.optional and (value is None or value == "none") and "none" not in get_args(field.kind):
        return None
    try:
        return _convert(field.kind, _parse(field.kind, str(value)) if is_text else value)
    except (ValueError, OverflowError):
        pass
    hint = ""
    if get_origin(field.kind) is Literal and isinstance(value, str):
        hint = _did_you_mean(value, map(str, get_args(field.kind)))
    elif field.kind is str and isinstance(value, bool | int | float):
        hint = "; write it in quotes"
    raise UserError(f"{name} must be {_expected(field.kind, is_text)}; got {_shown(value)}{hint}")


def _parse(kind: Any, text: str) -> object:
    """What a file's parser would have made of `text`, where a `kind` is expected."""
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if get_origin(item) is tuple:
            return json.loads(text)
        return [_parse(item, part.strip()) for part in text.split(",")] if text else []
    if get_origin(kind) is Literal:
        return next((choice for choice in get_args(kind) if str(choice) == text), text)
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    return kind(text)


def _convert(kind: Any, value: object) -> object:
    """`value` as a `kind`; ValueError where it is something else."""
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(_convert(get_args(kind)[0], item) for item in value)
    if get_origin(kind) is Literal:
        for choice in get_args(kind):
            if type(choice) is type(value) and choice == value:
                return choice
    elif get_origin(kind) is Mapping:
        if isinstance(value, Mapping):
            return dict(value)
    elif kind is float:
        if isinstance(value, str) and _EXPONENT.fullmatch(value):
            value = float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    elif kind is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    elif kind in (str, bool) and isinstance(value, kind):
        return value
    raise ValueError


def _expected(kind: Any, is_text: bool) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if not is_text:
            return f"a list of {_several(item)}"
        if get_origin(item) is tuple:
            return f"a JSON list of {_several(item)}"
        return f"{_several(item)} separated by commas"
    if get_origin(kind) is Mapping:
        return "a mapping"
    return _WORDS[kind][0]


def _several(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return f"lists of {_several(get_args(kind)[0])}"
    if get_origin(kind) is Literal:
        return f"values out of {', '.join(map(str, get_args(kind)))}"
    return _WORDS[kind][1]


def _did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """The nearest known name, if one is near; `prefix` is what all share and nobody mistypes."""
    bare = [other.removeprefix(prefix) for other in known]
    near = difflib.get_close_matches(name.removeprefix(prefix), bare, n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


# --- the command line ---------------------------------------------------------------------------


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose complaints are a `UserError` of one line.

    Flags must be written out, and nothing unknown is passed on: `parse_known_args` refuses it too,
    so that a subcommand's parser can suggest among its own flags.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would have printed, without the usage text."""
        message = message.removeprefix("argument ")
        raise UserError(message.replace(": expected one argument", " needs a value"))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """The namespace and an empty list."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].partition("=")[0]
            if not flag.startswith("-"):
                raise UserError(f"unexpected argument {unknown[0]!r}; see --help")
            long = [known for known in self._option_string_actions if known.startswith("--")]
            hint = _did_you_mean(flag, long, prefix="--") or "; see --help"
            raise UserError(f"unknown flag {flag}{hint}")
        return namespace, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Choices (a subcommand's name, above all) fail in the same words as a Literal."""
        if action.choices is not None and value not in action.choices:
            name = "/".join(action.option_strings) or action.metavar or action.dest
            choices = [str(choice) for choice in action.choices]
            hint = _did_you_mean(str(value), choices)
            raise UserError(f"{name} must be one of {', '.join(choices)}; got {value!r}{hint}")


def add_flags(
    parser: argparse.ArgumentParser,
    cls: type[DataclassInstance],
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """One flag per field; `groups` maps a heading of the help to the fields beneath it.

    The namespace holds converted values, and only those that were given.
    """
    known = _flagged(cls)
    homes: dict[str, argparse._ActionsContainer] = {}
    for title, names in (groups or {}).items():
        heading = parser.add_argument_group(title)
        homes |= dict.fromkeys(names, heading)
    if strangers := homes.keys() - known.keys():
        raise TypeError(f"{cls.__name__} has no field {', '.join(sorted(strangers))}")
    for name, field in known.items():
        home = homes.get(name, parser)
        common: dict[str, Any] = {
            "dest": name,
            "default": argparse.SUPPRESS,
            "help": _help(field).replace("%", "%%"),
        }
        if field.kind is bool:
            home.add_argument(field.flag, action=argparse.BooleanOptionalAction, **common)
        else:
            metavar = _metavar(field.kind)
            home.add_argument(field.flag, action=_Store, field=field, metavar=metavar, **common)


class _Store(argparse.Action):
    """Converts at once; argparse's own `type` would hide the words of a ValueError."""

    def __init__(self, *, field: _Field, **settings: Any) -> None:
        super().__init__(**settings)
        self._field = field

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002  (argparse's signature)
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        value = _read(self._field, values, name=option_string or self.dest, is_text=True)
        setattr(namespace, self.dest, value)


def _help(field: _Field) -> str:
    if field.default is MISSING:
        return f"{field.doc} (required)".lstrip()
    if field.default is None:
        return field.doc
    return f"{field.doc} (default: {_as_text(field.default) or 'empty'})".lstrip()


def _as_text(value: object) -> str:
    """How one would type `value` after its flag."""
    if isinstance(value, tuple):
        if any(isinstance(item, tuple) for item in value):
            return json.dumps(value)
        return ",".join(map(_as_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"{{{','.join(map(str, get_args(kind)))}}}"
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return "JSON" if get_origin(item) is tuple else f"{_metavar(item)},..."
    return _WORDS[kind][2]


# --- options of parts: --method.alpha 0.2 -------------------------------------------------------


def split_part_options(
    argv: Sequence[str], part_keys: Iterable[str] | None = None
) -> tuple[list[str], dict[str, dict[str, str]]]:
    """The arguments without `--part.option value`, and those options, still text.

    A part outside `part_keys` (None: any will do) is an unknown flag.

    >>> split_part_options(["--seed", "1", "--method.alpha", "0.2", "--detector.delta=0.3"])
    (['--seed', '1'], {'method': {'alpha': '0.2'}, 'detector': {'delta': '0.3'}})
    """
    known = None if part_keys is None else [key.replace("_", "-") for key in part_keys]
    rest: list[str] = []
    options: dict[str, dict[str, str]] = {}
    words = list(reversed(argv))
    while words:
        word = words.pop()
        if word == "--":  # from here on, nothing is a flag
            return [*rest, word, *reversed(words)], options
        flag, equals, value = word.partition("=")
        part, _, option = flag.removeprefix("--").partition(".")
        if not (flag.startswith("--") and part and option):
            rest.append(word)
            continue
        if known is not None and part.replace("_", "-") not in known:
            near = difflib.get_close_matches(part, known, n=1)
            hint = f"did you mean --{near[0]}.{option}?" if near else "see --help"
            raise UserError(f"unknown flag {flag}; {hint}")
        if not equals:
            if not words or words[-1].startswith("--"):
                raise UserError(f"{flag} needs a value")
            value = words.pop()
        options.setdefault(part.replace("-", "_"), {})[option.replace("-", "_")] = value
    return rest, options


def coerce(
    cls: type[DataclassInstance], values: Mapping[str, str], *, part: str | None = None
) -> dict[str, object]:
    """Typed text turned into the types of `cls`; complaints name the flag `--part.option`."""
    prefix = "--" if part is None else f"--{part.replace('_', '-')}."
    flags = {field.flag.replace("--", prefix, 1): field for field in _flagged(cls).values()}
    result = {}
    for key, text in values.items():
        flag = prefix + key.replace("_", "-")
        if flag not in flags:
            hint = _did_you_mean(flag, flags, prefix=prefix) or _known(flags)
            raise UserError(f"unknown flag {flag}{hint}")
        field = flags[flag]
        result[field.name] = _read(field, text, name=flag, is_text=True)
    return result


def split_parts(
    mapping: Mapping[str, object], part_keys: Iterable[str]
) -> tuple[dict[str, object], dict[str, dict[str, object]]]:
    """A file's `method: {name: er, alpha: 0.2}` as the choice and the options of the part.

    >>> split_parts({"method": {"name": "er", "alpha": 0.2}, "seed": 1}, ["method"])
    ({'method': 'er', 'seed': 1}, {'method': {'alpha': 0.2}})
    """
    parts = set(part_keys)
    settings: dict[str, object] = {}
    options: dict[str, dict[str, object]] = {}
    for key, value in mapping.items():
        part = str(key).replace("-", "_")
        if part not in parts or not isinstance(value, Mapping):
            settings[key] = value
            continue
        if "name" in value:
            settings[key] = value["name"]
        if own := {option: setting for option, setting in value.items() if option != "name"}:
            options[part] = own
    return settings, options


# --- files --------------------------------------------------------------------------------------


def from_mapping(
    cls: type[DataclassInstance], values: Mapping[str, object], *, source: str
) -> dict[str, object]:
    """The values given, by field name and in the fields' types; complaints begin with `source`."""
    known = _fields(cls)
    result: dict[str, object] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in known:
            hint = _did_you_mean(name, known) or _known(known)
            raise UserError(f"{source}: unknown key {str(key)!r}{hint}")
        if name in result:
            raise UserError(f"{source}: {name} is given twice, with '-' and with '_'; keep one")
        result[name] = _read(known[name], value, name=f"{source}: {name}", is_text=False)
    return result


def _known(names: Iterable[str]) -> str:
    return f"; known: {', '.join(names) or 'none'}"


def read_config_file(path: str | Path) -> dict[str, object]:
    """The mapping a YAML or JSON file holds."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such config file") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; expected a YAML or JSON file") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8 text; expected a YAML or JSON file") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    content = _parse_json(text, path) if path.suffix == ".json" else _parse_yaml(text, path)
    if not isinstance(content, dict):
        came = "an empty file" if content is None else _shown(content)
        raise UserError(f"{path}:1: expected lines such as 'seed: 0'; got {came}")
    return content


def _parse_json(text: str, path: Path) -> object:
    """JSON by its own rules: YAML would stumble over tabs and pairs of escapes."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in pairs]
        if twins := [key for key in keys if keys.count(key) > 1]:
            raise UserError(f"{path}: {twins[0]} is given twice; keep one")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply") from None


def _parse_yaml(text: str, path: Path) -> object:
    import yaml  # here, because most commands never read a file

    class Loader(yaml.SafeLoader):
        """Refuses a key given twice, where YAML's own loader keeps the last one silently."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    line = key.start_mark.line + 1
                    raise UserError(f"{path}:{line}: {key.value} is given twice; keep one")
                seen.add(key.value if isinstance(key, yaml.ScalarNode) else key)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)  # a SafeLoader: plain values, no tags
    except UserError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise UserError(f"{path}:{line}: not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{path}:{line}: not YAML: {error.reason}") from None
    except ValueError as error:  # an impossible date, a number of too many digits
        raise UserError(f"{path}: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply") from None
