"""Where custom parts come from: found by name, identified by their source, and where they fail.

The working folder is never put on `sys.path`: libraries probe for modules that nobody installed
(`dill`, `winreg`), and a file of that name in the folder would run. Instead a finder of our own
knows the modules that a custom part names, itself or through other modules of the folder, and finds
no others there.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.abc
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import driftwise

NO_SOURCE = "unreadable"
"""The identity of code that cannot be read: equal to nobody's, not even its own."""

_PACKAGE = Path(driftwise.__file__).resolve().parent
_INSTALLED = tuple(
    Path(path).resolve()
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)


class _InFolder(importlib.abc.MetaPathFinder):
    """Finds named modules in a folder; all others are none of its business."""

    def __init__(self) -> None:
        self.homes: dict[str, str] = {}
        """name of a module -> the folder it lies in"""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a named module lies; None: somebody else is to look for it."""
        if path is None and fullname in self.homes:
            return PathFinder.find_spec(fullname, [self.homes[fullname]], target)
        return None


_FINDER = _InFolder()


def admit(module: str) -> None:
    """Let a module be imported from the working folder, if it lies there and nowhere before.

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
        lies = PathFinder.find_spec(top, [folder])
        if lies is None or PathFinder.find_spec(top) is not None:
            continue
        _FINDER.homes[top] = folder
        importlib.invalidate_caches()
        for file in _files(lies):
            waiting += [name for name, _ in _imports(file, top)]


def _files(spec: ModuleSpec) -> Iterator[Path]:
    """The source of a module, or of all modules of a package."""
    for place in spec.submodule_search_locations or ():
        yield from Path(place).rglob("*.py")
    if spec.submodule_search_locations is None and spec.origin is not None:
        yield Path(spec.origin)


def code_identity(paths: Iterable[str]) -> str | None:
    """A short digest of the source of custom parts and of the local modules they import.

    Local is what belongs neither to Python, nor to an installed package, nor to driftwise. None: no
    parts were named. `NO_SOURCE`: one of them has none, so that nobody can say whether it changed.
    """
    modules = {path.partition(":")[0] for path in paths}
    if not modules:
        return None
    found: dict[str, str | None] = {}
    for module in modules:
        found.setdefault(module, None)  # even if it is installed: the part itself counts
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
            continue  # nobody's, or somebody's who is asked for by version
        found[name] = digest = _digest(spec, sys.modules.get(name))
        if digest is None or file is None or not file.endswith(".py"):
            continue
        is_package = spec is not None and spec.submodule_search_locations is not None
        waiting += [
            (each, False)
            for imported, froms in _imports_of(file, name if is_package else package, digest)
            for each in (imported, *(f"{imported}.{item}" for item in froms))
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
    """Of a module's file as it was when it was first looked at, right after it was loaded."""
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


@functools.lru_cache(maxsize=4096)
def _imports_of(file: str, package: str, digest: str) -> tuple[tuple[str, list[str]], ...]:
    """The same for a file of that digest, which a sweep asks for with every run."""
    del digest
    return tuple(_imports(Path(file), package))


def _imports(file: Path, package: str) -> Iterator[tuple[str, list[str]]]:
    """What a file imports, wherever in it: the module, and the names taken from it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # whoever imports it sees why that fails
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


def is_local(file: str) -> bool:
    """Whether a file of code is the user's own: not Python's, not installed, not of driftwise."""
    path = Path(file)
    if not path.is_file():  # <frozen ...>, <string>
        return False
    path = path.resolve()
    if {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(home) for home in (_PACKAGE, *_INSTALLED))


def place_of(error: BaseException) -> str | None:
    """The file and line of the user's own code that an error came from; None: from elsewhere."""
    if isinstance(error, SyntaxError) and error.filename and is_local(error.filename):
        return f"{_shown(error.filename)}, line {error.lineno}"
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_local(frame.f_code.co_filename):
            found = f"{_shown(frame.f_code.co_filename)}, line {line}"
    return found


def in_one_line(error: BaseException) -> str:
    """What went wrong, and where in the user's own code.

    >>> in_one_line(ValueError("in\\ntwo lines"))
    'ValueError: in two lines'
    """
    line = " ".join(f"{type(error).__name__}: {error}".split())[:300].removesuffix(":")
    place = place_of(error)
    return line if place is None else f"{line} ({place})"


def _shown(file: str) -> str:
    """A path as short as it can be said from here."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):
        return file
