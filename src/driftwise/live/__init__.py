"""A learner beside a running model: it predicts, monitors, adapts and learns as samples come in."""

from driftwise.live.events import Event
from driftwise.live.labels import Request
from driftwise.live.live_learner import LiveLearner
from driftwise.live.reporter import Observation
from driftwise.live.settings import LiveSettings
from driftwise.live.sinks import mlflow, tensorboard, wandb

__all__ = [
    "Event",
    "LiveLearner",
    "LiveSettings",
    "Observation",
    "Request",
    "mlflow",
    "tensorboard",
    "wandb",
]
