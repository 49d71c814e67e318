"""The typed config of a run: one thing for flags, files and Python. It does not need torch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from recollect.errors import UserError
from recollect.experiment.fields import settle

PARTS = ("method", "detector", "backbone")
"""The fields whose part has options of its own: `--detector.level 0.01`."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What can be said by a flag. None: the preset, the benchmark or the machine decides."""

    benchmark: str = "digits-cd"
    """the data and its tasks"""
    method: str = "er"
    """how the learner rehearses"""
    adaptation: str = "amr"
    """what is done about drifted classes"""
    detector: str = "ks"
    """what tells drifted classes from others"""
    encoder: str = "learner"
    """what turns pictures into the scores that a detector compares"""
    reference: Literal["auto", "memory", "held-out"] = "auto"
    """what current rows are compared with; auto: memory for an encoder that never learns, else
    rows that nobody trains on"""
    monitor: Literal["holdout", "test"] = "holdout"
    """which rows a detector watches: rows held out for it, or (as published) the scoring test"""
    buffer_size: int | None = None
    """rows the memory holds"""
    buffer_policy: str = "reservoir"
    """which rows the memory keeps"""
    num_tasks: int | None = None
    """how many equal tasks the classes are split into"""
    class_order: tuple[int, ...] | None = None
    """the order in which classes arrive"""
    tasks: tuple[tuple[int, ...], ...] | None = None
    """the classes of each task by name, as JSON: [[0,1],[2,3,4],[],[5]]"""
    num_drifts: int = 1
    """drift events, spread over the tasks as in the paper"""
    transform: str = "permutation"
    """what drift does to the pictures"""
    severity: int = 5
    """how strongly, 1 to 5"""
    scope: Literal["since-last-event", "all-seen"] = "since-last-event"
    """which classes an event drifts: those learned since the previous one (as the published numbers
    were made), or all seen so far"""
    max_classes_per_drift: int | None = None
    """at most so many classes drift at an event, the most recent ones"""
    sequential: bool = False
    """every task from the second on drifts the classes of the task before it; num_drifts is moot"""
    permutation_unit: Literal["pixel", "row"] = "pixel"
    """what a permutation moves"""
    recurring_in_training: bool = False
    """drifted classes come back, labelled, in the training data of the event's task"""
    label_budget: int | None = None
    """at most so many labels for adaptation over the whole run"""
    backbone: str | None = None
    """the network"""
    epochs: int | None = None
    """times over the rows of a task"""
    batch_size: int | None = None
    """stream rows in a step"""
    minibatch_size: int | None = None
    """memory rows in a step"""
    lr: float | None = None
    """learning rate of plain SGD"""
    momentum: float = 0.0
    """momentum of SGD"""
    weight_decay: float = 0.0
    """weight decay of SGD"""
    device: str = "auto"
    """cpu, cuda, mps, or auto: the fastest there is"""
    threads: int | None = None
    """threads torch may use; sums come out in another order, so late digits depend on it"""
    preset: str = "auto"
    """where settings that are not given come from; auto: benchmark, method and buffer size"""
    seed: int = 0
    """what all randomness is drawn from"""

    def __post_init__(self) -> None:
        settle(self)  # from Python too, a mistyped word must not pass for another
        at_least = {
            "buffer_size": 1,
            "num_tasks": 1,
            "num_drifts": 0,
            "max_classes_per_drift": 1,
            "label_budget": 0,
            "epochs": 1,
            "batch_size": 1,
            "minibatch_size": 1,
            "momentum": 0,
            "weight_decay": 0,
            "threads": 1,
            "seed": 0,
        }
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"{name} must be at least {least}; got {value}")
        if not 1 <= self.severity <= 5:
            raise UserError(f"severity must be 1 to 5; got {self.severity}")
        if self.lr is not None and not self.lr > 0:
            raise UserError(f"lr must be above 0; got {self.lr}")
        if self.tasks is not None and (self.num_tasks or self.class_order) is not None:
            raise UserError("tasks names the classes already: leave num_tasks and class_order out")


@dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """Everything that decides what a run computes; saved with it."""

    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """options of single parts, by part: {"detector": {"level": 0.01}}"""

    def to_json(self) -> dict[str, Any]:
        """Plain data, in the order of the fields."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), allow_nan=False))
        return plain
