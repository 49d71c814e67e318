"""What each process of a test does on a device that is none: messages, buffers and steps lie there."""

from __future__ import annotations

import os
from typing import Any

import fake_device
import torch
from distributed_work import METHODS, collectives, learner_like_one_process, one_history

from driftwise import distributed
from driftwise.learner import Learner, TrainSettings
from driftwise.memory import PrefetchingBuffer, ReplayBuffer, ReplicatedBuffer, ShardedBuffer
from driftwise.memory.policies import Reservoir
from driftwise.methods import SER, DERpp
from driftwise.models import MLP, ResNet18, seeded
from driftwise.testing import make_samples, same

STEPS = 4


def steps_like_on_the_cpu(device: torch.device, network: Any, method: Any) -> None:
    """Two tasks: weights and buffer bit for bit, and one wait for the device in a step."""

    def train(buffer: Any, where: Any) -> tuple[Learner, list[int]]:
        settings = TrainSettings(minibatch_size=8, device=where)
        learner = Learner(network, method(), buffer=buffer, lr=0.05, settings=settings)
        waits = []
        for labels in ((0, 1), (2, 3)):
            learner.begin_task(labels)
            learner.begin_epoch(1, 1)
            for number in range(STEPS):
                fake_device.copies_to_host.clear()
                learner.observe(make_samples(8, seed=10 * labels[0] + number, labels=labels))
                waits.append(len(fake_device.copies_to_host))
            learner.end_task()
        return learner, waits

    theirs, none = train(ReplayBuffer(20), "cpu")
    ours, waits = train(PrefetchingBuffer(ReplayBuffer(20), device), device)
    assert set(none) == {0}
    for_the_loss = {1}
    assert set(waits) <= for_the_loss | ({2} if isinstance(ours.method, DERpp | SER) else set()), (
        waits
    )
    for mine, other in zip(ours.networks, theirs.networks, strict=True):
        expected = other.state_dict()
        for name, value in mine.state_dict().items():
            assert isinstance(value, fake_device.OnDevice), f"{name} is on the host"
            assert torch.equal(value.held, expected[name])
    assert same(ours.buffer.state_dict(), theirs.buffer.state_dict())


def main() -> None:
    torch.set_num_threads(1)
    device = fake_device.install()
    distributed._BACKENDS = {fake_device.NAME: "gloo"}  # as NCCL is that of CUDA
    mlp = seeded(MLP, input_shape=(1, 8, 8), num_classes=10, seed=3)
    resnet = seeded(ResNet18, input_shape=(1, 8, 8), num_classes=10, seed=3, width=4)
    for method in METHODS:
        steps_like_on_the_cpu(device, mlp, method)
    steps_like_on_the_cpu(device, resnet, METHODS[0])
    with distributed.joined() as group:
        assert group._device == device
        collectives(group)
        for kind in (ShardedBuffer, ReplicatedBuffer):
            one_history(kind, Reservoir, group)
        learner_like_one_process(METHODS[2], group, device=device)
        print(f"rank {group.rank} of {group.size} on {group._device}", flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # see driftwise.cli.main
