"""A learner without gradients: class statistics and the classifier that follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from driftwise.errors import UserError
from driftwise.memory.statistics import ClassStatistics, Scatter, check_labels
from driftwise.methods.analytic import AnalyticMethod
from driftwise.scaling import Scaling
from driftwise.types import Encoding, Extras, Moments, Samples, StepReport

UNSEEN = -1e4
"""the logit of a class without samples: never the highest, and finite for what computes with it"""

SCALED_BY = 100
"""samples that a scaling of the learner's own is fitted on: the first labelled ones"""

LAG = 0.01
"""fraction of the samples that predictions between steps may be behind"""

_NO_EXTRAS: Extras = MappingProxyType({})


class StatisticsMemory:
    """Class statistics as an adaptation sees them: a replay buffer that keeps no samples."""

    def __init__(
        self, statistics: ClassStatistics, features: Callable[[Tensor], Tensor], fresh: int
    ) -> None:
        self.statistics = statistics
        self.fresh = fresh
        self._features = features

    def __len__(self) -> int:
        return len(self.statistics)

    def counts(self) -> dict[int, int]:
        """Samples of each class, rounded."""
        return {label: round(count) for label, count in self.statistics.counts().items()}

    def slots_of(self, label: int) -> int:
        """Fresh samples that replacing a class takes."""
        return self.fresh if label in self.statistics.labels else 0

    def samples_of(self, label: int) -> Samples:
        """None: no sample is kept."""
        del label
        none = torch.zeros(0, dtype=torch.int64)
        width = self.statistics.dimension or 0
        return Samples(images=torch.zeros(0, width), labels=none, ids=none, concepts=none)

    def put(self, samples: Samples, extras: Extras = _NO_EXTRAS) -> None:
        """Count labelled samples."""
        del extras
        self.statistics.add(self._features(samples.images), samples.labels)

    def drop(self, label: int, only: Tensor | None = None) -> int:
        """Drop a class, or the fraction of it that `only` marks, bool (slots_of(label),).

        What stays weighs as much as the slots that are not marked, as in a replay buffer: samples
        that are put into the others are to it as the fraction that drifted to the rest. Returns how
        many samples go.
        """
        before = self.statistics.counts().get(label, 0.0)
        if not before:
            return 0
        kept = 0 if only is None else int((~only).sum())
        factor = kept / max(before, 1 if only is None else len(only))
        self.statistics.scale(label, factor)
        return round((1 - factor) * before)

    def moments_of(self, label: int) -> Moments | None:
        """What is kept of a class, to be restored if its concept returns."""
        return self.statistics.moments(label) if label in self.statistics.labels else None

    def features(self, images: Tensor) -> Tensor:
        """What statistics are kept of, (samples, d)."""
        return self._features(images)

    def pooled(self) -> tuple[Tensor, float] | None:
        """The scatter within classes, (d, d), and its degrees of freedom; None: not kept."""
        return None if self.statistics.kind == "none" else self.statistics.pooled()

    def distance(self, moments: Moments, images: Tensor) -> float:
        """How far the mean of samples is from that of statistics, in pooled variances."""
        shift = self._features(images).double().mean(dim=0) - moments.mean
        if self.statistics.kind == "none":
            return float(shift.square().sum())
        scatter, freedom = self.statistics.pooled()
        variances = scatter.diagonal() / max(freedom, 1.0)
        known = variances > 0
        return float((shift[known].square() / variances[known]).sum())

    def restore(self, label: int, moments: Moments) -> None:
        """Put earlier statistics in the place of a class's present ones."""
        self.statistics.replace(label, moments)


