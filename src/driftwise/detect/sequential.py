"""Evidence that adds up sample by sample: the level is promised once for a stream without end.

Every class is tested for exchangeability since it was last renewed: `ranking` turns its samples into
p-values, `betting` turns those into money, and a class has drifted when one of its scores has won
so much that, all classes, scores and renewals taken together, it happens with a chance of at most
the level, however long the stream is and however often one looks.

The level is shared by the union bound, which holds under every dependence: the k-th test to begin,
be it of a new class or of one renewed, may spend `share_of(k)` of it, and each score its half of
that. Nobody needs to know how many classes will come. An average over scores would win at most a
factor of two, and does not hold: the ranks by one score tell something of the next one's by
another, so that what both have won together is no martingale.

The encoder must be fixed: to one that learns, earlier samples and later ones do not look alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from driftwise import rng
from driftwise.detect.base import Reference, Setting
from driftwise.detect.encoding_cache import KEY_BYTES, keys_of
from driftwise.detect.reference import FingerprintReference
from driftwise.errors import RunFailure, UserError
from driftwise.stats.e_values import EProcess, share_of
from driftwise.stats.rank_p_values import SCORES, Floats, Ranker
from driftwise.types import Encoding, Samples, Verdict

MAX_KEPT = 2000
"""samples of a class at most, to rank others among and to know an image again"""

MAX_WIDTH = 256
"""features, beyond which they are first thrown together at random: exact all the same"""


@dataclass(frozen=True, kw_only=True)
class Sequential:
    """Evidence adds up sample by sample; the level holds once for the whole stream."""

    level: float = 0.05
    """promised chance of any false alarm in the whole stream"""
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

    def bind(self, setting: Setting) -> SequentialDetector:
        """The detector, for one stream and one learner."""
        return SequentialDetector(setting, self)


class SequentialDetector:
    """Takes each check's samples as the next ones of a stream; evidence is kept between checks.

    An image that comes back pixel by pixel says nothing new, and is left out.
    """

    watches = True

    def __init__(self, setting: Setting, options: Sequential) -> None:
        if setting.labels != "given":
            raise UserError(
                f"the detector sequential goes by given labels, not {setting.labels} ones: what a "
                'learner takes samples for changes while it learns; use monitor_labels="given", or '
                "another detector"
            )
        self._encoder = setting.encoder()
        self._options = options
        self._seed = setting.seed
        self._tests: dict[int, _Test] = {}
        self._lessons: dict[int, _Lesson] = {}
        self._begun = 0

    def check(
        self, task: int, classes: Sequence[int], monitored: Samples, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class, on all that has come of it since it was renewed."""
        kept = {label: self._begin(label, reference) for label in classes}
        news = {label: self._news(label, monitored) for label in classes if label in self._tests}
        self._feed(news, reference)
        return [
            self._verdict(task, label, len(news[label]))
            if label in news
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
        """These classes were just learned, from these samples: what came before is void.

        Learned samples teach the ranks what to look at, and are not ranked: they may be as hand-picked
        as they like.
        """
        for label in labels:
            self._tests.pop(label, None)
            samples = learned.of_class(label).distinct()
            draw = self._draw("lesson", self._begun, label)
            samples = samples[
                torch.randperm(len(samples), generator=draw)[: self._options.kept_rows]
            ]
            self._lessons[label] = _Lesson(
                keys=keys_of(samples.images) if len(samples) else [],
                features=self._features(self._encoded(samples)),
            )

    def onset(self, label: int) -> int | None:
        """The id of the sample with which a change has begun, if there is one; None: no sample yet."""
        test = self._tests.get(label)
        return None if test is None else max(bets.onset for bets in test.bets)[1]

    def _begin(self, label: int, reference: Reference) -> int:
        """Begin a class's test, if there is none, with what it looked like; so many samples they were.

        They are only ranked among: that they look as the class did is known, and nothing is bet.
        """
        if label in self._tests:
            return len(self._tests[label].ranker)
        if isinstance(reference, FingerprintReference):
            encoding, known = reference.encoding_of(label), set[bytes]()
        else:
            samples = reference.samples_of(label).distinct()
            encoding = self._encoded(samples)
            known = set(keys_of(samples.images)) if len(samples) else set()
        if len(encoding) < self._options.min_rows:
            return len(encoding)
        self._begun += 1
        features = self._features(encoding)
        test = _Test(self._begun, features.shape[1], self._options.kept_rows)
        test.know(known)
        if label in self._lessons and known:
            lesson = self._lessons[label]
            for key, sample in zip(lesson.keys, lesson.features, strict=True):
                if key not in known:  # a sample that others are ranked among must not have taught
                    test.ranker.train_step(sample)
        order = torch.randperm(len(features), generator=self._draw(test.number, "reference"))
        for place in order.tolist():
            test.ranker.take(features[place], self._draw(test.number, test.next_row()))
        self._lessons.pop(label, None)
        self._tests[label] = test
        return len(encoding)

    def _news(self, label: int, monitored: Samples) -> Samples:
        """The monitored samples of a class that have not come before."""
        samples = monitored.of_class(label)
        return (
            samples[self._tests[label].know(keys_of(samples.images))] if len(samples) else samples
        )

    def _feed(self, news: dict[int, Samples], reference: Reference) -> None:
        if not any(map(len, news.values())):
            return
        encoding = self._encoded(Samples.concat(list(news.values())))
        if isinstance(reference, FingerprintReference):
            encoding = reference.rounded(encoding)  # as coarse as what was kept
        features = self._features(encoding)
        start = 0
        for label, samples in news.items():
            test = self._tests[label]
            # What comes at once has no order, whatever order it lies in.
            draw = self._draw(test.number, "order", test.samples)
            for place in torch.randperm(len(samples), generator=draw).tolist():
                draw = self._draw(test.number, test.next_row())
                test.take(features[start + place], draw, sample=int(samples.ids[place]))
            start += len(samples)

    def _encoded(self, samples: Samples) -> Encoding:
        if not len(samples):
            return Encoding(logits=torch.empty(0, 1), features=torch.empty(0, 1))
        return self._encoder.encode(samples.images)

    def _features(self, encoding: Encoding) -> Floats:
        """(samples, width), of bounded width."""
        features = encoding.features.double()
        if features.shape[1] > MAX_WIDTH:
            shape = features.shape[1], MAX_WIDTH
            mix = torch.randn(shape, generator=self._draw("mix"), dtype=torch.float64)
            features = features @ mix / math.sqrt(MAX_WIDTH)
        if not features.isfinite().all():
            raise RunFailure("features are not finite: leave such samples out, or mend the encoder")
        found: Floats = features.numpy()
        return found

    def _verdict(self, task: int, label: int, num_new: int) -> Verdict:
        test = self._tests[label]
        won = {name: bets.log_most for name, bets in zip(SCORES, test.bets, strict=True)}
        log_won = max(0.0, max(won.values()) - math.log(len(SCORES)))
        p_value = max(math.exp(-log_won), 1e-300)
        threshold = self._options.level * share_of(test.number)
        return Verdict(
            task=task,
            label=label,
            drifted=p_value <= threshold,
            score=log_won / math.log(10),
            p_value=p_value,
            threshold=threshold,
            num_reference=len(test.ranker),
            num_current=num_new,
            p_values={name: max(math.exp(-most), 1e-300) for name, most in won.items()},
        )

    def _draw(self, *path: str | int) -> torch.Generator:
        """A generator of each sample's own: how samples are cut into checks makes no difference to it."""
        return rng.fork(self._seed, "sequential", *path)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "begun": self._begun,
            "tests": {str(label): test.state_dict() for label, test in self._tests.items()},
            "lessons": {str(label): each.state_dict() for label, each in self._lessons.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._begun = state["begun"]
        self._tests = {}
        for label, kept in state["tests"].items():
            width = kept["ranker"]["kept"].shape[1]
            test = _Test(kept["number"], width, self._options.kept_rows)
            test.load_state_dict(kept)
            self._tests[int(label)] = test
        self._lessons = {
            int(label): _Lesson.restored(kept) for label, kept in state["lessons"].items()
        }


class _Lesson(NamedTuple):
    """Samples from which a class was learned, until its test begins."""

    keys: list[bytes]
    features: Floats
    """(samples, width)"""

    def state_dict(self) -> dict[str, Any]:
        return {"keys": _packed(self.keys), "features": torch.from_numpy(self.features.copy())}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> _Lesson:
        return cls(_unpacked(state["keys"]), state["features"].numpy().copy())


def _packed(keys: Iterable[bytes]) -> torch.Tensor:
    """uint8 (keys, bytes)"""
    flat = np.frombuffer(b"".join(keys), dtype=np.uint8).copy()
    return torch.from_numpy(flat).reshape(-1, KEY_BYTES)


def _unpacked(keys: torch.Tensor) -> list[bytes]:
    return [bytes(key) for key in keys.numpy()]


class _Test:
    """All that is known of one class since it was renewed."""

    def __init__(self, number: int, width: int, kept_rows: int) -> None:
        self.number = number
        self.samples = 0
        self.ranker = Ranker(width, kept_rows=kept_rows)
        # Samples that move on lie ahead; farther from the centre or nearer to it is a change as well.
        self.bets = (EProcess(both_ends=False), EProcess(both_ends=True))
        self._known: dict[bytes, None] = {}

    def next_row(self) -> int:
        """The number of a sample that comes, counted from 1."""
        self.samples += 1
        return self.samples

    def take(self, features: Floats, draw: torch.Generator, *, sample: int) -> None:
        """A sample has come: rank it, and bet on the ranks."""
        p_values = self.ranker.take(features, draw)
        for bets, p_value in zip(self.bets, p_values or (), strict=False):
            bets.update(p_value, sample)

    def know(self, keys: Collection[bytes]) -> torch.Tensor:
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
            "bets": [bets.state_dict() for bets in self.bets],
            "known": _packed(self._known),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self.samples = state["rows"]
        self.ranker.load_state_dict(state["ranker"])
        for bets, kept in zip(self.bets, state["bets"], strict=True):
            bets.load_state_dict(kept)
        self._known = dict.fromkeys(_unpacked(state["known"]))
