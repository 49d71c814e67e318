"""Who may do what: tokens with roles, browser sessions, origins."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftwise.errors import UserError
from driftwise.files import read_regular, reason

ROLES = ("predict", "observe", "label", "admin")
MIN_TOKEN = 20
"""letters"""
SESSION_SECONDS = 12 * 3600
MAX_SESSIONS = 1000
COOKIE = "driftwise_session"
CSRF_HEADER = "x-csrf-token"


@dataclass(frozen=True)
class Caller:
    """Who sends a request."""

    name: str
    roles: frozenset[str]
    session: str | None = None
    """the cookie of a browser; None: a token, or nobody needs one"""

    def may(self, role: str) -> bool:
        """Whether a role is among the caller's; an admin may do everything."""
        return role in self.roles or "admin" in self.roles


LOCAL = Caller("local", frozenset(ROLES))
"""Everybody, where no tokens are set: only this machine can connect."""


class Access:
    """Tokens and sessions. Without tokens everybody is `LOCAL`."""

    def __init__(self, tokens: Sequence[tuple[str, frozenset[str], str]] = ()) -> None:
        """`tokens`: name, roles and token of each."""
        self._tokens = [
            (Caller(name, roles), _digest(token.encode())) for name, roles, token in tokens
        ]
        self._sessions: dict[bytes, tuple[Caller, float]] = {}
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process knows the tokens (their digests), and no session."""
        return _with_digests, (self._tokens,)

    @property
    def has_tokens(self) -> bool:
        """Whether callers must identify themselves."""
        return bool(self._tokens)

    @staticmethod
    def from_file(path: Path) -> Access:
        """Lines of `ROLE[,ROLE] NAME TOKEN`; # begins a comment."""
        try:
            text = read_regular(path, 2**20).decode()
        except (OSError, UnicodeDecodeError) as error:
            why = reason(error) if isinstance(error, OSError) else "it is no text"
            raise UserError(f"cannot read the tokens in {path}: {why}") from error
        tokens = []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            place = f"{path}, line {number}"
            if len(words) != 3:  # the line itself must not be shown
                raise UserError(f"{place}: expected ROLE[,ROLE] NAME TOKEN; got {len(words)} words")
            roles = frozenset(words[0].split(","))
            if unknown := sorted(roles - set(ROLES)):
                raise UserError(f"{place}: unknown role {unknown[0]!r} (known: {', '.join(ROLES)})")
            if len(words[2]) < MIN_TOKEN:
                raise UserError(f"{place}: a token has at least {MIN_TOKEN} letters")
            tokens.append((words[1], roles, words[2]))
        if not tokens:
            raise UserError(f"{path} holds no token; expected lines of ROLE[,ROLE] NAME TOKEN")
        return Access(tokens)

    def caller(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Caller | None:
        """Who sends a request with these headers; None: nobody that is known."""
        if not self._tokens:
            return LOCAL
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._by_token(token.strip())
        if (session := cookies.get(COOKIE)) is not None:
            return self._by_session(session)
        return None

    def _by_token(self, token: str) -> Caller | None:
        given, found = _digest(token.encode(errors="replace")), None
        for caller, digest in self._tokens:  # all of them: the time must not tell which one fits
            if hmac.compare_digest(given, digest):
                found = caller
        return found

    def _by_session(self, session: str) -> Caller | None:
        with self._lock:
            found = self._sessions.get(_digest(session.encode(errors="replace")))
        if found is None or found[1] < time.monotonic():
            return None
        return found[0]

    def log_in(self, token: str) -> str | None:
        """A session for the holder of a token; None: nobody has it."""
        caller = self._by_token(token)
        if caller is None:
            return None
        session = secrets.token_urlsafe(32)
        now = time.monotonic()
        with self._lock:
            self._sessions = {key: each for key, each in self._sessions.items() if each[1] > now}
            while len(self._sessions) >= MAX_SESSIONS:
                self._sessions.pop(next(iter(self._sessions)))
            mine = Caller(caller.name, caller.roles, session)
            self._sessions[_digest(session.encode())] = (mine, now + SESSION_SECONDS)
        return session

    def log_out(self, session: str) -> None:
        """Forget a session."""
        with self._lock:
            self._sessions.pop(_digest(session.encode(errors="replace")), None)

    def csrf_token(self, session: str | None) -> str:
        """What a page must send along with the changes it makes."""
        return hmac.new(self._secret, (session or "").encode(), hashlib.sha256).hexdigest()

    def is_csrf_token(self, session: str | None, given: str | None) -> bool:
        """Whether a page of ours made a request."""
        expected = self.csrf_token(session).encode()
        return hmac.compare_digest(expected, (given or "").encode(errors="replace"))


def _with_digests(tokens: list[tuple[Caller, bytes]]) -> Access:
    access = Access()
    access._tokens = tokens
    return access


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def same_origin(headers: Mapping[str, str], scheme: str) -> bool:
    """Whether a change comes from a page of ours, or from no page at all."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("origin")
    return origin is None or origin == f"{scheme}://{headers.get('host', '')}"


def host_name(host: str) -> str:
    """The name in a Host header, without its port.

    >>> host_name("127.0.0.1:8000"), host_name("[::1]:80"), host_name("localhost")
    ('127.0.0.1', '::1', 'localhost')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
