"""The transformers against the published table and against plain matrix products."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from scipy import stats
from test_models import layers, make_images, num_parameters
from torch import Tensor, nn

from driftwise import rng
from driftwise.errors import UserError
from driftwise.metrics import per_sample
from driftwise.models import ViT, ViTSmall, ViTTiny
from driftwise.models.vit import Attention, ViTOptions, ViTTinyOptions

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Parameters and multiply-accumulates by formula, for images of 32x32x3 and 10 classes."""

    dim: int
    patch_size: int = 4
    depth: int = 12

    @property
    def tokens(self) -> int:
        return (32 // self.patch_size) ** 2 + 1

    def parameters(self) -> dict[str, int]:
        d = self.dim
        return {
            "embed": 3 * self.patch_size**2 * d + d,
            "class_token": d,
            "positions": self.tokens * d,
            # qkv 3dd + 3d, projection dd + d, the MLP's two layers 4dd + 4d and 4dd + d, norms 4d
            "blocks": self.depth * (12 * d * d + 13 * d),
            "norm": 2 * d,
            "head": 10 * d + 10,
        }

    def flops(self) -> int:
        d, tokens = self.dim, self.tokens
        embed = (tokens - 1) * 3 * self.patch_size**2 * d
        # Queries with keys, weights with values: all heads together are as wide as the token.
        block = tokens * 12 * d * d + 2 * tokens * tokens * d
        return 2 * (embed + self.depth * block + 10 * d)


@pytest.mark.parametrize(
    ("network", "table", "expected"),
    [(ViTSmall, Table(dim=384), 21_342_346), (ViTTiny, Table(dim=192), 5_362_762)],
)
def test_the_published_sizes_part_by_part(network: type[ViT], table: Table, expected: int) -> None:
    with torch.device("meta"):
        made = network(input_shape=(3, 32, 32), num_classes=10)
    found = dict.fromkeys(table.parameters(), 0)
    for name, parameter in made.named_parameters():
        found[name.partition(".")[0]] += parameter.numel()
    assert found == table.parameters()
    assert sum(found.values()) == expected


@pytest.mark.parametrize(
    ("network", "table", "expected"),
    [(ViTSmall, Table(dim=384), 2_840_618_496), (ViTTiny, Table(dim=192), 730_215_168)],
)
def test_the_published_sizes_cost_what_their_table_says(
    network: type[ViT], table: Table, expected: int
) -> None:
    made = network(input_shape=(3, 32, 32), num_classes=10)
    assert per_sample(made, (3, 32, 32)).forward == table.flops() == expected


def test_vit_layer_by_layer() -> None:
    tokens = (65, 24)
    block = [
        ("LayerNorm", tokens, 48),
        ("Linear", (65, 72), 24 * 72 + 72),
        ("Linear", tokens, 24 * 24 + 24),
        ("Dropout", tokens, 0),
        ("LayerNorm", tokens, 48),
        ("Linear", (65, 96), 24 * 96 + 96),
        ("GELU", (65, 96), 0),
        ("Dropout", (65, 96), 0),
        ("Linear", tokens, 96 * 24 + 24),
        ("Dropout", tokens, 0),
    ]
    network = ViT(input_shape=(3, 32, 32), dim=24, depth=2, heads=3)
    assert layers(network, (3, 32, 32)) == [
        ("Conv2d", (24, 8, 8), 3 * 4 * 4 * 24 + 24),
        ("Dropout", tokens, 0),
        *block,
        *block,
        ("LayerNorm", (24,), 48),
        ("Linear", (10,), 250),
    ]


@pytest.mark.parametrize(
    ("shape", "patch_size", "num_patches"),
    [
        ((1, 8, 8), 4, 4),
        ((1, 28, 28), 4, 49),
        ((3, 64, 64), 4, 256),
        ((3, 64, 64), 8, 64),
        ((3, 224, 224), 16, 196),
        ((2, 6, 10), 2, 15),
    ],
)
def test_every_patch_becomes_a_token(shape: Shape, patch_size: int, num_patches: int) -> None:
    network = small(shape, patch_size=patch_size, depth=1)
    assert network.positions.shape == (1, 1 + num_patches, 12)
    x = make_images(2, *shape)
    assert network.features(x).shape == (2, 12)
    assert network(x).shape == (2, 7)


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


def test_the_features_are_the_class_token_after_the_last_norm() -> None:
    network = small().eval()  # the norm's own scale and shift are still 1 and 0
    features = network.features(make_images(4, 3, 8, 8))
    torch.testing.assert_close(features.mean(dim=1), torch.zeros(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(features.var(dim=1, unbiased=False), torch.ones(4), atol=0.1, rtol=0)


def test_attention_does_not_know_the_order_of_its_tokens() -> None:
    attention = Attention(dim=12, heads=3).eval()
    tokens = torch.randn(2, 5, 12, generator=rng.fork(0, "tokens"))
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(attention(tokens[:, order]), attention(tokens)[:, order])


def test_the_positions_tell_the_network_where_a_patch_lies() -> None:
    network = woken(small()).eval()
    x = make_images(1, 3, 8, 8)
    moved = x.roll(4, dims=3)  # the same patches, in other places
    assert not torch.allclose(network(x), network(moved), atol=1e-3)
    with torch.no_grad():
        network.positions.zero_()
    torch.testing.assert_close(network(x), network(moved))


# --- learning -----------------------------------------------------------------------------------


def test_a_gradient_reaches_every_weight() -> None:
    network = woken(small(dropout=0.0)).double()
    x = make_images(4, 3, 8, 8).double()
    torch.autograd.backward(F.cross_entropy(network(x), torch.arange(4)))
    for name, parameter in network.named_parameters():
        gradient = parameter.grad
        assert gradient is not None, name
        reached = gradient.abs() > 1e-14
        if name.endswith("qkv.bias"):
            # A shift of all keys adds the same to all similarities, which the softmax removes.
            queries, keys, values = reached.chunk(3)
            assert not keys.any()
            reached = torch.cat([queries, values])
        assert reached.all(), name


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


def test_the_lent_generator_decides_what_is_dropped() -> None:
    network = woken(small(dropout=0.5)).train()
    first, again, other = (draws(network, seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_without_dropout_training_computes_what_evaluation_does() -> None:
    network = woken(small(dropout=0.0))
    in_training, drew = draws(network.train())
    assert not drew
    assert torch.equal(in_training, draws(network.eval())[0])


def test_dropout_falls_after_positions_projection_and_both_layers_of_the_mlp() -> None:
    network = small(dropout=0.25).train()
    found = {n: m.p for n, m in network.named_modules() if isinstance(m, nn.Dropout)}
    block = ("attention.2", "mlp.3", "mlp.5")
    expected = ["dropout", *(f"blocks.{number}.{name}" for number in (0, 1) for name in block)]
    assert found == dict.fromkeys(expected, 0.25)


def test_what_enters_the_blocks_has_lost_its_share_and_is_scaled_to_make_up_for_it() -> None:
    network = woken(small((3, 32, 32), dropout=0.25))
    entered: list[Tensor] = []
    network.blocks.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    with rng.as_global(rng.fork(0, "dropout")), torch.no_grad():
        for training in (True, False):
            network.train(training)(make_images(4, 3, 32, 32))
    in_training, whole = entered
    kept = in_training != 0
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.03)  # 3,120 values
    torch.testing.assert_close(in_training[kept], whole[kept] / 0.75)


# --- options ------------------------------------------------------------------------------------


def test_the_sizes_differ_in_their_defaults_alone() -> None:
    small_size = dataclasses.asdict(ViTOptions())
    tiny_size = dataclasses.asdict(ViTTinyOptions())
    assert small_size == {
        "patch_size": 4,
        "dim": 384,
        "depth": 12,
        "heads": 6,
        "mlp_ratio": 4,
        "dropout": 0.1,
    }
    assert tiny_size == small_size | {"dim": 192, "heads": 3}
    with torch.device("meta"):
        options = small_size | {"depth": 1, "dim": 12, "heads": 3}
        made = [size(input_shape=(3, 8, 8), **options) for size in (ViT, ViTSmall, ViTTiny)]
    assert len({num_parameters(network) for network in made}) == 1


@pytest.mark.parametrize(("mlp_ratio", "hidden"), [(4, 48), (1.5, 18), (0.3, 4)])
def test_the_mlp_ratio_is_the_hidden_units_by_the_width(mlp_ratio: float, hidden: int) -> None:
    weights = small(mlp_ratio=mlp_ratio).state_dict()
    assert weights["blocks.0.mlp.1.weight"].shape == (hidden, 12)
    assert weights["blocks.0.mlp.4.weight"].shape == (12, hidden)


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
