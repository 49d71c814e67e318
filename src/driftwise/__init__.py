"""Class-incremental learning in which the concepts of seen classes drift."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from driftwise import (
        adapt,
        datasets,
        detect,
        distributed,
        encoders,
        methods,
        models,
        plot,
        streams,
        testing,
    )
    from driftwise import memory as memory
    from driftwise.analytic_learner import AnalyticLearner
    from driftwise.config.schema import RunConfig
    from driftwise.datasets.arrays import from_torch_dataset
    from driftwise.datasets.own import load_own
    from driftwise.detect.standalone import DriftDetector
    from driftwise.drift_loop import DriftLoop
    from driftwise.errors import RunFailure, UserError
    from driftwise.hybrid_learner import HybridLearner
    from driftwise.integrations.realigner import Realigner
    from driftwise.learner import Learner
    from driftwise.live.estimator import LiveClassifier
    from driftwise.live.live_learner import LiveLearner
    from driftwise.memory import ReplayBuffer
    from driftwise.report import write_report
    from driftwise.report.results import Results, results
    from driftwise.runs.predictor import Predictor, load
    from driftwise.runs.run import resume, run
    from driftwise.scaling import Scaling
    from driftwise.serve.client import Client

_HOMES = {
    "AnalyticLearner": "driftwise.analytic_learner",
    "Client": "driftwise.serve.client",
    "HybridLearner": "driftwise.hybrid_learner",
    "DriftDetector": "driftwise.detect.standalone",
    "DriftLoop": "driftwise.drift_loop",
    "Learner": "driftwise.learner",
    "LiveLearner": "driftwise.live.live_learner",
    "LiveClassifier": "driftwise.live.estimator",
    "Predictor": "driftwise.runs.predictor",
    "Realigner": "driftwise.integrations.realigner",
    "ReplayBuffer": "driftwise.memory",
    "RunConfig": "driftwise.config.schema",
    "RunFailure": "driftwise.errors",
    "Scaling": "driftwise.scaling",
    "UserError": "driftwise.errors",
    "from_torch_dataset": "driftwise.datasets.arrays",
    "load": "driftwise.runs.predictor",
    "load_own": "driftwise.datasets.own",
    "Results": "driftwise.report.results",
    "results": "driftwise.report.results",
    "resume": "driftwise.runs.run",
    "run": "driftwise.runs.run",
    "write_report": "driftwise.report",
}

_PACKAGES = (
    *("adapt", "datasets", "detect", "distributed", "encoders", "memory", "methods", "models"),
    *("plot", "streams", "testing"),
)

__all__ = [
    "AnalyticLearner",
    "Client",
    "DriftDetector",
    "DriftLoop",
    "HybridLearner",
    "Learner",
    "LiveClassifier",
    "LiveLearner",
    "Predictor",
    "Realigner",
    "ReplayBuffer",
    "Results",
    "RunConfig",
    "RunFailure",
    "Scaling",
    "UserError",
    "adapt",
    "datasets",
    "detect",
    "distributed",
    "encoders",
    "from_torch_dataset",
    "load",
    "load_own",
    "methods",
    "models",
    "plot",
    "results",
    "resume",
    "run",
    "streams",
    "testing",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: `import driftwise` stays instant."""
    if name in _PACKAGES:
        return importlib.import_module(f"driftwise.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
