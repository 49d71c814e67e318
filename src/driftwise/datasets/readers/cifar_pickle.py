"""Reads CIFAR's official pickles without unpickling them.

A pickle is a program that may call anything it can name. CIFAR's batches need a small part of that
language: plain values, and one fixed phrase that writes down a uint8 array. This module reads that
part and nothing else. It imports nothing and calls nothing that a file names: the five names the
phrase is made of become inert tokens, and any other name or opcode ends the reading.

The files were written by Python 2 in protocols 0 and 2; what Python 3 writes in these protocols is
read as well.
"""

from __future__ import annotations

import codecs
import enum
import math
import mmap
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from driftwise.errors import UserError

_MAX_OPCODES = 5_000_000
"""ten times what the largest official file needs: bounds time and memory of a crafted one"""


def load_batch(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR pickle: values are ints, text, bytes, lists and uint8 arrays.

    Keys are text whichever Python wrote them. Arrays are read-only; where Python 2 wrote the file
    they are views of it, mapped and not copied.
    """
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: there is nothing to map in an empty file
        reason = getattr(error, "strerror", None) or "it is empty"
        raise UserError(f"{path}: cannot be read ({reason}); fetch it again") from error
    machine = _Machine(data)
    try:
        value = machine.run()
        if not isinstance(value, dict):
            raise _Refused(f"holds {type(value).__name__}, expected a dict")
    except (_Refused, IndexError, KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, _Refused) else "it is malformed or cut off"
        raise UserError(
            f"{path}: not a CIFAR pickle ({reason}, byte {machine.at}); "
            f"nothing in it was run; fetch it again from the official address"
        ) from error
    return value


class _Refused(Exception):
    """The file asks for something that no CIFAR batch needs."""


class _Token(enum.Enum):
    """What the fixed phrase for an array is made of; none of them can do anything."""

    ENCODE = enum.auto()
    RECONSTRUCT = enum.auto()
    NDARRAY = enum.auto()
    DTYPE = enum.auto()
    BLANK_ARRAY = enum.auto()
    """an array whose shape and bytes are still to come"""
    BLANK_UINT8 = enum.auto()
    UINT8 = enum.auto()


_NAMES = {
    b"_codecs encode": _Token.ENCODE,  # how Python 3 writes bytes in old protocols
    b"numpy.core.multiarray _reconstruct": _Token.RECONSTRUCT,
    b"numpy._core.multiarray _reconstruct": _Token.RECONSTRUCT,
    b"numpy ndarray": _Token.NDARRAY,
    b"numpy dtype": _Token.DTYPE,
}

_PYTHON2_REPR = re.compile(rb"""(?:[^\\]++|\\[\\'"nrt]|\\x[0-9a-f]{2})*+""")
"""the inside of a Python 2 string literal as `repr` writes it"""


class _Machine:
    """A stack, the stacks below its marks, and a memo; one method per kind of opcode."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.encoded = 0

    def run(self) -> object:
        """The value the program leaves behind."""
        for _ in range(_MAX_OPCODES):
            opcode = self.byte()
            if opcode == _STOP:
                return self.stack.pop()
            action = _ACTIONS.get(opcode)
            if action is None:
                raise _Refused(f"opcode {bytes([opcode])!r} is not admitted")
            action(self)
        raise _Refused(f"more than {_MAX_OPCODES} opcodes")

    # -- bytes of the program

    def take(self, count: int) -> bytes:
        """The next `count` bytes, copied."""
        start, self.at = self.at, self.at + count
        taken = self.data[start : self.at]
        if len(taken) < count:
            raise _Refused("it ends too early")
        return taken

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self, num_bytes: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(num_bytes), "little", signed=signed)

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise _Refused("it ends too early")
        text = self.data[self.at : end]
        self.at = end + 1
        return text

    def short_line(self) -> bytes:
        text = self.line()
        if len(text) > 80:
            raise _Refused("a line is too long")
        return text

    # -- plain values

    def protocol(self) -> None:
        number = self.byte()
        if number > 2:
            raise _Refused(f"pickle protocol {number}, expected 0 to 2")

    def integer_line(self) -> None:
        text = self.short_line()
        # Protocol 0 has no booleans of its own: it spells them as no integer is spelt.
        self.stack.append(text == b"01" if text in (b"00", b"01") else int(text))

    def long_line(self) -> None:
        self.stack.append(int(self.short_line().removesuffix(b"L")))

    def string_line(self) -> None:
        text = self.line()
        inside = text[1:-1]
        if len(text) < 2 or text[:1] not in (b"'", b'"') or text[:1] != text[-1:]:
            raise _Refused("a string without quotes")
        if not _PYTHON2_REPR.fullmatch(inside):
            raise _Refused("a string with an unknown escape")
        self.stack.append(codecs.escape_decode(inside)[0])

    def string_view(self) -> None:
        # Only arrays are this long: leaving them where they are saves a copy of all pixels.
        start, count = self.at + 4, self.number(4)
        self.at = start + count
        if self.at > len(self.data):
            raise _Refused("it ends too early")
        self.stack.append(memoryview(self.data)[start : self.at])

    def text(self) -> None:
        self.stack.append(self.take(self.number(4)).decode())

    # -- containers

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def push(self, value: object) -> None:
        self.stack.append(value)

    def make_tuple(self, length: int) -> None:
        if len(self.stack) < length:
            raise _Refused("a tuple of more values than there are")
        self.stack[-length:] = [tuple(self.stack[-length:])]

    def make_dict(self) -> None:
        items = self.since_mark()
        self.stack.append({})
        self.set_items(items)

    def append(self) -> None:
        item = self.stack.pop()
        self.extend([item])

    def extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise _Refused("appends to something that is no list")
        self.stack[-1].extend(items)

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items([key, value])

    def set_items(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise _Refused("sets an item of something that is no dict")
        # Keys are text and nothing else: nested tuples could take for ever to hash.
        keys = [key.decode() if isinstance(key, bytes) else key for key in items[::2]]
        if not all(isinstance(key, str) for key in keys):
            raise _Refused("a key that is no text")
        self.stack[-1].update(zip(keys, items[1::2], strict=True))

    # -- the memo

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        self.stack.append(self.memo[index])

    # -- the phrase for an array

    def name(self) -> None:
        name = self.short_line() + b" " + self.short_line()
        if name not in _NAMES:
            raise _Refused(f"the name {name.decode(errors='replace')!r} is not admitted")
        self.stack.append(_NAMES[name])

    def apply(self) -> None:
        """Where a pickle calls a function: only three sentences have a meaning here."""
        arguments, function = self.stack.pop(), self.stack.pop()
        match function, arguments:
            case _Token.ENCODE, (str() as text, "latin1"):
                # One long text, remembered and encoded again and again, would fill the memory.
                self.encoded += len(text)
                if self.encoded > len(self.data):
                    raise _Refused("more bytes than the file is long")
                self.stack.append(text.encode("latin1"))
            case _Token.RECONSTRUCT, (_Token.NDARRAY, (0,), b"b"):
                self.stack.append(_Token.BLANK_ARRAY)
            case _Token.DTYPE, ("u1" | b"u1", 0, 1):
                self.stack.append(_Token.BLANK_UINT8)
            case _:
                raise _Refused("a call that is not admitted")

    def build(self) -> None:
        """Where a pickle sets an object's state: only an array and its type have one here."""
        state, target = self.stack.pop(), self.stack.pop()
        match target, state:
            case _Token.BLANK_UINT8, (int(), "|" | b"|", None, None, None, *_):
                self.stack.append(_Token.UINT8)
            case _Token.BLANK_ARRAY, (1, tuple() as shape, _Token.UINT8, bool() as fortran, raw):
                self.stack.append(_array(shape, fortran=fortran, raw=raw))
            case _:
                raise _Refused("a state that is not admitted (only uint8 arrays have one)")


def _array(shape: tuple[Any, ...], *, fortran: bool, raw: object) -> np.ndarray:
    if not isinstance(raw, bytes | memoryview):
        raise _Refused("an array without bytes")
    if not 1 <= len(shape) <= 4 or not all(type(length) is int and length > 0 for length in shape):
        raise _Refused("an array of impossible shape")
    if math.prod(shape) != len(raw):
        raise _Refused(f"an array of {len(raw)} bytes that claims another size")
    flat = np.frombuffer(raw, dtype=np.uint8)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


_STOP = ord(".")
_ACTIONS: dict[int, Callable[[_Machine], None]] = {
    0x80: _Machine.protocol,
    ord("N"): lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord("I"): _Machine.integer_line,
    ord("L"): _Machine.long_line,
    ord("K"): lambda m: m.push(m.byte()),
    ord("M"): lambda m: m.push(m.number(2)),
    ord("J"): lambda m: m.push(m.number(4, signed=True)),
    0x8A: lambda m: m.push(m.number(m.byte(), signed=True)),
    ord("S"): _Machine.string_line,
    ord("U"): lambda m: m.push(m.take(m.byte())),
    ord("T"): _Machine.string_view,
    ord("V"): lambda m: m.push(m.line().decode("raw-unicode-escape")),
    ord("X"): _Machine.text,
    ord("("): _Machine.mark,
    ord(")"): lambda m: m.push(()),
    0x85: lambda m: m.make_tuple(1),
    0x86: lambda m: m.make_tuple(2),
    0x87: lambda m: m.make_tuple(3),
    ord("t"): lambda m: m.push(tuple(m.since_mark())),
    ord("]"): lambda m: m.push([]),
    ord("l"): lambda m: m.push(m.since_mark()),
    ord("a"): _Machine.append,
    ord("e"): lambda m: m.extend(m.since_mark()),
    ord("}"): lambda m: m.push({}),
    ord("d"): _Machine.make_dict,
    ord("s"): _Machine.set_item,
    ord("u"): lambda m: m.set_items(m.since_mark()),
    ord("p"): lambda m: m.put(int(m.short_line())),
    ord("q"): lambda m: m.put(m.byte()),
    ord("r"): lambda m: m.put(m.number(4)),
    ord("g"): lambda m: m.get(int(m.short_line())),
    ord("h"): lambda m: m.get(m.byte()),
    ord("j"): lambda m: m.get(m.number(4)),
    ord("c"): _Machine.name,
    ord("R"): _Machine.apply,
    ord("b"): _Machine.build,
}
