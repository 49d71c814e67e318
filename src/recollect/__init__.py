"""Class-incremental learning in which seen classes come back looking different."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from recollect.data.adapters import from_torch_dataset
    from recollect.data.own import load_own
    from recollect.detect.standalone import DriftDetector
    from recollect.errors import RunFailure, UserError
    from recollect.experiment.config import RunConfig
    from recollect.experiment.load import Predictor, load
    from recollect.experiment.resume import resume
    from recollect.experiment.run import run
    from recollect.live.estimator import KeeperClassifier
    from recollect.live.keeper import Keeper
    from recollect.report import write_report

_HOMES = {
    "DriftDetector": "recollect.detect.standalone",
    "Keeper": "recollect.live.keeper",
    "KeeperClassifier": "recollect.live.estimator",
    "Predictor": "recollect.experiment.load",
    "RunConfig": "recollect.experiment.config",
    "RunFailure": "recollect.errors",
    "UserError": "recollect.errors",
    "from_torch_dataset": "recollect.data.adapters",
    "load": "recollect.experiment.load",
    "load_own": "recollect.data.own",
    "resume": "recollect.experiment.resume",
    "run": "recollect.experiment.run",
    "write_report": "recollect.report",
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
    """Public names are imported when they are first used: `import recollect` stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
