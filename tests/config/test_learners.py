"""From a config to a learner: every setting reaches it; what cannot work gets one line."""

from __future__ import annotations

import copy
import itertools
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from run_tools import complaint
from same_state import same
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from driftwise import rng
from driftwise.config import learners
from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.learner import Learner
from driftwise.models.inputs import Prepared, to_input
from driftwise.types import Dataset, Samples

GREY, COLOUR = (8, 8, 1), (8, 8, 3)
ALMOST: Any = {"rtol": 0, "atol": 1e-4}


def make_samples(count: int, shape: tuple[int, ...] = GREY, *, seed: int = 0) -> Samples:
    draw = rng.fork(seed, "rows")
    return Samples(
        images=torch.randint(256, (count, *shape), generator=draw, dtype=torch.uint8),
        labels=torch.randint(10, (count,), generator=draw),
        ids=torch.arange(count),
        concepts=torch.zeros(count, dtype=torch.int64),
    )


def learner_of(
    shape: tuple[int, ...] = GREY, network: nn.Module | None = None, **settings: Any
) -> Learner:
    config = resolve(RunConfig(**{"lr": 0.1, **settings}))
    return learners.make_learner(config, shape, 10, network=network)


def weights_of(learner: Learner) -> dict[str, Tensor]:
    return copy.deepcopy(learner.network.state_dict())


def flat(learner: Learner) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in learner.network.parameters()])


class Seen:
    """Everything that a module is given, and what it says."""

    def __init__(self, module: nn.Module) -> None:
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        module.register_forward_hook(self._note)

    def _note(self, _module: nn.Module, given: tuple[Tensor, ...], logits: Tensor) -> None:
        self.inputs.append(given[0].detach())
        self.outputs.append(logits.detach())


# --- first weights ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder": "random"},
        {"buffer_policy": "balanced"},
        {"buffer_size": 3},
        {"augmentation": "crop-flip"},
        {"optimiser": "adam"},
        {"precision": "bf16"},
        {"adaptation": "fr-scratch"},
        {"method": "cls-er"},
        {"method": "joint"},
    ],
    ids=str,
)
def test_no_other_component_shifts_the_initial_weights(settings: dict[str, Any]) -> None:
    assert same(weights_of(learner_of(**settings)), weights_of(learner_of()))
    assert not same(weights_of(learner_of(seed=1)), weights_of(learner_of()))


# --- the optimiser and its rate -----------------------------------------------------------------

OPTIMISERS: dict[str, tuple[dict[str, Any], Any]] = {
    "sgd": ({}, lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum and decay": (
        {"momentum": 0.9, "weight_decay": 0.01},
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    ),
    "adam": (
        {"optimiser": "adam", "weight_decay": 0.01},
        lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.01),
    ),
    "adamw": (
        {"optimiser": "adamw", "weight_decay": 0.01},
        lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.01),
    ),
}


@pytest.mark.parametrize(("settings", "make"), OPTIMISERS.values(), ids=OPTIMISERS.keys())
def test_the_optimiser_is_the_one_asked_for(settings: dict[str, Any], make: Any) -> None:
    learner = learner_of(method="finetune", **settings)
    by_hand = copy.deepcopy(learner.network)
    optimiser = make(by_hand.parameters())
    for number in range(3):
        batch = make_samples(6, seed=number)
        learner.observe(batch)
        optimiser.zero_grad()
        torch.autograd.backward(cross_entropy(by_hand(to_input(batch.images)), batch.labels))
        optimiser.step()
    assert same(weights_of(learner), dict(by_hand.state_dict()))


