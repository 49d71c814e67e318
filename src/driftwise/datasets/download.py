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

from driftwise.datasets.reading import StageProgress
from driftwise.errors import UserError
from driftwise.files import alone, own_file, replacing, sync, writing

if TYPE_CHECKING:  # takes 60 ms, which only a download should cost
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector

WAITS = (0.5, 1.0, 2.0)
"""Seconds to wait before each further try."""

CHUNK = 1 << 18
REMEDY = "free some space or choose another folder"
UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}


def fetch(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    size: int | None = None,
    progress: StageProgress | None = None,
    timeout: float = 20,
) -> Path:
    """Make `target` hold what `url` gives, whole and as expected, or leave it as it was.

    A file that is there already and fits is kept. What an interrupted download has got stays in
    `target.part` and is not asked for again, unless the file has changed on the server meanwhile.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise UserError(f"cannot fetch {url}: expected an address with http:// or https://")
    if target.is_dir():
        raise UserError(f"cannot fetch {url}: expected a file to write to, {target} is a folder")
    sums = {name: given for name, given in (("sha256", sha256), ("md5", md5)) if given is not None}
    with writing(target, REMEDY):
        target.parent.mkdir(parents=True, exist_ok=True)
    with alone(target):
        # Looked at under the lock: another process may just have put it there.
        with writing(target, REMEDY):
            if target.exists() and _Check(size, sums).read(target).misfit() is None:
                return target
        part = _Part(target, size, sums)
        _persist(url, part, progress, timeout)
        if misfit := part.check.misfit():
            part.remove()
            raise UserError(f"cannot fetch {url}: {misfit}; nothing was kept")
        part.finish()
    return target


def _persist(url: str, part: _Part, progress: StageProgress | None, timeout: float) -> None:
    """Try until the part is complete, a few times, each time from where the last one stopped."""
    for wait in (*WAITS, None):
        try:
            _transfer(url, part, progress, timeout)
            return
        except _Interrupted as error:
            if wait is None:
                kept = "; what has arrived is kept, try again later" if part.resume() else ""
                raise UserError(f"cannot fetch {url}: {error}{kept}") from error
            time.sleep(wait)


def _transfer(url: str, part: _Part, progress: StageProgress | None, timeout: float) -> None:
    """One try: ask for what the part still lacks, and append it."""
    size = part.check.size
    start = part.resume()
    if start and start == size:
        return
    headers = {"User-Agent": "driftwise"}
    if start:
        headers |= {"Range": f"bytes={start}-"}
        headers |= {"If-Range": version} if (version := part.version()) else {}
    with _ask(url, headers, part, timeout) as response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            part.remove()  # the server cannot resume, or has another file by now
        elif not part.is_continued_by(response):
            part.remove()
            raise _Interrupted("the file changed on the server during the download")
        goal = size if response.length is None else part.check.length + response.length
        if size is not None and goal != size:
            part.remove()
            raise UserError(f"cannot fetch {url}: expected {size} bytes, the server has {goal}")
        for here in part.append(response):
            if progress is not None:
                progress(here, goal)
    if goal is not None and part.check.length < goal:
        raise _Interrupted(f"the connection ended after {part.check.length} of {goal} bytes")


def _ask(url: str, headers: dict[str, str], part: _Part, timeout: float) -> HTTPResponse:
    """The server's answer; what trying again cannot help is an error at once."""
    from http.client import HTTPException, HTTPResponse
    from urllib import error as failures
    from urllib import request as web

    by_hand = f"fetch it elsewhere and put it at {part.target}"
    try:
        response = _opener().open(web.Request(url, headers=headers), timeout=timeout)
    except failures.HTTPError as error:
        error.close()
        answer = f"the server answered {error.code} {error.reason}"
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.remove()  # there is less on the server than has arrived: another file
        elif error.code < 500 and error.code not in PASSING:
            raise UserError(f"cannot fetch {url}: {' '.join(answer.split())}") from error
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


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    """The body as it comes in, up to its announced length even if the connection stays open."""
    from http.client import HTTPException

    lacking = response.length
    while lacking is None or lacking > 0:
        try:
            # read1 returns what is there; read would lose a half-filled chunk when it fails.
            chunk = response.read1(CHUNK if lacking is None else min(CHUNK, lacking))
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise _Interrupted(f"the connection broke ({reason})") from error
        if not chunk:
            return
        lacking = None if lacking is None else lacking - len(chunk)
        yield chunk


