"""Drift detection by itself: fit to samples as they were, check samples as they are.

>>> import numpy as np
>>> images = np.random.default_rng(0).integers(0, 100, (60, 8, 8, 1), dtype=np.uint8)
>>> labels = np.arange(60) % 2
>>> detector = DriftDetector(encoder="random").fit((images[:40], labels[:40]))
>>> brighter = images[40:] + 100 * (labels[40:, None, None, None] == 1).astype(np.uint8)
>>> [(each.name, each.verdict) for each in detector.check((brighter, labels[40:])).classes]
[('0', 'same'), ('1', 'drifted')]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.detect.bounded_sample import DistinctSample
from driftwise.detect.class_tests import ClassTests, ComparisonOptions
from driftwise.detect.drift_report import ClassReport, DriftReport, Histogram, SelfCheck
from driftwise.detect.explain import with_kinds
from driftwise.detect.feature_report import frequency_shift, with_features, with_statistics
from driftwise.detect.incoming import Data, Incoming, opened, size_in_words
from driftwise.detect.kind_report import found_in_all, with_kind
from driftwise.detect.two_sample import Comparison, all_three, by_c2st, by_mmd, ks_on, merging
from driftwise.encoders.base import Encoder, EncoderContext, no_learner
from driftwise.encoders.embedding_cache import EmbeddingCache
from driftwise.encoders.encoding_cache import keys_of
from driftwise.encoders.imagenet_weights import best_encoder
from driftwise.encoders.loading import load, maker_of
from driftwise.errors import UserError, unknown_name
from driftwise.scaling import Scaling, ScalingKind
from driftwise.stats.c2st import areas_under_curve, held_out_scores
from driftwise.stats.feature_shift import histogram
from driftwise.stats.fraction import estimate_shares
from driftwise.stats.image_statistics import image_statistics
from driftwise.stats.kinds import Finding
from driftwise.stats.ks import kolmogorov_smirnov
from driftwise.stats.permutation import observed_split
from driftwise.stats.scores import entropy
from driftwise.types import Dataset, Encoding, Verdict

__all__ = ["ClassReport", "DriftDetector", "DriftReport", "SelfCheck"]

MAX_TELLING = 8
"""samples on either side that are reported as the most typical of the difference"""
MIN_PERMUTATIONS = 1_000
"""more classes, or a smaller level, make it more"""
_RIDGE = 1.0
"""stronger than the test's: of digits that were inverted in one sample out of six, 99 % of the
most typical current samples were inverted ones, instead of 49 %"""

_COMPARISONS: Mapping[str, Callable[[int], list[Comparison]]] = {
    "combined": all_three,
    "ks": lambda _: [ks_on("entropy")],
    "mmd": lambda permutations: [by_mmd(permutations)],
    "c2st": lambda permutations: [by_c2st(permutations)],
}


@dataclass(frozen=True)
class _Fitted:
    """The result of `fit`."""

    image_shape: tuple[int, ...]
    encoder: Encoder
    samples: dict[str, DistinctSample]
    scaling: Scaling | None
    """of vectors, whose samples are kept as they came; None: images, which are kept encoded"""
    feature_names: tuple[str, ...]
    scaled_together: bool
    """whether both sides of a comparison are scaled by what they have in common, class by class. A scale
    fitted to the reference alone fits it better than other samples of the same distribution: at 40
    samples of 20 features that is found as drift in 9 % of checks instead of 5 %. An encoder of
    the user's needs a scale that stays."""

    def encoded(self, *samples: DistinctSample) -> list[Encoding]:
        """The encodings of what is compared: images as kept, vectors after scaling."""
        if self.scaling is None:
            return [sample.encoding for sample in samples]
        vectors = [sample.encoding.features for sample in samples]
        scaling = self.scaling
        if self.scaled_together:
            scaling = Scaling(scaling.kind, limit=scaling.limit).fit(torch.cat(vectors))
        return [self.encoder.encode(scaling(each)) for each in vectors]

    def all_features(
        self, side: Mapping[str, DistinctSample], numbers: Mapping[str, int]
    ) -> tuple[Tensor, Tensor]:
        """The features of all classes in one scale, (samples, d), and their classes' numbers."""
        parts = {numbers[name]: sample.encoding.features for name, sample in side.items()}
        labels = [torch.full((len(features),), number) for number, features in parts.items()]
        features = torch.cat(list(parts.values()))
        if self.scaling is not None:
            features = self.encoder.encode(self.scaling(features)).features
        return features, torch.cat(labels)


