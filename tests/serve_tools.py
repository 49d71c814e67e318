"""A service around a small live learner, and requests to it without a network."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from live_tools import CHANGING, SOON

from driftwise.live import LiveLearner
from driftwise.serve.service import Service, no_labels_yet
from driftwise.serve.settings import ServeSettings

__all__ = ["CHANGING", "batch", "open_service", "served", "state_of"]

LEARNER: dict[str, Any] = {**SOON, "detector": "mmd", "check_rows": 20, "label_budget": 200}


def open_service(folder: Path, **settings: Any) -> Service:
    """A service in a folder, new or as it was left."""
    skip = settings.pop("skip", ())
    learner = {**LEARNER, **settings.pop("learner", {})}
    return Service(
        folder,
        lambda path: LiveLearner("mlp", labels=no_labels_yet, folder=path, **learner),
        lambda path: LiveLearner.load(path, labels=no_labels_yet),
        ServeSettings(**settings),
        skip=skip,
    )


def batch(number: int, size: int = 10) -> tuple[np.ndarray, list[int]]:
    """The batch of a number of the stream `CHANGING`."""
    start = number * size % len(CHANGING.labels)
    part = slice(start, start + size)
    return CHANGING.images[part], CHANGING.labels[part].tolist()


def state_of(service: Service) -> dict[str, Any]:
    """All that may change, but for times of day."""
    state = service.live.state_dict()
    if state["parts"] is not None:
        del state["parts"]["ledger"]["seconds"]
    del state["extra"]
    del state["teller"]["counters"]
    history = service.history.state_dict()
    for each in (
        part for name in ("events", "verdicts", "probes", "answers") for part in history[name]
    ):
        del each["time"]
    for each in history["series"]["buckets"]:
        del each["time"]
    return {**state, "history": history, "applied": service.view["applied"]}


@contextlib.contextmanager
def served(app: Any, **options: Any) -> Iterator[str]:
    """An application at a port of this machine; `options` of uvicorn."""
    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # connections wait until it has started
    config = uvicorn.Config(
        app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1, **options
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
