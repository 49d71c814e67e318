"""What a GPU would see, checked without one: placement on the meta device, draws made ahead, float16.

A tensor on the meta device has no values. It cannot be copied to the host, and an operation on it and on
a tensor of the host is refused: a step that runs there keeps everything on its device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import driftwise as dw
from driftwise.errors import UserError
from driftwise.learner import Learner, TrainSettings
from driftwise.memory import PrefetchingBuffer, ReplayBuffer
from driftwise.methods import CLSER, ER, ERACE, SER, DERpp, Method
from driftwise.models import MLP, seeded
from driftwise.testing import make_samples, same

METHODS: dict[str, Callable[[], Method]] = {
    "er": ER,
    "er-ace": ERACE,
    "der++": lambda: DERpp(alpha=0.3, beta=0.5),
    "ser": lambda: SER(alpha=0.2, beta=0.2),
    "cls-er": lambda: CLSER(),
}
META = torch.device("meta")


class NumberOnMeta:
    """In the place of the one number that a step waits for."""

    asked = 0

    def __init__(self, value: Tensor) -> None:
        assert value.device == META
        type(self).asked += 1

    def wait(self) -> float:
        return 1.0


def learner(method: Callable[[], Method], buffer: Any, **settings: Any) -> Learner:
    network = seeded(MLP, input_shape=(1, 8, 8), num_classes=10, seed=3)
    made = TrainSettings(minibatch_size=8, **settings)
    return Learner(network, method(), buffer=buffer, lr=0.05, settings=made)


def train(learner: Learner, start: int = 0) -> None:
    for task in range(2):
        learner.begin_task((2 * task, 2 * task + 1))
        learner.begin_epoch(1, 2)
        for number in range(5):
            labels = (2 * task, 2 * task + 1)
            learner.observe(make_samples(8, seed=start + 10 * task + number, labels=labels))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ahead", [False, True], ids=["host buffer", "device buffer"])
def test_a_step_keeps_everything_on_its_device_and_waits_for_the_loss_alone(
    method: str, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftwise.learner.Readback", NumberOnMeta)
    monkeypatch.setattr(NumberOnMeta, "asked", 0)
    on_device = learner(
        METHODS[method], ReplayBuffer(20, device=META if ahead else None), device=META
    )
    monkeypatch.setattr(on_device, "refuse_diverged_weights", lambda: None)  # once in a task
    if not ahead and method in ("der++", "ser"):
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta"):
            train(on_device)  # logits that are kept on the host must get there
        return
    train(on_device)
    assert NumberOnMeta.asked == 10
    assert all(weight.device == META for weight in on_device.network.parameters())


def logits_of(samples: Any, width: int) -> dict[str, Tensor]:
    return {"logits": samples.images.float().flatten(1)[:, :width]}


def history(buffer: Any) -> list[Any]:
    """What a buffer gives over a stream in which a class drifts, and classes are added."""
    seen: list[Any] = []
    width = 4
    for number in range(12):
        samples = make_samples(8, seed=number)
        for count in (6, 6, 4)[: 2 + number % 2] if number else ():
            drawn = buffer.sample(count)
            seen.append((dict(vars(drawn.samples)), dict(drawn.extras)))
        buffer.offer(samples, logits_of(samples, width))
        if isinstance(buffer, PrefetchingBuffer):
            buffer.prefetch()
        if number == 5:
            fresh = make_samples(buffer.drop(1), seed=99, labels=(1,))
            buffer.put(fresh, logits_of(fresh, width))
        if number == 7:
            buffer.load_state_dict(buffer.state_dict())
        if number == 8:
            buffer.widen(width := 6)
        seen.append(buffer.counts())
    return [*seen, buffer.state_dict(), dict(vars(buffer.samples_of(2)))]


@pytest.mark.parametrize(
    "make",
    [
        lambda: PrefetchingBuffer(ReplayBuffer(30, seed=5), "cpu"),
        lambda: ReplayBuffer(30, seed=5, device="cpu"),
    ],
    ids=["draws made ahead", "on the device"],
)
def test_where_samples_lie_and_when_they_are_drawn_does_not_show(make: Callable[[], Any]) -> None:
    ours, theirs = history(make()), history(ReplayBuffer(30, seed=5))
    for mine, other in zip(ours, theirs, strict=True):
        assert same(mine, other)


def test_a_draw_made_ahead_is_the_one_that_is_used() -> None:
    """Not only equal to it: nothing is collected twice."""
    plain = ReplayBuffer(30)
    buffer, drawn = PrefetchingBuffer(plain, "cpu"), []
    sample = plain.sample

    def counted(count: int) -> Any:
        drawn.append(count)
        return sample(count)

    plain.sample = counted  # type: ignore[method-assign]
    buffer.offer(make_samples(20))
    buffer.sample(4)
    buffer.prefetch()
    assert drawn == [4, 4]
    buffer.sample(4)
    assert drawn == [4, 4]


def test_a_device_keeps_the_last_sample_of_a_slot() -> None:
    """Within one offer, a later sample may take the slot of an earlier one."""
    from driftwise.memory.device_column import DeviceColumn

    column = DeviceColumn(torch.empty(0, 1), 3, torch.device("cpu"))
    column.write(np.array([2, 0, 2, 2]), torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    assert column.read(np.array([0, 1, 2])).flatten().tolist() == [2.0, 0.0, 4.0]
    with pytest.raises(ValueError, match=r"expected logits of torch.float32 and shape \(2, 1\)"):
        column.convert("logits", torch.zeros(2, 2), 2)


@pytest.mark.parametrize("method", METHODS)
def test_learning_with_draws_made_ahead_and_on_the_device_is_the_same_bit_for_bit(
    method: str,
) -> None:
    expected = learner(METHODS[method], ReplayBuffer(20))
    train(expected)
    for buffer in (PrefetchingBuffer(ReplayBuffer(20), "cpu"), ReplayBuffer(20, device="cpu")):
        ours = learner(METHODS[method], buffer)
        train(ours)
        assert same(ours.state_dict(), expected.state_dict())


@pytest.mark.parametrize("method", METHODS)
def test_float16_learns_like_float32_and_goes_on_exactly_from_a_checkpoint(method: str) -> None:
    plain, half = (learner(METHODS[method], ReplayBuffer(20), fp16=fp16) for fp16 in (False, True))
    again = learner(METHODS[method], ReplayBuffer(20), fp16=True)
    for each in (plain, half):
        train(each)
    pairs = zip(plain.network.parameters(), half.network.parameters(), strict=True)
    assert not all(torch.equal(one, other) for one, other in pairs)
    for one, other in zip(plain.network.parameters(), half.network.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0.02)
        assert other.dtype == torch.float32
    again.load_state_dict(half.state_dict())
    for each in (half, again):
        train(each, start=50)
    assert same(again.state_dict(), half.state_dict())


def test_float16_leaves_a_step_out_whose_gradients_overflow_and_lowers_the_scale() -> None:
    half = learner(ER, ReplayBuffer(20), fp16=True)
    half.begin_task((0, 1))
    assert half._scaler is not None
    half._scaler.load_state_dict({**half._scaler.state_dict(), "scale": 2.0**40})
    before = [weight.clone() for weight in half.network.parameters()]
    half.observe(make_samples(8, labels=(0, 1)))
    assert all(map(torch.equal, before, half.network.parameters()))
    assert half._scaler.get_scale() == 2.0**39
    while half._scaler.get_scale() > 2.0**16:
        half.observe(make_samples(8, labels=(0, 1)))
    half.observe(make_samples(8, labels=(0, 1)))
    assert not all(map(torch.equal, before, half.network.parameters()))


def test_a_run_in_float16_says_so_and_cuda_graphs_need_cuda(tmp_path: Any) -> None:
    settings: Any = {"num_tasks": 2, "epochs": 1, "detector": "never"}
    half = dw.run(dw.RunConfig(precision="fp16", **settings), tmp_path / "half")
    assert half["config"]["precision"] == "fp16"
    plain = dw.run(dw.RunConfig(**settings), tmp_path / "plain")
    assert half["faa"] == pytest.approx(plain["faa"], abs=3)
    with pytest.raises(UserError, match="expected compile and a CUDA device; got compile=False"):
        dw.run(dw.RunConfig(cuda_graphs=True, device="cpu"), tmp_path / "graphs")
