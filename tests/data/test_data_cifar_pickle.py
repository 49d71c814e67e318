"""CIFAR pickles: honest batches load, and no crafted file runs anything or fills the memory."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
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


def python2(value: object) -> bytes:
    """What Python 2 wrote in protocol 2, with string opcodes that no Python 3 can write."""
    match value:
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            return b"J" + struct.pack("<i", value)
        case bytes() if len(value) < 256:
            return b"U" + bytes([len(value)]) + value
        case bytes():
            return b"T" + struct.pack("<I", len(value)) + value
        case tuple():
            return b"(" + b"".join(map(python2, value)) + b"t"
        case list():
            return b"](" + b"".join(map(python2, value)) + b"e"
        case dict():
            return b"}(" + b"".join(python2(each) for pair in value.items() for each in pair) + b"u"
        case np.ndarray():
            fortran = not value.flags.c_contiguous
            dtype = b"cnumpy\ndtype\n" + python2((b"u1", 0, 1)) + b"Rq\x01"
            dtype += python2((3, b"|", None, None, None, -1, -1, 0)) + b"b"
            state = python2(1) + python2(value.shape) + dtype + python2(fortran)
            state += python2(value.tobytes(order="F" if fortran else "C"))
            head = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n"
            return head + python2((0,)) + python2(b"b") + b"tR(" + state + b"tb"
    raise TypeError(type(value))


def dumped(value: object) -> bytes:
    return b"\x80\x02" + python2(value) + b"."


def written(folder: Path, content: bytes) -> Path:
    path = folder / "data_batch_1"
    path.write_bytes(content)
    return path


def assert_same(batch: dict[str, Any]) -> None:
    assert batch["labels"] == BATCH[b"labels"]
    assert [name.encode("latin-1") for name in batch["filenames"]] == BATCH[b"filenames"]
    assert batch["batch_label"] == "training batch 1 of 5"
    assert batch["data"].dtype == np.uint8
    assert np.array_equal(batch["data"], PIXELS)
    assert not batch["data"].flags.writeable


# -- honest files


def test_batches_of_python_2_load_as_the_standard_unpickler_reads_them(tmp_path: Path) -> None:
    # A pickler of our own proves nothing unless somebody else understands it the same way.
    plain = {**BATCH, b"data": None}
    assert pickle.loads(dumped(plain), encoding="bytes") == plain
    renamed = dumped(PIXELS).replace(b"numpy.core", b"numpy._core")
    assert np.array_equal(pickle.loads(renamed, encoding="bytes"), PIXELS)
    assert_same(load_batch(written(tmp_path, dumped(BATCH))))
    assert_same(
        load_batch(written(tmp_path, dumped({**BATCH, b"data": np.asfortranarray(PIXELS)})))
    )


def test_names_that_python_2_wrote_in_protocol_0_load(tmp_path: Path) -> None:
    content = (
        b"(dp1\nS'num_vis'\np2\nI3072\nsS'label_names'\np3\n(lp4\nS'cat'\np5\naS'dog'\naI01\nas."
    )
    expected = {"num_vis": 3072, "label_names": ["cat", "dog", True]}
    assert load_batch(written(tmp_path, content)) == pickle.loads(content) == expected


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_batches_and_plain_values_of_python_3_in_old_protocols_load(
    tmp_path: Path, protocol: int
) -> None:
    assert_same(load_batch(written(tmp_path, pickle.dumps(BATCH, protocol))))
    values: dict[str, Any] = {
        "numbers": [0, 255, 256, 65_536, -1, 2**40, -(2**40)],
        "others": (True, False, None),
        "empty": ((), [], {}),
        "text": ("é\n\\", "one"),
        "lengths": ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    }
    content = pickle.dumps(values, protocol)
    assert load_batch(written(tmp_path, content)) == pickle.loads(content) == values


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


def dotted(canary: Path) -> bytes:
    """A name that reaches os.system through an admitted module, as protocol 4 allows."""
    name, command = b"testing._private.utils.os.system", shell(canary).encode()
    parts = b"".join(b"\x8c" + bytes([len(part)]) + part for part in (b"numpy", name))
    return b"\x80\x04" + parts + b"\x93\x8c" + bytes([len(command)]) + command + b"\x85R."


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
MANY = BLANK + b"(I1\n(I1024\nt" + UINT8 + b"I00\nh\x00tb"


def array(shape: bytes, content: bytes) -> bytes:
    return BLANK + b"(I1\n(" + shape + b"t" + UINT8 + b"I00\n" + content + b"tb."


OTHERS: dict[str, tuple[bytes, str]] = {
    "getattr": (
        b"cbuiltins\ngetattr\n(cnumpy\nndarray\nV__class__\ntR.",
        "'builtins getattr' is not",
    ),
    "NEWOBJ of an admitted name": (b"\x80\x02cnumpy\nndarray\n(I4\nt\x81.", "opcode NEWOBJ is not"),
    "persistent id": (b"Pcanary\n.", "opcode PERSID is not"),
    "extension registry": (b"\x80\x02\x82\x01.", "opcode EXT1 is not"),
    "out-of-band buffer": (b"\x80\x05\x97.", "pickle protocol 5, expected 0 to 2"),
    "a name with a dot": (b"cnumpy\nndarray.tofile\n.", "'numpy ndarray.tofile' is not"),
    "a name never imported": (b"ccanary_module\nattack\n.", "'canary_module attack' is not"),
    "BUILD on a class": (b"cnumpy\nndarray\n}S'x'\nI1\nsb.", "a state that is not admitted"),
    "BUILD on a dict": (b"}}S'x'\nI1\nsb.", "a state that is not admitted"),
    "another array type": (BLANK.replace(b"ndarray", b"matrix") + b".", "'numpy matrix' is not"),
    "ndarray called": (b"cnumpy\nndarray\n((I99999999999\nttR.", "a call that is not admitted"),
    "dtype of objects": (b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.", "a call that is not admitted"),
    "dtype with fields": (UINT8.replace(b"NNN", b"N(S'a'\nt}") + b".", "a state that is not"),
    "another codec": (b"c_codecs\nencode\n(Vabc\nVzlib\ntR.", "a call that is not admitted"),
    "too large": (array(b"I9\n", b"S'abc'\n"), "an array of 3 bytes that claims another size"),
    "absurd": (array(b"I99999999999\nI99999999999\n", b"S'abc'\n"), "claims another size"),
    "negative": (array(b"I-1\nI-3\n", b"S'abc'\n"), "an array of impossible shape"),
    "many axes": (array(b"I1\n" * 5, b"S'a'\n"), "an array of impossible shape"),
    "without bytes": (array(b"I3\n", b"]"), "a state that is not admitted"),
    "no bytes": (array(b"I1\n", b"V\\u20ac\n"), "malformed or cut off"),
    "huge string": (b"\x80\x02T\xff\xff\xff\x7fabc.", "malformed or cut off"),
    "huge text": (b"\x80\x02X\xff\xff\xff\xffabc.", "malformed or cut off"),
    "huge bytes": (b"\x80\x02\x8e" + b"\xff" * 7 + b"\x7fabc.", "malformed or cut off"),
    "huge number": (b"I" + b"9" * 5_000 + b"\n.", "malformed or cut off"),
    "memo never filled": (b"\x80\x02}j\xff\xff\xff\x7f.", "malformed or cut off"),
    "empty stack": (b".", "malformed or cut off"),
    "no mark": (b"t.", "malformed or cut off"),
    "tuple of nothing": (b"\x80\x02\x87.", "a tuple of more values than there are"),
    "odd items": (b"}(Va\nu.", "malformed or cut off"),
    "append to a dict": (b"}I1\na.", "appends to something that is no list"),
    "item of a list": (b"]Va\nI1\ns.", "sets an item of something that is no dict"),
    "no text as key": (b"}I1\nI1\ns.", "a key that is no text"),
    "unquoted string": (b"Sabc\n.", "malformed or cut off"),
    "line without end": (b"S'abc", "malformed or cut off"),
    "no dict": (b"].", "holds list, expected a dict"),
    "nothing": (b"", "it is empty"),
    "no pickle": (b"GIF89a", "not a CIFAR pickle"),
    # one text, made into an array again and again
    "multiplied": (
        b"\x80\x02]X\x00\x04\x00\x00" + b"a" * 1024 + b"q\x00" + MANY * 50 + b".",
        "more bytes than the file is long",
    ),
    # a key whose hash would take for ever
    "doubled key": (
        b"\x80\x02})" + b"q\x00h\x00\x86" * 200 + b"Ns.",
        "a key that is no text",
    ),
}


@pytest.mark.parametrize("attack", WORKING)
def test_the_attacks_are_real(tmp_path: Path, attack: str) -> None:
    canary = tmp_path / "canary"
    content = WORKING[attack](canary)
    with contextlib.suppress(AttributeError):  # what BUILD ends with, after the call
        pickle.loads(content)
    assert canary.exists()


@pytest.mark.parametrize("attack", [*WORKING, *OTHERS])
def test_a_crafted_file_is_refused_in_one_line_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    canary = tmp_path / "canary"
    (tmp_path / "canary_module.py").write_text(code(canary))
    monkeypatch.syspath_prepend(tmp_path)
    content, message = (
        OTHERS[attack] if attack in OTHERS else (WORKING[attack](canary), "admitted|expected")
    )
    path = written(tmp_path, content)
    with pytest.raises(UserError, match=message) as caught:
        load_batch(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert not canary.exists()


def test_a_folder_is_refused_and_a_huge_memo_index_costs_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_batch(tmp_path)
    # The standard unpickler reserves memory for every index below.
    assert load_batch(written(tmp_path, b"\x80\x02}r\xff\xff\xff\xff.")) == {}


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
@given(at=st.integers(0), noise=st.binary(max_size=3))
def test_no_damage_to_a_batch_leads_to_anything_but_a_user_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, noise: bytes
) -> None:
    content = bytearray(dumped(BATCH))
    at %= len(content)
    content[at : at + len(noise)] = noise
    folder = tmp_path_factory.mktemp("fuzz")
    for damaged in (bytes(content), bytes(content[:at])):
        path = written(folder, damaged)
        assert outcome(path).startswith(("a batch", f"{path}: "))
