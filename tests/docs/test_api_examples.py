"""Public names but protocols have an example that runs: in their docstring, or in that of a method."""

from __future__ import annotations

import inspect
from typing import Any

import driftwise


def public() -> dict[str, Any]:
    """Classes and functions of the package and of its public modules, by dotted name."""
    found: dict[str, Any] = {}
    for name in driftwise.__all__:
        value = getattr(driftwise, name)
        found[name] = value
        if inspect.ismodule(value):
            found |= {
                f"{name}.{each}": getattr(value, each) for each in getattr(value, "__all__", ())
            }
    return {
        name: value
        for name, value in found.items()
        if inspect.isclass(value) or inspect.isfunction(value)
    }


def has_example(value: Any) -> bool:
    members = vars(value).values() if inspect.isclass(value) else ()
    return any(">>>" in (each.__doc__ or "") for each in (value, *members))


def test_every_public_name_has_an_example() -> None:
    names = public()
    lacking = {
        name
        for name, value in names.items()
        if not has_example(value) and not getattr(value, "_is_protocol", False)
    }
    lacking = {name for name in lacking if not name.startswith("plot.")}  # run in docs/gallery.md
    assert lacking == set()
