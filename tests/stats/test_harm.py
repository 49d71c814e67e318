"""Harm by labels against hand-worked numbers; without, where each assumption holds exactly."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from driftwise.errors import UserError
from driftwise.stats import harm as harm_module
from driftwise.stats.harm import Harm, estimate_harm_by_class


def logits_of(probabilities: list[list[float]]) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def predicting(labels: list[int], outputs: int = 3, by: float = 6.0) -> Tensor:
    return by * torch.nn.functional.one_hot(torch.tensor(labels), outputs).double()


def calibrated(labels: Tensor, outputs: int, draw: torch.Generator, sharpness: float) -> Tensor:
    """Logits whose softmax is the true chance of each label, given a uniform mix of labels.

    One sample's evidence for each class is normal; the likelihood ratio is its scaled value.
    """
    noise = torch.randn(len(labels), outputs, generator=draw, dtype=torch.float64)
    return sharpness * (noise + sharpness * torch.nn.functional.one_hot(labels, outputs).double())


def one_class(
    reference: Tensor, current: Tensor, labels: Tensor, now: Tensor | None = None
) -> Harm:
    """Of samples that are all of class 0."""
    (harm,) = estimate_harm_by_class(reference, current, labels, now).values()
    return harm


def test_with_labels_harm_is_the_difference_of_the_counted_accuracies() -> None:
    reference, current = predicting([0, 0, 0, 1]), predicting([0, 1, 1, 2, 0])
    harm = one_class(reference, current, torch.zeros(4).long(), torch.zeros(5).long())
    assert harm.before == 75
    assert harm.with_labels == pytest.approx(75 - 40)
    # one more right and one more wrong: 4 of 6 and 3 of 7
    variance = (4 / 6) * (2 / 6) / 6 + (3 / 7) * (4 / 7) / 7
    assert harm.error == pytest.approx(100 * math.sqrt(variance))
    gain = one_class(
        predicting([0, 1]), predicting([0, 0]), torch.zeros(2).long(), torch.zeros(2).long()
    )
    assert gain.with_labels == -50
    assert gain.without_labels < 0


def test_the_standard_error_shrinks_with_the_number_of_samples() -> None:
    errors = []
    for samples in (5, 50, 500):
        logits, labels = predicting([0] * samples), torch.zeros(samples).long()
        harm = one_class(logits, logits, labels, labels)
        assert harm.with_labels == 0
        assert harm.error is not None
        errors.append(harm.error)
    assert errors[0] > errors[1] > errors[2] > 0


def test_two_standard_errors_hold_the_truth_in_19_of_20_samples() -> None:
    draw = torch.Generator().manual_seed(0)
    zeros = torch.zeros(100).long()
    inside = 0
    for _ in range(400):
        right = torch.rand(150, generator=draw) < torch.cat(
            [torch.full((50,), 0.95), torch.full((100,), 0.8)]
        )
        logits = predicting((~right).long().tolist())
        harm = one_class(logits[:50], logits[50:], zeros[:50], zeros)
        assert harm.with_labels is not None
        assert harm.error is not None
        inside += abs(harm.with_labels - 15) <= 2 * harm.error
    assert 0.93 <= inside / 400 <= 0.98


def test_samples_that_have_not_changed_have_lost_nothing() -> None:
    draw = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(40, 4, generator=draw), torch.randint(4, (40,), generator=draw)
    harms = estimate_harm_by_class(logits, logits.flip(0), labels)
    assert list(harms) == [0, 1, 2, 3]
    for harm in harms.values():
        assert harm.without_labels == pytest.approx(0, abs=1e-9)
        assert harm.with_labels is None
        assert harm.error is None


def test_transport_assigns_samples_to_the_reference_mix_at_the_least_cost() -> None:
    """Two samples must be class 1's although only one looks like it: the cheaper of the others."""
    reference = logits_of([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]])
    current = logits_of([[0.99, 0.01], [0.7, 0.3], [0.2, 0.8], [0.8, 0.2]])
    labels = torch.tensor([0, 0, 1, 1])
    by_class = estimate_harm_by_class(reference, current, labels)
    assert by_class[0].without_labels == pytest.approx(100 * ((0.01 + 0.2) / 2 - 0.1))
    assert by_class[1].without_labels == pytest.approx(100 * ((0.7 + 0.2) / 2 - 0.1))


