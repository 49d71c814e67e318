"""Custom components: a class or function of the user, named by its import path, `my_parts:LwF`.

What it must be is checked before it is called, what it made right after. The keyword arguments of
its constructor are its options. Its source is part of a run's identity.

The working folder is never put on `sys.path`: libraries probe for modules that nobody installed
(`dill`, `winreg`), and a file of that name in the folder would run. Instead a finder knows the
modules that a custom component names, itself or through other modules of the folder.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib.abc
import importlib.util
import inspect
import sys
import sysconfig
import traceback
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from importlib.machinery import ModuleSpec, PathFinder
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import Any

import driftwise
from driftwise.config.config_files import from_mapping
from driftwise.config.fields import is_supported, without_none
from driftwise.errors import RunFailure, UserError

METHODS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "method": ("outcome", ("network", "stream", "draw")),
    "adaptation": ("adapt", ("drifted", "context")),
    "detector": ("check", ("task", "classes", "monitored", "reference")),
}
"""The method that each kind of component must have, and its arguments."""

GIVEN: Mapping[str, tuple[str, ...]] = {"backbone": ("input_shape", "num_classes")}
"""Keyword arguments that each kind of component is made with, whatever its options."""

POSITIONAL: Mapping[str, int] = {"detector": 1}
"""Positional arguments that each kind of component is always made with: a detector's setting."""

NO_SOURCE = "unreadable"
"""The identity of code that cannot be read: equal to nobody's, not even its own."""


