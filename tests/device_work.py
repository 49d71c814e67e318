"""What each process of a test does on a device that is none: messages, buffers and steps lie there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import fake_device
import numpy as np
import pytest
import torch
from distributed_work import METHODS, collectives, learner_like_one_process, one_history
from torch import nn
from trainer_cases import LR, Digits, make_network

import driftwise as dw
from driftwise import distributed
from driftwise.config import learners
from driftwise.datasets.readers.digits import load_digits
from driftwise.devices import ASYNCHRONOUS
from driftwise.errors import UserError
from driftwise.integrations.realigner import Realigner
from driftwise.learner import Learner, TrainSettings
from driftwise.memory import PrefetchingBuffer, ReplayBuffer, ReplicatedBuffer, ShardedBuffer
from driftwise.memory.policies import Reservoir
from driftwise.methods import SER, DERpp
from driftwise.models import MLP, ResNet18, seeded
from driftwise.runs import result
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
    held, _ = train(ReplayBuffer(20, device=device), device)
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
    for each in (ours, held):
        assert same(each.buffer.state_dict(), theirs.buffer.state_dict())


def realigner_like_on_the_cpu(device: torch.device) -> None:
    """A loop of somebody else's: the host waits for labels, and for samples that the buffer keeps."""

    def train(where: Any) -> tuple[Realigner, nn.Module]:
        digits, network = Digits(), make_network().to(where)
        optimiser = torch.optim.SGD(network.parameters(), lr=LR)
        realigner = Realigner(network, **digits.settings())
        for number in (1, 2, 3):
            digits.task = digits.stream.task(number)
            realigner.begin_task()
            for x, y in digits.batches(epoch=1):
                batch = x.to(where), y.to(where)
                fake_device.copies_to_host.clear()
                inputs, labels = realigner.extend(batch)
                optimiser.zero_grad()
                nn.functional.cross_entropy(network(inputs), labels).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                assert not fake_device.copies_to_host
                realigner.offer(batch)
                assert len(fake_device.copies_to_host) <= 2
            realigner.end_task()
        return realigner, network

    theirs, expected = train("cpu")
    ours, network = train(device)
    for mine, other in zip(network.parameters(), expected.parameters(), strict=True):
        assert torch.equal(mine.held, other)  # type: ignore[attr-defined]
    assert same(ours.buffer.state_dict(), theirs.buffer.state_dict())
    assert ours.records[-1].drifted == theirs.records[-1].drifted == (0, 1, 2, 3)
    ours.begin_task()
    with pytest.raises(UserError, match="class numbers from 0; got -1"):
        ours.offer((torch.zeros(2, 1, 8, 8).to(device), torch.tensor([3, -1]).to(device)))


def run_like_on_the_cpu(device: torch.device, folder: Path) -> None:
    """A whole run by its names: check, adapt, learn, evaluate, save, load."""
    pick = learners.pick_device
    for module in (learners, result):
        vars(module)["pick_device"] = lambda name: device if name == "cuda" else pick(name)
    settings: dict[str, Any] = {"method": "der++", "adaptation": "amr", "detector": "combined"}
    settings |= {"num_tasks": 2, "num_drifts": 1, "epochs": 1}
    results = {}
    for name in ("cpu", "cuda"):
        results[name] = dw.run(dw.RunConfig(**settings, device=name), folder / name)
    assert any(each["drifted"] for each in results["cuda"]["verdicts"])
    for key in ("accuracy_matrix", "labels", "drift_events", "verdicts", "gradient_steps"):
        assert results["cuda"][key] == results["cpu"][key], key
    images = load_digits().images[:50]
    one, two = (dw.load(folder / name).predict_proba(images) for name in results)
    assert np.array_equal(one, two)


def main() -> None:
    torch.set_num_threads(1)
    device = fake_device.install()
    ASYNCHRONOUS[fake_device.NAME] = "gloo"  # as NCCL is that of CUDA
    mlp = seeded(MLP, input_shape=(1, 8, 8), num_classes=10, seed=3)
    resnet = seeded(ResNet18, input_shape=(1, 8, 8), num_classes=10, seed=3, width=4)
    for method in METHODS:
        steps_like_on_the_cpu(device, mlp, method)
    steps_like_on_the_cpu(device, resnet, METHODS[0])
    realigner_like_on_the_cpu(device)
    with distributed.joined() as group:
        assert group._device == device
        collectives(group)
        for kind in (ShardedBuffer, ReplicatedBuffer):
            one_history(kind, Reservoir, group)
        learner_like_one_process(METHODS[2], group, device=device)
        run_like_on_the_cpu(device, Path(sys.argv[1]))
        print(f"rank {group.rank} of {group.size} on {group._device}", flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # see driftwise.cli.main
