"""A learner beside a running model: it predicts, watches, mends and learns as rows come in."""

from recollect.live.asking import Request
from recollect.live.keeper import Keeper
from recollect.live.log import Event
from recollect.live.observation import Observation
from recollect.live.settings import LiveSettings
from recollect.live.sinks import mlflow, tensorboard, wandb

__all__ = [
    "Event",
    "Keeper",
    "LiveSettings",
    "Observation",
    "Request",
    "mlflow",
    "tensorboard",
    "wandb",
]
