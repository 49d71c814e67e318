"""Class by class: does what comes in still look like what was learned?"""

from recollect.detect.detector import Detector, Setting, TwoSampleDetector
from recollect.detect.encoders import (
    Encoder,
    Encodes,
    LearnerEncoder,
    RandomEncoder,
    Surroundings,
)
from recollect.detect.fixed import AlwaysDetector, NeverDetector, OracleDetector
from recollect.detect.judge import Comparison, ComparisonOptions, Judge
from recollect.detect.monitor import Monitor
from recollect.detect.reference import FingerprintReference, HeldOutReference

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
