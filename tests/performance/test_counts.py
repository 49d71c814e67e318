"""Slow paths do not slip back in: what steps, draws, evaluations, checks and runs do is counted.

Counts are the same on every machine, however busy. Where a number here has to rise, something has
become slower: say in the commit what for.
"""

from __future__ import annotations

import math
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import driftwise
from driftwise import rng
from driftwise.config import registry
from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.drift_loop import DriftLoop
from driftwise.learner import Learner, TrainSettings
from driftwise.memory import ReplayBuffer, Reservoir
from driftwise.types import Dataset, Samples

CLASSES, BATCH, SHAPE = 6, 8, (4, 4, 3)
BYTES_AS_FLOATS = BATCH * math.prod(SHAPE) * 4
COPYING = ("_to_copy", "clone", "cat", "copy_", "index_select", "index", "stack", "repeat")


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts torch's operators by name, and the bytes they make, those that copy also apart."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: Counter[str] = Counter()
        self.bytes_copied = 0
        self.bytes_made = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Count, and do as asked."""
        made = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.operators[name] += 1
        self.bytes_made += made.nbytes if isinstance(made, Tensor) else 0
        if name in COPYING:
            self.bytes_copied += made.nbytes
        return made


class Net(nn.Module):
    """A hidden layer and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(math.prod(SHAPE), 5)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.hidden(x.flatten(1)).relu())
        return logits


def make_network(_: int) -> nn.Module:
    with rng.as_global(rng.fork(0, "network")):
        return Net()


def make_plain_network(_: int) -> nn.Module:
    with rng.as_global(rng.fork(0, "network")):
        hidden, head = nn.Linear(math.prod(SHAPE), 5), nn.Linear(5, CLASSES)
        return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), head)


def samples_of(count: int, classes: tuple[int, ...] = tuple(range(CLASSES))) -> Samples:
    return Samples(
        images=torch.randint(256, (count, *SHAPE), dtype=torch.uint8, generator=rng.fork(count)),
        labels=torch.tensor(classes)[torch.arange(count) % len(classes)],
        ids=torch.arange(count),
        concepts=torch.zeros(count, dtype=torch.int64),
    )


def learner_of(method: str, make_network: Callable[[int], nn.Module] = make_network) -> Learner:
    """In its second task, the memory full: every term of the method is at work."""
    learner = Learner(
        make_network,
        registry.make("method", resolve(RunConfig(method=method))),
        buffer=ReplayBuffer(40, policy=Reservoir(), seed=0),
        optimiser=lambda net: torch.optim.SGD(net.parameters(), lr=0.1),
        settings=TrainSettings(minibatch_size=BATCH),
        seed=0,
    )
    learner.begin_task((0, 1, 2))
    for _ in range(8):
        learner.observe(samples_of(BATCH, (0, 1, 2)))
    learner.begin_task((3, 4, 5))
    learner.observe(samples_of(BATCH, (3, 4, 5)))
    return learner


