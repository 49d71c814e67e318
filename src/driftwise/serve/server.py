"""From options to a running server."""

from __future__ import annotations

import inspect
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwise.config.custom import CustomPart, is_import_path
from driftwise.errors import RunFailure, UserError
from driftwise.live import LiveLearner
from driftwise.serve.access import Access, is_loopback
from driftwise.serve.service import Service, no_labels_yet
from driftwise.serve.settings import ServeSettings

if TYPE_CHECKING:
    from torch import nn

    from driftwise.serve.views import RunsView

MAX_CONNECTIONS = 1000
BACKLOG = 2048
STOP_SECONDS = 5
"""that open connections have to end when the service is stopped"""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What a service learns with."""

    network: str | None = None
    """a backbone's name, or the import path of one, or of a function that makes a torch module"""
    model: Path | None = None
    """the folder of a run or a live learner whose network is the first one"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of the live learner"""

    def __post_init__(self) -> None:
        if (self.network is None) == (self.model is None):
            raise UserError("give either a network, by name or import path, or a model's folder")

    def class_names(self) -> tuple[str, ...]:
        """Those of the model; none of a network."""
        if self.model is None:
            return ()
        from driftwise.runs.predictor import load

        return load(self.model).class_names

    def make(self, folder: Path) -> LiveLearner:
        """A new live learner."""
        return LiveLearner(
            self._network(), labels=no_labels_yet, folder=folder, **dict(self.settings)
        )

    def load(self, folder: Path) -> LiveLearner:
        """The live learner in a folder, as it was saved; UserError if this asks for another one."""
        network = self._network()
        module = None if isinstance(network, str) else network
        live = LiveLearner.load(folder, module, labels=no_labels_yet, trust_imports=True)
        try:
            self._refuse_other(live.settings, network)
        except BaseException:
            live.close(save=False)
            raise
        return live

    def _refuse_other(self, saved: Mapping[str, Any], network: nn.Module | str) -> None:
        """What is asked for makes a new learner: here it would have no effect, without a word."""
        asked = LiveLearner(network, labels=no_labels_yet, **dict(self.settings)).settings
        for name in ("backbone", *self.settings):
            if asked.get(name) != saved.get(name):
                raise UserError(
                    f"the learner in the folder has {name} {saved.get(name)}, not {asked.get(name)}; "
                    "leave that setting as it is, or begin with another folder"
                )

    def _network(self) -> nn.Module | str:
        if self.model is not None:
            from driftwise.runs.predictor import load

            return load(self.model).network
        assert self.network is not None
        if not is_import_path(self.network):
            return self.network
        part = CustomPart("backbone", self.network)
        factory = part.factory()
        required = [
            name
            for name, each in inspect.signature(factory).parameters.items()
            if each.default is inspect.Parameter.empty
            and each.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        ]
        if required:  # made for the first samples, like every backbone
            return self.network
        made: nn.Module = part.call(factory)
        return made


