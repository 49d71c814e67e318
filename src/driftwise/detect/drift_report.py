"""What a check of two data sets found, class by class and feature by feature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from driftwise.stats.kind_names import Kind

Finding = Literal["drifted", "same", "not testable", "new", "missing"]

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class FeatureChange:
    """How one feature of vectors has changed, by itself."""

    name: str
    shift: float | None
    """of the mean, in standard deviations of the reference; None: the reference is constant"""
    spread: float | None
    """standard deviation of the current samples, by that of the reference; None likewise"""
    ks: float
    """largest difference of the two distribution functions, 0 to 1"""
    p_value: float | None = None
    """how often two samples of one distribution would differ as much in this feature alone"""


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """The values of one feature; values beyond the edges lie in the first and last bin."""

    name: str
    edges: tuple[float, ...]
    reference: tuple[float, ...]
    """fraction of the samples in each bin"""
    current: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class VectorView:
    """What there is to draw of a class of vectors."""

    reference: tuple[Point, ...]
    """some samples along the two directions in which the whole reference varies most"""
    current: tuple[Point, ...]
    histograms: tuple[Histogram, ...]
    """of the features that changed most"""


@dataclass(frozen=True, kw_only=True)
class ClassReport:
    """What is known about one class."""

    name: str
    verdict: Finding
    """not testable: too few samples for any answer; new, missing: on one side only, which is not
    drift"""
    p_value: float | None = None
    """how often two samples of one distribution would differ as much"""
    threshold: float | None = None
    """drifted exactly where the p-value does not exceed it"""
    p_values: Mapping[str, float] | None = None
    """by test"""
    auc: float | None = None
    """effect size: how often a linear classifier that has seen neither ranks a current sample above a
    reference sample; at 0.5 or less the sides cannot be separated, at 1 perfectly"""
    ks_gap: float | None = None
    """effect size: largest difference of the two sides' distribution functions of the entropy of
    the encoder's predictions, 0 to 1"""
    share: float | None = None
    """of a drifted class, the estimated fraction of current samples that drifted, a lower bound"""
    share_error: float | None = None
    """its standard error"""
    moved: tuple[int, ...] = ()
    """of a drifted class, the current samples compared that more likely than not drifted: their
    numbers, counted from 0 in the order in which they came"""
    num_reference: int = 0
    """samples that came"""
    num_current: int = 0
    num_kept_reference: int = 0
    """different images among them, or a uniform sample of `max_samples`: those to be compared"""
    num_kept_current: int = 0
    num_copies_reference: int = 0
    """samples that came and equal a kept one pixel by pixel; an image counts once"""
    num_copies_current: int = 0
    num_shared: int = 0
    """kept reference images that are among the current ones too: they make drift appear smaller"""
    telling_reference: tuple[int, ...] = ()
    """samples least like the current ones, the clearest first: their numbers, counted from 0 in the
    order in which they came"""
    telling_current: tuple[int, ...] = ()
    """samples least like the reference, likewise"""
    reason: str | None = None
    """why the class could not be tested"""
    kind: Kind | None = None
    """what kind of change it is"""
    kind_evidence: Mapping[str, float] = field(default_factory=dict)
    """the numbers that show it"""
    action: str | None = None
    """what is recommended"""
    features: tuple[FeatureChange, ...] = ()
    """of vectors, the features that changed most, the strongest first, at most 20"""
    num_features_changed: int | None = None
    """of vectors, features whose change alone is significant at the level, shared by all features"""
    view: VectorView | None = None
    """of vectors, points and histograms to draw, of at most 20 classes"""
    scores: Histogram | None = None
    """scores of the classifier behind the AUC, each by one that has not seen the sample: the higher,
    the more like a current sample"""
    image_statistics: tuple[FeatureChange, ...] = ()
    """of images, how brightness, contrast, sharpness and colour changed, the strongest first"""


@dataclass(frozen=True, kw_only=True)
class FrequencyShift:
    """Whether the classes are as frequent as before, which is no drift of any class."""

    p_value: float
    """of a chi-squared test that both sides have the same frequencies"""
    distance: float
    """half the sum of the differences: the fraction of samples that changed class"""


@dataclass(frozen=True, kw_only=True)
class DriftReport:
    """What a check found, class by class."""

    classes: tuple[ClassReport, ...]
    detector: str
    encoder: str
    """the encoder that answered"""
    blind_to: str | None
    """what it cannot see; None: not known"""
    level: float
    correction: str
    kind: Kind | None = None
    """the most urgent kind of change in all of the samples"""
    kind_evidence: Mapping[str, float] = field(default_factory=dict)
    action: str | None = None
    """what is recommended"""
    scaling: str | None = None
    """of vectors, what brought their features to one scale; None: images"""
    features: tuple[FeatureChange, ...] = ()
    """of vectors, the features that changed most on average over the drifted classes, or over all
    tested classes where none has drifted"""
    axes: tuple[float, float] | None = None
    """of vectors, the fraction of the reference's variance along the two directions of the points"""
    not_compared: tuple[str, ...] = ()
    """features that only the current samples have"""
    image_statistics: tuple[FeatureChange, ...] = ()
    """of images, the same on average over the drifted classes, or over all tested classes"""
    frequencies: FrequencyShift | None = None
    """whether classes are as frequent as before; None: there is but one"""

    @property
    def drifted(self) -> bool:
        """Whether any class has drifted."""
        return any(each.verdict == "drifted" for each in self.classes)

    def names(self, *verdicts: Finding) -> list[str]:
        """The classes with one of these verdicts."""
        return [each.name for each in self.classes if each.verdict in verdicts]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as plain data for JSON."""
        return {
            "drifted": self.drifted,
            "drifted_classes": self.names("drifted"),
            **asdict(self),
        }


@dataclass(frozen=True, kw_only=True)
class SelfCheck:
    """False alarms, measured where nothing can have drifted."""

    alarms: int
    """checks at which some class was called drifted"""
    checks: int
    """checks at which some class could be tested"""
    num_classes: int
    """classes with samples enough to be split"""
    half_rows: tuple[int, int]
    """samples in a half of a class: the fewest, the most"""
