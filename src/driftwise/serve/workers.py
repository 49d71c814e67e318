"""Prediction workers: processes that answer predictions and pass all other requests on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import socket
import tempfile
import threading
import time
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from starlette.types import Receive, Scope, Send

from driftwise.serve.access import Access
from driftwise.serve.guard import answer_error
from driftwise.serve.measures import Measures, Recorder
from driftwise.serve.prediction_batches import Batches
from driftwise.serve.settings import ServeSettings
from driftwise.serve.shared_snapshot import Follower

STOP_SECONDS = 5.0
RESTART_SECONDS = 1.0
"""a worker that ends sooner after its start is replaced after a pause"""
UNAVAILABLE = (503, "failure", "the learner does not answer now; try again shortly")
"""the answer when the main process is being stopped or replaced"""

log = logging.getLogger("driftwise.serve")


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What a worker process is given."""

    folder: Path
    """holds the newest snapshot and the socket of the main process"""
    serve: ServeSettings
    access: Access
    hosts: frozenset[str] | None
    options: dict[str, Any] = field(default_factory=dict)
    """of uvicorn"""

    @property
    def socket(self) -> Path:
        """Where the main process takes requests."""
        return self.folder / "socket"


class Workers:
    """Keeps N processes running until it is closed.

    Each has a listening socket of its own on the one port (SO_REUSEPORT). The main process holds them
    all, so that connections wait while a killed worker is replaced.
    """

    def __init__(
        self, listeners: list[socket.socket], settings: WorkerSettings, measures: Measures
    ) -> None:
        self._listeners = listeners
        self._settings = settings
        self._measures = measures
        self._context = multiprocessing.get_context("forkserver")
        # Imported once, in the server of forks: a worker is replaced in a fraction of a second.
        self._context.set_forkserver_preload(["driftwise.serve.workers", "driftwise.serve.api"])
        self._woken, self._wake = self._context.Pipe(duplex=False)
        self.processes: list[BaseProcess] = []
        self._reports: list[Any] = []
        self._started: list[float] = []
        for number in range(len(listeners)):
            self._start(number)
        self._thread = threading.Thread(target=self._watch, name="workers", daemon=True)
        self._thread.start()

    def _start(self, number: int) -> None:
        mine, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=run_worker,
            args=(self._listeners[number], self._settings, theirs),
            name=f"predictions-{number}",
            daemon=True,
        )
        process.start()
        theirs.close()
        place = slice(number, number + 1)
        self.processes[place], self._reports[place] = [process], [mine]
        self._started[place] = [time.monotonic()]

    def _watch(self) -> None:
        while True:
            ends = {each.sentinel: number for number, each in enumerate(self.processes)}
            reports = {each: number for number, each in enumerate(self._reports) if not each.closed}
            for found in connection.wait([self._woken, *ends, *reports]):
                if found is self._woken:
                    return
                if isinstance(found, int):
                    self._replace(ends[found])
                    break  # the lists have changed
                assert isinstance(found, connection.Connection), "sentinels are numbers"
                try:
                    for line in found.recv():
                        self._measures.add(*line)
                except (EOFError, OSError):
                    found.close()

    def _replace(self, number: int) -> None:
        log.warning("prediction worker %d has ended; another one is started", number)
        self._measures.restarts += 1
        self._reports[number].close()
        pause = self._started[number] + RESTART_SECONDS - time.monotonic()
        while not self._woken.poll(max(0.0, pause)):
            try:
                self._start(number)
                return
            except (OSError, EOFError) as error:  # no memory, no processes
                log.error("no prediction worker could be started: %s", error)
                pause = RESTART_SECONDS

    def close(self) -> None:
        """Let the workers finish what they answer, and end them."""
        self._wake.send(None)
        self._thread.join()
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in self.processes:
            process.join(max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


@contextlib.contextmanager
def private_folder() -> Any:
    """A folder that only this user can read: what lies in it is trusted."""
    with tempfile.TemporaryDirectory(prefix="driftwise-serve-") as folder:
        yield Path(folder)


def run_worker(listener: socket.socket, settings: WorkerSettings, reports: Any) -> None:
    """The process of a worker."""
    import torch
    import uvicorn

    from driftwise.serve.api import PREDICTOR, make_predict_app

    os.setpgrp()  # Ctrl-C is for the main process, which stops its workers
    torch.set_num_threads(1)  # one core for each worker: start as many as there are to spare
    threading.Thread(target=_end_with_parent, daemon=True).start()
    recorder = Recorder(reports.send)
    follower, batches = Follower(settings.folder / "newest"), Batches()
    answering = make_predict_app(
        batches,
        settings=settings.serve,
        access=settings.access,
        hosts=settings.hosts,
        measures=recorder,
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if is_prediction(scope, settings.access) and (found := follower.newest()) is not None:
            scope[PREDICTOR] = found
            await answering(scope, receive, send)
        else:
            await forward(settings.socket, scope, receive, send)

    config = uvicorn.Config(app, **settings.options)
    uvicorn.Server(config).run(sockets=[listener])
    recorder.flush()


def is_prediction(scope: Scope, access: Access) -> bool:
    """Whether a worker may answer; sessions of browsers are known to the learner's process alone."""
    if scope["type"] != "http" or scope["path"] != "/v1/predict" or scope["method"] != "POST":
        return False
    return not access.has_tokens or any(key == b"authorization" for key, _ in scope["headers"])


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)  # the main process was killed: nobody else may hold its port


_DROPPED = {
    *(b"connection", b"expect", b"keep-alive", b"upgrade"),
    *(b"forwarded", b"x-forwarded-for", b"x-forwarded-proto"),
}
_NOT_PASSED_BACK = {b"connection", b"date", b"transfer-encoding"}


async def forward(path: Path, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass a request on to the main process, and its answer back, part by part."""
    import h11

    if scope["type"] != "http":
        return
    loop = asyncio.get_running_loop()
    http = h11.Connection(h11.CLIENT)
    # A plain socket: what was answered can be read although the rest of a body was not wanted.
    with socket.socket(socket.AF_UNIX) as main:
        main.setblocking(False)
        try:
            head = http.send(_request(scope)) or b""
            await loop.sock_connect(main, str(path))
            await loop.sock_sendall(main, head)
        except OSError:
            await answer_error(send, *UNAVAILABLE)
            return
        except h11.LocalProtocolError:
            await answer_error(send, 400, "request", "the request cannot be read")
            return
        started = False

        async def up() -> None:
            """Send the body, then wait for the client to hang up."""
            more = True
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                if more:
                    part = http.send(h11.Data(data=message.get("body", b""))) or b""
                    more = message.get("more_body", False)
                    if not more:
                        part += http.send(h11.EndOfMessage()) or b""
                    with contextlib.suppress(ConnectionError):  # answered before the end
                        await loop.sock_sendall(main, part)

        async def down() -> None:
            nonlocal started
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    http.receive_data(await loop.sock_recv(main, 65536))
                elif isinstance(event, h11.Response):
                    started = True
                    kept = [each for each in event.headers if each[0] not in _NOT_PASSED_BACK]
                    status = event.status_code
                    await send({"type": "http.response.start", "status": status, "headers": kept})
                elif isinstance(event, h11.Data):
                    body = bytes(event.data)
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                elif isinstance(event, h11.EndOfMessage):
                    await send({"type": "http.response.body", "body": b""})
                    return
                elif isinstance(event, h11.ConnectionClosed):
                    raise ConnectionError

        tasks = [asyncio.ensure_future(each()) for each in (down, up)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[1].done() and tasks[1].exception() is not None:
                await asyncio.wait(tasks[:1])  # the body was not wanted; the answer says why
            if tasks[0].done():
                tasks[0].result()
        except (OSError, h11.RemoteProtocolError):
            if started:
                raise  # half an answer: the connection ends
            await answer_error(send, *UNAVAILABLE)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _request(scope: Scope) -> Any:
    """The head of a request to the main process, which is told from where it came."""
    import h11

    headers = [each for each in scope["headers"] if each[0] not in _DROPPED]
    headers += [
        (b"connection", b"close"),
        (b"x-forwarded-for", ((scope.get("client") or ("",))[0] or "unknown").encode()),
        (b"x-forwarded-proto", scope["scheme"].encode()),
    ]
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    target = (scope.get("raw_path") or scope["path"].encode()) + query
    return h11.Request(method=scope["method"], target=target, headers=headers)