def open_service(
    folder: Path,
    learning: Learning,
    settings: ServeSettings | None = None,
    *,
    mode: str | None = None,
    skip: Sequence[int] = (),
) -> Service:
    """A service in a folder, new or as it was left; `mode` is that of a new one."""

    def make(path: Path) -> LiveLearner:
        live = learning.make(path)
        if mode is not None:
            live.mode = mode  # type: ignore[assignment]
            live.save()  # a replay begins with it, too
        return live

    service = Service(folder, make, learning.load, settings, skip=skip)
    if mode not in (None, is_in := service.view["status"]["mode"]):
        service.notes.append(f"it goes on in the mode {is_in}; the mode {mode} is of a new service")
    return service


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a service listens, and who may talk to it."""

    host: str = "127.0.0.1"
    port: int = 8000
    tokens: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.tokens is None:
            raise UserError(
                f"{self.host} can be reached from other machines: give tokens=FILE, or keep "
                "127.0.0.1"
            )
        if not 0 <= self.port < 2**16:
            raise UserError(f"a port lies from 0 to 65535; got {self.port}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UserError("tls_cert and tls_key go together; give both or none")
        for file in filter(None, (self.tls_cert, self.tls_key)):
            if not file.is_file():
                raise UserError(f"there is no file {file}")
        if self.tls_cert is not None:
            try:  # no password: nobody can be asked for one
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.tls_cert, self.tls_key, password="")
            except (ssl.SSLError, OSError, ValueError) as error:
                raise UserError(
                    f"{self.tls_cert} and {self.tls_key} are no certificate and its key (PEM, without "
                    "a password)"
                ) from error

    @property
    def scheme(self) -> str:
        """http or https."""
        return "http" if self.tls_cert is None else "https"

    def access(self) -> Access:
        """The tokens of the file."""
        return Access() if self.tokens is None else Access.from_file(self.tokens)


def run_server(
    service: Service,
    address: Address,
    *,
    runs: RunsView | None = None,
    workers: int = 0,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until the process is asked to stop, then finish and save.

    `workers`: processes that predict; 0: this one does. `started` is called with the URL once requests
    are taken.
    """
    try:
        import uvicorn

        from driftwise.serve.api import make_app
        from driftwise.serve.connections import Connection
        from driftwise.serve.measures import Measures
    except ImportError as error:
        raise UserError(f"serving needs {error.name}: pip install 'driftwise[serve]'") from error

    class Server(uvicorn.Server):
        def handle_exit(self, *arguments: Any) -> None:
            service.is_leaving = True
            super().handle_exit(*arguments)

    access = address.access()
    hosts = None if access.has_tokens else frozenset(address.allowed_hosts)
    measures = Measures()
    app = make_app(service, access=access, hosts=hosts, runs=runs, measures=measures)
    common: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "http": Connection,  # the same everywhere, whatever else is installed
        "loop": "asyncio",
        "lifespan": "off",
        "ws": "none",
        "limit_concurrency": MAX_CONNECTIONS,
        "timeout_graceful_shutdown": STOP_SECONDS,
    }
    tls: dict[str, Any] = {
        "ssl_certfile": address.tls_cert and str(address.tls_cert),
        "ssl_keyfile": address.tls_key and str(address.tls_key),
    }
    listeners = _all_bound(address, workers)
    url = f"{address.scheme}://{address.host}:{listeners[0].getsockname()[1]}"
    try:
        if not workers:
            started(url)
            Server(uvicorn.Config(app, **common, **tls)).run(sockets=listeners)
            return
        from driftwise.serve.shared_snapshot import FilePublisher
        from driftwise.serve.workers import Workers, WorkerSettings, private_folder

        with private_folder() as folder:
            given = WorkerSettings(
                folder=folder,
                serve=service.settings,
                access=access,
                hosts=hosts,
                options={**common, **tls},
            )
            service.follow(FilePublisher(folder))
            measures.workers = workers
            processes = Workers(listeners, given, measures)
            try:
                # Workers say from where a request came.
                config = uvicorn.Config(
                    app,
                    uds=str(given.socket),
                    proxy_headers=True,
                    forwarded_allow_ips="*",
                    **common,
                )
                started(url)
                Server(config).run()
            finally:
                processes.close()
    finally:
        for listener in listeners:
            listener.close()
        service.close()


def _all_bound(address: Address, workers: int) -> list[socket.socket]:
    """One socket, or one for each worker, all at one port; connections wait until they are answered."""
    if not workers:
        only = _bound(address)
        only.listen(BACKLOG)
        return [only]
    if not hasattr(socket, "SO_REUSEPORT"):
        raise UserError(
            "several workers share one port, which this system does not allow (no SO_REUSEPORT); "
            "serve with workers=0"
        )
    # Two services would share a port without a word: the first socket is tried alone.
    _bound(address).close()
    listeners = [_bound(address, shared=True)]
    at = replace(address, port=listeners[0].getsockname()[1])
    listeners += [_bound(at, shared=True) for _ in range(workers - 1)]
    for listener in listeners:
        listener.listen(BACKLOG)
    return listeners


def _bound(address: Address, *, shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # With the protocol named: asyncio sends answers without delay only on sockets that say TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise RunFailure(
            f"cannot listen on {address.host}:{address.port}: {error.strerror or error}"
        ) from error
    return listener
