"""The state of a part: its `state_dict`, or else what its attributes hold.

A custom part need not write a `state_dict`. Its modules, tensors, arrays, numbers, texts, random
generators, and lists, tuples, sets and dicts of them are saved as they are found, and restored
exactly, shared objects included. What is none of these may be there (a function, a logger) as long
as it does not change; if it does, saving is refused: nothing is lost silently.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import hashlib
import inspect
import io
import itertools
import logging
import math
import random
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import driftwise.stats.fraction
import driftwise.types
from driftwise.errors import UserError

Node = Any
"""A value as plain data and tensors."""

_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_MAPPINGS: dict[type, str] = {
    dict: "dict",
    OrderedDict: "OrderedDict",
    Counter: "Counter",
    defaultdict: "defaultdict",
}
_RECORDS = {
    kind.__name__: kind
    for kind in (
        driftwise.types.Samples,
        driftwise.types.Encoding,
        driftwise.types.Verdict,
        driftwise.stats.fraction.Share,
    )
}
_TEXTS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "complex": (complex, repr, complex),
    "path": (Path, str, Path),
    "device": (torch.device, str, torch.device),
    "dtype": (torch.dtype, str, lambda text: getattr(torch, text.removeprefix("torch."))),
}
"""What can be written as a text and read again."""
_BY_IDENTITY = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type),
    *(logging.Logger, logging.Handler, logging.LoggerAdapter, io.IOBase),
)
"""Things that a part may hold, and that do not change what it computes."""


class PartState:
    """Saves and restores one part. Make it when the part is made, before it has changed."""

    def __init__(
        self, part: object, kind: str, network: Callable[[], nn.Module] | None = None
    ) -> None:
        """`kind`: what a message calls the part. `network`: the one that is trained.

        A copy of the network that a part makes later can be restored, any other module only if the
        part has one like it from the beginning.
        """
        self._part = part
        self._name = f"{kind} {type(part).__name__}"
        self._network: Callable[[], nn.Module | None] = network or (lambda: None)
        owners = [_owner(part, name) for name in ("state_dict", "load_state_dict")]
        if owners.count(None) == 1:
            raise UserError(f"{self._name} has one of state_dict and load_state_dict; write both")
        self._has_own = None not in owners
        # The base class of methods has an empty state.
        self._inherits = owners[0] is not None and not inspect.isabstract(owners[0])
        self._by_attributes = all(
            owner is None or _is_ours(owner) for owner in owners
        ) and not _is_ours(type(part))
        if self._by_attributes:
            self._made = _Saver(self._network(), None)
            for name, value in _in_order(part):
                with contextlib.suppress(_Unsaveable):
                    self._made.attribute(name, value)
            self._class_digests = self._digests_of_classes(self._made.digest)
            self._made.forget()

    @property
    def is_there(self) -> bool:
        """Whether the part can have a state at all."""
        return self._has_own or self._by_attributes

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes; UserError where something has changed that cannot be saved."""
        own: dict[str, Any] = self._part.state_dict() if self._has_own else {}  # type: ignore[attr-defined]
        if not self._by_attributes:
            return own
        saver = _Saver(self._network(), self._made)
        for name, digest in self._digests_of_classes(saver.digest).items():
            if self._class_digests.get(name) != digest:
                raise UserError(
                    f"{self._name} cannot be saved: {name} has changed, and belongs to the class; "
                    f"set self.{name.rpartition('.')[2]} in its constructor instead"
                )
        saved, left = {}, []
        for name, value in _in_order(self._part):
            try:
                saved[name] = saver.attribute(name, value)
            except _Unsaveable as error:
                # What a built-in class holds, its own state_dict has saved.
                inherited = self._inherits and _is_ours(type(value)) and name in self._made.digests
                if not inherited and self._made.digests.get(name) != saver.digests[name]:
                    raise UserError(
                        f"{self._name} cannot be saved: its attribute {error.path} holds a "
                        f"{type(error.value).__name__}, which is new or has changed since the part "
                        "was made and cannot be saved by itself; write state_dict() and "
                        "load_state_dict(state), or do not keep it"
                    ) from None
                left.append(name)
        return {"inherited": own, "attributes": saved, "left": left}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        if not self._by_attributes:
            if self._has_own:
                self._part.load_state_dict(state)  # type: ignore[attr-defined]
            elif state:
                raise ValueError(f"this part keeps no state; got {sorted(state)}")
            return
        if not state:
            return  # of a version that saved none
        if self._has_own:
            self._part.load_state_dict(state["inherited"])  # type: ignore[attr-defined]
        loader = _Loader(self._network())
        for name, node in state["attributes"].items():
            current = getattr(self._part, name, None)
            object.__setattr__(self._part, name, loader.value(node, name, current))
        for name, _ in _in_order(self._part):
            if name not in state["attributes"] and name not in state["left"]:
                object.__delattr__(self._part, name)

    def _digests_of_classes(self, digest: _Digest) -> dict[str, str]:
        """Of what the part's own classes hold beside functions."""
        skipped = (*_BY_IDENTITY, property, classmethod, staticmethod, types.MemberDescriptorType)
        return {
            f"{kind.__name__}.{name}": digest.of(value)
            for kind in type(self._part).__mro__
            if kind is not object and not _is_ours(kind)
            for name, value in vars(kind).items()
            if not name.startswith(("__", "_abc_")) and not isinstance(value, skipped)
        }


