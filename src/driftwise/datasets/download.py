"""Files from the web: checked as they arrive, resumed where they stopped, in place when whole."""

from __future__ import annotations

import errno
import hashlib
import socket
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from driftwise.datasets.reading import StageProgress, silent
from driftwise.errors import UserError
from driftwise.files import alone, own_file, sync, writing

if TYPE_CHECKING:  # takes 60 ms, which only a download should cost
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector

WAITS = (0.5, 1.0, 2.0)
"""Seconds to wait before each further try."""

CHUNK = 1 << 18
REMEDY = "free some space or choose another folder"
UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
TEMPORARY = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
}


def fetch(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    size: int | None = None,
    progress: StageProgress = silent,
    timeout: float = 20,
) -> Path:
    """Make `target` hold what `url` serves, if its checksum is right, or leave it as it was.

    A file that is there already and fits is kept. The bytes of an interrupted download stay in
    `target.part` and are not requested again. At least one checksum is needed: without it nothing
    would show that two versions of a file were joined.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise UserError(f"cannot fetch {url}: expected an address with http:// or https://")
    if target.is_dir():
        raise UserError(f"cannot fetch {url}: expected a file to write to, {target} is a folder")
    sums = {name: given for name, given in (("sha256", sha256), ("md5", md5)) if given is not None}
    if not sums:
        raise ValueError("give sha256 or md5: nothing is fetched without a checksum")
    with writing(target, REMEDY):
        target.parent.mkdir(parents=True, exist_ok=True)
    part = _Part(target, size, sums)
    with alone(target):
        # Checked under the lock: another process may just have put it there.
        with writing(target, REMEDY):
            if target.exists() and part.read(target).mismatch() is None:
                return target
        for wait in (*WAITS, None):
            try:
                resumed = _transfer(url, part, progress, timeout)
                mismatch = part.mismatch()
                if mismatch is None:
                    break
                part.remove()
                if not resumed:
                    raise UserError(f"cannot fetch {url}: {mismatch}; nothing was kept")
                raise _Interrupted(mismatch)  # the part may have been of another version
            except _Interrupted as error:
                if wait is None:
                    kept = "; what has arrived is kept, try again later" if part.resume() else ""
                    raise UserError(f"cannot fetch {url}: {error}{kept}") from error
                time.sleep(wait)
        part.finish()
    return target


def _transfer(url: str, part: _Part, progress: StageProgress, timeout: float) -> bool:
    """One try: request the missing bytes and append them; whether some were there before."""
    start, size = part.resume(), part.size
    if start and start == size:
        return True
    headers = {"User-Agent": "driftwise", **({"Range": f"bytes={start}-"} if start else {})}
    with _request(url, headers, part, timeout) as response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            part.remove()  # the server cannot resume
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            part.remove()
            raise _Interrupted("the server continued the file at another place")
        goal = size if response.length is None else part.length + response.length
        if size is not None and goal != size:
            part.remove()
            raise UserError(f"cannot fetch {url}: expected {size} bytes, the server has {goal}")
        for length in part.append(response):
            progress(length, goal)
    if goal is not None and part.length < goal:
        raise _Interrupted(f"the connection ended after {part.length} of {goal} bytes")
    return start > 0 and response.status == HTTPStatus.PARTIAL_CONTENT


def _request(url: str, headers: dict[str, str], part: _Part, timeout: float) -> HTTPResponse:
    """The server's answer; a failure that a further try cannot change is an error at once."""
    from http.client import HTTPException, HTTPResponse
    from urllib import error as failures
    from urllib import request as web

    by_hand = f"fetch it elsewhere and put it at {part.target}"
    try:
        response = _opener().open(web.Request(url, headers=headers), timeout=timeout)
    except failures.HTTPError as error:
        error.close()
        answer = " ".join(f"the server answered {error.code} {error.reason}".split())
        if error.code < 500 and error.code not in TEMPORARY:
            raise UserError(f"cannot fetch {url}: {answer}") from error
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.remove()  # there is less on the server than has arrived: another file
        raise _Interrupted(answer) from error
    except (OSError, HTTPException) as error:
        cause = error.reason if isinstance(error, failures.URLError) else error
        text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        if isinstance(cause, TimeoutError):
            text = f"no answer within {timeout:g} s; {by_hand}"
        elif isinstance(cause, socket.gaierror) or getattr(cause, "errno", None) in UNREACHABLE:
            text = f"no network ({text}); {by_hand}"
        elif isinstance(cause, Exception):
            raise _Interrupted(text) from error
        raise UserError(f"cannot fetch {url}: {text}") from error
    assert isinstance(response, HTTPResponse), "only http answers are opened"
    return response


