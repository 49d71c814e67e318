"""A live learner as a service: an HTTP API, an inbox for labels, a dashboard.

The web framework is an extra, `pip install 'driftwise[serve]'`; `Service` and `Client` need none, and
`Client` does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftwise.serve.client import Client, ServiceError
    from driftwise.serve.ray_serve import RayService, RaySettings
    from driftwise.serve.server import Address, Learning, open_service, run_server
    from driftwise.serve.service import Service
    from driftwise.serve.settings import ServeSettings

_HOMES = {
    "Address": "server",
    "Client": "client",
    "Learning": "server",
    "RayService": "ray_serve",
    "RaySettings": "ray_serve",
    "ServeSettings": "settings",
    "Service": "service",
    "ServiceError": "client",
    "open_service": "server",
    "run_server": "server",
}

__all__ = [
    "Address",
    "Client",
    "Learning",
    "RayService",
    "RaySettings",
    "ServeSettings",
    "Service",
    "ServiceError",
    "open_service",
    "run_server",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
