"""A task under way as plain state, for a checkpoint in its middle."""

from __future__ import annotations

import dataclasses
from typing import Any

from driftwise.config.fields import fields_of, read
from driftwise.types import AdaptationResult, Samples, TaskState, Verdict


def to_state(task_state: TaskState) -> dict[str, Any]:
    """Plain values and tensors, nothing copied."""
    return {
        "task": task_state.task,
        "epoch": task_state.epoch,
        "steps": task_state.steps,
        "verdicts": [_fields(verdict) for verdict in task_state.verdicts],
        "repair": {
            **_fields(task_state.result),
            "extra": _samples_to_state(task_state.result.extra),
            "refilled": _samples_to_state(task_state.result.refilled),
        },
    }


def from_state(state: dict[str, Any]) -> TaskState:
    """What `to_state` took apart."""
    kept = dict(state["repair"])
    extra, refilled = (_samples_from_state(kept.pop(name)) for name in ("extra", "refilled"))
    result = AdaptationResult(**kept)
    plain = {"from_scratch": bool, "renewed": int, "notes": str}
    for name, kind in plain.items():
        value = getattr(result, name)
        values = value if isinstance(value, tuple) else (value,)
        if not all(type(each) is kind for each in values):
            raise ValueError(f"expected {name} of a repair, got {value!r}")
    for name in ("task", "epoch", "steps"):
        if type(state[name]) is not int or state[name] < 0:
            raise ValueError(f"expected the {name} that a run has come to, got {state[name]!r}")
    return TaskState(
        task=state["task"],
        epoch=state["epoch"],
        steps=state["steps"],
        verdicts=tuple(map(verdict_from, state["verdicts"])),
        result=dataclasses.replace(result, extra=extra, refilled=refilled),
    )


def verdict_from(state: dict[str, Any]) -> Verdict:
    """A verdict out of a saved state, every field of its type."""
    verdict = Verdict(**state)
    for name, field in fields_of(Verdict).items():
        read(field, getattr(verdict, name), name=name, is_text=False)
    for name, value in (verdict.p_values or {}).items():
        if type(name) is not str or type(value) not in (int, float):
            raise ValueError(f"expected p-values by test, got {name!r}: {value!r}")
    return verdict


def _fields(value: Verdict | AdaptationResult) -> dict[str, Any]:
    """By name, one level deep."""
    plain = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {
        name: dict(each) if name == "p_values" and each is not None else each
        for name, each in plain.items()
    }


def _samples_to_state(samples: Samples | None) -> dict[str, Any] | None:
    return None if samples is None else _tensors(samples)


def _samples_from_state(state: dict[str, Any] | None) -> Samples | None:
    return None if state is None else Samples.restored(state)


def _tensors(samples: Samples) -> dict[str, Any]:
    return {field.name: getattr(samples, field.name) for field in dataclasses.fields(samples)}