def _opener() -> OpenerDirector:
    """Opens http and https and nothing else, wherever a redirect may point."""
    from urllib import request as web

    opener = web.OpenerDirector()
    for handler in (
        web.ProxyHandler(),
        web.HTTPHandler(),
        web.HTTPSHandler(),
        web.HTTPRedirectHandler(),
        web.HTTPDefaultErrorHandler(),
        web.HTTPErrorProcessor(),
        web.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


class _Interrupted(Exception):
    """A try that failed in a way that the next one may not."""


class _Part:
    """The bytes that have arrived, beside the file that they will become, and their checksums."""

    def __init__(self, target: Path, size: int | None, sums: Mapping[str, str]) -> None:
        self.target = target
        self.size = size
        self._sums = sums
        self._path = target.with_name(f"{target.name}.part")
        self._reset()

    def _reset(self) -> None:
        self.length = 0
        self._digests = {name: hashlib.new(name, usedforsecurity=False) for name in self._sums}

    def _update(self, chunk: bytes) -> None:
        self.length += len(chunk)
        for digest in self._digests.values():
            digest.update(chunk)

    def _is_too_long(self) -> bool:
        return self.size is not None and self.length > self.size

    def read(self, file: Path) -> _Part:
        """Compute length and checksums of a whole file."""
        self._reset()
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                self._update(chunk)
        return self

    def mismatch(self) -> str | None:
        """What was expected and what was found, None if all is well."""
        if self.size not in (None, self.length):
            found = "more" if self._is_too_long() else self.length
            return f"expected {self.size} bytes, got {found}"
        for name, digest in self._digests.items():
            if digest.hexdigest() != self._sums[name].lower():
                return f"expected {name} {self._sums[name]}, got {digest.hexdigest()}"
        return None

    def resume(self) -> int:
        """Bytes that need not be requested again; a part that cannot be continued is removed."""
        self._reset()
        with writing(self._path, REMEDY):
            if self._path.exists():
                self.read(self._path)
        if not self.length or self._is_too_long():
            self.remove()
        return self.length

    def append(self, response: HTTPResponse) -> Iterator[int]:
        """Write and check the body as it arrives; yields the length after each chunk."""
        with writing(self._path, REMEDY), open(self._path, "ab", opener=own_file) as file:
            for chunk in _chunks(response):
                file.write(chunk)
                self._update(chunk)
                yield self.length
                if self._is_too_long():
                    return

    def remove(self) -> None:
        """Start over."""
        self._reset()
        with writing(self._path, REMEDY):
            self._path.unlink(missing_ok=True)

    def finish(self) -> None:
        """Put the file in place in one step, once it is safe on the disk."""
        with writing(self.target, REMEDY):
            sync(self._path)
            self._path.replace(self.target)
            sync(self.target.parent)


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    """The body as it arrives, up to its announced length even if the connection stays open."""
    from http.client import HTTPException

    missing = response.length
    while missing is None or missing > 0:
        try:
            # read1 returns what is there; read would lose a half-filled chunk when it fails.
            chunk = response.read1(CHUNK if missing is None else min(CHUNK, missing))
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise _Interrupted(f"the connection broke ({reason})") from error
        if not chunk:
            return
        missing = None if missing is None else missing - len(chunk)
        yield chunk
