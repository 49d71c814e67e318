"""Scores after a task, against scikit-learn, the definitions written out slowly, and by hand."""

from __future__ import annotations

import json
import math

import pytest
import torch
from sklearn.metrics import confusion_matrix, f1_score
from torch import Tensor

from driftwise import metrics, rng
from driftwise.errors import RunFailure
from driftwise.metrics import score

TASK_CLASSES = [[3, 0], [], [1, 5]]
"""three tasks; classes 2 and 4 of the head have not arrived"""


def random_tests(seed: int, num_samples: int = 400) -> tuple[Tensor, Tensor]:
    generator = rng.fork(seed, "scores")
    labels = torch.tensor([3, 0, 1, 5])[torch.randint(4, (num_samples,), generator=generator)]
    logits = 1.5 * torch.randn(num_samples, 6, generator=generator)
    logits[torch.arange(num_samples), labels] += 1.0
    return logits, labels


def one_hot_logits(predictions: list[int], num_classes: int) -> Tensor:
    return 10.0 * torch.nn.functional.one_hot(torch.tensor(predictions), num_classes)


def test_scores_of_a_case_worked_out_by_hand() -> None:
    # Task 1 brought 0 and 1, task 2 brought 2. Four of six samples are right.
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    scores = score(one_hot_logits([0, 2, 1, 1, 2, 0], 3), labels, [[0, 1], [2]], task=2)
    assert scores.task == 2
    assert scores.accuracy == (75.0, 50.0)
    assert scores.per_class == {0: 50.0, 1: 100.0, 2: 50.0}
    # Sample 2 is predicted 2; within task 1 it falls back on 0 (a tie: the first wins).
    assert scores.accuracy_til == (100.0, 100.0)
    assert scores.per_class_f1 == {0: 50.0, 1: 100.0, 2: 50.0}
    assert scores.macro_f1 == pytest.approx(200 / 3)
    assert scores.confusion == ((0, 0, 1), (0, 2, 1), (1, 1, 2), (2, 0, 1), (2, 2, 1))


@pytest.mark.parametrize("seed", range(2))
def test_f1_and_confusion_agree_with_sklearn(seed: int) -> None:
    logits, labels = random_tests(seed)
    scores = score(logits, labels, TASK_CLASSES, task=3)
    predicted, seen = logits.argmax(1), [0, 1, 3, 5]
    by_class = f1_score(labels, predicted, average=None, labels=seen, zero_division=0)
    macro = f1_score(labels, predicted, average="macro", labels=seen, zero_division=0)
    assert list(scores.per_class_f1) == seen
    assert list(scores.per_class_f1.values()) == pytest.approx(100 * by_class, abs=1e-10)
    assert scores.macro_f1 == pytest.approx(100 * macro, abs=1e-10)
    expected = confusion_matrix(labels, predicted, labels=range(6))
    assert metrics.confusion_matrix(scores.confusion, 6) == expected.tolist()


@pytest.mark.parametrize("seed", range(2))
def test_accuracies_agree_with_a_slow_literal_count(seed: int) -> None:
    logits, labels = random_tests(seed)
    scores = score(logits, labels, TASK_CLASSES, task=3)
    for position, classes in enumerate(TASK_CLASSES):
        hits, hits_til, samples = 0, 0, 0
        for sample, label in zip(logits.tolist(), labels.tolist(), strict=True):
            if label in classes:
                samples += 1
                hits += max(range(6), key=sample.__getitem__) == label
                hits_til += max(classes, key=sample.__getitem__) == label
        if not classes:
            assert scores.accuracy[position] is None
            assert scores.accuracy_til[position] is None
            continue
        assert scores.accuracy[position] == pytest.approx(100 * hits / samples)
        assert scores.accuracy_til[position] == pytest.approx(100 * hits_til / samples)
        assert hits < hits_til < samples


def slow_calibration(logits: Tensor, labels: Tensor) -> tuple[float, list[int]]:
    """Expected calibration error and the samples per bin, straight from the definition."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(15)]
    for sample, label in zip(logits.tolist(), labels.tolist(), strict=True):
        weights = [math.exp(value) for value in sample]
        confidence = max(weights) / sum(weights)
        for number in range(15):
            if number / 15 < confidence <= (number + 1) / 15:
                bins[number].append((confidence, sample.index(max(sample)) == label))
    ece = 0.0
    for members in bins:
        if members:
            confidence = sum(c for c, _ in members) / len(members)
            accuracy = sum(right for _, right in members) / len(members)
            ece += len(members) / len(labels) * abs(confidence - accuracy)
    return ece, [len(members) for members in bins]


@pytest.mark.parametrize("seed", range(2))
def test_calibration_agrees_with_its_definition(seed: int) -> None:
    logits, labels = random_tests(seed)
    calibration = score(logits, labels, TASK_CLASSES, task=3).calibration
    ece, counts = slow_calibration(logits, labels)
    assert calibration.ece == pytest.approx(ece, abs=1e-12)
    assert list(calibration.count) == counts
    for number, count in enumerate(counts):
        confidence = calibration.confidence[number]
        assert (confidence is None) == (calibration.accuracy[number] is None) == (count == 0)
        assert confidence is None or number / 15 < confidence <= (number + 1) / 15


def test_without_samples_or_classes_the_answer_is_none_and_never_nan() -> None:
    scores = score(torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), [[], []], task=2)
    assert scores.accuracy == scores.accuracy_til == (None, None)
    assert scores.per_class == scores.per_class_f1 == {}
    assert scores.macro_f1 is None
    assert scores.calibration.ece is None
    assert scores.confusion == ()


def test_scores_survive_a_round_trip_through_strict_json() -> None:
    logits, labels = random_tests(0)
    plain = score(logits, labels, TASK_CLASSES, task=3).to_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert set(plain["per_class"]) == {"0", "1", "3", "5"}
    before = logits.clone()
    assert score(logits.requires_grad_(), labels, TASK_CLASSES, task=3).to_json() == plain
    assert torch.equal(logits, before), "the inputs are left alone"
    absent = score(one_hot_logits([0, 0], 3), torch.tensor([0, 0]), [[0, 1]], task=1)
    assert (absent.per_class, absent.macro_f1) == ({0: 100.0}, 50.0)


def test_masked_logits_are_scored_and_broken_ones_stop_the_run() -> None:
    labels = torch.tensor([0])
    masked = torch.tensor([[2.0, 0.0, -math.inf]])
    assert score(masked, labels, [[0, 1]], task=1).accuracy == (100.0,)
    for broken in ([math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]):
        with pytest.raises(RunFailure, match="not finite"):
            score(torch.tensor([broken]), labels, [[0, 1]], task=1)


@pytest.mark.parametrize(
    ("labels", "task_classes", "task", "message"),
    [
        ([0, 1], [[0, 1]], 1, "expected logits"),
        ([0, 1, 1], [[0, 1]], 2, "task 2 came with 1 sets"),
        ([0, 1, 1], [[0, 1], [1]], 2, "one task only"),
        ([0, 1, 2], [[0, 1]], 1, r"labels of no task: \[2\]"),
        ([0, 1, 1], [[0, 1, 7]], 1, "3 classes of the head"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    labels: list[int], task_classes: list[list[int]], task: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        score(torch.zeros(3, 3), torch.tensor(labels), task_classes, task=task)
