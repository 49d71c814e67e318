"""Contract checks for components: call them from the tests of your own package.

    def test_my_method():
        driftwise.testing.check_method(lambda: MyMethod(alpha=0.5))

Each check makes the component, uses it on a few small samples as a run does, and raises
AssertionError where it breaks the contract of its kind, or the UserError with which a run refuses it.
The project's own components go through the same checks.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.datasets.validate import check_dataset as _check_data
from driftwise.detect import Detector, DetectorContext
from driftwise.detect.base import Accumulates, reads_monitored
from driftwise.learner import Learner
from driftwise.memory import ReplayBuffer
from driftwise.methods import ER, Method
from driftwise.models import MLP, seeded
from driftwise.part_state import PartState
from driftwise.protocols import Adaptation, AdaptationContext, Choose
from driftwise.stats.fraction import estimate_shares
from driftwise.types import AdaptationResult, Dataset, Encoding, Samples, StepReport, Verdict

SHAPE = (8, 8, 1)
"""of the images that components are tried with: (height, width, channels)"""
NUM_CLASSES = 10


def make_samples(count: int, *, seed: int = 0, labels: Sequence[int] = (0, 1, 2)) -> Samples:
    """Random images of `SHAPE` whose classes take turns."""
    draw = torch.Generator().manual_seed(seed)
    kinds = torch.tensor(labels)
    return Samples(
        images=torch.randint(256, (count, *SHAPE), generator=draw, dtype=torch.uint8),
        labels=kinds[torch.arange(count) % len(kinds)],
        ids=torch.arange(count) + 1000 * seed,
        concepts=torch.zeros(count, dtype=torch.int64),
    )


def same(first: Any, second: Any) -> bool:
    """Whether two trees of dict, list, tuple, Tensor and plain values are equal, bit for bit."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and type(first) is type(second):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and bool(first == second)


@contextlib.contextmanager
def _leaves_global_randomness() -> Iterator[None]:
    with rng.as_global(torch.Generator().manual_seed(1_000_003)):  # a state that nobody seeds
        before = rng.global_state()
        yield
        after = rng.global_state()
    assert after == before, (
        "expected the global random generators of torch and numpy as they were; draw from a generator "
        "of your own, such as driftwise.rng.fork(seed, 'name')"
    )


def check_method(make: Callable[[], Method]) -> None:
    """A method learns what it sees, keeps its promises about the buffer, and resumes exactly.

    `make` returns a new method at each call: the class itself, if it needs no arguments.
    """

    def learner() -> Learner:
        network = seeded(MLP, input_shape=(1, 8, 8), num_classes=NUM_CLASSES, seed=0)
        return Learner(network, make(), buffer=ReplayBuffer(50), lr=0.05)

    check_learner(learner)


def check_learner(make: Callable[[], Learner]) -> None:
    """The same for a whole learner of images of `SHAPE` in `NUM_CLASSES` classes."""
    learner = make()
    learner.begin_task([0, 1])
    first = make_samples(10, seed=0, labels=(0, 1))
    with _leaves_global_randomness():
        losses = [learner.observe(first).loss]
    assert same(vars(first), vars(make_samples(10, seed=0, labels=(0, 1)))), (
        "expected the batch as it was after a step"
    )
    network = learner.network
    assert network.training, "expected the network in training mode after a step, as it was before"
    losses += [learner.observe(make_samples(10, seed=n, labels=(0, 1))).loss for n in range(1, 30)]
    again = learner.observe(make_samples(10, seed=0, labels=(0, 1))).loss
    assert again < losses[0], (
        f"expected a smaller loss on a batch seen before; {losses[0]} -> {again}"
    )
    learner.end_task()
    offered = 310 if learner.method.rehearses else 0
    assert learner.buffer.seen == offered, f"expected {offered} samples offered to the buffer"
    twin = make()
    twin.load_state_dict(copy.deepcopy(learner.state_dict()))
    for each in (learner, twin):
        each.begin_task([2])
        for number in range(3):
            each.observe(make_samples(10, seed=50 + number, labels=(2,)))
        each.end_task()
    assert same(twin.state_dict(), learner.state_dict()), (
        "expected the same after a resume; does it draw from a global random generator, or keep what "
        "changes outside its attributes?"
    )
    logits = learner.logits(make_samples(4).images)
    assert logits.shape == (4, NUM_CLASSES), (
        f"expected logits (4, {NUM_CLASSES}); got {logits.shape}"
    )


