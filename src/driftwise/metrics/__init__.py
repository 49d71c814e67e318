"""How good a run was and what it cost: scores, matrix summaries, detection quality, the ledger."""

from driftwise.metrics.detection import DetectionQuality, detection_quality
from driftwise.metrics.evaluation import Calibration, Scores, confusion_matrix, score
from driftwise.metrics.flops import FlopMeter, FlopsPerSample, of_call, per_sample
from driftwise.metrics.ledger import LABEL_KINDS, PHASES, Ledger
from driftwise.metrics.matrix import (
    Recovery,
    accuracy_matrix,
    backward_transfer,
    faa_of,
    final_average_accuracy,
    forgetting,
    forgetting_since,
    recoveries,
)

__all__ = [
    "LABEL_KINDS",
    "PHASES",
    "Calibration",
    "DetectionQuality",
    "FlopMeter",
    "FlopsPerSample",
    "Ledger",
    "Recovery",
    "Scores",
    "accuracy_matrix",
    "backward_transfer",
    "confusion_matrix",
    "detection_quality",
    "faa_of",
    "final_average_accuracy",
    "forgetting",
    "forgetting_since",
    "of_call",
    "per_sample",
    "recoveries",
    "score",
]
