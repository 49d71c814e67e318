"""Numbers for a monitoring system, in the text form that Prometheus reads."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "recollect_"

COUNTERS: Mapping[str, str] = {
    "rows_total": "rows that came in",
    "rows_refused_total": "rows that were not finite",
    "rows_labelled_total": "rows that came with a label",
    "correct_total": "labelled rows that were predicted right before they were learned",
    "steps_total": "gradient steps",
    "checks_total": "checks for drift",
    "drifts_total": "classes found drifted",
    "repairs_total": "classes realigned",
    "labels_asked_total": "labels asked for",
    "labels_given_total": "labels given",
    "labels_late_total": "labels that came later than their rows",
    "label_failures_total": "times that asking for labels failed, or brought fewer",
    "callback_failures_total": "times that a callback on an event failed",
}
GAUGES: Mapping[str, str] = {
    "classes": "classes seen so far",
    "memory_rows": "rows in the replay memory",
    "classes_waiting": "classes that have drifted and wait for labels",
    "accuracy_recent": "share of right predictions among the last labelled rows",
}


class Counters:
    """What has happened so far, and how things stand."""

    def __init__(self) -> None:
        self.values: dict[str, float] = dict.fromkeys((*COUNTERS, *GAUGES), 0)

    def add(self, name: str, count: float = 1) -> None:
        """Count something that has happened."""
        assert name in COUNTERS, name
        self.values[name] += count

    def set(self, name: str, value: float) -> None:
        """Say how something stands, or how often somebody else has counted it."""
        assert name in self.values, name
        self.values[name] = value

    def text(self) -> str:
        """All of them, as a scrape of `/metrics` wants to read them."""
        lines = []
        for kind, names in (("counter", COUNTERS), ("gauge", GAUGES)):
            for name, meaning in names.items():
                lines += [
                    f"# HELP {PREFIX}{name} {meaning}",
                    f"# TYPE {PREFIX}{name} {kind}",
                    f"{PREFIX}{name} {_written(self.values[name])}",
                ]
        return "\n".join(lines) + "\n"

    def state_dict(self) -> dict[str, float]:
        """Everything that changes."""
        return dict(self.values)

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Take up where `state_dict` left off."""
        self.values = {name: state[name] for name in self.values}


def _written(value: float) -> str:
    """With all its digits, and whole numbers as such."""
    return str(int(value)) if value == int(value) else repr(float(value))