def check_model(make: Callable[..., nn.Module]) -> None:
    """A model gives one logit per class, and each sample its own whatever else is in the batch.

    `make(input_shape=(1, 8, 8), num_classes=10)` returns the network.
    """
    network = make(input_shape=(1, 8, 8), num_classes=NUM_CLASSES)
    learner = Learner(network, ER(), buffer=ReplayBuffer(10))
    images = make_samples(5).images
    together = learner.logits(images)
    assert together.shape == (5, NUM_CLASSES), f"expected (5, {NUM_CLASSES}); got {together.shape}"
    alone = torch.cat([learner.logits(image[None]) for image in images])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def check_adaptation(make: Callable[[], Adaptation]) -> None:
    """An adaptation touches drifted classes only, and never loses a class for nothing."""
    for available in (0, 2, 50):
        buffer = ReplayBuffer(12)
        buffer.put(make_samples(12))
        labels = _Labels(available)
        drifted = [Verdict(task=2, label=label, drifted=True) for label in (1, 2)]
        adaptation = make()
        state = PartState(adaptation, "adaptation")
        kept_before = {label: buffer.samples_of(label).ids.tolist() for label in (1, 2)}
        with _leaves_global_randomness():
            result = adaptation.adapt(drifted, _context(buffer, labels))
        assert isinstance(result, AdaptationResult), (
            f"expected an AdaptationResult; got {type(result).__name__}"
        )
        state.state_dict()  # refuses what changes and cannot be saved
        assert set(labels.asked) <= {1, 2}, (
            f"expected labels of 1 and 2 alone; asked {labels.asked}"
        )
        kept = buffer.samples_of(0).ids.tolist()
        assert kept == [0, 3, 6, 9], (
            f"expected class 0, which has not drifted, as it was; got {kept}"
        )
        assert set(result.renewed) <= {1, 2}, (
            f"renewed classes that have not drifted: {result.renewed}"
        )
        if result.extra is not None:
            found = set(result.extra.labels.tolist())
            assert found == set(result.renewed), (
                f"expected extra samples of renewed classes; {found}"
            )
        if not available:
            assert buffer.counts() == {0: 4, 1: 4, 2: 4}, "without labels no class may lose samples"
            nothing = (result.renewed, result.extra, result.from_scratch) == ((), None, False)
            assert nothing, f"expected no change without labels; got {result}"
        for label, ids in kept_before.items():
            changed = buffer.samples_of(label).ids.tolist() != ids
            assert not changed or label in result.renewed, (
                f"replaced samples of class {label}, which is not among the renewed {result.renewed}"
            )
        learned = set() if result.extra is None else set(result.extra.labels.tolist())
        assert set(buffer.counts()) <= {0, 1, 2} <= set(buffer.counts()) | learned, (
            f"expected samples of the classes 0, 1 and 2; the buffer has {buffer.counts()}"
        )
    buffer, labels = ReplayBuffer(12), _Labels(50)
    buffer.put(make_samples(12))
    before = buffer.state_dict()
    result = make().adapt([], _context(buffer, labels))
    nothing = (result.extra, result.from_scratch, result.renewed) == (None, False, ())
    assert nothing, f"expected nothing to be done where nothing has drifted; got {result}"
    assert not labels.asked, f"asked for labels where nothing has drifted: {labels.asked}"
    assert same(buffer.state_dict(), before), (
        "expected the buffer as it was where nothing has drifted"
    )