def rates_over(epochs: int, **settings: Any) -> list[float]:
    """How far a step of plain SGD goes in each epoch, the first epoch's being 1."""
    far = []
    for epoch in range(1, epochs + 1):
        learner = learner_of(method="finetune", **settings)
        before = flat(learner)
        learner.begin_epoch(epoch, epochs)
        learner.observe(make_samples(6))
        far.append(float((flat(learner) - before).double().norm()))
    return [length / far[0] for length in far]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1, 1, 1, 1]),
        ({"scheduler": "steps", "lr_milestones": (1, 3)}, [1, 0.1, 0.1, 0.01]),
        ({"scheduler": "steps", "lr_milestones": (2,), "lr_drop": 0}, [1, 1, 0, 0]),
        # (1 + cos(k pi / 4)) / 2 of the way from the floor up
        ({"scheduler": "cosine", "lr_floor": 0.2}, [1, 0.882843, 0.6, 0.317157]),
    ],
    ids=str,
)
def test_the_rate_follows_its_scheduler(settings: dict[str, Any], expected: list[float]) -> None:
    assert rates_over(4, **settings) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("method", ["finetune", "joint"])  # joint makes a new optimiser each task
def test_the_rate_starts_anew_in_every_task(method: str) -> None:
    learner = learner_of(method=method, scheduler="steps", lr_milestones=(1,), lr_drop=0)
    for task in (1, 2):
        learner.begin_task([2 * task, 2 * task + 1])
        moved = []
        for epoch in (1, 2, 3):
            learner.begin_epoch(epoch, 3)
            before = flat(learner)
            learner.observe(make_samples(6))
            moved.append(not torch.equal(flat(learner), before))
        learner.end_task()
        assert moved == [True, False, False]


# --- what the network sees ----------------------------------------------------------------------


def is_shift(seen: Tensor, original: Tensor, margin: int) -> bool:
    """Whether an image (1, height, width) is another one moved by up to `margin`, black behind."""
    padded = nn.functional.pad(original, (margin,) * 4)
    _, height, width = original.shape
    places = itertools.product(range(2 * margin + 1), repeat=2)
    return any(
        torch.equal(seen, padded[:, top : top + height, left : left + width])
        for top, left in places
    )


@pytest.mark.parametrize(
    ("augmentation", "margin", "flips"),
    [("none", 0, False), ("flip", 0, True), ("crop", 1, False), ("crop-flip", 1, True)],
)
def test_stream_and_buffer_samples_are_augmented_as_asked_for(
    augmentation: str, margin: int, flips: bool
) -> None:
    learner = learner_of(augmentation=augmentation, buffer_size=20, minibatch_size=20)
    batch = make_samples(20)
    learner.observe(batch)
    seen = Seen(learner.network)
    learner.observe(batch)
    (given,) = seen.inputs  # er shows stream and buffer samples in one forward
    assert len(given) == 40
    kept = learner.buffer.sample(20).samples
    assert torch.equal(kept.images, batch.images[kept.ids]), "the memory keeps images as they came"
    originals = to_input(batch.images)
    for which in (given[:20], given[20:]):
        plain, mirrored = (
            sum(any(is_shift(row, one, margin) for one in pool) for row in which)
            for pool in (originals, originals.flip(3))
        )
        assert plain + mirrored == 20
        assert (mirrored > 0) is flips
        exact = sum(any(torch.equal(row, one) for one in originals) for row in which)
        assert (exact < 20) is (augmentation != "none")


def test_grey_images_are_repeated_to_as_many_channels_as_asked_for() -> None:
    learner = learner_of(channels=3)
    body = learner.network.get_submodule("network.body")
    seen = Seen(body)
    learner.observe(make_samples(5))
    grey = to_input(make_samples(5).images)
    assert torch.equal(seen.inputs[0], grey.expand(-1, 3, -1, -1))
    assert body.get_parameter("1.weight").shape[1] == 3 * 64


@pytest.mark.parametrize(
    ("shape", "channels"), [((8, 8, 4), 3), (COLOUR, 1), (COLOUR, 4), ((8, 8, 2), 3)], ids=str
)
def test_only_grey_images_can_be_repeated(shape: tuple[int, ...], channels: int) -> None:
    assert complaint(lambda: learner_of(shape, channels=channels)) == (
        f"channels {channels}: only grey images can be repeated; these have {shape[-1]}"
    )


