"""Class by class: does what comes in still look like what was learned?"""

from recollect.detect.detector import (
    Comparison,
    ComparisonOptions,
    Detector,
    Setting,
    TwoSampleDetector,
)
from recollect.detect.encoders import (
    Encoder,
    Encodes,
    LearnerEncoder,
    RandomEncoder,
    Surroundings,
)
from recollect.detect.fixed import AlwaysDetector, NeverDetector, OracleDetector
from recollect.detect.monitor import Monitor
from recollect.detect.reference import HeldOutReference

__all__ = [
    "AlwaysDetector",
    "Comparison",
    "ComparisonOptions",
    "Detector",
    "Encoder",
    "Encodes",
    "HeldOutReference",
    "LearnerEncoder",
    "Monitor",
    "NeverDetector",
    "OracleDetector",
    "RandomEncoder",
    "Setting",
    "Surroundings",
    "TwoSampleDetector",
]
