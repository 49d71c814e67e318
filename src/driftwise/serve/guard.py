"""What every request passes first: host, caller, role, origin, rate, size, time; and safe headers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftwise.serve.access import (
    CSRF_HEADER,
    Access,
    Caller,
    host_name,
    is_loopback,
    same_origin,
)
from driftwise.serve.bodies import as_json
from driftwise.serve.measures import Measures
from driftwise.serve.settings import ServeSettings

SAFE = ("GET", "HEAD", "OPTIONS")
OPEN = ("/v1/health", "/v1/ready", "/login")
"""paths for everybody; and what lies below /static"""
ANY = "any"
ROLE_OF: Mapping[tuple[str, str], str] = {
    ("POST", "/v1/predict"): "predict",
    ("POST", "/v1/observe"): "observe",
    ("POST", "/v1/probe"): "observe",
    ("POST", "/v1/labels"): "label",
    ("POST", "/v1/labels/import"): "label",
    ("GET", "/v1/requests"): "label",
    ("GET", "/v1/answers"): "label",
    ("POST", "/v1/requests/lease"): "label",
    ("POST", "/v1/requests/skip"): "label",
    ("GET", "/v1/requests/{number}/image"): "label",
    ("GET", "/inbox"): "label",
    ("GET", "/v1/status"): ANY,
    ("GET", "/v1/dashboard"): ANY,
    ("GET", "/v1/verdicts"): ANY,
    ("GET", "/v1/verdicts/{number}/examples"): ANY,
    ("GET", "/v1/verdicts/{number}/values"): ANY,
    ("GET", "/v1/events"): ANY,
    ("GET", "/v1/stream"): ANY,
    ("GET", "/v1/runs"): ANY,
    ("GET", "/v1/snapshots"): ANY,
    ("GET", "/metrics"): ANY,
    ("GET", "/"): ANY,
    ("GET", "/runs"): ANY,
    ("GET", "/openapi.json"): ANY,
    ("POST", "/logout"): ANY,
    ("GET", "/v1/audit"): "admin",
    ("POST", "/v1/save"): "admin",
    ("POST", "/v1/snapshots"): "admin",
    ("POST", "/v1/rollback"): "admin",
    ("POST", "/v1/mode"): "admin",
    ("POST", "/v1/pause"): "admin",
    ("POST", "/v1/resume"): "admin",
    ("POST", "/v1/approve"): "admin",
    ("POST", "/v1/dismiss"): "admin",
}
"""Who may use a route; one that is not here, and not open, is for admins."""

HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # without a referrer a form has no origin
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
MAX_CLIENTS = 10_000
"""whose rates are counted"""
MAX_LOGIN, MAX_SHORT = 10_000, 4 * 2**20
"""bytes of a body with a token, and of one without samples or a file"""
ALWAYS_TAKEN = 2**17
"""bytes up to which a body is taken, however much others hold"""
LONG = ("/v1/predict", "/v1/observe", "/v1/probe", "/v1/labels/import")
"""paths of bodies with samples or a file"""

log = logging.getLogger("driftwise.serve")


class Guard:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServeSettings,
        access: Access,
        measures: Measures,
        hosts: frozenset[str] | None,
    ) -> None:
        """`hosts`: names that may stand in a Host header; None: any, since callers have tokens."""
        self._app = app
        self._settings = settings
        self._access = access
        self._measures = measures
        self._hosts = hosts
        self._rates = Rates(settings.rate)
        self._bodies = Bodies(settings.max_bodies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no web sockets here
        headers = {key.decode("latin1"): value.decode("latin1") for key, value in scope["headers"]}
        began, code, started = time.perf_counter(), 500, False
        body = Body(receive, self._settings, scope["path"], self._bodies)

        async def send_safely(message: Message) -> None:
            nonlocal code, started
            if message["type"] == "http.response.start":
                code, started = message["status"], True
                own = {key for key, _ in message.get("headers", ())}
                safe = [each for each in HEADERS if each[0] not in own]
                message = {**message, "headers": [*message.get("headers", ()), *safe]}
            await send(message)

        try:
            refused = self._refuse(scope, headers)
            if refused is not None:
                await answer_error(send_safely, *refused)
            else:
                safe = scope["method"] in SAFE
                await self._app(scope, receive if safe else body.receive, send_safely)
        except Exception:
            # Neither the client nor the log gets what the request held.
            log.exception("a request to %.200r failed", scope["path"])
            if not started:
                await answer_error(send_safely, 500, "internal", "internal error; see the log")
        finally:
            body.release()
            path = getattr(scope.get("route"), "path", "other")
            self._measures.add(path, code, time.perf_counter() - began)

    def _refuse(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str, str] | None:
        """Status, kind and message of a refusal; None: go on."""
        path, method = scope["path"], scope["method"]
        host = host_name(headers.get("host", ""))
        if self._hosts is not None and host not in self._hosts and not is_loopback(host):
            return 421, "host", "this host name is not served here; see --allowed-host"
        caller = self._access.caller(headers, _cookies(headers))
        scope.setdefault("state", {})["caller"] = caller
        client = (scope.get("client") or ("",))[0] if caller is None else caller.name
        if not self._rates.allows(client):
            return 429, "rate", "too many requests; try again shortly"
        is_open = path in OPEN or path.startswith("/static/")
        if caller is None and not is_open:
            if method == "GET" and "text/html" in headers.get("accept", ""):
                return 303, "login", "/login"
            return 401, "token", "send a token: Authorization: Bearer TOKEN"
        if method not in SAFE:
            if not same_origin(headers, scope["scheme"]):
                return 403, "origin", "changes are taken from pages of this service only"
            session = None if caller is None else caller.session
            if session and not self._access.is_csrf_token(session, headers.get(CSRF_HEADER)):
                return 403, "csrf", f"a page must send the header {CSRF_HEADER}"
        length, most = headers.get("content-length", "0"), max_body(path, self._settings)
        if not length.isdecimal() or int(length) > most:
            return 413, "size", too_large(most)
        return None


def max_body(path: str, settings: ServeSettings) -> int:
    """Bytes of a request to a path."""
    most = MAX_LOGIN if path == "/login" else settings.max_body if path in LONG else MAX_SHORT
    return min(most, settings.max_body)


def too_large(most: int) -> str:
    """What a client is told."""
    return f"a request has at most {most:,} bytes here"


class Bodies:
    """Bytes of all bodies that are being received or used."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0


