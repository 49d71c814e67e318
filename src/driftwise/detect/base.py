"""The per-class detector: distinct samples of every class, encoded in one pass, and judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from driftwise.detect.class_tests import Judge
from driftwise.detect.encoders import Encodes, LearnerEncoder
from driftwise.detect.grouping import KnownLabels, group_of_samples, groups_among
from driftwise.detect.reference import FingerprintReference
from driftwise.errors import UserError
from driftwise.protocols import HasSamples
from driftwise.stats.class_mix import in_that_mix, shares_in_stream
from driftwise.stats.fraction import estimate_shares
from driftwise.stats.harm import estimate_harm_by_class
from driftwise.types import Encoding, Samples, Verdict

Reference = HasSamples | FingerprintReference
"""What current samples are compared with: samples, or what a fixed encoder once made of them."""


class Detector(Protocol):
    """Anything that gives a verdict on every class it is asked about."""

    watches: bool
    """whether it reads the monitored samples (and their labels must be booked)"""

    def check(
        self, task: int, classes: Sequence[int], monitored: Samples, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class, in the order of `classes`.

        Where no labels of monitored samples were paid for, all of them are -1.
        """
        ...


@runtime_checkable
class HasState(Protocol):
    """A detector that changes from check to check; its state is kept with the run's."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        ...


@runtime_checkable
class GoesOn(HasState, Protocol):
    """A detector whose evidence adds up from check to check, sample by sample."""

    def renew(self, labels: Sequence[int], learned: Samples) -> None:
        """These classes were just learned, from these samples: what came before is void."""
        ...

    def onset(self, label: int) -> int | None:
        """The id of the sample with which a change has begun, if there is one; None: no sample yet."""
        ...


@runtime_checkable
class Foresees(Protocol):
    """A detector that knows from the numbers of samples alone which classes it cannot test."""

    def obstacles(self, task: int, sizes: Mapping[int, tuple[int, int]]) -> Mapping[int, str]:
        """Of classes with so many reference and current samples, the untestable ones, and why."""
        ...


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a detector is given to work with."""

    encoder: Callable[[], Encodes]
    """makes the encoder; only detectors that compare encodings need one"""
    drifting: Callable[[int], Sequence[int]]
    """the truth, task -> classes that drift there; for the oracle alone"""
    seed: int = 0
    """what tests that draw permutations draw them from"""
    labels: KnownLabels = "given"
    """what is known of monitored samples"""
    learner: Callable[[Tensor], Encoding] | None = None
    """the learner's own network, where it may be asked what it makes of samples"""
    grows: bool = False
    """whether outputs may be added: with one alone there is nothing to be uncertain about yet"""
    usual: Callable[[int], float] | None = None
    """how often a class has come so far, where classes may come in other shares than the reference
    holds them in; None: they do not"""
    quick_splits: int | None = None
    """random ones of a check of all classes, beyond which tests without any are preferred"""


