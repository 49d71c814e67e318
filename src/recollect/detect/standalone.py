"""Drift detection by itself: fit to pictures as they were, check pictures as they are.

>>> import numpy as np
>>> pictures = np.random.default_rng(0).integers(0, 100, (60, 8, 8, 1), dtype=np.uint8)
>>> labels = np.arange(60) % 2
>>> detector = DriftDetector().fit((pictures[:40], labels[:40]))
>>> brighter = pictures[40:] + 100 * (labels[40:, None, None, None] == 1).astype(np.uint8)
>>> [(each.name, each.verdict) for each in detector.check((brighter, labels[40:])).classes]
[('0', 'same'), ('1', 'drifted')]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from recollect import rng
from recollect.detect.c2st import areas_under_curve, held_out_scores
from recollect.detect.detectors import all_three, by_c2st, by_mmd, ks_on, merging
from recollect.detect.encoders import Encoder, RandomEncoder, Surroundings
from recollect.detect.incoming import Block, Data, blocks_of, opened, peeked, size_in_words
from recollect.detect.judge import Comparison, ComparisonOptions, Judge
from recollect.detect.ks import kolmogorov_smirnov
from recollect.detect.sample import Sample
from recollect.detect.scores import entropy
from recollect.detect.share import estimate_shares
from recollect.errors import UserError, unknown_name
from recollect.types import Encoding, Verdict

State = Literal["drifted", "same", "not testable", "new", "missing"]

MAX_TELLING = 8
"""rows on either side that are named as the most telling"""
MIN_PERMUTATIONS, MAX_PERMUTATIONS = 1_000, 10_000
"""more classes, or a smaller level, ask for finer p-values, up to what can be waited for"""

_COMPARISONS: Mapping[str, Callable[[int], list[Comparison]]] = {
    "combined": all_three,
    "ks": lambda _: [ks_on("entropy")],
    "mmd": lambda permutations: [by_mmd(permutations)],
    "c2st": lambda permutations: [by_c2st(permutations)],
}


@dataclass(frozen=True, kw_only=True)
class ClassReport:
    """What is known about one class."""

    name: str
    verdict: State
    """not testable: too few rows for any answer; new, missing: on one side only, which is not
    drift"""
    p_value: float | None = None
    """how often two samples of one distribution would differ as much"""
    threshold: float | None = None
    """drifted exactly where the p-value does not exceed it"""
    p_values: Mapping[str, float] | None = None
    """by test"""
    auc: float | None = None
    """effect size: how often a linear classifier that has seen neither ranks a current row above a
    reference row; 0.5 is chance, 1 is told apart without fail"""
    ks_gap: float | None = None
    """effect size: largest difference of the two sides' distribution functions of the entropy of
    the encoder's predictions, 0 to 1"""
    share: float | None = None
    """of a drifted class, the estimated share of current rows that look new, at least about"""
    share_error: float | None = None
    """its standard error"""
    moved: tuple[int, ...] = ()
    """of a drifted class, the current rows compared that more likely than not look new: their
    numbers, counted from 0 in the order in which they came"""
    num_reference: int = 0
    """rows that came, of which at most `max_rows` were compared"""
    num_current: int = 0
    telling_reference: tuple[int, ...] = ()
    """rows least like the current ones, the most telling first: their numbers, counted from 0 in
    the order in which they came"""
    telling_current: tuple[int, ...] = ()
    """rows least like the reference, likewise"""
    reason: str | None = None
    """why the class could not be tested"""


