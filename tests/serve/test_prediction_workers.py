"""Prediction workers: they predict as the learner does, follow it, and may be killed."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from serve_tools import CHANGING, batch, open_service
from test_server import MLP, serving

import driftwise
from driftwise.live import LiveLearner
from driftwise.live.portable import packed, unpacked
from driftwise.serve.access import Access
from driftwise.serve.prediction_batches import Batches
from driftwise.serve.service import no_labels_yet
from driftwise.serve.shared_snapshot import FilePublisher, Follower

pytest.importorskip("uvicorn")


@pytest.mark.parametrize("network", ["mlp", "cnn"])
@pytest.mark.parametrize("settings", [{}, {"normalise": True}])
def test_a_packed_snapshot_predicts_as_the_learner_does(
    network: str, settings: dict[str, object]
) -> None:
    live = LiveLearner(network, labels=no_labels_yet, **settings)  # type: ignore[arg-type]
    for number in range(3):
        live.observe(*batch(number))
    predictor = live.predictor_snapshot()
    assert predictor is not None
    version, copy = unpacked(bytearray(b"".join(packed(predictor, 7))))
    images = CHANGING.images[:20]
    assert version == 7
    np.testing.assert_allclose(copy.predict_proba(images), live.predict_proba(images), atol=1e-6)
    with pytest.raises(driftwise.errors.UserError, match="samples were bytes"):
        copy.predict_proba(np.zeros((2, 3)))


def test_a_follower_maps_the_newest_snapshot_and_keeps_those_in_use(tmp_path: Path) -> None:
    images = CHANGING.images[:20]
    publisher, follower = FilePublisher(tmp_path), Follower(tmp_path / "newest")
    with open_service(tmp_path / "state") as service:
        service.follow(publisher)
        assert follower.newest() is None, "nothing has been learned"
        service.observe(*batch(0)).result(30)
        found = follower.newest()
        assert found is not None
        first = found[1]
        before = first.predict_proba(images)
        for number in range(1, 4):
            service.observe(*batch(number)).result(30)
            found = follower.newest()
            assert found is not None
            applied, newest = found
            assert applied == number + 1, "the changes that it knows"
            assert newest is not first
            expected = service.predict(images)  # no step in between: a reader of its own writes
            np.testing.assert_allclose(newest.predict_proba(images), expected, atol=1e-6)
        again = follower.newest()
        assert again is not None
        assert again[1] is newest, "mapped once"
        assert (first.predict_proba(images) == before).all(), "nobody overwrites it"
        mapped = [each for each in newest.network.parameters() if each.numel() > 1000]
        assert mapped
        assert not any(each.requires_grad for each in mapped)


def test_what_cannot_be_pickled_is_left_to_the_learner(tmp_path: Path) -> None:
    class Local(torch.nn.Linear):
        """Defined in a function: another process cannot find it."""

    network = torch.nn.Sequential(torch.nn.Flatten(), Local(64, 5))
    live = LiveLearner(network, labels=no_labels_yet)
    live.observe(*batch(0))
    publisher = FilePublisher(tmp_path)
    publisher.publish(live, 1)
    assert publisher.failure is not None
    assert Follower(publisher.path).newest() is None


def test_a_learner_with_an_encoder_says_why_it_predicts_by_itself(tmp_path: Path) -> None:
    live = LiveLearner("mlp", labels=no_labels_yet, frozen_encoder=lambda x: x.reshape(len(x), -1))
    live.observe(*batch(0))
    publisher = FilePublisher(tmp_path)
    publisher.publish(live, 1)
    assert publisher.failure == "predictions need the frozen encoder"


def test_a_snapshot_that_a_worker_cannot_read_is_left_to_the_learner(tmp_path: Path) -> None:
    with open_service(tmp_path / "state") as service:
        service.follow(FilePublisher(tmp_path))
        service.observe(*batch(0)).result(30)
        whole = (tmp_path / "newest").read_bytes()
        (tmp_path / "newest").write_bytes(whole[:200])  # as if a class were not found
        follower = Follower(tmp_path / "newest")
        assert follower.newest() is None
        service.observe(*batch(1)).result(30)
        assert follower.newest() is not None, "the next one is read again"


def test_requests_that_wait_are_predicted_together_and_each_gets_its_own_answer() -> None:
    calls: list[int] = []
    busy = threading.Event()

    def predict(x: np.ndarray) -> np.ndarray:
        calls.append(len(x))
        busy.wait(10)
        if (x < 0).any():
            raise driftwise.errors.UserError("negative")
        return 2 * x

    async def ask() -> list[Any]:
        batches = Batches()
        numbers = [1, 2, -3, 4, 5]
        asked = [
            asyncio.ensure_future(batches.predict(predict, np.full((1, 2), number)))
            for number in numbers
        ]
        large = asyncio.ensure_future(batches.predict(predict, np.ones((100, 2))))
        await asyncio.sleep(0.2)
        busy.set()
        return await asyncio.gather(*asked, large, return_exceptions=True)

    *found, large = asyncio.run(ask())
    answers = [None if isinstance(each, Exception) else int(each[0, 0]) for each in found]
    assert answers == [2, 4, None, 8, 10]
    assert str(found[2]) == "negative", "its own error, and nobody else's"
    assert large.shape == (100, 2)
    assert {4, 5} & set(calls), "what waited went together"
    assert 100 in calls


def test_another_process_knows_tokens_and_no_sessions() -> None:
    access = Access([("eva", frozenset({"admin"}), "12345678901234567890")])
    session = access.log_in("12345678901234567890")
    copy = pickle.loads(pickle.dumps(access))
    assert copy.caller({"authorization": "Bearer 12345678901234567890"}, {}).name == "eva"
    assert copy.caller({}, {"driftwise_session": session}) is None
    assert b"12345678901234567890" not in pickle.dumps(access)


def _workers(process: int) -> list[int]:
    """Processes of prediction workers below a server."""
    found = []
    children: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = each.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(words[1]), []).append(int(each.parent.name))
    for child in children.get(process, []):
        found += children.get(child, [])  # of the server of forks
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_killed_worker_is_replaced_and_no_answer_is_lost_or_wrong(tmp_path: Path) -> None:
    flags = [*MLP, "--folder", str(tmp_path / "state"), "--workers", "2"]
    with serving(*flags) as (process, client):
        for number in range(5):
            client.observe(*batch(number))
        images = CHANGING.images[:8]
        expected = client.predict(images).probabilities
        killed = _workers(process.pid)
        assert len(killed) == 2
        wrong, answered, stop = [0], [0], threading.Event()

        def ask() -> None:
            while not stop.is_set():
                found = client.predict(images).probabilities
                wrong[0] += not np.allclose(found, expected, atol=1e-5)
                answered[0] += 1
            client.close()  # of this thread

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for each in threads:
            each.start()
        time.sleep(0.5)
        os.kill(killed[0], signal.SIGKILL)
        deadline = time.monotonic() + 30
        while len(now := _workers(process.pid)) < 2 or killed[0] in now:
            assert time.monotonic() < deadline, "it was not replaced"
            time.sleep(0.05)
        time.sleep(0.5)
        stop.set()
        for each in threads:
            each.join()
        assert answered[0] > 8
        assert wrong[0] == 0
        seen = client.observe(*batch(5))  # the learner goes on, through any worker
        assert seen.ids == list(range(50, 60))
        assert client.predict(images).applied == seen.number, "it is known to every worker at once"
        time.sleep(1)
        text = client.metrics()
        assert "driftwise_prediction_worker_restarts_total 1" in text
        assert 'driftwise_http_requests_total{route="/v1/predict",code="200"}' in text
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert _workers(process.pid) == []


def test_workers_check_tokens_and_end_with_a_killed_server(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    names = {role: f"{role}-token-{'x' * 20}" for role in ("predict", "label", "admin")}
    tokens.write_text("".join(f"{role} {role} {token}\n" for role, token in names.items()))
    flags = [*MLP, "--folder", str(tmp_path / "state"), "--workers", "2", "--tokens", str(tokens)]
    with serving(*flags) as (process, client):
        url = f"http://127.0.0.1:{client._port}"
        clients = {role: driftwise.Client(url, token=token) for role, token in names.items()}
        acknowledged = clients["admin"].observe(*batch(0))
        images = CHANGING.images[:3]
        assert clients["predict"].predict(images).applied == acknowledged.number
        for other, code in ((clients["label"], 403), (driftwise.Client(url, token="no"), 401)):
            for _ in range(4):  # more than one worker
                with pytest.raises(driftwise.serve.ServiceError) as refused:
                    other.predict(images)
                assert refused.value.status == code
                other.close()
        with pytest.raises(driftwise.serve.ServiceError, match="role observe"):
            clients["predict"].observe(*batch(1))
        # The main process refuses these before it has read them.
        raw = http.client.HTTPConnection("127.0.0.1", client._port, timeout=30)
        for method, headers, code in (
            ("TRACE", {}, 405),
            ("POST", {"Content-Length": str(10**9)}, 413),
        ):
            token = {"Authorization": f"Bearer {names['admin']}"}
            raw.putrequest(method, "/v1/observe")
            for name, value in {**token, "Content-Length": "100000", **headers}.items():
                raw.putheader(name, value)
            raw.endheaders()
            with contextlib.suppress(OSError):
                raw.send(bytes(100_000))
            assert raw.getresponse().status == code
            raw.close()
        for each in clients.values():
            each.close()
        workers = _workers(process.pid)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{each}").exists() for each in workers):
            assert time.monotonic() < deadline, "they would keep the port"
            time.sleep(0.05)
    with serving(*flags[:-2], "--port", str(client._port)) as (_, again):
        assert again.observe(*batch(1)).ids == list(range(10, 20)), "nothing was lost"
