"""Downloads against a real server on this machine, with everything that a server can do wrong."""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from driftwise.datasets import download
from driftwise.datasets.download import fetch
from driftwise.errors import RunFailure, UserError

CONTENT = hashlib.shake_256(b"content").digest(1_000_003)
OTHER = hashlib.shake_256(b"another version").digest(1_000_003)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()


@dataclass
class Server:
    """What the server does, and its requests; every plan but the last is used once."""

    url: str
    content: bytes = CONTENT
    plans: list[str] = field(default_factory=lambda: ["serve"])
    requested_from: list[int] = field(default_factory=list)
    sent: int = 0
    release: threading.Event = field(default_factory=threading.Event)

    def next_plan(self) -> str:
        return self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]


class Handler(BaseHTTPRequestHandler):
    state: Server

    def do_GET(self) -> None:
        state, plan = self.state, self.state.next_plan()
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        state.requested_from.append(start)
        if plan == "hang":
            state.release.wait(10)
            return
        if plan.startswith(("404", "500", "503", "429")):
            self.send_error(int(plan))
            return
        if plan.startswith("redirect "):
            self.send_response(302)
            self.send_header("Location", plan.removeprefix("redirect "))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if plan == "ignore range":
            start = 0
        if start >= len(state.content):
            self.send_error(416)
            return
        self.send_body(plan, start)

    def send_body(self, plan: str, start: int) -> None:
        state = self.state
        body = state.content[start:]
        self.send_response(206 if start else 200)
        if start:
            end = len(state.content)
            begin = 0 if plan == "wrong range" else start
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{end}")
        if plan != "no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        stops_at = {"drop": 400_000 - start, "stall": 300_000 - start}.get(plan, len(body))
        state.sent += len(body[:stops_at])  # first: the client does not wait for this thread
        with contextlib.suppress(ConnectionError):  # the client has seen enough
            self.wfile.write(body[:stops_at])
            self.wfile.flush()
        if plan == "stall":
            state.release.wait(10)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "WAITS", (0.01, 0.01, 0.01))

    class Bound(Handler):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Bound) as http:
        state = Bound.state = Server(url=f"http://127.0.0.1:{http.server_port}/file.bin")
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield state
        state.release.set()
        http.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "file.bin"


def names(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir()) if target.parent.exists() else []


def test_a_fetched_file_is_whole_alone_and_not_fetched_again(server: Server, target: Path) -> None:
    steps: list[tuple[int, int | None]] = []
    for _ in range(2):
        found = fetch(
            server.url,
            target,
            sha256=SHA256.upper(),
            md5=MD5,
            size=len(CONTENT),
            progress=lambda here, total: steps.append((here, total)),
        )
        assert found == target
        assert target.read_bytes() == CONTENT
    assert names(target) == ["file.bin"]
    assert server.requested_from == [0]
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert steps == sorted(steps)


@pytest.mark.parametrize(
    ("plans", "requested_from"),
    [
        (["drop", "serve"], [0, 400_000]),
        (["stall", "serve"], [0, 300_000]),
        (["drop", "ignore range"], [0, 400_000]),
        (["drop", "wrong range", "serve"], [0, 400_000, 0]),
        (["no length"], [0]),
        (["500", "503", "serve"], [0, 0, 0]),
        (["429", "serve"], [0, 0]),
    ],
)
def test_failures_that_pass_are_waited_out_and_no_byte_comes_twice(
    server: Server, target: Path, plans: list[str], requested_from: list[int]
) -> None:
    server.plans = list(plans)
    fetch(server.url, target, sha256=SHA256, timeout=1.0)
    assert target.read_bytes() == CONTENT
    assert server.requested_from == requested_from
    if not {"ignore range", "wrong range"} & set(plans):
        assert server.sent == len(CONTENT)
    assert names(target) == ["file.bin"]


