"""The HTTP API: what it takes, what it answers, what it refuses."""

from __future__ import annotations

import base64
import hmac
import io
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serve_tools import CHANGING, batch, open_service

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from driftwise.config.schema import RunConfig
from driftwise.errors import RunFailure
from driftwise.runs.run import run
from driftwise.runs.store import RESULT
from driftwise.serve import exchange, views
from driftwise.serve.access import COOKIE, Access
from driftwise.serve.api import make_app
from driftwise.serve.guard import OPEN, ROLE_OF, Rates
from driftwise.serve.service import Service
from driftwise.stats.kind_names import ACTIONS

ADMIN, LABELLER, READER = (
    "token-of-the-admin-0",
    "token-of-a-labeller-1",
    "token-for-predicting-2",
)
ACCESS = [
    ("eva", frozenset({"admin"}), ADMIN),
    ("anna", frozenset({"label"}), LABELLER),
    ("robot", frozenset({"predict", "observe"}), READER),
]
BASE = "http://127.0.0.1:8000"


def npy(x: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


def png(x: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(x.squeeze()).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """It has seen a drift, and waits for labels."""
    names = ("zero", "one", "two", "three", "four")
    with open_service(
        tmp_path_factory.mktemp("serve"), class_names=names, max_body=200_000, max_batch=50
    ) as service:
        for number in range(60):
            x, y = batch(number)
            service.observe(x, y if number < 35 else None).result(30)
        assert len(service.board)
        yield service


@pytest.fixture(scope="module")
def web(service: Service) -> TestClient:
    return TestClient(make_app(service), base_url=BASE)


@pytest.fixture(scope="module")
def guarded(service: Service) -> TestClient:
    app = make_app(service, access=Access(ACCESS), hosts=None)
    return TestClient(app, base_url="https://learn.example")


def message(response: Any) -> str:
    text: str = response.json()["error"]["message"]
    return text


def test_all_kinds_of_bodies_give_the_same_prediction(web: TestClient, service: Service) -> None:
    x, _ = batch(3)
    expected = service.live.predict(x).tolist()
    encoded = base64.b64encode(npy(x)).decode()
    many = {
        "json": web.post("/v1/predict", json={"x": x.tolist()}),
        "npy in json": web.post("/v1/predict", json={"x": {"npy": encoded}}),
        "npy": web.post(
            "/v1/predict", content=npy(x), headers={"content-type": "application/x-npy"}
        ),
        "form": web.post("/v1/predict", files=[("images", ("a", png(each))) for each in x]),
        "npy in form": web.post("/v1/predict", files={"x": ("x", npy(x))}),
    }
    for name, response in many.items():
        assert response.status_code == 200, (name, response.text)
        assert response.json()["predicted"] == expected, name
    one = [
        web.post("/v1/predict", json={"x": x[0].tolist()}),
        web.post("/v1/predict", content=png(x[0]), headers={"content-type": "image/png"}),
    ]
    for response in one:
        assert response.json()["predicted"] == expected[:1]
    found = one[0].json()
    assert found["names"] == [service.settings.class_names[expected[0]]]
    assert sum(found["probabilities"][0]) == pytest.approx(1, abs=1e-4)


def test_observe_and_late_labels(web: TestClient, service: Service) -> None:
    x, y = batch(61)
    before = service.live.num_samples
    body = {"x": x.tolist(), "y": [y[0], None, *y[2:]], "key": "once"}
    found = web.post("/v1/observe", json=body).json()
    assert found["ids"] == list(range(before, before + 10))
    assert web.post("/v1/observe", json=body).json()["ids"] == found["ids"]
    assert web.post("/v1/observe?wait=false", json={"x": x.tolist()}).status_code == 202
    late = {"ids": [found["ids"][1]], "labels": [y[1]]}
    assert web.post("/v1/labels?wait=true", json=late).status_code == 200
    assert web.post("/v1/labels", json={**late, "labels": [None]}).status_code == 202
    form = {"images": ("a", png(x[0]))}
    meta = {"meta": json.dumps({"y": [y[0]], "texts": ["a digit"]})}
    (number,) = web.post("/v1/observe", files=form, data=meta).json()["ids"]
    assert service.history.texts[number] == "a digit"
    probe = web.post("/v1/probe", json={"x": x.tolist(), "y": y}).json()
    assert 0 <= probe["correct"] <= probe["samples"] == 10


def test_two_labellers_are_never_shown_the_same(web: TestClient, service: Service) -> None:
    total = len(service.board)

    def lease(labeller: str, count: int = 4, held: tuple[int, ...] = ()) -> list[int]:
        body = {"labeller": labeller, "count": count, "held": held}
        found = web.post("/v1/requests/lease", json=body).json()
        assert found["open"] == total
        assert found["budget"] == 200
        return [card["id"] for card in found["cards"]]

    first, second = lease("a"), lease("b")
    assert len(first) == len(second) == 4
    assert not set(first) & set(second)
    assert lease("a") == first
    assert lease("a", 0, (first[2], second[0], 99_999)) == [first[2]]
    web.post("/v1/requests/skip", json={"labeller": "a", "id": first[0]})
    assert first[0] not in lease("a")
    assert first[0] in lease("c", 2)
    found: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.setdefault(n, lease(f"t{n}", 1)))
        for n in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    ids = [number for some in found.values() for number in some]
    assert len(ids) == len(set(ids)) == 4


def test_a_card_shows_what_the_model_believes_and_its_image(
    web: TestClient, service: Service
) -> None:
    (card,) = web.post("/v1/requests/lease", json={"labeller": "d"}).json()["cards"]
    assert len(card["beliefs"]) == 3
    assert card["beliefs"][0]["probability"] >= card["beliefs"][1]["probability"]
    picture = web.get(card["url"])
    sample = service.board.card(card["id"])
    assert sample is not None
    assert (np.array(Image.open(io.BytesIO(picture.content))) == sample.sample[:, :, 0]).all()
    assert web.get("/v1/requests/0/image").status_code == 404


def test_requests_come_and_answers_go_as_files(web: TestClient, service: Service) -> None:
    cards = service.board.cards()
    lines = web.get("/v1/requests?format=csv").text.splitlines()
    assert lines[0] == "id,predicted,name,confidence,text,label"
    assert len(lines) == len(cards) + 1
    jsonl = [json.loads(each) for each in web.get("/v1/requests?format=jsonl").text.splitlines()]
    assert [each["id"] for each in jsonl] == [card.id for card in cards]
    assert np.array(jsonl[0]["x"]).shape == (8, 8, 1)
    tasks = web.get("/v1/requests?format=label-studio").json()
    assert tasks[0]["data"]["image"].startswith("data:image/png;base64,")
    assert tasks[0]["predictions"][0]["result"][0]["value"]["choices"] == [
        service.settings.name_of(cards[0].predicted)
    ]
    for task in tasks[:2]:
        result = [{"type": "choices", "value": {"choices": ["four"]}}]
        task["annotations"] = [{"result": result}]
    files = {
        "text/csv": f"id,label\n{cards[2].id},three\n{cards[3].id},\n",
        "application/x-ndjson": f'{{"id": {cards[4].id}, "label": 1}}\n',
        "application/json": json.dumps(tasks),
    }
    counts = []
    for kind, content in files.items():
        answer = web.post(
            "/v1/labels/import", content=content.encode(), headers={"content-type": kind}
        )
        counts.append(answer.json()["labels"])
    assert counts == [1, 1, 2]
    left = {card.id for card in service.board.cards()}
    assert left == {card.id for card in cards} - {cards[each].id for each in (0, 1, 2, 4)}
    given = web.get("/v1/answers").json()["answers"]
    answered = [(cards[2].id, 3), (cards[4].id, 1), (cards[0].id, 4), (cards[1].id, 4)]
    assert [(each["id"], each["label"]) for each in given[-4:]] == answered
    assert {each["by"] for each in given} == {"local"}
    for kind, format in zip(exchange.IMPORT_TYPES, exchange.EXPORTS, strict=True):
        exported = web.get(f"/v1/answers?format={format}").content
        ids, labels = exchange.read_labels(exported, kind, service.settings)
        pairs = list(zip(ids, labels, strict=True))
        assert pairs[-4:] == answered, "what is exported can be imported"


def test_what_is_known_can_be_read(web: TestClient, service: Service) -> None:
    status = web.get("/v1/status").json()
    assert status["classes"] == [0, 1, 2, 3, 4]
    assert status["names"]["2"] == "two"
    verdicts = web.get("/v1/verdicts").json()["verdicts"]
    drifted = next(each for each in verdicts if each["drifted"])
    assert drifted["p_value"] <= drifted["threshold"]
    assert web.get(f"/v1/verdicts/{drifted['number']}/examples").headers["content-type"] == (
        "image/png"
    )
    values = web.get(f"/v1/verdicts/{drifted['number']}/values").json()
    assert [len(values["before"]), len(values["after"])] == drifted["examples"]
    assert {len(each) for each in values["before"]} == {64}
    assert values["texts"] is None
    dashboard = web.get("/v1/dashboard").json()
    assert drifted["kind"] in dashboard["actions"], "what to do about it"
    events = web.get("/v1/events").json()["events"]
    (told, *_) = (each["details"] for each in events if each["kind"] == "drifted")
    of_class = {each["class"]: each for each in told["kinds"]}
    assert sorted(of_class) == told["classes"]
    assert of_class[drifted["label"]]["kind"] == drifted["kind"]
    assert of_class[drifted["label"]]["action"] == ACTIONS[drifted["kind"]]
    assert of_class[drifted["label"]]["kind_evidence"] == drifted["kind_evidence"]
    for path in ("examples", "values"):
        assert web.get(f"/v1/verdicts/9999/{path}").status_code == 404
    last = verdicts[-1]["number"]
    assert web.get(f"/v1/verdicts?since={last}").json()["verdicts"] == []
    events = web.get("/v1/events?limit=5").json()["events"]
    assert [each["number"] for each in events] == list(
        range(events[0]["number"], events[0]["number"] + 5)
    )
    board = web.get("/v1/dashboard").json()
    # Nothing could be predicted of the first batch.
    assert sum(each["samples"] for each in board["points"]) == service.live.num_samples - 10
    assert {each["name"] for each in board["classes"]} >= {"zero", "four"}
    assert all(0 <= each["estimate"] <= 1 for each in board["points"][3:])
    assert web.get("/v1/dashboard?label=2").json()["points"]
    assert web.get("/v1/health").json() == {"alive": True}
    assert web.get("/v1/ready").json() == {"ready": True}
    assert web.get("/v1/runs").status_code == 404


def test_metrics_are_in_the_format_of_prometheus(web: TestClient) -> None:
    text = web.get("/metrics").text
    for line in text.splitlines():
        name, value = line.rsplit(" ", 1)
        assert line.startswith("# ") or (name.startswith("driftwise_") and float(value) >= 0), line
    assert 'driftwise_class_correct_total{class="three"}' in text
    assert 'driftwise_http_request_seconds_bucket{route="/v1/predict",le="+Inf"}' in text


def test_operation(web: TestClient, service: Service) -> None:
    assert web.post("/v1/pause", json={"reason": "tea"}).json()["paused"]
    assert web.get("/v1/status").json()["paused"]
    assert message(web.post("/v1/approve", json={})).startswith("adaptations are paused")
    assert web.post("/v1/resume", json={}).json()["mode"] == "auto"
    assert web.post("/v1/mode", json={"mode": "ask"}).json()["mode"] == "ask"
    assert web.post("/v1/dismiss", json={}).json()["held"] == []
    assert web.post("/v1/save", json={"reason": "before lunch"}).json()["saved"]
    (snapshot,) = web.get("/v1/snapshots").json()["snapshots"][-1:]
    assert web.post("/v1/rollback", json={"to": snapshot["number"]}).status_code == 200
    assert web.post("/v1/mode", json={"mode": "auto"}).status_code == 200
    audit = web.get("/v1/audit").json()["audit"]
    assert {"pause", "resume", "mode", "save", "rollback"} <= {each["action"] for each in audit}
    assert next(each for each in audit if each["action"] == "pause")["reason"] == "tea"


def huge_header() -> bytes:
    return b"\x93NUMPY\x01\x00" + (60_000).to_bytes(2, "little") + b" " * 60_000


JSON, NPY = {"content-type": "application/json"}, {"content-type": "application/x-npy"}


@pytest.mark.parametrize(
    ("path", "body", "headers", "code", "text"),
    [
        ("/v1/predict", b"{", JSON, 422, "no JSON"),
        ("/v1/predict", b"[" * 90_000, JSON, 422, "no JSON"),
        ("/v1/predict", b"[1]", JSON, 422, "a JSON object"),
        ("/v1/predict", b"{}", JSON, 422, "samples in x"),
        ("/v1/predict", b'{"x": [[1], [1, 2]]}', JSON, 422, "different lengths"),
        ("/v1/predict", b'{"x": ["a"]}', JSON, 422, "list of numbers"),
        ("/v1/predict", b'{"x": [NaN]}', JSON, 422, "not finite"),
        ("/v1/predict", b'{"x": [[300]]}', JSON, 422, "0 to 255"),
        ("/v1/predict", b'{"x": [[1]], "path": "/etc"}', JSON, 422, "unknown field 'path'"),
        ("/v1/predict", b'{"x": {"npy": "!"}}', JSON, 422, "no base64"),
        ("/v1/predict", b'{"x": {"pickle": ""}}', JSON, 422, "list of samples"),
        ("/v1/predict", b'{"x": [[1]], "dtype": "O"}', JSON, 422, "uint8 or float32"),
        ("/v1/predict", b"\x93NUMPY", NPY, 422, "no .npy file"),
        ("/v1/predict", huge_header(), NPY, 422, "no .npy file"),
        ("/v1/predict", npy(np.zeros((2, 3), dtype=complex)), NPY, 422, "file of numbers"),
        ("/v1/predict", npy(np.array([print])), NPY, 422, "file of numbers"),
        ("/v1/predict", npy(np.zeros((9, 9)))[:-1], NPY, 422, "announces 81 numbers"),
        ("/v1/predict", npy(np.zeros((2, 5))), NPY, 422, "of shape"),
        ("/v1/predict", npy(np.array(1.0)), NPY, 422, "got one number"),
        ("/v1/predict", b'{"x": 0, "dtype": "uint8"}', JSON, 422, "got one number"),
        ("/v1/observe", b'{"x": 0}', JSON, 422, "got one number"),
        ("/v1/predict", npy(np.zeros((60, 8, 8, 1), np.uint8)), NPY, 422, "at most 50"),
        ("/v1/predict", b"GIF89a", {"content-type": "image/gif"}, 422, "cannot use image"),
        ("/v1/predict", b"x", {"content-type": "text/plain"}, 415, "expected one of"),
        ("/v1/predict", b"x", {"content-type": "application/x-pickle"}, 415, "expected one of"),
        ("/v1/predict", b"x" * 200_001, JSON, 413, "at most 200,000 bytes"),
        ("/v1/observe", b'{"x": [], "y": ["a"]}', JSON, 422, "whole numbers"),
        ("/v1/observe", b'{"x": [], "y": [true]}', JSON, 422, "whole numbers"),
        ("/v1/observe", b'{"x": [], "key": ""}', JSON, 422, "up to 100"),
        ("/v1/observe", b'{"x": [], "texts": [1]}', JSON, 422, "list of texts"),
        ("/v1/labels", b'{"ids": [0], "labels": [0, 1]}', JSON, 422, "each of 1"),
        ("/v1/labels", b'{"ids": [99999], "labels": [0]}', JSON, 422, "has not come"),
        ("/v1/labels", b'{"ids": ["x"], "labels": [0]}', JSON, 422, "body.ids.0"),
        ("/v1/labels", b'{"ids": [1], "labels": [1], "x": 1}', JSON, 422, "not permitted"),
        ("/v1/labels/import", b"a,b\n1,2", {"content-type": "text/csv"}, 422, "id and label"),
        ("/v1/labels/import", b"id,label\n1,x", {"content-type": "text/csv"}, 422, "unknown class"),
        ("/v1/labels/import", b'[{"data": 1}]', JSON, 422, "driftwise_id"),
        ("/v1/labels/import", b"\xff", {"content-type": "text/csv"}, 422, "no UTF-8"),
        ("/v1/requests/lease", b'{"labeller": "a", "count": -1}', JSON, 422, "greater than"),
        ("/v1/mode", b'{"mode": "sure"}', JSON, 422, "should be 'auto'"),
        ("/v1/approve", b'{"classes": [99]}', JSON, 409, "does not wait"),
        ("/v1/rollback", b'{"to": 12345}', JSON, 422, "no snapshot 12345"),
        ("/v1/../etc/passwd", b"", {}, 404, "Not Found"),
        ("/static/../service.py", b"", {}, 404, ""),
    ],
)
def test_refusals(
    web: TestClient, path: str, body: bytes, headers: dict[str, str], code: int, text: str
) -> None:
    response = web.post(path, content=body, headers=headers)
    if path.startswith("/static"):
        response = web.get(path)
    assert response.status_code == code, response.text
    assert text in message(response)
    assert "Traceback" not in response.text


def test_an_image_that_would_explode_is_refused(web: TestClient) -> None:
    file = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(file, "PNG")
    headers = {"content-type": "image/png"}
    response = web.post("/v1/predict", content=file.getvalue(), headers=headers)
    assert response.status_code == 422
    assert "pixels" in message(response)


def test_small_bodies_that_would_take_much_memory_are_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("RGB", (500, 500)).save(file, "PNG")
    images = [("images", ("a.png", file.getvalue(), "image/png"))]
    lists = b'{"x": [' + b"[]," * 2**22 + b"[]]}"
    with open_service(tmp_path, max_decoded=2_000_000) as service:
        web = TestClient(make_app(service), base_url=BASE)
        assert "bytes" not in message(web.post("/v1/predict", files=images * 2))
        refused = web.post("/v1/predict", files=images * 3)
        assert "3 images of 500 x 500 pixels take more than 2,000,000 bytes" in message(refused)
        assert "send less at once" in message(web.post("/v1/predict", content=lists, headers=JSON))
        table = b"1,1\n" * (2**23 + 1)
        kind = {"content-type": "text/csv"}
        response = web.post("/v1/labels/import", content=table, headers=kind)
        assert (response.status_code, "less at once" in message(response)) == (422, True)
        response = web.post("/v1/labels", content=b'{"ids": [' + b"[]," * 2**21, headers=JSON)
        assert response.status_code == 413
        form = "application/x-www-form-urlencoded"
        response = web.post("/login", content=b"a" * 10_001, headers={"content-type": form})
        assert response.status_code == 413


def test_bodies_have_a_limit_of_bytes_together_and_short_ones_are_always_taken(
    tmp_path: Path,
) -> None:
    with open_service(tmp_path, max_bodies=300_000) as service:
        service.observe(*batch(0)).result(30)
        app = make_app(service)
        web = TestClient(app, base_url=BASE)
        long = {"x": [[0] * 100_000]}
        assert web.post("/v1/predict", json=long).status_code != 503
        app._bodies.held += 100_000  # another one's, which is being received
        refused = web.post("/v1/predict", json=long)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "at once" in message(refused)
        assert web.post("/v1/predict", json={"x": CHANGING.images[:2].tolist()}).is_success
        assert app._bodies.held == 100_000


def test_half_a_character_in_a_text_can_be_saved_and_exported(tmp_path: Path) -> None:
    x, y = batch(0)
    body = json.dumps({"x": x.tolist(), "y": y, "texts": ["half \ud83d"] * len(x)}).encode()
    with open_service(tmp_path) as service:
        web = TestClient(make_app(service), base_url=BASE)
        assert web.post("/v1/observe", content=body, headers=JSON).status_code == 200
        assert set(service.history.texts.values()) == {"half ?"}
        key = web.post("/v1/observe", content=b'{"x": [], "key": "\\ud83d"}', headers=JSON)
        assert key.status_code == 422


@pytest.mark.parametrize(
    ("token", "method", "path", "code"),
    [
        (None, "GET", "/v1/status", 401),
        ("wrong-token-of-some-length", "GET", "/v1/status", 401),
        (READER, "GET", "/v1/status", 200),
        (READER, "GET", "/metrics", 200),
        (READER, "GET", "/v1/requests", 403),
        (READER, "POST", "/v1/pause", 403),
        (READER, "GET", "/v1/audit", 403),
        (LABELLER, "GET", "/v1/requests", 200),
        (LABELLER, "POST", "/v1/predict", 403),
        (LABELLER, "GET", "/inbox", 200),
        (ADMIN, "GET", "/v1/requests", 200),
        (ADMIN, "GET", "/v1/audit", 200),
        (None, "GET", "/v1/health", 200),
        (None, "GET", "/login", 200),
        (None, "GET", "/static/pages.css", 200),
    ],
)
def test_roles(guarded: TestClient, token: str | None, method: str, path: str, code: int) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    body: dict[str, str] | None = {} if method == "POST" else None
    assert guarded.request(method, path, headers=headers, json=body).status_code == code


def test_a_token_is_compared_with_all_others_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(given: bytes, known: bytes) -> bool:
        compared.append((given, known))
        return given == known

    known = Access(ACCESS)
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for token in (ADMIN, READER, ADMIN[:-1], "", "ü" * 30):
        compared.clear()
        known.caller({"authorization": f"Bearer {token}"}, {})
        assert len(compared) == len(ACCESS), "whichever fits"
        assert {len(each) for pair in compared for each in pair} == {32}, "digests of one length"


def test_every_route_has_a_role(service: Service) -> None:
    app = make_app(service)._app
    for route in app.routes:  # type: ignore[attr-defined]
        for method in getattr(route, "methods", None) or ():
            known = (("GET" if method == "HEAD" else method), route.path) in ROLE_OF
            assert known or route.path in OPEN, (method, route.path)


def test_a_browser_logs_in_and_needs_the_token_of_its_page(guarded: TestClient) -> None:
    page = guarded.get("/", headers={"accept": "text/html"}, follow_redirects=False)
    assert (page.status_code, page.headers["location"]) == (303, "/login")
    assert guarded.post("/login", data={"token": "wrong"}).status_code == 403
    done = guarded.post("/login", data={"token": ADMIN}, follow_redirects=False)
    cookie = done.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Secure"))
    assert guarded.get("/v1/status").status_code == 200
    refused = guarded.post("/v1/save", json={})
    assert (refused.status_code, refused.json()["error"]["kind"]) == (403, "csrf")
    html = guarded.get("/").text
    token = html.partition('name="csrf" content="')[2].partition('"')[0]
    assert guarded.post("/v1/save", json={}, headers={"x-csrf-token": token}).status_code == 200
    assert guarded.post("/logout", headers={"x-csrf-token": token}).status_code == 204
    guarded.cookies.set(COOKIE, cookie.partition("=")[2].partition(";")[0])
    assert guarded.get("/v1/status").status_code == 401
    guarded.cookies.clear()


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"origin": BASE}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "localhost:8000"}, 200),
    ],
)
def test_changes_from_other_pages_and_hosts_are_refused(
    web: TestClient, headers: dict[str, str], code: int
) -> None:
    assert web.post("/v1/save", json={}, headers=headers).status_code == code


