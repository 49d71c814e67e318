"""What travels between packages: data sets, samples, verdicts, records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from driftwise.stats.kind_names import ACTIONS, Kind

ScoresT = TypeVar("ScoresT")

Extras = Mapping[str, Tensor]
"""What a method keeps beside samples in the buffer, one entry per sample (e.g. logits)."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Images, feature vectors or texts, and labels; the position of a sample is its id elsewhere."""

    images: np.ndarray
    """uint8 (samples, height, width, channels), float32 (samples, features), or texts, str objects
    (samples,), which a frozen encoder turns into vectors where a stream is made"""
    labels: np.ndarray
    """int64 (samples,)"""
    class_names: tuple[str, ...]
    """one name per label"""
    is_test: np.ndarray | None = None
    """bool (samples,): which samples belong to a test set that came with the data; None: none"""
    domains: np.ndarray | None = None
    """int64 (samples,): where or when each image was taken (a domain, a year); None: all alike"""
    domain_names: tuple[str, ...] = ()
    """one name per domain"""
    groups: np.ndarray | None = None
    """int64 (samples,): samples that are nearly repeats (a burst of frames, the readings of a day);
    no two parts of the data share a group; None: every sample stands for itself"""
    feature_names: tuple[str, ...] = ()
    """of vectors, one name per feature; (): they have none"""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The ids of a data set's samples, split into disjoint parts with one use each."""

    train: np.ndarray
    """samples to train on, once their label has come or was requested"""
    monitored: np.ndarray
    """samples that a detector monitors"""
    reference: np.ndarray
    """held-out reference samples (may be empty)"""
    test: np.ndarray
    """samples for scoring alone"""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Labelled samples with their ids and concepts; every field has one entry per sample."""

    images: Tensor
    """uint8 (samples, height, width, channels), or float (samples, features)"""
    labels: Tensor
    """int64 (samples,)"""
    ids: Tensor
    """int64 (samples,): the position in the data set, by which repeats are recognised"""
    concepts: Tensor
    """int64 (samples,): the concept of each sample; 0 is the original one"""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor | slice) -> Samples:
        """The samples at `index` (a slice, positions or a mask)."""
        if isinstance(index, slice):
            return Samples(**{f.name: getattr(self, f.name)[index] for f in fields(Samples)})
        if index.dtype == torch.bool:
            index = index.nonzero().squeeze(1)
        # index_select copies whole samples; `[]` on small uint8 samples goes element by element (26x).
        return Samples(
            **{f.name: getattr(self, f.name).index_select(0, index) for f in fields(Samples)}
        )

    def split(self, samples: int) -> Iterator[Samples]:
        """So many samples at a time, as views; a fifth of the time that slicing takes."""
        if not len(self):
            return
        columns = [getattr(self, f.name).split(samples) for f in fields(Samples)]
        for images, labels, ids, concepts in zip(*columns, strict=True):
            yield Samples(images=images, labels=labels, ids=ids, concepts=concepts)

    def of_class(self, label: int) -> Samples:
        """The samples of one class."""
        return self[self.labels == label]

    def distinct(self) -> Samples:
        """Each (id, concept) once, the first one kept: statistical tests need distinct samples."""
        key = torch.stack([self.ids, self.concepts], dim=1)
        _, inverse = torch.unique(key, dim=0, return_inverse=True)
        first = torch.full((int(inverse.max()) + 1 if len(inverse) else 0,), len(inverse))
        first.scatter_reduce_(0, inverse, torch.arange(len(inverse)), "amin")
        return self if len(first) == len(self) else self[first.sort().values]

    @staticmethod
    def restored(state: Mapping[str, Tensor], *, like: Samples | None = None) -> Samples:
        """Samples out of a saved state; ValueError if it holds none, or none `like` these."""
        samples = Samples(**state)
        columns = [getattr(samples, f.name) for f in fields(Samples)]
        fits = all(isinstance(each, Tensor) for each in columns) and samples.images.ndim > 1
        for each in columns[1:]:
            fits = fits and each.dtype == torch.int64 and each.shape == (len(samples.images),)
        if fits and like is not None:
            kinds = [(each.images.dtype, each.images.shape[1:]) for each in (samples, like)]
            fits = kinds[0] == kinds[1]
        if not fits or (len(samples) and int(samples.labels.min()) < -1):
            raise ValueError("expected samples with labels, ids and concepts, of one length")
        return samples

    @staticmethod
    def concat(parts: Sequence[Samples]) -> Samples:
        """Several sets of samples one after the other (at least one)."""
        if len(parts) == 1:
            return parts[0]
        return Samples(
            **{f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Samples)}
        )


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """What an encoder makes of samples; every field has one entry per sample."""

    logits: Tensor
    """floats (samples, outputs)"""
    features: Tensor
    """floats (samples, d): what the encoder's last layer reads"""

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, index: Tensor | slice) -> Encoding:
        """The samples at `index` (a slice, positions or a mask)."""
        return Encoding(logits=self.logits[index], features=self.features[index])

    @staticmethod
    def concat(parts: Sequence[Encoding]) -> Encoding:
        """Several encodings one after the other (at least one)."""
        return Encoding(
            logits=torch.cat([part.logits for part in parts]),
            features=torch.cat([part.features for part in parts]),
        )


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Count, mean and scatter of the feature vectors of one class."""

    count: float
    mean: Tensor
    """float64 (d,)"""
    scatter: Tensor | None
    """float64 (d, d), the sum of the outer products of deviations from the mean; None: not kept"""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A detector's verdict on one class at one task."""

    task: int
    """counted from 1"""
    label: int
    drifted: bool | None
    """None: not testable, which is not the same as no drift"""
    score: float | None = None
    """the test statistic"""
    p_value: float | None = None
    threshold: float | None = None
    """drifted exactly where p_value <= threshold (or score > threshold under the statistic rule)"""
    num_reference: int = 0
    """distinct reference samples that were compared"""
    num_current: int = 0
    """distinct current samples that were compared"""
    reason: str | None = None
    """why the class could not be tested"""
    p_values: Mapping[str, float] | None = None
    """by test, where the evidence of several was merged"""
    harm: float | None = None
    """points of accuracy on the class that the learner has lost to the drift, measured on labelled
    monitored samples; None: not known"""
    harm_error: float | None = None
    """its standard error"""
    harm_unlabelled: float | None = None
    """the same, estimated from the learner's confidence in monitored samples"""
    share: float | None = None
    """of a drifted class, the estimated fraction of current samples that drifted, a lower bound"""
    share_error: float | None = None
    """its standard error"""
    moved_rows: tuple[int, ...] = ()
    """of a drifted class, the ids of current samples that more likely than not drifted"""
    moved: float | None = None
    """distance of the class's mean from that of its reference in feature space, in spreads of the
    reference; of drifted and other classes, see `stats.position`"""
    moved_band: float | None = None
    """what an unchanged class stays below in 95 % of cases"""
    spread: float | None = None
    """spread of the current samples in feature space, over that of the reference"""
    spread_band: float | None = None
    """an unchanged class lies from 1 / band to band in 95 % of cases"""
    spared: bool = False
    """drifted, but too harmless to spend labels on"""
    kind: Kind | None = None
    """what kind of change it is; None: the detector does not say"""
    kind_evidence: Mapping[str, float] | None = None
    """the numbers that show it"""
    stream_kind: Kind | None = None
    """the most urgent kind of change in the stream at this check, the same for all of its classes"""
    stream_evidence: Mapping[str, float] | None = None

    @property
    def needs_adaptation(self) -> bool:
        """Whether the class is to be adapted to."""
        return bool(self.drifted) and not self.spared

    @property
    def action(self) -> str | None:
        """What is recommended; None: the kind of the change is not known."""
        return None if self.kind is None else ACTIONS[self.kind]