@dataclass(frozen=True, kw_only=True)
class DriftReport:
    """What a check found, class by class."""

    classes: tuple[ClassReport, ...]
    detector: str
    encoder: str
    level: float
    correction: str

    @property
    def drifted(self) -> bool:
        """Whether any class has drifted."""
        return any(each.verdict == "drifted" for each in self.classes)

    def names(self, *verdicts: State) -> list[str]:
        """The classes of which one of these is said."""
        return [each.name for each in self.classes if each.verdict in verdicts]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can say it."""
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


class DriftDetector:
    """Compares pictures with those it was fitted to, class by class; classes go by their names."""

    def __init__(
        self,
        *,
        detector: str = "combined",
        level: float = 0.05,
        correction: Literal["holm", "bonferroni", "benjamini-hochberg", "none"] = "holm",
        encoder: Encoder | None = None,
        make_encoder: Callable[[Surroundings], Encoder] = RandomEncoder,
        max_rows: int = 500,
        seed: int = 0,
    ) -> None:
        """`encoder`: any fixed one; None has one made for the size of the pictures.

        With Holm's or Bonferroni's correction, `level` is the chance of any false alarm in a check.
        At most `max_rows` of a class are kept on either side, a uniform sample, as encodings.
        """
        if detector not in _COMPARISONS:
            raise unknown_name("detector", detector, _COMPARISONS)
        if encoder is not None and not encoder.fixed:
            raise UserError(
                f"the encoder {encoder.name} learns, so that what it made of the reference expires;"
                " give a fixed one"
            )
        options = ComparisonOptions(level=level, correction=correction)
        if max_rows < options.min_rows:
            raise UserError(f"max_rows must be at least {options.min_rows}; got {max_rows}")
        self._detector = detector
        self._options = options
        self._given = encoder
        self._make_encoder = make_encoder
        self._max_rows = max_rows
        self._seed = seed
        self._fitted: _Fitted | None = None

    def fit(self, reference: Data, *, class_names: Sequence[str] | None = None) -> DriftDetector:
        """Take these pictures for how each class looks; what was known before is forgotten.

        Labels of batches are named by `class_names`, or else by their numbers.
        """
        name_of, batches = opened(reference, class_names)
        image_shape, blocks = peeked(blocks_of(batches), "the reference")
        encoder = self._encoder_for(image_shape)
        samples = self._sample(encoder, blocks, name_of, "reference")
        self._fitted = _Fitted(image_shape, encoder, samples)
        return self

    def check(self, current: Data, *, class_names: Sequence[str] | None = None) -> DriftReport:
        """Compare these pictures with the reference; neither they nor anything else is kept."""
        if self._fitted is None:
            raise UserError("the detector has no reference yet; call fit(reference) first")
        image_shape, encoder, kept = self._fitted
        name_of, batches = opened(current, class_names)
        came, blocks = peeked(blocks_of(batches), "the current pictures")
        if came != image_shape:
            raise UserError(
                f"the reference's pictures are {size_in_words(image_shape)}, the current ones "
                f"{size_in_words(came)}; bring both to one size and one number of channels"
            )
        now = self._sample(encoder, blocks, name_of, "current")
        return DriftReport(
            classes=tuple(self._class_reports(kept, now)),
            detector=self._detector,
            encoder=encoder.name,
            level=self._options.level,
            correction=self._options.correction,
        )

    def self_check(self, rounds: int = 100, *, max_rows: int = 50) -> SelfCheck:
        """Measure false alarms: the reference split against itself, at random, `rounds` times.

        Each class is cut into two halves of at most `max_rows` rows, which is quicker than a check.
        """
        if self._fitted is None:
            raise UserError("the detector has no reference yet; call fit(reference) first")
        kept = [sample.encoding for sample in self._fitted.samples.values()]
        least = 2 * self._options.min_rows
        testable = {place: each for place, each in enumerate(kept) if len(each) >= least}
        # As fine as the correction needs, and no finer.
        judge = self._judge(len(testable), min_permutations=199)
        alarms = checks = 0
        for number in range(1, rounds + 1):
            draw = rng.fork(self._seed, "standalone", "self-check", number)
            sides = {label: _halves(each, max_rows, draw) for label, each in testable.items()}
            found = [each.drifted for each in judge.verdicts(number, sides)]
            checks += any(answer is not None for answer in found)
            alarms += any(found)
        return SelfCheck(alarms=alarms, checks=checks)

    def state_dict(self) -> dict[str, Any]:
        """What `fit` has kept: names, numbers and tensors, a few hundred kilobytes per class."""
        if self._fitted is None:
            return {"image_shape": None, "encoder": None, "classes": {}}
        return {
            "image_shape": self._fitted.image_shape,
            "encoder": self._fitted.encoder.name,
            "classes": {name: kept.state_dict() for name, kept in self._fitted.samples.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off; what another encoder made is refused."""
        if state["image_shape"] is None:
            self._fitted = None
            return
        encoder = self._encoder_for(state["image_shape"])
        if encoder.name != state["encoder"]:
            raise UserError(
                f"the reference was encoded by {state['encoder']}; this detector's encoder is"
                f" {encoder.name}, and their numbers cannot be compared"
            )
        samples = {name: Sample.restored(kept) for name, kept in state["classes"].items()}
        self._fitted = _Fitted(tuple(state["image_shape"]), encoder, samples)

    def _encoder_for(self, image_shape: tuple[int, ...]) -> Encoder:
        if self._given is not None:
            return self._given
        around = Surroundings(learner=_no_learner, image_shape=image_shape, seed=self._seed)
        return self._make_encoder(around)

    def _sample(
        self, encoder: Encoder, blocks: Iterable[Block], name_of: Callable[[int], str], side: str
    ) -> dict[str, Sample]:
        """A bounded sample of every class that occurs, by name."""
        samples: dict[str, Sample] = {}
        for block in blocks:
            offers = []
            for label in torch.unique(block.labels).tolist():
                name = name_of(label)
                sample = samples.setdefault(name, Sample())
                draw = rng.fork(self._seed, "standalone", side, name, sample.seen)
                mine = (block.labels == label).nonzero().squeeze(1)
                offers.append((sample, mine[sample.offer(len(mine), self._max_rows, draw)]))
            # Only what is going to be kept: of a large class, ever fewer rows are.
            wanted = torch.cat([rows for _, rows in offers])
            if not len(wanted):
                continue
            parts = encoder.encode(block.images[wanted])
            end = 0
            for sample, rows in offers:
                begin, end = end, end + len(rows)
                sample.put(parts[begin:end], block.start + rows)
        return samples

    def _class_reports(
        self, kept: Mapping[str, Sample], now: Mapping[str, Sample]
    ) -> Iterator[ClassReport]:
        """One report per class of either side, in the order of names, numbers by their size."""
        names = sorted({*kept, *now}, key=_by_number)
        sides = {
            place: (kept[name].encoding, now[name].encoding)
            for place, name in enumerate(names)
            if name in kept and name in now
        }
        verdicts = {each.label: each for each in self._judge(len(sides)).verdicts(1, sides)}
        for place, name in enumerate(names):
            if place in verdicts and verdicts[place].drifted is not None:
                yield self._tested(name, verdicts[place], kept[name], now[name])
                continue
            one_sided: State = "missing" if name in kept else "new"
            yield ClassReport(
                name=name,
                verdict="not testable" if place in verdicts else one_sided,
                reason=verdicts[place].reason if place in verdicts else None,
                num_reference=kept[name].seen if name in kept else 0,
                num_current=now[name].seen if name in now else 0,
            )

    def _judge(self, num_classes: int, *, min_permutations: int = MIN_PERMUTATIONS) -> Judge:
        finest = math.ceil(2 * num_classes / self._options.level) - 1
        permutations = min(max(min_permutations, finest), MAX_PERMUTATIONS)
        comparisons = _COMPARISONS[self._detector](permutations)
        merge = merging("cauchy") if len(comparisons) > 1 else None
        return Judge(comparisons, self._options, merge=merge, seed=self._seed)

    def _tested(self, name: str, verdict: Verdict, kept: Sample, now: Sample) -> ClassReport:
        """The verdict, how large the difference is, and which rows show it."""
        only = _COMPARISONS[self._detector](MIN_PERMUTATIONS)[0].name
        effect = _effect(
            kept.encoding, now.encoding, rng.fork(self._seed, "standalone", "effect", name)
        )
        share, error, moved = None, None, torch.empty(0, dtype=torch.int64)
        if verdict.drifted:
            (found,) = estimate_shares([(kept.encoding.features, now.encoding.features)])
            share, error, moved = found.share, found.error, now.rows[found.evidence > 0.5]
        telling_reference = effect.scores[: len(kept.rows)].argsort(stable=True)
        telling_current = effect.scores[len(kept.rows) :].argsort(stable=True, descending=True)
        return ClassReport(
            name=name,
            verdict="drifted" if verdict.drifted else "same",
            p_value=verdict.p_value,
            threshold=verdict.threshold,
            p_values=verdict.p_values or {only: verdict.p_value or 0.0},
            auc=effect.auc,
            ks_gap=effect.ks_gap,
            share=share,
            share_error=error,
            moved=tuple(moved.sort().values.tolist()),
            num_reference=kept.seen,
            num_current=now.seen,
            telling_reference=tuple(kept.rows[telling_reference[:MAX_TELLING]].tolist()),
            telling_current=tuple(now.rows[telling_current[:MAX_TELLING]].tolist()),
        )


