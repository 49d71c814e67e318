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
    """What the server does, and what it was asked; every plan but the last is used once."""

    url: str
    content: bytes = CONTENT
    plans: list[str] = field(default_factory=lambda: ["serve"])
    etag: str | None = '"one"'
    asked_from: list[int] = field(default_factory=list)
    if_range: list[str | None] = field(default_factory=list)
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
        state.asked_from.append(start)
        state.if_range.append(self.headers.get("If-Range"))
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
        changed = self.headers.get("If-Range") not in (None, state.etag)
        if plan == "ignore range" or (changed and plan != "ignore if-range"):
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
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
        if state.etag:
            self.send_header("ETag", state.etag)
        if plan != "no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        stops_at = {"drop": 400_000 - start, "stall": 300_000 - start}.get(plan, len(body))
        self.wfile.write(body[:stops_at])
        self.wfile.flush()
        state.sent += len(body[:stops_at])
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
    assert server.asked_from == [0]
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert steps == sorted(steps)


@pytest.mark.parametrize("known", [True, False], ids=["checksum", "no checksum"])
def test_a_dropped_connection_is_resumed_and_no_byte_comes_twice(
    server: Server, target: Path, known: bool
) -> None:
    server.plans = ["drop", "serve"]
    fetch(server.url, target, sha256=SHA256 if known else None)
    assert target.read_bytes() == CONTENT
    assert server.asked_from == [0, 400_000]
    assert server.sent == len(CONTENT)
    assert names(target) == ["file.bin"]


