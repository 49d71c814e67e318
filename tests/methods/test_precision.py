from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from learn_builders import (
    CLASSES,
    LR,
    SHAPE,
    TinyNet,
    as_floats,
    assert_pauses_change_nothing,
    batch,
    labelled,
    make_learner,
    state_of,
    two_tasks_and_a_restart,
    weights_of,
)
from same_state import same
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from driftwise import rng
from driftwise.learner import Learner
from driftwise.methods import (
    CLSER,
    ER,
    ERACE,
    SER,
    DERpp,
    Draw,
    Finetune,
    Inputs,
    Joint,
    Method,
    Outcome,
)
from driftwise.models.cnn import SmallCNN

METHODS: dict[str, Callable[[], Method]] = {
    "er": ER,
    "er-ace": ERACE,
    "der++": lambda: DERpp(),
    "ser": lambda: SER(),
    "cls-er": lambda: CLSER(stable_update_freq=0.5),
    "finetune": Finetune,
    "joint": lambda: Joint(),
}
every_method = pytest.mark.parametrize("method", METHODS)


def make_wide(attempt: int) -> nn.Module:
    """On a CPU torch's convolutions are not safe in channels-last below eight maps."""
    height, width, channels = SHAPE
    with rng.as_global(rng.fork(8, "network", attempt)):
        return SmallCNN(input_shape=(channels, height, width), num_classes=CLASSES, width=8)


def wide_learner(method: str, **train_settings: Any) -> Learner:
    return make_learner(METHODS[method](), make=make_wide, capacity=12, **train_settings)


def train(learner: Learner) -> list[float]:
    """Three tasks; the loss of every step."""
    losses = []
    for number, classes in enumerate([(0, 1), (2,), (3, 4)]):
        learner.begin_task(classes)
        for step in range(3):
            samples = labelled(10 * number + step, *(8 * classes)[:7], 0)
            losses.append(learner.observe(samples).loss)
        learner.end_task()
    return losses


# --- bfloat16 -----------------------------------------------------------------------------------


