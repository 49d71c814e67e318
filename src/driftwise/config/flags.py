"""A typed config on the command line: one flag per field, and the options of parts."""

from __future__ import annotations

import argparse
import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, get_origin

from driftwise.config.fields import Field, did_you_mean, fields_of, known_names, read
from driftwise.config.schema import RunConfig
from driftwise.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PLACEHOLDERS = {int: "N", float: "X", str: "TEXT", bool: "BOOL"}


_SETTING = r'\b([a-z_]+)=("[^"]*"|True\b)'
_OPTION = r'options=\{"([a-z_]+)": \{"([a-z_]+)": "?([^"{}]*)"?\}\}'


def as_flags(message: str) -> str:
    """A message that names settings as Python does, in the words of the command line.

    >>> as_flags('use reference="held-out", or overwrite=True')
    'use --reference held-out, or --overwrite'
    >>> as_flags('take benchmark="folder", data="mine" or options={"detector": {"level": 0.1}}')
    'take --benchmark folder --data mine or --detector.level 0.1'
    """

    def flag(setting: re.Match[str]) -> str:
        name, value = setting.groups()
        if name not in _KNOWN:
            return setting[0]
        return f"--{name.replace('_', '-')} {value.strip(chr(34)).replace('True', '')}".strip()

    message = re.sub(_OPTION, r"--\1.\2 \3", message)
    message = re.sub(rf"({_SETTING}), (?={_SETTING})", r"\1 ", message)
    return re.sub(_SETTING, flag, message)


_KNOWN = {"resume", "overwrite", "trust", *(field.name for field in fields(RunConfig))}


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
            hint = did_you_mean(flag, long, prefix="--") or "; see --help"
            raise UserError(f"unknown flag {flag}{hint}")
        return namespace, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Choices (a subcommand's name, above all) fail in the same words as a Literal."""
        if action.choices is not None and value not in action.choices:
            name = "/".join(action.option_strings) or action.metavar or action.dest
            choices = [str(choice) for choice in action.choices]
            hint = did_you_mean(str(value), choices)
            raise UserError(f"{name} must be one of {', '.join(choices)}; got {value!r}{hint}")


def add_flags(
    parser: argparse.ArgumentParser,
    cls: type[DataclassInstance],
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    leave_out: Collection[str] = (),
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
        if name in leave_out:
            continue
        home = homes.get(name, parser)
        common: dict[str, Any] = {
            "dest": name,
            "default": argparse.SUPPRESS,
            "help": _help(field).replace("%", "%%"),
        }
        if field.kind is bool:
            home.add_argument(_flag(name), action=argparse.BooleanOptionalAction, **common)
        else:
            metavar = _metavar(field.kind)
            home.add_argument(_flag(name), action=_Store, field=field, metavar=metavar, **common)


class _Store(argparse.Action):
    """Converts at once; argparse's own `type` would hide the words of a ValueError."""

    def __init__(self, *, field: Field, **settings: Any) -> None:
        super().__init__(**settings)
        self._field = field

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002  (argparse's signature)
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        value = read(self._field, values, name=option_string or self.dest, is_text=True)
        setattr(namespace, self.dest, value)


def _help(field: Field) -> str:
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
    return _PLACEHOLDERS[kind]


def _flag(name: str, prefix: str = "--") -> str:
    return prefix + name.replace("_", "-")


def _flagged(cls: type[DataclassInstance]) -> dict[str, Field]:
    """The fields that can be typed after a flag."""
    return {
        name: field
        for name, field in fields_of(cls).items()
        if get_origin(field.kind) is not Mapping
    }


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
    prefix = "--" if part is None else f"{_flag(part)}."
    flags = {_flag(name, prefix): field for name, field in _flagged(cls).items()}
    result = {}
    for key, text in values.items():
        flag = _flag(key, prefix)
        if flag not in flags:
            hint = did_you_mean(flag, flags, prefix=prefix) or known_names(flags)
            raise UserError(f"unknown flag {flag}{hint}")
        field = flags[flag]
        result[field.name] = read(field, text, name=flag, is_text=True)
    return result
