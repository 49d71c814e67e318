"""Class by class: does what comes in still look like what was learned?"""

from driftwise.detect.detector import Detector, Setting, TwoSampleDetector
from driftwise.detect.encoders import (
    Encoder,
    Encodes,
    LearnerEncoder,
    RandomEncoder,
    Surroundings,
)
from driftwise.detect.fixed import AlwaysDetector, NeverDetector, OracleDetector
from driftwise.detect.judge import Comparison, ComparisonOptions, Judge
from driftwise.detect.monitor import Monitor
from driftwise.detect.reference import FingerprintReference, HeldOutReference

__all__ = [
    "AlwaysDetector",
    "Comparison",
    "ComparisonOptions",
    "Detector",
    "Encoder",
    "Encodes",
    "FingerprintReference",
    "HeldOutReference",
    "Judge",
    "LearnerEncoder",
    "Monitor",
    "NeverDetector",
    "OracleDetector",
    "RandomEncoder",
    "Setting",
    "Surroundings",
    "TwoSampleDetector",
]
