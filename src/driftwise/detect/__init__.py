"""Detectors: for each known class, do current samples still come from the reference distribution?"""

from driftwise.detect.base import Detector, Setting, TwoSampleDetector
from driftwise.detect.class_tests import Comparison, ComparisonOptions, Judge
from driftwise.detect.detectors import C2ST, KS, MMD, Combined
from driftwise.detect.encoders import (
    Encoder,
    Encodes,
    LearnerEncoder,
    RandomEncoder,
    Surroundings,
)
from driftwise.detect.monitor import Monitor
from driftwise.detect.oracle import (
    Always,
    AlwaysDetector,
    Never,
    NeverDetector,
    Oracle,
    OracleDetector,
)
from driftwise.detect.reconstruction import Reconstruction
from driftwise.detect.reference import FingerprintReference, HeldOutReference
from driftwise.detect.sequential import Sequential

__all__ = [
    "C2ST",
    "KS",
    "MMD",
    "Always",
    "AlwaysDetector",
    "Combined",
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
    "Never",
    "NeverDetector",
    "Oracle",
    "OracleDetector",
    "RandomEncoder",
    "Reconstruction",
    "Sequential",
    "Setting",
    "Surroundings",
    "TwoSampleDetector",
]
