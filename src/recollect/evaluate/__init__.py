"""How good a run was and what it cost: scores, matrix summaries, detection quality, the ledger."""

from recollect.evaluate.detection import DetectionQuality, detection_quality
from recollect.evaluate.flops import FlopMeter, FlopsPerRow, per_row
from recollect.evaluate.ledger import LABEL_KINDS, PHASES, Ledger
from recollect.evaluate.matrix import (
    accuracy_matrix,
    backward_transfer,
    faa_of,
    final_average_accuracy,
    forgetting,
    forgetting_since,
)
from recollect.evaluate.recovery import Recovery, recoveries
from recollect.evaluate.scores import Calibration, Scores, confusion_matrix, score

__all__ = [
    "LABEL_KINDS",
    "PHASES",
    "Calibration",
    "DetectionQuality",
    "FlopMeter",
    "FlopsPerRow",
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
    "per_row",
    "recoveries",
    "score",
]
