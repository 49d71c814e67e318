"""A stub of the hub's HTTP API: repositories in memory, as the real client talks to them."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c0ffee" + "0" * 34


class Hub(ThreadingHTTPServer):
    """Knows one token; a repository is a dict of files."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(*self._get())

    def do_HEAD(self) -> None:
        self._answer(*self._get(), body=False)

    def do_POST(self) -> None:
        given = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != "Bearer hf_right":
            return self._answer(401, {"error": "Unauthorized"})
        self.server.requests.append(self.path)
        if self.path == "/api/repos/create":
            name = json.loads(given)["name"]
            self.server.repos.setdefault(f"me/{name}", {})
            return self._answer(
                200, {"url": f"{self.server.address}/me/{name}", "name": f"me/{name}"}
            )
        if self.path == "/api/validate-yaml":
            assert json.loads(given)["content"].startswith("---\n")
            return self._answer(200, {"errors": [], "warnings": []})
        _, _, _, owner, name, what, *_ = self.path.split("/")
        files = self.server.repos[f"{owner}/{name}"]
        if what == "preupload":
            asked = json.loads(given)["files"]
            modes = [{"path": each["path"], "uploadMode": "regular"} for each in asked]
            return self._answer(200, {"files": [{**each, "shouldIgnore": False} for each in modes]})
        for line in given.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        url = f"{self.server.address}/{owner}/{name}/commit/{COMMIT}"
        return self._answer(200, {"commitUrl": url, "commitOid": COMMIT, "success": True})

    def _get(self) -> tuple[int, object, dict[str, str]]:
        path = self.path.partition("?")[0]
        self.server.requests.append(path)
        parts = path.strip("/").split("/")
        api = parts[0] == "api"
        owner, name, *rest = parts[2:] if api else parts
        files = self.server.repos.get(f"{owner}/{name}")
        if files is None:
            return 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
        if api and rest[:1] == ["tree"]:
            return (
                200,
                [
                    {"type": "file", "path": path, "size": len(content), "oid": "0" * 40}
                    for path, content in files.items()
                ],
                {},
            )
        if api:
            siblings = [{"rfilename": name} for name in files]
            about = {"id": f"{owner}/{name}", "sha": COMMIT, "private": False, "tags": []}
            return 200, {**about, "siblings": siblings, "downloads": 0, "likes": 0}, {}
        content = files["/".join(rest[2:])]
        etag = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        return 200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}

    def _answer(
        self, status: int, given: object, headers: dict[str, str] | None = None, body: bool = True
    ) -> None:
        content = given if isinstance(given, bytes) else json.dumps(given).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


@contextmanager
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
