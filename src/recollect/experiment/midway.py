"""A task under way as plain state, for a checkpoint in its middle."""

from __future__ import annotations

import dataclasses
from typing import Any

from recollect.types import Midway, Repair, Rows, Verdict


def to_state(midway: Midway) -> dict[str, Any]:
    """Plain values and tensors, nothing copied."""
    return {
        "task": midway.task,
        "epoch": midway.epoch,
        "steps": midway.steps,
        "verdicts": [_fields(verdict) for verdict in midway.verdicts],
        "repair": {
            **_fields(midway.repair),
            "extra": _rows_to_state(midway.repair.extra),
            "refilled": _rows_to_state(midway.repair.refilled),
        },
    }


def from_state(state: dict[str, Any]) -> Midway:
    """What `to_state` took apart."""
    repair = state["repair"]
    return Midway(
        task=state["task"],
        epoch=state["epoch"],
        steps=state["steps"],
        verdicts=tuple(Verdict(**verdict) for verdict in state["verdicts"]),
        repair=Repair(
            **{
                **repair,
                "extra": _rows_from_state(repair["extra"]),
                "refilled": _rows_from_state(repair["refilled"]),
            }
        ),
    )


def _fields(value: Verdict | Repair) -> dict[str, Any]:
    """By name, one level deep."""
    plain = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {
        name: dict(each) if name == "p_values" and each is not None else each
        for name, each in plain.items()
    }


def _rows_to_state(rows: Rows | None) -> dict[str, Any] | None:
    return None if rows is None else _tensors(rows)


def _rows_from_state(state: dict[str, Any] | None) -> Rows | None:
    return None if state is None else Rows(**state)


def _tensors(rows: Rows) -> dict[str, Any]:
    return {field.name: getattr(rows, field.name) for field in dataclasses.fields(rows)}