def stripes() -> Dataset:
    """Two tasks of two classes, whose channels and classes differ in mean and spread."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 30)
    middle = np.array([[50, 100, 150]]) + 20 * labels[:, None]
    noise = draw.normal(size=(120, 8, 8, 3)) * np.array([4, 8, 12])
    images = (middle[:, None, None] + noise).clip(0, 255).astype(np.uint8)
    return Dataset(images=images, labels=labels, class_names=tuple("abcd"))


def test_normalising_takes_mean_and_spread_of_the_first_tasks_training_samples_out() -> None:
    config = resolve(RunConfig(benchmark="own", normalise=True, num_tasks=2, backbone="mlp"))
    assembly = assemble(config, stripes())
    first = assembly.stream.task(1).train()
    assert set(first.labels.tolist()) == {0, 1}
    inner = assembly.learner.network.get_submodule("network")
    seen = Seen(inner)
    with assembly.ledger.phase("evaluate"):
        assembly.learner.logits(first.images)
    given = seen.inputs[0].double()
    torch.testing.assert_close(given.mean(dim=(0, 2, 3)), torch.zeros(3).double(), **ALMOST)
    spread = given.std(dim=(0, 2, 3), correction=0)
    torch.testing.assert_close(spread, torch.ones(3).double(), **ALMOST)


# --- how steps are computed ---------------------------------------------------------------------


LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


@pytest.mark.parametrize(
    ("shape", "settings"), [(GREY, {}), (GREY, {"channels": 3}), (COLOUR, {"augmentation": "crop"})]
)
@pytest.mark.parametrize(("name", "layout"), LAYOUTS.items(), ids=LAYOUTS.keys())
def test_images_lie_in_memory_as_asked_for(
    name: str, layout: torch.memory_format, shape: tuple[int, ...], settings: dict[str, Any]
) -> None:
    # To torch, a grey image is contiguous either way, but its strides decide how convolutions
    # compute: asked for contiguous, they must not end up in channels-last.
    learner = learner_of(shape, backbone="cnn", memory_format=name, method="finetune", **settings)
    modules = learner.network.modules()
    maps = Seen(next(module for module in modules if isinstance(module, nn.Conv2d)))
    learner.observe(make_samples(4, shape))
    learner.logits(make_samples(4, shape).images)
    assert len(maps.outputs) == 2
    for logits in maps.outputs:
        assert logits.shape == (4, 16, 8, 8)
        assert logits.is_contiguous(memory_format=layout)


def test_channels_last_is_refused_where_it_would_break_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object) -> Tensor:
        raise AssertionError("this must not be computed: it damages memory")

    monkeypatch.setattr(nn.Conv2d, "forward", never)
    options = {"backbone": {"width": 4}}
    settings: dict[str, Any] = {"backbone": "cnn", "device": "cpu", "options": options}
    message = complaint(lambda: learner_of(memory_format="channels-last", **settings))
    assert message.startswith("memory_format channels-last needs convolutions of at least 8 maps")


# --- the network --------------------------------------------------------------------------------


class Plain(nn.Module):
    """A custom network."""

    def __init__(self, *, input_shape: tuple[int, ...] = (1, 8, 8), num_classes: int = 10) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.head = nn.Linear(channels * height * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits


class Short(Plain):
    """Has room for three classes, whatever it is asked for."""

    def __init__(self, **asked_for: Any) -> None:
        super().__init__(num_classes=3)


class Talkative(Plain):
    """Says more than logits."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x), "and so on"


class Helped(Plain):
    """Says more than logits while it is trained, as networks with a second head do."""

    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        return (logits, logits) if self.training else logits


def test_a_network_named_by_its_import_path_is_asked_for_what_the_data_needs() -> None:
    learner = learner_of(COLOUR, backbone=f"{__name__}:Plain")
    assert isinstance(learner.network, Plain)
    assert learner.network.head.weight.shape == (10, 3 * 64)
    assert same(weights_of(learner), weights_of(learner_of(COLOUR, backbone=f"{__name__}:Plain")))


HEAD = "the network's head must give 10 logits, one per class of the stream; for 2 images it gave"
TENSOR = "the network must return a tensor of logits, (2, 10) for 2 images; it returned"
MISFITS = {
    "too few classes": (Short, f"{HEAD} the shape (2, 3)"),
    "a tuple": (Talkative, f"{TENSOR} a tuple: wrap it in a module that picks out the logits"),
    "a tuple in training": (Helped, f"{TENSOR} a tuple in training: wrap it"),
}