class _Interrupted(Exception):
    """A try that failed in a way that the next one may not."""


class _Part:
    """What has arrived so far, in a file beside the one that it will become."""

    def __init__(self, target: Path, size: int | None, sums: Mapping[str, str]) -> None:
        self.target = target
        self.check = _Check(size, sums)
        self._path = target.with_name(f"{target.name}.part")
        self._version = target.with_name(f"{target.name}.part.version")

    def resume(self) -> int:
        """Bytes that need not be asked for again; what cannot be continued is thrown away."""
        self.check = self.check.anew()
        with writing(self._path, REMEDY):
            # Without a version or a sum nothing would show that two files were spliced together.
            if self._path.exists() and (self.version() or self.check.sums):
                self.check.read(self._path)
        if not self.check.length or self.check.is_too_long():
            self.remove()
        return self.check.length

    def version(self) -> str | None:
        """What the server called the version of the file that the part was begun with."""
        if not self._version.exists():
            return None
        return _as_header(self._version.read_bytes().decode("latin-1"))

    def is_continued_by(self, response: HTTPResponse) -> bool:
        """Whether the answer to a request for the rest begins where the part ends."""
        begins_at = f"bytes {self.check.length}-"
        fits = response.headers.get("Content-Range", "").startswith(begins_at)
        return fits and self.version() in (None, _version_of(response))

    def append(self, response: HTTPResponse) -> Iterator[int]:
        """Write and check the body while it comes in; yields the bytes that are here by then."""
        with writing(self._path, REMEDY):
            if not self.check.length and (version := _version_of(response)):
                with replacing(self._version) as file:
                    file.write(version.encode())
            with open(self._path, "ab", opener=own_file) as file:
                for chunk in _chunks(response):
                    file.write(chunk)
                    self.check.update(chunk)
                    yield self.check.length
                    if self.check.is_too_long():
                        return

    def remove(self) -> None:
        """Start over."""
        self.check = self.check.anew()
        with writing(self._path, REMEDY):
            self._path.unlink(missing_ok=True)
            self._version.unlink(missing_ok=True)

    def finish(self) -> None:
        """Put the file in place in one step, once it is safe on the disk."""
        with writing(self.target, REMEDY):
            sync(self._path)
            self._path.replace(self.target)
            self._version.unlink(missing_ok=True)
            sync(self.target.parent)


class _Check:
    """Compares bytes with what is known about them, as they pass by."""

    def __init__(self, size: int | None, sums: Mapping[str, str]) -> None:
        self.size, self.sums = size, sums
        self.length = 0
        self._digests = {name: hashlib.new(name, usedforsecurity=False) for name in sums}

    def anew(self) -> _Check:
        """The same expectations, nothing seen yet."""
        return _Check(self.size, self.sums)

    def read(self, file: Path) -> _Check:
        """Let a whole file pass by."""
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                self.update(chunk)
        return self

    def update(self, chunk: bytes) -> None:
        """Let the next bytes pass by."""
        self.length += len(chunk)
        for digest in self._digests.values():
            digest.update(chunk)

    def is_too_long(self) -> bool:
        """Whether it has more bytes than expected."""
        return self.size is not None and self.length > self.size

    def misfit(self) -> str | None:
        """What was expected and what came, None if all is well."""
        if self.size not in (None, self.length):
            more = "more" if self.is_too_long() else self.length
            return f"expected {self.size} bytes, got {more}"
        for name, digest in self._digests.items():
            if digest.hexdigest() != self.sums[name].lower():
                return f"expected {name} {self.sums[name]}, got {digest.hexdigest()}"
        return None


def _version_of(response: HTTPResponse) -> str | None:
    """A name for exactly these bytes that a later request can ask to be continued."""
    etag, modified = response.headers.get("ETag"), response.headers.get("Last-Modified")
    # A weak tag promises a similar file, not the same bytes.
    return _as_header(modified if etag is None or etag.startswith("W/") else etag)


def _as_header(text: str | None) -> str | None:
    """The text if it may be sent as a header, else None."""
    return text if text and text.isascii() and text.isprintable() else None
