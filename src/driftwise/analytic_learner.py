"""A learner without gradients: class statistics and the classifier that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from driftwise.errors import UserError
from driftwise.memory.statistics import ClassStatistics, Scatter
from driftwise.methods.analytic import AnalyticMethod, LinearClassifier
from driftwise.types import Encoding, Extras, Moments, Samples, StepReport

UNSEEN = -1e4
"""the logit of a class without samples: never the highest, and finite for what computes with it"""

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
        fresh_samples: int = 20,
        scatter: Scatter | None = None,
    ) -> None:
        """A learner that has seen nothing.

        Args:
            method: how statistics become a classifier.
            encoder: turns samples into vectors, (samples, ...) -> (samples, d); None: samples are
                vectors.
            fresh_samples: labels that realigning a drifted class asks for.
            scatter: what is kept of classes; None: what the method needs, exact for each class.
        """
        if fresh_samples < 1:
            raise UserError(f"fresh_samples must be at least 1; got {fresh_samples}")
        if scatter == "none" and method.scatter != "none":
            raise UserError(
                f"{type(method).__name__} needs a scatter; got scatter='none': give 'class' or 'shared'"
            )
        self.method = method
        self.statistics = ClassStatistics(scatter=scatter or method.scatter)
        self.buffer = StatisticsMemory(self.statistics, self._features, fresh_samples)
        self.steps = 0
        self.networks: tuple[nn.Module, ...] = ()
        self.device = torch.device("cpu")
        self._encoder = encoder
        self._dimension: int | None = None
        """features of a vector, from the first samples on"""
        self._known: set[int] = set()
        self._in_first_epoch = True
        self._classifier: LinearClassifier | None = None
        self._labels: tuple[int, ...] = ()
        self._version = 0

    def begin_task(self, classes: Sequence[int], *, from_scratch: bool = False) -> None:
        """Begin a task with these new classes.

        `from_scratch` changes nothing: the statistics are the memory, which stays, and what follows
        from them is computed anew anyway.
        """
        del from_scratch
        self._known.update(classes)
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
        vectors = self._vectors(batch.images)
        logits = self._logits(self.method.features(vectors), refresh=False)
        self._dimension = vectors.shape[1]
        if self._in_first_epoch:
            self.statistics.add(self.method.features(vectors), batch.labels)
        self.steps += 1
        wrong = logits.argmax(dim=1) != batch.labels
        return StepReport(loss=float(wrong.float().mean()), logits=logits, labels=batch.labels)

    def rehearse(self, batch: Samples | None = None, *, rate: float = 1.0) -> None:
        """Nothing: a classifier that follows from its statistics gains nothing by repetition."""
        del batch, rate

    def annotate(self, samples: Samples) -> Extras:
        """Nothing is kept beside samples."""
        del samples
        return {}

    def logits(self, images: Tensor) -> Tensor:
        """Scores of samples, (samples, highest known class + 1): log-posteriors of SLDA."""
        return self._logits(self._features(images), refresh=True)

    def encode(self, images: Tensor) -> Encoding:
        """Logits, and the vectors as features."""
        vectors = self._vectors(images)
        logits = self._logits(self.method.features(vectors), refresh=True)
        return Encoding(logits=logits, features=vectors)

    def forget(self, samples: Samples | None = None, *, label: int | None = None) -> None:
        """Remove what given samples, or all samples of a class, brought.

        What is left equals statistics that never saw them, to rounding: the classifier, too, since
        it follows from the statistics. A scaling of the vectors that was fitted before stays.
        """
        if (samples is None) == (label is None):
            raise UserError("give either samples or a label to forget")
        if samples is not None:
            self.statistics.remove(self._features(samples.images), samples.labels)
        elif label is not None:
            self.statistics.forget(label)
            self._known.discard(label)

    def _features(self, images: Tensor) -> Tensor:
        return self.method.features(self._vectors(images))

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

    def _logits(self, features: Tensor, *, refresh: bool) -> Tensor:
        outputs = 1 + max(self._known | set(self.statistics.labels), default=0)
        logits = torch.full((len(features), outputs), UNSEEN)
        if refresh:
            self._refresh()
        if self._classifier is not None and len(features):
            scores = self._classifier(features).log_softmax(dim=1)
            logits[:, list(self._labels)] = scores.clamp_(min=UNSEEN / 2).float()
        return logits

    def _refresh(self) -> None:
        """Compute the classifier of what has been learned by now."""
        if self._version == self.statistics.version:
            return
        self._version = self.statistics.version
        self._labels = self.statistics.labels
        self._classifier = self.method.classifier(self.statistics) if self._labels else None

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "statistics": self.statistics.state_dict(),
            "steps": self.steps,
            "known": sorted(self._known),
            "in_first_epoch": self._in_first_epoch,
            "dimension": self._dimension,
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
        self._dimension = dimension
        self.steps = state["steps"]
        self._known = set(state["known"])
        self._in_first_epoch = state["in_first_epoch"] is True