@dataclass(frozen=True)
class CustomPart:
    """One custom component, by kind and import path. It does what a catalogue's entry does."""

    kind: str
    path: str
    summary: str = "a custom part"

    def factory(self) -> Any:
        """The class or function itself; imports it, and refuses what cannot be such a component."""
        found = imported(self.path)
        _check_callable(self, found)
        return found

    def options_type(self) -> Any:
        """A dataclass of its options, or None where there are none; imports it."""
        return _options_type(self.kind, self.path, self.factory())

    def make(
        self, *arguments: Any, options: Mapping[str, Any] | None = None, **keywords: Any
    ) -> Any:
        """Make it, and refuse what is not such a component."""
        factory, kind = self.factory(), self.options_type()
        if kind is not None:
            given = from_mapping(kind, options or {}, source=str(self))
            if (whole := _options_parameter(self.kind, factory)) is not None:
                keywords[whole[0]] = kind(**given)
            else:
                taken = _positional(factory)[: len(arguments)]  # a data path may be given or not
                keywords |= {name: given[name] for name in given if name not in taken}
        made = self.call(factory, *arguments, **keywords)
        if self.kind in METHODS:  # data and networks are checked by those who take them
            _check_made(self, made)
        return made

    def call(self, factory: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call the user's code; an error in there is reported in one line."""
        name = self.path.rpartition(":")[2]
        shown = {"detector": "context", "backbone": "input_shape=..., num_classes=..."}
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
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise UserError(f"{cannot}: {in_one_line(error)}") from error

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"


def is_import_path(name: str) -> bool:
    """Whether a name is `module:name` rather than an entry of the catalogue."""
    return ":" in name


def imported(path: str) -> Any:
    """What an import path names; UserError of one line where it cannot be imported."""
    module, _, name = path.partition(":")
    cannot = f"cannot import {path!r} (expected module:name)"
    if not all(word.isidentifier() for word in (*module.split("."), *name.split("."))):
        raise UserError(f"{cannot}: these are no names of Python")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise UserError(f"{cannot}: {module} belongs to Python itself and holds no parts")
    try:
        if module not in sys.modules:
            admit(module)
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise UserError(f"{cannot}: {in_one_line(error)}") from error


# Options


def _parameters(factory: Any) -> list[Parameter]:
    try:
        return list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        return []


def _positional(factory: Any) -> list[str]:
    """The parameters that positional arguments go to, in their order."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in _parameters(factory) if each.kind in kinds]


def _options_parameter(kind: str, factory: Any) -> tuple[str, Any] | None:
    """The one parameter that takes all options as a dataclass."""
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
            Parameter.POSITIONAL_OR_KEYWORD,
            Parameter.KEYWORD_ONLY,
        ):
            continue
        default = MISSING if each.default is Parameter.empty else each.default
        for hint in (hints.get(each.name), _type_of(default)):
            if is_supported(without_none(hint)[0]):
                fields.append((each.name, hint, dataclasses.field(default=default)))
                break
    if not fields:
        return None
    name = f"{path.rpartition(':')[2].replace('.', '_')}Options"
    return dataclasses.make_dataclass(name, fields, kw_only=True, frozen=True)


def _type_of(default: object) -> Any:
    """The type that a default value implies; None: it implies none."""
    if isinstance(default, tuple) and len({type(each) for each in default}) == 1:
        return tuple[type(default[0]), ...]  # type: ignore[misc]
    return type(default) if isinstance(default, bool | int | float | str) else None


# What a component must be


def _check_callable(part: CustomPart, found: Any) -> None:
    """Refuse what cannot be such a component before it is called."""
    home = str(getattr(found, "__module__", None)).partition(".")[0]
    if callable(found) and home in sys.stdlib_module_names:
        raise UserError(f"{part} belongs to Python itself ({home}); a part is your own code")
    if not isinstance(found, type):
        if not isinstance(found, types.FunctionType | functools.partial):
            raise UserError(
                f"{part} must be a class or a function that makes one; it is a "
                f"{type(found).__name__}"
            )
    elif part.kind in METHODS:
        _check_class(part, found)
    elif part.kind == "backbone":
        from torch import nn  # late: `--help` must not wait for torch

        if not issubclass(found, nn.Module):
            raise UserError(f"{part} must be a torch module (torch.nn.Module), or make one")


def _check_class(part: CustomPart, kind: type) -> None:
    from driftwise.methods import AnalyticMethod, Method

    name, arguments = METHODS[part.kind]
    if part.kind == "method" and issubclass(kind, AnalyticMethod):
        name, arguments = "classifier", ("statistics",)
    elif part.kind == "method" and not issubclass(kind, Method):
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
    from driftwise.detect.base import reads_monitored
    from driftwise.methods import AnalyticMethod, Method

    kind = type(made)
    if part.kind == "method" and not isinstance(made, Method | AnalyticMethod):
        raise UserError(f"{part} must make a driftwise.methods.Method; it made a {kind.__name__}")
    _check_class(part, kind)
    if part.kind == "detector":
        reads_monitored(made)


# Where it is found


class _InFolder(importlib.abc.MetaPathFinder):
    """Finds named modules in a folder, and no others."""

    def __init__(self) -> None:
        self.homes: dict[str, str] = {}
        """name of a module -> its folder"""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a named module is; None: other finders are to find it."""
        if path is None and fullname in self.homes:
            return PathFinder.find_spec(fullname, [self.homes[fullname]], target)
        return None


_FINDER = _InFolder()


def admit(module: str) -> None:
    """Let a module be imported from the working folder, if it is there and nowhere before.

    The modules that it imports, and these in turn, are admitted with it.
    """
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)  # last, so that it shadows nothing
    try:
        folder = str(Path.cwd())
    except FileNotFoundError:  # it may have been removed
        return
    waiting, seen = [module], set[str]()
    while waiting:
        top = waiting.pop().partition(".")[0]
        if top in seen or top in sys.stdlib_module_names:
            continue
        seen.add(top)
        spec = PathFinder.find_spec(top, [folder])
        if spec is None or PathFinder.find_spec(top) is not None:
            continue
        _FINDER.homes[top] = folder
        importlib.invalidate_caches()
        if (places := spec.submodule_search_locations) is not None:
            files = [file for place in places for file in Path(place).rglob("*.py")]
        else:
            files = [Path(spec.origin or "")]
        waiting += [name for file in files for name, _ in _imports(file, top)]


# Its source


