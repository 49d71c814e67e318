"""What has happened, counted, told to whoever listens, and said in one report."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from driftwise.live.counters import Counters
from driftwise.live.engine import BatchOutcome, LiveEngine
from driftwise.live.events import Event, Log
from driftwise.live.inputs import Taken
from driftwise.live.observation import Observation

RECENT = 1000
"""labelled samples over which recent accuracy is counted"""


class Reporter:
    """Keeps the counts of a live learner, and passes on its events."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.counters = Counters()
        self.steps = 0
        """calls of `observe` so far"""
        self._hits: deque[bool] = deque(maxlen=RECENT)

    @property
    def accuracy(self) -> float | None:
        """Share of right predictions among the last labelled samples; None: there were none."""
        return sum(self._hits) / len(self._hits) if self._hits else None

    def tell(self, kind: str, **details: Any) -> list[str]:
        """Pass an event on; what callbacks failed with, and why it is not in the log."""
        event = Event(kind=kind, step=self.steps, details=details)
        self.log.write(event)
        flushed = self.log.flush()
        self.counters.add("log_failures_total", flushed.failed)
        self.counters.add("log_lines_lost_total", flushed.lost)
        failures = self.log.call(event)
        self.counters.add("callback_failures_total", len(failures))
        return failures if flushed.news is None else [*failures, flushed.news]

    def report(self, taken: Taken, done: BatchOutcome, engine: LiveEngine | None) -> Observation:
        """Count a batch and what was done with it, tell it, and say it all in one."""
        predicted = torch.full((len(taken.usable),), -1)
        predicted[taken.usable] = done.predicted
        has_label = taken.samples.labels >= 0
        hits = (done.predicted == taken.samples.labels)[has_label].tolist()
        loss = sum(done.losses) / len(done.losses) if done.losses else None
        self._hits.extend(hits)
        self._count(taken, done, hits)
        self.gauge(engine)
        if taken.refused:
            done.notes.append(
                f"{len(taken.refused)} samples were refused: not finite, or too large"
            )
            done.events.insert(0, ("refused", {"rows": list(taken.refused)}))
        quarantined = taken.usable.nonzero().squeeze(1)[done.quarantined].tolist()
        if quarantined:
            text = f"samples quarantined, far outside what has been seen: {len(quarantined)}"
            done.notes.append(text)
            done.events.insert(0, ("quarantined", {"rows": quarantined, "text": text}))
        details = {"rows": len(predicted), "labelled": len(hits), "correct": sum(hits)}
        so_far = {"loss": loss, "accuracy": self.accuracy, "counters": dict(self.counters.values)}
        done.events.append(("observed", {**details, **so_far}))
        for kind, more in done.events:
            done.notes += self.tell(kind, **more)
        return Observation(
            step=self.steps,
            ids=taken.ids.numpy(),
            predicted=predicted.numpy(),
            labelled=len(hits),
            correct=sum(hits),
            loss=loss,
            refused=taken.refused,
            quarantined=tuple(quarantined),
            new_classes=done.new_classes,
            verdicts=tuple(done.verdicts),
            adapted=tuple(done.adapted),
            waiting=() if engine is None else tuple(sorted(engine.waiting)),
            notes=tuple(done.notes),
        )

    def _count(self, taken: Taken, done: BatchOutcome, hits: list[bool]) -> None:
        add = self.counters.add
        add("rows_total", len(taken.usable))
        add("rows_refused_total", len(taken.refused))
        add("rows_quarantined_total", len(done.quarantined))
        add("rows_labelled_total", len(hits))
        add("correct_total", sum(hits))
        add("drifts_total", sum(bool(verdict.drifted) for verdict in done.verdicts))
        add("repairs_total", len(done.adapted))
        for kind, details in done.events:
            match kind:
                case "checked":
                    add("checks_total")
                case "restored":
                    add("restored_total")
                case "trouble":
                    add("label_failures_total")
                case "asked":
                    add("labels_asked_total", details["rows"])
                case "answered":
                    add("labels_given_total", details["given"])
                    add("labels_late_total", details["late"])

    def gauge(self, engine: LiveEngine | None) -> None:
        """Say how things stand."""
        if (accuracy := self.accuracy) is not None:
            self.counters.set("accuracy_recent", accuracy)
        if engine is not None:
            self.counters.set("steps_total", engine.parts.ledger.steps)
            self.counters.set("classes", len(engine.classes))
            self.counters.set("memory_rows", len(engine.parts.learner.memory))
            self.counters.set("classes_waiting", len(engine.waiting))
            self.counters.set("classes_untestable", len(engine.untestable))

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        counts = self.counters.state_dict()
        return {"counters": counts, "steps": self.steps, "hits": list(self._hits)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self.counters.load_state_dict(state["counters"])
        if type(state["steps"]) is not int or not all(type(h) is bool for h in state["hits"]):
            raise ValueError("expected a number of steps, and which predictions were right")
        self.steps = state["steps"]
        self._hits = deque(state["hits"], maxlen=RECENT)
