"""The service on a Ray cluster: one actor learns, replicas of Ray Serve predict."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import secrets
import socket
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from driftwise.config.learners import first_line
from driftwise.errors import RunFailure, UserError
from driftwise.live.portable import Predictor, unpacked
from driftwise.ray_cluster import RayCluster
from driftwise.serve.access import Access
from driftwise.serve.alerts import Alerts, AlertSettings, Target
from driftwise.serve.api import PREDICTOR, make_app, make_predict_app
from driftwise.serve.guard import Bodies, Body, answer_error
from driftwise.serve.measures import Line, Measures, Recorder
from driftwise.serve.prediction_batches import Batches
from driftwise.serve.server import Address, Learning, open_service
from driftwise.serve.settings import ServeSettings
from driftwise.serve.shared_snapshot import Publisher
from driftwise.serve.views import RunsView
from driftwise.serve.workers import UNAVAILABLE, is_prediction

NAME = "driftwise"
"""of the application of Ray Serve, of its actor that learns, and of their namespace"""
STORE = 512 * 2**20
"""bytes of the object store of a Ray that is started here: snapshots are in it"""
PULL_SECONDS, POLL_SECONDS = 10.0, 0.02
"""how long a replica waits for the next snapshot at a time, and how often the learner looks for it"""
AGAIN_SECONDS = 0.5
"""before a replica asks a learner again that did not answer"""
FIRST_SECONDS = 20.0
"""a new replica waits so long for its first snapshot; then the learner predicts for it"""
CLOSE_SECONDS = 120.0
MAX_AT_ONCE = 1000
"""requests at once of the learner, and of a replica"""

log = logging.getLogger("driftwise.serve")


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """Where a service runs on Ray, and how many replicas predict."""

    address: str = "local"
    """host:port of a cluster, auto, or local to start a Ray here"""
    min_replicas: int = 1
    max_replicas: int = 1
    """beyond `min_replicas`, Ray starts and ends replicas with the load"""
    ongoing: float = 4.0
    """requests at once of a replica, on average, beyond which Ray starts another one"""
    up_seconds: float = 30.0
    """of such a load before Ray starts replicas"""
    down_seconds: float = 600.0
    """of less load before Ray ends replicas"""
    learner_cpus: float = 1.0
    replica_cpus: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise UserError(
                "expected at least 1 replica, and no fewer at most than at least; got "
                f"{self.min_replicas} to {self.max_replicas}"
            )

    @property
    def cpus(self) -> float:
        """That Ray must have for all of it."""
        return self.learner_cpus + self.max_replicas * self.replica_cpus


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the learner and the replicas are given."""

    folder: Path
    learning: Learning
    settings: ServeSettings
    access: Access
    hosts: frozenset[str] | None
    mode: str | None
    skip: tuple[int, ...]
    alerts: tuple[list[Target], AlertSettings] | None
    runs: Path | None
    home: str
    """the folder whose modules a network of the user's may come from"""

    def enter(self) -> None:
        """Find the modules of the user's."""
        with contextlib.suppress(OSError):  # a machine that does not have it
            os.chdir(self.home)
        if self.home not in sys.path:
            sys.path.append(self.home)


class ObjectStorePublisher(Publisher):
    """Snapshots in Ray's object store: replicas of one machine map the same bytes."""

    def __init__(self, put: Callable[[np.ndarray], Any]) -> None:
        super().__init__()
        self._put = put
        self._start = secrets.token_hex(8)
        self.newest: tuple[str, list[Any]] = (self._start, [])
        """a name, and a reference to the bytes, or none"""

    def _give(self, parts: Iterable[bytes | memoryview]) -> None:
        content = np.frombuffer(b"".join(parts), dtype=np.uint8)
        self.newest = (f"{self._start}-{self._number}", [self._put(content)])

    def _withdraw(self) -> None:
        self.newest = (f"{self._start}-{self._number}", [])