class AnalyticNetwork(nn.Module):
    """The classifier of a learner as a network, (samples, d) -> (samples, outputs): it is not trained.

    All that changes are tensors, so that a snapshot can be copied while the learner goes on.
    """

    weights: Tensor
    """float64 (outputs, features)"""
    bias: Tensor
    """float64 (outputs,); minus infinity: the class has no samples"""
    mean: Tensor
    deviation: Tensor
    """float64 (d,), of the scaling; empty: vectors are not scaled"""

    def __init__(self, method: AnalyticMethod, scaling: Scaling) -> None:
        super().__init__()
        self._method, self._kind, self._limit = method, scaling.kind, scaling.limit
        for name, shape in (
            ("weights", (0, 0)),
            ("bias", (0,)),
            ("mean", (0,)),
            ("deviation", (0,)),
        ):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def compute(self, statistics: ClassStatistics, outputs: int, scaling: Scaling) -> None:
        """Become the classifier of these statistics, with so many outputs."""
        blank = torch.zeros(outputs, statistics.dimension or 0, dtype=torch.float64)
        self.weights, self.bias = blank, torch.full((outputs,), -torch.inf, dtype=torch.float64)
        if labels := list(statistics.labels):
            classifier = self._method.classifier(statistics)
            self.weights[labels], self.bias[labels] = classifier.weights, classifier.bias
        if scaling.mean is not None and scaling.deviation is not None:
            self.mean, self.deviation = scaling.mean.clone(), scaling.deviation.clone()

    def replace(self, state: Mapping[str, Tensor]) -> None:
        """Become the classifier whose state it is, of any number of outputs and features."""
        for name, own in self.named_buffers():
            value = state[name]
            if (value.dtype, value.ndim) != (own.dtype, own.ndim):
                raise ValueError(f"expected {name} of a classifier, float64")
            setattr(self, name, value.clone())

    def forward(self, vectors: Tensor) -> Tensor:
        """Log-probabilities of classes with samples, `UNSEEN` for all others."""
        unseen = torch.full((len(vectors), len(self.bias)), UNSEEN)
        if not len(vectors) or not bool((known := self.bias.isfinite()).any()):
            return unseen
        features = self._method.features(self.scaled(vectors))
        scores = torch.addmm(self.bias, features.double(), self.weights.T).log_softmax(dim=1)
        return torch.where(known, scores.clamp(min=UNSEEN / 2).float(), unseen)

    def scaled(self, vectors: Tensor) -> Tensor:
        """The vectors as the method takes them."""
        if not len(self.mean):
            return vectors
        scaling = Scaling(self._kind, limit=self._limit)
        scaling.mean, scaling.deviation = self.mean, self.deviation
        return scaling(vectors)