class DriftDetector:
    """Compares samples with those it was fitted to, class by class; classes go by their names.

    Samples are images or feature vectors. The features of vectors are brought to one scale, and matched
    by name where both sides have names.

    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> classes = np.arange(200) % 2
    >>> before, now = draw.normal(size=(200, 4)), draw.normal(size=(200, 4))
    >>> now[classes == 1] += 2
    >>> report = DriftDetector().fit((before, classes)).check((now, classes))
    >>> report.names("drifted")
    ['1']
    """

    def __init__(
        self,
        *,
        detector: str = "combined",
        level: float = 0.05,
        correction: Literal["holm", "bonferroni", "benjamini-hochberg", "none"] = "holm",
        encoder: str | nn.Module | Callable[[Tensor], Any] | Encoder = "auto",
        scaling: ScalingKind = "standard",
        max_samples: int = 500,
        seed: int = 0,
    ) -> None:
        """How to compare.

        Args:
            detector: combined, ks, mmd or c2st.
            level: with Holm's or Bonferroni's correction, the probability of any false alarm in a
                check.
            correction: how the level is shared among classes.
            encoder: `auto` takes the first that is installed of `efficientnet`,
                `resnet18-imagenet` and `random`, and for vectors `identity`; one of these names; a
                torch module or function from float images (samples, channels, height, width) in
                [0, 1], or from scaled vectors, to (samples, d); or any fixed `Encoder`. One that
                takes texts (`sentence-transformers:NAME`) is given data sets of texts, or pairs of
                texts and labels; their embeddings are compared as vectors.
            scaling: of vectors: standard, signed-log or none (`driftwise.scaling.Scaling`). A torch
                module, a function or an `Encoder` gets vectors in the scale of the reference; tests
                on `identity` and `random` scale the two sides of a class by both together, as the
                promised level needs.
            max_samples: different images of a class that are kept on either side, at most, a
                uniform sample, as encodings; copies of an image, pixel by pixel, count once. Of
                vectors, any that many, as they came: equal ones are no copies where features are
                few or discrete.
            seed: of everything random.
        """
        if detector not in _COMPARISONS:
            raise unknown_name("detector", detector, _COMPARISONS)
        options = ComparisonOptions(level=level, correction=correction)
        if max_samples < options.min_rows:
            raise UserError(f"max_samples must be at least {options.min_rows}; got {max_samples}")
        self._detector = detector
        self._options = options
        self._texts = _text_encoder(encoder)
        self._make_encoder = _encoder_maker(encoder if self._texts is None else "identity")
        self._scaled_together = self._texts is not None or (
            isinstance(encoder, str) and encoder in ("auto", "identity", "random")
        )
        self._scaling = Scaling(scaling).kind  # refused at once if there is no such scaling
        self._max_samples = max_samples
        self._seed = seed
        self._fitted: _Fitted | None = None

    def fit(
        self,
        reference: Data,
        *,
        class_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> DriftDetector:
        """Take these samples as the reference of each class; an earlier reference is forgotten.

        Labels of batches are named by `class_names`, or else by their numbers. Features of vectors
        in batches are named by `feature_names`.
        """
        reference = self._without_texts(reference)
        came = opened(reference, class_names, "the reference", feature_names)
        encoder = self._encoder_for(came.image_shape)
        is_vectors = len(came.image_shape) == 1
        samples = self._sample(None if is_vectors else encoder, came, "reference", {})
        scaling = None
        if is_vectors:
            kept = [sample.encoding.features for sample in samples.values()]
            scaling = Scaling(self._scaling).fit(torch.cat(kept))
        self._fitted = _Fitted(
            came.image_shape, encoder, samples, scaling, came.feature_names, self._scaled_together
        )
        return self

    def check(
        self,
        current: Data,
        *,
        class_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> DriftReport:
        """Compare these samples with the reference; neither they nor anything else is kept."""
        fitted = self._fit_result()
        current = self._without_texts(current)
        came = opened(current, class_names, "the current samples", feature_names)
        not_compared: tuple[str, ...] = ()
        if fitted.feature_names and came.feature_names:
            came, not_compared = came.matched(fitted.feature_names)
        if came.image_shape != fitted.image_shape:
            sizes = [size_in_words(shape) for shape in (fitted.image_shape, came.image_shape)]
            both_vectors = all("vectors" in size for size in sizes)
            raise UserError(
                f"the reference's samples are {sizes[0]}, the current ones {sizes[1]}; "
                + (
                    "give both the same features"
                    if both_vectors
                    else "bring both to one size and one number of channels"
                )
            )
        encoder = None if fitted.scaling is not None else fitted.encoder
        now = self._sample(encoder, came, "current", fitted.samples)
        classes, verdicts = self._class_reports(fitted, now)
        stream, classes = self._with_kinds(classes, verdicts, fitted, now)
        report = DriftReport(
            classes=classes,
            kind=stream.kind,
            kind_evidence=stream.evidence,
            action=stream.action,
            detector=self._detector,
            encoder=fitted.encoder.name,
            blind_to=getattr(fitted.encoder, "blind_to", None),
            level=self._options.level,
            correction=self._options.correction,
            not_compared=not_compared,
            frequencies=frequency_shift(classes),
        )
        both = {name: (fitted.samples[name], now[name]) for name in fitted.samples.keys() & now}
        if fitted.scaling is None:
            of_images = {
                name: (old.statistics, new.statistics) for name, (old, new) in both.items()
            }
            return with_statistics(report, of_images)
        sides = {
            name: (old.encoding.features, new.encoding.features)
            for name, (old, new) in both.items()
        }
        return with_features(report, sides, fitted.scaling, fitted.feature_names)

    def self_check(self, rounds: int = 100, *, max_samples: int = 50) -> SelfCheck:
        """Measure false alarms: the reference split against itself, at random, `rounds` times.

        Each class is cut into two halves of at most `max_samples` samples, which is quicker than a check.
        """
        fitted = self._fit_result()
        if rounds < 1:
            raise UserError(f"a self-check needs at least 1 round; got {rounds}")
        if max_samples < self._options.min_rows:
            raise UserError(
                f"max_samples of a self-check must be at least {self._options.min_rows}; got"
                f" {max_samples}"
            )
        kept = [fitted.encoded(sample)[0] for sample in fitted.samples.values()]
        least = 2 * self._options.min_rows
        testable = {place: each for place, each in enumerate(kept) if len(each) >= least}
        # As fine as the correction needs, and no finer.
        tests = self._tests(min_permutations=199)
        alarms = checks = 0
        for number in range(1, rounds + 1):
            draw = rng.fork(self._seed, "standalone", "self-check", number)
            sides = {label: _halves(each, max_samples, draw) for label, each in testable.items()}
            found = [each.drifted for each in tests.verdicts(number, sides)]
            checks += any(answer is not None for answer in found)
            alarms += any(found)
        halves = [min(len(each) // 2, max_samples) for each in testable.values()] or [0]
        return SelfCheck(
            alarms=alarms,
            checks=checks,
            num_classes=len(testable),
            half_rows=(min(halves), max(halves)),
        )

    def state_dict(self) -> dict[str, Any]:
        """What `fit` has kept: names, numbers and tensors, a few hundred kilobytes per class."""
        if self._fitted is None:
            return {"image_shape": None, "encoder": None, "classes": {}}
        fitted = self._fitted
        return {
            "image_shape": fitted.image_shape,
            "encoder": fitted.encoder.name,
            "scaling": None if fitted.scaling is None else fitted.scaling.state_dict(),
            "feature_names": list(fitted.feature_names),
            "classes": {name: kept.state_dict() for name, kept in fitted.samples.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; encodings by another encoder are refused."""
        if state["image_shape"] is None:
            self._fitted = None
            return
        image_shape = tuple(state["image_shape"])
        encoder = self._encoder_for(image_shape)
        scaling = None
        if len(image_shape) == 1:
            if state.get("scaling") is None:
                raise UserError(
                    "the state was saved by an earlier version, which kept no vectors; fit the"
                    " detector to the reference again"
                )
            scaling = Scaling(self._scaling)
            if state["scaling"]["kind"] != scaling.kind:
                raise UserError(
                    f"the reference was scaled by {state['scaling']['kind']}; this detector's"
                    f" scaling is {scaling.kind}"
                )
            scaling.load_state_dict(state["scaling"])
        if encoder.name != state["encoder"]:
            raise UserError(
                f"the reference was encoded by {state['encoder']}; this detector's encoder is"
                f" {encoder.name}, and their numbers cannot be compared"
            )
        samples = {name: DistinctSample.restored(kept) for name, kept in state["classes"].items()}
        names = tuple(state.get("feature_names", ()))
        self._fitted = _Fitted(image_shape, encoder, samples, scaling, names, self._scaled_together)

    def _fit_result(self) -> _Fitted:
        if self._fitted is None:
            raise UserError("the detector has no reference yet; call fit(reference) first")
        return self._fitted

    def _encoder_for(self, image_shape: tuple[int, ...]) -> Encoder:
        context = EncoderContext(learner=no_learner, image_shape=image_shape, seed=self._seed)
        encoder = self._make_encoder(context)
        if self._texts is not None:  # whose embeddings are the vectors
            encoder.name = self._texts.name
        return encoder

    def _without_texts(self, data: Data) -> Data:
        """Embeddings in the place of texts; all other data as they are."""
        if self._texts is None:
            return data
        cache = EmbeddingCache(self._texts)
        if isinstance(data, Dataset):
            return cache.encoded(data)
        if isinstance(data, tuple):
            return cache.features(data[0]), data[1]
        return ((cache.features(texts), labels) for texts, labels in data)

    def _sample(
        self,
        encoder: Encoder | None,
        came: Incoming,
        side: str,
        others: Mapping[str, DistinctSample],
    ) -> dict[str, DistinctSample]:
        """A bounded sample of every class that occurs, which counts images of the others.

        Without an encoder, which is for vectors, samples are kept as they are, each by itself.

        Seeds, sides and classes draw independently: else both sides would share more images.
        """
        samples: dict[str, DistinctSample] = {}
        for block in came.blocks:
            contents = keys_of(block.images)
            if encoder is None:
                numbers = range(block.start, block.start + len(contents))
                contents = [
                    content + number.to_bytes(8, "big")
                    for content, number in zip(contents, numbers, strict=True)
                ]
            offers = []
            for label in torch.unique(block.labels).tolist():
                name = came.name_of(label)
                if name not in samples:
                    salt = rng.derive(self._seed, "standalone", side, name).to_bytes(8, "big")
                    theirs = others[name].contents if name in others else frozenset[bytes]()
                    samples[name] = DistinctSample(salt, others=theirs)
                mine = (block.labels == label).nonzero().squeeze(1)
                own = [contents[place] for place in mine.tolist()]
                offers.append((samples[name], mine[samples[name].offer(own, self._max_samples)]))
            # Only what is going to be kept: of a large class, ever fewer samples are.
            wanted = torch.cat([places for _, places in offers])
            if not len(wanted):
                continue
            images = block.images[wanted]
            parts = _raw(images) if encoder is None else encoder.encode(images)
            known = torch.empty(len(images), 0) if encoder is None else image_statistics(images)
            end = 0
            for sample, places in offers:
                begin, end = end, end + len(places)
                sample.put(parts[begin:end], block.start + places, known[begin:end])
        return samples

    def _class_reports(
        self, fitted: _Fitted, now: Mapping[str, DistinctSample]
    ) -> tuple[tuple[ClassReport, ...], dict[str, Verdict]]:
        """One report per class of either side, in the order of names, numbers by their size.

        And the verdicts on the classes of both sides, by name.
        """
        kept = fitted.samples
        names = sorted({*kept, *now}, key=_by_number)
        sides: dict[int, Any] = {
            place: tuple(fitted.encoded(kept[name], now[name]))
            for place, name in enumerate(names)
            if name in kept and name in now
        }
        verdicts = {each.label: each for each in self._tests().verdicts(1, sides)}
        nothing = DistinctSample()
        reports = []
        for place, name in enumerate(names):
            before, after = kept.get(name, nothing), now.get(name, nothing)
            if place not in verdicts:
                report = ClassReport(name=name, verdict="missing" if name in kept else "new")
            elif verdicts[place].drifted is None:
                reason = verdicts[place].reason
                report = ClassReport(name=name, verdict="not testable", reason=reason)
            else:
                report = self._tested(name, verdicts[place], before, after, *sides[place])
            report = replace(
                report,
                num_reference=before.seen,
                num_current=after.seen,
                num_kept_reference=len(before.samples),
                num_kept_current=len(after.samples),
                num_copies_reference=before.num_copies,
                num_copies_current=after.num_copies,
                num_shared=after.num_shared,
            )
            reports.append(report)
        return tuple(reports), {names[place]: each for place, each in verdicts.items()}

    def _with_kinds(
        self,
        classes: tuple[ClassReport, ...],
        verdicts: Mapping[str, Verdict],
        fitted: _Fitted,
        now: Mapping[str, DistinctSample],
    ) -> tuple[Finding, tuple[ClassReport, ...]]:
        """What happened to the samples altogether, and the reports with the kind of each change."""
        numbers = {each.name: place for place, each in enumerate(classes)}
        (reference, before), (current, labels) = (
            fitted.all_features(side, numbers) for side in (fitted.samples, now)
        )
        judged = with_kinds(
            [replace(each, label=numbers[name]) for name, each in verdicts.items()],
            reference=reference,
            reference_labels=before,
            current=current,
            labels=labels,
            known="given",
            unit_length=fitted.scaling is None,
            seed=self._seed,
        )
        by_name = dict(zip(verdicts, judged, strict=True))
        return found_in_all(classes, by_name), tuple(
            with_kind(each, by_name.get(each.name)) for each in classes
        )

    def _tests(self, *, min_permutations: int = MIN_PERMUTATIONS) -> ClassTests:
        comparisons = _COMPARISONS[self._detector](min_permutations)
        merge = merging("cauchy") if len(comparisons) > 1 else None
        return ClassTests(comparisons, self._options, merge=merge, seed=self._seed)

    def _tested(
        self,
        name: str,
        verdict: Verdict,
        before: DistinctSample,
        after: DistinctSample,
        kept: Encoding,
        now: Encoding,
    ) -> ClassReport:
        """The verdict, how large the difference is, and which samples show it."""
        pooled = torch.cat([kept.features, now.features])
        draw = rng.fork(self._seed, "standalone", "effect", name)
        order = torch.randperm(len(pooled), generator=draw)  # neighbours share a fold
        is_current = observed_split(1, (len(kept), len(now)))
        scores = held_out_scores(pooled[None], is_current, order=order, folds=10, ridge=_RIDGE)
        least_current, most_current = (
            side.argsort(stable=True, descending=descending)[:MAX_TELLING]
            for side, descending in (
                (scores[0, 0, : len(kept)], False),
                (scores[0, 0, len(kept) :], True),
            )
        )
        report = ClassReport(
            name=name,
            verdict="drifted" if verdict.drifted else "same",
            p_value=verdict.p_value,
            threshold=verdict.threshold,
            p_values=verdict.p_values
            or {_COMPARISONS[self._detector](MIN_PERMUTATIONS)[0].name: verdict.p_value or 0.0},
            auc=float(areas_under_curve(scores, is_current)),
            ks_gap=kolmogorov_smirnov([(entropy(kept.logits), entropy(now.logits))])[0].statistic,
            telling_reference=tuple(before.samples[least_current].tolist()),
            telling_current=tuple(after.samples[most_current].tolist()),
            scores=Histogram(
                name="score",
                **histogram(scores[0, 0, : len(kept)], scores[0, 0, len(kept) :])._asdict(),
            ),
        )
        if not verdict.drifted:
            return report
        (found,) = estimate_shares([(kept.features, now.features)])
        drifted = after.samples[found.evidence > 0.5].sort().values
        return replace(
            report, share=found.share, share_error=found.error, moved=tuple(drifted.tolist())
        )


def _text_encoder(encoder: Any) -> Encoder | None:
    """The encoder that was asked for, if it takes texts."""
    is_library = isinstance(encoder, str) and encoder.startswith("sentence-transformers:")
    return load(encoder) if is_library or getattr(encoder, "accepts", "") == "texts" else None


def _encoder_maker(encoder: Any) -> Callable[[EncoderContext], Encoder]:
    """Makes the encoder that was asked for; that it can is tried at once, before work goes in."""
    if encoder == "auto":
        return best_encoder
    if isinstance(encoder, str):
        maker = maker_of(encoder)
        shape = (32,) if encoder == "identity" else (32, 32, 3)
        maker(EncoderContext(learner=no_learner, image_shape=shape, seed=0))
        return maker
    made = load(encoder)
    return lambda _: made


def _halves(
    encoding: Encoding, max_samples: int, draw: torch.Generator
) -> tuple[Encoding, Encoding]:
    """Two random samples of equal size that have no sample in common."""
    size = min(len(encoding) // 2, max_samples)
    order = torch.randperm(len(encoding), generator=draw)
    return encoding[order[:size]], encoding[order[size : 2 * size]]


def _by_number(name: str) -> tuple[bool, int, str]:
    """Sorts numbers by their size, before other names."""
    is_number = name.isascii() and name.isdecimal()
    return not is_number, int(name) if is_number else 0, name


def _raw(vectors: Tensor) -> Encoding:
    """Vectors as they came, which are encoded when they are compared."""
    return Encoding(logits=vectors[:, :0], features=vectors)
