"""Detectors by two-sample tests: reference and current samples of each class, encoded and tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from driftwise.detect.base import DetectorContext, KnownLabels, Reference
from driftwise.detect.class_tests import ClassTests, ComparisonOptions
from driftwise.detect.explain import with_kinds
from driftwise.detect.reference import FingerprintReference, HeldOutReference
from driftwise.detect.two_sample import (
    Comparison,
    Merge,
    all_three,
    by_c2st,
    by_mmd,
    ks_on,
    merging,
)
from driftwise.encoders.base import Encodes, LearnerEncoder
from driftwise.errors import UserError
from driftwise.stats.class_mix import in_that_mix, shares_in_stream
from driftwise.stats.fraction import estimate_shares
from driftwise.stats.harm import estimate_harm_by_class
from driftwise.stats.position import position
from driftwise.types import Encoding, Samples, Verdict

WHOLE = -1
"""the one group of samples whose classes are unknown: a changed class mix counts as its drift"""


@dataclass(frozen=True, kw_only=True)
class KS(ComparisonOptions):
    """The paper's detector: Kolmogorov-Smirnov on predictive entropy.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> detector = dw.detect.KS(level=0.01)
    >>> loop = dw.DriftLoop(learner, detector=detector, adaptation=dw.adapt.Realign())
    """

    score: Literal["entropy", "margin", "energy", "max-probability"] = "entropy"
    """what is compared: one number per sample, from the encoder's logits"""
    fewest_samples: ClassVar[int] = 1

    def bind(self, context: DetectorContext) -> TwoSampleDetector:
        """The detector, for one stream and one learner."""
        return _detector(context, [ks_on(self.score, grows=context.grows)], self)


