"""Alerts: a webhook, a command or an e-mail when something needs a person. None is sent too often."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import smtplib
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from driftwise.config.config_files import from_mapping, read_config_file
from driftwise.errors import UserError
from driftwise.serve.access import is_loopback
from driftwise.serve.service import Service

KINDS = ("drift", "approval", "labels", "accuracy", "failure")
MAX_WAITING = 100
"""alerts that wait to be sent to one target; the oldest are dropped"""
RETRY_SECONDS = (1.0, 5.0, 30.0, 120.0)
SEND_SECONDS = 10.0

log = logging.getLogger("driftwise.serve")


@dataclass(frozen=True, kw_only=True)
class Alert:
    """Something that needs a person."""

    kind: str
    """drift: classes have drifted; approval: they wait for approval; labels: they wait for labels;
    accuracy: it is below a bound; failure: the learner has stopped, or cannot be saved"""
    text: str
    classes: tuple[str, ...] = ()
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def to_json(self) -> dict[str, Any]:
        """As it is sent."""
        return {
            "kind": self.kind,
            "text": self.text,
            "classes": list(self.classes),
            "time": self.time,
            "source": "driftwise",
        }


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where alerts go."""

    to: Literal["webhook", "slack", "command", "email"]
    url: str | None = None
    """of a webhook; of a channel for slack"""
    command: tuple[str, ...] = ()
    """a program and its arguments; the alert comes as JSON on its input"""
    server: str | None = None
    """host:port of a mail server"""
    sender: str | None = None
    recipients: tuple[str, ...] = ()
    user: str | None = None
    """of the mail server; its password stands in the environment as DRIFTWISE_SMTP_PASSWORD"""
    kinds: tuple[str, ...] = KINDS
    """the alerts it gets"""

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.kinds) - set(KINDS)):
            raise UserError(f"unknown alert {unknown[0]!r} (known: {', '.join(KINDS)})")
        if self.to in ("webhook", "slack"):
            parts = urlsplit(self.url or "")
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise UserError(f"a {self.to} needs a url with http or https")
        if self.to == "command" and not self.command:
            raise UserError("a command needs a program to call")
        if self.to == "email" and not (self.server and self.sender and self.recipients):
            raise UserError("an email needs server, sender and recipients")
        port = (self.server or "").partition(":")[2]
        if port and not port.isdecimal():
            raise UserError(f"a mail server is host or host:port; got {self.server!r}")

    def send(self, alert: Alert) -> None:
        """Send an alert; any exception: it did not arrive."""
        if self.to in ("webhook", "slack"):
            content = (
                {"text": f"driftwise: {alert.text}"} if self.to == "slack" else alert.to_json()
            )
            request = urllib.request.Request(
                self.url or "",
                json.dumps(content).encode(),
                {"content-type": "application/json", "user-agent": "driftwise"},
            )
            with urllib.request.urlopen(request, timeout=SEND_SECONDS) as response:
                response.read(1000)
        elif self.to == "command":
            text = json.dumps(alert.to_json()).encode()
            subprocess.run(
                self.command, input=text, timeout=SEND_SECONDS, check=True, capture_output=True
            )
        else:
            self._mail(alert)

    def _mail(self, alert: Alert) -> None:
        message = EmailMessage()
        message["Subject"] = f"driftwise: {alert.text}"[:200].replace("\n", " ")
        message["From"], message["To"] = self.sender, ", ".join(self.recipients)
        message.set_content(f"{alert.text}\n\n{alert.time}\n")
        host, _, port = (self.server or "").partition(":")
        with smtplib.SMTP(host, int(port or 25), timeout=SEND_SECONDS) as server:
            server.ehlo()
            if encrypted := server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
            if self.user is not None:
                if not encrypted and not is_loopback(host):
                    raise UserError(f"{host} offers no encryption; no password is sent to it")
                server.login(self.user, os.environ.get("DRIFTWISE_SMTP_PASSWORD", ""))
            server.send_message(message)


@dataclass(frozen=True, kw_only=True)
class AlertSettings:
    """When alerts are sent."""

    quiet_seconds: float = 600.0
    """an alert of the same kind on the same classes is sent again after so long at the earliest"""
    waiting_seconds: float = 60.0
    """classes that have waited for labels for so long are reported"""
    min_accuracy: float | None = None
    """accuracy, of the last probe or of labelled samples, below which an alert is sent; 0 to 1"""

    def __post_init__(self) -> None:
        if self.min_accuracy is not None and not 0 <= self.min_accuracy <= 1:
            raise UserError(f"min_accuracy lies from 0 to 1; got {self.min_accuracy}")


def read_alerts(path: Path) -> tuple[list[Target], AlertSettings]:
    """Targets and settings from a YAML or JSON file."""
    found = read_config_file(path)
    targets = found.pop("targets", [])
    if not isinstance(targets, list) or not all(isinstance(each, dict) for each in targets):
        raise UserError(f"{path}: targets is a list of objects with to, url, command, ...")
    settings: dict[str, Any] = from_mapping(AlertSettings, found, source=str(path))
    made: list[dict[str, Any]] = [
        from_mapping(Target, each, source=f"{path}: targets") for each in targets
    ]
    return [Target(**each) for each in made], AlertSettings(**settings)