def _owner(part: object, name: str) -> type | None:
    """The class that defines a method of a part."""
    return next((kind for kind in type(part).__mro__ if name in vars(kind)), None)


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "driftwise"


def _attributes(value: object) -> dict[str, Any]:
    """What an object holds, in its dict and in its slots."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, types.MemberDescriptorType) and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def _in_order(part: object) -> list[tuple[str, Any]]:
    """Attributes by name; those with modules first, whose weights others may refer to."""
    found = _attributes(part)
    return sorted(found.items(), key=lambda item: not _holds_module(item[1]))


def _holds_module(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_module, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_module, value))
    return isinstance(value, nn.Module)


def _saves_itself(value: Any) -> bool:
    """Whether an object has `state_dict()` and `load_state_dict(state)`."""
    if not callable(getattr(value, "state_dict", None)):
        return False
    try:
        inspect.signature(value.load_state_dict).bind({})
    except (AttributeError, TypeError, ValueError):
        return False
    return True


def _structure(module: nn.Module) -> object:
    """What two modules must agree in for one to take the other's state."""
    return type(module), [
        (key, (tuple(each.shape), each.dtype) if isinstance(each, Tensor) else None)
        for key, each in module.state_dict().items()
    ]


def _members(module: nn.Module) -> Iterator[tuple[str, str, object]]:
    """Everything in a module that something else may refer to, by kind and name."""
    for name, each in module.named_modules(remove_duplicate=False):
        yield "module", name, each
    for name, weight in module.named_parameters(remove_duplicate=False):
        yield "parameter", name, weight
    for name, buffer in module.named_buffers(remove_duplicate=False):
        yield "buffer", name, buffer


class _Unsaveable(Exception):
    """A value that is none of those that can be saved."""

    def __init__(self, path: str, value: object) -> None:
        super().__init__(path)
        self.path = path
        self.value = value


