"""Which samples are compared with which."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from run_tools import complaint

from driftwise.detect import Monitor
from driftwise.detect.base import Reference
from driftwise.detect.grouping import WHOLE, group_of_samples, groups_among
from driftwise.types import Samples, Verdict

LABELS = torch.tensor([2, 0, 2, 5])
OPINIONS = torch.tensor(
    [
        [0.0, 9.0, 1.0, 0.0, 0.0, 2.0],
        [3.0, 0.0, 1.0, 0.0, 0.0, 2.0],
        [0.0, 0.0, 4.0, 9.0, 9.0, 2.0],
        [0.0, 0.0, 1.0, 9.0, 9.0, 0.5],
    ]
)


def test_given_labels_are_the_groups() -> None:
    assert group_of_samples(LABELS, OPINIONS, [0, 2, 5], "given").tolist() == LABELS.tolist()
    assert groups_among([5, 0], "given") == (5, 0)


def test_predictions_are_made_among_known_classes_only() -> None:
    found = group_of_samples(torch.full((4,), -1), OPINIONS, [5, 0, 2], "predicted")
    assert found.tolist() == [5, 0, 2, 2]


def test_a_class_without_an_output_is_never_predicted() -> None:
    unknown = torch.full((4,), -1)
    found = group_of_samples(unknown, OPINIONS[:, :3], [5, 0, 2], "predicted")
    assert found.tolist() == [2, 0, 2, 2]
    told = complaint(lambda: group_of_samples(unknown, OPINIONS[:, :3], [4, 5], "predicted"))
    assert told.startswith("the learner has 3 outputs, none of them for the classes 4, 5")


def test_samples_of_which_nothing_is_known_are_one_group() -> None:
    assert group_of_samples(LABELS, None, [0, 2, 5], "unknown").tolist() == [WHOLE] * 4
    assert groups_among([5, 0], "unknown") == (WHOLE,)


class Curious:
    """Remembers the labels it was shown."""

    watches = True

    def __init__(self) -> None:
        self.seen: list[int] = []

    def check(
        self, task: int, classes: Sequence[int], monitored: Samples, reference: Reference
    ) -> list[Verdict]:
        self.seen += monitored.labels.tolist()
        return [Verdict(task=task, label=c, drifted=None, reason="not compared") for c in classes]


class Scene:
    """A task with samples of classes 0 and 1."""

    number = 2
    known_classes = (0, 1)

    def monitored(self) -> Samples:
        ids = torch.arange(4)
        return Samples(images=torch.zeros(4, 2), labels=ids % 2, ids=ids, concepts=torch.zeros(4))

    def reference(self, label: int) -> Samples:
        raise NotImplementedError


class NoRows:
    """A reference without samples."""

    def samples_of(self, label: int) -> Samples:
        return Scene().monitored()[:0]


def test_a_detector_sees_true_labels_only_where_they_are_booked() -> None:
    booked: list[int] = []
    bought, denied = Curious(), Curious()
    Monitor(bought, NoRows(), book=booked.append).check(Scene())
    assert booked == [4]
    assert bought.seen == [0, 1, 0, 1]
    Monitor(denied, NoRows(), book=booked.append, labels="predicted").check(Scene())
    assert booked == [4]
    assert denied.seen == [-1] * 4