def code_identity(paths: Iterable[str]) -> str | None:
    """A short digest of the source of custom components and of the local modules they import.

    Local is what belongs neither to Python, nor to an installed package, nor to driftwise. None: no
    components were named. `NO_SOURCE`: one of them has none, so that a change cannot be noticed.
    """
    modules = {path.partition(":")[0] for path in paths}
    if not modules:
        return None
    found: dict[str, str | None] = {}
    for module in modules:
        found.setdefault(module, None)  # even if it is installed: the component itself counts
        _collect(module, found)
    if None in found.values():
        return NO_SOURCE
    lines = [f"{name} {found[name]}\n" for name in sorted(found)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def _collect(module: str, found: dict[str, str | None]) -> None:
    """Add the digests of a module that is loaded and of all local ones that it imports."""
    waiting: list[tuple[str, bool]] = [(module, True)]
    seen = set[str]()
    while waiting:
        name, is_part = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        package = name.rpartition(".")[0]
        if package:
            waiting.append((package, False))
        spec = _spec_of(name)
        file = None if spec is None else spec.origin
        if not is_part and (file is None or not is_local(file)):
            continue
        found[name] = digest = _digest(spec, sys.modules.get(name))
        if digest is None or file is None or not file.endswith(".py"):
            continue
        is_package = spec is not None and spec.submodule_search_locations is not None
        waiting += [
            (each, False)
            for imported, names in _imports(Path(file), name if is_package else package)
            for each in (imported, *(f"{imported}.{item}" for item in names))
        ]


def _spec_of(name: str) -> ModuleSpec | None:
    """Of a module that is loaded, or could be; nothing is loaded for that."""
    if (loaded := sys.modules.get(name)) is not None:
        if (spec := getattr(loaded, "__spec__", None)) is not None:
            return spec  # type: ignore[no-any-return]
        file = getattr(loaded, "__file__", None)  # a script has a file, and no spec
        return None if file is None else importlib.util.spec_from_file_location(name, file)
    package = name.rpartition(".")[0]
    try:
        if not package:
            return importlib.util.find_spec(name)
        above = _spec_of(package)
        places = None if above is None else above.submodule_search_locations
        return None if places is None else PathFinder.find_spec(name, list(places))
    except (ImportError, AttributeError, ValueError):
        return None


_DIGESTS: dict[str, tuple[object, str]] = {}
"""By name of a module: its spec, which loading anew replaces, and the digest of what was loaded."""


def _digest(spec: ModuleSpec | None, loaded: ModuleType | None) -> str | None:
    """Of a module's file as it was right after it was loaded."""
    if spec is None or spec.origin is None:
        return None
    key = spec if loaded is None else getattr(loaded, "__spec__", None) or loaded
    kept = _DIGESTS.get(spec.name)
    if kept is not None and kept[0] is key:
        return kept[1]
    try:
        digest = hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
    except OSError:
        return None
    if loaded is not None:
        _DIGESTS[spec.name] = (key, digest)
    return digest


def _imports(file: Path, package: str) -> Iterable[tuple[str, list[str]]]:
    """What a file imports, wherever in it: the module, and the names taken from it."""
    try:
        return _imports_in(file.read_bytes(), package)
    except (OSError, SyntaxError, ValueError):
        return ()  # importing it shows why that fails


@functools.lru_cache(maxsize=4096)  # a sweep asks again with every run
def _imports_in(source: bytes, package: str) -> tuple[tuple[str, list[str]], ...]:
    return tuple(_walk_imports(ast.parse(source), package))


def _walk_imports(tree: ast.AST, package: str) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            if base:
                yield base, [alias.name for alias in node.names]


_NOT_LOCAL = (
    Path(driftwise.__file__).resolve().parent,
    *(
        Path(path).resolve()
        for name, path in sysconfig.get_paths().items()
        if name in ("stdlib", "platstdlib", "purelib", "platlib")
    ),
)


def is_local(file: str) -> bool:
    """Whether a file of code is the user's: not Python's, not installed, not of driftwise."""
    path = Path(file)
    if not path.is_file():  # <frozen ...>, <string>
        return False
    path = path.resolve()
    if {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(home) for home in _NOT_LOCAL)


def place_of(error: BaseException) -> str | None:
    """The file and line of the user's code that an error came from; None: from elsewhere."""
    if isinstance(error, SyntaxError) and error.filename and is_local(error.filename):
        return f"{_shown(error.filename)}, line {error.lineno}"
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_local(frame.f_code.co_filename):
            found = f"{_shown(frame.f_code.co_filename)}, line {line}"
    return found


def in_one_line(error: BaseException) -> str:
    """The error, and where in the user's code it arose.

    >>> in_one_line(ValueError("in\\ntwo lines"))
    'ValueError: in two lines'
    """
    line = " ".join(f"{type(error).__name__}: {error}".split())[:300].removesuffix(":")
    place = place_of(error)
    return line if place is None else f"{line} ({place})"


def _shown(file: str) -> str:
    """A path, relative to the working folder if it is below it."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):
        return file
