"""Detectors: for each known class, do current samples still come from the reference distribution?"""

from driftwise.detect.base import Detector, DetectorContext
from driftwise.detect.class_tests import ClassTests, ComparisonOptions
from driftwise.detect.detectors import C2ST, KS, MMD, Combined, TwoSampleDetector
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
from driftwise.detect.two_sample import Comparison
from driftwise.encoders import Encoder, EncoderContext, Encodes, LearnerEncoder, RandomEncoder

__all__ = [
    "C2ST",
    "KS",
    "MMD",
    "Always",
    "AlwaysDetector",
    "ClassTests",
    "Combined",
    "Comparison",
    "ComparisonOptions",
    "Detector",
    "DetectorContext",
    "Encoder",
    "EncoderContext",
    "Encodes",
    "FingerprintReference",
    "HeldOutReference",
    "LearnerEncoder",
    "Monitor",
    "Never",
    "NeverDetector",
    "Oracle",
    "OracleDetector",
    "RandomEncoder",
    "Reconstruction",
    "Sequential",
    "TwoSampleDetector",
]
