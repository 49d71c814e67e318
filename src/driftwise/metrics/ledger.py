"""What a run costs: every label, second, FLOP and gradient step, booked where it arose."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from driftwise.errors import unknown_name

PHASES = ("train", "detect", "adapt", "evaluate")
LABEL_KINDS = ("stream", "monitoring", "adaptation")


class Ledger:
    """The books of one run. Labels are booked by kind, seconds and FLOPs by phase."""

    def __init__(self, *, label_budget: int | None = None) -> None:
        """`label_budget` bounds the labels that adaptation may ask for (None: no bound)."""
        if label_budget is not None:
            _check_count("label_budget", label_budget)
        self.label_budget = label_budget
        self._labels = dict.fromkeys(LABEL_KINDS, 0)
        self._refused = 0
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._flops = dict.fromkeys(PHASES, 0)
        self._steps = 0
        self._phase: str | None = None
        self._phase_began = 0.0

    @property
    def labels(self) -> dict[str, int]:
        """Labels used, by kind."""
        return dict(self._labels)

    @property
    def refused(self) -> int:
        """Adaptation labels that were asked for past the budget and not granted."""
        return self._refused

    @property
    def seconds(self) -> dict[str, float]:
        """Wall-clock seconds by phase, the running one up to now included."""
        seconds = dict(self._seconds)
        if self._phase is not None:
            seconds[self._phase] += time.perf_counter() - self._phase_began
        return seconds

    @property
    def flops(self) -> dict[str, int]:
        """FLOPs by phase."""
        return dict(self._flops)

    @property
    def steps(self) -> int:
        """Gradient steps taken."""
        return self._steps

    def allowance(self, wanted: int) -> int:
        """How many of `wanted` adaptation labels may be asked for; the rest is booked as refused.

        What is then really given has to be booked: a source may have fewer samples than it may give.
        """
        _check_count("wanted", wanted)
        if self.label_budget is None:
            return wanted
        granted = min(wanted, max(0, self.label_budget - self._labels["adaptation"]))
        self._refused += wanted - granted
        return granted

    def book_labels(self, kind: str, count: int) -> None:
        """Book `count` labels of a kind; adaptation's must lie within the budget."""
        if kind not in LABEL_KINDS:
            raise unknown_name("kind of label", kind, LABEL_KINDS)
        _check_count("count", count)
        total = self._labels[kind] + count
        if kind == "adaptation" and self.label_budget is not None and total > self.label_budget:
            raise ValueError(
                f"booking {count} labels makes {total} for adaptation, past the budget of "
                f"{self.label_budget}; ask for no more than allowance() grants"
            )
        self._labels[kind] = total

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
            self._seconds[name] += time.perf_counter() - self._phase_began
            self._phase = None

    def add_flops(self, count: int) -> None:
        """Book FLOPs to the running phase."""
        if self._phase is None:
            raise RuntimeError(
                "FLOPs belong to a phase; book them inside of `with ledger.phase(...)`"
            )
        _check_count("count", count)
        self._flops[self._phase] += count

    def add_step(self) -> None:
        """Book one gradient step."""
        self._steps += 1

    def state_dict(self) -> dict[str, Any]:
        """All books as plain JSON values."""
        return {
            "labels": self.labels,
            "refused": self.refused,
            "seconds": self.seconds,
            "flops": self.flops,
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from saved books; anything missing, unknown or negative is an error."""
        if self._phase is not None:
            raise RuntimeError(f"books cannot be loaded inside of phase {self._phase!r}")
        # Everything is checked before anything is taken over: a failed load leaves the books alone.
        _check_keys("ledger", state, ("labels", "refused", "seconds", "flops", "steps"))
        _check_keys("labels", state["labels"], LABEL_KINDS)
        _check_keys("seconds", state["seconds"], PHASES)
        _check_keys("flops", state["flops"], PHASES)
        for name, count in {**state["labels"], **state["flops"]}.items():
            _check_count(name, count)
        for name in ("refused", "steps"):
            _check_count(name, state[name])
        for name, value in state["seconds"].items():
            _check_seconds(name, value)
        self._labels = {kind: state["labels"][kind] for kind in LABEL_KINDS}
        self._refused = state["refused"]
        self._seconds = {name: float(state["seconds"][name]) for name in PHASES}
        self._flops = {name: state["flops"][name] for name in PHASES}
        self._steps = state["steps"]


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError(f"{name} must be a whole number from 0 up, got {count!r}")


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"seconds of {name} must be a finite number from 0 up, got {value!r}")


def _check_keys(name: str, state: object, expected: Sequence[str]) -> None:
    if not isinstance(state, Mapping) or set(state) != set(expected):
        came = ", ".join(map(str, state)) if isinstance(state, Mapping) else repr(state)
        raise ValueError(f"state of {name} must hold exactly {', '.join(expected)}; got {came}")
