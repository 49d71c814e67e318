from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from driftwise.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Base:
    """What two configs share."""

    seed: int = 0
    """what all randomness is drawn from"""
    lr: float = 0.1
    """step size of
    gradient descent"""


@dataclass(frozen=True, kw_only=True)
class Config(Base):
    """One field of every kind."""

    buffer_size: int
    """samples the memory holds, 100 % of them in use"""
    limit: int | None = None
    """at most so many; none: all"""
    method: str = "er"
    """how the learner rehearses"""
    sequential: bool = False
    """every task drifts the one before"""
    scope: Literal["all-seen", "since-last-event"] = "all-seen"
    """which classes drift"""
    severity: Literal[1, 2, 3] | None = None
    """how strongly"""
    hidden: tuple[int, ...] = (100, 50)
    """sizes of the layers"""
    names: tuple[str, ...] = field(default_factory=tuple)
    """what to call them"""
    tasks: tuple[tuple[int, ...], ...] | None = None
    """classes of each task"""
    cuts: tuple[tuple[float, ...], ...] = ((0.5,), (1.0, 2.0))
    """where to cut"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """settings of parts"""
    undocumented: int = 3


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a part."""

    alpha: float = 0.1
    """weight of the old logits"""
    reg_weight: float = 0.2
    """weight of the penalty"""
    nesterov: bool = False
    """look ahead"""
    sizes: tuple[int, ...] = ()
    """how many"""


def complaint(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)