class AnalyticLearner:
    """Learns class statistics of vectors, sample by sample, and predicts in between.

    It has the interface of `Learner`, so that streams, detectors and adaptations work with both. A
    task is learned in one pass; further epochs change nothing.

    >>> import driftwise as dw
    >>> learner = AnalyticLearner(dw.methods.SLDA())
    """

    def __init__(
        self,
        method: AnalyticMethod,
        *,
        encoder: Callable[[Tensor], Tensor] | None = None,
        scaling: Scaling | None = None,
        fresh_samples: int = 20,
        scatter: Scatter | None = None,
    ) -> None:
        """A learner that has seen nothing.

        Args:
            method: how statistics become a classifier.
            encoder: turns samples into vectors, (samples, ...) -> (samples, d); None: samples are
                vectors.
            scaling: of the vectors. One that is not fitted yet is fitted on the first samples, 100
                or the first batch, and stays so. None: vectors are taken as they are.
            fresh_samples: labels that realigning a drifted class asks for.
            scatter: what is kept of classes; None: what the method needs, exact for each class.
        """
        if not isinstance(method, AnalyticMethod):
            raise UserError(
                "expected an analytic method, such as methods.SLDA(); got "
                f"{method if isinstance(method, str) else type(method).__name__}"
            )
        if fresh_samples < 1:
            raise UserError(f"fresh_samples must be at least 1; got {fresh_samples}")
        if scatter == "none" and method.scatter != "none":
            raise UserError(
                f"{type(method).__name__} needs a scatter; got scatter='none': give 'class' or 'shared'"
            )
        self.method = method
        self.scaling = Scaling("none") if scaling is None else scaling
        self.statistics = ClassStatistics(scatter=scatter or method.scatter)
        self.buffer = StatisticsMemory(self.statistics, self._features, fresh_samples)
        self.steps = 0
        self.networks: tuple[nn.Module, ...] = ()
        """networks that are trained: none"""
        self.device = torch.device("cpu")
        self.between: Callable[[], object] = lambda: None
        """called between the operations of a step, so that other threads can run"""
        self._encoder = encoder
        self._dimension: int | None = None
        """features of a vector, from the first samples on"""
        self._known: set[int] = set()
        self._in_first_epoch = True
        self._first: tuple[Tensor, Tensor] | None = None
        """vectors and labels that the scaling is fitted on; None: it is fitted"""
        if not self.scaling.is_fitted:
            self._first = torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64)
        self._network = AnalyticNetwork(method, self.scaling)
        self._versions = {"computed": -1, "learned": 0}
        """of the statistics when the network was computed, and after the last step"""
        self._lag = math.inf
        """samples since the network was computed; infinite: it must be computed anew"""

    @property
    def network(self) -> AnalyticNetwork:
        """The classifier of what has been learned by now."""
        if self._versions["computed"] != self.statistics.version:
            self._network.compute(self.statistics, self._outputs, self.scaling)
            self._versions["computed"] = self.statistics.version
            self._lag = 0.0
        return self._network

    @property
    def predictor(self) -> AnalyticNetwork:
        """The classifier for predictions between steps: of all samples but for the last 1 %.

        So the time to compute it, which grows with the cube of the features, is spent fewer and
        fewer times as samples come.
        """
        is_counted = self._versions["learned"] == self.statistics.version
        if is_counted and self._lag < LAG * sum(self.statistics.counts().values()):
            return self._network
        return self.network

    @property
    def _outputs(self) -> int:
        return 1 + max(self._known | set(self.statistics.labels), default=0)

    def begin_task(self, classes: Sequence[int], *, from_scratch: bool = False) -> None:
        """Begin a task with these new classes.

        `from_scratch` changes nothing: the statistics are the memory, which stays, and what follows
        from them is computed anew anyway.
        """
        del from_scratch
        self._known.update(classes)
        self._must_compute()
        self._in_first_epoch = True

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Samples are counted in the first epoch only."""
        del epochs
        self._in_first_epoch = epoch == 1

    def end_task(self) -> None:
        """Nothing is left to do."""

    def observe(self, batch: Samples) -> StepReport:
        """Count the samples of a batch; the report's logits are those before."""
        if not len(batch):
            raise ValueError("a step needs at least one sample; got an empty batch")
        check_labels(batch.labels)
        vectors = self._vectors(batch.images)
        logits = self._widened(self._network(vectors))
        self.between()
        self._dimension = vectors.shape[1]
        if self._in_first_epoch:
            self._learn(vectors, batch.labels)
        self.steps += 1
        self.between()
        wrong = logits.argmax(dim=1) != batch.labels
        return StepReport(loss=float(wrong.float().mean()), logits=logits, labels=batch.labels)

    def _learn(self, vectors: Tensor, labels: Tensor) -> None:
        """Count vectors; the first ones, which fit the scaling, are counted anew as it changes."""
        if self._versions["learned"] != self.statistics.version:
            self._first = None  # what was dropped or forgotten must not be counted again
            self._lag = math.inf
        if not set(torch.unique(labels).tolist()) <= set(self.statistics.labels):
            self._lag = math.inf
        self._lag += len(labels)
        if self._first is not None:
            if len(self._first[1]):
                vectors = torch.cat([self._first[0], vectors])
                labels = torch.cat([self._first[1], labels])
            self.scaling.fit(vectors)
            self.statistics.clear()
            self._first = (vectors, labels) if len(labels) < SCALED_BY else None
        self.statistics.add(self.method.features(self.scaling(vectors)), labels)
        self._versions["learned"] = self.statistics.version

    def rehearse(self, batch: Samples | None = None, *, rate: float = 1.0) -> None:
        """Nothing: a classifier that follows from its statistics gains nothing by repetition."""
        del batch, rate

    def annotate(self, samples: Samples) -> Extras:
        """Nothing is kept beside samples."""
        del samples
        return {}

    def logits(self, images: Tensor) -> Tensor:
        """Scores of samples, (samples, highest known class + 1): log-posteriors of SLDA."""
        return self.logits_of(self.network, images)

    def logits_of(self, network: nn.Module, images: Tensor) -> Tensor:
        """Scores (samples, classes) of vectors (samples, features); other threads may call this."""
        logits: Tensor = network(self._vectors(images))
        return logits

    def encode(self, images: Tensor) -> Encoding:
        """Logits (samples, classes), and the scaled vectors (samples, features) as features."""
        vectors = self._vectors(images)
        return Encoding(logits=self.network(vectors), features=self.network.scaled(vectors))

    def grow(self, outputs: int) -> None:
        """Give classes up to this number a score."""
        self.begin_task([outputs - 1])

    def refuse_diverged_weights(self) -> None:
        """Nothing: what is computed from finite statistics does not diverge."""

    def forget(self, samples: Samples | None = None, *, label: int | None = None) -> None:
        """Remove what given samples, or all samples of a class, brought.

        What is left equals statistics that never saw them, to rounding: the classifier, too, since
        it follows from the statistics. A scaling of the vectors that was fitted before stays, unless
        it is still being fitted.
        """
        if (samples is None) == (label is None):
            raise UserError("give either samples or a label to forget")
        if samples is not None:
            if not isinstance(samples, Samples):
                raise UserError(
                    f"expected driftwise.types.Samples to forget; got {type(samples).__name__}"
                )
            is_counted = self._versions["learned"] == self.statistics.version
            self.statistics.remove(self._features(samples.images), samples.labels)
            if self._first is not None and is_counted:  # the others are counted anew
                self._first = _without(self._first, self._vectors(samples.images), samples.labels)
                self._versions["learned"] = self.statistics.version
                self._lag = math.inf
        elif label is not None:
            if label not in self._known.union(self.statistics.labels, self.statistics.dropped):
                raise UserError(f"class {label} is not among those that were learned")
            self.statistics.forget(label)
            self._known.discard(label)
            self._must_compute()

    def _must_compute(self) -> None:
        self._versions["computed"], self._lag = -1, math.inf

    def _features(self, images: Tensor) -> Tensor:
        return self.method.features(self.scaling(self._vectors(images)))

    def _vectors(self, images: Tensor) -> Tensor:
        vectors = images if self._encoder is None else self._encoder(images)
        if vectors.ndim != 2 or not vectors.is_floating_point():
            raise UserError(
                "an analytic method learns from vectors of floats, (samples, features); got "
                f"{vectors.dtype} of shape {tuple(vectors.shape)}: give an encoder"
            )
        if self._dimension not in (None, vectors.shape[1]):
            raise UserError(
                f"expected vectors of {self._dimension} features, as before; got {vectors.shape[1]}"
            )
        if not bool((finite := vectors.isfinite()).all()):
            sample, feature = (~finite).nonzero()[0].tolist()
            raise UserError(
                f"vectors must be finite; got {vectors[sample, feature]} as feature {feature} of "
                f"sample {sample}: leave such samples out"
            )
        return vectors

    def _widened(self, logits: Tensor) -> Tensor:
        """With a score for each class that is known by now."""
        missing = self._outputs - logits.shape[1]
        return nn.functional.pad(logits, (0, max(0, missing)), value=UNSEEN)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "statistics": self.statistics.state_dict(),
            "steps": self.steps,
            "known": sorted(self._known),
            "in_first_epoch": self._in_first_epoch,
            "dimension": self._dimension,
            "scaling": self.scaling.state_dict(),
            "first": None if self._first is None else list(self._first),
            "is_counted": self._versions["learned"] == self.statistics.version,
            "is_computed": self._versions["computed"] == self.statistics.version,
            "lag": None if math.isinf(self._lag) else self._lag,
            "network": self._network.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        if not all(
            type(count) is int and count >= 0 for count in (state["steps"], *state["known"])
        ):
            raise ValueError("expected whole numbers of steps and known classes")
        if type(dimension := state.get("dimension")) not in (int, type(None)):
            raise ValueError("expected the number of features")
        self.statistics.load_state_dict(state["statistics"])
        if (scaling := state.get("scaling")) is not None:  # older states were never scaled
            self.scaling = Scaling(scaling["kind"], limit=scaling["limit"])
            self.scaling.load_state_dict(scaling)
            self._network = AnalyticNetwork(self.method, self.scaling)
            self._first = None if state["first"] is None else tuple(state["first"])
        self._must_compute()
        if "network" in state:
            self._network.replace(state["network"])
            self._lag = math.inf if state["lag"] is None else float(state["lag"])
            for name, is_so in (("learned", "is_counted"), ("computed", "is_computed")):
                self._versions[name] = self.statistics.version if state[is_so] is True else -1
        self._dimension = dimension
        self.steps = state["steps"]
        self._known = set(state["known"])
        self._in_first_epoch = state["in_first_epoch"] is True


def _without(
    first: tuple[Tensor, Tensor], vectors: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Vectors and labels but for those given, which may differ from them by rounding."""
    is_kept = torch.ones(len(first[1]), dtype=torch.bool)
    for vector, label in zip(vectors, labels, strict=True):
        distance = (first[0] - vector).square().sum(dim=1)
        distance[~is_kept | (first[1] != label)] = torch.inf
        is_kept[distance.argmin()] = False
    return first[0][is_kept], first[1][is_kept]
