"""A digest of all that determines what an encoder computes: by it, features on disk are told apart."""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def identity_of(encoder: Any) -> str | None:
    """A digest of the encoder, None if it cannot be known when it changes."""
    found = getattr(encoder, "identity", None)
    return found if found is None else str(found)


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

    Of a network: weights, structure, plain attributes and the files that define its classes.
    Whoever changes a line there has another one: features computed anew cost less than stale ones.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        for value in values:
            _feed(value, digest.update)
    except _Unknown:
        return None
    return digest.hexdigest()


class _Unknown(Exception):
    """Something whose changes cannot be seen."""


def _feed(value: Any, put: Callable[[bytes], None]) -> None:
    """Hand over the content of a value, type included."""
    put(f"|{type(value).__qualname__} ".encode())
    if isinstance(value, nn.Module):
        _feed_network(value, put)
        return
    if value is None or isinstance(
        value, bool | int | float | complex | str | bytes | torch.dtype | torch.device | torch.Size
    ):
        put(repr(value).encode(errors="surrogatepass"))
    elif isinstance(value, Tensor):
        put(f"{value.dtype} {tuple(value.shape)}".encode())
        put(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        put(f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict):
        for key, each in value.items():
            _feed(key, put)
            _feed(each, put)
    elif isinstance(value, list | tuple):
        for each in value:
            _feed(each, put)
    elif isinstance(value, set | frozenset):
        put(repr(sorted(map(repr, value))).encode())
    elif isinstance(value, enum.Enum):
        put(str(value).encode())
    elif isinstance(value, type | FunctionType) or inspect.isbuiltin(value):
        put(f"{value.__module__}.{value.__qualname__}".encode())
        put(_source(value))
        for cell in getattr(value, "__closure__", None) or ():
            _feed(cell.cell_contents, put)
    elif isinstance(value, functools.partial):
        _feed((value.func, value.args, dict(value.keywords)), put)
    else:
        raise _Unknown


def _feed_network(network: nn.Module, put: Callable[[bytes], None]) -> None:
    for kind in dict.fromkeys(map(type, network.modules())):
        _feed(kind, put)
    for name, module in network.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            raise _Unknown
        put(f"module {name} {type(module).__qualname__}".encode())
        own = {key: each for key, each in vars(module).items() if key not in _BOOKKEEPING}
        _feed(own | module._parameters | module._buffers, put)


_BOOKKEEPING = frozenset(vars(nn.Module()))
"""what every module has: children, weights and hooks"""


def _source(what: Any) -> bytes:
    """The file that defines it, or the version of the package that does."""
    package = sys.modules.get(what.__module__.partition(".")[0])
    try:
        file = inspect.getsourcefile(what)
    except TypeError:  # built in
        file = None
    if file is None or any(Path(file).is_relative_to(each) for each in _INSTALLED):
        return str(getattr(package, "__version__", "")).encode()
    try:
        return Path(file).read_bytes()
    except OSError:
        pass
    try:
        return inspect.getsource(what).encode()  # typed into a notebook
    except OSError:
        raise _Unknown from None


_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})
