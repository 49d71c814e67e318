"""Class-incremental learning in which seen classes come back looking different."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from driftwise.config.schema import RunConfig
    from driftwise.datasets.arrays import from_torch_dataset
    from driftwise.datasets.own import load_own
    from driftwise.detect.standalone import DriftDetector
    from driftwise.errors import RunFailure, UserError
    from driftwise.live.estimator import LiveClassifier
    from driftwise.live.live_learner import LiveLearner
    from driftwise.report import write_report
    from driftwise.runs.predictor import Predictor, load
    from driftwise.runs.resume import resume
    from driftwise.runs.run import run

_HOMES = {
    "DriftDetector": "driftwise.detect.standalone",
    "LiveLearner": "driftwise.live.live_learner",
    "LiveClassifier": "driftwise.live.estimator",
    "Predictor": "driftwise.runs.predictor",
    "RunConfig": "driftwise.config.schema",
    "RunFailure": "driftwise.errors",
    "UserError": "driftwise.errors",
    "from_torch_dataset": "driftwise.datasets.arrays",
    "load": "driftwise.runs.predictor",
    "load_own": "driftwise.datasets.own",
    "resume": "driftwise.runs.resume",
    "run": "driftwise.runs.run",
    "write_report": "driftwise.report",
}

__all__ = [
    "DriftDetector",
    "LiveClassifier",
    "LiveLearner",
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
