"""A custom part: a class or function of one's own, named by its import path, `my_parts:LwF`.

What it must be is checked before it is called, what it made right after. The keyword arguments of
its constructor are its options.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from driftwise.config.custom_source import admit, in_one_line
from driftwise.config.fields import is_supported, without_none
from driftwise.config.files import from_mapping
from driftwise.errors import RunFailure, UserError

METHODS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "method": ("outcome", ("network", "stream", "draw")),
    "adaptation": ("adapt", ("drifted", "context")),
    "detector": ("check", ("task", "classes", "monitored", "reference")),
}
"""What each kind of part must be able to do, and what it is given for it."""

GIVEN: Mapping[str, tuple[str, ...]] = {"backbone": ("input_shape", "num_classes")}
"""Keyword arguments that each kind of part is made with, whatever its options."""

POSITIONAL: Mapping[str, int] = {"detector": 1}
"""Positional arguments that each kind of part is always made with: a detector's setting."""


@dataclass(frozen=True)
class CustomPart:
    """One custom part, by kind and import path. It does what a catalogue's entry does."""

    kind: str
    path: str
    summary: str = "a custom part"

    def factory(self) -> Any:
        """The class or function itself; imports it, and refuses what cannot be such a part."""
        found = _imported(self.path)
        _check_callable(self, found)
        return found

    def options_type(self) -> Any:
        """A dataclass of its options, or None where there are none; imports it."""
        return _options_type(self.kind, self.path, self.factory())

    def make(
        self, *arguments: Any, options: Mapping[str, Any] | None = None, **keywords: Any
    ) -> Any:
        """Make it, and refuse what is not such a part."""
        factory, kind = self.factory(), self.options_type()
        if kind is not None:
            given = from_mapping(kind, options or {}, source=str(self))
            if (whole := _options_parameter(self.kind, factory)) is not None:
                keywords[whole[0]] = kind(**given)
            else:
                taken = _positional(factory)[: len(arguments)]  # where data lie may be given or not
                keywords |= {name: given[name] for name in given if name not in taken}
        made = self.call(factory, *arguments, **keywords)
        _check_made(self, made)
        return made

    def call(self, factory: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call the user's own code; whatever goes wrong in there is reported in one line."""
        name = self.path.rpartition(":")[2]
        shown = {"detector": "setting", "backbone": "input_shape=..., num_classes=..."}
        cannot = f"{self} cannot be made as {name}({shown.get(self.kind, '')})"
        try:
            inspect.signature(factory).bind(*arguments, **keywords)
        except TypeError as error:
            raise UserError(
                f"{cannot}: {error}; options are keyword arguments with a type or a default value, "
                "and there are no other arguments"
            ) from error
        except ValueError:  # code without a signature
            pass
        try:
            return factory(*arguments, **keywords)
        except (UserError, RunFailure, MemoryError):
            raise
        except (Exception, SystemExit) as error:  # anybody's code runs here, and may raise anything
            raise UserError(f"{cannot}: {in_one_line(error)}") from error

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"


def is_import_path(name: str) -> bool:
    """Whether a name is `module:name` rather than an entry of the catalogue."""
    return ":" in name


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    reason = None
    if not all(word.isidentifier() for word in (*module.split("."), *name.split("."))):
        reason = "these are no names of Python"
    elif module.partition(".")[0] in sys.stdlib_module_names:
        reason = f"{module} belongs to Python itself and holds no parts"
    if reason is not None:
        raise UserError(f"cannot import {path!r} (expected module:name): {reason}")
    try:
        if module not in sys.modules:
            admit(module)
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (Exception, SystemExit) as error:  # anybody's code runs here, and may raise anything
        raise UserError(
            f"cannot import {path!r} (expected module:name): {in_one_line(error)}"
        ) from error


# Options


def _parameters(factory: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        return []


def _positional(factory: Any) -> list[str]:
    """The parameters that positional arguments go to, in their order."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in _parameters(factory) if each.kind in kinds]


def _options_parameter(kind: str, factory: Any) -> tuple[str, Any] | None:
    """The one parameter that takes all options as a dataclass, as those of built-in parts do."""
    hints = _hints(factory)
    for name in _positional(factory)[POSITIONAL.get(kind, 0) :]:
        if isinstance(hints.get(name), type) and dataclasses.is_dataclass(hints[name]):
            return name, hints[name]
    return None


def _hints(factory: Any) -> dict[str, Any]:
    function: Any = factory.func if isinstance(factory, functools.partial) else factory
    try:
        if isinstance(function, type):
            function = function.__init__  # type: ignore[misc]
        return typing.get_type_hints(function)
    except Exception:  # annotations may hold names that exist for type checkers only
        return {}


@functools.lru_cache(maxsize=256)
def _options_type(kind: str, path: str, factory: Any) -> Any:
    if (whole := _options_parameter(kind, factory)) is not None:
        return whole[1]
    hints = _hints(factory)
    taken = {*GIVEN.get(kind, ()), *_positional(factory)[: POSITIONAL.get(kind, 0)]}
    fields: list[tuple[str, Any, Any]] = []
    for each in _parameters(factory):
        if each.name in taken or each.kind not in (
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        ):
            continue
        default = MISSING if each.default is inspect.Parameter.empty else each.default
        hint = hints.get(each.name, _type_of(default))
        if not is_supported(without_none(hint)[0]):
            hint = _type_of(default)
        if is_supported(without_none(hint)[0]):
            fields.append((each.name, hint, dataclasses.field(default=default)))
    if not fields:
        return None
    name = f"{path.rpartition(':')[2].replace('.', '_')}Options"
    return dataclasses.make_dataclass(name, fields, kw_only=True, frozen=True)


def _type_of(default: object) -> Any:
    """The type that a default value speaks for; None where it speaks for none."""
    if isinstance(default, tuple) and len({type(each) for each in default}) == 1:
        return tuple[type(default[0]), ...]  # type: ignore[misc]
    return type(default) if isinstance(default, bool | int | float | str) else None


# What a part must be


def _check_callable(part: CustomPart, found: Any) -> None:
    """Refuse what cannot be such a part before it is called with anything."""
    home = str(getattr(found, "__module__", None)).partition(".")[0]
    if callable(found) and home in sys.stdlib_module_names:
        raise UserError(f"{part} belongs to Python itself ({home}); a part is code of one's own")
    if isinstance(found, type):
        if part.kind in METHODS:
            _check_class(part, found)
        elif part.kind == "backbone" and not issubclass(found, _module_class()):
            raise UserError(f"{part} must be a torch module (torch.nn.Module), or make one")
        return
    if not isinstance(found, types.FunctionType | functools.partial):
        raise UserError(
            f"{part} must be a class or a function that makes one; it is a {type(found).__name__}"
        )


def _check_class(part: CustomPart, kind: type) -> None:
    name, arguments = METHODS[part.kind]
    if part.kind == "method" and not issubclass(kind, _objective_class()):
        raise UserError(f"{part} must be a subclass of driftwise.methods.Method")
    method = getattr(kind, name, None)
    wanted = f"{name}(self, {', '.join(arguments)})"
    if not callable(method) or getattr(method, "__isabstractmethod__", False):
        raise UserError(f"{part} must have a method {wanted}")
    if inspect.isabstract(kind):
        names = ", ".join(sorted(getattr(kind, "__abstractmethods__", ())))
        raise UserError(f"{part} leaves {names} open; define it")
    try:
        inspect.signature(method).bind(None, *arguments)
    except TypeError as error:
        raise UserError(
            f"{part} must take {wanted}; its own is {name}{inspect.signature(method)}"
        ) from error
    except ValueError:  # code without a signature
        pass


def _check_made(part: CustomPart, made: object) -> None:
    if part.kind not in METHODS:
        return  # data and networks are checked by those who take them
    kind = type(made)
    if part.kind == "method" and not isinstance(made, _objective_class()):
        raise UserError(f"{part} must make a driftwise.methods.Method; it made a {kind.__name__}")
    _check_class(part, kind)
    if part.kind == "detector" and not isinstance(getattr(made, "watches", None), bool):
        raise UserError(
            f"{part} must have an attribute watches: True where it reads the monitored samples, "
            "else False"
        )


def _objective_class() -> type:
    from driftwise.methods.base import Method  # late, because it imports torch

    return Method


def _module_class() -> type:
    from torch import nn

    return nn.Module