@dataclass(frozen=True, kw_only=True)
class PermutationOptions(ComparisonOptions):
    """Options of detectors that permute."""

    permutations: int = 1000
    """random splits at least; many classes, or a small level, get as many as they need"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 19 <= self.permutations <= 10**6:
            raise UserError(
                f"the detector's permutations must be 19 to 1000000; got {self.permutations}"
            )


@dataclass(frozen=True, kw_only=True)
class MMD(PermutationOptions):
    """The paper's second detector: maximum mean discrepancy of features.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> detector = dw.detect.MMD(correction="bonferroni")
    >>> loop = dw.DriftLoop(learner, detector=detector, adaptation=dw.adapt.Realign())
    """

    def bind(self, context: DetectorContext) -> TwoSampleDetector:
        """The detector, for one stream and one learner."""
        return _detector(context, [by_mmd(self.permutations)], self)


@dataclass(frozen=True, kw_only=True)
class C2ST(PermutationOptions):
    """A linear classifier separates current features from reference features, if it can.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> detector = dw.detect.C2ST(level=0.01)
    >>> loop = dw.DriftLoop(learner, detector=detector, adaptation=dw.adapt.Realign())
    """

    def bind(self, context: DetectorContext) -> TwoSampleDetector:
        """The detector, for one stream and one learner."""
        return _detector(context, [by_c2st(self.permutations)], self)


@dataclass(frozen=True, kw_only=True)
class Combined(PermutationOptions):
    """Uncertainty and features together: entropy by KS, features by MMD and by a classifier.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> detector = dw.detect.Combined(spending="inverse-square")
    >>> loop = dw.DriftLoop(learner, detector=detector, adaptation=dw.adapt.Realign())
    """

    method: Literal["cauchy", "harmonic", "bonferroni"] = "cauchy"
    """how the tests' p-values become one: cauchy has the most power and holds nearly, the others
    hold under every dependence"""

    def bind(self, context: DetectorContext) -> TwoSampleDetector:
        """The detector, for one stream and one learner."""
        tests = all_three(self.permutations, grows=context.grows)
        return _detector(context, tests, self, merging(self.method))


def _detector(
    context: DetectorContext,
    comparisons: Sequence[Comparison],
    options: ComparisonOptions,
    merge: Merge | None = None,
) -> TwoSampleDetector:
    tests = ClassTests(
        comparisons, options, merge=merge, seed=context.seed, quick_splits=context.quick_splits
    )
    return TwoSampleDetector(
        context.encoder(),
        tests,
        labels=context.labels,
        learner=context.learner,
        usual=context.usual,
    )


class TwoSampleDetector:
    """Compares each class's current samples with its reference samples.

    `KS`, `MMD`, `C2ST` and `Combined` make it for a stream.

    >>> from driftwise.detect import KS, DetectorContext
    >>> context = DetectorContext(encoder=lambda: None, drifting=lambda task: [])
    >>> isinstance(KS().bind(context), TwoSampleDetector)
    True
    """

    reads_monitored = True

    def __init__(
        self,
        encoder: Encodes,
        tests: ClassTests,
        *,
        labels: KnownLabels = "given",
        learner: Callable[[Tensor], Encoding] | None = None,
        usual: Callable[[int], float] | None = None,
    ) -> None:
        """What is compared.

        Args:
            encoder: makes the logits and features.
            tests: what tests them, class by class.
            labels: what is known of monitored samples.
            learner: predicts classes of samples; a `LearnerEncoder` does so anyway.
            usual: see `DetectorContext`; has no effect where labels are given.
        """
        self._encoder = encoder
        self._tests = tests
        self._labels = labels
        self._learner = learner
        self._usual = usual if labels == "predicted" else None

    def check(
        self, task: int, classes: Sequence[int], monitored: Samples, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class; a class with too few distinct samples is not testable."""
        all_kept, all_now = self._sides(classes, monitored.distinct(), reference)
        groups = (WHOLE,) if self._labels == "unknown" else classes
        compared, shares = all_kept, None
        if self._usual is not None:
            shares = shares_in_stream(all_kept.labels, all_kept.groups, all_now.groups, self._usual)
            compared = all_kept[in_that_mix(all_kept.labels, all_kept.groups, shares)]
        kept = {group: compared[compared.groups == group] for group in groups}
        now = {group: all_now[all_now.groups == group] for group in groups}
        verdicts = self._tests.verdicts(
            task, {group: (kept[group].encoding, now[group].encoding) for group in groups}
        )
        verdicts = _with_positions(_with_shares(verdicts, kept, now), kept, now)
        if self._labels == "unknown":  # a verdict on the whole stream holds for every class
            verdicts = [replace(verdicts[0], label=label) for label in classes]
        verdicts = self._with_harm(verdicts, all_kept, all_now, shares)
        return with_kinds(
            verdicts,
            reference=all_kept.encoding.features,
            reference_labels=all_kept.labels,
            current=all_now.encoding.features,
            labels=all_now.groups,
            known=self._labels,
            reference_predictions=all_kept.groups,
            archived=self._earlier(verdicts, reference),
            mix=None if self._usual is None else {c: self._usual(c) + 1 for c in classes},
            unit_length=monitored.images.ndim == 4,  # vectors are scaled already
        )

    def _earlier(
        self, verdicts: Sequence[Verdict], reference: Reference
    ) -> dict[int, Sequence[Tensor]]:
        """Features of the earlier concepts of drifted classes, where the reference has them."""
        drifted = [each.label for each in verdicts if each.drifted]
        if isinstance(reference, FingerprintReference):
            return {label: reference.earlier_of(label) for label in drifted}
        if not isinstance(reference, HeldOutReference):
            return {}
        return {
            label: [
                self._encoder.encode(samples.distinct().images).features
                for samples in reference.earlier_of(label)
                if len(samples)
            ]
            for label in drifted
        }

    def obstacles(self, task: int, sizes: Mapping[int, tuple[int, int]]) -> Mapping[int, str]:
        """Of classes with so many reference and current samples, the untestable ones, and why."""
        if self._labels != "unknown" or not sizes:
            return self._tests.obstacles(task, sizes)
        kept, now = (sum(side) for side in zip(*sizes.values(), strict=True))
        found = self._tests.obstacles(task, {0: (kept, now)})
        return dict.fromkeys(sizes, found[0]) if found else {}

    def _sides(
        self, classes: Sequence[int], current: Samples, reference: Reference
    ) -> tuple[_Side, _Side]:
        """Reference and current samples of all classes, from one pass over both."""
        if not isinstance(reference, FingerprintReference):
            kept = [samples for c in classes if len(samples := reference.samples_of(c).distinct())]
            both = self._encoded([*kept, current], classes)
            num_kept = sum(map(len, kept))
            return both[:num_kept], both[num_kept:]
        if self._labels == "predicted":
            raise UserError(
                "a fingerprint holds no images, so that their labels cannot be predicted; use"
                ' reference="held-out"'
            )
        if self._labels == "unknown":
            prints = reference.like_the_stream(classes)
        else:
            prints = {c: print_ for c in classes if len(print_ := reference.encoding_of(c))}
        now = self._encoded([current], classes)
        if not prints:
            return self._encoded([], classes), now
        labels = torch.cat([torch.full((len(each),), c) for c, each in prints.items()])
        side = _Side(
            encoding=Encoding.concat(list(prints.values())),
            labels=labels,
            ids=torch.full_like(labels, -1),
            groups=group_of_samples(labels, None, classes, self._labels),
        )
        # As coarse as what is kept: or an image would differ from itself by the rounding.
        return side, replace(now, encoding=reference.rounded(now.encoding))

    def _encoded(self, parts: Sequence[Samples], classes: Sequence[int]) -> _Side:
        parts = [part for part in parts if len(part)]
        if not parts:
            nothing = torch.empty(0, 1)
            encoding = Encoding(logits=nothing, features=nothing)
            none = torch.empty(0, dtype=torch.int64)
            return _Side(encoding=encoding, labels=none, ids=none, groups=none)
        samples = Samples.concat(parts)
        encoding = self._encoder.encode(samples.images)
        logits = None
        if isinstance(self._encoder, LearnerEncoder):
            logits = encoding.logits
        elif self._learner is not None:
            logits = self._learner(samples.images).logits
        return _Side(
            encoding=encoding,
            labels=samples.labels,
            ids=samples.ids,
            groups=group_of_samples(samples.labels, logits, classes, self._labels),
            learner_logits=logits,
        )

    def _with_harm(
        self,
        verdicts: list[Verdict],
        kept: _Side,
        now: _Side,
        shares: Mapping[int, float] | None,
    ) -> list[Verdict]:
        """What the changes cost the learner, if it predicted both sides.

        Where no labels are given, classes come in the `shares` that predictions indicate; None: as
        often as in the reference. A class without reference samples comes as often as others do.
        """
        if kept.learner_logits is None or now.learner_logits is None or not len(kept.labels):
            return verdicts
        mix: dict[int, float]
        if self._labels == "given":
            labels, mix = now.labels, dict(Counter(now.labels.tolist()))
        else:
            counts = Counter(kept.labels.tolist())
            if shares is not None:
                counts = Counter({c: share * len(now.labels) for c, share in shares.items()})
            usual = counts.total() / len(counts)
            labels, mix = None, {each.label: counts.get(each.label, usual) for each in verdicts}
        harms = estimate_harm_by_class(
            kept.learner_logits, now.learner_logits, kept.labels, labels, mix=mix
        )
        return [
            verdict
            if (harm := harms.get(verdict.label)) is None
            else replace(
                verdict,
                harm=harm.with_labels,
                harm_error=harm.error,
                harm_unlabelled=harm.without_labels,
            )
            for verdict in verdicts
        ]


