from __future__ import annotations

import pytest
import torch

from driftwise.learner import Rate, cosine_rate, step_rate


def torchs_factors(
    schedule: type[torch.optim.lr_scheduler.LRScheduler], epochs: int, **options: object
) -> list[float]:
    """The rate of every epoch under one of torch's schedules, for a full rate of 1."""
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule_of = schedule(optimiser, **options)  # type: ignore[arg-type]
    factors = []
    for _ in range(epochs):
        factors.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule_of.step()
    return factors


def factors_of(rate: Rate, epochs: int) -> list[float]:
    return [rate(epoch, epochs) for epoch in range(1, epochs + 1)]


@pytest.mark.parametrize("milestones", [(35, 45), (1,), (), (3, 3), (2, 4, 49, 80)])
@pytest.mark.parametrize("drop", [0.1, 0.5])
def test_steps_are_torchs_multi_step_schedule(milestones: tuple[int, ...], drop: float) -> None:
    expected = torchs_factors(
        torch.optim.lr_scheduler.MultiStepLR, 50, milestones=milestones, gamma=drop
    )
    assert factors_of(step_rate(milestones, drop), 50) == pytest.approx(expected)


@pytest.mark.parametrize("floor", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("epochs", [1, 2, 7, 100])
def test_a_cosine_is_torchs_annealing_over_the_epochs_of_the_task(
    floor: float, epochs: int
) -> None:
    expected = torchs_factors(
        torch.optim.lr_scheduler.CosineAnnealingLR, epochs, T_max=epochs, eta_min=floor
    )
    assert factors_of(cosine_rate(floor), epochs) == pytest.approx(expected)