def test_where_probabilities_are_true_the_loss_is_found_without_labels() -> None:
    draw = torch.Generator().manual_seed(2)
    labels = torch.arange(800) % 4
    reference = calibrated(labels, 4, draw, sharpness=3.0)
    current = calibrated(labels, 4, draw, sharpness=1.5)
    harms = estimate_harm_by_class(reference, current, labels, labels).values()
    counted = [harm.with_labels for harm in harms if harm.with_labels is not None]
    assert len(counted) == 4
    assert sum(counted) / 4 > 20
    inferred = sum(harm.without_labels for harm in harms) / 4
    assert inferred == pytest.approx(sum(counted) / 4, abs=4)


def test_a_known_mix_is_no_harm() -> None:
    labels = torch.tensor([0, 1] * 30)
    reference, current = predicting(labels.tolist(), 2), predicting([0] * 30 + [1] * 10, 2)
    assumed = estimate_harm_by_class(reference, current, labels)
    assert assumed[1].without_labels > 40
    known = estimate_harm_by_class(reference, current, labels, mix={0: 3, 1: 1})
    assert [known[c].without_labels for c in (0, 1)] == pytest.approx([0, 0], abs=1e-9)
    absent = estimate_harm_by_class(reference, current[:30], labels, mix={0: 1.0})
    assert list(absent) == [0]


def test_samples_of_a_class_without_a_reference_are_not_forced_on_the_others() -> None:
    labels = torch.tensor([0, 1] * 30)
    reference, current = predicting(labels.tolist()), predicting([0, 1, 2] * 20)
    forced = estimate_harm_by_class(reference, current, labels, mix={0: 1, 1: 1})
    assert forced[0].without_labels + forced[1].without_labels > 50
    shared = estimate_harm_by_class(reference, current, labels, mix={0: 1, 1: 1, 2: 1})
    assert list(shared) == [0, 1]
    assert [shared[c].without_labels for c in (0, 1)] == pytest.approx([0, 0], abs=1e-9)


@pytest.mark.parametrize("order", ["sorted", "in turn"])
def test_more_samples_than_are_assigned_at_once_give_the_same_in_any_order(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels in turn must not fall into step with the parts."""
    monkeypatch.setattr(harm_module, "_MAX_ASSIGNED", 100)
    labels = torch.arange(400) % 4
    if order == "sorted":
        labels = labels.sort().values
    current = torch.where(labels == 2, 3, labels)
    harms = estimate_harm_by_class(
        predicting(labels.tolist(), 4), predicting(current.tolist(), 4), labels
    )
    losses = [harms[c].without_labels for c in range(4)]
    assert losses == pytest.approx([0, 0, 98, 0], abs=2)


def test_a_class_without_an_output_is_never_right() -> None:
    logits, labels = predicting([0, 1, 2, 0]), torch.tensor([0, 1, 2, 5])
    by_class = estimate_harm_by_class(logits, logits, labels)
    assert by_class[5].before == 0
    assert by_class[5].without_labels == 0
    # What is inferred leaves an accuracy that exists.
    torn_and_wrong, sure_and_wrong = predicting([1] * 6, by=0.01), predicting([1] * 6)
    harm = one_class(torn_and_wrong, sure_and_wrong, torch.zeros(6).long())
    assert (harm.before, harm.without_labels) == (0, 0)
    none, no_labels = torch.empty(0, 3), torch.empty(0, dtype=torch.int64)
    assert estimate_harm_by_class(logits, none, labels) == {}
    assert estimate_harm_by_class(none, logits, no_labels) == {}


def test_what_does_not_fit_together_is_refused() -> None:
    logits, labels = predicting([0, 1]), torch.tensor([0, 1])
    with pytest.raises(UserError, match="one label from 0 up for each of 2 samples"):
        estimate_harm_by_class(logits, logits, labels[:1])
    with pytest.raises(UserError, match="one label from 0 up"):
        estimate_harm_by_class(logits, logits, -labels)
    with pytest.raises(UserError, match="3 outputs, the current ones 4"):
        estimate_harm_by_class(logits, predicting([0], 4), labels)
    for mix in ({}, {0: 0.0}, {0: -1.0}, {-1: 1.0}):
        with pytest.raises(UserError, match="expected a mix"):
            estimate_harm_by_class(logits, logits, labels, mix=mix)
    for bad in (torch.nan, -torch.inf):
        with pytest.raises(UserError, match="NaN or infinity"):
            estimate_harm_by_class(logits, logits.clone().fill_(bad), labels)
    with pytest.raises(UserError, match="expected logits"):
        estimate_harm_by_class(logits[0], logits, labels)
