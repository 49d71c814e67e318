"""Latency and load of the service itself, and everything as text for Prometheus."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from driftwise.live.reporter import PREFIX
from driftwise.serve.service import Service

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""seconds, of the histogram's buckets"""
RECENT = 2000
"""requests of the percentiles"""
REPORT_SECONDS = 0.5
"""between two reports of a process that only predicts"""

Line = tuple[str, int, float]
"""Route, status and seconds of a request."""


class Measures:
    """Counts requests and their seconds by route."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.workers = 0
        """prediction workers"""
        self.restarts = 0
        """of them that ended and were replaced"""
        self._requests: dict[tuple[str, int], int] = {}
        self._histograms: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        self._recent: dict[str, deque[tuple[float, float]]] = {}

    def add(self, route: str, code: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self._requests[route, code] = self._requests.get((route, code), 0) + 1
            counts = self._histograms.setdefault(route, [0] * (len(BOUNDS) + 1))
            counts[bisect.bisect_left(BOUNDS, seconds)] += 1
            self._sums[route] = self._sums.get(route, 0.0) + seconds
            recent = self._recent.setdefault(route, deque(maxlen=RECENT))
            recent.append((time.monotonic(), seconds))

    def summary(self) -> list[dict[str, Any]]:
        """By route: requests, requests a second of the last minute, p50 and p99 in ms."""
        now = time.monotonic()
        with self._lock:
            recent = {route: list(each) for route, each in self._recent.items()}
            totals = {route: sum(each) for route, each in self._histograms.items()}
        lines = []
        for route, each in sorted(recent.items()):
            seconds = sorted(taken for _, taken in each)
            last = [when for when, _ in each if when > now - 60]
            span = max(1.0, min(60.0, now - last[0])) if last else 60.0
            lines.append(
                {
                    "route": route,
                    "requests": totals[route],
                    "per_second": round(len(last) / span, 2),
                    "p50_ms": round(1000 * seconds[len(seconds) // 2], 2),
                    "p99_ms": round(1000 * seconds[int(0.99 * len(seconds))], 2),
                }
            )
        return lines

    def text(self) -> list[str]:
        """In the text format of Prometheus."""
        name = f"{PREFIX}http_request_seconds"
        with self._lock:
            lines = [
                f"# HELP {PREFIX}http_requests_total requests by route and status",
                f"# TYPE {PREFIX}http_requests_total counter",
            ]
            lines += [
                f'{PREFIX}http_requests_total{{route="{route}",code="{code}"}} {count}'
                for (route, code), count in sorted(self._requests.items())
            ]
            lines += [f"# HELP {name} seconds of a request", f"# TYPE {name} histogram"]
            for route, counts in sorted(self._histograms.items()):
                total = 0
                for bound, count in zip((*BOUNDS, "+Inf"), counts, strict=True):
                    total += count
                    lines.append(f'{name}_bucket{{route="{route}",le="{bound}"}} {total}')
                lines.append(f'{name}_sum{{route="{route}"}} {self._sums[route]:.6f}')
                lines.append(f'{name}_count{{route="{route}"}} {total}')
        return lines


class Recorder(Measures):
    """Of a process that only predicts: it sends what it counts to the learner's process."""

    def __init__(self, send: Callable[[list[Line]], object]) -> None:
        super().__init__()
        self._send = send
        self._lines: list[Line] = []
        self._sent = time.monotonic()

    def add(self, route: str, code: int, seconds: float) -> None:
        """Count a request."""
        self._lines.append((route, code, seconds))
        if time.monotonic() - self._sent > REPORT_SECONDS:
            self.flush()
        elif len(self._lines) == 1:  # a last request must not wait for a next one
            asyncio.get_running_loop().call_later(REPORT_SECONDS, self.flush)

    def flush(self) -> None:
        """Send what was counted."""
        lines, self._lines, self._sent = self._lines, [], time.monotonic()
        if lines:
            with contextlib.suppress(OSError):
                self._send(lines)


def prometheus(service: Service, measures: Measures) -> str:
    """All counters and gauges: the live learner's, by class, and of the service."""
    lines = [service.live.counters.rstrip("\n")]
    status = service.view["status"]
    with service.history.lock:
        totals = service.history.series.totals()
        probes = list(service.history.probes)[-1:]
    by_class = {
        "class_samples_total": ("counter", "samples by label, or by prediction", "samples"),
        "class_labelled_total": ("counter", "labelled samples", "labelled"),
        "class_correct_total": ("counter", "labelled samples predicted correctly", "correct"),
    }
    for name, (kind, meaning, field) in by_class.items():
        values = {label: int(count[field]) for label, count in totals.items()}
        lines += _labelled(name, kind, meaning, service, values)
    buffer = {str(label): count for label, count in status.get("buffer", {}).items()}
    lines += _labelled("class_buffer_samples", "gauge", "in the replay buffer", service, buffer)
    single: dict[str, tuple[str, str, float | None]] = {
        "label_requests_open": ("gauge", "samples that wait for a label", len(service.board)),
        "label_budget": ("gauge", "labels that may be requested", status.get("label_budget")),
        "labels_spent": (
            "gauge",
            "requested labels that were used",
            status.get("labels", {}).get("adaptation", 0),
        ),
        "changes_waiting": ("gauge", "changes that wait for the learner", service.waiting),
        "changes_applied_total": ("counter", "changes applied", service.view["applied"]),
        "paused": ("gauge", "1 while adaptation is paused", int(service.view["paused"])),
        "audit_failures_total": ("counter", "audit lines not written", service.audit.failures),
        "prediction_workers": ("gauge", "processes that predict", measures.workers),
        "prediction_worker_restarts_total": (
            "counter",
            "prediction workers that ended and were replaced",
            measures.restarts,
        ),
        "up": ("gauge", "1 while changes are taken", int(service.ready)),
    }
    if probes:
        value = probes[0]["correct"] / max(1, probes[0]["samples"])
        single["probe_accuracy"] = ("gauge", "accuracy on the last probe", value)
    for name, (kind, meaning, number) in single.items():
        if number is not None:
            lines += [
                f"# HELP {PREFIX}{name} {meaning}",
                f"# TYPE {PREFIX}{name} {kind}",
                f"{PREFIX}{name} {number}",
            ]
    return "\n".join([*lines, *measures.text()]) + "\n"


def _labelled(
    name: str, kind: str, meaning: str, service: Service, values: dict[str, int]
) -> list[str]:
    if not values:
        return []
    lines = [f"# HELP {PREFIX}{name} {meaning}", f"# TYPE {PREFIX}{name} {kind}"]
    for label, value in values.items():
        shown = _escaped(service.settings.name_of(int(label)))
        lines.append(f'{PREFIX}{name}{{class="{shown}"}} {value}')
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
