"""Class-incremental learning in which seen classes come back looking different."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from driftwise.data.adapters import from_torch_dataset
    from driftwise.data.own import load_own
    from driftwise.detect.standalone import DriftDetector
    from driftwise.errors import RunFailure, UserError
    from driftwise.experiment.config import RunConfig
    from driftwise.experiment.load import Predictor, load
    from driftwise.experiment.resume import resume
    from driftwise.experiment.run import run
    from driftwise.live.estimator import KeeperClassifier
    from driftwise.live.keeper import Keeper
    from driftwise.report import write_report

_HOMES = {
    "DriftDetector": "driftwise.detect.standalone",
    "Keeper": "driftwise.live.keeper",
    "KeeperClassifier": "driftwise.live.estimator",
    "Predictor": "driftwise.experiment.load",
    "RunConfig": "driftwise.experiment.config",
    "RunFailure": "driftwise.errors",
    "UserError": "driftwise.errors",
    "from_torch_dataset": "driftwise.data.adapters",
    "load": "driftwise.experiment.load",
    "load_own": "driftwise.data.own",
    "resume": "driftwise.experiment.resume",
    "run": "driftwise.experiment.run",
    "write_report": "driftwise.report",
}

__all__ = [
    "DriftDetector",
    "Keeper",
    "KeeperClassifier",
    "Predictor",
    "RunConfig",
    "RunFailure",
    "UserError",
    "from_torch_dataset",
    "load",
    "load_own",
    "resume",
    "run",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: `import driftwise` stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
