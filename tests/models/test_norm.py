"""Torch's batch norm wherever torch has one, and an answer where it has none."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.models import BatchNorm1d, BatchNorm2d
from driftwise.models.layers import take_single_samples


def maps(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=rng.fork(0, "maps")) * 3 + 1


def trained(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """Weights and running statistics that are not those of the start."""
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias):
            tensor.copy_(torch.rand(tensor.shape, generator=rng.fork(1, "affine")) + 0.5)
    norm.train()(maps(6, norm.num_features, 2, 2))
    return norm


def gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(5, 3, 4, 4), (2, 3, 1, 1), (1, 3, 1, 2), (1, 3, 2, 1)])
def test_it_is_torchs_bit_for_bit_where_torchs_works(
    shape: tuple[int, ...], training: bool, momentum: float | None
) -> None:
    ours = BatchNorm2d(3, momentum=momentum)
    theirs = nn.BatchNorm2d(3, momentum=momentum)
    assert trained(ours).state_dict().keys() == trained(theirs).state_dict().keys()
    inputs = []
    for norm in (ours, theirs):
        x = maps(*shape).requires_grad_()
        norm.train(training)(x).pow(3).sum().backward()
        inputs.append(x)
    assert torch.equal(gradient(inputs[0]), gradient(inputs[1]))
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(gradient(one), gradient(other))
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name
    assert torch.equal(ours(maps(*shape)), theirs(maps(*shape)))


def test_one_value_per_channel_is_normalised_by_the_running_statistics() -> None:
    norm = trained(BatchNorm2d(3, eps=0.1))
    x = maps(1, 3, 1, 1).requires_grad_()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        trained(nn.BatchNorm2d(3)).train()(x)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    by_hand = (x.flatten() - norm.running_mean) * scale + norm.bias
    out = norm.train()(x)
    torch.testing.assert_close(out.flatten(), by_hand)
    # Nothing of the sample is subtracted from it, so it passes its gradient on.
    out.sum().backward()
    torch.testing.assert_close(gradient(x).flatten(), scale)


def test_one_value_per_channel_leaves_the_running_statistics_as_they_are() -> None:
    norm = trained(BatchNorm2d(3))
    before = copy.deepcopy(norm.state_dict())
    assert before["num_batches_tracked"] == 1
    norm.train()(maps(1, 3, 1, 1))
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1)])
def test_vectors_are_normalised_likewise(shape: tuple[int, ...]) -> None:
    norm = BatchNorm1d(3)
    norm.train()(maps(6, 3))
    x = maps(*shape)
    expected = copy.deepcopy(norm).eval()(x)
    before = copy.deepcopy(norm.state_dict())
    assert torch.equal(norm.train()(x), expected)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    with pytest.raises(ValueError, match="expected 2D or 3D input"):
        norm(maps(1, 3, 1, 1))


def test_torchs_own_norms_learn_to_take_single_samples_and_others_stay_as_they_are() -> None:
    class Mine(nn.BatchNorm1d):
        """Whoever has made it knows what it does."""

    network = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Sequential(nn.BatchNorm1d(3)))
    network.append(Mine(3))
    network.train()(maps(6, 3, 1, 1))
    expected = copy.deepcopy(network)(maps(4, 3, 1, 1))
    before = copy.deepcopy(network.state_dict())
    take_single_samples(network)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(copy.deepcopy(network)(maps(4, 3, 1, 1)), expected)
    assert type(network[3]) is Mine
    taken = network[:3]
    single = maps(1, 3, 1, 1)
    assert torch.equal(copy.deepcopy(taken)(single), copy.deepcopy(taken).eval()(single))
