"""A client of a service, with Python's own HTTP alone."""

from __future__ import annotations

import base64
import http.client
import io
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import numpy as np

from driftwise.errors import RunFailure, UserError

RETRIES = 5
"""of a request that was not taken for the moment, or whose connection broke"""


class ServiceError(RunFailure):
    """A service refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        """the HTTP status"""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Predicted classes of some samples."""

    predicted: np.ndarray
    """int64 (samples,)"""
    names: list[str]
    confidence: np.ndarray
    """float (samples,)"""
    probabilities: np.ndarray
    """float (samples, outputs)"""
    applied: int
    """all changes up to this number were known, see `Observed.number`"""

    @staticmethod
    def of(found: Mapping[str, Any]) -> Prediction:
        """From an answer."""
        return Prediction(
            predicted=np.array(found["predicted"], dtype=np.int64),
            names=found["names"],
            confidence=np.array(found["confidence"], dtype=float),
            probabilities=np.array(found["probabilities"], dtype=float),
            applied=found["applied"],
        )


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the service did with a batch; it is on the service's disk."""

    number: int
    """of the change, in the order in which the service applied it"""
    ids: list[int]
    """of the samples, for late labels"""
    predicted: list[int]
    """classes, predicted before anything was learned from the batch"""
    confidence: list[float]
    refused: list[int]
    """positions of samples that cannot be used"""
    quarantined: list[int]
    new_classes: list[int]
    drifted: list[int]
    adapted: list[int]
    waiting: list[int]
    """drifted classes that wait for labels"""
    held: list[int]
    """drifted classes whose adaptation waits for approval"""
    notes: list[str]


@dataclass(frozen=True, kw_only=True)
class LabelRequest:
    """A sample that waits for a label."""

    id: int
    predicted: int
    name: str
    confidence: float
    text: str | None


@dataclass(frozen=True, kw_only=True)
class ServiceVerdict:
    """A verdict on one class, see `driftwise.types.Verdict`."""

    number: int
    time: str
    sample: int | None
    label: int
    drifted: bool | None
    score: float | None
    p_value: float | None
    threshold: float | None
    num_reference: int
    num_current: int
    reason: str | None
    harm: float | None
    harm_unlabelled: float | None
    share: float | None
    kind: str | None = None
    """of the change; None: not known, or a service of an earlier version"""
    action: str | None = None
    """what is recommended"""