def check_detector(make: Callable[[DetectorContext], Detector]) -> None:
    """A detector gives one verdict per class, in their order, and says why it cannot.

    `make(context)` returns the detector: the class itself, or `bind` of `detect.KS()` and the like.
    """
    context = DetectorContext(encoder=_Pixels, drifting=lambda _: (2,))
    detector, again = make(context), make(context)
    reads = reads_monitored(detector)
    state = PartState(detector, "detector")
    buffer, monitored = ReplayBuffer(60), make_samples(60, seed=1)
    buffer.put(make_samples(60))
    before = buffer.state_dict()
    with _leaves_global_randomness():
        verdicts = detector.check(4, [2, 0, 1], monitored, buffer)
    assert same(buffer.state_dict(), before), "expected the buffer as it was after a check"
    assert same(vars(monitored), vars(make_samples(60, seed=1))), (
        "expected the monitored samples as they were after a check"
    )
    labels = [verdict.label for verdict in verdicts]
    assert labels == [2, 0, 1], f"expected verdicts on the classes 2, 0, 1; got {labels}"
    assert {verdict.task for verdict in verdicts} == {4}, "expected verdicts of task 4"
    for verdict in verdicts:
        known = any(verdict.drifted is answer for answer in (True, False, None))
        assert known, f"expected True, False or None as drifted; got {verdict.drifted!r}"
        try:
            json.dumps(asdict(verdict), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise AssertionError(
                f"expected Python's own finite numbers, which can be saved; got {verdict}: {error}"
            ) from error
        assert verdict.p_value is None or 0 <= verdict.p_value <= 1, f"p-value {verdict.p_value}"
        has_reason = verdict.reason is not None
        assert (verdict.drifted is None) is has_reason, (
            "expected a reason just where it is untestable"
        )
    assert detector.check(4, [], make_samples(0), buffer) == [], "expected no verdict on no class"
    state.state_dict()  # refuses what changes and cannot be saved
    twin = again.check(4, [2, 0, 1], make_samples(60, seed=1), buffer)
    assert twin == verdicts, f"expected the same verdicts of another one like it; got {twin}"
    if reads and not isinstance(detector, Accumulates):  # these judge by what came before, too
        (verdict,) = make(context).check(4, [2], make_samples(60, seed=1, labels=(0, 1)), buffer)
        assert verdict.drifted is None, (
            f"expected a class without monitored samples to be untestable; got {verdict.drifted}"
        )


def check_dataset(make: Callable[[], Dataset]) -> None:
    """A data set has samples of one kind, a name for every label, and is the same at each call."""
    dataset, again = make(), make()
    _check_data(dataset, source="the data set")
    for column, first in vars(dataset).items():
        equal = np.array_equal(first, getattr(again, column))
        assert equal, f"expected the same {column} at each call"


class _Labels:
    """Has so many fresh samples of each class, and counts what was asked for."""

    def __init__(self, available: int) -> None:
        self.available = available
        self.asked: dict[int, int] = {}

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        del choose
        granted = self.available if count is None else min(count, self.available)
        self.asked[label] = self.asked.get(label, 0) + granted
        return make_samples(granted, seed=7, labels=(label,))

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        return dict(wanted)

    def unlabelled(self) -> Samples:
        return make_samples(0, seed=7)


class _Pixels:
    """An encoder without a network: an image is its own logits and its own features."""

    def encode(self, images: Tensor) -> Encoding:
        pixels = images.flatten(1).float() / 255
        return Encoding(logits=pixels, features=pixels)


def _no_step(batch: Samples | None, *, rate: float = 1.0) -> StepReport:
    del rate
    labels = torch.empty(0, dtype=torch.int64) if batch is None else batch.labels
    return StepReport(loss=0.0, logits=torch.zeros(len(labels), 1), labels=labels)


def _context(buffer: ReplayBuffer, labels: _Labels) -> AdaptationContext:
    return AdaptationContext(
        buffer=buffer,
        labels=labels,
        annotate=lambda _: {},
        encode=_Pixels().encode,
        rehearse=_no_step,
        steps=lambda: 0,
        monitored=lambda: make_samples(0),
        compare=lambda kept, now: estimate_shares([(kept, now)])[0],
    )
