"""Files of the Hugging Face hub: from its cache on this machine, or fetched where somebody answers."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

PATIENCE = 2.0
"""seconds to wait for a sign of the network: without one, the hub's client takes 23 to give up"""


class Absent(Exception):
    """Why the hub did not give a file."""


def cached(repository: str, file: str) -> Path | None:
    """A file that has been fetched before."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        return None
    found = hub.try_to_load_from_cache(repository, file)
    return Path(found) if isinstance(found, str) else None


def fetched(repository: str, file: str) -> Path:
    """A file from the cache on this machine or over the network."""
    hub = _client()
    if (found := cached(repository, file)) is not None:
        return found
    return _asked(lambda: hub.hf_hub_download(repository, file))


def fetched_folder(repository: str) -> Path:
    """All files of a repository, from the cache on this machine or over the network."""
    hub = _client()
    with contextlib.suppress(Exception):  # of whichever kind: it is not there
        return Path(hub.snapshot_download(repository, local_files_only=True))
    return _asked(lambda: hub.snapshot_download(repository))


def _client() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise Absent("huggingface_hub is not installed") from error


def _asked(download: Callable[[], str]) -> Path:
    if not _answers(*_first_hop()):
        raise Absent("no network")
    try:
        return Path(download())
    except Exception as error:  # of whichever library the client speaks HTTP with
        raise Absent(" ".join(str(error).split()) or type(error).__name__) from error


def _first_hop() -> tuple[str, int]:
    """Host and port that a request to the hub goes to first: a proxy's, or its own."""
    hub = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    address = urlsplit(getproxies().get("https") or hub)
    return address.hostname or "", address.port or (80 if address.scheme == "http" else 443)


def _answers(host: str, port: int) -> bool:
    """Whether anybody takes a connection there within our patience."""
    answered = threading.Event()

    def connect() -> None:
        with contextlib.suppress(OSError):
            socket.create_connection((host, port), timeout=PATIENCE).close()
            answered.set()

    # In a thread: looking up a name may take long, and no timeout reaches it.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return answered.is_set()