@pytest.mark.parametrize("name", ["file.bin.part", "file.bin.part.version", ".file.bin.lock"])
@pytest.mark.parametrize("content", [None, CONTENT[:1000]])
def test_nothing_is_downloaded_through_a_link(
    server: Server, target: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    victim = tmp_path / "victim"
    if content is not None:
        victim.write_bytes(content)
    target.parent.mkdir(parents=True, exist_ok=True)
    (target.parent / name).symlink_to(victim)
    with contextlib.suppress(RunFailure):  # a link in the way is refused, or gives way
        fetch(server.url, target, sha256=SHA256)
        assert target.read_bytes() == CONTENT
    assert (victim.read_bytes() if victim.exists() else None) == content


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(server: Server, target: Path) -> None:
    server.plans = ["drop", "503"]
    with pytest.raises(UserError, match=r"503.*kept, try again later"):
        fetch(server.url, target, sha256=SHA256)
    assert names(target) == ["file.bin.part", "file.bin.part.version"]
    server.plans = ["serve"]
    steps: list[int] = []
    fetch(server.url, target, sha256=SHA256, progress=lambda here, total: steps.append(here))
    assert target.read_bytes() == CONTENT
    assert server.asked_from == [0] + [400_000] * 4
    assert server.sent == len(CONTENT)
    assert steps[0] > 400_000
    assert names(target) == ["file.bin"]


def test_a_process_killed_during_a_download_leaves_a_part_that_is_resumed(
    server: Server, target: Path
) -> None:
    server.plans = ["stall", "serve"]
    script = (
        "import sys; from pathlib import Path; from driftwise.datasets.download import fetch; "
        "fetch(sys.argv[1], Path(sys.argv[2]))"
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
    assert server.asked_from == [0, 300_000]
    assert names(target) == ["file.bin"]


def test_a_server_that_ignores_ranges_is_read_from_the_beginning(
    server: Server, target: Path
) -> None:
    server.plans = ["drop", "ignore range"]
    fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert server.asked_from == [0, 400_000]


@pytest.mark.parametrize("plan", ["serve", "ignore if-range"])
def test_two_versions_of_a_file_are_never_spliced(server: Server, target: Path, plan: str) -> None:
    server.plans = ["drop", "500"]
    with pytest.raises(UserError):
        fetch(server.url, target)
    server.content, server.etag, server.plans = OTHER, '"two"', [plan]
    fetch(server.url, target)
    assert target.read_bytes() == OTHER
    assert server.if_range[-2:] in (['"one"', '"one"'], ['"one"', None])


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_version_or_a_checksum_nothing_is_resumed(
    server: Server, target: Path, etag: str | None
) -> None:
    server.etag, server.plans = etag, ["drop", "serve"]
    fetch(server.url, target)
    assert server.asked_from == [0, 0]
    assert target.read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(server: Server, target: Path) -> None:
    target.parent.mkdir()
    part = target.with_name("file.bin.part")
    part.write_bytes(CONTENT + b"more")
    fetch(server.url, target, sha256=SHA256)  # found out by the server's answer
    assert target.read_bytes() == CONTENT
    target.unlink()
    part.write_bytes(CONTENT + b"more")
    fetch(server.url, target, sha256=SHA256, size=len(CONTENT))  # found out by the size
    assert target.read_bytes() == CONTENT
    assert server.asked_from == [len(CONTENT) + 4, 0, 0]


def test_a_complete_part_only_needs_to_be_put_in_place(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(CONTENT)
    fetch(server.url, target, sha256=SHA256, size=len(CONTENT))
    assert target.read_bytes() == CONTENT
    assert server.asked_from == []


@pytest.mark.parametrize(
    ("sums", "told"),
    [
        ({"sha256": SHA256}, f"expected sha256 {SHA256}, got {hashlib.sha256(OTHER).hexdigest()}"),
        ({"md5": MD5}, f"expected md5 {MD5}, got {hashlib.md5(OTHER).hexdigest()}"),
    ],
)
def test_wrong_content_is_told_and_removed(
    server: Server, target: Path, sums: dict[str, str], told: str
) -> None:
    server.content = OTHER
    with pytest.raises(UserError, match=told):
        fetch(server.url, target, sha256=sums.get("sha256"), md5=sums.get("md5"))
    assert names(target) == []
    assert server.asked_from == [0]


@pytest.mark.parametrize("plan", ["serve", "no length"])
def test_a_file_longer_than_expected_is_refused_early(
    server: Server, target: Path, plan: str
) -> None:
    server.plans = [plan]
    with pytest.raises(UserError, match=r"expected 1000 bytes, (got more|the server has 1000003)"):
        fetch(server.url, target, size=1000)
    assert names(target) == []


def test_a_file_shorter_than_expected_is_refused(server: Server, target: Path) -> None:
    with pytest.raises(UserError, match="expected 2000000 bytes, the server has 1000003"):
        fetch(server.url, target, size=2_000_000)
    assert names(target) == []


def test_a_body_of_unknown_length_is_taken_as_it_comes(server: Server, target: Path) -> None:
    server.plans = ["no length"]
    fetch(server.url, target, sha256=SHA256, size=len(CONTENT))
    assert target.read_bytes() == CONTENT


def test_a_missing_file_is_told_at_once_in_one_line(server: Server, target: Path) -> None:
    server.plans = ["404"]
    with pytest.raises(UserError, match=r"^cannot fetch http.*file.bin: .* 404 Not Found$"):
        fetch(server.url, target)
    assert server.asked_from == [0]
    assert names(target) == []


@pytest.mark.parametrize("code", ["500", "503", "429"])
def test_a_passing_failure_of_the_server_is_waited_out(
    server: Server, target: Path, code: str
) -> None:
    server.plans = [code, code, "serve"]
    fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_a_lasting_failure_of_the_server_is_told_after_three_more_tries(
    server: Server, target: Path
) -> None:
    server.plans = ["500"]
    with pytest.raises(UserError, match="500 Internal Server Error"):
        fetch(server.url, target)
    assert server.asked_from == [0] * 4
    assert names(target) == []


def test_a_server_that_never_answers_is_given_up_after_the_timeout(
    server: Server, target: Path
) -> None:
    server.plans = ["hang"]
    before = time.monotonic()
    with pytest.raises(UserError, match=r"no answer within 0.2 s; fetch it elsewhere"):
        fetch(server.url, target, timeout=0.2)
    assert time.monotonic() - before < 2
    assert names(target) == []


def test_a_transfer_that_stalls_is_resumed_after_the_timeout(server: Server, target: Path) -> None:
    server.plans = ["stall", "serve"]
    fetch(server.url, target, timeout=0.2)
    assert target.read_bytes() == CONTENT
    assert server.asked_from == [0, 300_000]
    assert server.sent == len(CONTENT)


def test_redirects_lead_to_the_web_only(server: Server, target: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for elsewhere in (secret.as_uri(), "ftp://127.0.0.1/secret", "data:,secret"):
        server.plans = [f"redirect {elsewhere}"]
        with pytest.raises(
            UserError, match=r"^cannot fetch http.*(not allowed|unknown url)[^\n]*$"
        ):
            fetch(server.url, target)
        assert names(target) == []
    server.plans = [f"redirect {server.url}?again", "serve"]
    fetch(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://host/file", "host/file", ""])
def test_only_web_addresses_are_fetched(target: Path, url: str) -> None:
    with pytest.raises(UserError, match="expected an address with http"):
        fetch(url, target)
    assert names(target) == []


def test_no_network_is_told_at_once(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    before = time.monotonic()
    with pytest.raises(UserError, match=r"no network \(Name or service not known\); fetch it else"):
        fetch("https://example.invalid/file", target)
    assert time.monotonic() - before < 0.4  # less than the first wait between tries
    assert names(target) == []


def test_a_refused_connection_is_told_in_one_line(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "WAITS", (0.01,))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UserError, match=r"^cannot fetch [^\n]*: Connection refused$"):
        fetch(f"http://127.0.0.1:{port}/", target)


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


def test_two_at_once_fetch_it_once(server: Server, target: Path) -> None:
    threads = [
        threading.Thread(target=fetch, args=(server.url, target), kwargs={"sha256": SHA256})
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() == CONTENT
    assert server.asked_from == [0]
    assert names(target) == ["file.bin"]


def test_folders_in_the_way_are_told_in_one_line(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        fetch(server.url, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RunFailure, match=r"^cannot write [^\n]*$"):
        fetch(server.url, tmp_path / "file" / "inside")
    assert server.asked_from == []
