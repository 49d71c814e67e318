"""The laws of the fence: honest batches load, and no crafted file makes anything happen."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwise.datasets.readers.cifar_pickle import load_batch
from driftwise.errors import UserError

PIXELS = (np.arange(4 * 300) % 256).astype(np.uint8).reshape(4, 300)
BATCH: dict[bytes, Any] = {
    b"batch_label": b"training batch 1 of 5",
    b"labels": [6, 9, 300, -70_000],
    b"data": PIXELS,
    b"filenames": [b"leptodactylus.png", b"it's.png", b'"quoted\\".png', b"\xe9\n.png"],
}


class Python2Pickler:
    """Writes what Python 2 wrote, with its string opcodes that no Python 3 can be made to write."""

    def __init__(self, protocol: int) -> None:
        self.protocol = protocol
        self.num_remembered = 0

    def dumps(self, value: object) -> bytes:
        head = b"\x80\x02" if self.protocol == 2 else b""
        return head + self.write(value) + b"."

    def remember(self) -> bytes:
        self.num_remembered += 1
        if self.protocol == 0:
            return b"p%d\n" % self.num_remembered
        return b"r" + struct.pack("<I", self.num_remembered)

    def write(self, value: object) -> bytes:
        match value:
            case None:
                return b"N"
            case bool():
                return (b"I0%d\n" % value) if self.protocol == 0 else (b"\x89\x88"[value:][:1])
            case int():
                return self.integer(value)
            case bytes():
                return self.string(value) + self.remember()
            case tuple():
                return b"(" + b"".join(map(self.write, value)) + b"t" + self.remember()
            case list():
                head = b"(l" if self.protocol == 0 else b"]"
                items = [self.write(item) for item in value]
                if self.protocol == 0:
                    return head + self.remember() + b"".join(item + b"a" for item in items)
                return head + self.remember() + b"(" + b"".join(items) + b"e"
            case dict():
                pairs = [self.write(key) + self.write(item) for key, item in value.items()]
                if self.protocol == 0:
                    return b"(d" + self.remember() + b"".join(pair + b"s" for pair in pairs)
                return b"}" + self.remember() + b"(" + b"".join(pairs) + b"u"
            case np.ndarray():
                return self.array(value)
        raise TypeError(type(value))

    def integer(self, value: int) -> bytes:
        if self.protocol == 0:
            return b"I%d\n" % value
        if 0 <= value < 256:
            return b"K" + bytes([value])
        return b"J" + struct.pack("<i", value)

    def string(self, value: bytes) -> bytes:
        if self.protocol == 0:
            return b"S" + repr(value)[1:].encode() + b"\n"
        if len(value) < 256:
            return b"U" + bytes([len(value)]) + value
        return b"T" + struct.pack("<I", len(value)) + value

    def array(self, value: np.ndarray) -> bytes:
        fortran = not value.flags.c_contiguous
        head = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n"
        dtype = b"cnumpy\ndtype\n" + self.write((b"u1", 0, 1)) + b"R" + self.remember()
        dtype += self.write((3, b"|", None, None, None, -1, -1, 0)) + b"b"
        state = b"(" + self.write(1) + self.write(value.shape) + dtype + self.write(fortran)
        state += self.write(value.tobytes(order="F" if fortran else "C")) + b"t"
        return head + self.write((0,)) + self.write(b"b") + b"tR" + self.remember() + state + b"b"


def written(folder: Path, content: bytes) -> Path:
    path = folder / "data_batch_1"
    path.write_bytes(content)
    return path


def same_batch(batch: dict[str, Any]) -> bool:
    names = [bytes(name) for name in batch["filenames"]]
    return (
        set(batch) == {"batch_label", "labels", "data", "filenames"}
        and batch["labels"] == BATCH[b"labels"]
        and names == BATCH[b"filenames"]
        and batch["data"].dtype == np.uint8
        and np.array_equal(batch["data"], PIXELS)
    )


# -- honest files


@pytest.mark.parametrize("protocol", [0, 2])
def test_batches_of_python_2_load(tmp_path: Path, protocol: int) -> None:
    content = Python2Pickler(protocol).dumps(BATCH)
    assert same_batch(load_batch(written(tmp_path, content)))


@pytest.mark.parametrize("protocol", [0, 2])
def test_the_files_written_here_are_what_the_standard_unpickler_reads(protocol: int) -> None:
    # A pickler of our own proves nothing unless somebody else understands it the same way.
    content = Python2Pickler(protocol).dumps({**BATCH, b"data": None})
    assert pickle.loads(content, encoding="bytes") == {**BATCH, b"data": None}
    array = Python2Pickler(protocol).dumps(PIXELS).replace(b"numpy.core", b"numpy._core")
    assert np.array_equal(pickle.loads(array, encoding="bytes"), PIXELS)


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_batches_of_python_3_in_old_protocols_load(tmp_path: Path, protocol: int) -> None:
    assert same_batch(load_batch(written(tmp_path, pickle.dumps(BATCH, protocol))))
    text_keys = {key.decode(): value for key, value in BATCH.items()}
    assert same_batch(load_batch(written(tmp_path, pickle.dumps(text_keys, protocol))))


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_plain_values_equal_what_the_standard_unpickler_reads(
    tmp_path: Path, protocol: int
) -> None:
    values: dict[str, Any] = {
        "numbers": [0, 255, 256, 65_536, -1, 2**40, -(2**40)],
        "others": (True, False, None),
        "empty": ((), [], {}),
        "text": ("é\n\\", "one"),
        "lengths": ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    }
    content = pickle.dumps(values, protocol)
    assert load_batch(written(tmp_path, content)) == pickle.loads(content) == values


@pytest.mark.parametrize("protocol", [0, 2])
def test_an_array_in_fortran_order_keeps_its_samples(tmp_path: Path, protocol: int) -> None:
    content = Python2Pickler(protocol).dumps({b"data": np.asfortranarray(PIXELS)})
    assert np.array_equal(load_batch(written(tmp_path, content))["data"], PIXELS)


def test_pixels_of_python_2_are_a_view_of_the_file_and_cannot_be_written(tmp_path: Path) -> None:
    data = load_batch(written(tmp_path, Python2Pickler(2).dumps(BATCH)))["data"]
    assert not data.flags.owndata
    assert not data.flags.writeable


# -- crafted files


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def shell(canary: Path) -> str:
    return f"touch {canary}"


def code(canary: Path) -> str:
    return f"open({str(canary)!r}, 'w').close()"


def quoted(text: str) -> bytes:
    return b"V" + text.encode() + b"\n"


def stolen_getattr(canary: Path) -> bytes:
    """getattr(numpy.ndarray, ...) and so on: attribute by attribute from an admitted name."""
    inner = b"cbuiltins\ngetattr\n(cnumpy\nndarray\n" + quoted("__class__") + b"tR"
    return inner + b"(" + quoted(code(canary)) + b"tR."


def dotted(canary: Path) -> bytes:
    """A name that reaches os.system through an admitted module, as protocol 4 allows."""
    name, command = b"testing._private.utils.os.system", shell(canary).encode()
    parts = b"".join(b"\x8c" + bytes([len(part)]) + part for part in (b"numpy", name))
    return b"\x80\x04" + parts + b"\x93\x8c" + bytes([len(command)]) + command + b"\x85R."


def newobj_ex(canary: Path) -> bytes:
    return b"\x80\x04csubprocess\nPopen\n(" + quoted(shell(canary)) + b"t}\x92."


def numpy_load(canary: Path) -> bytes:
    """numpy.load with allow_pickle of a file that makes the canary."""
    bait = canary.with_name("bait.npy")
    np.save(bait, np.array([Call(os.system, shell(canary))], dtype=object), allow_pickle=True)
    return b"cnumpy\nload\n(" + quoted(str(bait)) + b"NI01\ntR."


def as_label(canary: Path) -> bytes:
    """An honest batch but for one label."""
    return pickle.dumps({**BATCH, b"labels": [1, Call(os.system, shell(canary))]}, 2)


WORKING: dict[str, Callable[[Path], bytes]] = {
    "os.system, protocol 0": lambda c: pickle.dumps(Call(os.system, shell(c)), 0),
    "os.system, protocol 2": lambda c: pickle.dumps(Call(os.system, shell(c)), 2),
    "os.system, protocol 4": lambda c: pickle.dumps(Call(os.system, shell(c)), 4),
    "os.system inside a batch": as_label,
    "eval": lambda c: pickle.dumps(Call(eval, code(c)), 2),
    "exec": lambda c: pickle.dumps(Call(exec, code(c)), 2),
    "INST": lambda c: b"(" + quoted(shell(c)) + b"ios\nsystem\n.",
    "OBJ": lambda c: b"(cos\nsystem\n" + quoted(shell(c)) + b"o.",
    "STACK_GLOBAL, dotted": dotted,
    "object array": lambda c: pickle.dumps(np.array([Call(os.system, shell(c))], dtype=object), 2),
    "numpy.load": numpy_load,
    "BUILD after a call": lambda c: pickle.dumps([Call(os.system, shell(c))], 2)[:-1] + b"}b.",
}
"""attacks that run under the standard unpickler"""

BLANK = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
UINT8 = b"cnumpy\ndtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntb"
OTHERS: dict[str, Callable[[Path], bytes]] = {
    "getattr chain": stolen_getattr,
    "NEWOBJ": lambda c: b"\x80\x02csubprocess\nPopen\n(" + quoted(shell(c)) + b"t\x81.",
    "NEWOBJ of an admitted name": lambda c: b"\x80\x02cnumpy\nndarray\n(I4\nt\x81.",
    "NEWOBJ_EX": newobj_ex,
    "persistent id": lambda c: b"Pcanary\n.",
    "binary persistent id": lambda c: b"\x80\x02K\x01Q.",
    "extension registry": lambda c: b"\x80\x02\x82\x01.",
    "out-of-band buffer": lambda c: b"\x80\x05\x97.",
    "submodule": lambda c: b"cnumpy.f2py\nrun_main\n(" + quoted(shell(c)) + b"tR.",
    "a name with a dot": lambda c: b"cnumpy\nndarray.tofile\n.",
    "a name never imported": lambda c: b"ccanary_module\nattack\n.",
    "BUILD on a class": lambda c: b"cnumpy\nndarray\n}S'x'\nI1\nsb.",
    "BUILD on a function": lambda c: b"c_codecs\nencode\n}S'__code__'\nI1\nsb.",
    "BUILD on a dict": lambda c: b"}}S'x'\nI1\nsb.",
    "another array type": lambda c: BLANK.replace(b"ndarray", b"matrix") + b".",
    "ndarray called": lambda c: b"cnumpy\nndarray\n((I99999999999\nttR.",
    "dtype of objects": lambda c: b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.",
    "dtype with fields": lambda c: UINT8.replace(b"NNN", b"N(S'a'\nt}") + b".",
    "encode by another codec": lambda c: b"c_codecs\nencode\n(Vabc\nVzlib\ntR.",
    "state for an array of objects": lambda c: BLANK + b"(I1\n(I1\ntS'O8'\nI00\n]tb.",
    "array larger than its bytes": lambda c: BLANK + b"(I1\n(I9\nt" + UINT8 + b"I00\nS'abc'\ntb.",
    "array of absurd size": lambda c: (
        BLANK + b"(I1\n(I99999999999\nI99999999999\nt" + UINT8 + b"I00\nS'abc'\ntb."
    ),
    "array of negative size": lambda c: BLANK + b"(I1\n(I-1\nI-3\nt" + UINT8 + b"I00\nS'abc'\ntb.",
    "array of too many axes": lambda c: (
        BLANK + b"(I1\n(" + b"I1\n" * 5 + b"t" + UINT8 + b"I00\nS'a'\ntb."
    ),
    "array without bytes": lambda c: BLANK + b"(I1\n(I3\nt" + UINT8 + b"I00\n]tb.",
    "huge string": lambda c: b"\x80\x02T\xff\xff\xff\xffabc.",
    "huge text": lambda c: b"\x80\x02X\xff\xff\xff\xffabc.",
    "huge bytes": lambda c: b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7fabc.",
    "huge frame": lambda c: b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f}.",
    "huge number": lambda c: b"I" + b"9" * 5_000 + b"\n.",
    "memo never filled": lambda c: b"\x80\x02}j\xff\xff\xff\x7f.",
    "empty stack": lambda c: b".",
    "no mark": lambda c: b"t.",
    "tuple of nothing": lambda c: b"\x80\x02\x87.",
    "odd items": lambda c: b"}(Va\nu.",
    "append to a dict": lambda c: b"}I1\na.",
    "item of a list": lambda c: b"]Va\nI1\ns.",
    "unknown escape": lambda c: rb"S'\q'" + b"\n.",
    "unquoted string": lambda c: b"Sabc\n.",
    "line without end": lambda c: b"S'abc",
    "no dict": lambda c: b"].",
    "protocol 5": lambda c: pickle.dumps(BATCH, 5),
    "nothing": lambda c: b"",
    "no pickle": lambda c: b"GIF89a",
}


@pytest.mark.parametrize("attack", WORKING)
def test_the_attacks_are_real(tmp_path: Path, attack: str) -> None:
    canary = tmp_path / "canary"
    content = WORKING[attack](canary)
    with contextlib.suppress(AttributeError):  # what BUILD ends with, after the call
        pickle.loads(content)
    assert canary.exists()


@pytest.mark.parametrize("attack", WORKING | OTHERS)
def test_a_crafted_file_is_refused_in_one_line_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    canary = tmp_path / "canary"
    (tmp_path / "canary_module.py").write_text(code(canary))
    monkeypatch.syspath_prepend(tmp_path)
    path = written(tmp_path, (WORKING | OTHERS)[attack](canary))
    with pytest.raises(UserError) as caught:
        load_batch(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert not canary.exists()


def test_what_was_refused_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, WORKING["os.system, protocol 2"](tmp_path / "canary"))
    with pytest.raises(UserError, match=r"the name '\w+ system' is not admitted.*byte \d+"):
        load_batch(path)
    with pytest.raises(UserError, match="it is empty"):
        load_batch(written(tmp_path, b""))
    with pytest.raises(UserError, match="cannot be read"):
        load_batch(tmp_path)


# -- files that would only be expensive


def test_a_huge_memo_index_costs_nothing(tmp_path: Path) -> None:
    # The standard unpickler makes room for every index below.
    assert load_batch(written(tmp_path, b"\x80\x02}r\xff\xff\xff\xff.")) == {}


def test_a_key_whose_hash_takes_for_ever_is_refused_at_once(tmp_path: Path) -> None:
    doubling = b"".join(b"q\x00h\x00\x86" for _ in range(200))
    started = time.perf_counter()
    with pytest.raises(UserError, match="a key that is no text"):
        load_batch(written(tmp_path, b"\x80\x02})" + doubling + b"Ns."))
    assert time.perf_counter() - started < 1


def test_one_text_cannot_be_encoded_until_memory_is_full(tmp_path: Path) -> None:
    text = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000 + b"q\x00"
    again = b"h\x01h\x00h\x02\x86R"
    content = b"\x80\x02]c_codecs\nencode\nq\x01X\x06\x00\x00\x00latin1q\x02" + text + again * 1000
    with pytest.raises(UserError, match="more bytes than the file is long"):
        load_batch(written(tmp_path, content + b"."))


def test_the_number_of_steps_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftwise.datasets.readers.cifar_pickle._MAX_OPCODES", 1000)
    with pytest.raises(UserError, match="more than 1000 opcodes"):
        load_batch(written(tmp_path, b"]" * 2000))


# -- any bytes at all


def outcome(path: Path) -> str:
    try:
        return f"a batch with {len(load_batch(path))} entries"
    except UserError as error:
        return str(error)


OPCODES = b"N\x88\x89IKMJL\x8aSUTVX()\x85\x86\x87t]lae}dsupqrghjcRb."


@settings(max_examples=200, deadline=None)
@given(
    program=st.lists(
        st.one_of(
            st.sampled_from([bytes([opcode]) for opcode in OPCODES]),
            st.sampled_from([BLANK, UINT8, b"S'a'\n", b"I1\n", b"K\x01", b"q\x00", b"h\x00"]),
            st.binary(max_size=4),
        ),
        max_size=25,
    )
)
def test_no_program_leads_to_anything_but_a_user_error(
    tmp_path_factory: pytest.TempPathFactory, program: list[bytes]
) -> None:
    path = written(tmp_path_factory.mktemp("fuzz"), b"\x80\x02" + b"".join(program) + b".")
    assert outcome(path).startswith(("a batch", f"{path}: not a CIFAR pickle"))


@settings(max_examples=100, deadline=None)
@given(protocol=st.sampled_from([0, 2]), at=st.integers(0), noise=st.binary(max_size=3))
def test_no_damage_to_a_batch_leads_to_anything_but_a_user_error(
    tmp_path_factory: pytest.TempPathFactory, protocol: int, at: int, noise: bytes
) -> None:
    content = bytearray(Python2Pickler(protocol).dumps(BATCH))
    at %= len(content)
    content[at : at + len(noise)] = noise
    folder = tmp_path_factory.mktemp("fuzz")
    for damaged in (bytes(content), bytes(content[:at])):
        path = written(folder, damaged)
        assert outcome(path).startswith(("a batch", f"{path}: "))