class Client:
    """Talks to `driftwise serve`; may be used from several threads.

    A change that is sent gets a key, so that it can be repeated without being applied twice: after
    a broken connection, or when the service was not ready, it is sent again.

    >>> client = Client("http://127.0.0.1:9", retries=0)
    >>> client.ready()  # nobody listens there; with `driftwise serve demo`: http://127.0.0.1:8000
    False
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        seconds: float = 60.0,
        retries: int = RETRIES,
        verify: str | Path | None = None,
    ) -> None:
        """A client of the service at a URL.

        Args:
            url: Where the service is.
            token: Sent as a bearer token.
            seconds: How long to wait for an answer.
            retries: How often to send a request again that was not taken, or whose connection broke;
                after pauses of 0.05, 0.1, 0.2 s and so on, at most 2 s.
            verify: The certificate to trust, for https; None: those of the system.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"expected a URL such as http://127.0.0.1:8000; got {url!r}")
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._tls = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=None if verify is None else str(verify))
        self._token = token
        self._seconds = seconds
        self._retries = retries
        self._local = threading.local()

    # Samples

    def predict(self, x: Any) -> Prediction:
        """Classes of samples (or of one), from the newest snapshot."""
        return Prediction.of(self._post("/v1/predict", {"x": _npy(x)}))

    def predict_files(self, files: Sequence[str | Path]) -> Prediction:
        """Classes of image files."""
        parts = [("images", Path(file).name, Path(file).read_bytes()) for file in files]
        return Prediction.of(self._send("POST", "/v1/predict", *_form(parts)))

    def observe(
        self,
        x: Any,
        y: Sequence[int | None] | np.ndarray | None = None,
        *,
        texts: Sequence[str] | None = None,
        key: str | None = None,
    ) -> Observed:
        """Samples to predict, monitor and learn; labels may be missing (None) or come later.

        `x`: uint8 images (samples, height, width, channels) or floats (samples, ...); `y`: (samples,).
        """
        body = {"x": _npy(x), "y": _labels(y), "texts": texts, "key": key or _key()}
        observed: Observed = _read(Observed, self._post("/v1/observe", body))
        return observed

    def probe(self, x: Any, y: Sequence[int] | np.ndarray) -> float:
        """The accuracy on labelled samples, `x` (samples, ...), `y` (samples,); none is learned."""
        found = self._post("/v1/probe", {"x": _npy(x), "y": _labels(y), "key": _key()})
        return float(found["correct"] / found["samples"])

    # Labels

    def label(
        self,
        ids: Sequence[int] | np.ndarray,
        labels: Sequence[int | None] | np.ndarray,
        *,
        correct: bool = False,
        wait: bool = True,
        key: str | None = None,
    ) -> None:
        """Late labels by id (None: nobody knows); `correct`: they replace wrong ones.

        `wait`: until the learner has used them; they are safe in any case.
        """
        body = {
            "ids": [_whole(each, "an id") for each in ids],
            "labels": _labels(labels),
            "correct": correct,
            "key": key or _key(),
        }
        self._post(f"/v1/labels?wait={str(wait).lower()}", body)

    def requests(self) -> list[LabelRequest]:
        """Samples that wait for labels, the most valuable first."""
        return [_read(LabelRequest, each) for each in self._get("/v1/requests")["requests"]]

    def answers(self) -> list[dict[str, Any]]:
        """The last labels of people, oldest first: id, label, by, time, corrects."""
        found: list[dict[str, Any]] = self._get("/v1/answers")["answers"]
        return found

    # Status

    def status(self) -> dict[str, Any]:
        """Mode, classes, buffer, labels, what waits."""
        return self._get("/v1/status")

    def verdicts(self, since: int = 0) -> list[ServiceVerdict]:
        """Verdicts after number `since`."""
        found = self._get("/v1/verdicts", since=since)["verdicts"]
        return [_read(ServiceVerdict, each) for each in found]

    def events(self, since: int = 0) -> list[dict[str, Any]]:
        """Events after number `since`."""
        found: list[dict[str, Any]] = self._get("/v1/events", since=since)["events"]
        return found

    def metrics(self) -> str:
        """Counters and gauges in the text format of Prometheus."""
        return self._request("GET", "/metrics")[1].decode()

    def ready(self) -> bool:
        """Whether the service takes changes."""
        try:
            return self._request("GET", "/v1/ready", retries=0)[0] == 200
        except RunFailure:
            return False

    def wait_until_ready(self, seconds: float = 30.0) -> None:
        """Wait for the service to start; RunFailure if it does not."""
        deadline = time.monotonic() + seconds
        while not self.ready():
            if time.monotonic() > deadline:
                raise RunFailure(f"no service is ready at {self._host} within {seconds:g} s")
            time.sleep(0.05)

    # Operation

    def save(self, reason: str | None = None) -> None:
        """Save the state now."""
        self._change("/v1/save", reason)

    def set_mode(self, mode: str, reason: str | None = None) -> None:
        """Choose auto, ask or shadow."""
        self._change("/v1/mode", reason, mode=mode)

    def pause(self, reason: str | None = None) -> None:
        """Hold all adaptations."""
        self._change("/v1/pause", reason)

    def resume(self, reason: str | None = None) -> None:
        """Go on in the mode from before the pause."""
        self._change("/v1/resume", reason)

    def approve(self, classes: Sequence[int] | None = None, reason: str | None = None) -> None:
        """Adapt to classes that wait for approval; None: all of them."""
        self._change("/v1/approve", reason, classes=classes)

    def dismiss(self, classes: Sequence[int] | None = None, reason: str | None = None) -> None:
        """Do not adapt to classes that wait for approval; None: all of them."""
        self._change("/v1/dismiss", reason, classes=classes)

    def snapshots(self) -> list[dict[str, Any]]:
        """Saved states to roll back to, oldest first."""
        found: list[dict[str, Any]] = self._get("/v1/snapshots")["snapshots"]
        return found

    def roll_back(self, to: int, reason: str | None = None) -> None:
        """Return to a snapshot by its number."""
        self._change("/v1/rollback", reason, to=to)

    def close(self) -> None:
        """Close this thread's connection."""
        if (connection := getattr(self._local, "connection", None)) is not None:
            connection.close()
            self._local.connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # HTTP

    def _get(self, path: str, **query: Any) -> dict[str, Any]:
        return self._send("GET", f"{path}?{urlencode(query)}" if query else path)

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._send("POST", path, json.dumps(body).encode(), "application/json")

    def _change(self, path: str, reason: str | None, **body: Any) -> None:
        self._post(path, {**body, "reason": reason, "key": _key()})

    def _send(
        self, method: str, path: str, body: bytes | None = None, kind: str | None = None
    ) -> dict[str, Any]:
        status, content = self._request(method, path, body, kind)
        try:
            found: dict[str, Any] = json.loads(content)
        except ValueError as error:
            raise ServiceError(status, f"the service answered {status} without JSON") from error
        if status >= 400:
            message = found.get("error", {}).get("message", "no reason given")
            raise ServiceError(status, f"{message} (HTTP {status})")
        return found

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        kind: str | None = None,
        *,
        retries: int | None = None,
    ) -> tuple[int, bytes]:
        """Status and content; what was not taken for the moment is sent again."""
        headers = {} if kind is None else {"Content-Type": kind}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        most = self._retries if retries is None else retries
        for left, pause in zip(range(most, -1, -1), _pauses(), strict=False):
            try:
                connection = self._connection()
                connection.request(method, self._prefix + path, body, headers)
                response = connection.getresponse()
                content = response.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not left:
                    raise RunFailure(
                        f"no answer from {self._host}:{self._port}: {error or type(error).__name__}"
                    ) from error
            else:
                if not left or not _try_again(response.status, content):
                    return response.status, content
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            if self._tls is None:
                connection = http.client.HTTPConnection(
                    self._host, self._port, timeout=self._seconds
                )
            else:
                connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=self._seconds, context=self._tls
                )
            self._local.connection = connection
        return connection


