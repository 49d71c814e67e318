"""Class by class: does what comes in still look like what was learned?"""

from driftwise.detect.base import Detector, Setting, TwoSampleDetector
from driftwise.detect.class_tests import Comparison, ComparisonOptions, Judge
from driftwise.detect.encoders import (
    Encoder,
    Encodes,
    LearnerEncoder,
    RandomEncoder,
    Surroundings,
)
from driftwise.detect.monitor import Monitor
from driftwise.detect.oracle import AlwaysDetector, NeverDetector, OracleDetector
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