class Alerts:
    """Watches a service and sends alerts, to each target from a thread of its own."""

    def __init__(
        self,
        service: Service,
        targets: Sequence[Target],
        settings: AlertSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """`clock` and `sleep` are for tests."""
        self._service = service
        self._settings = settings or AlertSettings()
        self._clock = clock
        self._stop = threading.Event()
        self._sleep = sleep or self._stop.wait
        self._sent_at: dict[tuple[str, tuple[str, ...]], float] = {}
        self._waiting_since: dict[int, float] = {}
        self._seen = service.history.num_verdicts
        # One queue each: a target that cannot be reached must not hold up the others.
        self._queues: list[tuple[Target, queue.Queue[Alert]]] = [
            (target, queue.Queue(MAX_WAITING)) for target in targets
        ]
        self.sent = 0
        self.failed = 0
        """alerts that did not arrive, after all attempts, or were dropped"""

    def start(self) -> None:
        """Look and send until the process ends or `stop` is called."""
        threading.Thread(target=self._watch, name="alerts", daemon=True).start()
        for each in self._queues:
            threading.Thread(target=self._send, args=each, name="alerts", daemon=True).start()

    def stop(self) -> None:
        """Send nothing more."""
        self._stop.set()

    def check(self) -> None:
        """Look at the service once, and queue what is due."""
        for alert in self._due():
            key, now = (alert.kind, alert.classes), self._clock()
            quiet = self._settings.quiet_seconds
            self._sent_at = {old: at for old, at in self._sent_at.items() if now - at < quiet}
            if key in self._sent_at:
                continue
            self._sent_at[key] = now
            for target, waiting in self._queues:
                if alert.kind in target.kinds:
                    self._put(waiting, alert)

    def _put(self, waiting: queue.Queue[Alert], alert: Alert) -> None:
        while True:
            try:
                waiting.put_nowait(alert)
                return
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    waiting.get_nowait()
                    self.failed += 1

    def _due(self) -> list[Alert]:
        service, view = self._service, self._service.view
        status = view["status"]
        name = service.settings.name_of
        alerts = []
        with service.history.lock:
            new = [line for line in service.history.verdicts if line["number"] > self._seen]
            self._seen = service.history.num_verdicts
            probe = service.history.probes[-1] if service.history.probes else None
        if drifted := sorted({line["label"] for line in new if line["drifted"]}):
            alerts.append(_about("drift", "have drifted", map(name, drifted)))
        if held := status.get("held"):
            alerts.append(_about("approval", "wait for approval", map(name, held)))
        now, waiting = self._clock(), status.get("waiting", ())
        self._waiting_since = {each: self._waiting_since.get(each, now) for each in waiting}
        late = [
            each
            for each, since in self._waiting_since.items()
            if now - since >= self._settings.waiting_seconds
        ]
        if late:
            count = len(service.board)
            text = f"wait for labels; {count} samples are in the inbox"
            alerts.append(_about("labels", text, map(name, late)))
        accuracy = view["accuracy"] if probe is None else probe["correct"] / probe["samples"]
        least = self._settings.min_accuracy
        if least is not None and accuracy is not None and accuracy < least:
            text = f"accuracy is {accuracy:.1%}, below {least:.1%}"
            alerts.append(Alert(kind="accuracy", text=text))
        for trouble in filter(None, (view["failure"], service.save_failure)):
            alerts.append(Alert(kind="failure", text=trouble))
        return alerts

    def _watch(self) -> None:
        while not self._stop.wait(1.0):
            self.check()

    def _send(self, target: Target, waiting: queue.Queue[Alert]) -> None:
        while not self._stop.is_set():
            try:
                alert = waiting.get(timeout=1.0)
            except queue.Empty:
                continue
            self.deliver(target, alert)

    def deliver(self, target: Target, alert: Alert) -> None:
        """Send an alert, with a few attempts."""
        for pause in (*RETRY_SECONDS, None):
            try:
                target.send(alert)
            except Exception as error:  # of the network, a program, a mail server
                log.warning("an alert to a %s failed: %s", target.to, type(error).__name__)
                if pause is None or self._stop.is_set():
                    self.failed += 1
                    return
                self._sleep(pause)
            else:
                self.sent += 1
                return

    def take(self) -> list[tuple[Target, Alert]]:
        """Remove and return what waits to be sent."""
        taken = []
        for target, waiting in self._queues:
            with contextlib.suppress(queue.Empty):
                while True:
                    taken.append((target, waiting.get_nowait()))
        return taken


def _about(kind: str, text: str, names: Any) -> Alert:
    classes = tuple(names)
    return Alert(kind=kind, text=f"classes {', '.join(classes)} {text}", classes=classes)