def _try_again(status: int, content: bytes) -> bool:
    """Whether a request was not taken, or a proxy lost the server that had it."""
    return status in (429, 502, 503, 504) or (status == 500 and not content.startswith(b"{"))


def _pauses() -> Iterator[float]:
    pause = 0.05
    while True:
        yield pause
        pause = min(2 * pause, 2.0)


def _key() -> str:
    import secrets

    return secrets.token_hex(12)


def _npy(x: Any) -> dict[str, str]:
    """Samples as a .npy file in base64: exact, and quicker than lists."""
    array = np.asarray(x)
    if array.dtype != np.uint8:
        if array.dtype.kind not in "uif":
            raise UserError(f"samples are arrays of numbers; got {array.dtype}")
        array = array.astype(np.float32)
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return {"npy": base64.b64encode(file.getvalue()).decode()}


def _labels(y: Sequence[int | None] | np.ndarray | None) -> list[int | None] | None:
    if y is None:
        return None
    return [None if each is None or each != each else _whole(each, "a label") for each in y]


def _whole(value: Any, name: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value or isinstance(value, bool | np.bool_):
        raise UserError(f"{name} is a whole number; got {value!r:.100}")
    return number


def _form(parts: Sequence[tuple[str, str, bytes]]) -> tuple[bytes, str]:
    """Files as multipart/form-data, and its content type."""
    boundary = f"driftwise-{_key()}"
    body = b""
    for place, (name, _, content) in enumerate(parts):
        head = f'Content-Disposition: form-data; name="{name}"; filename="{place}"'
        body += f"--{boundary}\r\n{head}\r\n\r\n".encode() + content + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def _read(kind: Any, found: Mapping[str, Any]) -> Any:
    """A dataclass from an answer; what an older or repeated answer lacks is empty."""
    return kind(**{each.name: found.get(each.name, []) for each in fields(kind)})