class TwoSampleDetector:
    """Compares each class's current samples with its reference samples."""

    watches = True

    def __init__(
        self,
        encoder: Encodes,
        judge: Judge,
        *,
        labels: KnownLabels = "given",
        learner: Callable[[Tensor], Encoding] | None = None,
        usual: Callable[[int], float] | None = None,
    ) -> None:
        """`learner` predicts classes of samples; a `LearnerEncoder` does so anyway.

        `usual`: see `Setting`; where labels are given, it makes no difference.
        """
        self._encoder = encoder
        self._judge = judge
        self._labels = labels
        self._learner = learner
        self._usual = usual if labels == "predicted" else None

    def check(
        self, task: int, classes: Sequence[int], monitored: Samples, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class; a class with too few distinct samples is not testable."""
        all_kept, all_now = self._sides(classes, monitored.distinct(), reference)
        groups = groups_among(classes, self._labels)
        compared, shares = all_kept, None
        if self._usual is not None:
            shares = shares_in_stream(all_kept.labels, all_kept.groups, all_now.groups, self._usual)
            compared = all_kept[in_that_mix(all_kept.labels, all_kept.groups, shares)]
        kept = {group: compared.of_group(group) for group in groups}
        now = {group: all_now.of_group(group) for group in groups}
        verdicts = self._judge.verdicts(
            task, {group: (kept[group].encoding, now[group].encoding) for group in groups}
        )
        verdicts = _with_shares(verdicts, kept, now)
        if self._labels == "unknown":  # a verdict on the whole stream holds for every class
            verdicts = [replace(verdicts[0], label=label) for label in classes]
        return self._with_harm(verdicts, all_kept, all_now, shares)

    def obstacles(self, task: int, sizes: Mapping[int, tuple[int, int]]) -> Mapping[int, str]:
        """Of classes with so many reference and current samples, the untestable ones, and why."""
        if self._labels != "unknown" or not sizes:
            return self._judge.obstacles(task, sizes)
        kept, now = (sum(side) for side in zip(*sizes.values(), strict=True))
        found = self._judge.obstacles(task, {0: (kept, now)})
        return dict.fromkeys(sizes, found[0]) if found else {}

    def _with_harm(
        self,
        verdicts: list[Verdict],
        kept: _Side,
        now: _Side,
        shares: Mapping[int, float] | None,
    ) -> list[Verdict]:
        """What the changes cost the learner, if it was asked about both sides.

        Where no labels are given, classes come in the `shares` that predictions speak for; None: as
        often as in the reference, if held-out samples are as mixed as the stream. A class without
        reference samples comes as often as others do.
        """
        if kept.opinions is None or now.opinions is None or not len(kept.labels):
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
        harms = estimate_harm_by_class(kept.opinions, now.opinions, kept.labels, labels, mix=mix)
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

    def _sides(
        self, classes: Sequence[int], current: Samples, reference: Reference
    ) -> tuple[_Side, _Side]:
        """Reference and current samples of all classes, from one pass over both."""
        if not isinstance(reference, FingerprintReference):
            kept = [samples for c in classes if len(samples := reference.samples_of(c).distinct())]
            both = self._look([*kept, current], classes)
            num_kept = sum(map(len, kept))
            return both[:num_kept], both[num_kept:]
        if self._labels == "predicted":
            raise UserError(
                "a fingerprint holds no images, so that nobody can predict their labels; use"
                ' reference="held-out"'
            )
        if self._labels == "unknown":
            prints = reference.like_the_stream(classes)
        else:
            prints = {c: print_ for c in classes if len(print_ := reference.encoding_of(c))}
        if not prints:
            return self._look([current[:0]], classes), self._look([current], classes)
        labels = torch.cat([torch.full((len(each),), c) for c, each in prints.items()])
        side = _Side(
            encoding=Encoding.concat(list(prints.values())),
            labels=labels,
            ids=torch.full_like(labels, -1),
            groups=group_of_samples(labels, None, classes, self._labels),
        )
        now = self._look([current], classes)
        # As coarse as what is kept: or an image would differ from itself by the rounding.
        return side, replace(now, encoding=reference.rounded(now.encoding))

    def _look(self, parts: Sequence[Samples], classes: Sequence[int]) -> _Side:
        some = [part for part in parts if len(part)]
        if not some:
            nothing = torch.empty(0, 1)
            encoding = Encoding(logits=nothing, features=nothing)
            none = torch.empty(0, dtype=torch.int64)
            return _Side(encoding=encoding, labels=none, ids=none, groups=none)
        samples = Samples.concat(some)
        encoding = self._encoder.encode(samples.images)
        opinions = None
        if isinstance(self._encoder, LearnerEncoder):
            opinions = encoding.logits
        elif self._learner is not None:
            opinions = self._learner(samples.images).logits
        return _Side(
            encoding=encoding,
            labels=samples.labels,
            ids=samples.ids,
            groups=group_of_samples(samples.labels, opinions, classes, self._labels),
            opinions=opinions,
        )


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


@dataclass(frozen=True, kw_only=True)
class _Side:
    """What is made of samples of all classes."""

    encoding: Encoding
    labels: Tensor
    """(samples,); -1: not known"""
    ids: Tensor
    """(samples,); -1: not known"""
    groups: Tensor
    """(samples,): with which other samples they are compared"""
    opinions: Tensor | None = None
    """the learner's logits, where it was asked"""

    def __getitem__(self, index: Tensor | slice) -> _Side:
        return _Side(
            encoding=self.encoding[index],
            labels=self.labels[index],
            ids=self.ids[index],
            groups=self.groups[index],
            opinions=None if self.opinions is None else self.opinions[index],
        )

    def of_group(self, group: int) -> _Side:
        """The samples of one group."""
        return self[self.groups == group]