class _Saver:
    """Turns attributes into nodes; an object that comes twice is saved once."""

    def __init__(self, network: nn.Module | None, made: _Saver | None) -> None:
        """`made`: what the part held when it was made; None: this is then."""
        self.structures: dict[str, object] = {}
        """of modules, by path"""
        self.holders: dict[str, type] = {}
        """objects with a `state_dict` of their own, by path"""
        self.digests: dict[str, str] = {}
        """of attributes that cannot be saved, by name"""
        self.digest = _Digest(network)
        self._network = network
        self._made = made
        self._places: dict[int, Node] = {}
        self._kept: list[object] = []  # an id is good for as long as its object lives
        if network is not None:
            self._refer(network, "", network=True)

    def attribute(self, name: str, value: object) -> Node:
        """The node of an attribute; `_Unsaveable`, and a digest, where there is none."""
        before = dict(self._places)
        try:
            return self._node(value, name)
        except _Unsaveable:
            self._places = before
            self.digests[name] = self.digest.of(value)
            raise

    def forget(self) -> None:
        """Let go of what the part holds: only what is known about it is to outlive this moment."""
        self._places.clear()
        self._kept.clear()

    def _refer(self, module: nn.Module, path: str, *, network: bool = False) -> None:
        for kind, name, each in _members(module):
            node = {"is": "member", "of": path, "network": network, "kind": kind, "name": name}
            self._places.setdefault(id(each), node)

    def _node(self, value: Any, path: str) -> Node:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"is": "float", "text": str(value)}
        if (place := self._places.get(id(value))) is not None:
            return place
        if isinstance(value, nn.Module):
            return self._module(value, path)
        self._places[id(value)] = {"is": "again", "of": path}
        self._kept.append(value)
        if (kind := _SEQUENCES.get(type(value))) is not None:
            ordered = sorted(value, key=repr) if "set" in kind else value
            items = [self._node(each, f"{path}[{n}]") for n, each in enumerate(ordered)]
            return {"is": kind, "items": items}
        if (kind := _MAPPINGS.get(type(value))) is not None:
            pairs = [
                [self._node(key, f"{path}.keys()[{n}]"), self._node(each, f"{path}[{key!r}]")]
                for n, (key, each) in enumerate(value.items())
            ]
            return {"is": kind, "items": pairs}
        if type(value) is deque:
            items = [self._node(each, f"{path}[{n}]") for n, each in enumerate(value)]
            return {"is": "deque", "items": items, "most": value.maxlen}
        if _RECORDS.get(type(value).__name__) is type(value):
            fields = {
                field.name: self._node(getattr(value, field.name), f"{path}.{field.name}")
                for field in dataclasses.fields(value)
            }
            return {"is": "record", "of": type(value).__name__, "fields": fields}
        if (node := _numbers(value)) is not None:
            return node
        for kind, (type_, write, _) in _TEXTS.items():
            if isinstance(value, type_):
                return {"is": "text", "of": kind, "text": write(value)}
        if _saves_itself(value):
            return self._holder(value, path)
        return self._draws(value, path)

    def _module(self, module: nn.Module, path: str) -> Node:
        structure = _structure(module)
        self.structures[path] = structure
        there = self._made is None or self._made.structures.get(path) == structure
        like = self._network is not None and structure == _structure(self._network)
        if not (there or like):
            raise _Unsaveable(path, module)
        self._refer(module, path)
        self._kept.append(module)
        return {
            "is": "module",
            "copy": not there,
            "state": {
                key: each if isinstance(each, Tensor) else self._node(each, f"{path}.{key}")
                for key, each in module.state_dict().items()
            },
            "training": [each.training for each in module.modules()],
            "trained": [weight.requires_grad for weight in module.parameters()],
        }

    def _holder(self, value: Any, path: str) -> Node:
        self.holders[path] = type(value)
        is_encoder = hasattr(value, "encode")  # what a run lends, it saves
        if is_encoder or (self._made and self._made.holders.get(path) is not type(value)):
            raise _Unsaveable(path, value)
        if self._made is None:
            return None
        return {"is": "holder", "state": self._node(value.state_dict(), f"{path}.state_dict()")}

    def _draws(self, value: Any, path: str) -> Node:
        """Random generators."""
        if isinstance(value, torch.Generator):
            return {"is": "torch", "state": value.get_state(), "device": str(value.device)}
        if isinstance(value, random.Random):
            return {"is": "random", "state": value.getstate()}
        if isinstance(value, np.random.Generator):
            state = self._node(value.bit_generator.state, f"{path}.state")
            return {"is": "numpy", "state": state}
        raise _Unsaveable(path, value)