class LearnerActor:
    """The one process that learns. It is started again after a crash, from folder and log."""

    def __init__(self, given: Given) -> None:
        import ray

        given.enter()
        self._refusal: Exception | None = None
        self._measures = Measures()
        try:
            self._service = open_service(
                given.folder, given.learning, given.settings, mode=given.mode, skip=given.skip
            )
        except (UserError, RunFailure) as error:
            if ray.get_runtime_context().was_current_actor_reconstructed:
                log.error("the learner cannot be opened again: %s", error)
                time.sleep(1)  # whoever holds the folder may be ending
                os._exit(1)  # Ray starts it again; after an exception it would not
            self._refusal = error
            return
        self._published = ObjectStorePublisher(ray.put)
        self._service.follow(self._published)
        self._app = make_app(
            self._service,
            access=given.access,
            hosts=given.hosts,
            runs=None if given.runs is None else RunsView(given.runs),
            measures=self._measures,
        )
        if given.alerts is not None:
            Alerts(self._service, *given.alerts).start()

    async def notes(self) -> list[str]:
        """What a person should know about the start; what stood against it is raised."""
        if self._refusal is not None:
            raise self._refusal
        return self._service.notes

    async def answer(self, scope: Scope, body: bytes) -> AsyncIterator[Message]:
        """The answer to a request that a replica passes on, part by part."""
        messages: asyncio.Queue[Message | None] = asyncio.Queue()
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if parts:
                return parts.pop()
            await asyncio.Event().wait()  # until this task is cancelled
            return {"type": "http.disconnect"}

        task = asyncio.ensure_future(self._app(scope, receive, messages.put))
        task.add_done_callback(lambda _: messages.put_nowait(None))
        try:
            while (message := await messages.get()) is not None:
                yield message
        finally:
            task.cancel()

    async def snapshot(self, known: str | None) -> tuple[str, list[Any]] | None:
        """The newest snapshot's name and bytes; None: the replica has it."""
        until = time.monotonic() + PULL_SECONDS
        while (newest := self._published.newest)[0] == known:
            if time.monotonic() > until:
                return None
            await asyncio.sleep(POLL_SECONDS)
        return newest

    async def count(self, lines: list[Line]) -> None:
        """Requests that a replica has answered."""
        for line in lines:
            self._measures.add(*line)

    async def close(self) -> None:
        """Finish what was acknowledged, and save."""
        await asyncio.to_thread(self._service.close)