def test_answers_carry_safe_headers(web: TestClient) -> None:
    for response in (web.get("/"), web.get("/v1/nothing"), web.get("/v1/status")):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"


def test_a_client_has_a_rate_and_others_have_their_own(
    web: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    rates = Rates(5, clock=lambda: now[0])
    assert [rates.allows("a") for _ in range(12)] == [True] * 10 + [False] * 2
    assert rates.allows("b")
    now[0] = 0.4
    assert [rates.allows("a") for _ in range(3)] == [True, True, False]
    monkeypatch.setattr(Rates, "allows", lambda *_: False)
    refused = web.get("/v1/health")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


def test_a_body_that_comes_too_slowly_or_without_end_is_cut_off(tmp_path: Path) -> None:
    with open_service(tmp_path, body_seconds=0.2, max_body=1000) as service:
        web = TestClient(make_app(service), base_url=BASE)
        endless = web.post("/v1/predict", content=(b"x" * 600 for _ in range(3)), headers=JSON)
        assert endless.status_code == 413

        async def slow() -> Any:
            import asyncio

            await asyncio.sleep(5)
            return {"type": "http.request", "body": b"", "more_body": False}

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/predict",
            "raw_path": b"/v1/predict",
            "query_string": b"",
            "scheme": "http",
            "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        }
        import asyncio

        asyncio.run(make_app(service)(scope, slow, send))
        assert sent[0]["status"] == 408


def test_an_unforeseen_error_shows_nothing_of_itself(
    web: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(service, "predict", fail)
    response = web.post("/v1/predict", json={"x": CHANGING.images[:1].tolist()})
    assert response.status_code == 500
    assert response.json()["error"]["kind"] == "internal"
    assert "secret" not in response.text


def test_tokens_are_in_no_log_no_file_and_no_answer(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = "token-of-a-stranger-3"
    web = TestClient(make_app(service, access=Access(ACCESS), hosts=None), base_url=BASE)
    answers = []
    for token in (ADMIN, unknown):
        headers = {"authorization": f"Bearer {token}"}
        answers.append(web.get("/v1/audit", headers=headers))
        answers.append(web.post("/v1/save", json={}, headers=headers))
        answers.append(web.post("/login", data={"token": token}))
        web.cookies.clear()
    headers = {"authorization": f"Bearer {ADMIN}"}
    answers.append(web.post("/v1/mode", json={"mode": "none"}, headers=headers))
    monkeypatch.setattr(service, "predict", None)  # an error that nobody has foreseen
    body = {"x": CHANGING.images[:1].tolist()}
    answers.append(web.post("/v1/predict", json=body, headers=headers))
    assert [each.status_code for each in answers] == [200, 200, 200, 401, 401, 403, 422, 500]
    files = [each.read_bytes() for each in service.folder.rglob("*") if each.is_file()]
    assert len(files) > 3
    for token in (ADMIN, unknown):
        assert token not in caplog.text
        assert not any(token.encode() in content for content in files)
        assert not any(token in each.text for each in answers)


def test_what_cannot_be_logged_is_refused_with_503(
    web: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> int:
        raise RunFailure("no space left on the disk")

    before = service.view["applied"]
    monkeypatch.setattr(service._log, "append", fail)
    x, y = batch(0)
    for path, body in (
        ("/v1/observe", {"x": x.tolist(), "y": y}),
        ("/v1/labels", {"ids": [0], "labels": [1]}),
        ("/v1/pause", {}),
    ):
        response = web.post(path, json=body)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert "no space left" in message(response)
    monkeypatch.undo()
    assert web.post("/v1/pause", json={}).json()["number"] == before + 1, "nothing had happened"


def test_the_content_types_of_answers_are_documented(web: TestClient) -> None:
    paths = web.get("/openapi.json").json()["paths"]
    for path, place in (
        ("/metrics", "/metrics"),
        ("/v1/requests", "/v1/requests?format=csv"),
        ("/v1/status", "/v1/status"),
    ):
        documented = paths[path]["get"]["responses"]["200"]["content"]
        assert web.get(place).headers["content-type"].partition(";")[0] in documented


def test_runs_are_shown_as_done_running_stopped_and_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = tmp_path / "sweep"
    run(RunConfig(num_tasks=2, epochs=1), sweep / "runs" / "done")
    for name in ("busy", "stopped", "failed"):
        shutil.copytree(sweep / "runs" / "done", sweep / "runs" / name)
        (sweep / "runs" / name / RESULT).unlink()
    (sweep / "failures").mkdir()
    for name in ("failed", "never-began"):
        note = json.dumps({"attempts": [{"error": "first"}, {"error": "no such data set"}]})
        (sweep / "failures" / f"{name}.json").write_text(note)
    monkeypatch.setattr(views, "is_busy", lambda path: path.name == "busy")
    lines = {line["name"]: line for line in views.RunsView(tmp_path).list()}
    states = {name.removeprefix("sweep/runs/"): line["state"] for name, line in lines.items()}
    assert states == {
        "done": "done",
        "busy": "running",
        "stopped": "stopped",
        "failed": "failed",
        "never-began": "failed",
    }
    assert lines["sweep/runs/failed"]["note"] == "no such data set"
    assert len(lines["sweep/runs/done"]["points"]) == 2


def test_without_a_learner_the_runs_are_the_first_page(service: Service, tmp_path: Path) -> None:
    app = make_app(service, runs=views.RunsView(tmp_path, alone=True))
    page = TestClient(app, base_url=BASE).get("/")
    assert page.url.path == "/runs"
    assert "Inbox" not in page.text