@dataclass(frozen=True, kw_only=True)
class AdaptationResult:
    """What an adaptation did, and what the coming task is to do."""

    extra: Samples | None = None
    """samples to train on together with the task's own"""
    refilled: Samples | None = None
    """fresh samples that were put into the buffer"""
    from_scratch: bool = False
    """forget the network's weights before the task"""
    renewed: tuple[int, ...] = ()
    """classes that got fresh samples: their reference starts anew"""
    notes: tuple[str, ...] = ()
    """messages for the user"""


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """Progress within a task; with the state of all components, enough to resume."""

    task: int
    """counted from 1"""
    epoch: int
    """counted from 1"""
    steps: int
    """that the epoch has made"""
    verdicts: tuple[Verdict, ...]
    result: AdaptationResult


@dataclass(frozen=True, kw_only=True, eq=False)
class StepReport:
    """The outcome of one train step."""

    loss: float
    logits: Tensor
    """float32 (samples, classes): of the stream samples before the update, where it was computed"""
    labels: Tensor
    """int64 (samples,): theirs"""

    @property
    def samples(self) -> int:
        """Stream samples in the step."""
        return len(self.labels)

    @property
    def correct(self) -> int:
        """Stream samples that the network classified correctly; counted on access, 20 us each."""
        return int((self.logits.argmax(dim=1) == self.labels).sum())


@dataclass(frozen=True, kw_only=True)
class TaskRecord(Generic[ScoresT]):
    """What is kept of a complete task."""

    task: int
    """counted from 1"""
    verdicts: tuple[Verdict, ...]
    renewed: tuple[int, ...]
    """known classes that got fresh samples, requested or brought by the task"""
    notes: tuple[str, ...]
    scores: ScoresT
    """the outcome of the evaluation"""
    labels: Mapping[str, int] = field(default_factory=dict)
    """labels used so far: stream, monitoring, adaptation"""

    @property
    def number(self) -> int:
        """The task's number, counted from 1."""
        return self.task

    @property
    def drifted(self) -> tuple[int, ...]:
        """The classes that were found to have drifted."""
        return tuple(verdict.label for verdict in self.verdicts if verdict.drifted)

    @property
    def accuracy(self) -> float:
        """Mean accuracy on all tasks so far, in percent; needs scores with an `accuracy` by task."""
        by_task: tuple[float | None, ...] = self.scores.accuracy  # type: ignore[attr-defined]
        known = [each for each in by_task if each is not None]
        return sum(known) / len(known)