class Replica:
    """An ASGI application that predicts; it asks the learner for everything else."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._bodies = Bodies(given.settings.max_bodies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            if is_prediction(scope, self._given.access) and self._newest is not None:
                scope[PREDICTOR] = self._newest
                await self._predicting(scope, receive, send)
            else:
                await self._forward(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """From the start of the replica to its end."""
        import ray

        await receive()
        self._given.enter()
        # Ray's bytes are read-only, and nothing here writes.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        self._ray: Any = ray
        self._learner: Any = ray.get_actor(NAME, namespace=NAME)
        self._newest: tuple[int, Predictor] | None = None
        recorder = Recorder(self._learner.count.remote)
        self._predicting = make_predict_app(
            Batches(),
            settings=self._given.settings,
            access=self._given.access,
            hosts=self._given.hosts,
            measures=recorder,
        )
        first = asyncio.Event()
        following = asyncio.ensure_future(self._follow(first))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(first.wait(), FIRST_SECONDS)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        following.cancel()
        recorder.flush()
        await send({"type": "lifespan.shutdown.complete"})

    async def _follow(self, first: asyncio.Event) -> None:
        """Pull every snapshot; while the learner is away, the last one is used."""
        known: str | None = None
        while True:
            try:
                found = await self._learner.snapshot.remote(known)
                if found is not None:
                    known, held = found
                    self._newest = unpacked(await held[0]) if held else None
                first.set()
            except self._ray.exceptions.RayError:
                await asyncio.sleep(AGAIN_SECONDS)
            except Exception as error:  # a class of the user's that is not found here, for example
                self._newest = None
                log.warning("a snapshot cannot be used: %s", first_line(error))
                first.set()

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the learner, and its answer back, part by part."""
        held = Body(receive, self._given.settings, scope["path"], self._bodies)
        try:
            body = await _body(held.receive)
            if body is not None:  # else the client has hung up
                await self._ask(scope, body, receive, send)
        except HTTPException as error:
            await answer_error(send, error.status_code, "request", str(error.detail))
        finally:
            held.release()

    async def _ask(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        answer = self._learner.answer.options(num_returns="streaming")
        stream = answer.remote(_plain(scope), body)
        started = False

        async def down() -> None:
            nonlocal started
            async for reference in stream:
                message = await reference
                started = True
                await send(message)

        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        tasks = [asyncio.ensure_future(each()) for each in (down, until_gone)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
        except self._ray.exceptions.RayError:
            if started:
                raise  # half an answer: the connection ends
            await answer_error(send, *UNAVAILABLE)
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(Exception):  # done, or the learner is away
                self._ray.cancel(stream)


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None: the client has hung up."""
    parts: list[bytes] = []
    while (message := await receive())["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
    return None


def _plain(scope: Scope) -> Scope:
    """What the learner must know of a request."""
    headers = [(bytes(key), bytes(value)) for key, value in scope["headers"]]
    names = ("type", "http_version", "method", "path", "raw_path", "query_string", "client")
    behind_tls = (b"x-forwarded-proto", b"https") in headers
    return {
        **{name: scope[name] for name in names if name in scope},
        "scheme": "https" if behind_tls else scope.get("scheme", "http"),
        "headers": headers,
        "asgi": {"version": "3.0"},
        "root_path": "",
    }


class Predictions:
    """The deployment of Ray Serve; its requests go to a `Replica`."""


class RayService:
    """A service on Ray, until it is closed."""

    def __init__(
        self,
        folder: Path,
        learning: Learning,
        settings: ServeSettings | None = None,
        *,
        address: Address | None = None,
        ray_settings: RaySettings | None = None,
        mode: str | None = None,
        skip: tuple[int, ...] = (),
        alerts: tuple[list[Target], AlertSettings] | None = None,
        runs: Path | None = None,
    ) -> None:
        """Start it; the folder must be there on every machine that may run the learner.

        Args:
            folder: Where everything is kept, and taken up again.
            learning: What it learns with.
            settings: Limits and times.
            address: Where Ray Serve listens, and who may talk to it.
            ray_settings: The cluster and the replicas.
            mode: Of a new service.
            skip: Numbers of requests in the log that are not applied.
            alerts: Where to report drift, and when.
            runs: A folder whose runs are shown, too.
        """
        address, self._settings = address or Address(), ray_settings or RaySettings()
        if address.tls_cert is not None:
            raise UserError("Ray Serve speaks no TLS; put a proxy in front of it")
        access = address.access()
        given = Given(
            folder=folder.absolute(),
            learning=learning,
            settings=settings or ServeSettings(),
            access=access,
            hosts=None if access.has_tokens else frozenset(address.allowed_hosts),
            mode=mode,
            skip=skip,
            alerts=alerts,
            runs=None if runs is None else runs.absolute(),
            home=str(Path.cwd()),
        )
        self._cluster = RayCluster(
            self._settings.address,
            num_cpus=max(os.cpu_count() or 1, math.ceil(self._settings.cpus)),
            store_bytes=STORE,
            needed_by="--ray",
        )
        self._ray = self._cluster.ray
        self._learner: Any = None
        self.notes: list[str] = []
        """what a person should know about the start"""
        try:
            self.url = self._start(given, address)
        except BaseException:
            self.close()
            raise

    def _start(self, given: Given, address: Address) -> str:
        try:
            from ray import serve
        except ImportError as error:
            raise UserError(
                f"serving on Ray needs {error.name}: pip install 'driftwise[ray-serve]'"
            ) from error
        self._serve: Any = serve
        actor = self._ray.remote(LearnerActor).options(
            name=NAME,
            namespace=NAME,
            num_cpus=self._settings.learner_cpus,
            max_restarts=-1,
            max_concurrency=MAX_AT_ONCE,
        )
        try:
            learner = actor.remote(given)
            self.notes = self._ray.get(learner.notes.remote())
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except (self._ray.exceptions.RayError, ValueError) as error:
            raise RunFailure(f"the learner did not start: {first_line(error)}") from error
        self._learner = learner
        port = address.port or _free_port(address.host)
        serve.start(
            proxy_location="HeadOnly" if self._settings.address == "local" else "EveryNode",
            http_options={"host": address.host, "port": port},
        )
        deployment = serve.deployment(
            name="predictions",
            autoscaling_config={
                "min_replicas": self._settings.min_replicas,
                "max_replicas": self._settings.max_replicas,
                "target_ongoing_requests": self._settings.ongoing,
                "upscale_delay_s": self._settings.up_seconds,
                "downscale_delay_s": self._settings.down_seconds,
            },
            max_ongoing_requests=MAX_AT_ONCE,
            ray_actor_options={"num_cpus": self._settings.replica_cpus},
        )(serve.ingress(Replica(given))(Predictions))
        serve.run(deployment.bind(), name=NAME, route_prefix="/")
        return f"http://{address.host}:{port}"

    def close(self) -> None:
        """End the replicas, let the learner finish and save, disconnect."""
        try:
            if self._learner is not None:
                with contextlib.suppress(Exception):  # it may not have been deployed
                    self._serve.delete(NAME)
                self._ray.get(self._learner.close.remote(), timeout=CLOSE_SECONDS)
                self._ray.kill(self._learner)
            if self._settings.address == "local":
                with contextlib.suppress(AttributeError):  # it was not started
                    self._serve.shutdown()
        except self._ray.exceptions.RayError as error:
            raise RunFailure(f"the learner was not closed: {first_line(error)}") from error
        finally:
            self._learner = None
            self._cluster.close()

    def __enter__(self) -> RayService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as free:
        port: int = free.getsockname()[1]
        return port
