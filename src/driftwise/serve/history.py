"""What a service remembers of its stream for people: accuracy over time, verdicts, events.

Everything here follows from the requests, so that a replay restores it, and its size is bounded.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from driftwise.live import Event, Observation
from driftwise.types import Verdict

MAX_BUCKETS = 240
"""of a curve; beyond that two neighbours become one"""
FIRST_BUCKET = 20
"""samples of a bucket at first"""
MAX_EVENTS, MAX_VERDICTS, MAX_ANSWERS = 500, 500, 10_000
OF_KIND = ("class", "kind", "kind_evidence", "action")
"""of each verdict in an event; the rest of it stands among the verdicts"""
MAX_EXAMPLE_BYTES = 8 * 2**20
MAX_RECENT = 4000
"""samples whose prediction is remembered at least"""
MIN_CALIBRATED = 30
"""labelled samples from which on confidence is compared with accuracy"""
CALIBRATION_DECAY = 0.995
"""weight of a labelled sample against the next one"""

MAX_EXAMPLE_TEXT = 300
"""letters of a text that is shown as an example of a drifted class"""

V = TypeVar("V")
Count = dict[str, float]
"""samples, labelled, correct, and the sum of confidences"""


def _no_count() -> Count:
    return {"samples": 0, "labelled": 0, "correct": 0, "confidence": 0.0}


@dataclass(kw_only=True)
class Bucket:
    """Counts over consecutive samples; by class: labelled ones by label, others by prediction."""

    time: str
    first: int
    """the id of the first sample"""
    total: Count = field(default_factory=_no_count)
    classes: dict[str, Count] = field(default_factory=dict)
    offset: float | None = None
    """accuracy minus mean confidence where labels were known last; None: too few have come"""

    def merged(self, other: Bucket) -> Bucket:
        """This bucket and the next one."""
        merged = Bucket(time=self.time, first=self.first, offset=other.offset)
        for each in (self, other):
            _add(merged.total, each.total)
            for label, count in each.classes.items():
                _add(merged.classes.setdefault(label, _no_count()), count)
        return merged


def _add(total: Count, other: Count) -> None:
    for name, value in other.items():
        total[name] += value


class Series:
    """A curve over the whole stream in at most `MAX_BUCKETS` buckets."""

    def __init__(self) -> None:
        self._size = FIRST_BUCKET
        self._buckets: list[Bucket] = []
        self._labelled = [0.0, 0.0, 0.0]
        """weights, correct ones and confidences of labelled samples, recent ones count most"""

    def add(self, seen: Observation, labels: np.ndarray, time: str) -> None:
        """Count a batch; `labels`: int64 (samples,), -1 where there is none."""
        known = seen.predicted >= 0
        for sample in np.flatnonzero(known):
            self._add_one(
                int(seen.ids[sample]),
                int(labels[sample]),
                int(seen.predicted[sample]),
                float(seen.confidence[sample]),
                time,
            )

    def _add_one(
        self, number: int, label: int, predicted: int, confidence: float, time: str
    ) -> None:
        if not self._buckets or self._buckets[-1].total["samples"] >= self._size:
            self._buckets.append(Bucket(time=time, first=number))
            if len(self._buckets) > MAX_BUCKETS:
                pairs = zip(self._buckets[::2], self._buckets[1::2], strict=False)
                odd = self._buckets[-1:] if len(self._buckets) % 2 else []
                self._buckets = [first.merged(second) for first, second in pairs] + odd
                self._size *= 2
        bucket = self._buckets[-1]
        count = {"samples": 1, "labelled": 0, "correct": 0, "confidence": confidence}
        if label >= 0:
            count |= {"labelled": 1, "correct": int(label == predicted)}
            new = (1.0, float(label == predicted), confidence)
            self._labelled = [
                old * CALIBRATION_DECAY + each
                for old, each in zip(self._labelled, new, strict=True)
            ]
        _add(bucket.total, count)
        name = str(predicted if label < 0 else label)
        _add(bucket.classes.setdefault(name, _no_count()), count)
        bucket.offset = self.offset

    @property
    def offset(self) -> float | None:
        """How much higher accuracy is than mean confidence, where labels are known."""
        weight, correct, confidence = self._labelled
        return (correct - confidence) / weight if weight >= MIN_CALIBRATED else None

    def points(self, label: str | None = None) -> list[dict[str, Any]]:
        """Accuracy where labels are known, and its estimate from confidence, bucket by bucket."""
        points = []
        for bucket in self._buckets:
            count = bucket.total if label is None else bucket.classes.get(label)
            if count is None or not count["samples"]:
                continue
            estimate = None
            if bucket.offset is not None:
                mean = count["confidence"] / count["samples"]
                estimate = min(1.0, max(0.0, mean + bucket.offset))
            points.append(
                {
                    "time": bucket.time,
                    "sample": bucket.first,
                    "samples": int(count["samples"]),
                    "labelled": int(count["labelled"]),
                    "accuracy": count["correct"] / count["labelled"] if count["labelled"] else None,
                    "estimate": estimate,
                }
            )
        return points

    def classes(self) -> list[str]:
        """All classes on the curve."""
        return sorted({label for each in self._buckets for label in each.classes}, key=int)

    def totals(self) -> dict[str, Count]:
        """By class, over the whole stream."""
        totals: dict[str, Count] = {}
        for bucket in self._buckets:
            for label, count in bucket.classes.items():
                _add(totals.setdefault(label, _no_count()), count)
        return totals

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        buckets = [asdict(each) for each in self._buckets]
        return {"size": self._size, "buckets": buckets, "labelled": list(self._labelled)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self._size = state["size"]
        self._buckets = [Bucket(**each) for each in state["buckets"]]
        self._labelled = list(state["labelled"])


class Examples(NamedTuple):
    """Samples of a drifted class."""

    before: np.ndarray
    after: np.ndarray
    texts: tuple[list[str], list[str]] | None
    """what people read instead of the samples; None: some are not known"""


class History:
    """Curves, verdicts with examples, events, and the predictions of recent samples."""

    def __init__(self, kept_ids: Callable[[], Collection[int]]) -> None:
        """`kept_ids`: of the samples that may be shown again."""
        self._kept_ids = kept_ids
        self.lock = threading.RLock()
        """held while anything here changes; readers in other threads hold it, too"""
        self.series = Series()
        self.probes: deque[dict[str, Any]] = deque(maxlen=MAX_BUCKETS)
        self.verdicts: deque[dict[str, Any]] = deque(maxlen=MAX_VERDICTS)
        self.events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self.answers: deque[dict[str, Any]] = deque(maxlen=MAX_ANSWERS)
        """labels of people: id, label (None: nobody knows), by, time, corrects"""
        self.examples: dict[int, Examples] = {}
        """by number of the verdict"""
        self.texts: dict[int, str] = {}
        """what people read instead of a sample, by id: of samples that may be shown again"""
        self.recent: dict[int, tuple[int, float]] = {}
        """predicted class and confidence by id"""
        self._most_texts = self._most_recent = 2 * MAX_RECENT
        """beyond which old ones are dropped, but for samples that may be shown again"""
        self.num_events = 0
        self.num_verdicts = 0
        self.time = ""
        """of the request that is being applied"""

    def add_event(self, event: Event) -> None:
        """Record an event of the live learner; what comes with every batch is left out."""
        if event.kind in ("observed", "saved"):
            return
        details = {name: value for name, value in event.details.items() if name != "verdicts"}
        verdicts: Any = event.details.get("verdicts", ())
        if verdicts:
            details["kinds"] = [{name: each[name] for name in OF_KIND} for each in verdicts]
        self.note(event.kind, **details)

    def note(self, kind: str, **details: Any) -> None:
        """Record something that happened."""
        with self.lock:
            self.num_events += 1
            self.events.append(
                {"number": self.num_events, "kind": kind, "time": self.time, "details": details}
            )

    def add(self, seen: Observation, labels: np.ndarray, texts: list[str] | None) -> None:
        """Record a batch; `labels`: int64 (samples,), -1 where there is none."""
        with self.lock:
            self._add(seen, labels, texts)

    def _add(self, seen: Observation, labels: np.ndarray, texts: list[str] | None) -> None:
        self.series.add(seen, labels, self.time)
        for number, predicted, confidence in zip(
            seen.ids.tolist(), seen.predicted.tolist(), seen.confidence.tolist(), strict=True
        ):
            self.recent[number] = (predicted, confidence)
        for number, text in zip(seen.ids.tolist(), texts or (), strict=False):
            self.texts[number] = text
        self.recent, self._most_recent = self._cut(self.recent, self._most_recent)
        self.texts, self._most_texts = self._cut(self.texts, self._most_texts)
        for verdict in seen.verdicts:
            self._add_verdict(verdict, seen)

    def add_answers(
        self, by: str, ids: Collection[int], labels: Collection[int | None], *, corrects: bool
    ) -> None:
        """Record labels of people."""
        with self.lock:
            for number, label in zip(ids, labels, strict=True):
                answer = {"id": number, "label": label, "by": by, "time": self.time}
                self.answers.append({**answer, "corrects": corrects})

    def _cut(self, by_id: dict[int, V], most: int) -> tuple[dict[int, V], int]:
        """The newest, and those of samples that may be shown again; and when to cut next."""
        if len(by_id) <= most:
            return by_id, most
        kept = {*self._kept_ids(), *list(by_id)[-MAX_RECENT:]}
        left = {number: value for number, value in by_id.items() if number in kept}
        return left, len(left) + MAX_RECENT

    def add_probe(self, labels: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
        """Record how many of some labelled samples were predicted correctly."""
        correct = labels == predicted
        by_class = {
            str(label): [int((labels == label).sum()), int(correct[labels == label].sum())]
            for label in np.unique(labels)
        }
        probe = {
            "time": self.time,
            "sample": max(self.recent, default=-1) + 1,
            "samples": len(labels),
            "correct": int(correct.sum()),
            "classes": by_class,
        }
        with self.lock:
            self.probes.append(probe)
        return probe

    def _add_verdict(self, verdict: Verdict, seen: Observation) -> None:
        self.num_verdicts += 1
        names = (
            "drifted",
            "score",
            "p_value",
            "threshold",
            "num_reference",
            "num_current",
            "reason",
            "harm",
            "harm_error",
            "harm_unlabelled",
            "share",
            "share_error",
            "spared",
            "kind",
            "action",
            "stream_kind",
        )
        line = {
            "number": self.num_verdicts,
            "time": self.time,
            "sample": next(reversed(self.recent), None),  # labels alone may make a check due
            "label": verdict.label,
            **{name: getattr(verdict, name) for name in names},
            "kind_evidence": dict(verdict.kind_evidence or {}),
            "examples": None,
            "texts": False,
        }
        if verdict.drifted and verdict.label in seen.examples:
            before, after = seen.examples[verdict.label]
            texts = self._texts_of(*seen.example_ids[verdict.label])
            self.examples[self.num_verdicts] = Examples(before, after, texts)
            line["examples"], line["texts"] = [len(before), len(after)], texts is not None
            self._drop_examples()
        self.verdicts.append(line)

    def _texts_of(self, *sides: np.ndarray) -> tuple[list[str], list[str]] | None:
        """The texts of samples from before and after, shortened; None: one is not known."""
        before, after = ([self.texts.get(number) for number in ids.tolist()] for ids in sides)
        known = [
            [
                each[:MAX_EXAMPLE_TEXT] + "…" * (len(each) > MAX_EXAMPLE_TEXT)
                for each in side
                if each
            ]
            for side in (before, after)
        ]
        if not known[1] or [len(each) for each in known] != [len(before), len(after)]:
            return None
        return known[0], known[1]

    def _drop_examples(self) -> None:
        """The oldest examples go once they take too much memory."""
        sizes = {
            number: each.before.nbytes + each.after.nbytes for number, each in self.examples.items()
        }
        for number in list(self.examples)[:-1]:
            if sum(sizes[each] for each in self.examples) <= MAX_EXAMPLE_BYTES:
                break
            del self.examples[number]
            for line in self.verdicts:
                if line["number"] == number:
                    line["examples"] = None

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "series": self.series.state_dict(),
            "probes": list(self.probes),
            "verdicts": [dict(each) for each in self.verdicts],
            "events": [dict(each) for each in self.events],
            "answers": [dict(each) for each in self.answers],
            "examples": {
                number: [
                    torch.from_numpy(each.before),
                    torch.from_numpy(each.after),
                    each.texts and list(each.texts),
                ]
                for number, each in self.examples.items()
            },
            "texts": dict(self.texts),
            "most_texts": self._most_texts,
            "most_recent": self._most_recent,
            "recent": {
                "ids": torch.tensor(list(self.recent), dtype=torch.int64),
                "predicted": torch.tensor([e[0] for e in self.recent.values()], dtype=torch.int64),
                "confidence": torch.tensor([each[1] for each in self.recent.values()]),
            },
            "num_events": self.num_events,
            "num_verdicts": self.num_verdicts,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.series.load_state_dict(state["series"])
        for name in ("probes", "verdicts", "events", "answers"):
            kept = getattr(self, name)
            kept.clear()
            kept.extend(dict(each) for each in state.get(name, ()))  # older states have no answers
        self.examples = {
            number: Examples(_array(before), _array(after), texts[0] if texts else None)
            for number, (before, after, *texts) in state["examples"].items()
        }  # older states have no texts of examples
        self.texts = dict(state["texts"])
        self._most_texts = state.get("most_texts", self._most_texts)
        self._most_recent = state.get("most_recent", self._most_recent)
        recent = state["recent"]
        pairs = zip(recent["predicted"].tolist(), recent["confidence"].tolist(), strict=True)
        self.recent = dict(zip(recent["ids"].tolist(), pairs, strict=True))
        self.num_events, self.num_verdicts = state["num_events"], state["num_verdicts"]


def _array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.numpy()
    return array


def plain(value: Any) -> Any:
    """As JSON can hold it: no NaN or infinity, no numbers of numpy's."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | deque | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
