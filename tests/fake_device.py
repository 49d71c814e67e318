"""A device that is none: it computes on the CPU, and keeps apart what a GPU keeps apart.

Tensors on it have values, unlike those on the meta device. An operation on them and on tensors of the
host is refused, copies to the host are counted, and torch takes the device for its accelerator. So is an
operation on a tensor that another stream has made, if the present one has not waited for it or the tensor
was not said to be used there. All this holds for the whole process: tests use it in processes of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._pytree import tree_iter, tree_map

NAME = "fake"
copies_to_host: list[str] = []
"""operations that made the host wait for values"""


class Stream:
    """Operations of the device, one after the other; those of two streams in any order."""

    current: Stream

    def __init__(self, device: Any = None) -> None:
        del device
        self.done = 0
        self.waited: dict[Stream, int] = {}

    def __deepcopy__(self, memo: object) -> Stream:
        return self

    def record_event(self) -> Event:
        return Event(self, self.done)

    def wait_event(self, event: Event) -> None:
        self.waited[event.stream] = max(event.done, self.waited.get(event.stream, 0))

    @classmethod
    def take(cls, stream: Stream) -> None:
        cls.current = stream

    def use(self, tensor: OnDevice) -> None:
        """AssertionError where its values need not be there yet, or its memory may be used again."""
        if tensor.stream is not self:
            assert self.waited.get(tensor.stream, 0) >= tensor.made, "made by another stream"
            assert self in tensor.used_by, "whose memory the other stream may use again"


class Event:
    """A point that a stream has reached."""

    def __init__(self, stream: Stream, done: int) -> None:
        self.stream, self.done = stream, done

    def synchronize(self) -> None:
        """The host waits: counted as the copy that it waits for."""


class OnDevice(Tensor):
    """A tensor on the fake device; `held`: its values, on the CPU."""

    held: Tensor
    stream: Stream
    made: int
    """as which of the stream's operations"""
    used_by: set[Stream]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, values: Tensor) -> OnDevice:
        made: OnDevice = Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            dtype=values.dtype,
            device=torch.device(NAME, 0),
        )
        made.held = values
        made.stream = stream = Stream.current
        made.made = stream.done = stream.done + 1
        made.used_by = set()
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Any operation of torch, on the CPU; its result lies where a real device would leave it."""
    tensors = [each for each in tree_iter((args, kwargs)) if isinstance(each, Tensor)]
    here = [isinstance(each, OnDevice) for each in tensors]
    name, asked = str(func), kwargs.get("device")
    for tensor in tensors:
        if isinstance(tensor, OnDevice):
            Stream.current.use(tensor)
    is_pinned = kwargs.get("pin_memory")
    kwargs = {**kwargs, "pin_memory": False} if is_pinned else kwargs
    if asked is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if name.startswith("c10d."):
        assert all(here), f"{name} with tensors of the host"
        return func(*tree_map(_values, args), **tree_map(_values, kwargs))
    if name in ("aten._to_copy.default", "aten.copy_.default"):
        there = here[0] if asked is None else torch.device(asked).type == NAME
        source = here[-1]
        beside = kwargs.get("non_blocking") or (name == "aten.copy_.default" and any(args[2:]))
        if beside and source != there:
            on_host = tensors[0 if source else -1]
            assert getattr(on_host, "pinned", False), "from pageable memory, such a copy waits"
        if source and not there:
            copies_to_host.append(name)
    elif asked is not None or not tensors:
        there = asked is not None and torch.device(asked).type == NAME
    else:
        there = any(here)
        # A number of the host may take part, as an argument of the kernel.
        strangers = [each for each, on in zip(tensors, here, strict=True) if not on and each.ndim]
        if name == "aten.index.Tensor" and here[0]:
            strangers = []  # whose indices may be on the host
        assert not (there and strangers), f"{name} on tensors of the device and of the host"
        if there and name == "aten._local_scalar_dense.default":
            copies_to_host.append(name)
    result = func(*tree_map(_values, args), **tree_map(_values, kwargs))
    if is_pinned:
        result.pinned = True
    return tree_map(lambda each: OnDevice(each) if there and type(each) is Tensor else each, result)


def _values(each: Any) -> Any:
    return each.held if isinstance(each, OnDevice) else each


def _pinned(values: Tensor) -> Tensor:
    copied = values.clone()
    copied.pinned = True  # type: ignore[attr-defined]
    return copied


def _used_by(values: OnDevice, stream: Stream) -> None:
    values.used_by.add(stream)


def _kernel(func: Any, *args: Any, **kwargs: Any) -> Any:
    return compute(func, args, kwargs)


def install() -> torch.device:
    """Make it the accelerator of this process."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    library = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    library.fallback(_kernel, "PrivateUse1")  # type: ignore[no-untyped-call]
    _kept.append(library)
    Stream.take(Stream())
    Tensor.pin_memory = _pinned  # type: ignore[method-assign,assignment]
    OnDevice.record_stream = _used_by  # type: ignore[method-assign,assignment]
    torch.Stream = Stream  # type: ignore[misc,assignment]
    torch.accelerator.current_stream = lambda _=None: Stream.current  # type: ignore[assignment,return-value]
    torch.accelerator.set_stream = Stream.take  # type: ignore[assignment]
    return torch.device(NAME, 0)


_kept: list[Any] = []
"""a library that is forgotten takes its kernels along"""
