from __future__ import annotations

import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from driftwise import rng
from driftwise.errors import UserError
from driftwise.runs import checkpoint as state_file

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


class Point(NamedTuple):
    x: int


def bits(tensor: Tensor) -> bytes:
    """The raw bytes of a tensor: unlike ==, they tell -0.0 from 0.0 and one NaN from another."""
    dense = tensor.clone(memory_format=torch.contiguous_format)
    return bytes(dense.flatten().view(torch.uint8).tolist())


def assert_same(left: Any, right: Any) -> None:
    """Same types, same order of keys, same bits, all the way down."""
    if isinstance(left, Tensor):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert bits(left) == bits(right)
        return
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert [(type(key), key) for key in left] == [(type(key), key) for key in right]
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif isinstance(left, float):
        assert struct.pack("d", left) == struct.pack("d", right)
    else:
        assert left == right


def random_bits(count: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Any bit pattern of a dtype, NaN payloads included."""
    generator = rng.fork(seed, "bits")
    if dtype == torch.bool:
        return torch.randint(2, (count,), generator=generator).bool()
    size = count * dtype.itemsize
    return torch.randint(256, (size,), generator=generator, dtype=torch.uint8).view(dtype)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    tensor = random_bits(
        int(np.prod(shape)), draw(st.sampled_from(DTYPES)), draw(st.integers(0, 9))
    )
    tensor = tensor.reshape(shape)
    return tensor.mT if tensor.ndim >= 2 and draw(st.booleans()) else tensor


texts = st.text(st.sampled_from("ab0.[]/'\"\\\n\0é\u2028😀"), max_size=4)
finite = st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | st.integers() | finite | texts | tensors()
states = st.recursive(
    leaves,
    lambda part: (
        st.lists(part, max_size=3)
        | st.lists(part, max_size=3).map(tuple)
        | st.dictionaries(texts | st.integers(), part, max_size=3)
    ),
    max_leaves=12,
)


@given(state=states)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_any_state_survives_the_file_and_equal_states_give_equal_bytes(
    tmp_path: Path, state: object
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    state_file.write(one, state, format=1)
    back = state_file.read(one, format=1)
    assert_same(state, back)
    state_file.write(two, back, format=1)
    assert one.read_bytes() == two.read_bytes()


def test_bytes_do_not_depend_on_the_process(tmp_path: Path) -> None:
    # Known bytes, so that a dependence on hash seeds or library versions would show.
    state_file.write(tmp_path / "x", {"a": 1, 2: torch.tensor([1, 2], dtype=torch.uint8)}, format=7)
    content = (tmp_path / "x").read_bytes()
    header = content[8 : 8 + int.from_bytes(content[:8], "little")].decode().rstrip()
    assert header == (
        r'{"__metadata__":{"driftwise":"{\"format\": 7, \"sha256\": '
        r"\"11d7392ead50822b94a7e71908e0dff45161cd025c4e5828e9d34097c5df8d69\", \"tree\": "
        r"{\"dict\": [[\"a\", 1], "
        r'[2, {\"tensor\": \"state[2]\"}]]}}"},'
        r'"state[2]":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    )
    assert content.endswith(b"\x01\x02")


def test_safetensors_itself_reads_what_was_written(tmp_path: Path) -> None:
    tensors = {f"ü{i}": random_bits(5, dtype, i) for i, dtype in enumerate(DTYPES)}
    tensors["transposed"] = torch.arange(6.0).view(2, 3).T
    tensors["empty"] = torch.empty(0, 3)
    state_file.write(tmp_path / "x", tensors, format=1)
    assert_same(tensors, state_file.read(tmp_path / "x", format=1))
    found = load_file(tmp_path / "x")
    assert_same(tensors, {name: found.pop(f"state[{name!r}]") for name in tensors})
    assert found == {}


def test_strides_that_mean_nothing_do_no_harm(tmp_path: Path) -> None:
    state = [torch.arange(10)[3:4:7], torch.empty(0).as_strided((0,), (0,)), torch.ones(3, 4)[:1].T]
    state_file.write(tmp_path / "x", state, format=1)
    assert_same(state, state_file.read(tmp_path / "x", format=1))


def test_writing_copies_no_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"large": torch.arange(100), "view": torch.arange(10.0)[2:5]}
    written: list[int] = []
    bytes_of = state_file._bytes_of

    def noting(tensor: Tensor) -> memoryview:
        written.append(tensor.data_ptr())
        return bytes_of(tensor)

    monkeypatch.setattr(state_file, "_bytes_of", noting)
    state_file.write(tmp_path / "x", state, format=1)
    assert set(written) == {tensor.data_ptr() for tensor in state.values()}


def test_nothing_shares_memory_with_what_was_saved_or_with_one_another(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    state = {"all": base, "same": base, "view": base[2:4], "every_other": base[::2]}
    tensors, tree = state_file.flatten(state)
    base.zero_()
    first, second = state_file.unflatten(tensors, tree), state_file.unflatten(tensors, tree)
    state_file.write(tmp_path / "x", first, format=1)
    first["all"].fill_(-1)
    read = state_file.read(tmp_path / "x", format=1)
    read["all"].fill_(-1)
    for untouched in (second, read):
        assert untouched["same"].tolist() == [0, 1, 2, 3, 4, 5]
        assert untouched["view"].tolist() == [2, 3]
        assert untouched["every_other"].tolist() == [0, 2, 4]
    assert first["same"].tolist() == [0, 1, 2, 3, 4, 5]
    assert read["view"].untyped_storage().nbytes() == 8  # nor does a view drag its base along


def test_keys_that_look_alike_stay_apart_and_marks_of_the_tree_are_taken_literally() -> None:
    one, two, three, four = torch.arange(4)
    state = {1: one, "1": two, "a": {"b": three}, "a']['b": four, "tensor": "state"}
    state |= {"dict": {"list": [{"tuple": []}]}}
    assert_same(state, state_file.unflatten(*state_file.flatten(OrderedDict(state))))


def test_parameters_come_back_as_plain_tensors_and_keep_no_graph() -> None:
    tensors, _ = state_file.flatten({"w": nn.Parameter(torch.ones(2)) * 2})
    (tensor,) = tensors.values()
    assert type(tensor) is Tensor
    assert not tensor.requires_grad


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_cannot_say_are_refused_by_path(value: float) -> None:
    with pytest.raises(ValueError, match=rf"^state\['loss'\]\[1\] is {value}; "):
        state_file.flatten({"loss": [0.0, value]})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": [None, {1, 2}]}, "state['a'][1] is of type set; a state holds dict, list,"),
        ((object(),), "state[0] is of type object;"),
        ({"x": np.float64(1.0)}, "state['x'] is of type float64;"),
        ({"x": np.zeros(2)}, "state['x'] is of type ndarray;"),
        ({"x": b"raw"}, "state['x'] is of type bytes;"),
        ({"p": Point(1)}, "state['p'] is of type Point;"),
        ({"m": {True: 1}}, "state['m'] has the key True of type bool; expected str or int"),
        ({"m": {(1, 2): 1}}, "state['m'] has the key (1, 2) of type tuple; expected str or int"),
        ({"t": torch.zeros(2, dtype=torch.complex64)}, "state['t'] is a tensor of torch.complex64"),
        ({"t": torch.eye(2).to_sparse()}, "state['t'] is a tensor of torch.float32, torch.sparse"),
        ({"t": torch.empty(2, device="meta")}, "state['t'] is a tensor of torch.float32, torch.st"),
    ],
    ids=lambda value: "" if isinstance(value, str) else None,
)
def test_anything_else_is_refused_by_path(tmp_path: Path, state: object, message: str) -> None:
    with pytest.raises(TypeError) as refusal:
        state_file.write(tmp_path / "x", [torch.ones(2), state], format=1)
    assert str(refusal.value).startswith(message.replace("state", "state[1]", 1))
    assert list(tmp_path.iterdir()) == [], "nothing is written"


def test_a_file_cut_anywhere_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x"
    state_file.write(path, {"a": torch.arange(8), "b": "text"}, format=1)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"x is damaged"):
            state_file.read(path, format=1)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"other": "1"},
        {"driftwise": "not json"},
        {"driftwise": "[]"},
        {"driftwise": '{"format": 1}'},
        {"driftwise": '{"format": 1, "tree": {"tensor": "gone"}}'},
        {"driftwise": '{"format": 1, "tree": {"set": []}}'},
        {"driftwise": '{"format": 1, "tree": {"dict": [1]}}'},
        {"driftwise": '{"format": 1, "tree": [1]}'},
    ],
)
def test_a_safetensors_file_of_somebody_else_is_reported_as_such(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "x", metadata=metadata)
    with pytest.raises(UserError, match=r"x is damaged"):
        state_file.read(tmp_path / "x", format=1)


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cannot_be_read_is_reported_with_its_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"^cannot read .*: "):
        state_file.read(tmp_path / name, format=1)