@pytest.mark.parametrize("name", ["file.bin.part", ".file.bin.lock"])
@pytest.mark.parametrize("content", [None, CONTENT[:1000]])
def test_nothing_is_downloaded_through_a_link(
    server: Server, target: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    victim = tmp_path / "victim"
    if content is not None:
        victim.write_bytes(content)
    target.parent.mkdir(parents=True, exist_ok=True)
    (target.parent / name).symlink_to(victim)
    with contextlib.suppress(RunFailure):  # a link in the way is refused, or removed
        fetch(server.url, target, sha256=SHA256)
        assert target.read_bytes() == CONTENT
    assert (victim.read_bytes() if victim.exists() else None) == content


def test_a_later_call_continues_where_an_earlier_one_gave_up(server: Server, target: Path) -> None:
    server.plans = ["drop", "503"]
    with pytest.raises(UserError, match=r"503.*kept, try again later"):
        fetch(server.url, target, sha256=SHA256)
    assert names(target) == ["file.bin.part"]
    server.plans = ["serve"]
    steps: list[int] = []
    fetch(server.url, target, sha256=SHA256, progress=lambda here, total: steps.append(here))
    assert target.read_bytes() == CONTENT
    assert server.requested_from == [0] + [400_000] * 4
    assert server.sent == len(CONTENT)
    assert steps[0] > 400_000


def test_a_process_killed_during_a_download_leaves_a_part_that_is_resumed(
    server: Server, target: Path
) -> None:
    server.plans = ["stall", "serve"]
    script = (
        "import sys; from pathlib import Path; from driftwise.datasets.download import fetch; "
        "fetch(sys.argv[1], Path(sys.argv[2]), md5='0' * 32)"
    )
    part = target.with_name("file.bin.part")
    with subprocess.Popen([sys.executable, "-c", script, server.url, str(target)]) as process:
        deadline = time.monotonic() + 30
        while not (part.exists() and part.stat().st_size == 300_000):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
    server.release.set()
    assert not target.exists()
    fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert server.requested_from == [0, 300_000]


@pytest.mark.parametrize(
    ("part", "size", "requested_from"),
    [
        (CONTENT + b"more", None, [len(CONTENT) + 4, 0]),  # the server's answer shows it
        (CONTENT + b"more", len(CONTENT), [0]),  # the size shows it
        (CONTENT, len(CONTENT), []),
        (OTHER[:1000], None, [1000, 0]),  # of another version: the checksum shows it
        (OTHER, len(CONTENT), [0]),
    ],
)
def test_a_part_is_used_only_if_it_is_the_beginning_of_the_file(
    server: Server, target: Path, part: bytes, size: int | None, requested_from: list[int]
) -> None:
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(part)
    fetch(server.url, target, sha256=SHA256, size=size)
    assert target.read_bytes() == CONTENT
    assert server.requested_from == requested_from
    assert names(target) == ["file.bin"]


REFUSED: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "sha256": (
        "serve",
        {"sha256": "0" * 64},
        f"expected sha256 {'0' * 64}, got {SHA256}; nothing was kept",
        1,
    ),
    "md5": ("serve", {"md5": "0" * 32}, f"expected md5 {'0' * 32}, got {MD5}", 1),
    "longer": (
        "serve",
        {"md5": MD5, "size": 1000},
        "expected 1000 bytes, the server has 1000003",
        1,
    ),
    "longer, no length": (
        "no length",
        {"md5": MD5, "size": 1000},
        "expected 1000 bytes, got more",
        1,
    ),
    "shorter": (
        "serve",
        {"md5": MD5, "size": 2_000_000},
        "expected 2000000 bytes, the server has",
        1,
    ),
    "missing": ("404", {"md5": MD5}, r"^cannot fetch http.*file.bin: .* 404 Not Found$", 1),
    "failing": ("500", {"md5": MD5}, "500 Internal Server Error", 4),
    "silent": ("hang", {"md5": MD5, "timeout": 0.2}, "no answer within 0.2 s; fetch it else", 1),
    "to a file": ("redirect file:///etc/hostname", {"md5": MD5}, "not allowed|unknown url", 1),
    "to ftp": ("redirect ftp://127.0.0.1/secret", {"md5": MD5}, "not allowed|unknown url", 1),
    "to data": ("redirect data:,secret", {"md5": MD5}, "not allowed|unknown url", 1),
}


@pytest.mark.parametrize(("plan", "options", "message", "tries"), REFUSED.values(), ids=REFUSED)
def test_a_failure_is_reported_in_one_line_and_leaves_nothing(
    server: Server, target: Path, plan: str, options: dict[str, Any], message: str, tries: int
) -> None:
    server.plans = [plan]
    with pytest.raises(UserError, match=message) as caught:
        fetch(server.url, target, **options)
    assert "\n" not in str(caught.value)
    assert names(target) == []
    assert server.requested_from == [0] * tries


def test_redirects_on_the_web_are_followed(server: Server, target: Path) -> None:
    server.plans = [f"redirect {server.url}?again", "serve"]
    fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_only_web_addresses_with_a_checksum_are_fetched(server: Server, target: Path) -> None:
    for url in ("file:///etc/hostname", "ftp://host/file", "host/file", ""):
        with pytest.raises(UserError, match="expected an address with http"):
            fetch(url, target, md5=MD5)
    with pytest.raises(ValueError, match="nothing is fetched without a checksum"):
        fetch(server.url, target)
    assert names(target) == []


def test_no_network_is_reported_at_once(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it must not try again"))
    with pytest.raises(UserError, match=r"no network \(Name or service not known\); fetch it else"):
        fetch("https://example.invalid/file", target, md5=MD5)
    assert names(target) == []


def test_a_refused_connection_is_reported_in_one_line(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "WAITS", (0.01,))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UserError, match=r"^cannot fetch [^\n]*: Connection refused$"):
        fetch(f"http://127.0.0.1:{port}/", target, md5=MD5)


def test_a_damaged_file_is_replaced_and_stays_if_that_fails(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"old")
    server.plans = ["404"]
    with pytest.raises(UserError):
        fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == b"old"
    server.plans = ["serve"]
    fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_callers_at_once_download_once(server: Server, target: Path) -> None:
    threads = [
        threading.Thread(target=fetch, args=(server.url, target), kwargs={"sha256": SHA256})
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() == CONTENT
    assert server.requested_from == [0]


def test_folders_in_the_way_are_reported_in_one_line(server: Server, target: Path) -> None:
    target.mkdir(parents=True)
    with pytest.raises(UserError, match=r"^cannot fetch [^\n]* is a folder$"):
        fetch(server.url, target, md5=MD5)
    other = target.with_name("other.bin")
    other.with_name("other.bin.part").mkdir()
    with pytest.raises(RunFailure, match=r"^cannot write [^\n]*other.bin.part: [^\n]*$"):
        fetch(server.url, other, md5=MD5)
