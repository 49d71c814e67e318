"""Reads CIFAR's official pickles without unpickling them.

A pickle is a program that may call anything it can name. CIFAR's batches need a small part of that
language: plain values, and one fixed phrase for a uint8 array. This module interprets that part and
refuses everything else. It imports nothing and calls nothing that a file names: the five names of
the phrase become inert tokens, and any other name or opcode ends the reading.

Memory stays within a small multiple of the file: `pickletools` parses the opcodes and reserves
nothing that the file does not hold, the memo is a dictionary, and arrays may not add up to more
bytes than the file has.

The files were written by Python 2, batches in protocol 2 and some names in protocol 0; what Python
3 writes in protocols 0 to 2 is read as well.
"""

from __future__ import annotations

import enum
import math
import mmap
import pickletools
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from driftwise.errors import UserError

_MAX_OPCODES = 5_000_000
"""ten times what the largest official file needs: bounds time and memory of a crafted one"""


class _Refused(Exception):
    """The file contains something that no CIFAR batch needs."""


class _Token(enum.Enum):
    """The elements of the fixed phrase for an array; none of them can do anything."""

    ENCODE = enum.auto()
    RECONSTRUCT = enum.auto()
    NDARRAY = enum.auto()
    DTYPE = enum.auto()
    BLANK_ARRAY = enum.auto()
    """an array whose shape and bytes are still to come"""
    BLANK_UINT8 = enum.auto()
    UINT8 = enum.auto()


_NAMES = {
    "_codecs encode": _Token.ENCODE,  # how Python 3 writes bytes in old protocols
    "numpy.core.multiarray _reconstruct": _Token.RECONSTRUCT,
    "numpy._core.multiarray _reconstruct": _Token.RECONSTRUCT,
    "numpy ndarray": _Token.NDARRAY,
    "numpy dtype": _Token.DTYPE,
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE"),
}
_EMPTY = {"EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def load_batch(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR pickle: values are ints, text, lists and read-only uint8 arrays.

    Bytes are text whichever Python wrote them, a character for each byte.
    """
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: there is nothing to map in an empty file
        reason = getattr(error, "strerror", None) or "it is empty"
        raise UserError(f"{path}: cannot be read ({reason}); fetch it again") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in strings
            value = _interpret(data)
        if not isinstance(value, dict):
            raise _Refused(f"holds {type(value).__name__}, expected a dict")
    except (_Refused, IndexError, KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, _Refused) else "it is malformed or cut off"
        raise UserError(
            f"{path}: not a CIFAR pickle ({reason}, byte {data.tell()}); "
            f"nothing in it was run; fetch it again from the official address"
        ) from error
    finally:
        data.close()
    return value


def _interpret(data: mmap.mmap) -> object:
    """The value that the program leaves on the stack."""
    stack: list[Any] = []
    below: list[list[Any]] = []  # the stacks below each mark
    memo: dict[int, Any] = {}
    room = len(data)  # bytes that arrays may still take

    def since_mark() -> list[Any]:
        nonlocal stack
        items, stack = stack, below.pop()
        return items

    argument: Any
    program = pickletools.genops(data)  # type: ignore[arg-type]  # a mapped file reads like a file
    for number, (opcode, argument, _) in enumerate(program):
        if number == _MAX_OPCODES:
            raise _Refused(f"more than {_MAX_OPCODES} opcodes")
        match opcode.name:
            case "PROTO":
                if argument > 2:
                    raise _Refused(f"pickle protocol {argument}, expected 0 to 2")
            case "STOP":
                return stack.pop()
            case name if name in _VALUES:
                stack.append(argument)
            case name if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            case name if name in _EMPTY:
                stack.append(_EMPTY[name]())
            case name if name in _TUPLES:
                if len(stack) < _TUPLES[name]:
                    raise _Refused("a tuple of more values than there are")
                stack[-_TUPLES[name] :] = [tuple(stack[-_TUPLES[name] :])]
            case "MARK":
                below.append(stack)
                stack = []
            case "TUPLE":
                items = since_mark()
                stack.append(tuple(items))
            case "LIST":
                items = since_mark()
                stack.append(items)
            case "DICT":
                items = since_mark()
                stack.append({})
                _set_items(stack[-1], items)
            case "APPEND" | "APPENDS":
                items = [stack.pop()] if opcode.name == "APPEND" else since_mark()
                if not isinstance(stack[-1], list):
                    raise _Refused("appends to something that is no list")
                stack[-1].extend(items)
            case "SETITEM" | "SETITEMS":
                one = opcode.name == "SETITEM"
                items = [stack.pop(-2), stack.pop()] if one else since_mark()
                _set_items(stack[-1], items)
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL":
                if argument not in _NAMES:
                    raise _Refused(f"the name {argument!r} is not admitted")
                stack.append(_NAMES[argument])
            case "REDUCE":
                arguments, function = stack.pop(), stack.pop()
                stack.append(_call(function, arguments))
            case "BUILD":
                state, target = stack.pop(), stack.pop()
                stack.append(_build(target, state, room))
                room -= stack[-1].nbytes if isinstance(stack[-1], np.ndarray) else 0
            case name:
                raise _Refused(f"opcode {name} is not admitted")
    raise AssertionError("genops ends with STOP or an error")


def _set_items(target: object, items: list[Any]) -> None:
    if not isinstance(target, dict):
        raise _Refused("sets an item of something that is no dict")
    # Keys are text and nothing else: nested tuples could take for ever to hash.
    if not all(isinstance(key, str) for key in items[::2]):
        raise _Refused("a key that is no text")
    target.update(zip(items[::2], items[1::2], strict=True))


def _call(function: object, arguments: object) -> object:
    """The value of a call: only three calls have a meaning here."""
    match function, arguments:
        case _Token.ENCODE, (str() as text, "latin1"):
            return text
        case _Token.RECONSTRUCT, (_Token.NDARRAY, (0,), "b"):
            return _Token.BLANK_ARRAY
        case _Token.DTYPE, ("u1", 0, 1):
            return _Token.BLANK_UINT8
    raise _Refused("a call that is not admitted")


def _build(target: object, state: object, room: int) -> object:
    """An object with its state set: only an array and its type have one here."""
    match target, state:
        case _Token.BLANK_UINT8, (int(), "|", None, None, None, *_):
            return _Token.UINT8
        case _Token.BLANK_ARRAY, (1, tuple() as shape, _Token.UINT8, fortran, str() as raw):
            if not 1 <= len(shape) <= 4 or not all(type(n) is int and n > 0 for n in shape):
                raise _Refused("an array of impossible shape")
            if math.prod(shape) != len(raw):
                raise _Refused(f"an array of {len(raw)} bytes that claims another size")
            if len(raw) > room:  # one text, used for an array again and again, would fill memory
                raise _Refused("more bytes than the file is long")
            flat = np.frombuffer(raw.encode("latin-1"), dtype=np.uint8)
            return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
    raise _Refused("a state that is not admitted (only uint8 arrays have one)")