@dataclass(frozen=True, kw_only=True)
class _Side:
    """Encoded samples of all classes."""

    encoding: Encoding
    labels: Tensor
    """(samples,); -1: not known"""
    ids: Tensor
    """(samples,); -1: not known"""
    groups: Tensor
    """(samples,): with which other samples they are compared"""
    learner_logits: Tensor | None = None

    def __getitem__(self, index: Tensor | slice) -> _Side:
        parts: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            parts[each.name] = None if value is None else value[index]
        return _Side(**parts)


def group_of_samples(
    labels: Tensor, logits: Tensor | None, classes: Sequence[int], known: KnownLabels
) -> Tensor:
    """The group of each sample, (samples,), by its label or by the learner's logits.

    Samples of a class that the learner takes for others are in the others' groups. As that happens
    to reference and current samples alike, it is no drift, if both are new to the learner. A class
    that has no output yet is never predicted.
    """
    if known == "given":
        return labels
    if known == "unknown":
        return torch.full_like(labels, WHOLE)
    if logits is None:
        raise ValueError("samples cannot be grouped by predictions that were not made")
    columns = torch.tensor([label for label in classes if label < logits.shape[1]])
    if not len(columns):
        raise UserError(
            f"the learner has {logits.shape[1]} outputs, none of them for the classes "
            f"{', '.join(map(str, classes))}, so that they cannot be predicted; give labels"
        )
    return columns[logits[:, columns].argmax(dim=1)]


def _with_positions(
    verdicts: list[Verdict], kept: Mapping[int, _Side], now: Mapping[int, _Side]
) -> list[Verdict]:
    """Where every group lies in feature space, beside its reference."""
    placed = []
    for verdict in verdicts:
        sides = [side[verdict.label].encoding.features for side in (kept, now)]
        found = position(*sides)
        placed.append(verdict if found is None else replace(verdict, **vars(found)))
    return placed


def _with_shares(
    verdicts: list[Verdict], kept: Mapping[int, _Side], now: Mapping[int, _Side]
) -> list[Verdict]:
    """The drifted fraction and samples of every drifted group; needs two samples at least."""
    drifted = [
        verdict.label
        for verdict in verdicts
        if verdict.drifted and min(verdict.num_reference, verdict.num_current) > 1
    ]
    pairs = [(kept[group].encoding.features, now[group].encoding.features) for group in drifted]
    shares = dict(zip(drifted, estimate_shares(pairs), strict=True))
    return [
        verdict
        if (found := shares.get(verdict.label)) is None
        else replace(
            verdict,
            share=found.share,
            share_error=found.error,
            moved_rows=tuple(now[verdict.label].ids[found.evidence > 0.5].tolist()),
        )
        for verdict in verdicts
    ]
