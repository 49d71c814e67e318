"""Vision transformers: an image as a sequence of square patches, with a class token in front.

The plain kind: learned positions, pre-norm blocks, GELU, biases everywhere, no dropout within the
attention. A size of the family is a set of defaults for the options.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor, nn

from driftwise.errors import UserError

_NORM_EPS = 1e-6
"""As the published transformers have it; torch's own default is ten times larger."""


@dataclass(frozen=True, kw_only=True)
class ViTOptions:
    """What can be chosen about the network; the defaults are ViT-S for images of 32x32."""

    patch_size: int = 4
    """side of a patch in pixels; it must divide both sides of the image"""
    dim: int = 384
    """length of the vector that stands for a patch"""
    depth: int = 12
    """number of transformer blocks"""
    heads: int = 6
    """attention heads of a block; they must divide `dim`"""
    mlp_ratio: float = 4.0
    """hidden units of a block's MLP, as a multiple of `dim`"""
    dropout: float = 0.1
    """share of the values dropped in training"""

    def __post_init__(self) -> None:
        for name in ("patch_size", "dim", "depth", "heads"):
            value = getattr(self, name)
            if value < 1:
                raise UserError(f"the network's {name} must be at least 1; got {value}")
        if self.dim % self.heads:
            raise UserError(
                f"the network's heads must divide its dim of {self.dim}; got {self.heads} "
                f"(these would: {_listed(_divisors(self.dim))})"
            )
        if not 1 <= self.mlp_ratio * self.dim < math.inf:
            raise UserError(
                f"the network's mlp_ratio must leave at least 1 hidden unit; got {self.mlp_ratio}"
            )
        if not 0 <= self.dropout < 1:
            raise UserError(f"the network's dropout must be in [0, 1); got {self.dropout}")


@dataclass(frozen=True, kw_only=True)
class ViTTinyOptions(ViTOptions):
    """What can be chosen about the network; the defaults are ViT-tiny for images of 32x32."""

    dim: int = 192
    heads: int = 3


class Attention(nn.Module):
    """Multi-head self-attention: every token attends to all tokens."""

    def __init__(self, *, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """(samples, tokens, dim) -> the same."""
        apart: Tensor = self.qkv(tokens).unflatten(2, (3, self.heads, -1))
        query, key, value = apart.permute(
            2, 0, 3, 1, 4
        )  # each (samples, heads, tokens, dim / heads)
        attended = F.scaled_dot_product_attention(query, key, value)
        projected: Tensor = self.project(attended.transpose(1, 2).flatten(2))
        return projected


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, *, dim: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.Sequential(
            nn.LayerNorm(dim, eps=_NORM_EPS), Attention(dim=dim, heads=heads), nn.Dropout(dropout)
        )
        self.mlp = nn.Sequential(
            nn.LayerNorm(dim, eps=_NORM_EPS),
            nn.Linear(dim, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, dim),
            nn.Dropout(dropout),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """(samples, tokens, dim) -> the same."""
        tokens = tokens + self.attention(tokens)
        out: Tensor = tokens + self.mlp(tokens)
        return out


class ViT(nn.Module):
    """Patches and a class token with their positions, blocks, norm; the head reads the class token.

    The keyword arguments besides shape and classes are the fields of `options_type`.

    >>> ViT(input_shape=(1, 8, 8), depth=1).positions.shape
    torch.Size([1, 5, 384])
    """

    options_type: ClassVar[type[ViTOptions]] = ViTOptions

    def __init__(
        self, *, input_shape: tuple[int, int, int], num_classes: int = 10, **options: Any
    ) -> None:
        super().__init__()
        chosen = self.options_type(**options)
        channels, height, width = input_shape
        num_patches = _num_patches(height, width, chosen.patch_size)
        self.embed = nn.Conv2d(channels, chosen.dim, chosen.patch_size, stride=chosen.patch_size)
        self.class_token = nn.Parameter(torch.empty(1, 1, chosen.dim))
        self.positions = nn.Parameter(torch.empty(1, 1 + num_patches, chosen.dim))
        self.dropout = nn.Dropout(chosen.dropout)
        self.blocks = nn.Sequential()
        for _ in range(chosen.depth):
            block = Block(
                dim=chosen.dim,
                heads=chosen.heads,
                hidden=round(chosen.mlp_ratio * chosen.dim),
                dropout=chosen.dropout,
            )
            self.blocks.append(block)
        self.norm = nn.LayerNorm(chosen.dim, eps=_NORM_EPS)
        self.head = nn.Linear(chosen.dim, num_classes)
        self._initialise()

    def _initialise(self) -> None:
        """Weights, class token and positions from a normal of 0.02, truncated at +-2; biases 0."""
        weights: list[Tensor] = [self.class_token, self.positions]
        for layer in self.modules():
            # The embedding is a linear layer as well: its convolution never overlaps.
            if isinstance(layer, nn.Linear | nn.Conv2d):
                weights.append(layer.weight)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)
        for weight in weights:
            # The bounds lie 100 deviations out, so the plain normal is the truncated one. Older
            # torch's `trunc_normal_` sets one weight in 2^24 to -2: about one in every ViT-S.
            nn.init.normal_(weight, std=0.02)

    def features(self, x: Tensor) -> Tensor:
        """What the head reads, (samples, channels, height, width) -> (samples, dim)."""
        patches = self.embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), patches], dim=1)
        tokens = self.blocks(self.dropout(tokens + self.positions))
        # Each token is normalised by itself: those that nobody reads need not be.
        features: Tensor = self.norm(tokens[:, 0])
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (samples, channels, height, width) -> (samples, num_classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


class ViTSmall(ViT):
    """ViT-S: vectors of 384, 12 blocks of 6 heads.

    >>> sum(p.numel() for p in ViTSmall(input_shape=(3, 32, 32)).parameters())
    21342346
    """


class ViTTiny(ViT):
    """ViT-tiny: vectors of 192, 12 blocks of 3 heads.

    >>> sum(p.numel() for p in ViTTiny(input_shape=(3, 32, 32)).parameters())
    5362762
    """

    options_type = ViTTinyOptions


def _num_patches(height: int, width: int, patch_size: int) -> int:
    """How many patches make up an image; UserError where they leave a rest."""
    if height % patch_size or width % patch_size:
        nearest = "x".join(str(_nearest_multiple(side, patch_size)) for side in (height, width))
        raise UserError(
            f"images of {height}x{width} cannot be cut into patches of side {patch_size}; use "
            f"sides that are multiples of {patch_size} (nearest: {nearest}) or a patch_size out of "
            f"{_listed(_divisors(math.gcd(height, width)))}"
        )
    return (height // patch_size) * (width // patch_size)


def _nearest_multiple(side: int, patch_size: int) -> int:
    return max(1, round(side / patch_size)) * patch_size


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
