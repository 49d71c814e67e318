"""What a run costs: every label, second, FLOP and gradient step, recorded where it arose."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from driftwise.errors import unknown_name

PHASES = ("train", "detect", "adapt", "evaluate")
LABEL_KINDS = ("stream", "monitoring", "adaptation")


class Ledger:
    """The costs of one run: labels by kind, seconds and FLOPs by phase."""

    def __init__(self, *, label_budget: int | None = None) -> None:
        """`label_budget` bounds the labels that adaptation may ask for (None: no bound)."""
        if label_budget is not None:
            _check_number("label_budget", label_budget)
        self.label_budget = label_budget
        self._costs: dict[str, Any] = {
            "labels": dict.fromkeys(LABEL_KINDS, 0),
            "refused": 0,
            "seconds": dict.fromkeys(PHASES, 0.0),
            "flops": dict.fromkeys(PHASES, 0),
            "steps": 0,
        }
        self._phase: str | None = None
        self._phase_began = 0.0

    @property
    def labels(self) -> dict[str, int]:
        """Labels used, by kind."""
        return dict(self._costs["labels"])

    @property
    def refused(self) -> int:
        """Adaptation labels that were asked for past the budget and not granted."""
        return int(self._costs["refused"])

    @property
    def seconds(self) -> dict[str, float]:
        """Wall-clock seconds by phase, the running one up to now included."""
        seconds = dict(self._costs["seconds"])
        if self._phase is not None:
            seconds[self._phase] += time.perf_counter() - self._phase_began
        return seconds

    @property
    def flops(self) -> dict[str, int]:
        """FLOPs by phase."""
        return dict(self._costs["flops"])

    @property
    def steps(self) -> int:
        """Gradient steps taken."""
        return int(self._costs["steps"])

    def allowance(self, wanted: int) -> int:
        """How many of `wanted` adaptation labels may be asked for; the rest counts as refused.

        Labels that are then given must be recorded: a source may have fewer than it may give.
        """
        _check_number("wanted", wanted)
        if self.label_budget is None:
            return wanted
        granted: int = min(wanted, max(0, self.label_budget - self._costs["labels"]["adaptation"]))
        self._costs["refused"] += wanted - granted
        return granted

    def book_labels(self, kind: str, count: int) -> None:
        """Record `count` labels of a kind; adaptation's must lie within the budget."""
        if kind not in LABEL_KINDS:
            raise unknown_name("kind of label", kind, LABEL_KINDS)
        _check_number("count", count)
        total = self._costs["labels"][kind] + count
        if kind == "adaptation" and self.label_budget is not None and total > self.label_budget:
            raise ValueError(
                f"booking {count} labels makes {total} for adaptation, past the budget of "
                f"{self.label_budget}; ask for no more than allowance() grants"
            )
        self._costs["labels"][kind] = total

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Seconds and FLOPs go to this phase while the block runs; phases do not nest."""
        if name not in PHASES:
            raise unknown_name("phase", name, PHASES)
        if self._phase is not None:
            raise RuntimeError(f"phase {name!r} cannot begin inside of phase {self._phase!r}")
        self._phase, self._phase_began = name, time.perf_counter()
        try:
            yield
        finally:
            self._costs["seconds"][name] += time.perf_counter() - self._phase_began
            self._phase = None

    def add_flops(self, count: int, *, otherwise: str | None = None) -> None:
        """Record FLOPs of the running phase, or of phase `otherwise` where none is running."""
        phase = otherwise if self._phase is None else self._phase
        if phase is None:
            raise RuntimeError(
                "FLOPs belong to a phase; book them inside of `with ledger.phase(...)`"
            )
        _check_number("count", count)
        self._costs["flops"][phase] += count

    def add_step(self) -> None:
        """Record one gradient step."""
        self._costs["steps"] += 1

    def state_dict(self) -> dict[str, Any]:
        """All costs as plain JSON values."""
        return {**copy.deepcopy(self._costs), "seconds": self.seconds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from saved costs; anything missing, unknown or negative is an error."""
        if self._phase is not None:
            raise RuntimeError(f"costs cannot be loaded inside of phase {self._phase!r}")
        # Everything is checked before anything changes: a failed load leaves the ledger alone.
        _check_keys("ledger", state, self._costs)
        loaded: dict[str, Any] = {}
        for name, known in self._costs.items():
            if isinstance(known, dict):
                _check_keys(name, state[name], known)
                loaded[name] = {key: state[name][key] for key in known}
                for key, value in loaded[name].items():
                    _check_number(f"{name} of {key}", value, whole=name != "seconds")
            else:
                _check_number(name, state[name])
                loaded[name] = state[name]
        self._costs = loaded


def _check_number(name: str, value: object, *, whole: bool = True) -> None:
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < math.inf:
        kind = "whole" if whole else "finite"
        raise ValueError(f"{name} must be a {kind} number from 0 up, got {value!r}")


def _check_keys(name: str, state: object, expected: Mapping[str, Any]) -> None:
    if not isinstance(state, Mapping) or set(state) != set(expected):
        came = ", ".join(map(str, state)) if isinstance(state, Mapping) else repr(state)
        raise ValueError(f"state of {name} must hold exactly {', '.join(expected)}; got {came}")