def _numbers(value: object) -> Node:
    """Tensors and arrays; None for anything else."""
    if type(value) in (Tensor, nn.Parameter):
        assert isinstance(value, Tensor)
        if value.layout is not torch.strided or value.is_meta or value.is_complex():
            return None
        if value.is_quantized:
            return None
        return {
            "is": type(value).__name__,
            "data": value.detach(),
            "trained": value.requires_grad and value.is_leaf,
            "device": str(value.device),
        }
    if type(value) is np.ndarray or isinstance(value, np.generic):
        array = np.asarray(value)
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            return None
        native = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
        name = "array" if isinstance(value, np.ndarray) else "scalar"
        return {"is": name, "data": torch.from_numpy(native), "dtype": array.dtype.str}
    return None


class _Loader:
    """Turns nodes into values again."""

    def __init__(self, network: nn.Module | None) -> None:
        self._network = network
        self._objects: dict[str, Any] = {}

    def value(self, node: Node, path: str, current: Any) -> Any:
        """The value of a node; `current` stands there now, and is taken up where it can be."""
        if not isinstance(node, dict):
            return node
        match node["is"]:
            case "float":
                return float(node["text"])
            case "text":
                made: Any = _TEXTS[node["of"]][2](node["text"])
            case "again":
                return self._objects[node["of"]]
            case "member":
                root = self._network if node["network"] else self._objects[node["of"]]
                assert root is not None, "a part was saved with the network, and has none"
                wanted = (node["kind"], node["name"])
                return next(each for *found, each in _members(root) if tuple(found) == wanted)
            case "list":  # known before what it holds, which may hold it
                made = self._objects[path] = []
                made += self._items(node, path, current)
                return made
            case "dict" | "OrderedDict" | "Counter" | "defaultdict":
                return self._mapping(node, path, current)
            case "record":
                fields = {
                    name: self.value(each, f"{path}.{name}", None)
                    for name, each in node["fields"].items()
                }
                made = _RECORDS[node["of"]](**fields)
            case "tuple" | "set" | "frozenset" as name:
                kind = next(each for each, known in _SEQUENCES.items() if known == name)
                made = kind(self._items(node, path, current))
            case "deque":
                made = deque(self._items(node, path, current), maxlen=node["most"])
            case _:
                made = self._changing(node, path, current)
        self._objects[path] = made
        return made

    def _items(self, node: Node, path: str, current: Any) -> list[Any]:
        there = current if isinstance(current, list | tuple) else ()
        return [
            self.value(each, f"{path}[{n}]", there[n] if n < len(there) else None)
            for n, each in enumerate(node["items"])
        ]

    def _mapping(self, node: Node, path: str, current: Any) -> Any:
        kind = next(each for each, known in _MAPPINGS.items() if known == node["is"])
        made: Any = kind()
        if isinstance(current, defaultdict) and isinstance(made, defaultdict):
            made.default_factory = current.default_factory
        self._objects[path] = made
        there = current if isinstance(current, dict) else {}
        for n, (key_node, each) in enumerate(node["items"]):
            key = self.value(key_node, f"{path}.keys()[{n}]", None)
            made[key] = self.value(each, f"{path}[{key!r}]", there.get(key))
        return made

    def _changing(self, node: Node, path: str, current: Any) -> Any:
        """Whatever has a state that can be set."""
        match node["is"]:
            case "module":
                return self._module(node, path, current)
            case "holder":
                current.load_state_dict(self.value(node["state"], f"{path}.state_dict()", None))
                return current
            case "Tensor":
                tensor: Tensor = node["data"].to(node["device"])
                return tensor.requires_grad_(node["trained"]) if node["trained"] else tensor
            case "Parameter":
                weight = current if isinstance(current, nn.Parameter) else None
                if weight is None or weight.shape != node["data"].shape:
                    weight = nn.Parameter(node["data"].to(node["device"]))
                with torch.no_grad():
                    weight.copy_(node["data"])
                return weight.requires_grad_(node["trained"])
            case "array":
                return node["data"].numpy().astype(node["dtype"])
            case "scalar":
                return node["data"].numpy().astype(node["dtype"])[()]
            case "torch":
                draws = current
                if not isinstance(current, torch.Generator):
                    draws = torch.Generator(node["device"])
                draws.set_state(node["state"])
                return draws
            case "random":
                chance = current if isinstance(current, random.Random) else random.Random()
                chance.setstate(node["state"])
                return chance
            case "numpy":
                state = self.value(node["state"], f"{path}.state", None)
                kind = getattr(np.random, state["bit_generator"])
                generator = np.random.Generator(kind())
                if isinstance(current, np.random.Generator):
                    generator = current
                generator.bit_generator.state = state
                return generator
        raise ValueError(f"{path}: nothing is known of {node['is']!r}")

    def _module(self, node: Node, path: str, current: Any) -> nn.Module:
        module: nn.Module = current
        if node["copy"]:
            assert self._network is not None, "a part was saved with the network, and has none"
            module = copy.deepcopy(self._network)
        elif not isinstance(current, nn.Module):
            raise ValueError(f"{path} was a module when it was saved, and is none")
        state = {
            key: self.value(each, f"{path}.{key}", None) for key, each in node["state"].items()
        }
        module.load_state_dict(state)
        for each, training in zip(module.modules(), node["training"], strict=True):
            each.training = training
        for weight, trained in zip(module.parameters(), node["trained"], strict=True):
            weight.requires_grad_(trained)
        return module


