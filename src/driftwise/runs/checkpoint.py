"""Nested state <-> one safetensors file: tensors as tensors, everything else as JSON beside them.

A state is a tree of dict, list and tuple with None, bool, int, float, str and Tensor as leaves. It
comes back as it went in, bit for bit, and shares no memory with anything. Nothing is ever pickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from driftwise.allocation import copy_of, is_out_of_memory
from driftwise.errors import RunFailure, UserError
from driftwise.files import JSON, replacing, require_regular

_HEAD, _OLD_HEAD = "driftwise", "recollect"
"""The one metadata entry, and what it was called: safetensors writes several in no fixed order, and
equal states must give equal bytes."""

# What every safetensors release that the project admits can hold, by its names.
_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


def flatten(state: object) -> tuple[dict[str, Tensor], JSON]:
    """The tensors of a state, copied and by name, and the JSON tree of their places.

    A tensor's name is its path as Python would write it, which no two places share. The tree marks
    every container, because JSON alone confuses tuples with lists and int keys with str keys.

    >>> tensors, tree = flatten({"seen": 2, 7: (torch.ones(2),)})
    >>> list(tensors), tree
    (['state[7][0]'], {'dict': [['seen', 2], [7, {'tuple': [{'tensor': 'state[7][0]'}]}]]})
    """
    tensors: dict[str, Tensor] = {}
    tree = _encode(state, "state", tensors)
    return {name: copy_of(tensor) for name, tensor in tensors.items()}, tree


def unflatten(tensors: Mapping[str, Tensor], tree: Any) -> Any:
    """The state that `flatten` took apart; every tensor a copy of its own."""
    match tree:
        case None | bool() | int() | float() | str():
            return tree
        case {"tensor": name}:
            return copy_of(tensors[name])
        case {"dict": items}:
            return {key: unflatten(tensors, item) for key, item in items}
        case {"list": items}:
            return [unflatten(tensors, item) for item in items]
        case {"tuple": items}:
            return tuple(unflatten(tensors, item) for item in items)
    raise ValueError(f"expected a part of a state, found {tree!r}")


class OtherFormat(UserError):
    """The file has a format that this version does not read."""


def write(path: Path, state: object, *, format: int) -> None:
    """`write_into` a file of that name, which stays as it was if the state is refused."""
    with replacing(path, durable=False) as file:
        write_into(file, state, format=format)


def write_into(file: BinaryIO, state: object, *, format: int) -> None:
    """Write a state to an open file; equal states (the order of keys included) give equal bytes.

    A digest of everything is kept in the file, so that no damage passes for a state.
    """
    tensors: dict[str, Tensor] = {}
    tree = _encode(state, "state", tensors)
    digest = _digest(format, tree, tensors)
    head = json.dumps({"format": format, "sha256": digest, "tree": tree}, allow_nan=False)
    _write_safetensors(file, tensors, {_HEAD: head})


def read(path: Path, *, format: int) -> Any:
    """The state in `path`, on the CPU; UserError where it is damaged or of another format."""
    try:
        require_regular(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            head = json.loads(metadata.get(_OLD_HEAD) or metadata[_HEAD])
            found, tree = int(head["format"]), head["tree"]
            if found == format:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                if head["sha256"] != _digest(found, tree, tensors):
                    raise ValueError("its digest does not fit its content")
                return unflatten(tensors, tree)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except KeyError as error:
        raise UserError(f"{path} is damaged or not of this project: {error} is missing") from error
    except (SafetensorError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    raise OtherFormat(f"{path} has format {found}, this version reads format {format}")


@contextlib.contextmanager
def errors_named_after(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong while a saved state is taken up is one line that names its folder.

    A state may be whole, with a digest that fits, and yet not what the parts have saved.
    """
    try:
        yield
    except RunFailure:
        raise
    except UserError as error:
        if str(Path(folder)) in str(error):
            raise
        raise UserError(f"{Path(folder)}: {error}") from error
    except Exception as error:  # parts of any make take it up, and may raise anything
        details = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        if is_out_of_memory(error):
            raise RunFailure(
                f"there is not enough memory for what is saved in {Path(folder)} ({details})"
            ) from error
        raise UserError(
            f"what is saved in {Path(folder)} does not fit its config ({details}); "
            "start anew with overwrite=True"
        ) from error


def _write_safetensors(file: BinaryIO, tensors: Mapping[str, Tensor], metadata: JSON) -> None:
    """The file that safetensors would write, tensor by tensor.

    Its own `save` needs the whole file in memory, twice; `save_file` makes a temporary of its own
    and hides which OSError stopped it.
    """
    # Wide ones first: every tensor then begins at a multiple of its width.
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    entries: dict[str, JSON] = {"__metadata__": metadata}
    end = 0
    for name in names:
        tensor, start = tensors[name], end
        end += tensor.nbytes
        entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    file.write(len(header).to_bytes(8, "little") + header)
    for name in names:
        file.write(_bytes_of(tensors[name]))


def _bytes_of(tensor: Tensor) -> memoryview:
    """What a dense tensor consists of, uncopied."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _digest(format: int, tree: JSON, tensors: Mapping[str, Tensor]) -> str:
    """Of all that a file holds: the tree, and every byte of every tensor."""
    digest = hashlib.sha256(json.dumps([format, tree]).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(_bytes_of(tensor.contiguous()))
    return digest.hexdigest()


def _encode(value: object, path: str, tensors: dict[str, Tensor]) -> JSON:
    """The JSON node of `value`; its tensors are put into `tensors` on the way."""
    if isinstance(value, Tensor):
        tensors[path] = _dense(value, path)
        return {"tensor": path}
    # Subclasses of dict are welcome (a network's state_dict is one); all others would change their
    # type on the way, so only the exact types pass.
    if isinstance(value, dict):
        pairs = [(_key(key, path), item) for key, item in value.items()]
        return {"dict": [[key, _encode(item, f"{path}[{key!r}]", tensors)] for key, item in pairs]}
    if type(value) is list or type(value) is tuple:
        nodes = [_encode(item, f"{path}[{i}]", tensors) for i, item in enumerate(value)]
        return {type(value).__name__: nodes}
    if type(value) is float and not math.isfinite(value):
        raise ValueError(f"{path} is {value}; a state holds finite numbers (or None)")
    if value is None or type(value) in (bool, int, float, str):
        return value  # type: ignore[return-value]  # mypy does not narrow by `type(...) in`
    raise TypeError(
        f"{path} is of type {type(value).__name__}; a state holds dict, list, tuple, None, bool, "
        "int, float, str and Tensor"
    )


def _key(key: object, path: str) -> str | int:
    if type(key) is str or type(key) is int:
        return key
    raise TypeError(f"{path} has the key {key!r} of type {type(key).__name__}; expected str or int")


def _dense(tensor: Tensor, path: str) -> Tensor:
    """The tensor on the CPU, its samples one after the other; copied only where it is not so."""
    if tensor.dtype not in _DTYPES or tensor.layout is not torch.strided or tensor.is_meta:
        kind = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
        raise TypeError(f"{path} is a tensor of {kind}; a state holds dense real tensors with data")
    dense = tensor.detach().cpu().contiguous()
    # Of a single element, or of none, torch calls any stride contiguous; bytes need one of 1.
    return dense if dense.numel() > 1 else dense.clone(memory_format=torch.contiguous_format)