class _Fitted(NamedTuple):
    """What `fit` leaves behind."""

    image_shape: tuple[int, ...]
    encoder: Encoder
    samples: dict[str, Sample]


# --- how large a difference is ------------------------------------------------------------------


_RIDGE = 1.0
"""stronger than the test's: of digits that were inverted in one row out of six, 99 % of the rows
named as the most telling were inverted ones, instead of 49 %"""


class _Effect(NamedTuple):
    auc: float
    ks_gap: float
    scores: Tensor
    """(reference + current rows,): how much each looks like a current one, judged unseen"""


def _effect(kept: Encoding, now: Encoding, draw: torch.Generator) -> _Effect:
    pooled = torch.cat([kept.features, now.features])
    order = torch.randperm(len(pooled), generator=draw)  # neighbours share a fold
    is_current = (order >= len(kept))[None, None]
    shuffled = held_out_scores(pooled[order][None], is_current, folds=10, ridge=_RIDGE)
    scores = torch.empty(len(pooled), dtype=shuffled.dtype)
    scores[order] = shuffled[0, 0]
    gap = kolmogorov_smirnov([(entropy(kept.logits), entropy(now.logits))])[0].statistic
    return _Effect(float(areas_under_curve(shuffled, is_current)), gap, scores)


def _halves(encoding: Encoding, max_rows: int, draw: torch.Generator) -> tuple[Encoding, Encoding]:
    """Two random samples of equal size that have no row in common."""
    size = min(len(encoding) // 2, max_rows)
    order = torch.randperm(len(encoding), generator=draw)
    return encoding[order[:size]], encoding[order[size : 2 * size]]


def _by_number(name: str) -> tuple[bool, int, str]:
    """Sorts numbers by their size, before other names."""
    is_number = name.isascii() and name.isdecimal()
    return not is_number, int(name) if is_number else 0, name


def _no_learner(images: Tensor) -> Encoding:
    raise AssertionError(f"a fixed encoder asks no learner about {len(images)} rows")