class _Digest:
    """Finds whether something that cannot be saved is still as it was; it keeps no copy of it."""

    _new = itertools.count()

    def __init__(self, network: nn.Module | None) -> None:
        self._held: list[object] = []  # an id is good for as long as its object lives
        self._lent = {id(each) for _, _, each in _members(network)} if network is not None else ()

    def of(self, value: object) -> str:
        """A short text, equal for a thing that has not changed."""
        digest = hashlib.sha256()
        self._feed(value, digest.update, {})
        return digest.hexdigest()

    def _feed(self, value: Any, put: Callable[[bytes], None], seen: dict[int, int]) -> None:
        put(f"|{type(value).__module__}.{type(value).__qualname__}:".encode())
        if value is None or type(value) in (bool, int, float, str, bytes, complex):
            put(repr(value).encode(errors="surrogatepass"))
            return
        if id(value) in seen:
            put(f"again {seen[id(value)]}".encode())
            return
        seen[id(value)] = len(seen)
        if isinstance(value, Tensor) and _is_dense(value):
            put(f"{value.dtype} {tuple(value.shape)}".encode())
            value = value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy()
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            put(f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        elif isinstance(value, torch.Generator):
            put(value.get_state().numpy().tobytes())
        elif isinstance(value, dict):
            for key, each in value.items():
                self._feed(key, put, seen)
                self._feed(each, put, seen)
        elif isinstance(value, list | tuple | deque | np.ndarray):
            for each in value.ravel() if isinstance(value, np.ndarray) else value:
                self._feed(each, put, seen)
        elif isinstance(value, set | frozenset):
            put(repr(sorted(map(repr, value))).encode())
        elif isinstance(value, Iterator) and not isinstance(value, io.IOBase):
            put(f"moves on {next(self._new)}".encode())  # how far it is nobody can see
        elif isinstance(value, np.random.Generator):
            self._feed(value.bit_generator.state, put, seen)
        elif isinstance(value, random.Random):
            put(repr(value.getstate()).encode())
        elif isinstance(value, PurePath):
            put(str(value).encode(errors="surrogateescape"))
        elif self._is_named(value):
            self._held.append(value)
            put(f"at {id(value)}".encode())
        else:
            for name, each in _attributes(value).items():
                self._feed(name, put, seen)
                self._feed(each, put, seen)

    def _is_named(self, value: object) -> bool:
        """Whether a thing is compared by identity, not by what it holds."""
        if isinstance(value, _BY_IDENTITY) or id(value) in self._lent:
            return True
        if isinstance(value, enum.Enum) or _is_ours(type(value)):
            return True
        return not _attributes(value)


def _is_dense(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_quantized
