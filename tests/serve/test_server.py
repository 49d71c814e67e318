"""The command and its client: started, killed, started again, over a real socket."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from PIL import Image
from serve_kill import kill_and_compare
from serve_tools import CHANGING, batch, served
from serve_tools import open_service as small_service

import driftwise
from driftwise.cli.main import command
from driftwise.errors import RunFailure, UserError
from driftwise.serve import Address, Learning, ServiceError
from driftwise.serve.server import _all_bound, _bound, open_service

pytest.importorskip("uvicorn")

from driftwise.serve import connections
from driftwise.serve.api import make_app

COMMAND = [sys.executable, "-m", "driftwise", "serve", "--port", "0"]
BAD_TLS = ["--tls-cert", __file__, "--tls-key", __file__]
MLP = ["--network", "mlp", "--set", "detector=mmd", "--set", "check_rows=20"]


@contextlib.contextmanager
def serving(
    *flags: str, verify: Path | None = None, errors: IO[str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], driftwise.Client]]:
    """A server process, and a client of it."""
    process = subprocess.Popen(
        [*COMMAND, *flags],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    try:
        line = ""
        while not line.startswith("serving at "):
            line = process.stdout.readline()
            assert line, "the server ended"
        url = line.removeprefix("serving at ").strip()
        with driftwise.Client(url, verify=verify) as client:
            client.wait_until_ready()
            yield process, client
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def test_killed_under_load_it_has_all_that_was_acknowledged(tmp_path: Path) -> None:
    found = kill_and_compare(
        tmp_path, kills=1, seconds=0.7, clients=2
    )  # 50: benchmarks/serve_kill.py
    assert found["requests"] > 0
    assert (found["lost"], found["applied twice"], found["differences in the state"]) == (0, 0, 0)


def test_the_client_speaks_to_the_server(tmp_path: Path) -> None:
    flags = [*MLP, "--folder", str(tmp_path / "state")]
    with (tmp_path / "errors").open("w") as errors, serving(*flags, errors=errors) as served:
        process, client = served
        for number in range(4):
            x, y = batch(number)
            seen = client.observe(x, y if number < 3 else None)
        client.label(seen.ids[:3], y[:3])
        status = client.status()
        assert (status["samples"], status["applied"]) == (40, 5)
        assert client.observe(*batch(4)).ids == list(range(40, 50))
        with pytest.raises(ServiceError, match="has not come yet") as error:
            client.label([99], [0])
        assert error.value.status == 422
        client.save("test")
        assert [each["reason"] for each in client.snapshots()][-1] == "request"
        client.set_mode("ask", "careful")
        client.pause()
        client.resume()
        client.approve()
        client.dismiss()
        client.roll_back(client.snapshots()[-1]["number"])
        assert client.status()["mode"] == "ask"
        predicted = client.predict(CHANGING.images[:4])
        assert predicted.predicted.shape == (4,)
        assert predicted.probabilities.shape[0] == 4
        assert client.predict(CHANGING.images[0]).predicted.shape == (1,)
        Image.fromarray(CHANGING.images[0, :, :, 0]).save(tmp_path / "a.png")
        files = client.predict_files([tmp_path / "a.png"] * 2)
        assert (files.predicted == predicted.predicted[0]).all()
        assert 0 <= client.probe(*batch(7)) <= 1
        assert client.requests() == []
        assert "driftwise_samples_total 50" in client.metrics()
        assert client.events()[-1]["kind"] == "rolled_back"
        assert client.verdicts() == []
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", client._port or 0)) as open:
            open.request("GET", "/v1/stream")
            assert open.getresponse().readline().startswith(b"data: ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0  # finished and saved
    assert "exceeded" not in (tmp_path / "errors").read_text(), "no open page is waited for"


def test_a_network_of_ones_own_and_a_model_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5))\n"
    )
    monkeypatch.chdir(tmp_path)
    learning = Learning(network="my_networks:make")
    with learning.make(tmp_path / "a") as live:
        live.observe(*batch(0))
    with learning.load(tmp_path / "a") as live:
        assert live.num_samples == 10
    config = driftwise.RunConfig(num_tasks=2, epochs=1)
    driftwise.run(config, tmp_path / "run")
    model = Learning(model=tmp_path / "run")
    assert model.class_names() == tuple(map(str, range(10)))
    with model.make(tmp_path / "b") as live:
        expected = driftwise.load(tmp_path / "run").predict(CHANGING.images[:50])
        assert (live.predict(CHANGING.images[:50]) == expected).all()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--network", "mlp"], "--folder says where"),
        (["--folder", "x"], "either a network"),
        (["--network", "mlp", "--folder", "x", "--host", "0.0.0.0"], "other machines"),
        (["--network", "mlp", "--folder", "x", "--tls-cert", "c"], "go together"),
        (["--network", "mlp", "--folder", "x", "--port", "70000"], "from 0 to 65535"),
        (["--network", "mlp", "--folder", "x", *BAD_TLS], "no certificate"),
        (["--network", "nlp", "--folder", "x"], "did you mean 'mlp'"),
        (["--network", "mlp", "--folder", "x", "--set", "lr"], "NAME=VALUE"),
        (["--network", "mlp", "--folder", "x", "--set", "lerning=1"], "setting of a live learner"),
        (["--network", "mlp", "--folder", "x", "--tokens", "none"], "cannot read the tokens"),
        (["--runs", "none"], "is no folder"),
        (["demo", "--network", "mlp"], "brings its own"),
        (["demo", "--set", "label_budget=9"], "settings of its own"),
        (["demo", "--port", "65536"], "got 65536"),
        (["dmeo"], "demo"),
    ],
)
def test_refusals(
    flags: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(["serve", *flags]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no token"),
        ("admin eva", "got 2 words"),
        ("king eva 12345678901234567890", "unknown role 'king'"),
        ("admin eva short", "at least 20 letters"),
    ],
)
def test_refused_token_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(UserError, match=message) as error:
        Address(tokens=tmp_path / "tokens").access()
    assert "short" not in str(error.value)


def test_tokens_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(
        "# who\nadmin eva 12345678901234567890\npredict,observe bot abcdefghijklmnopqrstu # x\n"
    )
    access = Address(host="0.0.0.0", tokens=tmp_path / "tokens").access()
    caller = access.caller({"authorization": "Bearer abcdefghijklmnopqrstu"}, {})
    assert caller is not None
    assert (caller.name, caller.may("observe"), caller.may("label")) == ("bot", True, False)
    assert access.caller({"authorization": "Bearer abcdefghijklmnopqrst"}, {}) is None
    assert access.caller({"authorization": "Basic abcdefghijklmnopqrstu"}, {}) is None


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_tls_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*make, *names], check=True, capture_output=True)
    tls = ["--tls-cert", str(cert), "--tls-key", str(key), "--workers", "1"]
    with serving(*MLP, "--folder", str(tmp_path / "state"), *tls, verify=cert) as (_, client):
        seen = client.observe(*batch(0))
        assert client.predict(CHANGING.images[:1]).applied == seen.number
        with pytest.raises(RunFailure, match="no answer"):
            driftwise.Client(f"http://127.0.0.1:{client._port}", retries=0).status()


def test_a_client_needs_a_url() -> None:
    with pytest.raises(UserError, match="such as http"):
        driftwise.Client("localhost")
    with pytest.raises(UserError, match="arrays of numbers"):
        driftwise.Client().predict(np.array(["a"]))


@pytest.mark.parametrize("odd", [1.5, "3", float("inf"), True, [1]])
def test_a_client_sends_whole_numbers_as_ids_and_labels(odd: Any) -> None:
    client = driftwise.Client("http://127.0.0.1:9", retries=0)  # nothing listens there
    with pytest.raises(UserError, match="a label is a whole number"):
        client.label([0], [odd])
    with pytest.raises(UserError, match="an id is a whole number"):
        client.label([odd], [0])
    with pytest.raises(RunFailure, match="no answer"):
        client.label(np.array([0.0]), np.array([2]))


def test_the_client_does_not_load_torch() -> None:
    code = "import sys, driftwise; driftwise.Client(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_answers_are_sent_without_delay() -> None:
    with _bound(Address(port=0)) as listener:  # asyncio looks at this before it sets TCP_NODELAY
        assert listener.proto == socket.IPPROTO_TCP
    with _bound(Address(port=0)) as listener:
        listener.listen()
        taken = Address(port=listener.getsockname()[1])
        with pytest.raises(RunFailure, match="cannot listen on"):
            _bound(taken)


@pytest.mark.parametrize("workers", [0, 2])
def test_connections_are_taken_before_it_says_where_it_serves(workers: int) -> None:
    listeners = _all_bound(Address(port=0), workers)
    try:
        port = listeners[0].getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    finally:
        for listener in listeners:
            listener.close()


def test_settings_and_a_network_that_a_folder_does_not_have_are_refused(tmp_path: Path) -> None:
    made = Learning(network="mlp", settings={"label_budget": 7})
    with open_service(tmp_path, made, mode="ask") as service:
        service.observe(*batch(0)).result(30)
    with open_service(tmp_path, Learning(network="mlp"), mode="ask") as same:
        assert same.notes == []
    with open_service(tmp_path, made, mode="auto") as again:
        assert again.live.mode == "ask"
        assert again.notes == ["it goes on in the mode ask; the mode auto is of a new service"]
    for network, settings, message in (
        ("mlp", {"label_budget": 8}, "has label_budget 7, not 8"),
        ("cnn", {}, "has backbone mlp, not cnn"),
        ("mlp", {"lerning": 8}, "setting of a live learner"),
    ):
        with pytest.raises(UserError, match=message):
            open_service(tmp_path, Learning(network=network, settings=settings))


def test_a_connection_without_the_head_of_a_request_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    body = b"{}"
    whole = b"GET /v1/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    slow = b"POST /v1/save HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    slow += b"content-length: 2\r\n\r\n"
    with (
        small_service(tmp_path) as service,
        served(make_app(service), http=connections.Connection) as url,
    ):
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        for first in (b"", whole[:20]):
            with socket.create_connection(address) as client:
                client.settimeout(30)
                client.sendall(first)
                assert client.recv(1000) == b"", "it was cut off"
        with socket.create_connection(address) as client:
            client.settimeout(30)
            for _ in range(2):  # it may be used again
                client.sendall(whole)
                assert client.recv(1000).startswith(b"HTTP/1.1 200")
            client.sendall(slow)
            time.sleep(0.5)  # a body has its own limit
            client.sendall(body)
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