@pytest.mark.parametrize(("kind", "expected"), MISFITS.values(), ids=MISFITS.keys())
@pytest.mark.parametrize("by", ["import path", "object"])
def test_a_network_that_does_not_fit_gets_one_line(
    kind: type[nn.Module], expected: str, by: str
) -> None:
    def make() -> Learner:
        if by == "object":
            return learner_of(network=kind())
        return learner_of(backbone=f"{__name__}:{kind.__name__}")

    assert complaint(make).startswith(expected)


class Frozen(Plain):
    """Cannot learn."""

    def __init__(self, **asked_for: Any) -> None:
        super().__init__(**asked_for)
        self.requires_grad_(False)


class Stubborn(nn.Module):
    """Takes no settings."""


class Breaks(Plain):
    """Raises what nobody expects."""

    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("weights")


def number(**_: Any) -> int:
    """Makes no network."""
    return 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Frozen", "has no weights that can be trained; unfreeze some"),
        ("Stubborn", "cannot be made as Stubborn(input_shape=..., num_classes=...): TypeError"),
        ("Breaks", "the network cannot take images of shape (1, 8, 8)"),
        ("number", "must be a torch module; got int"),
    ],
)
def test_code_of_ones_own_that_makes_no_usable_network_gets_one_line(
    name: str, expected: str
) -> None:
    assert expected in complaint(lambda: learner_of(backbone=f"{__name__}:{name}"))


def test_a_network_that_is_given_stays_as_it_was_and_starting_afresh_goes_back_to_it() -> None:
    given = Plain().eval()
    before = copy.deepcopy(given.state_dict())
    learner = learner_of(network=given, momentum=0.5)
    assert learner.network is not given
    assert same(weights_of(learner), dict(before))
    learner.observe(make_samples(6))
    assert not same(weights_of(learner), dict(before))
    learner.restart()
    assert same(weights_of(learner), dict(before))
    learner.observe(make_samples(6))
    assert same(given.state_dict(), before)
    assert not given.training
    assert all(weight.grad is None for weight in given.parameters())


class Normed(Plain):
    """Has torch's own norms, for maps and for vectors."""

    def __init__(self, **asked_for: Any) -> None:
        super().__init__(**asked_for)
        self.maps, self.vectors = nn.BatchNorm2d(64), nn.BatchNorm1d(64)

    def forward(self, x: Tensor) -> Tensor:
        pixels = x.flatten(1)[:, :, None, None]
        return super().forward(self.vectors(self.maps(pixels).flatten(1)))


@pytest.mark.parametrize("method", ["er", "der++", "finetune"])
def test_a_network_with_torchs_batch_norm_learns_from_a_single_sample(method: str) -> None:
    given = Normed()
    learner = learner_of(network=given, method=method, minibatch_size=1)
    statistics = [
        learner.network.get_buffer(f"{name}.running_mean") for name in ("maps", "vectors")
    ]
    for number in range(3):
        before = flat(learner)
        learner.observe(make_samples(1, seed=number))
        assert not torch.equal(flat(learner), before)
        if not learner.method.rehearses or number == 0:
            assert all(not mean.any() for mean in statistics), "one sample has no variance"
    learner.observe(make_samples(5))
    assert all(mean.any() for mean in statistics)
    assert (type(given.maps), type(given.vectors)) == (nn.BatchNorm2d, nn.BatchNorm1d)
    assert not given.maps.running_mean.any()  # type: ignore[union-attr]


def with_norm(norm: Any) -> nn.Module:
    network = Plain()
    norm(network.head)
    return network


class Lazy(Plain):
    """Waits for the first images."""

    def __init__(self, **asked_for: Any) -> None:
        super().__init__(**asked_for)
        self.head = nn.LazyLinear(10)


class Doubled(Plain):
    """Computes in float64 inside."""

    def __init__(self, **asked_for: Any) -> None:
        super().__init__(**asked_for)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.double()).float()


