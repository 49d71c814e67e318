"""`driftwise serve`: a live learner as a service."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwise.cli.common import add_command, folder, refuse_part_options
from driftwise.errors import UserError
from driftwise.runs.saving import Terminated

if TYPE_CHECKING:
    from driftwise.serve.server import Address, Learning
    from driftwise.serve.service import Service
    from driftwise.serve.settings import ServeSettings

DONE = 0


def add_serve_command(commands: Any) -> None:
    """Register `serve` with the subparsers of the command line."""
    serve = add_command(
        commands,
        "serve",
        _serve,
        "a live learner as a service: HTTP API, inbox for labels, dashboard",
        epilog="`driftwise serve demo` needs nothing else: digits that drift while you watch.",
    )
    serve.add_argument(
        "what", nargs="?", choices=["demo"], metavar="demo", help="the embedded stream of digits"
    )
    serve.add_argument(
        "--network",
        metavar="NAME",
        help="a backbone (mlp, cnn, resnet18, ...), or module:function that makes a torch module",
    )
    serve.add_argument(
        "--model", type=folder, metavar="FOLDER", help="begin with the network of a run in a folder"
    )
    serve.add_argument(
        "--folder",
        type=folder,
        metavar="STATE",
        help="where everything is kept, and taken up again",
    )
    serve.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="(127.0.0.1)")
    serve.add_argument(
        "--port", type=int, default=8000, metavar="N", help="(8000; 0: any free one)"
    )
    serve.add_argument(
        "--runs", type=folder, metavar="FOLDER", help="also show the runs below a folder"
    )
    serve.add_argument(
        "--tokens", type=Path, metavar="FILE", help="lines of ROLE[,ROLE] NAME TOKEN"
    )
    serve.add_argument("--tls-cert", type=Path, metavar="FILE", help="a certificate, for https")
    serve.add_argument("--tls-key", type=Path, metavar="FILE", help="its key")
    serve.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME", help="beside localhost"
    )
    serve.add_argument(
        "--alerts", type=Path, metavar="FILE", help="where to report drift, in YAML or JSON"
    )
    serve.add_argument(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="processes that predict (0: the one that learns)",
    )
    serve.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="on a Ray cluster (host:port, auto, or local to start one), with replicas that predict",
    )
    serve.add_argument(
        "--replicas",
        default="1",
        metavar="MIN[:MAX]",
        help="of --ray; with MAX, Ray starts and ends them with the load (1)",
    )
    serve.add_argument("--mode", choices=["auto", "ask", "shadow"], help="of a new service (auto)")
    serve.add_argument(
        "--classes", metavar="NAME,...", help="names of the labels 0, 1, ..., for people"
    )
    serve.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the live learner, e.g. label_budget=1000",
    )
    serve.add_argument(
        "--skip-request",
        type=int,
        action="append",
        default=[],
        metavar="N",
        help="leave out a request of the log that breaks the learner",
    )


def _serve(arguments: argparse.Namespace) -> int:
    from driftwise.serve.alerts import Alerts, read_alerts
    from driftwise.serve.server import Address, run_server
    from driftwise.serve.views import RunsView

    refuse_part_options(arguments)
    if arguments.workers < 0:
        raise UserError(f"--workers is 0 or more; got {arguments.workers}")
    address = Address(
        host=arguments.host,
        port=arguments.port,
        tokens=arguments.tokens,
        tls_cert=arguments.tls_cert,
        tls_key=arguments.tls_key,
        allowed_hosts=tuple(arguments.allowed_host),
    )
    address.access()  # a mistake in a file is reported before anything starts
    alerts = None if arguments.alerts is None else read_alerts(arguments.alerts)
    if arguments.ray is not None:
        _serve_on_ray(arguments, address, alerts)
        return DONE
    alone = not (arguments.what or arguments.network or arguments.model)
    runs = None if arguments.runs is None else RunsView(arguments.runs, alone=alone)
    with tempfile.TemporaryDirectory(prefix="driftwise-demo-") as scratch:
        service, begin = _service(arguments, Path(scratch))
        for note in service.notes:
            print(f"note: {note}", flush=True)

        def started(url: str) -> None:
            print(f"serving at {url}", flush=True)
            begin()
            if alerts is not None:
                Alerts(service, *alerts).start()

        try:
            run_server(service, address, runs=runs, workers=arguments.workers, started=started)
        except (KeyboardInterrupt, Terminated):
            pass  # asked to stop: everything is saved
        finally:
            service.close()
    return DONE


def _serve_on_ray(arguments: argparse.Namespace, address: Address, alerts: Any) -> None:
    least, _, most = arguments.replicas.partition(":")
    if not least.isdecimal() or (most and not most.isdecimal()):
        raise UserError(f"--replicas is MIN or MIN:MAX, such as 1:4; got {arguments.replicas!r}")
    if arguments.what == "demo" or arguments.workers:
        raise UserError("--ray has replicas of its own and no demo; leave out demo and --workers")
    try:
        from driftwise.serve.ray_serve import RayService, RaySettings
    except ImportError as error:
        raise UserError(
            f"serving on Ray needs {error.name}: pip install 'driftwise[serve,ray-serve]'"
        ) from error
    learning, settings = _learning(arguments)
    with RayService(
        arguments.folder,
        learning,
        settings,
        address=address,
        ray_settings=RaySettings(
            address=arguments.ray, min_replicas=int(least), max_replicas=int(most or least)
        ),
        mode=arguments.mode,
        skip=tuple(arguments.skip_request),
        alerts=alerts,
        runs=arguments.runs,
    ) as service:
        for note in service.notes:
            print(f"note: {note}", flush=True)
        print(f"serving at {service.url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt, Terminated):
            while True:
                time.sleep(3600)  # until a signal comes


def _service(arguments: argparse.Namespace, scratch: Path) -> tuple[Service, Any]:
    """The service, and what to call once it takes requests."""
    from driftwise.serve.demo import Demo
    from driftwise.serve.server import open_service

    if arguments.what == "demo" or (
        arguments.runs and not arguments.network and not arguments.model
    ):
        if arguments.network or arguments.model:
            raise UserError("the demo brings its own network and data; give neither")
        if arguments.set or arguments.classes or arguments.skip_request:
            raise UserError("the demo has settings of its own: leave out --set, --classes and such")
        demo = Demo()
        service = demo.open(arguments.folder or scratch / "state", mode=arguments.mode)
        return service, (lambda: demo.start(service)) if arguments.what == "demo" else _nothing
    learning, settings = _learning(arguments)
    service = open_service(
        arguments.folder, learning, settings, mode=arguments.mode, skip=arguments.skip_request
    )
    return service, _nothing


def _learning(arguments: argparse.Namespace) -> tuple[Learning, ServeSettings]:
    from driftwise.serve.server import Learning
    from driftwise.serve.settings import ServeSettings

    if arguments.folder is None:
        raise UserError("--folder says where everything is kept; give one")
    learning = Learning(
        network=arguments.network, model=arguments.model, settings=_settings(arguments.set)
    )
    names = tuple(filter(None, (arguments.classes or "").split(","))) or learning.class_names()
    return learning, ServeSettings(class_names=names)


def _nothing() -> None:
    """Nothing feeds the service but its clients."""


def _settings(given: list[str]) -> dict[str, Any]:
    """NAME=VALUE, the value as JSON or as a text."""
    settings = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise UserError(f"--set takes NAME=VALUE; got {each!r}")
        try:
            settings[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            settings[name.replace("-", "_")] = value
    return settings
