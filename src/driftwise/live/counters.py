"""Numbers for a monitoring system, in the text form that Prometheus reads."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "driftwise_"

COUNTERS: Mapping[str, str] = {
    "rows_total": "samples that came in",
    "rows_refused_total": "samples with values that are not finite, or too large",
    "rows_quarantined_total": "samples far outside what has been seen, left alone",
    "rows_labelled_total": "samples that came with a label",
    "correct_total": "labelled samples that were predicted right before they were learned",
    "steps_total": "gradient steps",
    "restored_total": "times that the network went back to its last good snapshot",
    "checks_total": "checks for drift",
    "drifts_total": "classes found drifted",
    "repairs_total": "classes realigned",
    "labels_asked_total": "labels asked for",
    "labels_given_total": "labels given",
    "labels_late_total": "labels that came later than their samples",
    "label_failures_total": "times that asking for labels failed",
    "callback_failures_total": "times that a callback on an event failed",
    "log_failures_total": "times that events could not be written to the log",
    "log_lines_lost_total": "events that the log will never have",
    "save_failures_total": "times that everything could not be saved",
}
GAUGES: Mapping[str, str] = {
    "classes": "classes seen so far",
    "memory_rows": "samples in the replay memory",
    "classes_waiting": "classes that have drifted and wait for labels",
    "classes_untestable": "classes that the last check could say nothing about",
    "accuracy_recent": "share of right predictions among the last labelled samples",
}
"""A gauge is told once it is known how things stand."""


class Counters:
    """What has happened so far, and how things stand."""

    def __init__(self) -> None:
        self.values: dict[str, float] = dict.fromkeys(COUNTERS, 0)

    def add(self, name: str, count: float = 1) -> None:
        """Count something that has happened."""
        assert name in COUNTERS, name
        self.values[name] += count

    def set(self, name: str, value: float) -> None:
        """Say how something stands, or how often somebody else has counted it."""
        assert name in COUNTERS or name in GAUGES, name
        self.values[name] = value

    def text(self) -> str:
        """All of them, as a scrape of `/metrics` wants to read them."""
        lines = []
        for kind, names in (("counter", COUNTERS), ("gauge", GAUGES)):
            for name, meaning in names.items():
                if name not in self.values:
                    continue
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
        if not all(type(value) in (int, float) for value in state.values()):
            raise ValueError("expected numbers in counters")
        self.values = dict.fromkeys(COUNTERS, 0) | dict(state)


def _written(value: float) -> str:
    """With all its digits, and whole numbers as such."""
    return str(int(value)) if value == int(value) else repr(float(value))
