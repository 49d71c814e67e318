"""A live learner as a service: an HTTP API, an inbox for labels, a dashboard.

The web framework is an extra, `pip install 'driftwise[serve]'`; `Service` and `Client` need none.
"""

from driftwise.serve.client import Client, ServiceError
from driftwise.serve.service import Service
from driftwise.serve.settings import ServeSettings

__all__ = ["Client", "ServeSettings", "Service", "ServiceError"]