@every_method
def test_only_forwards_are_in_bf16(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = wide_learner(method, bf16=True)
    outcomes: list[Outcome] = []
    given: list[torch.dtype] = []
    original = learner.method.outcome

    def outcome(network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        given.append(stream.x.dtype)
        outcomes.append(original(network, stream, draw))
        return outcomes[-1]

    monkeypatch.setattr(learner.method, "outcome", outcome)
    train(learner)
    assert len(outcomes) == 9
    assert set(given) == {torch.float32}
    assert {each.logits.dtype for each in outcomes} == {torch.bfloat16}
    assert {each.loss.dtype for each in outcomes} == {torch.float32}
    for network in learner.networks:
        for name, tensor in network.state_dict().items():
            assert tensor.dtype == (torch.int64 if "num_batches" in name else torch.float32)
    for parameter in learner.network.parameters():
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
    assert learner.logits(batch(50).images).dtype == torch.float32


def test_the_loss_is_taken_in_float32_of_logits_in_bf16() -> None:
    learner = wide_learner("finetune", bf16=True)
    made: list[Tensor] = []
    learner.network.register_forward_hook(lambda module, given, out: made.append(out.detach()))
    samples = batch(0, samples=9)
    loss = learner.observe(samples).loss
    (logits,) = made
    assert loss == pytest.approx(float(cross_entropy(logits.float(), samples.labels)), rel=1e-6)
    assert loss != pytest.approx(float(cross_entropy(logits, samples.labels)), rel=1e-5)


@pytest.mark.parametrize("method", ["der++", "ser"])
def test_logits_are_kept_in_float32(method: str) -> None:
    learner = wide_learner(method, bf16=True)
    train(learner)
    assert learner.buffer.sample(5).extras["logits"].dtype == torch.float32
    fresh = batch(50)
    annotated = learner.annotate(fresh)["logits"]
    assert annotated.dtype == torch.float32
    torch.testing.assert_close(annotated, learner.logits(fresh.images))
    learner.buffer.drop(0)
    learner.buffer.put(fresh[:1], {"logits": annotated[:1]})  # the same column, no other one


@every_method
def test_a_short_training_in_bf16_agrees_with_float32(method: str) -> None:
    # Large steps on small batches would amplify what is rounded, in either precision.
    full, half = (wide_learner(method, bf16=bf16, lr=0.1 * LR) for bf16 in (False, True))
    losses, rounded = train(full), train(half)
    assert rounded == pytest.approx(losses, rel=0.01)
    images = batch(50, samples=40).images
    outputs = torch.stack([full.logits(images).flatten(), half.logits(images).flatten()])
    assert not torch.equal(*outputs)
    assert float(torch.corrcoef(outputs)[0, 1]) > 0.9


# --- the order of values in memory --------------------------------------------------------------


@every_method
def test_channels_last_trains_to_the_same_weights(method: str) -> None:
    plain = wide_learner(method)
    last = wide_learner(method, memory_format=torch.channels_last)
    assert train(last) == pytest.approx(train(plain), rel=1e-5, abs=1e-6)
    assert len(last.networks) == len(plain.networks)
    for one, other in zip(last.networks, plain.networks, strict=True):
        theirs = other.state_dict()
        for name, tensor in one.state_dict().items():
            torch.testing.assert_close(tensor, theirs[name], rtol=1e-5, atol=1e-5)
    images = batch(50, samples=20).images
    torch.testing.assert_close(last.logits(images), plain.logits(images), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("augmentation", ["none", "crop-flip"])
def test_networks_and_what_they_are_given_are_in_channels_last(augmentation: str) -> None:
    learner = wide_learner("cls-er", memory_format=torch.channels_last, augmentation=augmentation)
    given: list[Tensor] = []

    def attach() -> None:
        for network in learner.networks:
            network._forward_hooks.clear()
            network.register_forward_hook(lambda module, inputs, out: given.append(inputs[0]))

    for _ in range(2):
        attach()
        learner.observe(batch(0))
        learner.observe(batch(1))
        learner.logits(batch(2).images)
        learner.restart()
    # A step asks the network twice and each average once, the very first the network alone.
    assert len(given) == (1 + 4 + 1) + (4 + 4 + 1)
    for x in given:
        assert x.is_contiguous(memory_format=torch.channels_last)
    for network in learner.networks:
        weights = [m.weight for m in network.modules() if isinstance(m, nn.Conv2d)]
        assert len(weights) == 3
        assert all(w.is_contiguous(memory_format=torch.channels_last) for w in weights)


# --- dropout ------------------------------------------------------------------------------------


class Dropping(TinyNet):
    """A tiny network that forgets half of what its head reads."""

    def __init__(self) -> None:
        super().__init__(maps=8)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.drop(self.norm(self.conv(x)).relu().mean(dim=(2, 3))))
        return logits


def make_dropping(attempt: int) -> Dropping:
    with rng.as_global(rng.fork(9, "network", attempt)):
        return Dropping()


def dropping_learner(method: str = "er", **changes: Any) -> Learner:
    return make_learner(METHODS[method](), make=make_dropping, capacity=12, **changes)


@every_method
def test_dropout_knows_nothing_of_the_global_state_and_leaves_it_alone(method: str) -> None:
    first, second = dropping_learner(method), dropping_learner(method)
    before = state_of(first)
    train(first)
    after = state_of(first)
    assert torch.equal(after["torch"], before["torch"])
    assert after["numpy"] == before["numpy"]
    with torch.random.fork_rng():
        torch.rand(3)  # the world has moved on
        train(second)
    assert same(second.state_dict(), first.state_dict())


def test_the_learners_seed_decides_what_is_dropped() -> None:
    losses = [dropping_learner(seed=seed).observe(batch(0, samples=20)).loss for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_every_forward_drops_another_half() -> None:
    learner = dropping_learner("der++")
    network = learner.network
    assert isinstance(network, Dropping)
    kept: list[Tensor] = []
    network.drop.register_forward_hook(
        lambda module, given, out: kept.append((out != 0) | (given[0] == 0))
    )
    for number in range(10):
        learner.observe(batch(number, samples=4))
    assert len(kept) == 1 + 9 * 3
    for i, one in enumerate(kept):
        assert all(not torch.equal(one, other) for other in kept[:i])
    dropped = torch.cat(kept).logical_not().float().mean()
    assert 0.2 < float(dropped) < 0.5, "half, less those that were zero before"


@every_method
@pytest.mark.parametrize("bf16", [False, True])
def test_a_pause_anywhere_changes_nothing(method: str, bf16: bool) -> None:
    """Neither what the method knows nor what is dropped next."""
    assert_pauses_change_nothing(
        lambda: dropping_learner(method, bf16=bf16), two_tasks_and_a_restart()
    )


def test_predictions_drop_nothing() -> None:
    learner = dropping_learner()
    train(learner)
    before = state_of(learner)
    images = batch(50).images
    logits = learner.logits(images)
    assert torch.equal(learner.logits(images), logits)
    assert same(state_of(learner), before)
    plain = TinyNet(maps=8)
    plain.load_state_dict(weights_of(learner.network))
    with torch.no_grad():
        torch.testing.assert_close(logits, plain.eval()(as_floats(batch(50))))