class Body:
    """The body of a request, of limited size, within a limited time, while there is room for it."""

    def __init__(
        self, receive: Receive, settings: ServeSettings, path: str, bodies: Bodies
    ) -> None:
        self._receive = receive
        self._most = max_body(path, settings)
        self._deadline = asyncio.get_running_loop().time() + settings.body_seconds
        self._bodies = bodies
        self._held = 0
        self._complete = False

    async def receive(self) -> Message:
        """The next part; HTTPException where a limit is passed."""
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            raise HTTPException(408, "the request took too long to come") from error
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self._held += size
            self._bodies.held += size
            self._complete = not message.get("more_body", False)
            if self._held > self._most:
                raise HTTPException(413, too_large(self._most))
            if self._bodies.held > self._bodies.most and self._held > ALWAYS_TAKEN:
                raise HTTPException(503, "too many large requests at once; try again shortly")
        return message

    def release(self) -> None:
        """It is not used any more."""
        self._bodies.held -= self._held
        self._held = 0


class Rates:
    """A bucket of tokens for each client: `rate` come in a second, at most two seconds' worth."""

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._clients: dict[str, tuple[float, float]] = {}

    def allows(self, client: str) -> bool:
        """Whether a client may send a request now."""
        now = self._clock()
        left, since = self._clients.pop(client, (2 * self._rate, now))
        left = min(2 * self._rate, left + (now - since) * self._rate)
        allowed = left >= 1
        self._clients[client] = (left - 1 if allowed else left, now)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.pop(next(iter(self._clients)))
        return allowed


def role_needed(method: str, path: str) -> str:
    """The role that a route needs; `ANY`: every known caller may use it."""
    if path in OPEN or path.startswith("/static"):
        return ANY
    return ROLE_OF.get(("GET" if method == "HEAD" else method, path), "admin")


def refuse_unless_allowed(caller: Caller | None, method: str, path: str) -> None:
    """HTTPException for a caller without the role of a route."""
    role = role_needed(method, path)
    if role != ANY and (caller is None or not caller.may(role)):
        raise HTTPException(403, f"this needs a token with the role {role}")


def _cookies(headers: Mapping[str, str]) -> dict[str, str]:
    if "cookie" not in headers:
        return {}
    try:
        return {name: each.value for name, each in SimpleCookie(headers["cookie"]).items()}
    except CookieError:
        return {}


async def answer_error(send: Send, code: int, kind: str, message: str) -> None:
    """An error as every answer of the service gives it."""
    headers: list[Any] = [(b"content-type", b"application/json")]
    body = as_json({"error": {"kind": kind, "message": message}})
    if code == 303:
        headers, body = [(b"location", message.encode())], b""
    if code == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if code in (429, 503):
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