@contextmanager
def samples_forwarded(*networks: nn.Module) -> Iterator[list[int]]:
    """The samples of every call of the networks meanwhile, one entry per call."""
    calls: list[int] = []
    handles = [
        network.register_forward_pre_hook(lambda _, inputs: calls.append(len(inputs[0])))
        for network in networks
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def bytes_made(action: Callable[[], object]) -> int:
    """By torch, all in all, and the most at a time by numpy and Python: walks over slots show."""
    counting = Counting()
    with counting:
        peak = most_at_a_time(action)
    return peak + counting.bytes_made


def most_at_a_time(action: Callable[[], object]) -> int:
    """Bytes that numpy and Python made, those that were there together."""
    tracemalloc.start()
    try:
        action()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak


def instructions(action: Callable[[], object]) -> int:
    """Python's own instructions carried out meanwhile: a loop over samples in Python shows in them."""
    count = 0

    def note(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


FORWARDS = {
    "finetune": [8],
    "er": [16],
    "er-ace": [8, 8],
    "der++": [8, 8, 8],
    "ser": [8, 8, 8],  # stream, draw, and the frozen network on the stream
    "cls-er": [8, 8, 8, 16],  # both averages and the network on the draw, the network on all
}


@pytest.mark.parametrize("method", FORWARDS)
def test_a_step_makes_the_forwards_of_its_method_and_no_other(method: str) -> None:
    learner = learner_of(method)
    with samples_forwarded(*learner.networks) as calls:
        learner.observe(samples_of(BATCH))
    assert sorted(calls) == FORWARDS[method]


FORWARDS_IF_MERGED = {
    "finetune": [8],
    "er": [16],
    "er-ace": [16],
    "der++": [24],
    "ser": [8, 16],  # the frozen network on the stream
    "cls-er": [8, 8, 16],  # both averages on the draw: the network sees no sample twice
}


@pytest.mark.parametrize("method", FORWARDS_IF_MERGED)
def test_forwards_are_merged_where_that_changes_nothing(method: str) -> None:
    learner = learner_of(method, make_network=make_plain_network)
    with samples_forwarded(*learner.networks) as calls:
        learner.observe(samples_of(BATCH))
    assert sorted(calls) == FORWARDS_IF_MERGED[method]


OPERATORS = {
    "finetune": (46, 46),
    "er": (57, 57),
    "er-ace": (96, 68),
    "der++": (143, 84),
    "ser": (116, 89),
    "cls-er": (118, 94),
}
"""Of a step, those of network, loss and optimiser included; and where forwards are merged."""


@pytest.mark.parametrize("method", OPERATORS)
def test_a_step_calls_no_more_operators_than_it_did(method: str) -> None:
    for make, most in zip((make_network, make_plain_network), OPERATORS[method], strict=True):
        learner, batch = learner_of(method, make), samples_of(BATCH)
        with Counting() as counting:
            learner.observe(batch)
        assert counting.operators.total() <= most, counting.operators


def test_a_step_copies_pixels_as_often_as_it_must() -> None:
    learner, batch = learner_of("er"), samples_of(BATCH)
    with Counting() as counting:
        learner.observe(batch)
    # Stream and draw: bytes joined, put in the network's order, turned into floats.
    per_half = BYTES_AS_FLOATS // 4 + BYTES_AS_FLOATS // 4 + BYTES_AS_FLOATS
    labels_joined = 2 * BATCH * 8
    assert counting.bytes_copied == 2 * per_half + labels_joined


def test_a_step_does_not_walk_over_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of("er")
    walks: list[str] = []

    def noting(walk: str) -> Callable[..., list[nn.Module]]:
        def note(*_: object) -> list[nn.Module]:
            walks.append(walk)
            return []

        return note

    for walk in ("train", "named_modules"):
        monkeypatch.setattr(nn.Module, walk, noting(walk))
    learner.observe(samples_of(BATCH))
    assert walks == []


def full_memory(capacity: int) -> ReplayBuffer:
    memory = ReplayBuffer(capacity, policy=Reservoir(), seed=0)
    memory.offer(samples_of(capacity))
    return memory


@pytest.mark.parametrize("operation", ["offer", "put", "drop", "counts", "sample"])
def test_a_buffer_has_no_loop_over_samples(operation: str) -> None:
    def act(count: int) -> Callable[[], object]:
        memory, batch = full_memory(CLASSES * count), samples_of(count)
        memory.drop(0)
        return {
            "offer": lambda: memory.offer(batch),
            "put": lambda: memory.put(batch),
            "drop": lambda: memory.drop(1),
            "counts": memory.counts,
            "sample": lambda: memory.sample(count),
        }[operation]

    few, many = (instructions(act(count)) for count in (4, 90))
    # Room for draws that had to be repeated.
    assert many <= few + 130


@pytest.mark.parametrize("operation", ["offer", "sample"])
def test_a_large_buffer_takes_what_a_small_one_takes(operation: str) -> None:
    small, large = (full_memory(capacity) for capacity in (200, 200_000))
    batch = samples_of(64)

    def act(memory: ReplayBuffer) -> Callable[[], object]:
        return {
            "offer": lambda: memory.offer(batch),
            "sample": lambda: memory.sample(64),
        }[operation]

    for memory in (small, large):
        act(memory)()
    assert instructions(act(large)) <= instructions(act(small)) + 50  # another way to choose
    # A byte per slot would be 200,000.
    assert bytes_made(act(large)) <= bytes_made(act(small)) + 50_000


@pytest.mark.parametrize(("operation", "copies"), [("offer", 0), ("sample", 1)])
def test_pixels_are_not_copied_on_their_way_in_and_once_on_their_way_out(
    operation: str, copies: int
) -> None:
    numbers = torch.arange(128)
    images = torch.zeros((128, 32, 32, 3), dtype=torch.uint8)
    batch = Samples(images=images, labels=numbers % 2, ids=numbers, concepts=numbers * 0)
    first, second = batch.split(64)
    memory = ReplayBuffer(128, policy=Reservoir(), seed=0)
    memory.offer(first)
    act: Callable[[], object] = {
        "offer": lambda: memory.offer(second),
        "sample": lambda: memory.sample(64),
    }[operation]
    once = second.images.nbytes
    assert copies * once <= most_at_a_time(act) < (copies + 0.5) * once


def test_a_live_learner_forwards_each_sample_once_to_predict_and_once_to_learn() -> None:
    """Predictions come from the newest snapshot, whose weights are averaged."""
    live_learner = driftwise.LiveLearner(
        make_plain_network(0),
        detector="never",
        minibatch_size=BATCH,
        replay_steps=0,
        batch_size=None,
    )
    batch = samples_of(BATCH)
    for _ in range(3):
        live_learner.observe(batch.images, batch.labels)
    engine, snapshots = live_learner._engine, live_learner._snapshots
    assert engine is not None
    assert snapshots is not None
    with (
        samples_forwarded(snapshots.newest) as predicted,
        samples_forwarded(engine.learner.network) as learned,
    ):
        seen = live_learner.observe(batch.images, batch.labels)
    assert predicted == [BATCH]
    assert len(learned) == 1
    # One step on the batch without its monitored samples, and on as many from the buffer.
    assert 2 * BATCH - len(seen.ids) // 6 - 1 <= learned[0] <= 2 * BATCH
    with samples_forwarded(snapshots.newest) as predicted:
        live_learner.predict(batch.images)
    assert predicted == [BATCH]


def test_publishing_copies_weights_and_makes_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    live_learner = driftwise.LiveLearner(make_plain_network(0), detector="never")
    batch = samples_of(BATCH)
    for _ in range(3):
        live_learner.observe(batch.images, batch.labels)
    copied: list[object] = []
    monkeypatch.setattr(nn.Module, "__deepcopy__", lambda module, _: copied.append(module), False)
    live_learner.observe(batch.images, batch.labels)
    assert copied == []


def assembled(**settings: Any) -> DriftLoop:
    random = np.random.RandomState(0)
    labels = np.repeat(np.arange(CLASSES), 60)
    dataset = Dataset(
        images=random.randint(256, size=(len(labels), *SHAPE)).astype(np.uint8),
        labels=labels,
        class_names=tuple(map(str, range(CLASSES))),
    )
    config = RunConfig(tasks=((0, 1), (2, 3), (4, 5)), num_drifts=1, backbone="mlp", **settings)
    return assemble(resolve(config), dataset)


def test_an_evaluation_puts_every_test_through_the_network_once() -> None:
    assembly = assembled()
    task = assembly.stream.task(3)
    with assembly.ledger.phase("evaluate"), samples_forwarded(assembly.learner.network) as calls:
        assembly.evaluate(task)
    assert sum(calls) == len(task.tests())
    assert len(calls) == math.ceil(len(task.tests()) / 512)


def test_a_check_puts_every_sample_through_the_encoder_once() -> None:
    assembly = assembled(detector="ks", encoder="learner")
    first, second, third = assembly.stream.tasks()
    with assembly.ledger.phase("detect"):
        for task in (first, second):
            assembly.monitor.renew(task, task.new_classes, task.train())
        with samples_forwarded(assembly.learner.network) as calls:
            verdicts = assembly.monitor.check(third)
    compared = sum(verdict.num_reference + verdict.num_current for verdict in verdicts)
    assert len(verdicts) == 4
    assert sum(calls) == compared
    assert len(calls) == math.ceil(compared / 512)


_opened: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _opened is not None:
        _opened.append(str(arguments[0]))


sys.addaudithook(_note)  # cannot be taken away again; it only notes while somebody counts


def files_opened(folder: Path, epochs: int) -> int:
    """By a run in the folder, there."""
    global _opened
    _opened = []
    config = RunConfig(tasks=((0, 1), (2, 3)), num_drifts=0, max_per_class=60, epochs=epochs)
    driftwise.run(config, folder)
    opened, _opened = _opened, None
    return sum(str(folder) in path for path in opened)


def test_a_run_opens_as_many_files_however_long_its_tasks_are(tmp_path: Path) -> None:
    short, long = files_opened(tmp_path / "short", 1), files_opened(tmp_path / "long", 4)
    assert long == short
    assert short <= 48


def test_a_batch_costs_class_statistics_the_same_however_many_came_before() -> None:
    learner = driftwise.AnalyticLearner(driftwise.methods.SLDA(), scatter="shared")
    learner.begin_task(range(10))
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 10
    costs = []
    for number in range(60):
        images, ids = torch.randn(40, 16, generator=draw), torch.arange(40) + 40 * number
        with Counting() as counting:
            learner.observe(Samples(images=images, labels=labels, ids=ids, concepts=0 * ids))
        bytes_kept = learner.statistics.nbytes()
        costs.append((counting.operators, counting.bytes_made, bytes_kept))
    assert costs[-1] == costs[1]
