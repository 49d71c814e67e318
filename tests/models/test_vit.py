"""The transformers against the published table and against plain matrix products."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import stats
from test_models import make_images
from torch import Tensor, nn

from driftwise import rng
from driftwise.errors import UserError
from driftwise.models import ViT
from driftwise.models.vit import ViTOptions

Shape = tuple[int, int, int]


def small(shape: Shape = (3, 8, 8), **options: Any) -> ViT:
    """Two blocks of three heads, weights fixed."""
    with rng.as_global(rng.fork(0, "vit")):
        return ViT(
            input_shape=shape, num_classes=7, **{"dim": 12, "depth": 2, "heads": 3} | options
        )


def woken(network: ViT) -> ViT:
    """With weights so large that every part shows in the logits, biases and norms included."""
    generator = rng.fork(0, "woken")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return network


# --- the published tables -----------------------------------------------------------------------


# --- the computation ----------------------------------------------------------------------------


def literal(network: ViT, image: Tensor, *, patch_size: int, heads: int) -> Tensor:
    """Logits of one image (channels, height, width), one patch, token and head at a time."""
    weights = dict(network.named_parameters())

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ weights[f"{name}.weight"].flatten(1).T + weights[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        deviation = torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + 1e-6)
        return centred / deviation * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def gelu(x: Tensor) -> Tensor:
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2

    def attention(x: Tensor, name: str) -> Tensor:
        queries, keys, values = linear(x, f"{name}.qkv").chunk(3, dim=1)
        outputs = []
        for head in range(heads):
            q, k, v = (part.chunk(heads, dim=1)[head] for part in (queries, keys, values))
            similarity = torch.exp(q @ k.T / math.sqrt(q.shape[1]))
            outputs.append(similarity / similarity.sum(dim=1, keepdim=True) @ v)
        return linear(torch.cat(outputs, dim=1), f"{name}.project")

    tokens = [weights["class_token"][0, 0]]
    for top in range(0, image.shape[1], patch_size):
        for left in range(0, image.shape[2], patch_size):
            patch = image[:, top : top + patch_size, left : left + patch_size]
            tokens.append(linear(patch.flatten(), "embed"))
    x = torch.stack(tokens) + weights["positions"][0]
    for number in range(len(network.blocks)):
        block = f"blocks.{number}"
        x = x + attention(norm(x, f"{block}.attention.0"), f"{block}.attention.1")
        hidden = gelu(linear(norm(x, f"{block}.mlp.0"), f"{block}.mlp.1"))
        x = x + linear(hidden, f"{block}.mlp.4")
    return linear(norm(x, "norm")[0], "head")


@pytest.mark.parametrize(("shape", "patch_size"), [((3, 8, 8), 4), ((1, 6, 4), 2), ((2, 3, 3), 1)])
@pytest.mark.parametrize("mlp_ratio", [4, 1.5])
def test_the_forward_is_its_matrix_products(
    shape: Shape, patch_size: int, mlp_ratio: float
) -> None:
    network = woken(small(shape, patch_size=patch_size, mlp_ratio=mlp_ratio)).eval()
    x = make_images(3, *shape)
    by_hand = torch.stack([literal(network, p, patch_size=patch_size, heads=3) for p in x])
    assert by_hand.std() > 0.1
    torch.testing.assert_close(network(x), by_hand, atol=1e-5, rtol=1e-5)


# --- learning -----------------------------------------------------------------------------------


def test_weights_start_normal_and_biases_at_zero() -> None:
    with rng.as_global(rng.fork(0, "start")):
        network = ViT(input_shape=(3, 32, 32), dim=96, depth=2, heads=3)
    drawn = []
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1:
            drawn.append(parameter.detach().flatten())
            deviation = float(parameter.detach().std())
            assert deviation == pytest.approx(0.02, rel=6 / math.sqrt(2 * parameter.numel())), name
        elif "norm" in name or name.endswith((".0.weight", ".0.bias")):
            assert torch.equal(parameter, torch.full_like(parameter, name.endswith("weight"))), name
        else:
            assert not parameter.any(), name
    everything = torch.cat(drawn).double().numpy()
    truncated = stats.truncnorm(-2 / 0.02, 2 / 0.02, scale=0.02)
    assert stats.kstest(everything, truncated.cdf).pvalue > 0.01
    # Five deviations are the most to be expected of 200,000 draws; a bug would show as -2.
    assert abs(everything).max() < 0.12


# --- dropout ------------------------------------------------------------------------------------


def draws(network: ViT, seed: int = 0) -> tuple[Tensor, bool]:
    """The logits under a lent generator, and whether it was drawn from."""
    generator = rng.fork(seed, "dropout")
    before, outside = generator.get_state(), torch.get_rng_state()
    with rng.as_global(generator), torch.no_grad():
        logits = network(make_images(4, 3, 8, 8))
    assert torch.equal(torch.get_rng_state(), outside)
    return logits, not torch.equal(generator.get_state(), before)


def test_dropout_draws_in_training_only() -> None:
    network = woken(small(dropout=0.5))
    assert draws(network.train())[1]
    in_eval, drew = draws(network.eval())
    assert not drew
    assert torch.equal(in_eval, draws(network.eval(), seed=1)[0])


def test_dropout_falls_after_positions_projection_and_both_layers_of_the_mlp() -> None:
    network = small(dropout=0.25).train()
    found = {n: m.p for n, m in network.named_modules() if isinstance(m, nn.Dropout)}
    block = ("attention.2", "mlp.3", "mlp.5")
    expected = ["dropout", *(f"blocks.{number}.{name}" for number in (0, 1) for name in block)]
    assert found == dict.fromkeys(expected, 0.25)


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "patch_size", "message"),
    [
        ((3, 30, 28), 4, "30x28 .* side 4; .* multiples of 4 .nearest: 32x28. .* out of 1, 2$"),
        ((1, 28, 28), 16, "28x28 .* side 16; .* .nearest: 32x32. .* out of 1, 2, 4, 7, 14, 28$"),
        ((3, 3, 3), 8, "3x3 .* .nearest: 8x8. .* out of 1, 3$"),
        ((3, 8, 9), 8, "8x9 .* .nearest: 8x8. .* out of 1$"),
    ],
)
def test_images_that_leave_a_rest_are_refused(shape: Shape, patch_size: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        small(shape, patch_size=patch_size)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_size": 0}, "patch_size must be at least 1; got 0"),
        ({"dim": 0}, "dim must be at least 1; got 0"),
        ({"depth": 0}, "depth must be at least 1; got 0"),
        ({"heads": -2}, "heads must be at least 1; got -2"),
        ({"dim": 10, "heads": 4}, "heads must divide its dim of 10; got 4 .*: 1, 2, 5, 10"),
        ({"mlp_ratio": 0.001}, "at least 1 hidden unit; got 0.001"),
        ({"mlp_ratio": math.nan}, "at least 1 hidden unit; got nan"),
        ({"mlp_ratio": math.inf}, "at least 1 hidden unit; got inf"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\); got 1.0"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 1\); got -0.1"),
    ],
)
def test_options_that_make_no_network_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ViTOptions(**options)
    with pytest.raises(UserError, match=message):
        ViT(input_shape=(3, 8, 8), **options)