class Complex(Plain):
    """Has weights of which only the size matters; frozen, or to be trained."""

    def __init__(self, *, trained: bool = True) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.ones(10, dtype=torch.complex64), requires_grad=trained)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.phase.abs()


class Guarded(Plain):
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def compiled() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is on its way out
        return torch.jit.script(Plain())


OLD_NORM = (
    "network has a norm of torch.nn.utils on its weights, which cannot be copied; use the norm of "
    "that name in torch.nn.utils.parametrizations"
)
JIT = "network is compiled by torch.jit; give the module it was made from"
FLOAT = "expected torch.float32: call .float() on it"
UNFIT: dict[str, tuple[Any, str]] = {
    "lazy": (
        Lazy,
        "network does not know the shape of head.weight yet; pass it a batch of images first",
    ),
    "spectral_norm": (lambda: with_norm(nn.utils.spectral_norm), OLD_NORM),
    "scripted inside": (lambda: nn.Sequential(compiled()), JIT),
    "float64": (Doubled, f"network has weights of torch.float64 (head.weight); {FLOAT}"),
    "frozen complex": (
        lambda: Complex(trained=False),
        "network cannot be copied and saved, as it must: TypeError: state['phase'] is a tensor of "
        "torch.complex64, torch.strided, on cpu; a state holds dense real tensors with data",
    ),
    "a lock": (
        Guarded,
        "network cannot be copied and saved, as it must: TypeError: cannot pickle '_thread.lock' "
        "object",
    ),
}


@pytest.mark.parametrize(("make", "expected"), UNFIT.values(), ids=UNFIT.keys())
def test_a_network_that_cannot_be_trained_copied_or_saved_is_refused_with_the_reason(
    make: Any, expected: str
) -> None:
    assert complaint(lambda: learner_of(network=make())) == expected


def test_the_fastest_device_is_taken_and_an_absent_one_refused() -> None:
    assert learners.pick_device("cpu") == torch.device("cpu")
    if not torch.cuda.is_available() and not torch.backends.mps.is_available():
        assert learners.pick_device("auto") == torch.device("cpu")
        for name in ("cuda", "cuda:0", "mps", "xpu", "tpu", "cpu:x", ""):
            assert complaint(lambda name=name: learners.pick_device(name)) == (  # type: ignore[misc]
                f"device {name!r} is not available; this machine has cpu"
            )


@pytest.mark.parametrize("kind", ["cuda", "mps", "xpu"])
def test_a_device_that_is_there_is_taken_and_a_number_too_high_refused(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (torch.cuda, torch.backends.mps, torch.xpu):
        is_there = module is (torch.backends.mps if kind == "mps" else getattr(torch, kind))
        monkeypatch.setattr(module, "is_available", lambda there=is_there: there)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    for name in ("auto", kind, f"{kind}:0"):
        assert learners.pick_device(name).type == kind
    assert complaint(lambda: learners.pick_device(f"{kind}:1")) == (
        f"device '{kind}:1' is not available; {kind} devices here: 0 to 0"
    )


@pytest.mark.parametrize("shape", [(50, 3), (50, 3, 4, 4)])
def test_floats_are_normalised_by_feature_or_channel(shape: tuple[int, ...]) -> None:
    scale = torch.tensor([1.0, 1000.0, 0.0]).reshape(1, 3, *(1 for _ in shape[2:]))
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * scale + 5 * scale + 7
    none = torch.zeros(50, dtype=torch.int64)
    samples = Samples(images=values, labels=none, ids=none, concepts=none)
    mean, std = (
        each.float().reshape(scale.shape[1:]) for each in learners.channel_statistics(samples)
    )
    scaled = Prepared(nn.Identity(), channels=3, mean=mean, std=std)(values)
    dims = tuple(dim for dim in range(values.ndim) if dim != 1)
    torch.testing.assert_close(scaled.mean(dim=dims), torch.zeros(3), atol=1e-4, rtol=0)
    spread = torch.tensor([1.0, 1.0, 0.0])  # what never changes stays, and is not blown up
    torch.testing.assert_close(scaled.std(dim=dims, correction=0), spread, atol=1e-3, rtol=0)
