"""ImageNet's ResNet-18 against its table and a literal version, and the files of its weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from run_tools import complaint
from safetensors.torch import save_file
from test_models import make_images
from torch import Tensor

from driftwise import rng
from driftwise.models.imagenet_resnet import (
    ImageNetResNet18,
    digest_of,
    published_name,
    read_resnet18,
)

Weights = dict[str, Tensor]


@pytest.fixture(scope="module")
def weights() -> Weights:
    """A random network's, by their published names; statistics that are neither 0 nor 1."""
    with rng.as_global(rng.fork(0, "weights")):
        state = {published_name(name): t for name, t in ImageNetResNet18().state_dict().items()}
        for name, tensor in state.items():
            if name.endswith(("running_mean", "bias")):
                tensor.normal_(std=0.1)
            elif name.endswith("running_var"):
                tensor.uniform_(0.5, 2)
    return state


@pytest.fixture(scope="module")
def file(weights: Weights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "resnet18.safetensors"
    save_file(weights, path)
    return path


def literal(weights: Weights, x: Tensor) -> Tensor:
    """The published network, written out by the published names."""

    def norm(name: str, x: Tensor) -> Tensor:
        mean, var = weights[f"{name}.running_mean"], weights[f"{name}.running_var"]
        return F.batch_norm(x, mean, var, weights[f"{name}.weight"], weights[f"{name}.bias"])

    x = F.relu(norm("bn1", F.conv2d(x, weights["conv1.weight"], stride=2, padding=3)))
    x = F.max_pool2d(x, 3, stride=2, padding=1)
    for stage in (1, 2, 3, 4):
        for number in (0, 1):
            block = f"layer{stage}.{number}"
            stride = 2 if stage > 1 and number == 0 else 1
            straight = x
            if stride == 2:
                straight = F.conv2d(x, weights[f"{block}.downsample.0.weight"], stride=2)
                straight = norm(f"{block}.downsample.1", straight)
            y = F.conv2d(x, weights[f"{block}.conv1.weight"], stride=stride, padding=1)
            y = F.relu(norm(f"{block}.bn1", y))
            y = F.conv2d(y, weights[f"{block}.conv2.weight"], padding=1)
            x = F.relu(norm(f"{block}.bn2", y) + straight)
    return F.linear(x.mean(dim=(2, 3)), weights["fc.weight"], weights["fc.bias"])


def test_it_says_what_the_literal_version_says_with_the_weights_of_a_file(
    weights: Weights, file: Path
) -> None:
    x = make_images(2, 3, 64, 64)
    with torch.no_grad():
        logits = read_resnet18(file).eval()(x)
        assert torch.allclose(logits, literal(weights, x), atol=1e-4)
    assert logits.std() > 0.01, "else anything would be close"


def test_the_digest_goes_by_the_weights_and_not_by_their_file(
    weights: Weights, file: Path, tmp_path: Path
) -> None:
    first = digest_of(read_resnet18(file))
    other = tmp_path / "other.safetensors"
    bare = {name: t for name, t in weights.items() if not name.endswith("num_batches_tracked")}
    save_file(bare, other, metadata={"format": "pt"})
    assert digest_of(read_resnet18(other)) == first
    save_file({**bare, "fc.bias": bare["fc.bias"] + 1e-3}, other)
    assert digest_of(read_resnet18(other)) != first


def without(name: str) -> Callable[[Weights], Weights]:
    return lambda weights: {key: value for key, value in weights.items() if key != name}


MISTAKES: dict[str, Callable[[Weights], Weights]] = {
    "it lacks layer2.0.conv1.weight": without("layer2.0.conv1.weight"),
    "it also has layer1.2.conv1.weight": lambda w: {**w, "layer1.2.conv1.weight": torch.ones(1)},
    "fc.weight is (10, 512), not (1000, 512)": lambda w: {**w, "fc.weight": torch.ones(10, 512)},
    "bn1.bias is torch.int64, not floats": lambda w: {**w, "bn1.bias": torch.arange(64)},
    "conv1.weight is not finite": lambda w: {**w, "conv1.weight": w["conv1.weight"] / 0},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_weights_of_something_else_are_refused_in_one_line(
    message: str, weights: Weights, tmp_path: Path
) -> None:
    path = tmp_path / "resnet18.safetensors"
    save_file(MISTAKES[message](weights), path)
    line = complaint(lambda: read_resnet18(path))
    assert message in line
    assert str(path) in line


def test_a_file_that_is_cut_off_or_of_another_kind_or_missing_is_reported_in_one_line(
    file: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "resnet18.safetensors"
    damaged.write_bytes(file.read_bytes()[:-1])
    assert "is damaged" in complaint(lambda: read_resnet18(damaged))
    for content in (b"", b"\x80\x02}q\x00.", b"PK\x03\x04" + bytes(100)):
        damaged.write_bytes(content)
        assert "no safetensors file" in complaint(lambda: read_resnet18(damaged))
    assert "No such file" in complaint(lambda: read_resnet18(tmp_path / "nowhere"))
    assert "Is a directory" in complaint(lambda: read_resnet18(tmp_path))
