"""A typed config's fields: what they are about, and how values get their types.

A config is a frozen, keyword-only dataclass with a docstring beneath each field. Text from the
command line is first read as a file's parser would have read it; from there on both ways share one
strict conversion to the field's type, so that a flag and a line in a file mean the same.

Fields may be int, float, str, bool, Literal[...], tuple[X, ...] of these (nested as deep as you
like), each also `| None`, for which the word `none` stands; or a Mapping, which no flag can carry.
"""

from __future__ import annotations

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
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from driftwise.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_WORDS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "words"),
    bool: ("true or false", "true or false values"),
}
"""One and several, for each plain type."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a config."""

    name: str
    kind: Any
    """the type, without `| None`"""
    optional: bool
    """whether None is a value"""
    default: object
    """MISSING where a value must be given"""
    doc: str


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
def fields_of(cls: type[DataclassInstance]) -> dict[str, Field]:
    """The fields that can be given, by name."""
    hints = typing.get_type_hints(cls)
    docs = field_docs(cls)
    known = {}
    for f in dataclasses.fields(cls):
        if not f.init:
            continue
        kind, optional = without_none(hints[f.name])
        if not is_supported(kind):
            raise TypeError(f"{cls.__name__}.{f.name}: no flag can carry a {hints[f.name]}")
        default = f.default if f.default_factory is MISSING else f.default_factory()
        known[f.name] = Field(
            name=f.name, kind=kind, optional=optional, default=default, doc=docs.get(f.name, "")
        )
    return known


def without_none(hint: Any) -> tuple[Any, bool]:
    """`X | None` -> (X, True); anything else -> (itself, False)."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        if len(members) == 1:
            return members[0], True
    return hint, False


def is_supported(kind: Any) -> bool:
    """Whether values of a type can be given."""
    if get_origin(kind) is tuple:
        item, *rest = get_args(kind)
        return rest == [...] and is_supported(item)
    return kind in _WORDS or get_origin(kind) in (Literal, Mapping)


# --- one value -----------------------------------------------------------------------------------

# YAML 1.1 takes 1e-3 for a word, because it has no point.
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


class _Short(reprlib.Repr):
    """Python refuses to write integers of more than 4,300 digits out."""

    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()
        return f"a number of {bits:,} bits" if bits > 14_000 else super().repr_int(x, level)


def shown(value: object) -> str:
    """A value as a message shows it: whole if it is short, and never long."""
    short = _Short()
    short.maxstring = short.maxother = 60
    short.maxlevel = 3  # aliases can make a small YAML file unfold without end
    text = "nothing" if value is None else short.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def read(field: Field, value: object, *, name: str, is_text: bool) -> object:
    """`value` as the field's type; `is_text`: it was typed, and is still the text of a value."""
    is_none = value is None or (value == "none" and "none" not in get_args(field.kind))
    if field.optional and is_none:
        return None
    try:
        return _convert(field.kind, _parse(field.kind, str(value)) if is_text else value)
    except OverflowError:
        hint = "; whole numbers go up to 64 bits"
    except ValueError:
        hint = ""
    if get_origin(field.kind) is Literal and isinstance(value, str):
        hint = did_you_mean(value, map(str, get_args(field.kind)))
    elif field.kind is str and isinstance(value, bool | int | float):
        hint = "; write it in quotes"
    raise UserError(f"{name} must be {_expected(field.kind, is_text)}; got {shown(value)}{hint}")


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
            if value.bit_length() > 64:
                raise OverflowError
            return value
    elif kind in (str, bool) and isinstance(value, kind):
        return value
    raise ValueError


def _expected(kind: Any, is_text: bool) -> str:
    if get_origin(kind) is tuple and is_text:
        item = get_args(kind)[0]
        if get_origin(item) is tuple:
            return f"a JSON list of {_words(item, many=True)}"
        return f"{_words(item, many=True)} separated by commas"
    return _words(kind, many=False)


def _words(kind: Any, *, many: bool) -> str:
    """A type in words, one value or several."""
    if get_origin(kind) is Literal:
        return f"{'values out' if many else 'one'} of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is tuple:
        return f"{'lists' if many else 'a list'} of {_words(get_args(kind)[0], many=True)}"
    if get_origin(kind) is Mapping:
        return "mappings" if many else "a mapping"
    return _WORDS[kind][many]


def settle(config: DataclassInstance) -> None:
    """Give every field of a frozen config its type (a list becomes a tuple), or raise UserError."""
    for name, field in fields_of(type(config)).items():
        value = read(field, getattr(config, name), name=name, is_text=False)
        object.__setattr__(config, name, value)


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """The nearest known name, if one is near; `prefix` is what all share and nobody mistypes."""
    bare = [other.removeprefix(prefix) for other in known]
    near = difflib.get_close_matches(name.removeprefix(prefix), bare, n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def known_names(names: Iterable[str]) -> str:
    """All of them, for a message in which none is near."""
    return f"; known: {', '.join(names) or 'none'}"
