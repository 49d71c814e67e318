"""A device that is none: it computes on the CPU, and keeps apart what a GPU keeps apart.

Tensors on it have values, unlike those on the meta device. An operation on them and on tensors of the
host is refused, copies to the host are counted, and torch takes the device for its accelerator. The last
holds for the whole process: tests use it in processes of their own.
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


class OnDevice(Tensor):
    """A tensor on the fake device; `held`: its values, on the CPU."""

    held: Tensor
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
    asked = kwargs.get("device")
    if asked is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    name = str(func)
    if name.startswith("c10d."):
        assert all(here), f"{name} with tensors of the host"
        return func(*tree_map(_values, args), **tree_map(_values, kwargs))
    if name in ("aten._to_copy.default", "aten.copy_.default"):
        there = here[0] if asked is None else torch.device(asked).type == NAME
        source = here[-1]
        if source and not there:
            copies_to_host.append(name)
    elif not tensors:
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
    return tree_map(lambda each: OnDevice(each) if there and type(each) is Tensor else each, result)


def _values(each: Any) -> Any:
    return each.held if isinstance(each, OnDevice) else each


def _kernel(func: Any, *args: Any, **kwargs: Any) -> Any:
    return compute(func, args, kwargs)


def install() -> torch.device:
    """Make it the accelerator of this process."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    library = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    library.fallback(_kernel, "PrivateUse1")  # type: ignore[no-untyped-call]
    _kept.append(library)
    return torch.device(NAME, 0)


_kept: list[Any] = []
"""a library that is forgotten takes its kernels along"""
