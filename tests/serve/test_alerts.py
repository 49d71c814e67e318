"""Alerts arrive where they should, once, and again after a failure."""

from __future__ import annotations

import json
import smtplib
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from serve_tools import batch, open_service

from driftwise.errors import UserError
from driftwise.serve import alerts
from driftwise.serve.alerts import (
    MAX_WAITING,
    RETRY_SECONDS,
    Alert,
    Alerts,
    AlertSettings,
    Target,
    read_alerts,
)
from driftwise.serve.service import Service

ALERT = Alert(kind="drift", text="classes 3 have drifted", classes=("3",))
HOOK = Target(to="webhook", url="http://127.0.0.1:9/")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_service(tmp_path) as service:
        yield service


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def drift(service: Service) -> None:
    for number in range(60):
        x, y = batch(number)
        service.observe(x, y if number < 35 else None).result(30)


def test_each_alert_is_sent_once_and_again_after_a_while(service: Service) -> None:
    clock = Clock()
    settings = AlertSettings(quiet_seconds=100, waiting_seconds=10)
    alerts = Alerts(service, [HOOK], settings, clock=clock)
    alerts.check()
    assert alerts.take() == []
    drift(service)
    alerts.check()
    assert [each.kind for _, each in alerts.take()] == ["drift"]
    clock.now = 11
    alerts.check()
    ((_, alert),) = alerts.take()
    assert alert.kind == "labels"
    assert f"{len(service.board)} samples are in the inbox" in alert.text
    for now in (12, 50, 110):
        clock.now = now
        alerts.check()
    assert alerts.take() == []
    clock.now = 112
    alerts.check()
    assert [each.kind for _, each in alerts.take()] == ["labels"]


def test_low_accuracy_approval_and_failure_are_reported(service: Service) -> None:
    settings = AlertSettings(min_accuracy=0.9, quiet_seconds=100)
    alerts = Alerts(service, [HOOK], settings)
    service.submit("mode", mode="ask").result(30)
    drift(service)
    x, y = batch(50)
    service.probe(x, [(each + 1) % 5 for each in y]).result(30)
    service.save_failure = "no space left"
    alerts.check()
    found = {each.kind: each.text for _, each in alerts.take()}
    assert set(found) == {"drift", "approval", "accuracy", "failure"}
    assert "below 90.0%" in found["accuracy"]


def test_a_target_gets_only_what_it_wants_and_floods_are_cut(service: Service) -> None:
    only = Target(to="webhook", url="http://127.0.0.1:9/", kinds=("failure",))
    alerts = Alerts(service, [only])
    drift(service)
    alerts.check()
    assert alerts.take() == []
    for number in range(MAX_WAITING + 5):
        service.save_failure = f"failure {number}"
        alerts._sent_at.clear()
        alerts.check()
    waiting = alerts.take()
    assert len(waiting) == MAX_WAITING
    assert waiting[-1][1].text == f"failure {MAX_WAITING + 4}"
    assert alerts.failed == 5


class Hook(BaseHTTPRequestHandler):
    codes: list[int]
    bodies: list[Any]

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(self.codes.pop(0))
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


def test_a_webhook_gets_json_slack_a_text_and_failures_are_tried_again(service: Service) -> None:
    Hook.codes, Hook.bodies = [500, 503, 200, 200, *[500] * 9], []
    pauses: list[float] = []
    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        alerts = Alerts(service, [], sleep=pauses.append)
        alerts.deliver(Target(to="webhook", url=url), ALERT)
        alerts.deliver(Target(to="slack", url=url), ALERT)
        assert pauses == list(RETRY_SECONDS[:2])
        alerts.deliver(Target(to="webhook", url=url), ALERT)
        server.shutdown()
    assert (alerts.sent, alerts.failed) == (2, 1)
    assert Hook.bodies[2] == ALERT.to_json()
    assert Hook.bodies[3] == {"text": "driftwise: classes 3 have drifted"}
    assert pauses[2:] == list(RETRY_SECONDS)


def test_a_command_gets_json_on_its_input(tmp_path: Path) -> None:
    code = f"import sys; open({str(tmp_path / 'out')!r}, 'w').write(sys.stdin.read())"
    Target(to="command", command=(sys.executable, "-S", "-c", code)).send(ALERT)
    assert json.loads((tmp_path / "out").read_text())["classes"] == ["3"]


