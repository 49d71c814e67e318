"""A digest of all that determines what an encoder computes: it identifies features on disk."""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def identity_of(encoder: Any) -> str | None:
    """A digest of the encoder, None if it cannot be known when it changes."""
    found = getattr(encoder, "identity", None)
    if found is None or re.fullmatch("[0-9a-f]{32}", str(found)):
        return found
    return digest_of_text(found)  # a text of one's own, which need not be the name of a folder


def digest_of_text(*parts: object) -> str:
    """32 hexadecimal digits, equal for equal texts.

    >>> digest_of_text("resnet18", 96) == digest_of_text("resnet18", 96)
    True
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(f"{part}\0".encode(errors="surrogatepass"))
    return digest.hexdigest()


def digest_of_values(*values: object) -> str | None:
    """Of networks, functions and plain values; None if one of them may change without its showing.

    Of a network: weights, structure, plain attributes and the files that define its classes. Of a
    function: its file, its code, what it encloses and the globals that it names. Whoever changes a
    line there has another one: features computed anew cost less than stale ones.
    """
    return _digest(_Digest(), values)


def digest_of_code(*functions: object) -> str | None:
    """Of functions without their files, which may change around them; None as above.

    >>> digest_of_code(lambda x: x + 1) == digest_of_code(lambda x: x + 2)
    False
    """
    return _digest(_Digest(reads_files=False), functions)


def _digest(digest: _Digest, values: Iterable[object]) -> str | None:
    try:
        for value in values:
            digest.feed(value)
    except _Unknown:
        return None
    return digest.hexdigest()


class _Unknown(Exception):
    """Something whose changes cannot be seen."""


class _Digest:
    """Takes in the content of values, types included."""

    def __init__(self, *, reads_files: bool = True) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._reads_files = reads_files
        self._seen: set[int] = set()
        """functions and classes that were taken in, by id; they live as long as their modules"""

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def put(self, text: str) -> None:
        self._digest.update(text.encode(errors="surrogatepass"))

    def feed(self, value: Any) -> None:
        self.put(f"|{type(value).__qualname__} ")
        if value is None or isinstance(value, _PLAIN):
            self.put(repr(value))
        elif isinstance(value, Tensor):
            self.put(f"{value.dtype} {tuple(value.shape)}")
            flat = value.detach().cpu().contiguous().reshape(-1)
            self._digest.update(flat.view(torch.uint8).numpy().data)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self.put(f"{value.dtype} {value.shape}")
            self._digest.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, dict):
            self._feed_all(each for pair in value.items() for each in pair)
        elif isinstance(value, list | tuple):
            self._feed_all(value)
        elif isinstance(value, set | frozenset):
            self.put(repr(sorted(map(repr, value))))
        elif isinstance(value, enum.Enum):
            self.put(str(value))
        elif isinstance(value, nn.Module):
            self._feed_network(value)
        elif isinstance(value, functools.partial):
            self._feed_all((value.func, value.args, dict(value.keywords)))
        elif isinstance(value, ModuleType | FunctionType | type) or inspect.isbuiltin(value):
            self._feed_code(value)
        else:
            raise _Unknown

    def _feed_all(self, values: Iterable[Any]) -> None:
        for each in values:
            self.feed(each)

    def _feed_network(self, network: nn.Module) -> None:
        for name, module in network.named_modules():
            if module._forward_hooks or module._forward_pre_hooks:
                raise _Unknown
            self.put(f"module {name}")
            self._feed_code(type(module))
            own = {key: each for key, each in vars(module).items() if key not in _BOOKKEEPING}
            self.feed(own | module._parameters | module._buffers)

    def _feed_code(self, what: Any) -> None:
        """A module, a class or a function: an installed one by its package, others by their file."""
        home = what.__name__ if isinstance(what, ModuleType) else what.__module__ or ""
        self.put(f"{home}.{getattr(what, '__qualname__', '')} ")
        if id(what) in self._seen:
            return
        self._seen.add(id(what))
        try:
            source = _source(what)
        except _Unknown:
            if self._reads_files:
                raise
            source = b""
        if source is None:
            package = sys.modules.get(home.partition(".")[0])
            self.put(str(getattr(package, "__version__", "")))
            return
        if self._reads_files:
            self._digest.update(source)
        if isinstance(what, type):
            self._feed_all(each for each in vars(what).values() if isinstance(each, FunctionType))
            self._feed_all(each for each in what.__mro__[1:] if each is not object)
        elif isinstance(what, FunctionType):
            self._feed_instructions(what.__code__)
            self._feed_all(cell.cell_contents for cell in what.__closure__ or ())
            self.feed((what.__defaults__, what.__kwdefaults__))
            named = [name for name in _names(what.__code__) if name in what.__globals__]
            self._feed_all(what.__globals__[name] for name in named)

    def _feed_instructions(self, code: CodeType) -> None:
        """What tells apart two functions of one name and one file, as those of `lambda` are."""
        self._digest.update(code.co_code)
        self.put(repr(code.co_names))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._feed_instructions(constant)
            else:
                is_set = isinstance(constant, frozenset)  # in no order of its own
                self.put(repr(sorted(map(repr, constant)) if is_set else constant))


_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_BOOKKEEPING = frozenset(vars(nn.Module()))
"""what every module has: children, weights and hooks"""
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})


def _names(code: CodeType) -> list[str]:
    """The globals and attributes that code names, that of functions within it included."""
    within = [each for each in code.co_consts if isinstance(each, CodeType)]
    return sorted({*code.co_names, *(name for each in within for name in _names(each))})


def _source(what: Any) -> bytes | None:
    """The file that defines something; None: it is installed, or built in."""
    try:
        file = inspect.getsourcefile(what)
    except TypeError:  # built in
        return None
    if file is not None and any(Path(file).is_relative_to(each) for each in _INSTALLED):
        return None
    try:
        return Path(file or "").read_bytes()
    except OSError:
        pass
    try:
        return inspect.getsource(what).encode()  # typed into a notebook
    except OSError:
        raise _Unknown from None
