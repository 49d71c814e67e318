"""One pass over the test samples after a task: every score of the network.

Answers are counted by true and predicted class; accuracies and F1 are read off the counts, in
percent. Where there is nothing to divide by, the answer is None, never NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from driftwise.errors import RunFailure

NUM_BINS = 15


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Confidence compared with accuracy. Fractions between 0 and 1, not percent."""

    ece: float | None
    """expected calibration error: |confidence - accuracy|, averaged over the samples' bins"""
    confidence: tuple[float | None, ...]
    """mean probability of the predicted class, one per bin; None: the bin is empty"""
    accuracy: tuple[float | None, ...]
    """fraction of correct predictions, one per bin; None: the bin is empty"""
    count: tuple[int, ...]
    """samples in each of the 15 bins ]0, 1/15], ]1/15, 2/15], ... ]14/15, 1]"""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How good the network is after one task."""

    task: int
    """counted from 1"""
    accuracy: tuple[float | None, ...]
    """class-incremental, percent, one per task so far; None: nothing to test in that task"""
    accuracy_til: tuple[float | None, ...]
    """task-incremental: the task is known, and the network chooses among that task's classes only"""
    per_class: dict[int, float]
    """percent correct, for every class so far that has test samples"""
    per_class_f1: dict[int, float]
    """percent, for every class so far; 0 where a class is neither present nor predicted"""
    macro_f1: float | None
    """mean of `per_class_f1`; None before the first class"""
    calibration: Calibration
    confusion: tuple[tuple[int, int, int], ...]
    """true class, predicted class, number of samples, where there are any: no more entries than
    samples, however many classes there are"""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; class numbers become strings, as JSON wants its keys."""
        return {
            "task": self.task,
            "accuracy": list(self.accuracy),
            "accuracy_til": list(self.accuracy_til),
            "per_class": {str(label): value for label, value in self.per_class.items()},
            "per_class_f1": {str(label): value for label, value in self.per_class_f1.items()},
            "macro_f1": self.macro_f1,
            "calibration": self.calibration.to_json(),
            "confusion_counts": [list(entry) for entry in self.confusion],
        }


def score(
    logits: Tensor, labels: Tensor, task_classes: Sequence[Sequence[int]], *, task: int
) -> Scores:
    """Score the tests of all tasks so far: logits (samples, classes), labels (samples,).

    `task_classes` holds the classes that each task so far brought (none is allowed). The network is
    free to answer any class of its head, also one that has not arrived yet.
    """
    logits, labels = logits.detach().cpu().double(), labels.cpu().long()
    _check_inputs(logits, labels, task_classes, task)
    num_classes = logits.shape[1]

    predicted = logits.argmax(dim=1)
    correct, present, answered = (
        torch.bincount(each, minlength=num_classes)
        for each in (labels[predicted == labels], labels, predicted)
    )
    cells, counts = torch.unique(labels * num_classes + predicted, return_counts=True)
    correct_til = torch.bincount(
        labels[_argmax_within_task(logits, labels, task_classes) == labels], minlength=num_classes
    )

    seen = sorted(chain.from_iterable(task_classes))
    f1 = 200 * correct.double() / (present + answered).clamp(min=1)
    per_class_f1 = {label: float(f1[label]) for label in seen}
    return Scores(
        task=task,
        accuracy=_percent_by_task(correct, present, task_classes),
        accuracy_til=_percent_by_task(correct_til, present, task_classes),
        per_class={
            label: 100.0 * int(correct[label]) / int(present[label])
            for label in seen
            if present[label] > 0
        },
        per_class_f1=per_class_f1,
        macro_f1=sum(per_class_f1.values()) / len(seen) if seen else None,
        calibration=_calibration(logits, predicted == labels),
        confusion=tuple(
            (*divmod(cell, num_classes), count)
            for cell, count in zip(cells.tolist(), counts.tolist(), strict=True)
        ),
    )


def confusion_matrix(entries: Sequence[Sequence[int]], num_classes: int) -> list[list[int]]:
    """Samples by true class x predicted class, from `Scores.confusion`.

    >>> confusion_matrix([(0, 1, 5)], num_classes=2)
    [[0, 5], [0, 0]]
    """
    matrix = [[0] * num_classes for _ in range(num_classes)]
    for true, predicted, count in entries:
        matrix[true][predicted] = count
    return matrix


def _check_inputs(
    logits: Tensor, labels: Tensor, task_classes: Sequence[Sequence[int]], task: int
) -> None:
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            "expected logits (samples, classes) and labels (samples,), "
            f"got {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    if task < 1 or len(task_classes) != task:
        raise ValueError(
            "expected the classes of every task so far, the current one included: "
            f"task {task} came with {len(task_classes)} sets of classes"
        )
    seen = list(chain.from_iterable(task_classes))
    if len(set(seen)) != len(seen):
        raise ValueError(f"every class is brought by one task only, got {sorted(seen)}")
    strangers = set(torch.unique(labels).tolist()) - set(seen)
    if strangers or any(not 0 <= label < logits.shape[1] for label in seen):
        raise ValueError(
            f"labels must be among the classes so far {sorted(seen)}, and these among the "
            f"{logits.shape[1]} classes of the head; labels of no task: {sorted(strangers)}"
        )
    # The largest decides: -inf is how a head masks classes, NaN and +inf are a broken network.
    if not logits.amax(dim=1).isfinite().all():
        raise RunFailure("test logits are not finite: the network has diverged; lower its rate")


def _argmax_within_task(
    logits: Tensor, labels: Tensor, task_classes: Sequence[Sequence[int]]
) -> Tensor:
    """The best class of the task that each sample belongs to, (samples,)."""
    owner = torch.full((logits.shape[1],), -1)
    for position, classes in enumerate(task_classes):
        owner[list(classes)] = position
    same_task = owner == owner[labels].unsqueeze(1)
    return logits.masked_fill(~same_task, -torch.inf).argmax(dim=1)


def _percent_by_task(
    correct: Tensor, present: Tensor, task_classes: Sequence[Sequence[int]]
) -> tuple[float | None, ...]:
    hits = [int(correct[list(classes)].sum()) for classes in task_classes]
    samples = [int(present[list(classes)].sum()) for classes in task_classes]
    return tuple(
        100.0 * hit / sample if sample else None for hit, sample in zip(hits, samples, strict=True)
    )


def _calibration(logits: Tensor, is_correct: Tensor) -> Calibration:
    confidence = logits.softmax(dim=1).amax(dim=1)
    inner_edges = torch.linspace(0, 1, NUM_BINS + 1, dtype=torch.double)[1:-1]
    bins = torch.bucketize(confidence, inner_edges)
    count = torch.bincount(bins, minlength=NUM_BINS)
    total_confidence = torch.bincount(bins, weights=confidence, minlength=NUM_BINS)
    total_correct = torch.bincount(bins, weights=is_correct.double(), minlength=NUM_BINS)
    num_samples = len(logits)
    return Calibration(
        # A bin's gap weighted by its samples is the gap between its totals.
        ece=float((total_confidence - total_correct).abs().sum()) / num_samples
        if num_samples
        else None,
        confidence=_means(total_confidence, count),
        accuracy=_means(total_correct, count),
        count=tuple(count.tolist()),
    )


def _means(totals: Tensor, counts: Tensor) -> tuple[float | None, ...]:
    pairs = zip(totals.tolist(), counts.tolist(), strict=True)
    return tuple(total / count if count else None for total, count in pairs)