class Mail(socketserver.StreamRequestHandler):
    lines: list[str]
    extensions = b""

    def handle(self) -> None:
        self.wfile.write(b"220 ready\r\n")
        while line := self.rfile.readline().decode().strip():
            self.lines.append(line)
            word = line[:4].upper()
            if word == "EHLO" and self.extensions:
                self.wfile.write(b"250-hello\r\n250 " + self.extensions + b"\r\n")
                continue
            if word == "STAR":
                self.wfile.write(b"454 not now\r\n")
                continue
            if word == "DATA":
                self.wfile.write(b"354 go on\r\n")
                while (text := self.rfile.readline()) != b".\r\n":
                    self.lines.append(text.decode().strip())
            self.wfile.write(b"221 bye\r\n" if word == "QUIT" else b"250 ok\r\n")
            if word == "QUIT":
                return


def test_a_target_that_cannot_be_reached_does_not_hold_up_the_others(
    service: Service, tmp_path: Path
) -> None:
    code = f"import sys; open({str(tmp_path / 'alert')!r}, 'w').write(sys.stdin.read())"
    command = Target(to="command", command=(sys.executable, "-S", "-c", code))
    never = threading.Event()
    alerts = Alerts(service, [HOOK, HOOK, command], sleep=never.wait)  # nothing listens there
    service.save_failure = "the disk is full"
    alerts.start()
    try:
        deadline = time.monotonic() + 30
        while not alerts.sent and time.monotonic() < deadline:
            time.sleep(0.02)
        assert json.loads((tmp_path / "alert").read_text())["text"] == "the disk is full"
    finally:
        alerts.stop()
        never.set()


def test_an_email_is_handed_to_the_server() -> None:
    Mail.lines = []
    with socketserver.TCPServer(("127.0.0.1", 0), Mail) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        Target(
            to="email",
            server=f"127.0.0.1:{server.server_address[1]}",
            sender="learner@example.org",
            recipients=("anna@example.org", "eva@example.org"),
        ).send(ALERT)
        thread.join()
    assert "Subject: driftwise: classes 3 have drifted" in Mail.lines
    assert "rcpt TO:<eva@example.org>" in Mail.lines


def test_settings_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "alerts.yaml"
    file.write_text(
        "min_accuracy: 0.8\n"
        "targets:\n"
        "  - {to: slack, url: 'https://hooks.example/x', kinds: [drift, labels]}\n"
        "  - {to: command, command: [/usr/bin/notify, urgent]}\n"
    )
    targets, settings = read_alerts(file)
    assert settings.min_accuracy == 0.8
    assert targets[0].kinds == ("drift", "labels")
    assert targets[1].command == ("/usr/bin/notify", "urgent")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("targets: [{to: webhook}]", "needs a url"),
        ("targets: [{to: webhook, url: 'file:///etc'}]", "http or https"),
        ("targets: [{to: command}]", "a program to call"),
        ("targets: [{to: email, server: x}]", "sender and recipients"),
        ("targets: [{to: email, server: 'x:smtp', sender: a, recipients: [b]}]", "host:port"),
        ("targets: [{to: pigeon}]", "pigeon"),
        ("targets: [{to: slack, url: 'http://x', kinds: [rain]}]", "unknown alert 'rain'"),
        ("targets: 3", "list of objects"),
        ("min_accuracy: 7", "from 0 to 1"),
        ("quiet: 7", "unknown key"),
    ],
)
def test_refusals(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "alerts.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        read_alerts(tmp_path / "alerts.yaml")


@pytest.mark.parametrize("extensions", [b"AUTH PLAIN", b"STARTTLS"])
def test_a_password_is_sent_over_an_encrypted_connection_only(
    extensions: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    Mail.lines = []
    monkeypatch.setattr(Mail, "extensions", extensions)
    monkeypatch.setattr(alerts, "is_loopback", lambda _: False)
    monkeypatch.setenv("DRIFTWISE_SMTP_PASSWORD", "secret")
    with socketserver.TCPServer(("127.0.0.1", 0), Mail) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        target = Target(
            to="email",
            server=f"127.0.0.1:{server.server_address[1]}",
            sender="learner@example.org",
            recipients=("anna@example.org",),
            user="learner",
        )
        with pytest.raises((UserError, smtplib.SMTPException)):
            target.send(ALERT)
        thread.join()
    assert any(line.startswith("ehlo") for line in Mail.lines)
    assert not any(line.upper().startswith("AUTH") for line in Mail.lines)
    assert ("STARTTLS" in Mail.lines) == (extensions == b"STARTTLS")
