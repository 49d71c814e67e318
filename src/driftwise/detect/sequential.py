"""Evidence that accumulates sample by sample: the level holds once for a stream without end.

Every class is tested for exchangeability since it was last renewed: `stats.rank_p_values` turns its
samples into p-values, `stats.e_values` turns those into an e-process for each score. A class has
drifted when one of its e-values is so large that, over all classes, scores and renewals, it happens
with a probability of at most the level, however long the stream is and however often it is checked.

The level is shared by the union bound, which holds under every dependence: the k-th test to begin,
of a new class or of one renewed, may spend `share_of(k)` of it, and each score half of that. The
number of classes need not be known. An average over scores would gain at most a factor of two, and
does not hold: ranks by one score depend on earlier ranks by another, so that the average of their
e-processes is no martingale.

The encoder must be fixed: encodings by one that learns are not exchangeable over time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftwise import rng
from driftwise.detect.base import DetectorContext, Reference
from driftwise.detect.reference import FingerprintReference
from driftwise.encoders.encoding_cache import KEY_BYTES, keys_of
from driftwise.errors import RunFailure, UserError
from driftwise.stats.e_values import EProcess, share_of
from driftwise.stats.rank_p_values import SCORES, Ranker
from driftwise.types import Encoding, Samples, Verdict

MAX_KEPT = 2000
"""samples of a class at most, to rank others among and to recognise copies of"""

MAX_WIDTH = 256
"""features, beyond which they are projected at random: exact all the same"""


@dataclass(frozen=True, kw_only=True)
class Sequential:
    """Evidence accumulates sample by sample; the level holds once for the whole stream.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> detector = dw.detect.Sequential(kept_rows=500)
    >>> loop = dw.DriftLoop(learner, detector=detector, adaptation=dw.adapt.Realign())
    """

    level: float = 0.05
    """promised probability of any false alarm in the whole stream"""
    min_rows: int = 5
    """a class with fewer distinct reference samples is not testable"""
    kept_rows: int = 300
    """samples of a class, at most, that new ones are ranked among"""

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise UserError(f"the detector's level must lie between 0 and 1; got {self.level}")
        if self.min_rows < 2:
            raise UserError(f"the detector's min_rows must be at least 2; got {self.min_rows}")
        if not 20 <= self.kept_rows <= MAX_KEPT:
            raise UserError(
                f"the detector's kept_rows must be 20 to {MAX_KEPT}; got {self.kept_rows}"
            )

    def bind(self, context: DetectorContext) -> SequentialDetector:
        """The detector, for one stream and one learner."""
        return SequentialDetector(context, self)


class SequentialDetector:
    """Takes each check's samples as the next ones of a stream; evidence is kept between checks.

    A copy of an earlier image, pixel by pixel, is no new evidence, and is left out.
    """

    reads_monitored = True

    def __init__(self, context: DetectorContext, options: Sequential) -> None:
        if context.labels != "given":
            raise UserError(
                f"the detector sequential goes by given labels, not {context.labels} ones: "
                'predictions change while a learner learns; use monitor_labels="given", or another '
                "detector"
            )
        self._encoder = context.encoder()
        self._options = options
        self._seed = context.seed
        self._tests: dict[int, _Test] = {}
        self._learned: dict[int, dict[str, Tensor]] = {}
        """keys and features of the samples from which a class was learned, until its test begins"""
        self._begun = 0

    def check(
        self, task: int, classes: Sequence[int], monitored: Samples, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class, on all its samples since it was renewed."""
        kept = {label: self._begin(label, reference) for label in classes}
        fresh = {}
        for label in classes:
            if label in self._tests:
                samples = monitored.of_class(label)
                fresh[label] = samples[self._tests[label].mark_known(keys_of(samples.images))]
        self._feed(fresh, reference)
        return [
            self._verdict(task, label, len(fresh[label]))
            if label in fresh
            else Verdict(
                task=task,
                label=label,
                drifted=None,
                num_reference=kept[label],
                reason=self._shortage,
            )
            for label in classes
        ]

    def obstacles(self, task: int, sizes: Mapping[int, tuple[int, int]]) -> Mapping[int, str]:
        """Of classes with so many reference and current samples, the untestable ones, and why."""
        del task
        least = self._options.min_rows
        return {label: self._shortage for label, (kept, _) in sizes.items() if kept < least}

    @property
    def _shortage(self) -> str:
        return f"fewer than {self._options.min_rows} distinct reference samples"

    def renew(self, labels: Sequence[int], learned: Samples) -> None:
        """These classes were just learned, from these samples: earlier evidence is void.

        The scores are fitted to learned samples, which are not ranked: they need not be random.
        """
        for label in labels:
            self._tests.pop(label, None)
            samples = learned.of_class(label).distinct()
            draw = self._draw("lesson", self._begun, label)
            order = torch.randperm(len(samples), generator=draw)
            samples = samples[order[: self._options.kept_rows]]
            self._learned[label] = {
                "keys": _packed(keys_of(samples.images)),
                "features": self._features(self._encoded(samples)),
            }

    def onset(self, label: int) -> int | None:
        """The id of the sample with which a drift began, if there is one; None: no sample yet."""
        test = self._tests.get(label)
        return None if test is None else max(each.onset for each in test.evidence)[1]

    def _begin(self, label: int, reference: Reference) -> int:
        """Begin a class's test, if there is none, with its reference samples; returns their number.

        Others are ranked among them. They are no evidence: their concept is known.
        """
        if label in self._tests:
            return len(self._tests[label].ranker)
        if isinstance(reference, FingerprintReference):
            encoding, known = reference.encoding_of(label), dict[bytes, None]()
        else:
            samples = reference.samples_of(label).distinct()
            # In their order: it decides which keys are forgotten first.
            encoding, known = self._encoded(samples), dict.fromkeys(keys_of(samples.images))
        if len(encoding) < self._options.min_rows:
            return len(encoding)
        self._begun += 1
        features = self._features(encoding).numpy()
        test = _Test(self._begun, features.shape[1], self._options.kept_rows)
        test.mark_known(known)
        learned = self._learned.pop(label, None)
        if learned is not None and known:
            both = zip(_unpacked(learned["keys"]), learned["features"].numpy(), strict=True)
            for key, sample in both:
                if key not in known:  # scores must not be fitted to samples that are ranked
                    test.ranker.train_step(sample)
        order = torch.randperm(len(features), generator=self._draw(test.number, "reference"))
        for place in order.tolist():
            test.samples += 1
            test.ranker.take(features[place], self._draw(test.number, test.samples))
        self._tests[label] = test
        return len(encoding)

    def _feed(self, fresh: dict[int, Samples], reference: Reference) -> None:
        """Add the new samples of each class to its test."""
        if not any(map(len, fresh.values())):
            return
        encoding = self._encoded(Samples.concat(list(fresh.values())))
        if isinstance(reference, FingerprintReference):
            encoding = reference.rounded(encoding)  # as coarse as what was kept
        features = self._features(encoding).numpy()
        start = 0
        for label, samples in fresh.items():
            test = self._tests[label]
            # The samples of one check have no order, whatever order they come in.
            draw = self._draw(test.number, "order", test.samples)
            for place in torch.randperm(len(samples), generator=draw).tolist():
                test.samples += 1
                draw = self._draw(test.number, test.samples)
                p_values = test.ranker.take(features[start + place], draw) or ()
                for evidence, p_value in zip(test.evidence, p_values, strict=False):
                    evidence.update(p_value, int(samples.ids[place]))
            start += len(samples)

    def _encoded(self, samples: Samples) -> Encoding:
        if not len(samples):
            return Encoding(logits=torch.empty(0, 1), features=torch.empty(0, 1))
        return self._encoder.encode(samples.images)

    def _features(self, encoding: Encoding) -> Tensor:
        """double (samples, width), of bounded width"""
        features = encoding.features.double()
        if features.shape[1] > MAX_WIDTH:
            shape = features.shape[1], MAX_WIDTH
            mix = torch.randn(shape, generator=self._draw("mix"), dtype=torch.float64)
            features = features @ mix / math.sqrt(MAX_WIDTH)
        if not features.isfinite().all():
            raise RunFailure("features are not finite: leave such samples out, or fix the encoder")
        return features

    def _verdict(self, task: int, label: int, num_new: int) -> Verdict:
        test = self._tests[label]
        if self.onset(label) is None:
            reason = "no new monitored sample counts since the class was learned"
            size = len(test.ranker)
            return Verdict(task=task, label=label, drifted=None, num_reference=size, reason=reason)
        logs = {name: each.log_most for name, each in zip(SCORES, test.evidence, strict=True)}
        log_e = max(0.0, max(logs.values()) - math.log(len(SCORES)))
        p_value = max(math.exp(-log_e), 1e-300)
        threshold = self._options.level * share_of(test.number)
        return Verdict(
            task=task,
            label=label,
            drifted=p_value <= threshold,
            score=log_e / math.log(10),
            p_value=p_value,
            threshold=threshold,
            num_reference=len(test.ranker),
            num_current=num_new,
            p_values={name: max(math.exp(-most), 1e-300) for name, most in logs.items()},
        )

    def _draw(self, *path: str | int) -> torch.Generator:
        """A generator of each sample's own: independent of how samples are cut into checks."""
        return rng.fork(self._seed, "sequential", *path)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "begun": self._begun,
            "tests": {str(label): test.state_dict() for label, test in self._tests.items()},
            "lessons": {str(label): dict(each) for label, each in self._learned.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._begun = state["begun"]
        self._tests = {}
        for label, kept in state["tests"].items():
            width = kept["ranker"]["kept"].shape[1]
            test = _Test(kept["number"], width, self._options.kept_rows)
            test.load_state_dict(kept)
            self._tests[int(label)] = test
        self._learned = {int(label): dict(kept) for label, kept in state["lessons"].items()}


class _Test:
    """The evidence on one class since it was renewed."""

    def __init__(self, number: int, width: int, kept_rows: int) -> None:
        self.number = number
        self.samples = 0
        self.ranker = Ranker(width, kept_rows=kept_rows)
        # Drifting samples lie ahead in the direction; farther from the centre or nearer is a drift.
        self.evidence = (EProcess(both_ends=False), EProcess(both_ends=True))
        self._known: dict[bytes, None] = {}

    def mark_known(self, keys: Collection[bytes]) -> Tensor:
        """bool (samples,): which images are new; from now on they are known, the latest at least."""
        new = torch.zeros(len(keys), dtype=torch.bool)
        for place, key in enumerate(keys):
            new[place] = key not in self._known
            self._known[key] = None
        for key in list(self._known)[: max(0, len(self._known) - MAX_KEPT)]:
            del self._known[key]
        return new

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "number": self.number,
            "rows": self.samples,
            "ranker": self.ranker.state_dict(),
            "bets": [each.state_dict() for each in self.evidence],
            "known": _packed(self._known),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.samples = state["rows"]
        self.ranker.load_state_dict(state["ranker"])
        for each, kept in zip(self.evidence, state["bets"], strict=True):
            each.load_state_dict(kept)
        self._known = dict.fromkeys(_unpacked(state["known"]))


def _packed(keys: Iterable[bytes]) -> Tensor:
    """uint8 (keys, bytes)"""
    flat = np.frombuffer(b"".join(keys), dtype=np.uint8).copy()
    return torch.from_numpy(flat).reshape(-1, KEY_BYTES)


def _unpacked(keys: Tensor) -> list[bytes]:
    return [bytes(key) for key in keys.numpy()]
